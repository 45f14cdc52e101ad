//! What a search found.

use std::fmt;

use mlx_parity_tensor::TensorView;
use serde::Serialize;

use super::{
    gap::{Gap, Spread, Threshold},
    script::Script,
    walk::Point,
};
use crate::compare::bits;

/// One of the two paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SideName {
    /// The one that is believed.
    Good,
    /// The one that is not.
    Bad,
}

/// A search and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The model, as it was named.
    pub model: String,
    /// The good path, as the command line spells it.
    pub good: String,
    /// The bad path.
    pub bad: String,
    /// What both ran.
    pub script: Script,
    /// From where on two tensors part.
    pub threshold: Threshold,
    /// How often each verdict was tried.
    pub repeats: usize,
    /// What came of it.
    pub outcome: Outcome,
    /// The command that finds the same again.
    pub replay: String,
}

/// What came of a search.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Outcome {
    /// The logits of no call part.
    Same {
        /// The widest gap, relative.
        relative: f64,
    },
    /// They part, and this is where.
    Found(Box<Found>),
    /// A path does not repeat itself.
    NotDeterministic {
        /// Which one.
        side: SideName,
        /// Its runs.
        runs: usize,
        /// Those whose logits part from the first run's.
        differ: usize,
        /// The first call in which they do.
        call: usize,
        /// The first intermediate of watched runs that did not repeat itself, where one did not.
        seen_at: Option<Point>,
    },
    /// The paths part as long as nobody looks.
    LostIt {
        /// What was watched, and what came of it.
        why: String,
    },
}

/// Where two paths part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// The first call whose logits part.
    pub call: usize,
    /// The logits of that call, unwatched.
    pub logits: Parting,
    /// The intermediate before, which is equal; none where the first of all parts.
    pub last_equal: Option<Point>,
    /// The first intermediate that parts.
    pub first: Point,
    /// How it does.
    pub parting: Parting,
    /// What attention or a recurrence reads beside its inputs, where that parts before the call.
    pub cache: Option<CacheGap>,
    /// The first point of the residual stream behind it that is equal again.
    pub swallowed: Option<Point>,
    /// Watched pairs of runs that led here.
    pub probes: usize,
    /// Repeats of the verdict that held; all of them.
    pub held: usize,
    /// Intermediates that only one path gives; nothing is said of them.
    pub one_sided: Vec<String>,
    /// Error growth by layer in that call; empty where watching everything changes the answer.
    pub profile: Vec<LayerGap>,
}

/// Two tensors that part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parting {
    /// How far.
    pub gap: Gap,
    /// Where; none where their shapes differ.
    pub spread: Option<Spread>,
    /// The first element that does.
    pub element: Option<Element>,
    /// Form of the bad one and of the good one.
    pub forms: [bits::Form; 2],
}

/// One element of both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Element {
    /// Its index, one number an axis.
    pub coords: Vec<usize>,
    /// In the bad one.
    pub got: bits::Element,
    /// In the good one.
    pub want: bits::Element,
}

/// A tensor of the caches that parts before a call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CacheGap {
    /// Its name, `layers.1.values`.
    pub tensor: String,
    /// How it parts; keys and values are `[batch, heads, positions, width]`.
    pub parting: Parting,
}

/// The gap behind a layer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerGap {
    /// The layer's last intermediate, or one outside of layers.
    pub name: String,
    /// How far both are apart.
    pub gap: Gap,
}

impl Parting {
    /// Of `got` from `want`.
    pub fn of(threshold: Threshold, got: &TensorView<'_>, want: &TensorView<'_>) -> Self {
        let spread = threshold.spread(got, want);
        let element = spread.as_ref().map(|spread| {
            let flat = flat(want.shape(), &spread.first);
            Element {
                coords: spread.first.clone(),
                got: bits::Element::at(got, flat),
                want: bits::Element::at(want, flat),
            }
        });
        let forms = [bits::Form::of(got), bits::Form::of(want)];
        Self { gap: Gap::of(got, want), spread, element, forms }
    }
}

fn flat(shape: &[usize], coords: &[usize]) -> usize {
    shape.iter().zip(coords).fold(0, |flat, (extent, at)| flat * extent + at)
}

impl fmt::Display for SideName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Good => "good",
            Self::Bad => "bad",
        })
    }
}
