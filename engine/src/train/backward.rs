//! The loss of a batch and its gradients, by three ways that give the same bits.

use std::ops::Range;

use mlx_rs::Array;

use super::batch::Rows;
use super::closure::Result;
use super::function::scope;
use super::objective::Objective;
use super::pairs::{Pairs, Part};
use crate::cache::{KvCache, PlainCache};
use crate::model::{Model, Network, Staged};
use crate::ops::{self, cross_entropy};
use crate::taps::TapSink;

/// How gradients are computed. All ways give the same bits; they differ in time and memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Backward {
    /// In one pass, which keeps every intermediate value.
    #[default]
    Whole,
    /// As mlx-lm's `grad_checkpoint` does: in one graph that keeps the stream between layers and computes
    /// each layer again on the way back.
    Checkpointed,
    /// Layer run by layer run: the stream is evaluated and copied at each boundary on the way forward, and a
    /// run's gradients are evaluated before the run below it is computed again, so that the intermediate
    /// values of one run are in memory at a time.
    Segmented {
        /// Layers of a run; above 0.
        layers: usize,
    },
}

/// One batch on its way through a model.
pub(super) struct Pass<'a> {
    pub(super) model: &'a Model,
    pub(super) pairs: &'a Pairs,
    pub(super) rows: &'a Rows,
    pub(super) objective: Objective,
    /// Positions whose logits are in memory at a time; all where absent.
    pub(super) head_chunk: Option<i32>,
    /// Whether a kernel computes losses without logits.
    pub(super) flash_head: bool,
}

/// Loss, number of targets, and the gradient of every matrix, not yet evaluated but where it says so.
pub(super) struct Graded {
    pub(super) loss: Array,
    pub(super) targets: Array,
    pub(super) gradients: Vec<Array>,
}

impl Pass<'_> {
    /// The loss and the number of its targets under the residuals that are mounted.
    pub(super) fn loss(&self) -> Result<[Array; 2]> {
        let ids = self.rows.inputs()?;
        let losses = cross_entropy(
            &self.network().forward(&ids, &mut self.caches(), &mut TapSink::default())?,
            &self.rows.targets()?,
            0.0,
        )?;
        self.objective.of(&losses, self.rows)
    }

    /// The loss of the matrices `values`, and its gradients.
    pub(super) fn run(&self, backward: Backward, values: &[Array]) -> Result<Graded> {
        match backward {
            Backward::Whole if self.flash_head => {
                self.by_layers(values, self.staged("the kernel flash_cce")?, false)
            }
            Backward::Whole if self.head_chunk.is_none() => self.whole(values),
            Backward::Whole => self.by_layers(values, self.staged("a chunked head")?, false),
            Backward::Checkpointed => self.by_layers(values, self.staged("checkpointing")?, true),
            Backward::Segmented { layers } => {
                self.segmented(values, self.staged("a segmented backward")?, layers)
            }
        }
    }

    fn network(&self) -> &dyn Network {
        self.model.network()
    }

    fn staged(&self, wanted: &'static str) -> Result<&dyn Staged> {
        self.network().staged().ok_or_else(|| self.model.not_staged(wanted))
    }

    /// Caches of calls over whole sequences.
    fn caches(&self) -> Vec<KvCache> {
        let passing = |cache| match cache {
            KvCache::Plain(_) => KvCache::Plain(PlainCache::passing()),
            other => other,
        };
        self.network().new_caches().into_iter().map(passing).collect()
    }

    pub(super) fn embedded(&self, staged: &dyn Staged) -> Result<Array> {
        staged.embed(&self.rows.inputs()?, &self.caches())
    }

    /// As `nn.value_and_grad` of a model does.
    fn whole(&self, values: &[Array]) -> Result<Graded> {
        let pairs = self.pairs.all();
        scope(|scope| {
            let loss = move |inputs: &[Array]| {
                pairs.mount(inputs);
                Ok(self.loss()?.to_vec())
            };
            graded(scope.value_and_grad(loss, &arguments(values.len()), values)?)
        })
    }

    fn by_layers(&self, values: &[Array], staged: &dyn Staged, keep: bool) -> Result<Graded> {
        let layers = self.model.num_layers();
        scope(|scope| {
            let loss = move |inputs: &[Array]| {
                let mut h = self.embedded(staged)?;
                for i in 0..layers {
                    let part = self.pairs.of(|block| block == Some(i));
                    let of = |h| [&[h], part.share(inputs)].concat();
                    let run = move |inputs: &[Array]| self.layers(staged, i..i + 1, part, inputs);
                    h = one(if keep {
                        scope.checkpoint(run)?.call(&of(h))?
                    } else {
                        run(&of(h))?
                    })?;
                }
                let part = self.pairs.of(|block| block.is_none());
                let inputs = [&[h], part.share(inputs)].concat();
                Ok(self.head(scope, staged, part, &inputs)?.to_vec())
            };
            graded(scope.value_and_grad(loss, &arguments(values.len()), values)?)
        })
    }

    /// A run of layers on the first input, with the other ones as its matrices.
    pub(super) fn layers(
        &self,
        staged: &dyn Staged,
        run: Range<usize>,
        part: Part<'_>,
        inputs: &[Array],
    ) -> Result<Vec<Array>> {
        part.mount(&inputs[1..]);
        Ok(vec![staged.layers(run, &inputs[0], &mut self.caches())?])
    }
}

fn graded((values, gradients): (Vec<Array>, Vec<Array>)) -> Result<Graded> {
    let mut values = values.into_iter();
    let (loss, targets) = (one_of(&mut values)?, one_of(&mut values)?);
    Ok(Graded { loss, targets, gradients })
}

pub(super) fn one(outputs: Vec<Array>) -> Result<Array> {
    one_of(&mut outputs.into_iter())
}

fn one_of(outputs: &mut impl Iterator<Item = Array>) -> Result<Array> {
    outputs.next().ok_or_else(|| ops::refused("closure", "no output", "one"))
}

pub(super) fn arguments(count: usize) -> Vec<i32> {
    (0..count as i32).collect()
}
