//! Turns a checkpoint into layers and audits it: every tensor is read once, none is missing.

mod experts;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use mlx_parity_tensor::Dtype;
use mlx_parity_tensor::safetensors::Checkpoint;
use mlx_rs::{Array, Dtype as MlxDtype};

use crate::array::from_view;
use crate::config::{ConfigFile, Override, Quantization};
use crate::error::EngineError;
use crate::nn::{Embedding, Linear, Matrix, RmsNorm, Slot, Weight};
use crate::ops::{self, Affine};

pub use experts::{ExpertPaths, Original};

/// A checkpoint while an architecture takes its tensors out by name.
///
/// A tensor that is missing or unfit is noted and stands in as zeros, so that
/// [`Weights::finish`] can name all of them at once; nothing computes before it has passed.
#[derive(Debug)]
pub struct Weights {
    folder: PathBuf,
    checkpoint: Checkpoint,
    quantization: Option<Quantization>,
    /// The name in the file of every tensor, by the name it is asked for under.
    stored: BTreeMap<String, String>,
    unread: BTreeSet<String>,
    unread_overrides: BTreeSet<String>,
    missing: Vec<String>,
    unfit: Vec<String>,
    /// MLX's lazy tensors of the files opened so far.
    files: HashMap<PathBuf, HashMap<String, Array>>,
    /// Handles to the linear layers made so far, by module path.
    linears: BTreeMap<String, Slot>,
}

/// What a tensor holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// f32, bf16 or f16.
    Floats,
    /// Packed values in u32.
    Packed,
}

impl Weights {
    /// Opens the checkpoint of a model folder under its config's quantization.
    ///
    /// # Errors
    /// [`EngineError::Safetensors`] for a file or index that cannot be read, and what
    /// [`Quantization::read`] refuses.
    pub fn open(folder: &Path, config: &ConfigFile) -> Result<Self, EngineError> {
        let checkpoint = Checkpoint::open(folder)?;
        let quantization = Quantization::read(config)?;
        let overrides = quantization.iter().flat_map(|q| q.overrides.keys().cloned()).collect();
        Ok(Self {
            folder: folder.to_owned(),
            stored: checkpoint.names().map(|name| (name.to_owned(), name.to_owned())).collect(),
            unread: checkpoint.names().map(str::to_owned).collect(),
            unread_overrides: overrides,
            missing: Vec::new(),
            unfit: Vec::new(),
            files: HashMap::new(),
            linears: BTreeMap::new(),
            checkpoint,
            quantization,
        })
    }

