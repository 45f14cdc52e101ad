//! Routers and experts.

use mlx_rs::Array;

use super::mlp::Mlp;
use super::router::{Choice, Picked};
use super::spec::MlpSpec;
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::nn::{Linear, SwitchGlu, SwitchLinear};
use crate::ops::{self, Axes};
use crate::place::Place;
use crate::taps::TapSink;
use crate::weights::{ExpertPaths, Original, Weights};

/// A router and its experts.
#[derive(Debug, Clone)]
pub(crate) struct MoeSpec {
    /// What makes the router's logits.
    pub gate: Gate,
    /// How it chooses by them.
    pub choice: Choice,
    /// Experts a token goes to; at least 1 and at most their number.
    pub picks: usize,
    /// The experts.
    pub experts: ExpertSpec,
    /// Whether the axes before the last are made one first (`olmoe`).
    pub flat: bool,
    /// Whether the weighted sum is rounded to the experts' dtype, rather than left in the weights'
    /// where that is wider.
    pub rounded: bool,
    /// A network that every token goes through besides.
    pub shared: Option<SharedSpec>,
}

/// What makes the router's logits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Gate {
    /// A linear layer of this name.
    Linear(&'static str),
    /// A module of this name whose `weight` is a bare parameter, never packed, with an
    /// `e_score_correction_bias`.
    Corrected(&'static str),
}

/// Experts that differ only in their weights.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpertSpec {
    /// The name of the module that holds all of them.
    pub path: &'static str,
    /// How many they are.
    pub count: usize,
    /// Their inner width.
    pub width: usize,
    /// Whether their projections have biases.
    pub bias: bool,
    /// What the gate, up and down projections are called in checkpoints of the Hugging Face layout.
    pub original: OriginalNames,
}

