//! How answers are computed beside a model's weights: what keeps its keys and values, how attention
//! reads them, and in which dtype an adapter speaks. Two compositions give two different answers.

mod memory;
mod plan;

pub(crate) use plan::Plan;

use std::fmt;

use crate::kernels::Policy;
use crate::model::Model;
use crate::ops::Affine;

/// Keys in a tile: `n_chunk` of mlx-optiq's `runtime/fused_quant_sdpa.py`.
pub const TILE: i32 = 512;

/// What a [`Decoder`](crate::Decoder) computes with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Composition {
    /// How the keys and values of each cache are packed, where they are: one entry a cache, in the order
    /// of the layers that own one, or none at all for a decoder that packs nothing.
    pub kv: Vec<Option<KvBits>>,
    /// When plain caches become packed ones.
    pub convert: Convert,
    /// How attention reads packed rows.
    pub attention: Route,
    /// What becomes of an adapter's residual.
    pub lora: Lora,
    /// Which fused kernels may take the place of composed ops.
    pub kernels: Policy,
}

/// How the keys and values of a layer are packed, `affine` along the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvBits {
    /// Bits a value: 2, 3, 4, 5, 6 or 8.
    pub bits: i32,
    /// Values that share a scale and a bias: 32, 64 or 128.
    pub group: i32,
}

/// When plain caches become packed ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Convert {
    /// They are packed before the first token (`empty_quantized_like` of mlx-optiq's
    /// `runtime/kv/rotating.py`).
    #[default]
    Empty,
    /// Behind the first model call, which still sees plain rows (`maybe_quantize_kv_cache` of
    /// `mlx_lm/generate.py` with `quantized_kv_start` 0).
    AfterForward,
    /// Behind the first model call that leaves so many tokens or more in the cache
    /// (`quantized_kv_start`).
    FromStep(usize),
}

/// How attention reads packed keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Route {
    /// `quantized_scaled_dot_product_attention` of `mlx_lm/models/base.py`, for every call.
    #[default]
    Stock,
    /// Tiles of [`TILE`] keys for calls of several tokens, as [`Route::Stock`] for a single one.
    TiledPrefill,
    /// Tiles of [`TILE`] keys for every call: `install()` of mlx-optiq's
    /// `runtime/fused_quant_sdpa.py`.
    Tiled,
}

/// What becomes of an adapter's residual before it is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lora {
    /// It is cast to the layer's input's dtype (`mlx_lm/tuner/lora.py`).
    #[default]
    Cast,
    /// It stays as it is (`MountedLoRALinear` of mlx-optiq's `adapters/mount.py`): under an adapter in
    /// f32, what comes out of a layer in bf16 is f32, and so is all behind it.
    Uncast,
}

impl Composition {
    /// That of mlx-lm: plain rows, and an adapter's residual cast.
    pub fn l1() -> Self {
        Self::default()
    }

    /// The same bits for every cache of a model that keeps keys and values; a recurrent layer has
    /// nothing to pack, and stays as it is in the reference too.
    pub fn uniform(model: &Model, bits: KvBits) -> Self {
        let caches = model.network().new_caches();
        let kv = caches.iter().map(|cache| cache.keeps_rows().then_some(bits)).collect();
        Self { kv, ..Self::default() }
    }

    /// The bits of one cache; none where it is not packed.
    pub fn bits(&self, cache: usize) -> Option<KvBits> {
        self.kv.get(cache).copied().flatten()
    }
}

impl From<KvBits> for Affine {
    fn from(KvBits { bits, group }: KvBits) -> Self {
        Self { group_size: group, bits }
    }
}

impl fmt::Display for KvBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kv{}g{}", self.bits, self.group)
    }
}

impl fmt::Display for Composition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packs = self.kv.iter().any(Option::is_some);
        if packs {
            for (i, bits) in self.kv.iter().enumerate() {
                f.write_str(if i == 0 { "" } else { " " })?;
                match bits {
                    Some(bits) => write!(f, "{bits}")?,
                    None => f.write_str("plain")?,
                }
            }
            match self.convert {
                Convert::Empty => f.write_str(", from empty")?,
                Convert::AfterForward => f.write_str(", after forward")?,
                Convert::FromStep(step) => write!(f, ", from step {step}")?,
            }
            f.write_str(match self.attention {
                Route::Stock => ", stock attention",
                Route::TiledPrefill => ", tiled prefill",
                Route::Tiled => ", tiled attention",
            })?;
        } else {
            f.write_str("plain")?;
        }
        f.write_str(match self.lora {
            Lora::Cast => "",
            Lora::Uncast => ", lora uncast",
        })?;
        if self.kernels.is_l1() { Ok(()) } else { write!(f, ", kernels {}", self.kernels) }
    }
}
