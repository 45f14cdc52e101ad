//! The gated delta rule (Yang et al., "Gated Delta Networks", 2024): over positions the memory decays, is
//! corrected towards v where k reads it, and is read by q.
//!
//! Operands: q, k `[1, 5, 1, 4]`, v `[1, 5, 2, 3]`, g (f32) and beta `[1, 5, 2]` between 0 and 1, the
//! memory `[1, 2, 3, 4]` (f32). Outputs: what is read `[1, 5, 2, 3]`, the last memory.

use mlx_parity_tensor::{Dtype, HostTensor};

use super::Composite;
use crate::{
    gradcheck::{Form, GradError},
    ops::{Generator, Source},
};

const STEPS: usize = 5;
const HEADS: usize = 2;
const VALUE: usize = 3;
const KEY: usize = 4;

/// The rule.
pub(super) struct GatedDelta;

impl Composite for GatedDelta {
    fn operands(&self, dtype: Dtype, source: &mut Source) -> Result<Vec<HostTensor>, GradError> {
        let wide = if dtype == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
        let mut draw = |dtype, shape: &[usize]| source.tensor(Generator::Random, dtype, shape);
        let (q, k) = (draw(dtype, &[1, STEPS, 1, KEY])?, draw(dtype, &[1, STEPS, 1, KEY])?);
        let (v, memory) =
            (draw(dtype, &[1, STEPS, HEADS, VALUE])?, draw(wide, &[1, HEADS, VALUE, KEY])?);
        let mut share = |dtype| {
            let shares: Vec<f64> =
                (0..STEPS * HEADS).map(|_| 0.25 + 0.5 * source.uniform()).collect();
            HostTensor::from_f64_as(dtype, [1, STEPS, HEADS], &shares)
        };
        Ok(vec![q, k, v, share(wide)?, share(dtype)?, memory])
    }

    fn outputs(&self, dtype: Dtype) -> Vec<Form> {
        let wide = if dtype == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
        vec![
            Form { dtype, shape: vec![1, STEPS, HEADS, VALUE] },
            Form { dtype: wide, shape: vec![1, HEADS, VALUE, KEY] },
        ]
    }

    fn value(&self, operands: &[HostTensor]) -> Result<Vec<f64>, GradError> {
        let [q, k, v, g, beta, mut memory] = [0, 1, 2, 3, 4, 5].map(|i| operands[i].to_f64());
        let mut read = Vec::with_capacity(STEPS * HEADS * VALUE);
        for t in 0..STEPS {
            let (q, k) = (&q[t * KEY..][..KEY], &k[t * KEY..][..KEY]);
            for row in 0..HEADS * VALUE {
                let at = t * HEADS + row / VALUE;
                let memory = &mut memory[row * KEY..][..KEY];
                memory.iter_mut().for_each(|m| *m *= g[at]);
                let delta = (v[t * HEADS * VALUE + row] - dot(memory, k)) * beta[at];
                memory.iter_mut().zip(k).for_each(|(m, k)| *m += k * delta);
                read.push(dot(memory, q));
            }
        }
        read.extend(memory);
        Ok(read)
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, mlx_parity_engine::EngineError> {
        let [q, k, v, g, beta, memory] = [0, 1, 2, 3, 4, 5].map(|i| &operands[i]);
        let (read, memory) = mlx_parity_engine::blocks::gated_delta([q, k, v], g, beta, memory)?;
        Ok(vec![read, memory])
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