/// Names before `sanitize`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OriginalNames {
    /// `experts.{expert}.{name}`: gate, up, down.
    Each([&'static str; 3]),
    /// Full names of one plain tensor for gate and up, and of one for down.
    Fused([&'static str; 2]),
}

impl OriginalNames {
    /// The usual names.
    pub const PROJ: Self = Self::Each(["gate_proj", "up_proj", "down_proj"]);
    /// mixtral's.
    pub const W: Self = Self::Each(["w1", "w3", "w2"]);
    /// granitemoe's.
    pub const LINEAR: Self = Self::Fused(["input_linear.weight", "output_linear.weight"]);
    /// `qwen3_5_moe`'s.
    pub const GATE_UP: Self = Self::Fused(["experts.gate_up_proj", "experts.down_proj"]);
}

/// A network that every token goes through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedSpec {
    /// Its name.
    pub path: &'static str,
    /// What it is.
    pub mlp: MlpSpec,
    /// The name of the linear layer whose sigmoid it is multiplied by (`qwen2_moe`).
    pub gate: Option<&'static str>,
}

/// The block of a [`MoeSpec`].
pub(in crate::model) struct Moe {
    gate: LoadedGate,
    choice: Choice,
    picks: i32,
    experts: SwitchGlu,
    flat: bool,
    rounded: bool,
    shared: Option<Shared>,
    place: Place,
    experts_place: Place,
    fault: Option<Fault>,
}

enum LoadedGate {
    Linear { layer: Linear, place: Place },
    Corrected { weight: Array, correction: Array },
}

struct Shared {
    mlp: Mlp,
    gate: Option<(Linear, Place)>,
}

impl Moe {
    /// The block at a place.
    pub(super) fn load(
        weights: &mut Weights,
        place: &Place,
        hidden: usize,
        spec: &MoeSpec,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let experts_place = place.join(spec.experts.path);
        Ok(Self {
            gate: LoadedGate::load(weights, place, spec, hidden)?,
            choice: spec.choice,
            picks: spec.picks as i32,
            experts: experts(weights, place, &experts_place, &spec.experts, hidden)?,
            flat: spec.flat,
            rounded: spec.rounded,
            shared: spec
                .shared
                .as_ref()
                .map(|shared| Shared::load(weights, place, shared, hidden, fault))
                .transpose()?,
            place: place.clone(),
            experts_place,
            fault,
        })
    }

    /// x `[batch, n, hidden]` to the same.
    pub(super) fn forward(&self, x: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
        let out = if self.flat {
            let rows = self.routed(&ops::reshape(x, &[-1, x.dim(-1)])?, sink)?;
            ops::reshape(&rows, x.shape())?
        } else {
            self.routed(x, sink)?
        };
        let out = match &self.shared {
            None => out,
            Some(shared) => ops::add(&out, &shared.forward(x, sink)?)?,
        };
        sink.tap(self.place.own_tap(), &out);
        Ok(out)
    }

    /// What the picked experts come to.
    fn routed(&self, x: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
        let (logits, correction) = self.gate.forward(x, sink)?;
        let Picked { experts, weights } = if fault::is(self.fault, Fault::UnnormalisedTopK) {
            self.choice.unnormalised(&logits, correction, self.picks)?
        } else {
            self.choice.pick(&logits, correction, self.picks)?
        };
        let place = &self.experts_place;
        let out =
            self.experts.forward(x, &experts, |name, value| sink.tap_in(place, name, value))?;
        sink.tap(place.own_tap(), &out);
        let weighted = ops::multiply(&out, &ops::expand_dims(&weights, -1)?)?;
        let sum = ops::sum(&weighted, Axes::Of(&[-2]), false)?;
        if self.rounded { ops::cast(&sum, out.dtype()) } else { Ok(sum) }
    }
}

impl LoadedGate {
    fn load(
        weights: &mut Weights,
        place: &Place,
        spec: &MoeSpec,
        hidden: usize,
    ) -> Result<Self, EngineError> {
        let shape = [spec.experts.count, hidden];
        match spec.gate {
            Gate::Linear(name) => {
                let place = name.split('.').fold(place.clone(), |place, name| place.join(name));
                Ok(Self::Linear { layer: weights.linear(place.path(), shape, false)?, place })
            }
            Gate::Corrected(name) => {
                let path = place.join(name);
                let parameter = |name: &str| format!("{}.{name}", path.path());
                Ok(Self::Corrected {
                    weight: weights.parameter(&parameter("weight"), &shape)?,
                    correction: weights
                        .parameter(&parameter("e_score_correction_bias"), &shape[..1])?,
                })
            }
        }
    }

    /// Logits `[.., experts]` and what is added to choose by them.
    fn forward(
        &self,
        x: &Array,
        sink: &mut TapSink,
    ) -> Result<(Array, Option<&Array>), EngineError> {
        match self {
            Self::Linear { layer, place } => {
                let logits = layer.forward(x)?;
                sink.tap(place.own_tap(), &logits);
                Ok((logits, None))
            }
            Self::Corrected { weight, correction } => {
                let logits = ops::matmul(x, &ops::transpose(weight, &[1, 0])?)?;
                Ok((logits, Some(correction)))
            }
        }
    }
}

fn experts(
    weights: &mut Weights,
    block: &Place,
    place: &Place,
    spec: &ExpertSpec,
    hidden: usize,
) -> Result<SwitchGlu, EngineError> {
    let mut load = |index: usize, [outputs, inputs]: [usize; 2]| {
        let name = ["gate_proj", "up_proj", "down_proj"][index];
        let (stacked, folder) = (place.join(name), block.join("experts"));
        let fused;
        let original = match spec.original {
            OriginalNames::Each(names) => {
                Original::Each { folder: folder.path(), name: names[index] }
            }
            OriginalNames::Fused([inner, outer]) => {
                let (name, part, parts) = if index < 2 { (inner, index, 2) } else { (outer, 0, 1) };
                fused = format!("{}.{name}", block.path());
                Original::Fused { tensor: &fused, part, parts }
            }
        };
        let paths = ExpertPaths { stacked: stacked.path(), original: Some(original) };
        weights.experts(paths, [spec.count, outputs, inputs], spec.bias)
    };
    let inner: [usize; 2] = [spec.width, hidden];
    let [gate_proj, up_proj]: [SwitchLinear; 2] = [load(0, inner)?, load(1, inner)?];
    let down_proj = load(2, [hidden, spec.width])?;
    Ok(SwitchGlu { gate_proj, up_proj, down_proj, activation: ops::silu })
}

impl Shared {
    fn load(
        weights: &mut Weights,
        place: &Place,
        spec: &SharedSpec,
        hidden: usize,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let gate = |name: &str, weights: &mut Weights| {
            let place = place.join(name);
            Ok::<_, EngineError>((weights.linear(place.path(), [1, hidden], false)?, place))
        };
        Ok(Self {
            mlp: Mlp::load(weights, &place.join(spec.path), hidden, &spec.mlp, fault)?,
            gate: spec.gate.map(|name| gate(name, weights)).transpose()?,
        })
    }

    fn forward(&self, x: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
        let out = self.mlp.forward(x, sink)?;
        let Some((gate, place)) = &self.gate else { return Ok(out) };
        let share = gate.forward(x)?;
        sink.tap(place.own_tap(), &share);
        ops::multiply(&ops::sigmoid(&share)?, &out)
    }
}
