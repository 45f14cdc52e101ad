//! A mixture of experts: each token through the two experts of the largest probabilities, whose weights
//! are divided by their sum.
//!
//! Operands: x `[7, 8]`, router `[4, 8]`, experts `[4, 6, 8]`. Output `[7, 6]`.

use mlx_parity_tensor::{Dtype, HostTensor};

use super::Composite;
use crate::{
    gradcheck::{Form, GradError},
    ops::{Generator, Source},
};

const TOKENS: usize = 7;
const HIDDEN: usize = 8;
const EXPERTS: usize = 4;
const OUT: usize = 6;
const PICKS: usize = 2;

/// The layer.
pub(super) struct Routed;

impl Composite for Routed {
    fn operands(&self, dtype: Dtype, source: &mut Source) -> Result<Vec<HostTensor>, GradError> {
        let mut draw = |shape: &[usize]| source.tensor(Generator::Random, dtype, shape);
        Ok(vec![
            draw(&[TOKENS, HIDDEN])?,
            draw(&[EXPERTS, HIDDEN])?,
            draw(&[EXPERTS, OUT, HIDDEN])?,
        ])
    }

    fn outputs(&self, dtype: Dtype) -> Vec<Form> {
        vec![Form { dtype, shape: vec![TOKENS, OUT] }]
    }

    fn value(&self, operands: &[HostTensor]) -> Result<Vec<f64>, GradError> {
        let [x, router, experts] = [0, 1, 2].map(|i| operands[i].to_f64());
        Ok(x.chunks(HIDDEN).flat_map(|x| token(x, &router, &experts)).collect())
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, mlx_parity_engine::EngineError> {
        let [x, router, experts] = [0, 1, 2].map(|i| &operands[i]);
        Ok(vec![mlx_parity_engine::blocks::routed(x, router, experts, PICKS as i32)?])
    }
}

fn token(x: &[f64], router: &[f64], experts: &[f64]) -> Vec<f64> {
    let dot = |w: &[f64]| -> f64 { w.iter().zip(x).map(|(w, x)| w * x).sum() };
    let mut scored: Vec<(f64, usize)> =
        router.chunks(HIDDEN).enumerate().map(|(at, row)| (dot(row), at)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    let powers: Vec<f64> =
        scored.iter().take(PICKS).map(|(score, _)| (score - scored[0].0).exp()).collect();
    let sum: f64 = powers.iter().sum();
    let mut out = vec![0.0; OUT];
    for ((_, expert), power) in scored.iter().zip(powers) {
        let matrix = &experts[expert * OUT * HIDDEN..][..OUT * HIDDEN];
        let rows = out.iter_mut().zip(matrix.chunks(HIDDEN));
        rows.for_each(|(out, row)| *out += power / sum * dot(row));
    }
    out
}
