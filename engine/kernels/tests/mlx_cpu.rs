//! The functions of `exact` against the answers of MLX's own, as digests: `fixtures/mlx_cpu.py` says of
//! which inputs.

use mlx_parity_kernels::exact;
use mlx_parity_kernels::numbers::{Bf16, F16, F32, Format};
use sha2::{Digest, Sha256};

const ANSWERS: &str = include_str!("fixtures/mlx_cpu.txt");

fn every_half() -> impl Iterator<Item = u16> {
    0..=u16::MAX
}

fn many_singles() -> impl Iterator<Item = f32> {
    let spread = (0..1_u32 << 22).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b1)));
    spread.chain((0..1_u32 << 22).map(|i| (f64::from(i) / 131_072.0 - 16.0) as f32))
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest_of_halves<F: Format<Bits = u16>>(nan: u16, function: fn(f32) -> f32) -> String {
    let results = every_half().map(|bits| function(F::widen(bits)));
    let bits = results.map(|y| if y.is_nan() { nan } else { F::narrow(y) });
    digest(&bits.flat_map(u16::to_le_bytes).collect::<Vec<_>>())
}

fn digest_of_singles(function: fn(f32) -> f32) -> String {
    let bits =
        many_singles().map(function).map(|y| if y.is_nan() { 0x7fc0_0000 } else { y.to_bits() });
    digest(&bits.flat_map(u32::to_le_bytes).collect::<Vec<_>>())
}

fn f16(function: fn(f32) -> f32) -> String {
    digest_of_halves::<F16>(0x7e00, function)
}

fn bf16(function: fn(f32) -> f32) -> String {
    digest_of_halves::<Bf16>(0x7fc0, function)
}

#[test]
fn functions_have_the_bits_of_mlx() {
    let found = [
        ("exp float32", digest_of_singles(exact::exp)),
        ("exp float16", f16(exact::exp)),
        ("exp bfloat16", bf16(exact::exp)),
        ("sigmoid float32", digest_of_singles(exact::sigmoid::<F32>)),
        ("sigmoid float16", f16(exact::sigmoid::<F16>)),
        ("sigmoid bfloat16", bf16(exact::sigmoid::<Bf16>)),
        ("silu float32", digest_of_singles(exact::silu::<F32>)),
        ("silu float16", f16(exact::silu::<F16>)),
        ("silu bfloat16", bf16(exact::silu::<Bf16>)),
        ("erf float32", digest_of_singles(exact::erf::<F32>)),
        ("erf float16", f16(exact::erf::<F16>)),
        ("erf bfloat16", bf16(exact::erf::<Bf16>)),
        ("rsqrt float32", digest_of_singles(exact::rsqrt)),
        ("sin float32", digest_of_singles(exact::sin)),
        ("cos float32", digest_of_singles(exact::cos)),
    ];
    let found: Vec<_> = found.iter().map(|(of, digest)| format!("{of} {digest}")).collect();
    let wanted: Vec<_> = ANSWERS.lines().collect();
    assert_eq!(found, wanted);
}
