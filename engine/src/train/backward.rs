//! The loss of a batch and its gradients, by three ways that give the same bits.

use std::ops::Range;

use mlx_rs::Array;

use super::batch::Rows;
use super::closure::Result;
use super::function::{Scope, scope};
use super::kernels::flash_cce;
use super::objective::Objective;
use super::pairs::{Pairs, Part};
use crate::array::detach_copy;
use crate::cache::{KvCache, PlainCache};
use crate::model::{Model, Network, Staged};
use crate::ops::{self, SliceAxis, cross_entropy};
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

    fn embedded(&self, staged: &dyn Staged) -> Result<Array> {
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

    fn segmented(&self, values: &[Array], staged: &dyn Staged, length: usize) -> Result<Graded> {
        let (layers, pairs) = (self.model.num_layers(), self.pairs);
        let runs: Vec<_> = (0..layers).step_by(length).map(|i| i..layers.min(i + length)).collect();
        let part_of = |run: &Range<usize>| {
            let run = run.clone();
            pairs.of(move |block| block.is_some_and(|block| run.contains(&block)))
        };
        let mut boundaries = vec![boundary(&self.embedded(staged)?)?];
        for run in &runs {
            let part = part_of(run);
            let below = boundaries.last().cloned().into_iter();
            let inputs: Vec<_> = below.chain(part.share(values).iter().cloned()).collect();
            let h = one(self.layers(staged, run.clone(), part, &inputs)?)?;
            boundaries.push(boundary(&h)?);
        }
        let part = pairs.of(|block| block.is_none());
        let top = boundaries.pop().into_iter();
        let inputs: Vec<_> = top.chain(part.share(values).iter().cloned()).collect();
        let (values_of_head, mut found) = scope(|scope| {
            let head = move |inputs: &[Array]| Ok(self.head(scope, staged, part, inputs)?.to_vec());
            scope.value_and_grad(head, &arguments(inputs.len()), &inputs)
        })?;
        let mut gradients = found.split_off(1);
        ops::eval(values_of_head.iter().chain(&found).chain(&gradients))?;
        let mut cotangent = boundary(&found[0])?;
        drop(found);
        // The stream below the lowest layer that is trained needs no gradient.
        let bottom = pairs.lowest().unwrap_or(layers);
        let trained = runs.iter().zip(&boundaries).filter(|(run, _)| run.end > bottom);
        for (run, below) in trained.rev() {
            let (part, lowest) = (part_of(run), run.contains(&bottom));
            let (mut own, under) =
                self.segment(staged, run, part, below, part.share(values), &cotangent, lowest)?;
            own.append(&mut gradients);
            gradients = own;
            cotangent = under.unwrap_or(cotangent);
        }
        let [loss, targets] = [0, 1].map(|i| values_of_head[i].clone());
        Ok(Graded { loss, targets, gradients })
    }

    /// Gradients of a run's matrices, evaluated, and the cotangent of the stream below it where one is asked
    /// for.
    #[expect(clippy::too_many_arguments, reason = "what a vjp is a function of")]
    fn segment(
        &self,
        staged: &dyn Staged,
        run: &Range<usize>,
        part: Part<'_>,
        below: &Array,
        share: &[Array],
        cotangent: &Array,
        lowest: bool,
    ) -> Result<(Vec<Array>, Option<Array>)> {
        let stream = (!lowest).then_some(below);
        let inputs: Vec<_> = stream.into_iter().chain(share).cloned().collect();
        let (_, mut found) = scope(|scope| {
            let forward = move |inputs: &[Array]| {
                let inputs = if lowest {
                    [std::slice::from_ref(below), inputs].concat()
                } else {
                    inputs.to_vec()
                };
                self.layers(staged, run.clone(), part, &inputs)
            };
            scope.vjp(forward, &inputs, std::slice::from_ref(cotangent))
        })?;
        ops::eval(&found)?;
        if lowest {
            return Ok((found, None));
        }
        let own = found.split_off(1);
        Ok((own, Some(boundary(&found[0])?)))
    }

    /// A run of layers on the first input, with the other ones as its matrices.
    fn layers(
        &self,
        staged: &dyn Staged,
        run: Range<usize>,
        part: Part<'_>,
        inputs: &[Array],
    ) -> Result<Vec<Array>> {
        part.mount(&inputs[1..]);
        Ok(vec![staged.layers(run, &inputs[0], &mut self.caches())?])
    }

    /// Loss and number of targets of the stream behind the last layer, with the other inputs as the head's
    /// matrices.
    fn head<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        staged: &'scope dyn Staged,
        part: Part<'scope>,
        inputs: &[Array],
    ) -> Result<[Array; 2]> {
        let targets = self.rows.targets()?;
        if self.flash_head {
            part.mount(&inputs[1..]);
            return self.objective.of(&flash_losses(staged, &inputs[0], &targets)?, self.rows);
        }
        let losses = match self.head_chunk {
            None => one(head_losses(staged, part, inputs, &targets)?)?,
            Some(chunk) => {
                let count = self.rows.positions();
                let parts = (0..count).step_by(chunk as usize).map(|start| {
                    let range = SliceAxis::range(start, count.min(start.saturating_add(chunk)));
                    let targets = positions(&targets, range)?;
                    let mut inputs = inputs.to_vec();
                    inputs[0] = positions(&inputs[0], range)?;
                    let losses =
                        move |inputs: &[Array]| head_losses(staged, part, inputs, &targets);
                    one(scope.checkpoint(losses)?.call(&inputs)?)
                });
                let parts = parts.collect::<Result<Vec<_>>>()?;
                ops::concatenate(&parts.iter().collect::<Vec<_>>(), 1)?
            }
        };
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

    fn embedded(&self, staged: &dyn Staged) -> Result<Array> {
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

    fn segmented(&self, values: &[Array], staged: &dyn Staged, length: usize) -> Result<Graded> {
        let (layers, pairs) = (self.model.num_layers(), self.pairs);
        let runs: Vec<_> = (0..layers).step_by(length).map(|i| i..layers.min(i + length)).collect();
        let part_of = |run: &Range<usize>| {
            let run = run.clone();
            pairs.of(move |block| block.is_some_and(|block| run.contains(&block)))
        };
        let mut boundaries = vec![boundary(&self.embedded(staged)?)?];
        for run in &runs {
            let part = part_of(run);
            let below = boundaries.last().cloned().into_iter();
            let inputs: Vec<_> = below.chain(part.share(values).iter().cloned()).collect();
            let h = one(self.layers(staged, run.clone(), part, &inputs)?)?;
            boundaries.push(boundary(&h)?);
        }
        let part = pairs.of(|block| block.is_none());
        let top = boundaries.pop().into_iter();
        let inputs: Vec<_> = top.chain(part.share(values).iter().cloned()).collect();
        let (values_of_head, mut found) = scope(|scope| {
            let head = move |inputs: &[Array]| Ok(self.head(scope, staged, part, inputs)?.to_vec());
            scope.value_and_grad(head, &arguments(inputs.len()), &inputs)
        })?;
        let mut gradients = found.split_off(1);
        ops::eval(values_of_head.iter().chain(&found).chain(&gradients))?;
        let mut cotangent = boundary(&found[0])?;
        drop(found);
        // The stream below the lowest layer that is trained needs no gradient.
        let bottom = pairs.lowest().unwrap_or(layers);
        let trained = runs.iter().zip(&boundaries).filter(|(run, _)| run.end > bottom);
        for (run, below) in trained.rev() {
            let (part, lowest) = (part_of(run), run.contains(&bottom));
            let (mut own, under) =
                self.segment(staged, run, part, below, part.share(values), &cotangent, lowest)?;
            own.append(&mut gradients);
            gradients = own;
            cotangent = under.unwrap_or(cotangent);
        }
        let [loss, targets] = [0, 1].map(|i| values_of_head[i].clone());
        Ok(Graded { loss, targets, gradients })
    }

    /// Gradients of a run's matrices, evaluated, and the cotangent of the stream below it where one is asked
    /// for.
    #[expect(clippy::too_many_arguments, reason = "what a vjp is a function of")]
    fn segment(
        &self,
        staged: &dyn Staged,
        run: &Range<usize>,
        part: Part<'_>,
        below: &Array,
        share: &[Array],
        cotangent: &Array,
        lowest: bool,
    ) -> Result<(Vec<Array>, Option<Array>)> {
        let stream = (!lowest).then_some(below);
        let inputs: Vec<_> = stream.into_iter().chain(share).cloned().collect();
        let (_, mut found) = scope(|scope| {
            let forward = move |inputs: &[Array]| {
                let inputs = if lowest {
                    [std::slice::from_ref(below), inputs].concat()
                } else {
                    inputs.to_vec()
                };
                self.layers(staged, run.clone(), part, &inputs)
            };
            scope.vjp(forward, &inputs, std::slice::from_ref(cotangent))
        })?;
        ops::eval(&found)?;
        if lowest {
            return Ok((found, None));
        }
        let own = found.split_off(1);
        Ok((own, Some(boundary(&found[0])?)))
    }

    /// A run of layers on the first input, with the other ones as its matrices.
    fn layers(
        &self,
        staged: &dyn Staged,
        run: Range<usize>,
        part: Part<'_>,
        inputs: &[Array],
    ) -> Result<Vec<Array>> {
        part.mount(&inputs[1..]);
        Ok(vec![staged.layers(run, &inputs[0], &mut self.caches())?])
    }

    /// Loss and number of targets of the stream behind the last layer, with the other inputs as the head's
    /// matrices.
    fn head<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        staged: &'scope dyn Staged,
        part: Part<'scope>,
        inputs: &[Array],
    ) -> Result<[Array; 2]> {
        let targets = self.rows.targets()?;
        if self.flash_head {
            part.mount(&inputs[1..]);
            return self.objective.of(&flash_losses(staged, &inputs[0], &targets)?, self.rows);
        }
        let all = [inputs, &[targets]].concat();
        let losses = move |inputs: &[Array]| {
            let (h, targets) = (&inputs[0], &inputs[inputs.len() - 1]);
            part.mount(&inputs[1..inputs.len() - 1]);
            Ok(vec![cross_entropy(&staged.head(h)?, targets, 0.0)?])
        };
        let losses = match self.head_chunk {
            None => one(losses(&all)?)?,
            Some(chunk) => {
                let losses = scope.checkpoint(losses)?;
                let count = self.rows.positions();
                let starts = (0..count).step_by(chunk as usize);
                let ranges = starts.map(|start| SliceAxis::range(start, count.min(start + chunk)));
                let parts = ranges.map(|range| {
                    let mut inputs = all.clone();
                    for at in [0, all.len() - 1] {
                        inputs[at] = positions(&all[at], range)?;
                    }
                    one(losses.call(&inputs)?)
                });
                let parts = parts.collect::<Result<Vec<_>>>()?;
                ops::concatenate(&parts.iter().collect::<Vec<_>>(), 1)?
            }
        };
        self.objective.of(&losses, self.rows)
    }
}

