//! Quantized matrices: modes, packed codes, quantization and exact dequantization.

mod affine;
mod microscaling;
mod packing;

pub use affine::{Arithmetic, affine_codes};
pub use microscaling::ScaleRule;
pub use packing::{pack, unpack};

use crate::answer::Answer;
use crate::error::OracleError;
use crate::format::{E2M1, E4M3, decode_e8m0};
use crate::tensor::{PackedTensor, Tensor, Tensor64};

/// A quantization mode of MLX (`mlx.core.quantize`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Unsigned integers with a scale and a bias a group.
    Affine {
        /// Bits a code: 2, 3, 4, 5, 6 or 8.
        bits: u32,
        /// Elements a group: 32, 64 or 128.
        group_size: usize,
    },
    /// FP4 E2M1 with an E8M0 scale per 32 elements (OCP Microscaling 1.0).
    Mxfp4,
    /// FP8 E4M3 with an E8M0 scale per 32 elements.
    Mxfp8,
    /// FP4 E2M1 with an E4M3 scale per 16 elements.
    Nvfp4 {
        /// Largest magnitude of the whole tensor, where scales are relative to it: they are
        /// multiplied by this / (448 · 6).
        global_scale: Option<f64>,
    },
}

impl Mode {
    /// Every affine mode MLX supports.
    pub fn affine_modes() -> impl Iterator<Item = Self> {
        [2, 3, 4, 5, 6, 8]
            .into_iter()
            .flat_map(|bits| [32, 64, 128].map(|group_size| Self::Affine { bits, group_size }))
    }

    /// Bits a code.
    pub fn bits(self) -> u32 {
        match self {
            Self::Affine { bits, .. } => bits,
            Self::Mxfp4 | Self::Nvfp4 { .. } => 4,
            Self::Mxfp8 => 8,
        }
    }

    /// Elements that share a scale.
    pub fn group_size(self) -> usize {
        match self {
            Self::Affine { group_size, .. } => group_size,
            Self::Mxfp4 | Self::Mxfp8 => 32,
            Self::Nvfp4 { .. } => 16,
        }
    }

    /// MLX's name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            Self::Affine { .. } => "affine",
            Self::Mxfp4 => "mxfp4",
            Self::Mxfp8 => "mxfp8",
            Self::Nvfp4 { .. } => "nvfp4",
        }
    }

    fn validate(self) -> Result<(), OracleError> {
        let Self::Affine { bits, group_size } = self else { return Ok(()) };
        if matches!(bits, 2 | 3 | 4 | 5 | 6 | 8) && matches!(group_size, 32 | 64 | 128) {
            return Ok(());
        }
        Err(OracleError::parameter(
            "quantize",
            format!("{bits} bits in groups of {group_size}"),
            "2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128",
        ))
    }
}

/// What multiplies and shifts the codes of each group.
#[derive(Clone, Debug, PartialEq)]
pub enum Scales {
    /// w = scale · code + bias, scale and bias already widened from their dtype.
    Affine {
        /// Shape `[.., columns / group]`.
        scales: Tensor64,
        /// The same shape.
        biases: Tensor64,
    },
    /// Raw E8M0 or E4M3 codes, shape `[.., columns / group]`.
    Codes(Tensor<u8>),
}

/// A matrix, or a stack of them, quantized along its last axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantized {
    mode: Mode,
    words: PackedTensor,
    scales: Scales,
}

