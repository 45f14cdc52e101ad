//! The denoising loop: `stream_diffusion_generate` of mlx-optiq for one prompt, with its dynamic
//! caches and without compilation.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use mlx_rs::{Array, Dtype};

use super::attention::Prefix;
use super::plan::Plan;
use super::{DiffusionGemma, sampler};
use crate::array::{read, to_host};
use crate::cache::KvCache;
use crate::denoise::{DenoiseOptions, DenoiseStep, Denoised, Sampler};
use crate::error::EngineError;
use crate::fault;
use crate::generate::Finish;
use crate::ops::{self, Keys};
use crate::taps::{TapSink, Taps};

/// Sees each step; breaking ends the run.
pub(crate) type Watcher<'w> = dyn FnMut(&DenoiseStep) -> ControlFlow<()> + 'w;

impl DiffusionGemma {
    /// Denoises canvas after canvas behind a prompt.
    ///
    /// # Errors
    /// [`EngineError::DenoiseOption`], [`EngineError::EmptyPrompt`] and
    /// [`EngineError::TokenOutOfRange`] before anything is computed; [`EngineError::Op`] where MLX
    /// throws.
    pub(crate) fn denoise(
        &self,
        prompt: &[u32],
        options: &DenoiseOptions,
        watch: &mut Watcher,
    ) -> Result<Denoised, EngineError> {
        let plan = Plan::new(self, prompt, options)?;
        let mut run = Run::new(self, &plan)?;
        run.read_prompt(prompt)?;
        let mut ids = Vec::new();
        let mut counted = 0;
        loop {
            let length = plan.longest.min((plan.max_tokens - counted).max(plan.shortest));
            let Some(tokens) = run.canvas(length as i32, watch)? else {
                return Ok(Denoised { ids, finish: Finish::Stopped });
            };
            for id in read::<i32>("canvas", &tokens)? {
                let id = id as u32;
                counted += 1;
                if plan.stops.contains(&id) {
                    return Ok(Denoised { ids, finish: Finish::Eos(id) });
                }
                ids.push(id);
                if counted == plan.max_tokens {
                    return Ok(Denoised { ids, finish: Finish::Length });
                }
            }
            self.read(&tokens, &mut run.caches, &mut TapSink::default())?;
        }
    }
}

/// A run under way.
struct Run<'m> {
    model: &'m DiffusionGemma,
    plan: &'m Plan,
    caches: Vec<KvCache>,
    keys: Keys,
    /// The embedding's rows in floats.
    table: Array,
    canvases: usize,
    steps: usize,
}

/// A canvas between two steps. All arrays are `[1, n]`, but for `soft`.
struct Canvas {
    prefixes: Vec<Prefix>,
    tokens: Array,
    /// The soft embeddings of the step before, `[1, n, hidden]`.
    soft: Option<Array>,
    /// Positions that stay committed.
    revealed: Array,
    /// What those positions hold, and noise elsewhere.
    draft: Array,
    history: VecDeque<Array>,
}

/// What a step made of its logits.
struct Chosen {
    uncertainty: Array,
    committed: Array,
    /// The probabilities, where they are known already.
    probs: Option<Array>,
}

impl<'m> Run<'m> {
    fn new(model: &'m DiffusionGemma, plan: &'m Plan) -> Result<Self, EngineError> {
        Ok(Self {
            caches: crate::model::Network::new_caches(model),
            keys: Keys::seeded(plan.seed)?,
            table: model.embed_tokens.table()?,
            canvases: 0,
            steps: 0,
            model,
            plan,
        })
    }

    fn read_prompt(&mut self, prompt: &[u32]) -> Result<(), EngineError> {
        for chunk in prompt.chunks(self.plan.prefill_step_size) {
            let ids: Vec<i32> = chunk.iter().map(|&id| id as i32).collect();
            let ids = Array::from_slice(&ids, &[1, ids.len() as i32]);
            self.model.read(&ids, &mut self.caches, &mut TapSink::default())?;
            ops::eval(self.caches.iter().flat_map(KvCache::state))?;
        }
        Ok(())
    }

    /// Denoises one canvas: ids `[1, length]`, or none where the watcher broke off.
    fn canvas(&mut self, length: i32, watch: &mut Watcher) -> Result<Option<Array>, EngineError> {
        self.canvases += 1;
        let tokens = self.noise(length)?;
        let mut canvas = Canvas {
            prefixes: self.model.prefixes(&self.caches, length)?,
            revealed: ops::zeros(tokens.shape(), Dtype::Bool)?,
            draft: tokens.clone(),
            tokens,
            soft: None,
            history: VecDeque::new(),
        };
        for left in (1..=self.plan.steps).rev() {
            match self.step(&mut canvas, left, watch)? {
                Step::Next => {}
                Step::Done(tokens) => return Ok(Some(tokens)),
                Step::Stopped => return Ok(None),
            }
        }
        Ok(None)
    }

