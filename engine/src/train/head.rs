//! From the stream behind the last layer to the loss.

use mlx_rs::Array;

use super::backward::{Pass, one};
use super::closure::Result;
use super::function::Scope;
use super::kernels::flash_cce;
use super::pairs::Part;
use crate::model::Staged;
use crate::ops::{self, SliceAxis, cross_entropy};

impl Pass<'_> {
    /// Loss and number of targets of the stream behind the last layer, with the other inputs as the head's
    /// matrices.
    pub(super) fn head<'scope>(
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

/// Positions of `[rows, positions, ..]`.
fn positions(of: &Array, range: SliceAxis) -> Result<Array> {
    let mut axes: Vec<_> = of.shape().iter().map(|&extent| SliceAxis::full(extent)).collect();
    axes[1] = range;
    ops::slice(of, &axes)
}
