//! The training loop's one step, as `train` of `mlx_lm/tuner/trainer.py` takes it.

use std::collections::BTreeMap;

use mlx_rs::Array;

use super::adamw::{AdamW, AdamWOptions, clip_grad_norm};
use super::backward::{Backward, Graded, Pass};
use super::batch::Rows;
use super::closure::Result;
use super::kernels::TrainKernels;
use super::objective::Objective;
use super::pairs::Pairs;
use crate::adapter::Adapter;
use crate::array::{item, read};
use crate::composition::Lora;
use crate::error::EngineError;
use crate::model::Model;
use crate::ops::{self, add, divide, scalar};

/// How to train.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainOptions {
    /// What is made small.
    pub objective: Objective,
    /// The optimizer's numbers.
    pub optimizer: AdamWOptions,
    /// How gradients are computed.
    pub backward: Backward,
    /// Batches whose gradients are averaged for one update; above 0.
    pub accumulate: usize,
    /// The largest norm of all gradients together; mlx-lm's trainer has none.
    pub clip: Option<f64>,
    /// Positions of each row whose logits are computed at a time, and again on the way back; above 0. All of
    /// them, kept, where absent.
    pub head_chunk: Option<usize>,
    /// Kernels in the place of ops.
    pub kernels: TrainKernels,
}

impl Default for TrainOptions {
    fn default() -> Self {
        Self {
            objective: Objective::NextToken,
            optimizer: AdamWOptions::default(),
            backward: Backward::Whole,
            accumulate: 1,
            clip: None,
            head_chunk: None,
            kernels: TrainKernels::default(),
        }
    }
}

/// The loss of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    /// In nats.
    pub value: f32,
    /// Targets it is a mean of.
    pub targets: i32,
}

/// A loss, and its gradients by the names of the matrices.
#[derive(Debug)]
pub struct Gradients {
    /// The loss.
    pub loss: Loss,
    /// Of each matrix, in its shape and dtype.
    pub gradients: BTreeMap<String, Array>,
}

/// A model whose adapter is trained. When it is dropped, no adapter is mounted.
pub struct Trainer<'m> {
    model: &'m mut Model,
    adapter: Adapter,
    options: TrainOptions,
    pairs: Pairs,
    values: Vec<Array>,
    optimizer: AdamW,
    /// Sums of gradients since the last update, and of how many batches.
    sums: Option<Vec<Array>>,
    batches: usize,
}

impl<'m> Trainer<'m> {
    /// Begins with an adapter; what was mounted is taken off.
    ///
    /// # Errors
    /// What [`Model::mount`] refuses; [`EngineError::TrainOption`] for an option outside its range or an
    /// adapter of scale 0 or with dropout; [`EngineError::NoAdapter`] for one without layers;
    /// [`EngineError::NotStaged`] for a way of training that the network has not;
    /// [`EngineError::NotAutoregressive`].
    pub fn new(model: &'m mut Model, adapter: &Adapter, options: TrainOptions) -> Result<Self> {
        model.autoregressive()?;
        options.check(model)?;
        adapter.trainable()?;
        let pairs = Pairs::new(model.plan_training(adapter)?);
        let values = pairs.values();
        if values.is_empty() {
            return Err(EngineError::NoAdapter);
        }
        let optimizer = AdamW::new(options.optimizer);
        let (adapter, sums, batches) = (adapter.clone(), None, 0);
        let trainer = Self { model, adapter, options, pairs, values, optimizer, sums, batches };
        trainer.mount();
        Ok(trainer)
    }

    /// The loss of a batch, without a gradient.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws, as for rows that the objective has no meaning for;
    /// [`EngineError::TokenOutOfRange`].
    pub fn loss(&self, rows: &Rows) -> Result<Loss> {
        self.check(rows)?;
        let _kernels = self.options.kernels.enter();
        let [loss, targets] = self.pass(rows).loss()?;
        evaluated(&loss, &targets)
    }

    /// The loss of a batch and its gradients; nothing is updated.
    ///
    /// # Errors
    /// As [`Trainer::loss`].
    pub fn gradients(&self, rows: &Rows) -> Result<Gradients> {
        let Graded { loss, targets, gradients } = self.graded(rows)?;
        ops::eval(gradients.iter().chain([&loss, &targets]))?;
        let gradients = self.pairs.names().into_iter().zip(gradients).collect();
        Ok(Gradients { loss: evaluated(&loss, &targets)?, gradients })
    }

