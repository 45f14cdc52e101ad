//! Operands of any float dtype and layout as rows of float32, and results back.

use half::{bf16, f16};

use crate::call::{Data, Out, View};

impl Data<'_> {
    /// The float at `index`, widened; NaN where the data are integers.
    #[inline(always)]
    pub fn f32(&self, index: usize) -> f32 {
        match self {
            Self::F32(of) => of[index],
            Self::F16(of) => f16::from_bits(of[index]).to_f32(),
            Self::Bf16(of) => f32::from_bits(u32::from(of[index]) << 16),
            Self::U32(_) | Self::I32(_) => f32::NAN,
        }
    }
}

impl View<'_> {
    /// Memory offsets of the elements, row-major.
    pub fn offsets(&self) -> impl Iterator<Item = usize> {
        let (shape, strides) = (self.shape, self.strides);
        (0..self.len()).map(move |mut index| {
            let mut at = 0;
            for (&extent, &stride) in shape.iter().zip(strides).rev() {
                at += index % extent * stride;
                index /= extent;
            }
            at
        })
    }

    /// The elements row-major as float32: exact, as every float dtype of a call fits.
    pub fn to_f32(&self) -> Vec<f32> {
        if !self.is_contiguous() {
            return self.offsets().map(|at| self.data.f32(at)).collect();
        }
        match self.data {
            Data::F32(of) => of[..self.len()].to_vec(),
            _ => (0..self.len()).map(|at| self.data.f32(at)).collect(),
        }
    }

    /// The elements row-major as float64.
    pub fn to_f64(&self) -> Vec<f64> {
        self.offsets().map(|at| f64::from(self.data.f32(at))).collect()
    }
}

impl Out<'_> {
    /// Elements there are.
    pub const fn len(&self) -> usize {
        match self {
            Self::F32(of) => of.len(),
            Self::F16(of) | Self::Bf16(of) => of.len(),
        }
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes `values`, each rounded once (to nearest, ties to even).
    pub fn store(&mut self, values: &[f32]) {
        match self {
            Self::F32(of) => of.copy_from_slice(values),
            Self::F16(of) => {
                for (to, &from) in of.iter_mut().zip(values) {
                    *to = f16::from_f32(from).to_bits();
                }
            }
            Self::Bf16(of) => {
                for (to, &from) in of.iter_mut().zip(values) {
                    *to = bf16::from_f32(from).to_bits();
                }
            }
        }
    }
}
