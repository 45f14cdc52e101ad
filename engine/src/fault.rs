//! Deliberate faults, so that the harness can be seen to catch a wrong engine.
//!
//! They act only in builds with debug assertions; elsewhere naming or loading one is an error.

use mlx_rs::{Array, Dtype};

use crate::array::to_host;
use crate::cache::KvCache;
use crate::error::EngineError;
use crate::ops::{self, Mask};

/// One way to be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The rope base times 1.001.
    RopeBase,
    /// No query attends to the newest key it may see, unless it is the only one.
    DropLastKey,
    /// The attention softmax in bf16 instead of f32.
    SoftmaxDtype,
    /// A trim forgets one position less than it says.
    TrimOneShort,
    /// What is written first after a trim is lost: later calls read what its slots held before.
    StaleSlot,
    /// Each denoising step commits one position too many.
    EarlyCommit,
    /// Layers that share keys and values read those of the first layer of their kind.
    WrongSharedKv,
    /// `abort()` in the third decode step.
    Abort,
    /// The third decode step never ends.
    Hang,
    /// A write to address zero in the third decode step.
    Segv,
}

/// The decode step, counted from 1, in which the process-killing faults act.
const FATAL_STEP: usize = 3;

impl Fault {
    /// Every name [`Fault::parse`] takes.
    pub const NAMES: &'static [&'static str] = &[
        "rope-base",
        "drop-last-key",
        "softmax-dtype",
        "trim-one-short",
        "stale-slot",
        "early-commit",
        "wrong-shared-kv",
        "abort",
        "hang",
        "segv",
    ];

    /// The fault of a name in [`Fault::NAMES`].
    ///
    /// # Errors
    /// [`EngineError::UnknownFault`] for another name, [`EngineError::FaultsCompiledOut`] in a build
    /// without debug assertions.
    pub fn parse(name: &str) -> Result<Self, EngineError> {
        let fault = match name {
            "rope-base" => Self::RopeBase,
            "drop-last-key" => Self::DropLastKey,
            "softmax-dtype" => Self::SoftmaxDtype,
            "trim-one-short" => Self::TrimOneShort,
            "stale-slot" => Self::StaleSlot,
            "early-commit" => Self::EarlyCommit,
            "wrong-shared-kv" => Self::WrongSharedKv,
            "abort" => Self::Abort,
            "hang" => Self::Hang,
            "segv" => Self::Segv,
            _ => {
                return Err(EngineError::UnknownFault {
                    found: name.to_owned(),
                    known: Self::NAMES,
                });
            }
        };
        fault.allowed()?;
        Ok(fault)
    }

    /// Refuses the fault in a build that must not carry any.
    pub(crate) fn allowed(self) -> Result<(), EngineError> {
        if cfg!(debug_assertions) {
            return Ok(());
        }
        Err(EngineError::FaultsCompiledOut { name: format!("{self:?}") })
    }

    /// Acts in the given decode step if this is a fault that ends the process.
    pub(crate) fn strike(self, step: usize) {
        if !cfg!(debug_assertions) || step != FATAL_STEP {
            return;
        }
        match self {
            Self::Abort => std::process::abort(),
            Self::Hang => loop {
                std::thread::park();
            },
            Self::Segv => write_to_null(),
            Self::RopeBase
            | Self::DropLastKey
            | Self::SoftmaxDtype
            | Self::TrimOneShort
            | Self::StaleSlot
            | Self::EarlyCommit
            | Self::WrongSharedKv => {}
        }
    }
}

fn write_to_null() {
    let nowhere = std::hint::black_box(std::ptr::null_mut::<u8>());
    // SAFETY: there is none; the fault exists to kill the process with SIGSEGV, and the page at
    // address zero is never mapped on the supported systems. Volatile, so that it is not removed.
    unsafe { nowhere.write_volatile(1) };
}

/// The rope base under a fault.
pub(crate) fn rope_base(fault: Option<Fault>, base: f64) -> f64 {
    if cfg!(debug_assertions) && fault == Some(Fault::RopeBase) {
        base * (1.0 + 1e-3)
    } else {
        base
    }
}

/// The positions that a trim forgets under a fault, of those it was asked to.
pub(crate) fn trimmed(fault: Option<Fault>, count: i32) -> i32 {
    let short = cfg!(debug_assertions) && fault == Some(Fault::TrimOneShort);
    if short { (count - 1).max(0) } else { count }
}

/// The layer whose keys and values another shares under a fault: the first of its kind.
pub(crate) fn shared_kv(fault: Option<Fault>, donor: usize, first: Option<usize>) -> usize {
    let wrong = cfg!(debug_assertions) && fault == Some(Fault::WrongSharedKv);
    first.filter(|_| wrong).unwrap_or(donor)
}