impl Quantized {
    /// Packed `words` of shape `[.., columns · bits / 32]` with scales of `[.., columns / group]`.
    pub fn new(mode: Mode, words: PackedTensor, scales: Scales) -> Result<Self, OracleError> {
        mode.validate()?;
        let groups = match (&scales, mode) {
            (Scales::Affine { scales, biases }, Mode::Affine { .. }) => {
                if scales.shape() != biases.shape() {
                    let wanted = format!("{:?} as the scales", scales.shape());
                    return Err(OracleError::shape("quantized biases", biases.shape(), wanted));
                }
                scales.shape()
            }
            (Scales::Codes(codes), Mode::Mxfp4 | Mode::Mxfp8 | Mode::Nvfp4 { .. }) => codes.shape(),
            _ => {
                return Err(OracleError::parameter(
                    "quantized",
                    format!("scales of another kind for {}", mode.name()),
                    "scales and biases for affine, codes for the others",
                ));
            }
        };
        let mut wanted = words.shape().to_vec();
        if let Some(last) = wanted.last_mut() {
            *last = *last * 32 / mode.bits() as usize / mode.group_size();
        }
        let whole =
            (words.last_dim() * 32).is_multiple_of(mode.bits() as usize * mode.group_size());
        if groups != wanted || !whole || words.ndim() == 0 {
            return Err(OracleError::shape("quantized scales", groups, format!("{wanted:?}")));
        }
        Ok(Self { mode, words, scales })
    }

    /// How the codes are to be read.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The packed codes.
    pub fn words(&self) -> &PackedTensor {
        &self.words
    }

    /// The groups' scales.
    pub fn scales(&self) -> &Scales {
        &self.scales
    }

    /// Shape of the matrix the codes stand for.
    pub fn shape(&self) -> Vec<usize> {
        let mut shape = self.words.shape().to_vec();
        if let Some(last) = shape.last_mut() {
            *last = *last * 32 / self.mode.bits() as usize;
        }
        shape
    }
}

/// How [`quantize`] computes and rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantizeRule {
    /// Whether each step rounds to float32, as MLX computes it.
    pub arithmetic: Arithmetic,
    /// How E8M0 scales round.
    pub scale_rule: ScaleRule,
}

impl QuantizeRule {
    /// What MLX 0.32 does.
    pub const MLX: Self = Self { arithmetic: Arithmetic::F32, scale_rule: ScaleRule::Up };
}

/// Rows of `w` quantized in groups along the last axis; scales and biases are returned unrounded.
///
/// Codes of elements halfway between two steps depend on the arithmetic: compare dequantized values
/// within half a step, or codes against [`affine_codes`] with the engine's own scales. Codes of
/// small floats round ties to even and keep the sign of zero, as MLX's Metal kernel does; its CPU
/// takes the first nearest code of a table instead.
pub fn quantize(w: &Tensor64, mode: Mode, rule: QuantizeRule) -> Result<Quantized, OracleError> {
    mode.validate()?;
    let group = mode.group_size();
    if w.ndim() == 0 || !w.last_dim().is_multiple_of(group) {
        return Err(OracleError::shape(
            "quantize",
            w.shape(),
            format!("rows of whole groups of {group}"),
        ));
    }
    let mut groups = w.shape().to_vec();
    groups[w.ndim() - 1] /= group;
    let (codes, scales) = match mode {
        Mode::Affine { bits, .. } => {
            affine::quantize(w.data(), groups, bits, group, rule.arithmetic)
        }
        _ => microscaling::quantize(w.data(), groups, mode, rule),
    };
    let words = pack(&Tensor::trusted(w.shape().to_vec(), codes), mode.bits())?;
    Quantized::new(mode, words, scales)
}

/// The matrix the codes stand for, exactly in float64. The condition of an affine element is
/// |scale·code| + |bias|.
pub fn dequantize(q: &Quantized) -> Answer {
    let codes = unpack(&q.words, q.mode.bits());
    let group = q.mode.group_size();
    let per_code = |f: &dyn Fn(usize, u32) -> (f64, f64)| {
        codes.data().iter().enumerate().map(|(i, &code)| f(i / group, code)).collect()
    };
    let pairs: Vec<(f64, f64)> = match &q.scales {
        Scales::Affine { scales, biases } => per_code(&|at, code| {
            let (term, bias) = (scales.data()[at] * f64::from(code), biases.data()[at]);
            (term + bias, term.abs() + bias.abs())
        }),
        Scales::Codes(scales) => per_code(&|at, code| {
            let value = scale_value(q.mode, scales.data()[at]) * element_value(q.mode, code);
            (value, value.abs())
        }),
    };
    Answer::from_pairs(q.shape(), pairs)
}

