//! Calls: one op, one dtype, one generator, one set of arguments.

use std::{collections::BTreeMap, fmt};

use mlx_parity_oracles::ops::Op;
use mlx_parity_tensor::Dtype;
use serde::{Deserialize, Serialize};

use super::Generator;

/// The value of one argument of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Argument {
    /// `true`, `false`.
    Bool(bool),
    /// A size, an axis, an offset.
    Int(i64),
    /// A scale, an epsilon.
    Float(f64),
    /// A choice, `"causal"`.
    Text(String),
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}

/// One value or a list of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Values {
    Many(Vec<Argument>),
    One(Argument),
}

/// Arguments by name, each with one or several values; stands for every combination.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Grid(BTreeMap<String, Values>);

impl Grid {
    /// Every combination, the last name changing fastest.
    pub fn calls(&self) -> impl Iterator<Item = BTreeMap<String, Argument>> {
        let mut found = vec![BTreeMap::new()];
        for (name, values) in &self.0 {
            let values = match values {
                Values::Many(values) => values.clone(),
                Values::One(value) => vec![value.clone()],
            };
            found = found
                .into_iter()
                .flat_map(|call: BTreeMap<String, Argument>| {
                    let with = |value: &Argument| {
                        let mut call = call.clone();
                        call.insert(name.clone(), value.clone());
                        call
                    };
                    values.iter().map(with).collect::<Vec<_>>()
                })
                .collect();
        }
        found.into_iter()
    }
}

/// An op in one dtype, over generators and grids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpCase {
    /// Name in the op table.
    pub op: String,
    /// Element type of the floating operands.
    pub dtype: Dtype,
    /// Where operands come from.
    pub generators: Vec<Generator>,
    /// Arguments.
    pub grid: Vec<Grid>,
    /// Repeat each call with its operands in other layouts.
    pub views: bool,
    /// Part of `verify --quick`.
    pub quick: bool,
    /// Only with `verify --large`: tensors of 2^31 elements or more.
    pub large: bool,
}

impl OpCase {
    /// Every call, in order.
    pub fn calls(&self) -> Vec<Call> {
        let Some(op) = Op::parse(&self.op) else { return Vec::new() };
        let arguments: Vec<_> = self.grid.iter().flat_map(Grid::calls).collect();
        arguments
            .iter()
            .flat_map(|arguments| {
                self.generators.iter().map(move |generator| Call {
                    op,
                    dtype: self.dtype,
                    generator: *generator,
                    arguments: arguments.clone(),
                })
            })
            .collect()
    }
}

/// One op with one set of arguments and one source of operands.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The op.
    pub op: Op,
    /// Element type of the floating operands.
    pub dtype: Dtype,
    /// Where operands come from.
    pub generator: Generator,
    /// Arguments by name.
    pub arguments: BTreeMap<String, Argument>,
}

/// An argument that is missing or of another type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{op}: argument `{name}` is {found}, wanted {wanted}")]
pub struct ArgumentError {
    op: Op,
    name: String,
    found: String,
    wanted: &'static str,
}

/// The seed of what an identity names.
pub fn seed_of(identity: &str) -> u64 {
    // FNV-1a: any fixed mixing will do, and this one is stable by definition.
    identity.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Call {
    /// `m=3,k=64/random`: the part of a check's id that tells calls of one case apart.
    pub fn name(&self) -> String {
        let pairs = self.arguments.iter().map(|(name, value)| format!("{name}={value}"));
        let pairs: Vec<_> = pairs.collect();
        if pairs.is_empty() {
            self.generator.name().to_owned()
        } else {
            format!("{}/{}", pairs.join(","), self.generator.name())
        }
    }

    /// Seed of its operands: from all that identifies it, so that each call has its own and always
    /// the same.
    pub fn seed(&self) -> u64 {
        seed_of(&format!("{}/{}/{}", self.op, self.dtype.name(), self.name()))
    }

    /// A size: an integer that is not negative.
    pub fn size(&self, name: &str) -> Result<usize, ArgumentError> {
        self.int(name)?.try_into().map_err(|_| self.wrong(name, "a size"))
    }

    /// A size, or its default where the argument is not given.
    pub fn size_or(&self, name: &str, default: usize) -> Result<usize, ArgumentError> {
        if self.arguments.contains_key(name) { self.size(name) } else { Ok(default) }
    }

    /// An integer.
    pub fn int(&self, name: &str) -> Result<i64, ArgumentError> {
        match self.arguments.get(name) {
            Some(Argument::Int(value)) => Ok(*value),
            _ => Err(self.wrong(name, "an integer")),
        }
    }

    /// An integer, or its default where the argument is not given.
    pub fn int_or(&self, name: &str, default: i64) -> Result<i64, ArgumentError> {
        if self.arguments.contains_key(name) { self.int(name) } else { Ok(default) }
    }

    /// A number, or its default where the argument is not given.
    pub fn float_or(&self, name: &str, default: f64) -> Result<f64, ArgumentError> {
        match self.arguments.get(name) {
            None => Ok(default),
            Some(Argument::Float(value)) => Ok(*value),
            Some(Argument::Int(value)) => Ok(*value as f64),
            Some(_) => Err(self.wrong(name, "a number")),
        }
    }

    /// A truth value, or its default where the argument is not given.
    pub fn bool_or(&self, name: &str, default: bool) -> Result<bool, ArgumentError> {
        match self.arguments.get(name) {
            None => Ok(default),
            Some(Argument::Bool(value)) => Ok(*value),
            Some(_) => Err(self.wrong(name, "true or false")),
        }
    }

    /// A choice, or its default where the argument is not given.
    pub fn text_or<'a>(&'a self, name: &str, default: &'a str) -> Result<&'a str, ArgumentError> {
        match self.arguments.get(name) {
            None => Ok(default),
            Some(Argument::Text(value)) => Ok(value),
            Some(_) => Err(self.wrong(name, "a text")),
        }
    }

    /// A shape written `3x1x64`; `scalar` is the empty one.
    pub fn shape(&self, name: &str) -> Result<Vec<usize>, ArgumentError> {
        let wrong = || self.wrong(name, "a shape such as \"3x64\"");
        match self.arguments.get(name) {
            Some(Argument::Text(text)) if text == "scalar" => Ok(Vec::new()),
            Some(Argument::Text(text)) => {
                text.split('x').map(|dim| dim.parse().map_err(|_| wrong())).collect()
            }
            _ => Err(wrong()),
        }
    }

    /// The error for an argument whose value cannot be used.
    pub fn wrong(&self, name: &str, wanted: &'static str) -> ArgumentError {
        let found = self.arguments.get(name).map_or("missing".into(), ToString::to_string);
        ArgumentError { op: self.op, name: name.to_owned(), found, wanted }
    }
}
