//! MLX's layout of packed codes.
//!
//! A row is one little-endian stream of bits in 32-bit words: code i occupies bits `i·bits .. (i +
//! 1)·bits`, lowest first. For 2, 4 and 8 bits that fills each word by itself; for 3, 5 and 6 it
//! gives the reference's packs of 3, 5 and 3 bytes, whose codes cross word boundaries.

use crate::error::OracleError;
use crate::tensor::{PackedTensor, Tensor};

/// Codes of shape `[.., columns]` to words of `[.., columns · bits / 32]`; higher bits of a code
/// are dropped.
pub fn pack(codes: &Tensor<u32>, bits: u32) -> Result<PackedTensor, OracleError> {
    let row_bits = codes.last_dim() * bits as usize;
    if codes.ndim() == 0 || !row_bits.is_multiple_of(32) {
        return Err(OracleError::shape(
            "pack",
            codes.shape(),
            format!("whole words of {bits}-bit codes"),
        ));
    }
    let width = row_bits / 32;
    let mut shape = codes.shape().to_vec();
    shape[codes.ndim() - 1] = width;
    let mut words = PackedTensor::full(shape, 0);
    for (row, out) in codes.rows().zip(words.data_mut().chunks_mut(width.max(1))) {
        for (i, &code) in row.iter().enumerate() {
            let (word, shift) = position(i, bits);
            let placed = u64::from(code & mask(bits)) << shift;
            out[word] |= placed as u32;
            if placed >> 32 != 0 {
                out[word + 1] |= (placed >> 32) as u32;
            }
        }
    }
    Ok(words)
}

/// Words of shape `[.., n]` to codes of `[.., n · 32 / bits]`.
pub fn unpack(words: &PackedTensor, bits: u32) -> Tensor<u32> {
    let mut shape = words.shape().to_vec();
    let columns = words.last_dim() * 32 / bits as usize;
    if let Some(last) = shape.last_mut() {
        *last = columns;
    }
    let read = |row: &[u32], i: usize| {
        let (word, shift) = position(i, bits);
        let next = row.get(word + 1).copied().unwrap_or(0);
        let both = u64::from(row[word]) | u64::from(next) << 32;
        (both >> shift) as u32 & mask(bits)
    };
    let codes = words.rows().flat_map(|row| (0..columns).map(move |i| read(row, i))).collect();
    Tensor::trusted(shape, codes)
}

fn position(i: usize, bits: u32) -> (usize, usize) {
    (i * bits as usize / 32, i * bits as usize % 32)
}

fn mask(bits: u32) -> u32 {
    u32::MAX >> (32 - bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back_at_every_width() {
        for bits in [2, 3, 4, 5, 6, 8] {
            let codes: Vec<u32> = (0..128_u32).map(|i| (i * 37 + i / 7) & mask(bits)).collect();
            let codes = Tensor::new([2, 64], codes).unwrap();
            let words = pack(&codes, bits).unwrap();
            assert_eq!(words.shape(), [2, 2 * bits as usize]);
            assert_eq!(unpack(&words, bits), codes);
        }
    }

    #[test]
    fn three_bit_codes_fill_three_bytes_by_eight() {
        // 0..=7 in three bits each, lowest first, as the reference's pack of three bytes: 0x88,
        // 0xc6, 0xfa.
        let codes = Tensor::new([1, 32], (0..32).map(|i| i % 8).collect()).unwrap();
        let words = pack(&codes, 3).unwrap();
        let bytes: Vec<u8> = words.data().iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(bytes, [0x88, 0xc6, 0xfa].repeat(4));
        assert!(pack(&Tensor::new([1, 8], vec![0; 8]).unwrap(), 3).is_err());
    }
}
