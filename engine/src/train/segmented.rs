//! The backward pass run by run of layers.

use std::ops::Range;

use mlx_rs::Array;

use super::backward::{Graded, Pass, arguments, one};
use super::closure::Result;
use super::function::scope;
use super::pairs::Part;
use crate::array::detach_copy;
use crate::model::Staged;
use crate::ops;

impl Pass<'_> {
    pub(super) fn segmented(
        &self,
        values: &[Array],
        staged: &dyn Staged,
        length: usize,
    ) -> Result<Graded> {
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
}

/// A copy of the stream that knows nothing of how it was made.
fn boundary(h: &Array) -> Result<Array> {
    detach_copy(&ops::contiguous(h)?)
}
