//! A composition that a model can carry.

use std::fmt::Display;

use super::{Composition, Convert, KvBits, Lora, Route};
use crate::cache::KvCache;
use crate::error::EngineError;
use crate::model::Model;

/// What the packing of MLX's `affine` mode takes.
const BITS: [i32; 6] = [2, 3, 4, 5, 6, 8];
const GROUPS: [i32; 3] = [32, 64, 128];

/// A composition checked against a model.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    composition: Composition,
    text: String,
}

impl Plan {
    /// Of a decoder that packs nothing.
    pub(crate) fn l1() -> Self {
        let composition = Composition::l1();
        Self { text: composition.to_string(), composition }
    }

    /// Checks a composition.
    ///
    /// # Errors
    /// [`EngineError::Composition`] for another number of caches than the model's, for bits or a group
    /// that do not exist or that a head's width cannot carry, and for a layer that has no rows to pack
    /// or whose attention cannot read packed ones.
    pub(crate) fn new(model: &Model, composition: &Composition) -> Result<Self, EngineError> {
        let caches = model.network().new_caches();
        if !composition.kv.is_empty() && composition.kv.len() != caches.len() {
            return Err(unfit("the number of caches", composition.kv.len(), caches.len()));
        }
        for (i, cache) in caches.iter().enumerate() {
            if let Some(bits) = composition.bits(i) {
                check(model, i, cache, bits)?;
            }
        }
        Ok(Self { text: composition.to_string(), composition: composition.clone() })
    }

    /// The composition.
    pub(crate) fn composition(&self) -> &Composition {
        &self.composition
    }

    /// Its name, which no other has.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn route(&self) -> Route {
        self.composition.attention
    }

    pub(crate) fn lora(&self) -> Lora {
        self.composition.lora
    }

    /// A model's caches before the first token.
    pub(crate) fn new_caches(&self, model: &Model) -> Result<Vec<KvCache>, EngineError> {
        let mut caches = model.network().new_caches();
        if self.composition.convert == Convert::Empty {
            self.pack(&mut caches, 0)?;
        }
        Ok(caches)
    }

    /// Packs what is due behind a model call.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub(crate) fn convert(&self, caches: &mut [KvCache]) -> Result<(), EngineError> {
        let start = match self.composition.convert {
            Convert::Empty => return Ok(()),
            Convert::AfterForward => 0,
            Convert::FromStep(start) => start,
        };
        self.pack(caches, start)
    }

    /// The tokens behind which a call packs what is due, where it is not done before the first.
    pub(crate) fn packs_at(&self) -> Option<usize> {
        let packs = self.composition.kv.iter().any(Option::is_some);
        let at = match self.composition.convert {
            Convert::Empty => None,
            Convert::AfterForward => Some(1),
            Convert::FromStep(start) => Some(start.max(1)),
        };
        at.filter(|_| packs)
    }

    /// Packs the caches that have seen `start` tokens or more.
    fn pack(&self, caches: &mut [KvCache], start: usize) -> Result<(), EngineError> {
        for (cache, bits) in caches.iter_mut().zip(&self.composition.kv) {
            let Some(bits) = *bits else { continue };
            if cache.offset() as usize >= start {
                cache.pack(bits.into(), self.route())?;
            }
        }
        Ok(())
    }
}

fn check(model: &Model, i: usize, cache: &KvCache, bits: KvBits) -> Result<(), EngineError> {
    let KvBits { bits, group } = bits;
    if !BITS.contains(&bits) {
        return Err(unfit(format!("the bits of cache {i}"), bits, "2, 3, 4, 5, 6 or 8"));
    }
    if !GROUPS.contains(&group) {
        return Err(unfit(format!("the group of cache {i}"), group, "32, 64 or 128"));
    }
    if !cache.keeps_rows() {
        let wanted = "nothing: its layer is recurrent and keeps no keys";
        return Err(unfit(format!("the packing of cache {i}"), format!("{bits} bits"), wanted));
    }
    if !model.network().reads_packed() {
        let wanted =
            "nothing: the attention of this architecture computes on plain keys and values";
        return Err(unfit(format!("the packing of cache {i}"), format!("{bits} bits"), wanted));
    }
    let [_, width] = model.network().kv_shape(i);
    if width % group as usize != 0 {
        let wanted = format!("a divisor of the head's width {width}");
        return Err(unfit(format!("the group of cache {i}"), group, wanted));
    }
    Ok(())
}

fn unfit(what: impl Display, found: impl Display, wanted: impl Display) -> EngineError {
    EngineError::Composition {
        what: what.to_string(),
        found: found.to_string(),
        wanted: wanted.to_string(),
    }
}
