//! Loading elements a block at a time, widened to whole words, from bytes of any alignment.

use mlx_parity_tensor::{
    Dtype, bf16_to_f32, f8_e4m3_to_f64, f8_e5m2_to_f64, f8_e8m0_to_f64, f16_to_f32,
};

/// Elements of a block: small enough that all the arrays of one comparison stay in the first-level cache.
pub(super) const BLOCK: usize = 1024;

/// Bits of elements of at most four bytes, zero-extended.
pub(super) fn bits32(size: usize, bytes: &[u8], out: &mut [u32; BLOCK]) -> usize {
    match size {
        1 => fill::<1, _>(bytes, out, |b| u32::from(b[0])),
        2 => fill::<2, _>(bytes, out, |b| u32::from(u16::from_le_bytes(b))),
        _ => fill::<4, _>(bytes, out, u32::from_le_bytes),
    }
}

/// Bits of elements of eight bytes.
pub(super) fn bits64(bytes: &[u8], out: &mut [u64; BLOCK]) -> usize {
    fill::<8, _>(bytes, out, u64::from_le_bytes)
}

/// Values as f64; for 64-bit integers rounded.
pub(super) fn values(dtype: Dtype, bytes: &[u8], out: &mut [f64; BLOCK]) -> usize {
    match dtype {
        Dtype::Bool => fill(bytes, out, |[b]| f64::from(u8::from(b != 0))),
        Dtype::U8 => fill(bytes, out, |[b]| f64::from(b)),
        Dtype::I8 => fill(bytes, out, |b| f64::from(i8::from_le_bytes(b))),
        Dtype::F8E4M3 => fill(bytes, out, |[b]| f8_e4m3_to_f64(b)),
        Dtype::F8E5M2 => fill(bytes, out, |[b]| f8_e5m2_to_f64(b)),
        Dtype::F8E8M0 => fill(bytes, out, |[b]| f8_e8m0_to_f64(b)),
        Dtype::U16 => fill(bytes, out, |b| f64::from(u16::from_le_bytes(b))),
        Dtype::I16 => fill(bytes, out, |b| f64::from(i16::from_le_bytes(b))),
        Dtype::F16 => fill(bytes, out, |b| f64::from(f16_to_f32(half::f16::from_le_bytes(b)))),
        Dtype::Bf16 => fill(bytes, out, |b| f64::from(bf16_to_f32(half::bf16::from_le_bytes(b)))),
        Dtype::U32 => fill(bytes, out, |b| f64::from(u32::from_le_bytes(b))),
        Dtype::I32 => fill(bytes, out, |b| f64::from(i32::from_le_bytes(b))),
        Dtype::F32 => fill(bytes, out, |b| f64::from(f32::from_le_bytes(b))),
        Dtype::U64 => fill(bytes, out, |b| u64::from_le_bytes(b) as f64),
        Dtype::I64 => fill(bytes, out, |b| i64::from_le_bytes(b) as f64),
        Dtype::F64 => fill(bytes, out, f64::from_le_bytes),
    }
}

#[inline]
fn fill<const N: usize, T>(
    bytes: &[u8],
    out: &mut [T; BLOCK],
    element: impl Fn([u8; N]) -> T,
) -> usize {
    let elements = bytes.as_chunks::<N>().0;
    for (to, from) in out.iter_mut().zip(elements) {
        *to = element(*from);
    }
    elements.len().min(BLOCK)
}
