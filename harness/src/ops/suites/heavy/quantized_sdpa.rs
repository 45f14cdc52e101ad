//! `quantized_sdpa`: attention over quantized keys and values, composed as mlx-lm does, or in tiles
//! of keys as mlx-optiq does.
//!
//! Arguments: those of [`sdpa`](super::sdpa) without sinks and poison; `tile` (keys a tile; 0, the
//! default, is mlx-lm's form); and `bits` and `group` of
//! [`packed`](super::packed).

#[cfg(feature = "engine")]
use mlx_parity_engine::{
    Array,
    ops::{self, ScoreMask},
};
use mlx_parity_oracles::ops::{Attention, quantized_sdpa};
use mlx_parity_oracles::{Answer, Convention};
use mlx_parity_tensor::HostTensor;

use super::mask::{self, Sizes};
use super::{operand, packed, sdpa::projections};
use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite.
pub struct QuantizedSdpa;

/// Operands: q, then words, scales and biases of the keys, those of the values, and the mask where
/// there is one.
const MASK: usize = 7;

fn answer(
    call: &Call,
    operands: &[HostTensor],
    attention: &Attention,
) -> Result<Answer, SuiteError> {
    let mode = packed::mode(call)?;
    let [keys, values] = [1, 4].map(|at| packed::unpack(mode, &operands[at..at + 3]));
    Ok(quantized_sdpa(&operand::wide(&operands[0]), &keys?, &values?, attention)?)
}

impl Suite for QuantizedSdpa {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let sizes = Sizes::of(call)?;
        let [q, k, v] = projections(call, source, &sizes)?;
        let mut operands = [vec![q], packed::pack(call, &k)?, packed::pack(call, &v)?].concat();
        operands.extend(mask::make(call, source, &sizes)?);
        Ok(operands)
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let wide = mask::Wide::of(call, operands.get(MASK))?;
        let attention = mask::attention(call, call.size("dim")?, wide.mask())?;
        Ok(vec![answer(call, operands, &attention)?])
    }

    fn conventions(
        &self,
        call: &Call,
        operands: &[HostTensor],
    ) -> Result<Vec<(Convention, Vec<Answer>)>, SuiteError> {
        let misread = mask::Wide::of(call, operands.get(MASK))?.misread();
        let asked = mask::mistaken(call, &Sizes::of(call)?, &misread)?;
        let scored = asked.into_iter().map(|(convention, attention)| {
            Ok((convention, vec![answer(call, operands, &attention)?]))
        });
        scored.collect()
    }

    #[cfg(feature = "engine")]
    fn engine(&self, call: &Call, operands: &[Array]) -> Result<Vec<Array>, SuiteError> {
        let (scale, mode) = (mask::scale(call, call.size("dim")?)?, packed::mode(call)?);
        let keys = packed::engine_matrix(mode, &operands[1..4]);
        let values = packed::engine_matrix(mode, &operands[4..MASK]);
        let (q, tile) = (&operands[0], call.size_or("tile", 0)? as i32);
        let (mask, _) = mask::engine(call, &operands[MASK..])?;
        Ok(vec![match (tile, mask) {
            (0, mask) => ops::packed::scaled_dot_product_attention(q, &keys, &values, scale, mask)?,
            (_, ScoreMask::Array(_)) => {
                return Err(operand::unsupported(call, "tiles under an array mask"));
            }
            (tile, mask) => {
                let causal = matches!(mask, ScoreMask::Causal);
                ops::packed::tiled_attention(q, &keys, &values, scale, causal, tile)?
            }
        }])
    }
}