    pub(crate) fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Whether the checkpoint holds a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.stored.contains_key(name)
    }

    /// The shape of a tensor, where the checkpoint holds it.
    ///
    /// # Errors
    /// [`EngineError::Safetensors`] where the file cannot be read.
    pub fn shape(&self, name: &str) -> Result<Option<Vec<usize>>, EngineError> {
        let Some(stored) = self.stored.get(name) else { return Ok(None) };
        Ok(Some(self.checkpoint.view(stored)?.shape().to_vec()))
    }

    /// The names of all tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.stored.keys().map(String::as_str)
    }

    /// Drops tensors that the reference drops too.
    pub fn discard(&mut self, dropped: impl Fn(&str) -> bool) {
        self.stored.retain(|name, _| !dropped(name));
        self.unread.retain(|name| !dropped(name));
    }

    /// Gives every tensor the name that `sanitize` of the reference gives it. Two tensors that would
    /// share a name fail the audit.
    pub fn rename(&mut self, renamed: impl Fn(&str) -> String) {
        let mut stored = BTreeMap::new();
        for (old, file_name) in std::mem::take(&mut self.stored) {
            let name = renamed(&old);
            if let Some(other) = stored.insert(name.clone(), file_name) {
                self.unfit.push(format!("{name} (found as {other} and as {old})"));
            }
        }
        self.stored = stored;
        self.unread = self.unread.iter().map(|name| renamed(name)).collect();
    }

    /// Handles to all linear layers made so far, by module path.
    pub(crate) fn take_linears(&mut self) -> BTreeMap<String, Slot> {
        std::mem::take(&mut self.linears)
    }

    /// The linear layer at a module path, `[outputs, inputs]`.
    ///
    /// # Errors
    /// [`EngineError::UnsupportedConfig`] for a packing other than affine.
    pub fn linear(
        &mut self,
        path: &str,
        [outputs, inputs]: [usize; 2],
        bias: bool,
    ) -> Result<Linear, EngineError> {
        let weight = self.weight(path, [outputs, inputs])?;
        let bias = bias.then(|| self.floats(&format!("{path}.bias"), &[outputs])).transpose()?;
        let linear = Linear::new(weight, bias);
        self.linears.insert(path.to_owned(), linear.slot());
        Ok(linear)
    }

    /// The embedding at a module path, `[vocab, dims]`.
    ///
    /// # Errors
    /// As [`Weights::linear`].
    pub fn embedding(&mut self, path: &str, shape: [usize; 2]) -> Result<Embedding, EngineError> {
        Ok(Embedding::new(self.weight(path, shape)?))
    }

    /// The `nn.RMSNorm` at a module path.
    ///
    /// # Errors
    /// As [`Weights::linear`].
    pub fn norm(&mut self, path: &str, dims: usize, eps: f64) -> Result<RmsNorm, EngineError> {
        Ok(RmsNorm::new(self.norm_weight(path, dims)?, eps as f32))
    }

    /// The gemma norm at a module path.
    ///
    /// # Errors
    /// As [`Weights::linear`].
    pub fn one_plus_norm(
        &mut self,
        path: &str,
        dims: usize,
        eps: f64,
    ) -> Result<RmsNorm, EngineError> {
        RmsNorm::one_plus(&self.norm_weight(path, dims)?, eps as f32)
    }

    fn norm_weight(&mut self, path: &str, dims: usize) -> Result<Array, EngineError> {
        self.floats(&format!("{path}.weight"), &[dims])
    }

    /// The f32, bf16 or f16 tensor of a name.
    ///
    /// # Errors
    /// As [`Weights::linear`].
    pub(crate) fn floats(&mut self, name: &str, shape: &[usize]) -> Result<Array, EngineError> {
        self.tensor(name, shape, Holds::Floats)
    }

    fn weight(&mut self, path: &str, shape: [usize; 2]) -> Result<Weight, EngineError> {
        let [outputs, inputs] = shape;
        let name = format!("{path}.weight");
        let Some(packing) = self.packing(path, inputs)? else {
            let values = self.tensor(&name, &shape, Holds::Floats)?;
            return Ok(Weight::Plain(Matrix::new(values)?));
        };
        let words = inputs * packing.bits as usize / 32;
        let groups = [outputs, inputs / packing.group_size as usize];
        Ok(Weight::Affine {
            packed: self.tensor(&name, &[outputs, words], Holds::Packed)?,
            scales: self.tensor(&format!("{path}.scales"), &groups, Holds::Floats)?,
            biases: self.tensor(&format!("{path}.biases"), &groups, Holds::Floats)?,
            packing,
        })
    }

    /// How a matrix is packed, if it is (`class_predicate` in `mlx_lm/utils.py`): what the config
    /// says of this path, else what the shapes say where there are scales.
    fn packing(&mut self, path: &str, inputs: usize) -> Result<Option<Affine>, EngineError> {
        self.packing_at(path, path, inputs)
    }

    /// [`Weights::packing`] of a module whose tensors lie elsewhere, at `stored`.
    fn packing_at(
        &mut self,
        path: &str,
        stored: &str,
        inputs: usize,
    ) -> Result<Option<Affine>, EngineError> {
        let Some(quantization) = &self.quantization else { return Ok(None) };
        if let Some(spoken) = quantization.overrides.get(path) {
            self.unread_overrides.remove(path);
            return Ok(match spoken {
                Override::Default => Some(quantization.default),
                Override::Plain => None,
                Override::As(packing) => Some(*packing),
            });
        }
        let scales = format!("{stored}.scales");
        if !self.has(&scales) {
            return Ok(None);
        }
        let columns = |name: &str| -> Result<usize, EngineError> {
            Ok(self.shape(name)?.and_then(|shape| shape.last().copied()).unwrap_or(0))
        };
        let packed = format!("{stored}.weight");
        let words = columns(&packed)?;
        let groups = columns(&scales)?;
        Ok(Some(Affine {
            group_size: inputs.checked_div(groups).unwrap_or(0).max(1) as i32,
            bits: (words * 32 / inputs) as i32,
        }))
    }

    fn tensor(&mut self, name: &str, shape: &[usize], holds: Holds) -> Result<Array, EngineError> {
        self.unread.remove(name);
        let Some(stored) = self.stored.get(name) else {
            self.missing.push(name.to_owned());
            return stand_in(shape, holds);
        };
        let view = self.checkpoint.view(stored)?;
        if view.shape() != shape || !holds.fits(view.dtype()) {
            self.unfit.push(format!(
                "{name} (found {} {:?}, wanted {} {shape:?})",
                view.dtype().name(),
                view.shape(),
                holds.wanted(),
            ));
            return stand_in(shape, holds);
        }
        let stored = stored.clone();
        self.read(&stored)
    }

    /// A tensor as MLX reads it: from the file straight into its own buffer, so that no more than the
    /// weights themselves is held in memory. Of a file that MLX refuses, for a dtype in it that it does
    /// not know, the tensor is copied.
    fn read(&mut self, stored: &str) -> Result<Array, EngineError> {
        let path = self.checkpoint.file_of(stored)?.path();
        if !self.files.contains_key(path) {
            let tensors = Array::load_safetensors(path).unwrap_or_default();
            self.files.insert(path.to_owned(), tensors);
        }
        let Some(array) = self.files.get(path).and_then(|tensors| tensors.get(stored)) else {
            return from_view(&self.checkpoint.view(stored)?);
        };
        ops::eval([array])?;
        Ok(array.clone())
    }

    /// Passes if every tensor was read and fitted, and every per-layer quantization was used.
    ///
    /// # Errors
    /// [`EngineError::WeightAudit`] with the names of all that did not, [`EngineError::Config`] for
    /// quantization of a layer that does not exist.
    pub fn finish(self, config: &ConfigFile) -> Result<(), EngineError> {
        if !(self.missing.is_empty() && self.unread.is_empty() && self.unfit.is_empty()) {
            return Err(EngineError::WeightAudit {
                dir: self.folder,
                missing: self.missing,
                unexpected: self.unread.into_iter().collect(),
                unfit: self.unfit,
            });
        }
        if self.unread_overrides.is_empty() {
            return Ok(());
        }
        let paths: Vec<String> = self.unread_overrides.into_iter().collect();
        Err(config
            .error(format!("`quantization` names no layer of the model: {}", paths.join(", "))))
    }
}

impl Holds {
    fn fits(self, dtype: Dtype) -> bool {
        match self {
            Self::Floats => matches!(dtype, Dtype::F32 | Dtype::Bf16 | Dtype::F16),
            Self::Packed => dtype == Dtype::U32,
        }
    }

    fn wanted(self) -> &'static str {
        match self {
            Self::Floats => "f32, bf16 or f16",
            Self::Packed => "u32",
        }
    }
}

fn stand_in(shape: &[usize], holds: Holds) -> Result<Array, EngineError> {
    let dtype = match holds {
        Holds::Floats => MlxDtype::Float32,
        Holds::Packed => MlxDtype::Uint32,
    };
    ops::zeros(&crate::array::mlx_shape(shape)?, dtype)
}
