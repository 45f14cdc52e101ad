//! `group_norm`: each item normalized over all positions and the channels of a group.
//!
//! Arguments: `batch`, `positions` (`"16"`, `"4x4"`), `channels`, `groups`; `order` = `"strided"`
//! (MLX's default) or `"contiguous"` (its `pytorch_compatible`); `affine`; `eps`; `accumulate` =
//! `"f32"` (statistics as `layer_norm` has them) or `"output"` (as much as statistics in a half
//! dtype can give).

#[cfg(feature = "engine")]
use mlx_parity_engine::{Array, ops};
use mlx_parity_oracles::ops::{ChannelOrder, GroupNorm as Norm, group_norm};
use mlx_parity_oracles::{Answer, Convention};
use mlx_parity_tensor::HostTensor;

use super::{condition::in_float32, operand};
use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite.
pub struct GroupNorm;

const EPS: f64 = 1e-5;

fn order(call: &Call) -> Result<ChannelOrder, SuiteError> {
    match call.text_or("order", "strided")? {
        "strided" => Ok(ChannelOrder::Strided),
        "contiguous" => Ok(ChannelOrder::Contiguous),
        _ => Err(call.wrong("order", "strided or contiguous").into()),
    }
}

fn answer(call: &Call, operands: &[HostTensor], order: ChannelOrder) -> Result<Answer, SuiteError> {
    let x = operand::wide(&operands[0]);
    let [weight, bias] = [1, 2].map(|i| operands.get(i).map(operand::wide));
    let eps = f64::from(call.float_or("eps", EPS)? as f32);
    let (weight, bias) = (weight.as_ref(), bias.as_ref());
    let groups = call.size("groups")?;
    let found = group_norm(&x, &Norm { groups, order, weight, bias, eps })?;
    let members = (x.len() / call.size("batch")?.max(1) / groups.max(1)) as f64;
    let channels = x.last_dim();
    let bias = |i: usize| bias.map_or(0.0, |b| b.data()[i % channels]);
    let values = found.value.clone();
    // The weighted element and the bias are rounded before they are added.
    let own = |i: usize| (values.data()[i] - bias(i)).abs() + bias(i).abs();
    match call.text_or("accumulate", "f32")? {
        "f32" => Ok(in_float32(found, call.dtype, members.sqrt(), |i, _| own(i))),
        // Mean, difference, square, variance, epsilon, root, product, weight and bias: nine
        // roundings of half a unit, where a row of this family may take two and a half.
        "output" => Ok(in_float32(found, call.dtype, members.sqrt(), |_, old| 2.0 * old)),
        _ => Err(call.wrong("accumulate", "f32 or output").into()),
    }
}

impl Suite for GroupNorm {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let channels = call.size("channels")?;
        let positions = operand::extents(call, "positions")?;
        let shape = [vec![call.size("batch")?], positions, vec![channels]].concat();
        let mut operands = vec![operand::main(call, source, &shape)?];
        if call.bool_or("affine", true)? {
            operands.push(operand::beside(call, source, &[channels])?);
            operands.push(operand::beside(call, source, &[channels])?);
        }
        Ok(operands)
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        Ok(vec![answer(call, operands, order(call)?)?])
    }

    fn conventions(
        &self,
        call: &Call,
        operands: &[HostTensor],
    ) -> Result<Vec<(Convention, Vec<Answer>)>, SuiteError> {
        let other = match order(call)? {
            ChannelOrder::Strided => ChannelOrder::Contiguous,
            ChannelOrder::Contiguous => ChannelOrder::Strided,
        };
        Ok(vec![(Convention::GroupOrder, vec![answer(call, operands, other)?])])
    }

    #[cfg(feature = "engine")]
    fn engine(&self, call: &Call, operands: &[Array]) -> Result<Vec<Array>, SuiteError> {
        let order = match order(call)? {
            ChannelOrder::Strided => ops::ChannelOrder::Strided,
            ChannelOrder::Contiguous => ops::ChannelOrder::Contiguous,
        };
        let norm = ops::GroupNorm {
            groups: call.size("groups")? as i32,
            order,
            affine: operands.get(1).zip(operands.get(2)),
            eps: call.float_or("eps", EPS)? as f32,
        };
        Ok(vec![ops::group_norm(&operands[0], &norm)?])
    }
}