/// Cross entropies of the stream behind the last layer, the first input, with the others as the head's
/// matrices.
fn head_losses(
    staged: &dyn Staged,
    part: Part<'_>,
    inputs: &[Array],
    targets: &Array,
) -> Result<Vec<Array>> {
    part.mount(&inputs[1..]);
    Ok(vec![cross_entropy(&staged.head(&inputs[0])?, targets, 0.0)?])
}

/// Cross entropies `[rows, positions]` of the stream behind the last layer, by the kernel.
fn flash_losses(staged: &dyn Staged, h: &Array, targets: &Array) -> Result<Array> {
    let Some((normed, weight)) = staged.factors(h)? else {
        let wanted = "logits that are one product, of a matrix without an adapter";
        return Err(ops::refused("flash_cce", "another head", wanted));
    };
    let hidden = ops::reshape(&normed, &[-1, normed.dim(-1)])?;
    let losses = flash_cce(&hidden, &weight, &ops::reshape(targets, &[-1])?)?;
    ops::reshape(&losses, targets.shape())
}

fn graded((values, gradients): (Vec<Array>, Vec<Array>)) -> Result<Graded> {
    let mut values = values.into_iter();
    let (loss, targets) = (one_of(&mut values)?, one_of(&mut values)?);
    Ok(Graded { loss, targets, gradients })
}

fn one(outputs: Vec<Array>) -> Result<Array> {
    one_of(&mut outputs.into_iter())
}

fn one_of(outputs: &mut impl Iterator<Item = Array>) -> Result<Array> {
    outputs.next().ok_or_else(|| ops::refused("closure", "no output", "one"))
}

fn arguments(count: usize) -> Vec<i32> {
    (0..count as i32).collect()
}

/// Positions of `[rows, positions, ..]`.
fn positions(of: &Array, range: SliceAxis) -> Result<Array> {
    let mut axes: Vec<_> = of.shape().iter().map(|&extent| SliceAxis::full(extent)).collect();
    axes[1] = range;
    ops::slice(of, &axes)
}

/// A copy of the stream that knows nothing of how it was made.
fn boundary(h: &Array) -> Result<Array> {
    detach_copy(&ops::contiguous(h)?)
}
