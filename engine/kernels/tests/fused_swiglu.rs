//! `fused_swiglu` against the bits of MLX's composed ops, as digests: `fixtures/swiglu_mlx.py` says of which
//! inputs.

use half::{bf16, f16};
use mlx_parity_kernels::{Buffer, Candidate, How, Operand, Params, Path, Trial, candidate};
use mlx_parity_tensor::Dtype;
use rstest::rstest;
use sha2::{Digest, Sha256};

const ANSWERS: &str = include_str!("fixtures/swiglu_mlx.txt");
const INPUTS: usize = 384;
const OUTPUTS: usize = 37;

fn hashes(count: usize, salt: u32) -> impl Iterator<Item = u32> {
    (0..count as u32).map(move |i| {
        let h = i.wrapping_mul(0x9e37_79b1).wrapping_add(salt.wrapping_mul(0x85eb_ca6b));
        (h ^ h >> 15).wrapping_mul(0x2c1b_3c6d)
    })
}

fn numbers(name: &'static str, shape: [usize; 2], salt: u32, scale: f32, dtype: Dtype) -> Operand {
    let unit = |hash: u32| ((hash >> 8) as f32 / 16_777_216.0 - 0.5) * scale;
    let numbers = hashes(shape[0] * shape[1], salt).map(unit);
    let buffer = match dtype {
        Dtype::F16 => Buffer::F16(numbers.map(|x| f16::from_f32(x).to_bits()).collect()),
        Dtype::Bf16 => Buffer::Bf16(numbers.map(|x| bf16::from_f32(x).to_bits()).collect()),
        _ => Buffer::F32(numbers.collect()),
    };
    Operand::new(name, shape, buffer)
}

fn trial(rows: usize, bits: usize, group: usize, dtype: Dtype) -> Trial {
    let groups = [OUTPUTS, INPUTS / group];
    let words = |name, salt| {
        let words = hashes(OUTPUTS * INPUTS * bits / 32, salt).collect();
        Operand::new(name, [OUTPUTS, INPUTS * bits / 32], Buffer::U32(words))
    };
    let operands = vec![
        numbers("x", [rows, INPUTS], rows as u32, 4.0, dtype),
        words("gate_w", 10),
        numbers("gate_scales", groups, 11, 0.05, dtype),
        numbers("gate_biases", groups, 12, 0.2, dtype),
        words("up_w", 20),
        numbers("up_scales", groups, 21, 0.05, dtype),
        numbers("up_biases", groups, 22, 0.2, dtype),
    ];
    let (bits, group) = (bits as f64, group as f64);
    let params = Params(vec![
        ("gate_bits", bits),
        ("gate_group", group),
        ("up_bits", bits),
        ("up_group", group),
    ]);
    Trial { name: String::new(), operands, params }
}

fn bytes(kernel: &dyn Candidate, trial: &Trial, how: How) -> Vec<u8> {
    let (dtype, shape) = kernel.results(&trial.call()).expect("a call that it takes").remove(0);
    let mut buffer = Buffer::zeros(dtype, shape.iter().product()).expect("a float dtype");
    kernel.run(&trial.call(), how, &mut [buffer.out()]).expect("a call that it takes");
    buffer.to_host(&shape).expect("its length").bytes().to_vec()
}

fn digest(dtype: Dtype, bits: usize, how: How) -> String {
    let kernel = candidate("fused_swiglu").expect("a candidate");
    let mut digest = Sha256::new();
    for group in [32, 64, 128] {
        for rows in [1, 5] {
            digest.update(bytes(kernel, &trial(rows, bits, group, dtype), how));
        }
    }
    let digest: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{dtype} {bits} {digest}")
}

#[rstest]
fn every_packing_has_the_bits_of_mlx(#[values(Path::Auto, Path::Avx2, Path::Portable)] path: Path) {
    if path == Path::Avx2 && !has_avx2() {
        println!("not run: this processor has no AVX2");
        return;
    }
    let dtypes = [Dtype::F32, Dtype::F16, Dtype::Bf16];
    let each = dtypes.into_iter().flat_map(|dtype| [2, 3, 4, 5, 6, 8].map(|bits| (dtype, bits)));
    let found: Vec<_> =
        each.map(|(dtype, bits)| digest(dtype, bits, How::new().on(path))).collect();
    let wanted: Vec<_> = ANSWERS.lines().collect();
    assert_eq!(found, wanted);
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}
