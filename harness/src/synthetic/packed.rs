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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_scales_and_biases_are_these() {
        let packing = Packing { group: 32, bits: 4 };
        let [(weight, words), (scale, scales), (bias, biases)] =
            tensors("p", &[1, 64], -2, packing).unwrap();
        assert_eq!([weight, scale, bias], ["p.weight", "p.scales", "p.biases"]);
        assert_eq!(
            (words.shape(), scales.shape(), biases.shape()),
            (&[1, 8][..], &[1, 2][..], &[1, 2][..])
        );
        // From a Python of the doc comment's words.
        let first: Vec<u32> =
            words.bytes().chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(first[..3], [0x36ef_bf8f, 0x1cfd_fd72, 0xdf6a_6fe3]);
        assert_eq!(scales.view().to_f64(), [0.035_156_25, 0.031_25]);
        assert_eq!(biases.view().to_f64(), [-0.218_75, -0.265_625]);
    }

    #[test]
    fn shapes_follow_bits_and_group() {
        let packing = Packing { group: 64, bits: 8 };
        let [words, scales, biases] = tensors("p", &[3, 5, 128], 0, packing).unwrap();
        assert_eq!(words.1.shape(), [3, 5, 32]);
        assert_eq!((scales.1.shape(), biases.1.shape()), (&[3, 5, 2][..], &[3, 5, 2][..]));
    }
}
