//! MLX's affine packing: `w = scale · code + bias`, one scale and bias to a group of codes along a row.
//!
//! A row of codes is one little-endian stream of bits in 32-bit words: code i occupies bits
//! `i·bits .. (i + 1)·bits`, lowest first (`mlx/backend/cpu/quantized.cpp`; 3, 5 and 6 bits cross words).

use mlx_parity_tensor::Dtype;

use crate::call::{Call, Data, View};
use crate::error::KernelError;
use crate::how::How;
use crate::lanes::LANES;

/// Bits that MLX packs.
const BITS: [u32; 6] = [2, 3, 4, 5, 6, 8];

/// Group sizes that MLX packs.
pub const GROUPS: [usize; 3] = [32, 64, 128];

/// Words that hold `cols` codes.
pub const fn words(cols: usize, bits: u32) -> usize {
    (cols * bits as usize).div_ceil(32)
}

/// The word in which code `index` starts, and its lowest bit there.
#[inline(always)]
pub const fn position(index: usize, bits: u32) -> (usize, u32) {
    let bit = index * bits as usize;
    (bit / 32, (bit % 32) as u32)
}

/// Code `index` of a row.
#[inline(always)]
pub fn code(row: &[u32], bits: u32, index: usize) -> u32 {
    let (word, shift) = position(index, bits);
    let next = if shift + bits > 32 { row[word + 1] } else { 0 };
    let both = u64::from(row[word]) | u64::from(next) << 32;
    (both >> shift) as u32 & (u32::MAX >> (32 - bits))
}

/// Codes of one row to words; higher bits of a code are dropped.
pub fn pack(codes: &[u32], bits: u32) -> Vec<u32> {
    let mut row = vec![0_u32; words(codes.len(), bits)];
    for (index, &code) in codes.iter().enumerate() {
        let (word, shift) = position(index, bits);
        let placed = u64::from(code & (u32::MAX >> (32 - bits))) << shift;
        row[word] |= placed as u32;
        if placed >> 32 != 0 {
            row[word + 1] |= (placed >> 32) as u32;
        }
    }
    row
}

/// The first `codes.len()` codes of a row, as numbers.
#[inline(always)]
pub fn unpack(row: &[u32], bits: u32, codes: &mut [f32]) {
    match bits {
        2 => unpack_words::<2>(row, codes),
        4 => unpack_words::<4>(row, codes),
        8 => unpack_words::<8>(row, codes),
        _ => {
            for (index, to) in codes.iter_mut().enumerate() {
                *to = code(row, bits, index) as f32;
            }
        }
    }
}

#[inline(always)]
fn unpack_words<const BITS: usize>(row: &[u32], codes: &mut [f32]) {
    let per = 32 / BITS;
    for (&word, to) in row.iter().zip(codes.chunks_mut(per)) {
        for (index, to) in to.iter_mut().enumerate() {
            *to = ((word >> (index * BITS)) & ((1 << BITS) - 1)) as f32;
        }
    }
}

/// A packed matrix `[rows, cols]`, lent.
#[derive(Debug, Clone, Copy)]
pub struct Packed<'a> {
    words: &'a [u32],
    scales: Data<'a>,
    biases: Data<'a>,
    /// Rows: outputs of the projection.
    pub rows: usize,
    /// Columns: inputs of the projection.
    pub cols: usize,
    /// Bits of a code.
    pub bits: u32,
    /// Codes of a group.
    pub group: usize,
}

impl<'a> Packed<'a> {
    /// The matrix of operands `<name>_w`, `<name>_scales`, `<name>_biases` and numbers `<name>_bits`,
    /// `<name>_group`, for activations of `cols` columns and the given dtype.
    ///
    /// # Errors
    /// [`KernelError::Malformed`] where an operand or number is missing or does not fit the others,
    /// [`KernelError::Unsupported`] where one of them is not contiguous.
    pub fn of(
        kernel: &'static str,
        call: &Call<'a>,
        name: &str,
        cols: usize,
        dtype: Dtype,
    ) -> Result<Self, KernelError> {
        let views =
            ["w", "scales", "biases"].map(|part| call.operand(kernel, &format!("{name}_{part}")));
        let [words, scales, biases] = views;
        let bits = call.param(kernel, &format!("{name}_bits"))? as u32;
        let group = call.param(kernel, &format!("{name}_group"))? as usize;
        Self::new(kernel, name, [words?, scales?, biases?], (bits, group), cols, dtype)
    }

