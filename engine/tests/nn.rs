//! Layers against their definitions in float64.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use common::on_mlx_thread;
use mlx_parity_engine::Array;
use mlx_parity_engine::array::{from_host, to_host};
use mlx_parity_engine::config::RopeConfig;
use mlx_parity_engine::nn::{Embedding, Linear, Matrix, RmsNorm, Rope, Weight};
use mlx_parity_engine::ops::{self, Affine, RopeScaling};
use mlx_parity_tensor::HostTensor;
use rstest::rstest;

fn waves(count: usize, seed: f64) -> Vec<f32> {
    (0..count).map(|i| ((i as f64 * 0.7 + seed).sin() * 1.5) as f32).collect()
}

fn close(array: &Array, wanted: &[f64]) {
    let found = to_host(array).expect("out").to_f64();
    assert_eq!(found.len(), wanted.len());
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let error = (found - wanted).abs();
        assert!(error <= 2e-6 * wanted.abs().max(1.0), "{i}: {found} {wanted}");
    }
}

fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

#[test]
fn activations_follow_their_formulas() {
    on_mlx_thread(|| {
        let x = waves(64, 0.3).iter().map(|value| value * 4.0).collect::<Vec<f32>>();
        let array = Array::from_slice(&x, &[64]);
        let silu: Vec<f64> = widen(&x).iter().map(|x| x / (1.0 + (-x).exp())).collect();
        close(&ops::silu(&array).expect("silu"), &silu);
        let slope = (2.0 / std::f64::consts::PI).sqrt();
        let gelu = |x: &f64| 0.5 * x * (1.0 + (slope * (x + 0.044_715 * x.powi(3))).tanh());
        let gelu: Vec<f64> = widen(&x).iter().map(gelu).collect();
        close(&ops::gelu_approx(&array).expect("gelu"), &gelu);
    });
}

#[rstest]
#[case::plain(0.0)]
#[case::one_plus(1.0)]
fn norms_divide_by_the_root_mean_square(#[case] offset: f64) {
    on_mlx_thread(move || {
        let (x, w, eps) = (waves(24, 0.1), waves(8, 2.0), 1e-3);
        let weight = Array::from_slice(&w, &[8]);
        let norm = if offset == 0.0 {
            RmsNorm::new(weight, eps)
        } else {
            RmsNorm::one_plus(&weight, eps).expect("a norm")
        };
        let wanted: Vec<f64> = widen(&x)
            .chunks(8)
            .flat_map(|row| {
                let square = row.iter().map(|x| x * x).sum::<f64>() / 8.0;
                let root = (square + f64::from(eps)).sqrt();
                row.iter().zip(widen(&w)).map(|(x, w)| x / root * (offset + w)).collect::<Vec<_>>()
            })
            .collect();
        close(&norm.forward(&Array::from_slice(&x, &[1, 3, 8])).expect("a norm"), &wanted);
    });
}

#[rstest]
#[case::halves(false)]
#[case::neighbours(true)]
fn rope_turns_pairs_by_position(#[case] traditional: bool) {
    on_mlx_thread(move || {
        let (offset, scale, base) = (5, 0.5, 100.0);
        let x = waves(12, 0.4);
        let scaling = RopeScaling::Linear { factor: 1.0 / scale };
        let config = RopeConfig { traditional, scaling, ..RopeConfig::plain(base) };
        let rope = Rope::new(&config, 6).expect("a rope");
        let turned = rope.forward(&Array::from_slice(&x, &[1, 1, 2, 6]), offset).expect("a rope");
        let x = widen(&x);
        let mut wanted = x.clone();
        for row in 0..2 {
            for pair in 0..3 {
                let (a, b) = if traditional { (2 * pair, 2 * pair + 1) } else { (pair, pair + 3) };
                let (a, b) = (row * 6 + a, row * 6 + b);
                let frequency = base.powf(-(pair as f64) / 3.0);
                let angle = (f64::from(offset) + row as f64) * scale * frequency;
                wanted[a] = x[a] * angle.cos() - x[b] * angle.sin();
                wanted[b] = x[a] * angle.sin() + x[b] * angle.cos();
            }
        }
        close(&turned, &wanted);
    });
}

/// 4-bit codes of a 3 x 32 matrix in one group a row, with the values they stand for.
fn packed() -> ([HostTensor; 3], Vec<f64>) {
    let codes: Vec<u32> = (0..96_u32).map(|i| i * 7 % 16).collect();
    let words: Vec<u32> = codes
        .chunks(8)
        .map(|chunk| chunk.iter().enumerate().fold(0, |word, (i, code)| word | code << (4 * i)))
        .collect();
    let (scales, biases) = ([0.5_f32, 0.25, 1.0], [-2.0_f32, 1.0, -8.0]);
    let values = codes
        .iter()
        .enumerate()
        .map(|(i, code)| f64::from(scales[i / 32]) * f64::from(*code) + f64::from(biases[i / 32]))
        .collect();
    let tensors = [
        HostTensor::from_u32(vec![3, 4], &words).expect("words"),
        HostTensor::from_f32(vec![3, 1], &scales).expect("scales"),
        HostTensor::from_f32(vec![3, 1], &biases).expect("biases"),
    ];
    (tensors, values)
}

fn affine() -> (Weight, Vec<f64>) {
    let (tensors, values) = packed();
    let [packed, scales, biases] = tensors.map(|tensor| from_host(&tensor).expect("in"));
    let packing = Affine { group_size: 32, bits: 4 };
    (Weight::Affine { packed, scales, biases, packing }, values)
}

#[rstest]
fn linear_layers_multiply_and_add(
    #[values(false, true)] quantized: bool,
    #[values(false, true)] biased: bool,
) {
    on_mlx_thread(move || {
        let (weight, values) = affine();
        let weight = if quantized {
            weight
        } else {
            let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
            Weight::Plain(Matrix::new(Array::from_slice(&values, &[3, 32])).unwrap())
        };
        let bias = [0.5_f32, -3.0, 7.0];
        let layer = Linear::new(weight, biased.then(|| Array::from_slice(&bias, &[3])));
        let x = waves(64, 0.9);
        let wanted: Vec<f64> = widen(&x)
            .chunks(32)
            .flat_map(|row| {
                (0..3)
                    .map(|out| {
                        let product = row.iter().zip(&values[out * 32..]).map(|(x, w)| x * w);
                        product.sum::<f64>() + if biased { f64::from(bias[out]) } else { 0.0 }
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        let found = layer.forward(&Array::from_slice(&x, &[1, 2, 32])).expect("a product");
        let scale = wanted.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
        let found = to_host(&found).expect("out").to_f64();
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!((found - wanted).abs() <= 1e-5 * scale, "{found} {wanted}");
        }
        assert_eq!(found.len(), wanted.len());
    });
}

#[test]
fn a_packed_embedding_unpacks_the_rows_of_its_ids() {
    on_mlx_thread(|| {
        let (weight, values) = affine();
        let embedding = Embedding::new(weight);
        let rows = embedding.forward(&Array::from_slice(&[2_i32, 0], &[1, 2])).expect("rows");
        assert_eq!(rows.shape(), [1, 2, 32]);
        close(&rows, &[&values[64..], &values[..32]].concat());
    });
}
