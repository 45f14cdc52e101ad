//! Deliberate faults, so that the harness can be seen to catch a wrong engine.
//!
//! They act only in builds with debug assertions; elsewhere naming or loading one is an error.

mod attention;
mod planted;
mod points;
mod state;

pub(crate) use attention::{attention, mask, softmax};
pub(crate) use planted::{down, in_layer, mlp_norm_eps, unwatched};
pub(crate) use points::{Armed, can_fail, point};
pub(crate) use state::{
    called, joined, keeps_failed, loaded, planted, refused, stale, taken_back, trim, trims_anything,
};

use mlx_rs::{Array, Dtype};

use crate::array::to_host;
use crate::error::EngineError;
use crate::nn::{Linear, Matrix, Weight};
use crate::ops;

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
    /// The last norm of a layer's attention half and the first of its feed-forward half trade places.
    NormOrder,
    /// A norm that multiplies by `1 + weight` multiplies by `weight`.
    ForgottenOnePlus,
    /// A softcap of three fifths of the config's: that of the logits where the scores' is meant.
    WrongSoftcap,
    /// Scores are scaled after they are computed, and after a softcap, instead of queries before.
    ScaleAfter,
    /// Queries and keys are normed behind rope.
    QkNormAfterRope,
    /// The gate passes through and the other half is activated.
    SwappedGateUp,
    /// Embedded tokens are scaled in f32 by the unrounded number.
    EmbedScaleDtype,
    /// A model whose embedding is the output projection too uses a head that nothing was loaded into.
    TiedHeadIgnored,
    /// The weights of the picked experts are not brought to a sum of 1.
    UnnormalisedTopK,
    /// A window is one position narrower than the config says.
    WindowOneNarrow,
    /// A trim forgets in the first layer only.
    TrimFirstLayerOnly,
    /// The first two layers share one counter, which a trim takes back twice.
    SharedOffset,
    /// A trim that must be refused is said to be done.
    TrimPastWindow,
    /// Loaded caches stand one position before the saved ones.
    OffsetNotRestored,
    /// A loaded window that has wrapped takes another slot for the newest.
    RingIndexLost,
    /// A loaded recurrent layer starts from nothing.
    StateNotRestored,
    /// The last layer keeps what it had when caches are loaded.
    LayerNotLoaded,
    /// Loaded packed keys have the scales of the group before.
    ScaleOfAnotherGroup,
    /// The slot behind the newest position counts as one after a call of several.
    UnusedSlotCounted,
    /// The first layer's sequences trade places after each call of a batch.
    RowsSwapped,
    /// A call that was refused counts as a position.
    RefusedCallCounted,
    /// A rollback takes back one token less than it was asked to.
    RollbackOneShort,
    /// What a failed step wrote stays, so that the step that follows writes it twice.
    FailedStepKept,
    /// Padding of a batch counts as positions of its sequences.
    PaddingCounted,
    /// [`Fault::RopeBase`] in one layer only, the third.
    RopeBaseOfLayer,
    /// What the second head of the fourth layer attends to, times 1.01.
    OneHead,
    /// The last 32 outputs of the second layer's feed-forward block are not written: zeros.
    MlpTile,
    /// The norm before the third layer's feed-forward block with an eps ten times too large.
    NormEps,
    /// Once the second layer's cache has a position 3, its values there are those of position 2.
    CacheSlot,
    /// In every second run, counted over a process, the second layer's feed-forward block gives 1.01
    /// times what it should.
    Flaky,
    /// The logits of calls that keep no intermediates, times 1.01.
    Unwatched,
    /// `abort()` in the third decode step.
    Abort,
    /// The third decode step never ends.
    Hang,
    /// A write to address zero in the third decode step.
    Segv,
}

/// The decode step, counted from 1, in which the process-killing faults act.
const FATAL_STEP: usize = 3;

