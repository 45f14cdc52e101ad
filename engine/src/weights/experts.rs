//! The matrices of experts, in the layouts that checkpoints hold them in.

use mlx_rs::Array;

use super::{Holds, Weights};
use crate::config::Override;
use crate::error::EngineError;
use crate::nn::{Experts, SwitchLinear};
use crate::ops::packed::{Mode, Packed};
use crate::ops::{self, SliceAxis};

/// Where the matrices of one projection of all experts are.
#[derive(Debug, Clone, Copy)]
pub struct ExpertPaths<'a> {
    /// The module's path, under which mlx-lm's own checkpoints hold all experts in one tensor.
    pub stacked: &'a str,
    /// Where checkpoints of the Hugging Face layout hold them, if there is such a layout.
    pub original: Option<Original<'a>>,
}

/// Experts before `sanitize`.
#[derive(Debug, Clone, Copy)]
pub enum Original<'a> {
    /// One matrix an expert, at `folder.{expert}.name`.
    Each {
        /// The path above the experts' numbers.
        folder: &'a str,
        /// The projection's name below them.
        name: &'a str,
    },
    /// One plain tensor for all experts, of which the projection is the `part`th of `parts` along the
    /// outputs.
    Fused {
        /// The tensor's full name.
        tensor: &'a str,
        /// Counted from 0.
        part: usize,
        /// How many projections share the tensor.
        parts: usize,
    },
}

impl Weights {
    /// The projection of all experts, `[experts, outputs, inputs]`, from either layout; the layout of
    /// one matrix an expert is stacked as `sanitize` stacks it.
    ///
    /// # Errors
    /// As [`Weights::linear`].
    pub fn experts(
        &mut self,
        paths: ExpertPaths<'_>,
        [experts, outputs, inputs]: [usize; 3],
        bias: bool,
    ) -> Result<SwitchLinear, EngineError> {
        let path = paths.stacked;
        let layout = self.layout(paths);
        let packing = match layout {
            Layout::Stacked => self.packing(path, inputs)?,
            Layout::Each { folder, name } => {
                self.packing_at(path, &format!("{folder}.0.{name}"), inputs)?
            }
            Layout::Fused { .. } => None,
        };
        let weight = match packing {
            None => {
                let shape = [experts, outputs, inputs];
                Experts::Plain(self.stack(path, layout, "weight", shape, Holds::Floats)?)
            }
            Some(packing) => {
                let words = [experts, outputs, inputs * packing.bits as usize / 32];
                let groups = [experts, outputs, inputs / packing.group_size as usize];
                let biases = self.stack(path, layout, "biases", groups, Holds::Floats)?;
                Experts::Packed(Packed {
                    words: self.stack(path, layout, "weight", words, Holds::Packed)?,
                    scales: self.stack(path, layout, "scales", groups, Holds::Floats)?,
                    biases: Some(biases),
                    mode: Mode::Affine(packing),
                })
            }
        };
        let bias = bias
            .then(|| self.tensor(&format!("{path}.bias"), &[experts, outputs], Holds::Floats))
            .transpose()?;
        Ok(SwitchLinear::new(weight, bias))
    }

    /// [`Weights::experts`] that have mlx-lm's layout only.
    ///
    /// # Errors
    /// As [`Weights::linear`].
    pub fn switch_linear(
        &mut self,
        path: &str,
        shape: [usize; 3],
        bias: bool,
    ) -> Result<SwitchLinear, EngineError> {
        self.experts(ExpertPaths { stacked: path, original: None }, shape, bias)
    }

    /// A parameter that is no layer of its own, and so never packed, at its full name.
    ///
    /// # Errors
    /// As [`Weights::linear`].
    pub fn parameter(&mut self, name: &str, shape: &[usize]) -> Result<Array, EngineError> {
        if let Some(path) = name.strip_suffix(".weight") {
            let overrides = self.quantization.as_ref().map(|q| &q.overrides);
            if overrides.and_then(|spoken| spoken.get(path)) == Some(&Override::Plain) {
                self.unread_overrides.remove(path);
            }
        }
        self.tensor(name, shape, Holds::Floats)
    }

    /// The layout this checkpoint has; that of mlx-lm where it has neither.
    fn layout<'a>(&self, paths: ExpertPaths<'a>) -> Layout<'a> {
        if self.has(&format!("{}.weight", paths.stacked)) {
            return Layout::Stacked;
        }
        match paths.original {
            Some(Original::Each { folder, name })
                if self.has(&format!("{folder}.0.{name}.weight")) =>
            {
                Layout::Each { folder, name }
            }
            Some(Original::Fused { tensor, part, parts }) if self.has(tensor) => {
                Layout::Fused { tensor, part, parts }
            }
            _ => Layout::Stacked,
        }
    }

    fn stack(
        &mut self,
        path: &str,
        layout: Layout<'_>,
        suffix: &str,
        shape: [usize; 3],
        holds: Holds,
    ) -> Result<Array, EngineError> {
        match layout {
            Layout::Stacked => self.tensor(&format!("{path}.{suffix}"), &shape, holds),
            Layout::Each { folder, name } => {
                let parts = (0..shape[0])
                    .map(|expert| {
                        let name = format!("{folder}.{expert}.{name}.{suffix}");
                        self.tensor(&name, &shape[1..], holds)
                    })
                    .collect::<Result<Vec<_>, _>>()?;
                let stacked = ops::stack(&parts.iter().collect::<Vec<_>>(), 0)?;
                ops::eval([&stacked])?;
                Ok(stacked)
            }
            Layout::Fused { tensor, part, parts } => {
                let [experts, outputs, width] = shape;
                let whole = [experts, outputs * parts, width];
                let whole = self.tensor(tensor, &whole, holds)?;
                let rows = SliceAxis::range((part * outputs) as i32, ((part + 1) * outputs) as i32);
                let all = |axis| SliceAxis::full(whole.dim(axis));
                let taken = ops::slice(&whole, &[all(0), rows, all(2)])?;
                ops::eval([&taken])?;
                Ok(taken)
            }
        }
    }
}

/// The layout found.
#[derive(Debug, Clone, Copy)]
enum Layout<'a> {
    Stacked,
    Each { folder: &'a str, name: &'a str },
    Fused { tensor: &'a str, part: usize, parts: usize },
}
