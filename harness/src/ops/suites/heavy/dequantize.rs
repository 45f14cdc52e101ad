//! `dequantize`: codes back to numbers.
//!
//! Arguments: `rows`, `columns`, and those of [`packed`](super::packed).

#[cfg(feature = "engine")]
use mlx_parity_engine::{Array, array, ops};
use mlx_parity_oracles::{Answer, ops::dequantize};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::{operand, packed};
use crate::ops::{Call, Generator, Source, Suite, SuiteError};

/// The suite.
pub struct Dequantize;

/// Every bit pattern of a word, with scales that are numbers.
fn any_codes(
    call: &Call,
    source: &mut Source,
    shape: [usize; 2],
) -> Result<Vec<HostTensor>, SuiteError> {
    let like = source.tensor(Generator::Random, call.dtype, &shape)?;
    let mut parts = packed::pack(call, &like)?;
    parts[0] = source.tensor(Generator::Codes, Dtype::U32, parts[0].shape())?;
    Ok(parts)
}

impl Suite for Dequantize {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let shape = [call.size("rows")?, call.size("columns")?];
        if call.generator == Generator::Codes {
            return any_codes(call, source, shape);
        }
        packed::pack(call, &operand::main(call, source, &shape)?)
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        Ok(vec![dequantize(&packed::unpack(packed::mode(call)?, operands)?)])
    }

    #[cfg(feature = "engine")]
    fn engine(&self, call: &Call, operands: &[Array]) -> Result<Vec<Array>, SuiteError> {
        let matrix = packed::engine_matrix(packed::mode(call)?, operands);
        Ok(vec![ops::packed::dequantize(&matrix, None, Some(array::mlx_dtype(call.dtype)?))?])
    }
}
