//! `SwitchGlu` against its definition in float64.

use mlx_parity_engine::array::{from_host, to_host};
use mlx_parity_engine::nn::{Experts, SwitchGlu, SwitchLinear};
use mlx_parity_engine::ops::packed::{self, Mode, Packed};
use mlx_parity_engine::ops::{self, Affine};
use mlx_parity_engine::{Array, EngineError};
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;

use super::common::on_mlx_thread;

const EXPERTS: usize = 3;
const HIDDEN: usize = 64;
const INNER: usize = 32;

fn waves(count: usize, seed: f64) -> Vec<f64> {
    (0..count).map(|i| (i as f64 * 0.7 + seed).sin() / 4.0).collect()
}

/// The matrices of all experts and their values as they are stored.
fn matrices(shape: [usize; 3], seed: f64, bits: Option<i32>) -> (Experts, Vec<f64>) {
    let values = waves(shape.iter().product(), seed);
    let plain = HostTensor::from_f64_as(Dtype::F32, shape, &values).expect("floats");
    let plain = from_host(&plain).expect("in");
    let stored = |array: &Array| to_host(array).expect("out").to_f64();
    match bits {
        None => (Experts::Plain(plain.clone()), stored(&plain)),
        Some(bits) => {
            let mode = Mode::Affine(Affine { group_size: 32, bits });
            let packed: Packed = packed::quantize(&plain, mode, None).expect("packed");
            let values = packed::dequantize(&packed, None, None).expect("unpacked");
            (Experts::Packed(packed), stored(&values))
        }
    }
}

struct Layer {
    linear: SwitchLinear,
    weight: Vec<f64>,
    bias: Vec<f64>,
    outputs: usize,
}

impl Layer {
    fn new([outputs, inputs]: [usize; 2], seed: f64, bits: Option<i32>, biased: bool) -> Self {
        let (experts, weight) = matrices([EXPERTS, outputs, inputs], seed, bits);
        let bias: Vec<f32> =
            waves(EXPERTS * outputs, seed + 0.5).iter().map(|value| *value as f32).collect();
        let array = Array::from_slice(&bias, &[EXPERTS as i32, outputs as i32]);
        let bias = bias.iter().map(|value| if biased { f64::from(*value) } else { 0.0 }).collect();
        let linear = SwitchLinear::new(experts, biased.then_some(array));
        Self { linear, weight, bias, outputs }
    }

    /// What the definition says of one row and one expert.
    fn of(&self, x: &[f64], expert: usize) -> Vec<f64> {
        (0..self.outputs)
            .map(|out| {
                let at = expert * self.outputs + out;
                let row = &self.weight[at * x.len()..][..x.len()];
                row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>() + self.bias[at]
            })
            .collect()
    }
}

#[rstest]
fn each_row_goes_through_its_experts(
    #[values(1, 31, 32, 40)] rows: usize,
    #[values(None, Some(4), Some(8))] bits: Option<i32>,
    #[values(false, true)] biased: bool,
) {
    on_mlx_thread(move || {
        let gate = Layer::new([INNER, HIDDEN], 0.1, bits, biased);
        let up = Layer::new([INNER, HIDDEN], 0.2, bits, biased);
        let down = Layer::new([HIDDEN, INNER], 0.3, bits, biased);
        let picks: Vec<u32> = (0..2 * rows).map(|i| ((i * 5 + i / 7) % EXPERTS) as u32).collect();
        let x: Vec<f32> = waves(rows * HIDDEN, 0.9).iter().map(|value| *value as f32).collect();

        let mut wanted = Vec::new();
        for (row, picks) in x.chunks(HIDDEN).zip(picks.chunks(2)) {
            let row: Vec<f64> = row.iter().map(|value| f64::from(*value)).collect();
            for &expert in picks {
                let expert = expert as usize;
                let (gate, up) = (gate.of(&row, expert), up.of(&row, expert));
                let inner: Vec<f64> =
                    gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
                wanted.extend(down.of(&inner, expert));
            }
        }

        let block = SwitchGlu {
            gate_proj: gate.linear,
            up_proj: up.linear,
            down_proj: down.linear,
            activation: ops::silu,
        };
        let x = Array::from_slice(&x, &[1, rows as i32, HIDDEN as i32]);
        let picks = Array::from_slice(&picks, &[1, rows as i32, 2]);
        let mut tapped = Vec::new();
        let found = block.forward(&x, &picks, |name, _| tapped.push(name.to_owned()));
        let found = found.expect("an answer");
        assert_eq!(found.shape(), [1, rows as i32, 2, HIDDEN as i32]);
        assert_eq!(tapped, ["up", "gate", "activation", "down"]);
        let found = to_host(&found).expect("out").to_f64();
        let scale = wanted.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
        for (i, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            assert!((found - wanted).abs() <= 2e-6 * scale, "{i}: {found} {wanted}");
        }
    });
}

#[cfg(target_os = "linux")]
#[test]
fn plain_halves_are_refused_by_mlx_on_the_cpu() {
    on_mlx_thread(|| {
        let (Experts::Plain(weight), _) = matrices([EXPERTS, INNER, HIDDEN], 0.1, None) else {
            panic!("plain")
        };
        let half = |a: &Array| ops::cast(a, mlx_rs::Dtype::Bfloat16).expect("a cast");
        let layer = SwitchLinear::new(Experts::Plain(half(&weight)), None);
        let x = half(&Array::from_slice(&[1.0_f32; HIDDEN], &[1, 1, 1, HIDDEN as i32]));
        let picks = Array::from_slice(&[0_u32, 2], &[1, 2]);
        let product = layer.forward(&x, &picks, false).expect("a graph");
        let error = ops::eval([&product]).expect_err("the reference throws too");
        assert!(matches!(error, EngineError::Op { .. }), "{error}");
        assert!(error.to_string().contains("GatherMM"), "{error}");
    });
}