/// Each fault by its name.
const KNOWN: &[(&str, Fault)] = &[
    ("rope-base", Fault::RopeBase),
    ("drop-last-key", Fault::DropLastKey),
    ("softmax-dtype", Fault::SoftmaxDtype),
    ("trim-one-short", Fault::TrimOneShort),
    ("stale-slot", Fault::StaleSlot),
    ("early-commit", Fault::EarlyCommit),
    ("wrong-shared-kv", Fault::WrongSharedKv),
    ("norm-order", Fault::NormOrder),
    ("forgotten-one-plus", Fault::ForgottenOnePlus),
    ("wrong-softcap", Fault::WrongSoftcap),
    ("scale-after", Fault::ScaleAfter),
    ("qk-norm-after-rope", Fault::QkNormAfterRope),
    ("swapped-gate-up", Fault::SwappedGateUp),
    ("embed-scale-dtype", Fault::EmbedScaleDtype),
    ("tied-head-ignored", Fault::TiedHeadIgnored),
    ("unnormalised-top-k", Fault::UnnormalisedTopK),
    ("window-one-narrow", Fault::WindowOneNarrow),
    ("trim-first-layer-only", Fault::TrimFirstLayerOnly),
    ("shared-offset", Fault::SharedOffset),
    ("trim-past-window", Fault::TrimPastWindow),
    ("offset-not-restored", Fault::OffsetNotRestored),
    ("ring-index-lost", Fault::RingIndexLost),
    ("state-not-restored", Fault::StateNotRestored),
    ("layer-not-loaded", Fault::LayerNotLoaded),
    ("scale-of-another-group", Fault::ScaleOfAnotherGroup),
    ("unused-slot-counted", Fault::UnusedSlotCounted),
    ("rows-swapped", Fault::RowsSwapped),
    ("refused-call-counted", Fault::RefusedCallCounted),
    ("rollback-one-short", Fault::RollbackOneShort),
    ("failed-step-kept", Fault::FailedStepKept),
    ("padding-counted", Fault::PaddingCounted),
    ("rope-base-of-layer", Fault::RopeBaseOfLayer),
    ("one-head", Fault::OneHead),
    ("mlp-tile", Fault::MlpTile),
    ("norm-eps", Fault::NormEps),
    ("cache-slot", Fault::CacheSlot),
    ("flaky", Fault::Flaky),
    ("unwatched", Fault::Unwatched),
    ("abort", Fault::Abort),
    ("hang", Fault::Hang),
    ("segv", Fault::Segv),
];

impl Fault {
    /// Every name [`Fault::parse`] takes.
    pub const NAMES: &'static [&'static str] = &{
        let mut names = [""; KNOWN.len()];
        let mut at = 0;
        while at < KNOWN.len() {
            names[at] = KNOWN[at].0;
            at += 1;
        }
        names
    };

    /// The fault of a name in [`Fault::NAMES`].
    ///
    /// # Errors
    /// [`EngineError::UnknownFault`] for another name, [`EngineError::FaultsCompiledOut`] in a build
    /// without debug assertions.
    pub fn parse(name: &str) -> Result<Self, EngineError> {
        let Some((_, fault)) = KNOWN.iter().find(|(known, _)| *known == name) else {
            return Err(EngineError::UnknownFault { found: name.to_owned(), known: Self::NAMES });
        };
        fault.allowed()?;
        Ok(*fault)
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
            _ => {}
        }
    }
}

fn write_to_null() {
    let nowhere = std::hint::black_box(std::ptr::null_mut::<u8>());
    // SAFETY: there is none; the fault exists to kill the process with SIGSEGV, and the page at
    // address zero is never mapped on the supported systems. Volatile, so that it is not removed.
    unsafe { nowhere.write_volatile(1) };
}

/// Whether a build that may carry faults carries this one.
pub(crate) fn is(fault: Option<Fault>, wanted: Fault) -> bool {
    cfg!(debug_assertions) && fault == Some(wanted)
}

/// A softcap under a fault.
pub(crate) fn softcap(fault: Option<Fault>, cap: f64) -> f64 {
    if is(fault, Fault::WrongSoftcap) { cap * 0.6 } else { cap }
}

/// The gate and the other half of a feed-forward block under a fault.
pub(crate) fn gate_and_up(fault: Option<Fault>, halves: [&Array; 2]) -> [&Array; 2] {
    let [gate, up] = halves;
    if is(fault, Fault::SwappedGateUp) { [up, gate] } else { [gate, up] }
}

/// The head that a tied model has under a fault only: one of zeros, `[vocab, hidden]`.
pub(crate) fn blank_head(
    fault: Option<Fault>,
    shape: [usize; 2],
    dtype: Dtype,
) -> Result<Option<Linear>, EngineError> {
    if !is(fault, Fault::TiedHeadIgnored) {
        return Ok(None);
    }
    let blank = ops::zeros(&shape.map(|extent| extent as i32), dtype)?;
    Ok(Some(Linear::new(Weight::Plain(Matrix::new(blank)?), None)))
}

/// The rope base under a fault.
pub(crate) fn rope_base(fault: Option<Fault>, base: f64) -> f64 {
    if is(fault, Fault::RopeBase) { base * (1.0 + 1e-3) } else { base }
}

/// The layer whose keys and values another shares under a fault: the first of its kind.
pub(crate) fn shared_kv(fault: Option<Fault>, donor: usize, first: Option<usize>) -> usize {
    let wrong = is(fault, Fault::WrongSharedKv);
    first.filter(|_| wrong).unwrap_or(donor)
}

/// The positions that a denoising step commits under a fault, `[1, n]`: with the first one that it
/// does not, of the `open` ones where they are given.
pub(crate) fn one_more(
    fault: Option<Fault>,
    committed: Array,
    open: Option<&Array>,
) -> Result<Array, EngineError> {
    if !is(fault, Fault::EarlyCommit) {
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
