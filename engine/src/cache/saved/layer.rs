//! What a file of saved caches says of one layer.

use mlx_parity_tensor::Dtype;
use mlx_rs::Array;
use serde::{Deserialize, Serialize};

use super::{Form, POSITIONS};
use crate::cache::rotating::Counters;
use crate::cache::{
    Buffers, KvCache, PlainCache, QuantizedCache, RecurrentCache, RecurrentForm, RecurrentState,
    RotatingCache, RotatingQuantizedCache,
};
use crate::composition::{KvBits, Route};
use crate::error::EngineError;
use crate::ops::Affine;
use crate::ops::packed::{Mode, Packed};

/// A layer's kind and counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Layer {
    Plain(i32),
    Rotating(Counters),
    Quantized(Quantized),
    RotatingQuantized(RotatingQuantized),
    Recurrent(Recurrent),
}

/// Where a quantized cache stands, and how it packs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Quantized {
    offset: i32,
    packing: Packing,
}

/// Where a rotating quantized cache stands, and how it packs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RotatingQuantized {
    counters: Counters,
    packing: Packing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Packing {
    bits: i32,
    group_size: i32,
}

/// Where a recurrent cache stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recurrent {
    offset: i32,
    form: RecurrentForm,
}

/// A tensor of a layer: its name, dtype, the dtype it may have instead, and extents behind the batch.
pub(super) struct Wanted {
    pub(super) name: &'static str,
    pub(super) dtype: Dtype,
    pub(super) widened: Option<Dtype>,
    pub(super) extents: Vec<i32>,
}

impl Layer {
    /// Of a cache that can be saved.
    ///
    /// # Errors
    /// [`EngineError::CacheForm`] for one of sequences of several lengths.
    pub(super) fn of(cache: &KvCache) -> Result<Self, EngineError> {
        Ok(match cache {
            KvCache::Padded(_) | KvCache::PaddedRotating(_) => {
                return Err(EngineError::CacheForm {
                    found: "sequences of several lengths".to_owned(),
                    wanted: "one sequence, or several of one length".to_owned(),
                });
            }
            KvCache::Plain(cache) => Self::Plain(cache.offset()),
            KvCache::Rotating(cache) => Self::Rotating(cache.counters()),
            KvCache::Quantized(cache) => Self::Quantized(Quantized {
                offset: cache.offset(),
                packing: cache.packing().into(),
            }),
            KvCache::RotatingQuantized(cache) => Self::RotatingQuantized(RotatingQuantized {
                counters: cache.rows().counters(),
                packing: cache.packing().into(),
            }),
            KvCache::Recurrent(cache) => {
                Self::Recurrent(Recurrent { offset: cache.offset(), form: cache.form() })
            }
        })
    }

    pub(super) fn offset(self) -> i32 {
        match self {
            Self::Plain(offset) => offset,
            Self::Rotating(counters) => counters.offset,
            Self::Quantized(quantized) => quantized.offset,
            Self::RotatingQuantized(quantized) => quantized.counters.offset,
            Self::Recurrent(recurrent) => recurrent.offset,
        }
    }

    /// The same layer before its first position.
    pub(super) fn fresh(self) -> Self {
        let start = |counters| Counters { offset: 0, index: 0, ..counters };
        match self {
            Self::Plain(_) => Self::Plain(0),
            Self::Rotating(counters) => Self::Rotating(start(counters)),
            Self::Quantized(quantized) => Self::Quantized(Quantized { offset: 0, ..quantized }),
            Self::RotatingQuantized(RotatingQuantized { counters, packing }) => {
                let counters = start(counters);
                Self::RotatingQuantized(RotatingQuantized { counters, packing })
            }
            Self::Recurrent(recurrent) => Self::Recurrent(Recurrent { offset: 0, ..recurrent }),
        }
    }

    /// What a plain layer becomes when it is packed.
    pub(super) fn packed(self, bits: Option<KvBits>) -> Option<Self> {
        let packing = Affine::from(bits?).into();
        match self {
            Self::Plain(offset) => Some(Self::Quantized(Quantized { offset, packing })),
            Self::Rotating(counters) => {
                Some(Self::RotatingQuantized(RotatingQuantized { counters, packing }))
            }
            _ => None,
        }
    }