    /// The matrix of views `[rows, words]`, `[rows, groups]` and `[rows, groups]`.
    ///
    /// # Errors
    /// As [`Packed::of`].
    pub fn new(
        kernel: &'static str,
        name: &str,
        [words, scales, biases]: [View<'a>; 3],
        (bits, group): (u32, usize),
        cols: usize,
        dtype: Dtype,
    ) -> Result<Self, KernelError> {
        let malformed = |what: String| Err(KernelError::Malformed { kernel, what });
        if !BITS.contains(&bits) || !GROUPS.contains(&group) {
            return malformed(format!("`{name}` has {bits} bits in groups of {group}"));
        }
        let &[rows, row_words] = words.shape else {
            return malformed(format!("`{name}_w` has shape {:?}, not [rows, words]", words.shape));
        };
        if !cols.is_multiple_of(group) || row_words != self::words(cols, bits) {
            return malformed(format!("`{name}_w` has {row_words} words a row for {cols} columns"));
        }
        for (part, view) in [("scales", scales), ("biases", biases)] {
            if view.shape != [rows, cols / group] || view.data.dtype() != dtype {
                return malformed(format!(
                    "`{name}_{part}` is {:?} of {}, not [{rows}, {}] of {dtype}",
                    view.shape,
                    view.data.dtype(),
                    cols / group
                ));
            }
        }
        let Data::U32(data) = words.data else {
            return malformed(format!("`{name}_w` is {}, not uint32", words.data.dtype()));
        };
        if ![words, scales, biases].iter().all(View::is_contiguous) {
            return Err(KernelError::Unsupported {
                kernel,
                found: format!("`{name}` as a view with gaps"),
                wanted: "packed weights row-major without gaps".into(),
            });
        }
        let (scales, biases) = (scales.data, biases.data);
        Ok(Self { words: data, scales, biases, rows, cols, bits, group })
    }

    /// The words of a row.
    #[inline(always)]
    pub fn row(&self, row: usize) -> &'a [u32] {
        let len = words(self.cols, self.bits);
        &self.words[row * len..][..len]
    }

    /// Of scales and biases.
    pub const fn dtype(&self) -> Dtype {
        self.scales.dtype()
    }

    /// Groups of a row.
    pub const fn groups(&self) -> usize {
        self.cols / self.group
    }

    /// Scale and bias of a group of a row, widened.
    #[inline(always)]
    pub fn scale_bias(&self, row: usize, group: usize) -> (f32, f32) {
        let at = row * self.groups() + group;
        (self.scales.f32(at), self.biases.f32(at))
    }

    /// Scales and biases of rows `first .. first + there`, row by row, and sixteen zeros behind them.
    #[inline(always)]
    pub(crate) fn rows_of_scales(&self, first: usize, there: usize, how: How) -> [Vec<f32>; 2] {
        let len = there * self.groups();
        let mut both = [self.scales, self.biases].map(|of| {
            let mut rows = vec![0.0; len + LANES];
            of.widen(first * self.groups(), &mut rows[..len]);
            rows
        });
        self.spoil(&mut both, len, how);
        both
    }

    /// The bugs in scales and biases that kernels share.
    fn spoil(&self, [scales, biases]: &mut [Vec<f32>; 2], len: usize, how: How) {
        if how.is("scale_off") {
            scales[..len].iter_mut().for_each(|scale| *scale *= 1.01);
        }
        if how.is("bias_forgotten") {
            biases[..len].fill(0.0);
        }
        if how.is("wrong_group") {
            for rows in [scales, biases] {
                rows[..len].chunks_mut(self.groups()).for_each(|row| row.rotate_left(1));
            }
        }
    }

    /// Scales and biases of the groups of rows `first .. first + there`, one row in each lane.
    #[inline(always)]
    pub(crate) fn columns_of_scales(
        &self,
        first: usize,
        there: usize,
        how: How,
    ) -> [Vec<[f32; LANES]>; 2] {
        self.rows_of_scales(first, there, how).map(|rows| {
            let mut columns = vec![[0.0; LANES]; self.groups()];
            for (lane, row) in rows.chunks_exact(self.groups()).take(there).enumerate() {
                for (column, &x) in columns.iter_mut().zip(row) {
                    column[lane] = x;
                }
            }
            columns
        })
    }

    /// A row in float64: `scale · code + bias` of the numbers as they are stored.
    pub fn row_f64(&self, row: usize) -> Vec<f64> {
        let words = self.row(row);
        let value = |col: usize| {
            let (scale, bias) = self.scale_bias(row, col / self.group);
            f64::from(scale) * f64::from(code(words, self.bits, col)) + f64::from(bias)
        };
        (0..self.cols).map(value).collect()
    }
}
