//! Affine packed tensors, drawn as they are stored: no quantizer is asked.

use mlx_parity_tensor::{HostTensor, TensorError};

use super::{hash::Stream, values::power_of_two};

/// Bits and group of one packed matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// Columns that share a scale and a bias.
    pub group: usize,
    /// Bits a value.
    pub bits: usize,
}

/// Words, scales and biases of the matrix at `path`, whose values would lie in ±2^`exponent`.
///
/// A word is the upper half of its draw. A scale is `(12 + j) · 2^(exponent − 4 − (bits − 1))` with j
/// the three leading bits of its draw, so that half the range of a group is 0.75 to 1.19 of the
/// amplitude; a bias is `−(12 + j) · 2^(exponent − 4)` with a j of its own: about −2^(bits − 1) scales,
/// but no multiple of them. Both have five bits and are exact in bf16.
///
/// # Errors
/// [`TensorError::ShapeOverflow`].
pub fn tensors(
    path: &str,
    shape: &[usize],
    exponent: i32,
    packing: Packing,
) -> Result<[(String, HostTensor); 3], TensorError> {
    let columns = shape.last().copied().unwrap_or(0);
    let with_last = |last: usize| {
        let mut shape = shape.to_vec();
        if let Some(columns) = shape.last_mut() {
            *columns = last;
        }
        shape
    };
    let words = with_last(columns * packing.bits / 32);
    let groups = with_last(columns / packing.group);
    let scale = exponent - 4 - (packing.bits as i32 - 1);
    let [weight, scales, biases] =
        ["weight", "scales", "biases"].map(|part| format!("{path}.{part}"));
    Ok([
        (weight.clone(), HostTensor::from_u32(words.clone(), &drawn_words(&weight, &words))?),
        (scales.clone(), few_bits(&scales, &groups, 1.0, scale)?),
        (biases.clone(), few_bits(&biases, &groups, -1.0, exponent - 4)?),
    ])
}

fn drawn_words(name: &str, shape: &[usize]) -> Vec<u32> {
    let stream = Stream::named(name);
    (0..count(shape)).map(|index| (stream.draw(index) >> 32) as u32).collect()
}

fn few_bits(
    name: &str,
    shape: &[usize],
    sign: f32,
    exponent: i32,
) -> Result<HostTensor, TensorError> {
    let (stream, unit) = (Stream::named(name), sign * power_of_two(exponent));
    let value = |index| (12 + (stream.draw(index) >> 61)) as f32 * unit;
    let bits: Vec<_> =
        (0..count(shape)).map(|index| (value(index).to_bits() >> 16) as u16).collect();
    HostTensor::from_bf16_bits(shape, &bits)
}

fn count(shape: &[usize]) -> u64 {
    shape.iter().product::<usize>() as u64
}
