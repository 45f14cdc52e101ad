//! Elementwise arithmetic of two operands broadcast together. Arguments: the shapes `a` and `b`.

use mlx_parity_oracles::{Answer, Convention, IntTensor, Op, Tensor64, ops};
use mlx_parity_tensor::HostTensor;

use super::{exact_integers, unsupported};
use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite of every op of the family.
pub struct Binary;

impl Suite for Binary {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let a = source.tensor(call.generator, call.dtype, &call.shape("a")?)?;
        let b = source.tensor(call.generator, call.dtype, &call.shape("b")?)?;
        if call.dtype.is_float() {
            return Ok(vec![a, b]);
        }
        Ok(vec![a, defined_divisors(&b)?])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        Ok(vec![divide(call, operands, ops::Rounding::Floor)?])
    }

    fn conventions(
        &self,
        call: &Call,
        operands: &[HostTensor],
    ) -> Result<Vec<(Convention, Vec<Answer>)>, SuiteError> {
        let truncates = |convention: &Convention| *convention == Convention::DivisionTruncates;
        Convention::of(call.op)
            .filter(truncates)
            .map(|found| Ok((found, vec![divide(call, operands, ops::Rounding::Truncate)?])))
            .collect()
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        call: &Call,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError> {
        use mlx_parity_engine::ops;
        let (a, b) = (&operands[0], &operands[1]);
        let answer = match call.op {
            Op::Add => ops::add(a, b),
            Op::Sub => ops::subtract(a, b),
            Op::Mul => ops::multiply(a, b),
            Op::Div => ops::divide(a, b),
            Op::FloorDivide => ops::floor_divide(a, b),
            Op::Remainder => ops::remainder(a, b),
            Op::Power => ops::power(a, b),
            _ => return Err(unsupported(call, "not an op of two operands")),
        };
        Ok(vec![answer?])
    }
}

/// Integer divisors without 0, which traps, and -1, whose quotient with the smallest integer does.
fn defined_divisors(b: &HostTensor) -> Result<HostTensor, SuiteError> {
    let defined = |v: &f64| if *v == 0.0 || *v == -1.0 { 3.0 } else { *v };
    let values: Vec<f64> = b.to_f64().iter().map(defined).collect();
    Ok(HostTensor::from_f64_as(b.dtype(), b.shape(), &values)?)
}

fn divide(
    call: &Call,
    operands: &[HostTensor],
    rounding: ops::Rounding,
) -> Result<Answer, SuiteError> {
    if !call.dtype.is_float() {
        let (a, b) = (IntTensor::from_host(&operands[0])?, IntTensor::from_host(&operands[1])?);
        return Ok(exact_integers(&match call.op {
            Op::FloorDivide => ops::floor_divide_int(&a, &b, rounding)?,
            Op::Remainder => ops::remainder_int(&a, &b, rounding)?,
            _ => return Err(unsupported(call, "no reference in integers")),
        }));
    }
    let (a, b) = (Tensor64::from_host(&operands[0]), Tensor64::from_host(&operands[1]));
    Ok(match call.op {
        Op::FloorDivide => ops::floor_divide(&a, &b, rounding)?,
        Op::Remainder => ops::remainder(&a, &b, rounding)?,
        op => ops::binary(op, &a, &b)
            .ok_or_else(|| unsupported(call, "not an op of two operands"))??,
    })
}
