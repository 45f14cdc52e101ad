//! Operands of any float dtype and layout as rows of float32, and results back.

use mlx_parity_tensor::Dtype;

use crate::call::{Data, Out, View};
use crate::numbers::{Bf16, F16, Format};

impl Data<'_> {
    /// The float at `index`, widened; NaN where the data are integers.
    #[inline(always)]
    pub fn f32(&self, index: usize) -> f32 {
        match self {
            Self::F32(of) => of[index],
            Self::F16(of) => F16::widen(of[index]),
            Self::Bf16(of) => Bf16::widen(of[index]),
            Self::U32(_) | Self::I32(_) => f32::NAN,
        }
    }
}

impl Data<'_> {
    /// Writes the floats from `at` on, widened; NaN where the data are integers.
    #[inline(always)]
    pub fn widen(&self, at: usize, to: &mut [f32]) {
        fn each<T: Copy>(of: &[T], to: &mut [f32], widen: impl Fn(T) -> f32) {
            to.iter_mut().zip(of).for_each(|(to, &of)| *to = widen(of));
        }
        match self {
            Self::F32(of) => to.copy_from_slice(&of[at..at + to.len()]),
            Self::F16(of) => each(&of[at..at + to.len()], to, F16::widen),
            Self::Bf16(of) => each(&of[at..at + to.len()], to, Bf16::widen),
            Self::U32(_) | Self::I32(_) => to.fill(f32::NAN),
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
        let mut to = vec![0.0; self.len()];
        self.data.widen(0, &mut to);
        to
    }

    /// The elements row-major as float64.
    pub fn to_f64(&self) -> Vec<f64> {
        self.offsets().map(|at| f64::from(self.data.f32(at))).collect()
    }
}

impl Out<'_> {
    /// The dtype.
    pub const fn dtype(&self) -> Dtype {
        match self {
            Self::F32(_) => Dtype::F32,
            Self::F16(_) => Dtype::F16,
            Self::Bf16(_) => Dtype::Bf16,
        }
    }

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

    /// Writes `values` from element `at` on, each rounded once (to nearest, ties to even).
    pub fn store_at(&mut self, at: usize, values: &[f32]) {
        let end = at + values.len();
        match self {
            Self::F32(of) => Out::F32(&mut of[at..end]).store(values),
            Self::F16(of) => Out::F16(&mut of[at..end]).store(values),
            Self::Bf16(of) => Out::Bf16(&mut of[at..end]).store(values),
        }
    }

    /// Writes `values`, each rounded once (to nearest, ties to even).
    pub fn store(&mut self, values: &[f32]) {
        match self {
            Self::F32(of) => of.copy_from_slice(values),
            Self::F16(of) => {
                of.iter_mut().zip(values).for_each(|(to, &x)| *to = F16::narrow(x));
            }
            Self::Bf16(of) => {
                of.iter_mut().zip(values).for_each(|(to, &x)| *to = Bf16::narrow(x));
            }
        }
    }
}
