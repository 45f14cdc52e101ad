//! What a case of tier metal is.

use std::{collections::BTreeMap, path::PathBuf};

use mlx_parity_msl_emu::Mode;
use mlx_parity_oracles::ops::Op;
use mlx_parity_tensor::Dtype;
use serde::{Deserialize, Serialize};

use super::Extent;
use crate::{
    compare::Zeros,
    ops::{Argument, Bound, Call, Generator, Grid},
};

/// A kernel in one dtype, over sizes, generators and modes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetalCase {
    /// The kernel's name.
    pub kernel: String,
    /// The body, relative to the folder of the case's file.
    pub source: PathBuf,
    /// Text before the function, in the same folder; none without.
    pub header: Option<PathBuf>,
    /// What `T` stands for.
    pub dtype: Dtype,
    /// Sizes by name; every combination is run.
    pub sizes: Vec<Grid>,
    /// Where inputs without values of their own come from.
    pub generators: Vec<Generator>,
    /// Inputs, in order.
    pub inputs: Vec<MetalInput>,
    /// Outputs, in order.
    pub outputs: Vec<MetalOutput>,
    /// Template arguments.
    pub template: BTreeMap<String, TemplateValue>,
    /// Threads of the grid.
    pub grid: [Extent; 3],
    /// Threads of a group.
    pub group: [Extent; 3],
    /// What outputs hold before the kernel runs; nothing that is known without.
    pub init_value: Option<f32>,
    /// Outputs are atomic.
    pub atomic_outputs: bool,
    /// Inputs are made row-major first.
    pub row_contiguous: bool,
    /// How the threads are executed.
    pub modes: Vec<Mode>,
    /// Orders of threads and groups that are tried in each mode that has one.
    pub orders: u64,
    /// Who says what is right.
    pub oracle: MetalOracle,
    /// How far from it an output may be, where the case says so.
    pub units: Option<f64>,
    /// Part of `verify --quick`.
    pub quick: bool,
}

/// An input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetalInput {
    /// Name in the kernel.
    pub name: String,
    /// Element type; the case's without.
    pub dtype: Option<Dtype>,
    /// Extents; empty for a scalar.
    pub shape: Vec<Extent>,
    /// Where its elements come from.
    pub values: Values,
}

/// The elements of an input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Values {
    /// The generator of the check.
    Drawn,
    /// A generator of its own.
    Generator(Generator),
    /// These, row-major.
    Given(Vec<f64>),
    /// Whole numbers from 0 to below this.
    Below(Extent),
    /// The tensor of its name in a safetensors file, in the folder of the case's file.
    File(PathBuf),
}

/// An output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetalOutput {
    /// Name in the kernel.
    pub name: String,
    /// Element type; the case's without.
    pub dtype: Option<Dtype>,
    /// Extents.
    pub shape: Vec<Extent>,
}

/// A template argument.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TemplateValue {
    /// The case's dtype, where none is named.
    Dtype(Option<Dtype>),
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(Extent),
}

/// Who says what is right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetalOracle {
    /// The float64 reference of an op of the table, with arguments as cases of tier ops have them.
    Ref64 {
        /// The op.
        op: String,
        /// The inputs that are its operands, in its order.
        operands: Vec<String>,
        /// Its arguments beside the case's sizes.
        arguments: BTreeMap<String, Argument>,
    },
    /// The tensors of the outputs' names in a safetensors file, in the folder of the case's file.
    File(PathBuf),
}

/// One launch of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Sizes by name.
    pub sizes: BTreeMap<String, Argument>,
    /// Where inputs come from.
    pub generator: Generator,
    /// How its threads are executed.
    pub mode: Mode,
}

impl MetalCase {
    /// Every launch, modes changing fastest.
    pub fn trials(&self) -> Vec<Trial> {
        let mut trials = Vec::new();
        for sizes in self.sizes.iter().flat_map(Grid::calls) {
            for &generator in &self.generators {
                let trial = |&mode| Trial { sizes: sizes.clone(), generator, mode };
                trials.extend(self.modes.iter().map(trial));
            }
        }
        trials
    }

    /// The calls of the op that each launch is held to; none where a file says what is right.
    pub fn calls(&self) -> Vec<Call> {
        self.trials().iter().filter_map(|trial| self.call(trial)).collect()
    }

    /// The call of the op that a launch is held to.
    pub fn call(&self, trial: &Trial) -> Option<Call> {
        let MetalOracle::Ref64 { op, arguments, .. } = &self.oracle else { return None };
        let mut all = trial.sizes.clone();
        all.extend(arguments.clone());
        let op = Op::parse(op)?;
        Some(Call { op, dtype: self.dtype, generator: trial.generator, arguments: all })
    }

    /// The bound that the case gives itself.
    pub fn own_bound(&self) -> Option<Bound> {
        self.units.map(|units| Bound { units, zeros: Zeros::Unsigned })
    }

    /// What the rows say is right.
    pub fn oracle_name(&self) -> &'static str {
        match self.oracle {
            MetalOracle::Ref64 { .. } => "ref64",
            MetalOracle::File(_) => "file",
        }
    }
}

impl Trial {
    /// `n=257,rows=3/random/fibers`: the part of a check's id that tells launches of one case apart.
    pub fn name(&self) -> String {
        format!("{}/{}", self.inputs_name(), self.mode.name())
    }

    /// The same without the mode: launches of that name have the same inputs.
    pub fn inputs_name(&self) -> String {
        let sizes: Vec<_> =
            self.sizes.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let sizes = Some(sizes.join(",")).filter(|sizes| !sizes.is_empty());
        sizes.into_iter().chain([self.generator.name().to_owned()]).collect::<Vec<_>>().join("/")
    }
}
