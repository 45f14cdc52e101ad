//! A decoder under the composition of a case.

use mlx_parity_engine::{
    Composition, Convert, Decoder, EngineError, KvBits, Lora, Model, Route, kernels::Policy,
};

use crate::case::{self, Kv, Packing, Replay};

/// The decoder that a replay asks for.
///
/// # Errors
/// What the engine says to a composition that the model cannot carry.
pub(super) fn decoder<'m>(model: &'m Model, replay: &Replay) -> Result<Decoder<'m>, EngineError> {
    with(model, replay.prefill_step, replay.composition.as_ref())
}

/// A decoder under a composition, with the exact kernels that are promoted, or as mlx-lm has it.
///
/// # Errors
/// As [`decoder`].
pub(super) fn with<'m>(
    model: &'m Model,
    prefill_step: usize,
    asked: Option<&case::Composition>,
) -> Result<Decoder<'m>, EngineError> {
    let (preset, composition) = match asked {
        None => (Policy::l1(), Composition::l1()),
        Some(asked) => (Policy::l2(), composition(model, asked)),
    };
    let kernels = preset.with_environment()?;
    Decoder::with(model, prefill_step, &Composition { kernels, ..composition })
}

fn composition(model: &Model, asked: &case::Composition) -> Composition {
    Composition {
        kv: asked.kv.as_ref().map(|kv| bits(model, kv)).unwrap_or_default(),
        convert: match asked.convert {
            None | Some(case::Convert::Empty) => Convert::Empty,
            Some(case::Convert::AfterForward) => Convert::AfterForward,
            Some(case::Convert::FromStep(step)) => Convert::FromStep(step),
        },
        attention: match asked.attention {
            case::Route::Stock => Route::Stock,
            case::Route::TiledPrefill => Route::TiledPrefill,
            case::Route::Tiled => Route::Tiled,
        },
        lora: match asked.lora {
            case::Lora::Cast => Lora::Cast,
            case::Lora::Uncast => Lora::Uncast,
        },
        kernels: Policy::l1(),
    }
}

/// The packing of every cache. A layer that the model does not have makes the list too long, which the
/// engine refuses.
fn bits(model: &Model, kv: &Kv) -> Vec<Option<KvBits>> {
    let bits = |bits: u32, group: u32| KvBits { bits: bits as i32, group: group as i32 };
    match kv {
        Kv::All(Packing { bits: b, group }) => Composition::uniform(model, bits(*b, *group)).kv,
        Kv::Layers(layers) => {
            let caches = Decoder::new(model, 1).cache_names().len();
            let last = layers.last().map_or(0, |entry| entry.layer + 1);
            let mut kv = vec![None; caches.max(last)];
            for entry in layers {
                kv[entry.layer] = Some(bits(entry.bits, entry.group));
            }
            kv
        }
    }
}
