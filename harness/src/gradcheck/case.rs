//! Cases of the tier, and the checks they stand for.

use mlx_parity_tensor::Dtype;
use serde::{Deserialize, Serialize};

use super::{Cotangent, Settings};
use crate::ops::{Call, OpCase, seed_of};

/// What a gradient is of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Of {
    /// An op, over a grid of arguments.
    Op(OpCase),
    /// A piece of a model, by its name in [`COMPOSITES`](super::COMPOSITES).
    Composite(String),
    /// A fused kernel with a backward, on shapes of one of its classes.
    Kernel(KernelTrials),
}

/// Shapes of a fused kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelTrials {
    /// The kernel whose gradient is taken; its `backward` names the kernel that computes it.
    pub kernel: String,
    /// The class of its shapes.
    pub class: String,
    /// Sizes in the order of the kernel's `sizes`.
    pub sizes: Vec<Vec<usize>>,
}

/// Gradients of one subject in one dtype.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VjpCase {
    /// As tables name it: `sdpa dK, causal, GQA`.
    pub label: String,
    /// What the gradient is of.
    pub of: Of,
    /// Element type of the floating operands; in f64 MLX's own float64 is differentiated, else ref64's.
    pub dtype: Dtype,
    /// Operands, by position, that gradients are taken with respect to; of a kernel all there are.
    pub wrt: Vec<usize>,
    /// Operands, by position, drawn positive and not near zero.
    pub positive: Vec<usize>,
    /// Units of the dtype at the gradient's condition that it may be off.
    pub units: f64,
    /// Repeat the backward with operands in other layouts.
    pub views: bool,
    /// Operands, by position, whose leading axis is the batch.
    pub batched: Vec<usize>,
    /// Cotangents for points at which slopes jump; none for smooth ones.
    pub kinks: Vec<Cotangent>,
    /// The second order is claimed.
    pub second: bool,
    /// Part of `verify --quick`.
    pub quick: bool,
}

/// One point at which gradients are checked.
#[derive(Debug, Clone, PartialEq)]
pub enum Point {
    /// One call of an op.
    Op(Call),
    /// A piece of a model.
    Composite(String),
    /// One shape of a kernel.
    Kernel {
        /// The kernel.
        kernel: String,
        /// The class of the shape.
        class: String,
        /// The shape.
        sizes: Vec<usize>,
    },
}

impl Point {
    /// The part of a check's id that tells points of one case apart.
    pub fn name(&self) -> String {
        match self {
            Self::Op(call) => call.name(),
            Self::Composite(name) => name.clone(),
            Self::Kernel { class, sizes, .. } => {
                let sizes: Vec<_> = sizes.iter().map(ToString::to_string).collect();
                format!("{class}/{}", sizes.join("x"))
            }
        }
    }
}

impl VjpCase {
    /// Every point, in order.
    pub fn points(&self) -> Vec<Point> {
        match &self.of {
            Of::Op(op) => op.calls().into_iter().map(Point::Op).collect(),
            Of::Composite(name) => vec![Point::Composite(name.clone())],
            Of::Kernel(KernelTrials { kernel, class, sizes }) => sizes
                .iter()
                .map(|sizes| Point::Kernel {
                    kernel: kernel.clone(),
                    class: class.clone(),
                    sizes: sizes.clone(),
                })
                .collect(),
        }
    }

    /// How a point of the case is checked.
    pub fn settings(&self, point: &Point) -> Settings {
        let seed = seed_of(&format!("{}/{}/{}", self.label, self.dtype.name(), point.name()));
        Settings {
            units: self.units,
            views: self.views,
            batched: self.batched.clone(),
            kinks: self.kinks.clone(),
            second: self.second,
            ..Settings::new(seed)
        }
    }
}
