//! `rope`: rotary position embedding.
//!
//! Arguments: `batch`, `heads`, `tokens`, `dim`; `dims` (rotated features, default all);
//! `traditional`; `offset`; `per_item` (an offset for each item, from `offset` up); and those of
//! [`rope_scaling`](super::rope_scaling).

#[cfg(feature = "engine")]
use mlx_parity_engine::{Array, ops};
use mlx_parity_oracles::ops::rope::{Offsets, Rope as Rotation, rope};
use mlx_parity_oracles::{Answer, Convention, Tensor64};
use mlx_parity_tensor::HostTensor;

use super::{condition::in_float32, operand, rope_scaling};
use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite.
pub struct Rope;

/// Float32 roundings of an angle made of a position and a given period: a quotient and a product.
const GIVEN_PERIOD: f64 = 2.0;
/// Those of one whose frequency is exp(−2i/dims · log base), as MLX computes it. For bases up to
/// 2^20 the exponent is below 16, where it is rounded at 2^-21 of a whole, four of float32's units
/// at one, once for the logarithm and once for the product.
const COMPUTED_PERIOD: f64 = 8.0;

/// Steps between the offsets of neighbouring items: past any number of tokens in use here.
const ITEM_STEP: usize = 37;

fn dims(call: &Call) -> Result<usize, SuiteError> {
    Ok(call.size_or("dims", call.size("dim")?)?)
}

/// Where the operands of a call are: offsets at 1 if there are any, then the periods.
struct Places {
    per_item: bool,
    periods: Option<usize>,
}

impl Places {
    fn of(call: &Call) -> Result<Self, SuiteError> {
        let per_item = call.bool_or("per_item", false)?;
        let given = call.bool_or("freqs", false)?;
        Ok(Self { per_item, periods: given.then_some(1 + usize::from(per_item)) })
    }
}

fn sequence(call: &Call) -> Result<usize, SuiteError> {
    Ok(call.size_or("offset", 0)? + call.size("tokens")?)
}

/// |x| + |y| of the pair that each feature belongs to; what passes through stays as it is.
fn pair_magnitudes(x: &Tensor64, dims: usize, traditional: bool, factor: f64) -> Vec<f64> {
    let half = dims / 2;
    let other = |i: usize| match (traditional, i < half) {
        (true, _) => i ^ 1,
        (false, true) => i + half,
        (false, false) => i - half,
    };
    let of_row = |row: &[f64]| -> Vec<f64> {
        let sum =
            |i: usize| if i < dims { factor * (row[i].abs() + row[other(i)].abs()) } else { 0.0 };
        (0..row.len()).map(sum).collect()
    };
    x.rows().flat_map(of_row).collect()
}

fn answer(call: &Call, operands: &[HostTensor], traditional: bool) -> Result<Answer, SuiteError> {
    let (x, dims, places) = (operand::wide(&operands[0]), dims(call)?, Places::of(call)?);
    let items =
        if places.per_item { operand::whole(&operands[1])?.into_data() } else { Vec::new() };
    let offsets = if places.per_item {
        Offsets::PerItem(&items)
    } else {
        Offsets::One(call.int_or("offset", 0)?)
    };
    let periods = places.periods.map(|at| operands[at].to_f64());
    let table = rope_scaling::table(call, dims, sequence(call)?, periods)?;
    let found = rope(&x, &Rotation { dims, traditional, table: &table, offsets })?;
    let pairs = pair_magnitudes(&x, dims, traditional, table.input_scale.abs());
    let roundings = if places.periods.is_some() { GIVEN_PERIOD } else { COMPUTED_PERIOD };
    Ok(in_float32(found, call.dtype, roundings, |i, condition| condition.min(pairs[i])))
}

impl Suite for Rope {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let shape = ["batch", "heads", "tokens", "dim"].map(|name| call.size(name));
        let shape = shape.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut operands = vec![operand::main(call, source, &shape)?];
        if call.bool_or("per_item", false)? {
            let first = call.size_or("offset", 0)?;
            let offsets: Vec<i32> = (0..shape[0]).map(|i| (first + ITEM_STEP * i) as i32).collect();
            operands.push(HostTensor::from_i32([shape[0]], &offsets)?);
        }
        if call.bool_or("freqs", false)? {
            let table = rope_scaling::table(call, dims(call)?, sequence(call)?, None)?;
            let periods: Vec<f32> = table.periods.iter().map(|v| *v as f32).collect();
            operands.push(HostTensor::from_f32([periods.len()], &periods)?);
        }
        Ok(operands)
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        Ok(vec![answer(call, operands, call.bool_or("traditional", false)?)?])
    }

    fn conventions(
        &self,
        call: &Call,
        operands: &[HostTensor],
    ) -> Result<Vec<(Convention, Vec<Answer>)>, SuiteError> {
        let other = !call.bool_or("traditional", false)?;
        Ok(vec![(Convention::RopePairing, vec![answer(call, operands, other)?])])
    }

    #[cfg(feature = "engine")]
    fn engine(&self, call: &Call, operands: &[Array]) -> Result<Vec<Array>, SuiteError> {
        let (places, dims) = (Places::of(call)?, dims(call)?);
        let offset = if places.per_item {
            ops::RopeOffset::PerItem(&operands[1])
        } else {
            ops::RopeOffset::At(call.int_or("offset", 0)? as i32)
        };
        if call.text_or("scaling", "none")? != "none" {
            let rope = rope_scaling::engine(call, dims)?;
            let length = Some(sequence(call)? as i32);
            return Ok(vec![rope.forward(&operands[0], offset, length)?]);
        }
        let periods = match places.periods {
            Some(at) => ops::Periods::Given(&operands[at]),
            None => ops::Periods::Base(rope_scaling::base(call)? as f32),
        };
        let rotation = ops::Rotation {
            dims: dims as i32,
            traditional: call.bool_or("traditional", false)?,
            periods,
            scale: call.float_or("scale", 1.0)? as f32,
        };
        Ok(vec![ops::rotate(&operands[0], &rotation, offset)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_share_their_magnitudes_and_the_rest_passes() {
        let x = Tensor64::vector([1.0, -2.0, 4.0, 8.0, 16.0]);
        assert_eq!(pair_magnitudes(&x, 4, true, 1.0), [3.0, 3.0, 12.0, 12.0, 0.0]);
        assert_eq!(pair_magnitudes(&x, 4, false, 2.0), [10.0, 20.0, 10.0, 20.0, 0.0]);
    }
}
