//! Adapters on a loaded model.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use mlx_rs::Array;

use super::Model;
use crate::adapter::{Adapter, LoraShape};
use crate::array::from_host;
use crate::composition::Lora;
use crate::decoder::{DEFAULT_PREFILL_STEP_SIZE, Decoder};
use crate::error::EngineError;
use crate::nn::{FusionLoss, Slot};
use crate::train::Planned;

/// What is mounted on a model's linear layers.
#[derive(Debug)]
pub(super) struct Adapted {
    /// Every linear layer, by module path.
    linears: BTreeMap<String, Slot>,
    state: State,
    lora: Rc<Cell<Lora>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Bare,
    /// The digest of the adapter.
    Mounted(String),
    /// The same.
    Fused(String),
}

impl Adapted {
    pub(super) fn new(linears: BTreeMap<String, Slot>) -> Self {
        Self { linears, state: State::Bare, lora: Rc::default() }
    }

    /// What becomes of residuals from now on.
    pub(super) fn set_lora(&self, lora: Lora) {
        self.lora.set(lora);
    }

    /// What tells caches under an adapter from those of the bare model.
    pub(super) fn suffix(&self) -> String {
        match &self.state {
            State::Bare => String::new(),
            State::Mounted(digest) => format!(" with adapter {digest}"),
            State::Fused(digest) => format!(" fused with adapter {digest}"),
        }
    }
}

/// What fusing an adapter cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Fusion {
    /// Of each layer's weight, by module path.
    pub weights: BTreeMap<String, FusionLoss>,
    /// Of the logits of the probe.
    pub logits: FusionLoss,
}

impl Model {
    /// Mounts an adapter in the place of the one that is mounted, without loading the model again. An
    /// adapter of scale 0 changes no bit.
    ///
    /// # Errors
    /// What does not fit this model is refused by name, and what was mounted stays:
    /// [`EngineError::UnsupportedConfig`] for a key that names no linear layer,
    /// [`EngineError::WeightAudit`] for tensors; [`EngineError::AdapterFused`] while one is fused.
    pub fn mount(&mut self, adapter: &Adapter) -> Result<(), EngineError> {
        if matches!(self.adapted.state, State::Fused(_)) {
            return Err(EngineError::AdapterFused);
        }
        let lora = &self.adapted.lora;
        let planned = adapter.plan(&self.adapted.linears, self.num_layers(), lora)?;
        self.unmount();
        let mut mounted = false;
        for planned in planned.into_iter().filter(|planned| planned.residual.scale != 0.0) {
            planned.slot.mount(Some(planned.residual));
            mounted = true;
        }
        if mounted {
            self.set_adapter(State::Mounted(adapter.digest().to_owned()));
        }
        Ok(())
    }

    /// Takes the adapter off, if one is mounted; a fused one stays.
    pub fn unmount(&mut self) {
        if matches!(self.adapted.state, State::Mounted(_)) {
            self.adapted.linears.values().for_each(|slot| slot.mount(None));
            self.set_adapter(State::Bare);
        }
    }

    /// Makes the mounted adapter part of the weights, each rounded to its dtype and packed as it was
    /// (`fuse` of `mlx_lm/tuner/lora.py`), and says what that cost: in each weight, and in the logits
    /// of the ids `probe`. The weights from before stay in memory for [`Model::unfuse`].
    ///
    /// # Errors
    /// [`EngineError::AdapterFused`] where one is fused, [`EngineError::NoAdapter`] where none is
    /// mounted; for the probe, as [`Decoder::prefill`].
    pub fn fuse(&mut self, probe: &[u32]) -> Result<Fusion, EngineError> {
        let digest = match &self.adapted.state {
            State::Mounted(digest) => digest.clone(),
            State::Fused(_) => return Err(EngineError::AdapterFused),
            State::Bare => return Err(EngineError::NoAdapter),
        };
        let before = self.logits_of(probe)?;
        self.set_adapter(State::Fused(digest));
        let fused = self.fuse_all().and_then(|weights| {
            let logits = FusionLoss::between(&before, &self.logits_of(probe)?)?;
            Ok(Fusion { weights, logits })
        });
        if fused.is_err() {
            self.unfuse();
        }
        fused
    }

    /// Takes the weights from before [`Model::fuse`] back, bit for bit, and has the adapter mounted
    /// again. Nothing where none is fused.
    pub fn unfuse(&mut self) {
        if let State::Fused(digest) = &self.adapted.state {
            let digest = digest.clone();
            self.adapted.linears.values().for_each(Slot::unfuse);
            self.set_adapter(State::Mounted(digest));
        }
    }

    /// An adapter of this model that changes nothing yet, to be trained.
    ///
    /// # Errors
    /// [`EngineError::UnsupportedConfig`] for a rank of 0, a scale that is no number and a key that names no
    /// linear layer.
    pub fn new_adapter(&self, shape: &LoraShape, seed: u64) -> Result<Adapter, EngineError> {
        Adapter::fresh(shape, seed, &self.adapted.linears, self.num_layers())
    }

    /// The layers that an adapter changes, for the training path, which mounts residuals of its own: what was
    /// mounted is taken off.
    ///
    /// # Errors
    /// As [`Model::mount`].
    pub(crate) fn plan_training(&mut self, adapter: &Adapter) -> Result<Vec<Planned>, EngineError> {
        if matches!(self.adapted.state, State::Fused(_)) {
            return Err(EngineError::AdapterFused);
        }
        let lora = &self.adapted.lora;
        let planned = adapter.plan(&self.adapted.linears, self.num_layers(), lora)?;
        self.unmount();
        Ok(planned)
    }

    fn fuse_all(&self) -> Result<BTreeMap<String, FusionLoss>, EngineError> {
        let mut losses = BTreeMap::new();
        for (path, slot) in &self.adapted.linears {
            if let Some(loss) = slot.fuse()? {
                losses.insert(path.clone(), loss);
            }
        }
        Ok(losses)
    }

    fn logits_of(&self, ids: &[u32]) -> Result<Array, EngineError> {
        from_host(&Decoder::new(self, DEFAULT_PREFILL_STEP_SIZE).prefill(ids)?)
    }

    fn set_adapter(&mut self, state: State) {
        self.adapted.state = state;
        self.identity = format!("{}{}", self.bare_identity, self.adapted.suffix());
    }
}
