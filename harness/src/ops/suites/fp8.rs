//! FP8 E4M3 codes. Argument: `shape`. `from_fp8` gives the case's dtype; its `exhaustive` codes are
//! all 256 in order, again and again.

use mlx_parity_oracles::{Answer, Op, Tensor, Tensor64, ops};
use mlx_parity_tensor::{Dtype, HostTensor};

use crate::ops::{Call, Generator, Source, Suite, SuiteError};

/// The suite of `to_fp8` and `from_fp8`.
pub struct Fp8;

impl Suite for Fp8 {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let shape = call.shape("shape")?;
        if call.op == Op::ToFp8 {
            return Ok(vec![source.tensor(call.generator, call.dtype, &shape)?]);
        }
        if call.generator == Generator::Exhaustive {
            let codes = (0..shape.iter().product()).map(|i: usize| i as u8).collect();
            return Ok(vec![HostTensor::new(Dtype::U8, shape, codes)?]);
        }
        Ok(vec![source.tensor(call.generator, Dtype::U8, &shape)?])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        if call.op == Op::ToFp8 {
            let codes = ops::to_fp8(&Tensor64::from_host(&operands[0]));
            return Ok(vec![Answer::exact(codes.map(f64::from))]);
        }
        Ok(vec![ops::from_fp8(&Tensor::<u8>::from_host(&operands[0])?)])
    }

    fn outputs(&self, call: &Call) -> Vec<Dtype> {
        vec![if call.op == Op::ToFp8 { Dtype::U8 } else { call.dtype }]
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        call: &Call,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError> {
        use mlx_parity_engine::{array::mlx_dtype, ops};
        Ok(vec![match call.op {
            Op::ToFp8 => ops::to_fp8(&operands[0])?,
            _ => ops::from_fp8(&operands[0], mlx_dtype(call.dtype)?)?,
        }])
    }
}