    /// Whether the layer can have this as its first array.
    pub(super) fn fits(self, first: &Array) -> bool {
        let growing = |offset| (0..=first.dim(2)).contains(&offset);
        let turning = |Counters { offset, index, max_size, .. }| {
            if offset < max_size {
                growing(offset) && index == offset
            } else {
                // One row is missing where a rollback took all of a write back.
                let whole = first.dim(2) >= max_size && (1..=first.dim(2)).contains(&index);
                whole || (first.dim(2) == max_size - 1 && index == first.dim(2))
            }
        };
        match self {
            Self::Plain(offset) => growing(offset),
            Self::Rotating(counters) => turning(counters),
            Self::Quantized(quantized) => growing(quantized.offset),
            Self::RotatingQuantized(quantized) => turning(quantized.counters),
            Self::Recurrent(recurrent) => recurrent.offset > 0,
        }
    }

    /// The tensors of the layer of cache `at`, in the order that [`Layer::cache`] takes them.
    pub(super) fn wanted(self, form: &Form, at: usize) -> Vec<Wanted> {
        let tensor = |name, dtype, extents: &[i32]| {
            let widened = form.widened.filter(|_| dtype == form.dtype);
            Wanted { name, dtype, widened, extents: extents.to_vec() }
        };
        let [heads, dim] = form.kv_shapes[at].map(|extent| extent as i32);
        let whole = |name| tensor(name, form.dtype, &[heads, POSITIONS, dim]);
        let packed = |Packing { bits, group_size }: Packing| {
            let words = |name| tensor(name, Dtype::U32, &[heads, POSITIONS, dim * bits / 32]);
            let floats =
                |name| tensor(name, form.dtype, &[heads, POSITIONS, dim / group_size.max(1)]);
            vec![
                words("keys.words"),
                floats("keys.scales"),
                floats("keys.biases"),
                words("values.words"),
                floats("values.scales"),
                floats("values.biases"),
            ]
        };
        match self {
            Self::Plain(_) | Self::Rotating(_) => vec![whole("keys"), whole("values")],
            Self::Quantized(quantized) => packed(quantized.packing),
            Self::RotatingQuantized(quantized) => packed(quantized.packing),
            Self::Recurrent(Recurrent { form: recurrent, .. }) => {
                let RecurrentForm { inputs, channels, heads, value_dim, key_dim } = recurrent;
                vec![
                    tensor("conv", form.dtype, &[inputs, channels]),
                    tensor("memory", Dtype::F32, &[heads, value_dim, key_dim]),
                ]
            }
        }
    }

    /// The layer's cache, of the arrays that [`Layer::wanted`] lists or, before the first position,
    /// of none.
    pub(super) fn cache(self, arrays: Vec<Array>, route: Route) -> KvCache {
        let mut arrays = arrays.into_iter();
        match self {
            Self::Plain(offset) => KvCache::Plain(PlainCache::restored(whole(&mut arrays), offset)),
            Self::Rotating(counters) => {
                KvCache::Rotating(RotatingCache::restored(whole(&mut arrays), counters))
            }
            Self::Quantized(Quantized { offset, packing }) => {
                let rows = PlainCache::restored(packed(&mut arrays, packing.into()), offset);
                KvCache::Quantized(QuantizedCache::restored(rows, packing.into(), route))
            }
            Self::RotatingQuantized(RotatingQuantized { counters, packing }) => {
                let rows = RotatingCache::restored(packed(&mut arrays, packing.into()), counters);
                let cache = RotatingQuantizedCache::restored(rows, packing.into(), route);
                KvCache::RotatingQuantized(cache)
            }
            Self::Recurrent(Recurrent { offset, form }) => {
                KvCache::Recurrent(match (arrays.next(), arrays.next()) {
                    (Some(conv), Some(memory)) => {
                        let state = RecurrentState { conv, memory };
                        RecurrentCache::restored(form, state, offset)
                    }
                    _ => RecurrentCache::new(form),
                })
            }
        }
    }
}

fn whole(arrays: &mut impl Iterator<Item = Array>) -> Option<Buffers> {
    Some(Buffers { keys: arrays.next()?, values: arrays.next()? })
}

fn packed(arrays: &mut impl Iterator<Item = Array>, packing: Affine) -> Option<Buffers<Packed>> {
    let mut part = || {
        Some(Packed {
            words: arrays.next()?,
            scales: arrays.next()?,
            biases: Some(arrays.next()?),
            mode: Mode::Affine(packing),
        })
    };
    Some(Buffers { keys: part()?, values: part()? })
}

impl From<Affine> for Packing {
    fn from(Affine { group_size, bits }: Affine) -> Self {
        Self { bits, group_size }
    }
}

impl From<Packing> for Affine {
    fn from(Packing { bits, group_size }: Packing) -> Self {
        Self { group_size, bits }
    }
}
