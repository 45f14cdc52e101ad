//! `sdpa`: scaled dot-product attention.
//!
//! Arguments: `batch`, `heads`, `kv_heads`, `queries`, `keys`, `dim`, `value_dim` (as dim), `scale`
//! (1/√dim), `sinks`, those of [`mask`](super::mask), and `poison` = `"keys"` or `"values"`: NaN in
//! what no query may see.

#[cfg(feature = "engine")]
use mlx_parity_engine::{Array, ops};
use mlx_parity_oracles::ops::{Attention, sdpa};
use mlx_parity_oracles::{Answer, Convention};
use mlx_parity_tensor::HostTensor;

use super::mask::{self, Kind, Sizes};
use super::operand;
use crate::ops::{Call, Generator, Source, Suite, SuiteError};

/// The suite.
pub struct Sdpa;

/// NaN in the rows of `tensor` (`[batch, kv_heads, keys, width]`) that no query may see.
fn poisoned(
    tensor: &HostTensor,
    sizes: &Sizes,
    unseen: &[(usize, usize)],
) -> Result<HostTensor, SuiteError> {
    let (mut values, width) = (tensor.to_f64(), tensor.shape()[3]);
    for (item, key) in unseen {
        for head in 0..sizes.kv_heads {
            let row = (item * sizes.kv_heads + head) * sizes.keys + key;
            values[row * width..][..width].fill(f64::NAN);
        }
    }
    Ok(HostTensor::from_f64_as(tensor.dtype(), tensor.shape(), &values)?)
}

/// Queries, keys and values of a call.
pub fn projections(
    call: &Call,
    source: &mut Source,
    sizes: &Sizes,
) -> Result<[HostTensor; 3], SuiteError> {
    let Sizes { batch, heads, kv_heads, queries, keys, dim } = *sizes;
    Ok([
        operand::main(call, source, &[batch, heads, queries, dim])?,
        operand::beside(call, source, &[batch, kv_heads, keys, dim])?,
        source.tensor(
            Generator::Random,
            call.dtype,
            &[batch, kv_heads, keys, call.size_or("value_dim", dim)?],
        )?,
    ])
}

/// The operands after q, k and v: the mask, then the sinks, each where the call has it.
struct Rest<'a> {
    mask: Option<&'a HostTensor>,
    sinks: Option<&'a HostTensor>,
}

impl<'a> Rest<'a> {
    fn of(call: &Call, rest: &'a [HostTensor]) -> Result<Self, SuiteError> {
        let has_mask = matches!(mask::kind(call)?, Kind::Bool | Kind::Additive);
        Ok(Self { mask: rest.first().filter(|_| has_mask), sinks: rest.get(usize::from(has_mask)) })
    }
}

fn answer(
    operands: &[HostTensor],
    attention: &Attention,
    sinks: Option<&[f64]>,
) -> Result<Answer, SuiteError> {
    let [q, k, v] = [0, 1, 2].map(|i| operand::wide(&operands[i]));
    Ok(sdpa(&q, &k, &v, &Attention { sinks, ..*attention })?)
}

impl Suite for Sdpa {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let sizes = Sizes::of(call)?;
        let [q, mut k, mut v] = projections(call, source, &sizes)?;
        let mask = mask::make(call, source, &sizes)?;
        let unseen = || mask::unseen(call, &sizes, mask.as_ref());
        match call.text_or("poison", "none")? {
            "none" => {}
            "keys" => k = poisoned(&k, &sizes, &unseen()?)?,
            "values" => v = poisoned(&v, &sizes, &unseen()?)?,
            _ => return Err(call.wrong("poison", "none, keys or values").into()),
        }
        let mut operands = vec![q, k, v];
        operands.extend(mask);
        if call.bool_or("sinks", false)? {
            operands.push(source.tensor(Generator::Random, call.dtype, &[sizes.heads])?);
        }
        Ok(operands)
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let rest = Rest::of(call, &operands[3..])?;
        let (wide, sinks) = (mask::Wide::of(call, rest.mask)?, rest.sinks.map(HostTensor::to_f64));
        let attention = mask::attention(call, call.size("dim")?, wide.mask())?;
        Ok(vec![answer(operands, &attention, sinks.as_deref())?])
    }

    fn conventions(
        &self,
        call: &Call,
        operands: &[HostTensor],
    ) -> Result<Vec<(Convention, Vec<Answer>)>, SuiteError> {
        if call.text_or("poison", "none")? != "none" {
            // NaN throughout would fit any of them.
            return Ok(Vec::new());
        }
        let rest = Rest::of(call, &operands[3..])?;
        let (wide, sinks) = (mask::Wide::of(call, rest.mask)?, rest.sinks.map(HostTensor::to_f64));
        let misread = wide.misread();
        let asked = mask::mistaken(call, &Sizes::of(call)?, &misread)?;
        let scored = asked.into_iter().map(|(convention, attention)| {
            Ok((convention, vec![answer(operands, &attention, sinks.as_deref())?]))
        });
        scored.collect()
    }

    #[cfg(feature = "engine")]
    fn engine(&self, call: &Call, operands: &[Array]) -> Result<Vec<Array>, SuiteError> {
        let (mask, rest) = mask::engine(call, &operands[3..])?;
        let scale = mask::scale(call, call.size("dim")?)?;
        let [q, k, v] = [&operands[0], &operands[1], &operands[2]];
        Ok(vec![ops::attend(q, k, v, scale, mask, rest.first())?])
    }
}
