//! A packed linear layer with the residual of a low-rank adapter: `x Wᵀ + scale · (x A) B`.
//!
//! Operands: x `[5, 64]`, words, scales and biases of W `[24, 64]` (affine, 4 bits, groups of 32), A
//! `[64, 4]`, B `[4, 24]`.

use mlx_parity_oracles::{
    PackedTensor, Tensor64,
    ops::{self, Mode, QuantizeRule, Quantized, Scales},
};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::Composite;
use crate::{
    gradcheck::{Form, GradError},
    ops::{Generator, Source, SuiteError},
};

const ROWS: usize = 5;
const IN: usize = 64;
const OUT: usize = 24;
const RANK: usize = 4;
const SCALE: f64 = 2.5;
const MODE: Mode = Mode::Affine { bits: 4, group_size: 32 };

/// The layer.
pub(super) struct Lora;

impl Composite for Lora {
    fn operands(&self, dtype: Dtype, source: &mut Source) -> Result<Vec<HostTensor>, GradError> {
        let mut draw = |shape: &[usize]| source.tensor(Generator::Random, dtype, shape);
        let (x, w) = (draw(&[ROWS, IN])?, draw(&[OUT, IN])?);
        let (a, b) = (draw(&[IN, RANK])?, draw(&[RANK, OUT])?);
        let packed = ops::quantize(&Tensor64::from_host(&w), MODE, QuantizeRule::MLX)
            .map_err(SuiteError::from)?;
        let words = HostTensor::from_u32(packed.words().shape(), packed.words().data())?;
        let Scales::Affine { scales, biases } = packed.scales() else {
            return Err(GradError::Subject("an affine matrix without affine scales".to_owned()));
        };
        let rounded = |of: &Tensor64| HostTensor::from_f64_as(dtype, of.shape(), of.data());
        Ok(vec![x, words, rounded(scales)?, rounded(biases)?, a, b])
    }

    fn outputs(&self, dtype: Dtype) -> Vec<Form> {
        vec![Form { dtype, shape: vec![ROWS, OUT] }]
    }

    fn value(&self, operands: &[HostTensor]) -> Result<Vec<f64>, GradError> {
        Ok(value(operands).map_err(SuiteError::from)?)
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, mlx_parity_engine::EngineError> {
        use mlx_parity_engine::{blocks, ops};
        let [x, words, scales, biases, a, b] = [0, 1, 2, 3, 4, 5].map(|i| &operands[i]);
        let packing = ops::Affine { group_size: 32, bits: 4 };
        let y = ops::quantized_matmul(x, words, scales, biases, packing)?;
        Ok(vec![blocks::low_rank(&y, x, a, b, SCALE)?])
    }
}

fn value(operands: &[HostTensor]) -> Result<Vec<f64>, mlx_parity_oracles::OracleError> {
    let wide = |at: usize| Tensor64::from_host(&operands[at]);
    let scales = Scales::Affine { scales: wide(2), biases: wide(3) };
    let w = Quantized::new(MODE, PackedTensor::from_host(&operands[1])?, scales)?;
    let y = ops::quantized_matmul(&wide(0), &w, true)?.value;
    let xa = ops::matmul(&wide(0), &wide(4))?.value;
    let z = ops::matmul(&xa, &wide(5))?.value;
    Ok(y.data().iter().zip(z.data()).map(|(y, z)| y + SCALE * z).collect())
}