    /// One step with `left` to go, this one among them.
    fn step(
        &mut self,
        canvas: &mut Canvas,
        left: usize,
        watch: &mut Watcher,
    ) -> Result<Step, EngineError> {
        self.steps += 1;
        let mut sink = TapSink::default();
        if self.plan.tapped_step == Some(self.steps) {
            sink.taps = Taps::All;
        }
        let Canvas { prefixes, tokens, soft, .. } = &*canvas;
        let (seen, given) = (tokens.clone(), soft.clone());
        let raw = self.model.logits(&seen, given.as_ref(), prefixes, &mut sink)?;
        let temperature = self.model.config.decoding.temperature(left, self.plan.steps);
        let logits = ops::divide(&raw, &ops::scalar(temperature, Dtype::Float32)?)?;
        let best = ops::cast(&ops::argmax_last(&logits)?, Dtype::Int32)?;
        let chosen = if left > 1 { Some(self.choose(canvas, &logits, &best)?) } else { None };

        let mut tensors = vec![("tokens", &seen), ("logits", &raw)];
        tensors.extend(given.as_ref().map(|given| ("conditioning", given)));
        tensors.extend(chosen.iter().flat_map(|chosen| {
            [("uncertainty", &chosen.uncertainty), ("committed", &chosen.committed)]
        }));
        let step = self.plan.steps - left + 1;
        let shown = DenoiseStep { canvas: self.canvases, step, tensors, taps: sink.drain()? };
        if watch(&shown).is_break() {
            return Ok(Step::Stopped);
        }
        let Some(chosen) = chosen else { return Ok(Step::Done(best)) };
        let all_revealed = matches!(self.plan.sampler, Sampler::ConfidenceThreshold(_))
            && truth(&ops::all(&canvas.revealed)?)?;
        if all_revealed || self.settled(canvas, &best, &logits)? {
            return Ok(Step::Done(best));
        }
        let probs = match chosen.probs {
            Some(probs) => probs,
            None => ops::softmax(&logits, true)?,
        };
        let soft = sampler::soft_embeddings(&probs, &self.table, self.model.embed_scale())?;
        ops::eval([&soft, &canvas.tokens])?;
        canvas.soft = Some(soft);
        Ok(Step::Next)
    }

    /// Commits positions and puts noise in the place of the others.
    fn choose(
        &mut self,
        canvas: &mut Canvas,
        logits: &Array,
        best: &Array,
    ) -> Result<Chosen, EngineError> {
        let sampled = self.sample(logits, best)?;
        let fault = self.model.fault;
        let chosen = match self.plan.sampler {
            Sampler::EntropyBound => {
                let (probs, entropy) = sampler::entropy(logits)?;
                let bound = self.model.config.decoding.entropy_bound;
                let committed = sampler::within_entropy(&entropy, bound)?;
                let committed = fault::one_more(fault, committed, None)?;
                canvas.revealed = committed.clone();
                Chosen { uncertainty: entropy, committed, probs: Some(probs) }
            }
            Sampler::ConfidenceThreshold(threshold) => {
                let hidden = ops::logical_not(&canvas.revealed)?;
                let confidence = sampler::confidence(logits, &sampled)?;
                let committed = sampler::confident(&confidence, &hidden, threshold)?;
                let committed = fault::one_more(fault, committed, Some(&hidden))?;
                canvas.draft = ops::select(&committed, &sampled, &canvas.draft)?;
                canvas.revealed = ops::logical_or(&canvas.revealed, &committed)?;
                Chosen { uncertainty: confidence, committed, probs: None }
            }
        };
        let kept = match self.plan.sampler {
            Sampler::EntropyBound => &sampled,
            Sampler::ConfidenceThreshold(_) => &canvas.draft,
        };
        let noise = self.noise(canvas.tokens.dim(1))?;
        canvas.tokens = ops::select(&canvas.revealed, kept, &noise)?;
        Ok(chosen)
    }

    /// A token for each position, `[1, n]`.
    fn sample(&mut self, logits: &Array, best: &Array) -> Result<Array, EngineError> {
        let temperature = self.plan.temperature;
        if temperature == 0.0 {
            return Ok(best.clone());
        }
        let key = self.keys.draw()?;
        let drawn = if temperature == 1.0 {
            ops::categorical(logits, &key)?
        } else {
            let temperature = ops::scalar(temperature, Dtype::Float32)?;
            ops::categorical(&ops::divide(logits, &temperature)?, &key)?
        };
        ops::cast(&drawn, Dtype::Int32)
    }

    /// Random tokens, i32 `[1, length]`.
    fn noise(&mut self, length: i32) -> Result<Array, EngineError> {
        let vocab_size = self.model.config.dims.vocab_size as i32;
        ops::randint(0, vocab_size, &[1, length], &self.keys.draw()?)
    }

    /// Whether the best tokens are those of the steps before and certain
    /// (`_diffusion_stable_and_confident`).
    fn settled(
        &self,
        canvas: &mut Canvas,
        best: &Array,
        logits: &Array,
    ) -> Result<bool, EngineError> {
        let Some(stopping) = self.model.config.decoding.stopping else { return Ok(false) };
        let mut stable = canvas.history.len() == stopping.stability;
        for earlier in &canvas.history {
            stable = stable && truth(&ops::all(&ops::equal(best, earlier)?)?)?;
        }
        canvas.history.push_back(best.clone());
        if canvas.history.len() > stopping.stability {
            canvas.history.pop_front();
        }
        Ok(stable && truth(&sampler::certain(logits, stopping.confidence)?)?)
    }
}

/// How a step of a canvas ended.
enum Step {
    /// There is another one.
    Next,
    /// The canvas is done: ids `[1, n]`.
    Done(Array),
    /// The watcher broke off.
    Stopped,
}

/// The value of a boolean array of one element.
fn truth(condition: &Array) -> Result<bool, EngineError> {
    Ok(to_host(condition)?.bytes().iter().all(|&byte| byte != 0))
}