    /// Takes a batch in, and updates the adapter where it is the last of as many as are averaged.
    ///
    /// # Errors
    /// As [`Trainer::loss`]; adapter and optimizer are then as they were.
    pub fn step(&mut self, rows: &Rows) -> Result<Loss> {
        let Graded { loss, targets, mut gradients } = self.graded(rows)?;
        if let Some(sums) = &self.sums {
            let pairs = gradients.iter().zip(sums);
            gradients = pairs.map(|(new, sum)| add(new, sum)).collect::<Result<_>>()?;
        }
        if self.batches + 1 < self.options.accumulate {
            ops::eval(gradients.iter().chain([&loss, &targets]))?;
            (self.sums, self.batches) = (Some(gradients), self.batches + 1);
        } else {
            let mut optimizer = self.optimizer.clone();
            let values = optimizer.update(&self.values, &self.averaged(gradients)?)?;
            ops::eval(values.iter().chain(optimizer.state()).chain([&loss, &targets]))?;
            (self.values, self.optimizer) = (values, optimizer);
            (self.sums, self.batches) = (None, 0);
            self.mount();
        }
        evaluated(&loss, &targets)
    }

    /// The learning rate of the updates to come.
    pub fn set_learning_rate(&mut self, learning_rate: f64) {
        self.optimizer.set_learning_rate(learning_rate);
    }

    /// Updates made so far.
    pub fn updates(&self) -> u64 {
        self.optimizer.steps()
    }

    /// The adapter as it is now, to mount or to save.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn adapter(&self) -> Result<Adapter> {
        let tensors = self.pairs.names().into_iter().zip(self.values.iter().cloned());
        self.adapter.with(tensors.collect())
    }

    /// The average over batches, clipped where asked for.
    fn averaged(&self, mut gradients: Vec<Array>) -> Result<Vec<Array>> {
        if self.options.accumulate > 1 {
            let count = self.options.accumulate as f64;
            let average = |sum: &Array| divide(sum, &scalar(count, sum.dtype())?);
            gradients = gradients.iter().map(average).collect::<Result<_>>()?;
        }
        match self.options.clip {
            Some(max_norm) => Ok(clip_grad_norm(&gradients, max_norm)?.0),
            None => Ok(gradients),
        }
    }

    fn graded(&self, rows: &Rows) -> Result<Graded> {
        self.check(rows)?;
        let kernels = self.options.kernels.enter();
        let graded = self.pass(rows).run(self.options.backward, &self.values);
        drop(kernels);
        // The layers saw the arrays of a graph.
        self.mount();
        graded
    }

    fn pass<'a>(&'a self, rows: &'a Rows) -> Pass<'a> {
        self.model.set_lora(Lora::Cast);
        Pass {
            model: self.model,
            pairs: &self.pairs,
            rows,
            objective: self.options.objective,
            head_chunk: self.options.head_chunk.map(|chunk| chunk as i32),
            flash_head: self.options.kernels.flash_cce,
        }
    }

    fn check(&self, rows: &Rows) -> Result<()> {
        self.options.objective.check(rows)?;
        rows.check(self.model.vocab_size())
    }

    fn mount(&self) {
        self.pairs.all().mount(&self.values);
    }
}

impl Drop for Trainer<'_> {
    fn drop(&mut self) {
        self.pairs.unmount();
    }
}

impl TrainOptions {
    fn check(&self, model: &Model) -> Result<()> {
        let refused =
            |option, found: String, wanted| Err(EngineError::TrainOption { option, found, wanted });
        let small = |count: usize| (1..=i32::MAX as usize).contains(&count);
        if self.accumulate == 0 {
            return refused("accumulate", "0".to_owned(), "at least 1");
        }
        if let Some(norm) = self.clip.filter(|norm| norm.is_nan() || *norm < 0.0) {
            return refused("clip", norm.to_string(), "a norm, at least 0");
        }
        if let Some(chunk) = self.head_chunk.filter(|chunk| !small(*chunk)) {
            return refused("head_chunk", chunk.to_string(), "at least 1 position");
        }
        if let Backward::Segmented { layers: 0 } = self.backward {
            return refused("backward", "segments of 0 layers".to_owned(), "at least 1 layer");
        }
        self.optimizer.check()?;
        let wanted = match (self.backward, self.head_chunk) {
            (Backward::Checkpointed, _) => "checkpointing",
            (Backward::Segmented { .. }, _) => "a segmented backward",
            _ if self.kernels.flash_cce => "the kernel flash_cce",
            (Backward::Whole, Some(_)) => "a chunked head",
            (Backward::Whole, None) => return Ok(()),
        };
        match model.network().staged() {
            Some(_) => Ok(()),
            None => Err(model.not_staged(wanted)),
        }
    }
}

fn evaluated(loss: &Array, targets: &Array) -> Result<Loss> {
    let value = read::<f32>("the loss", loss)?;
    let value = value.first().copied().unwrap_or(f32::NAN);
    Ok(Loss { value, targets: item::<i32>("the number of targets", targets)? })
}