/// The caches that a call leaves behind under a fault: what they were, `count` positions on.
pub(crate) fn stale(fault: Option<Fault>, before: &[KvCache], count: i32) -> Option<Vec<KvCache>> {
    if !cfg!(debug_assertions) || fault != Some(Fault::StaleSlot) {
        return None;
    }
    let mut stale = before.to_vec();
    for cache in &mut stale {
        cache.skip(count);
    }
    Some(stale)
}

/// The positions that a denoising step commits under a fault, `[1, n]`: with the first one that it
/// does not, of the `open` ones where they are given.
pub(crate) fn one_more(
    fault: Option<Fault>,
    committed: Array,
    open: Option<&Array>,
) -> Result<Array, EngineError> {
    if !cfg!(debug_assertions) || fault != Some(Fault::EarlyCommit) {
        return Ok(committed);
    }
    let bools = |array: &Array| -> Result<Vec<bool>, EngineError> {
        Ok(to_host(array)?.bytes().iter().map(|&byte| byte != 0).collect())
    };
    let mut positions = bools(&committed)?;
    let open = open.map(bools).transpose()?;
    let free = |at: usize| open.as_ref().is_none_or(|open| open[at]);
    if let Some(at) = (0..positions.len()).find(|&at| !positions[at] && free(at)) {
        positions[at] = true;
    }
    Ok(Array::from_slice(&positions, committed.shape()))
}

/// Attention under a fault; `newest` is the column of the newest key.
pub(crate) fn attention(
    fault: Option<Fault>,
    [q, k, v]: [&Array; 3],
    scale: f32,
    mask: &Mask,
    newest: i32,
) -> Result<Array, EngineError> {
    if cfg!(debug_assertions) {
        match fault {
            Some(Fault::DropLastKey) => {
                let mask = without_newest(mask, q.dim(2), k.dim(2), newest)?;
                return ops::scaled_dot_product_attention(q, k, v, scale, &mask);
            }
            Some(Fault::SoftmaxDtype) => return half_softmax_attention([q, k, v], scale, mask),
            _ => {}
        }
    }
    ops::scaled_dot_product_attention(q, k, v, scale, mask)
}

/// Who may attend to whom, row-major `[queries, keys]`.
fn allowed_pairs(mask: &Mask, queries: i32, keys: i32) -> Result<Vec<bool>, EngineError> {
    let pairs = (0..queries).flat_map(|query| (0..keys).map(move |key| (query, key)));
    Ok(match mask {
        Mask::Full => vec![true; (queries * keys) as usize],
        Mask::Causal => pairs.map(|(query, key)| key <= keys - queries + query).collect(),
        Mask::Allowed(array) => {
            let shape = [queries, keys];
            let array = crate::error::op("broadcast_to", mlx_rs::ops::broadcast_to(array, &shape))?;
            to_host(&array)?.bytes().iter().map(|&may| may != 0).collect()
        }
    })
}

fn without_newest(mask: &Mask, queries: i32, keys: i32, newest: i32) -> Result<Mask, EngineError> {
    let mut allowed = allowed_pairs(mask, queries, keys)?;
    for (query, row) in allowed.chunks_mut(keys as usize).enumerate() {
        // Several new rows lie in order at the end, each query's own key on the diagonal.
        let column = (newest + 1 - queries) as usize + query;
        if row.iter().filter(|&&may| may).count() > 1 {
            row[column] = false;
        }
    }
    Ok(Mask::Allowed(Array::from_slice(&allowed, &[queries, keys])))
}

/// MLX's unfused attention with its one f32 step, the softmax, in bf16.
fn half_softmax_attention(
    [q, k, v]: [&Array; 3],
    scale: f32,
    mask: &Mask,
) -> Result<Array, EngineError> {
    let (heads, queries, keys) = (q.dim(1), q.dim(2), k.dim(2));
    let groups = [q.dim(0), k.dim(1), heads / k.dim(1), queries, q.dim(3)];
    let q = ops::multiply(&ops::scalar(f64::from(scale), q.dtype())?, q)?;
    let q = ops::reshape(&q, &groups)?;
    let (k, v) = (ops::expand_dims(k, 2)?, ops::expand_dims(v, 2)?);
    let scores = ops::matmul(&q, &ops::transpose(&k, &[0, 1, 2, 4, 3])?)?;
    let allowed = allowed_pairs(mask, queries, keys)?;
    let allowed = Array::from_slice(&allowed, &[queries, keys]);
    let never = ops::scalar(f64::NEG_INFINITY, scores.dtype())?;
    let scores = crate::error::op("where", mlx_rs::ops::select(&allowed, &scores, &never))?;
    let weights = ops::softmax(&ops::cast(&scores, Dtype::Bfloat16)?, false)?;
    let mixed = ops::matmul(&ops::cast(&weights, v.dtype())?, &v)?;
    ops::reshape(&mixed, &[groups[0], heads, queries, v.dim(-1)])
}