/// The real scale of a scale code, the global one included.
fn scale_value(mode: Mode, code: u8) -> f64 {
    match mode {
        Mode::Nvfp4 { global_scale } => {
            let whole = global_scale.map_or(1.0, |g| g / (E4M3.max_value() * E2M1.max_value()));
            E4M3.decode(u64::from(code)) * whole
        }
        _ => decode_e8m0(code),
    }
}

fn element_value(mode: Mode, code: u32) -> f64 {
    let format = if mode == Mode::Mxfp8 { E4M3 } else { E2M1 };
    format.decode(u64::from(code))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ramp(rows: usize, columns: usize, from: f64, to: f64) -> Tensor64 {
        let n = (rows * columns - 1) as f64;
        let data = (0..rows * columns).map(|i| from + (to - from) * i as f64 / n).collect();
        Tensor64::trusted(vec![rows, columns], data)
    }

    proptest! {
        #[test]
        fn affine_values_come_back_within_half_a_step(
            row in prop::collection::vec(-10.0_f64..10.0, 128),
            at in 0_usize..18,
        ) {
            let mode = Mode::affine_modes().nth(at).unwrap();
            let w = Tensor64::new([1, 128], row).unwrap();
            let q = quantize(&w, mode, QuantizeRule { arithmetic: Arithmetic::F64, ..QuantizeRule::MLX }).unwrap();
            let Scales::Affine { scales, .. } = q.scales() else { unreachable!() };
            let back = dequantize(&q).value;
            for (i, (w, b)) in w.data().iter().zip(back.data()).enumerate() {
                // The re-centred scale may leave the far end up to one step outside the codes.
                let step = scales.data()[i / mode.group_size()].abs();
                prop_assert!((w - b).abs() <= 1.01 * step, "{} {} {}", w, b, step);
            }
        }
    }

    #[test]
    fn zero_and_tiny_groups_come_back_small() {
        for value in [0.0, 1e-36] {
            let w = Tensor64::full([1, 64], value);
            for mode in [
                Mode::Affine { bits: 4, group_size: 64 },
                Mode::Mxfp4,
                Mode::Nvfp4 { global_scale: None },
            ] {
                let back = dequantize(&quantize(&w, mode, QuantizeRule::MLX).unwrap()).value;
                assert!(back.data().iter().all(|b| b.abs() <= 1.34 * value), "{mode:?} {value}");
            }
        }
    }

    #[test]
    fn microscaled_elements_keep_their_relative_precision() {
        // 2^-2 relative for one mantissa bit, 2^-4 for three, where the group's range is covered.
        let w = ramp(2, 64, 1.0, 3.9);
        let bounds = [
            (Mode::Mxfp4, 0.25),
            (Mode::Mxfp8, 0.0625),
            (Mode::Nvfp4 { global_scale: None }, 0.25),
        ];
        for (mode, bound) in bounds {
            let back = dequantize(&quantize(&w, mode, QuantizeRule::MLX).unwrap()).value;
            let worst = w
                .data()
                .iter()
                .zip(back.data())
                .map(|(w, b)| ((w - b) / w).abs())
                .fold(0.0, f64::max);
            assert!(worst <= bound && worst > bound / 8.0, "{mode:?} {worst}");
        }
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let mode = Mode::Affine { bits: 4, group_size: 32 };
        let words = PackedTensor::full([2, 8], 0);
        let scales = |shape: [usize; 2]| Scales::Affine {
            scales: Tensor64::full(shape, 1.0),
            biases: Tensor64::full(shape, 0.0),
        };
        assert!(Quantized::new(mode, words.clone(), scales([2, 2])).is_ok());
        assert!(Quantized::new(mode, words.clone(), scales([2, 1])).is_err());
        assert!(Quantized::new(mode, PackedTensor::full([2, 7], 0), scales([2, 1])).is_err());
        assert!(Quantized::new(Mode::Mxfp4, words.clone(), scales([2, 2])).is_err());
        assert!(
            Quantized::new(Mode::Affine { bits: 7, group_size: 32 }, words, scales([2, 2]))
                .is_err()
        );
        assert!(quantize(&Tensor64::full([1, 33], 0.0), mode, QuantizeRule::MLX).is_err());
    }
}
