//! Speculative decoding with a draft model: `speculative_generate_step` of `mlx_lm/generate.py`, greedy.

use std::ops::ControlFlow;

use mlx_rs::Array;

use crate::array::read;
use crate::decoder::Decoder;
use crate::error::EngineError;
use crate::generate::{Finish, GenerateOptions, greedy};
use crate::model::Model;
use crate::ops;

/// When to stop, and how far to guess ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpeculateOptions {
    /// As for [`generate`](crate::generate).
    pub generate: GenerateOptions,
    /// The most tokens the draft model guesses before the model checks them in one call; above 0.
    pub draft_tokens: usize,
}

/// What was generated, and how well it was guessed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speculated {
    /// The new ids, without the one that ended them.
    pub ids: Vec<u32>,
    /// Why there are no more.
    pub finish: Finish,
    /// Calls of the model behind the prompt.
    pub calls: usize,
    /// Tokens that the draft model guessed.
    pub drafted: usize,
    /// Those of them that the model chose too.
    pub accepted: usize,
}

/// Generates greedily from a prompt. The draft model guesses tokens; the model runs them in one call,
/// takes those that it would have chosen, and one of its own; both take back what they ran too far.
///
/// The ids are those of [`generate`](crate::generate), whatever the draft model guesses, past the wrap
/// of windows and with recurrent layers too, where the reference has other ids or refuses. One thing
/// can part them: a call of several tokens may round otherwise than calls of one, so that where the two
/// likeliest ids are nearer to each other than that, either may be chosen. In bf16 and f16, where two
/// ids often have the very same logit, that happens; in f32 hardly.
///
/// The composition is the model's; the draft model computes with [`Composition::l1`](crate::Composition),
/// in the mode of the options. Calls of several tokens are eager in any mode.
///
/// # Errors
/// [`EngineError::SpeculateOption`] for no draft tokens and for a draft model of another vocabulary,
/// before anything is computed; else as [`Decoder::prefill`].
pub fn speculate(
    model: &Model,
    draft: &Model,
    prompt: &[u32],
    options: &SpeculateOptions,
    on_token: impl FnMut(u32) -> ControlFlow<()>,
) -> Result<Speculated, EngineError> {
    let GenerateOptions { prefill_step_size, mode, composition, .. } = &options.generate;
    let mut model = Decoder::with(model, *prefill_step_size, composition)?;
    let mut draft = Decoder::new(draft, *prefill_step_size);
    draft.set_mode(*mode)?;
    speculate_with(&mut model, &mut draft, prompt, options, on_token)
}

/// [`speculate`] with decoders, of any composition, that have both seen what comes before the prompt.
/// They split the prompt by their own step, and have then seen all but the last of the tokens.
///
/// # Errors
/// As [`speculate`], and as [`Decoder::rollback`].
pub fn speculate_with(
    model: &mut Decoder,
    draft: &mut Decoder,
    prompt: &[u32],
    options: &SpeculateOptions,
    on_token: impl FnMut(u32) -> ControlFlow<()>,
) -> Result<Speculated, EngineError> {
    refuse(model.model(), draft.model(), options)?;
    let last = model.check_prompt(&[prompt])?;
    draft.check_prompt(&[prompt])?;
    model.feed(&prompt[..last])?;
    draft.feed(&prompt[..last])?;
    let mut next = prompt[last];
    let mut draft = Draft { decoder: draft, pending: vec![next] };
    let mut run = Run { options, on_token, done: Speculated::new() };
    while run.done.ids.len() < options.generate.max_tokens {
        let left = options.generate.max_tokens - run.done.ids.len();
        let guesses =
            draft.guess(options.draft_tokens.min(left - 1).min(model.widest_call() - 1))?;
        let mut ids = vec![next];
        ids.extend(&guesses);
        let chosen = chosen(&model.verify_logits(&ids)?)?;
        let right = guesses.iter().zip(&chosen).take_while(|(guess, id)| guess == id).count();
        model.rollback(guesses.len() - right)?;
        if run.take(&chosen[..=right], guesses.len()).is_break() {
            break;
        }
        next = chosen[right];
        draft.settle(&guesses, right, next)?;
    }
    Ok(run.done)
}

fn refuse(model: &Model, draft: &Model, options: &SpeculateOptions) -> Result<(), EngineError> {
    model.autoregressive()?;
    draft.autoregressive()?;
    let wrong = |option, found: String, wanted: String| {
        Err(EngineError::SpeculateOption { option, found, wanted })
    };
    if options.draft_tokens == 0 {
        return wrong("draft_tokens", "0".to_owned(), "1 or more".to_owned());
    }
    let [found, wanted] = [draft, model].map(|model| model.vocab_size().to_string());
    if found != wanted {
        return wrong("vocabulary of the draft model", found, format!("{wanted}, the model's"));
    }
    Ok(())
}

/// A generation on its way.
struct Run<'a, F> {
    options: &'a SpeculateOptions,
    on_token: F,
    done: Speculated,
}

impl<F: FnMut(u32) -> ControlFlow<()>> Run<'_, F> {
    /// Takes the tokens of a call, the last of them the model's own; breaks where they end the
    /// generation.
    fn take(&mut self, ids: &[u32], drafted: usize) -> ControlFlow<()> {
        self.done.calls += 1;
        self.done.drafted += drafted;
        self.done.accepted += ids.len() - 1;
        for &id in ids {
            if self.options.generate.eos_token_ids.contains(&id) {
                self.done.finish = Finish::Eos(id);
                return ControlFlow::Break(());
            }
            self.done.ids.push(id);
            if (self.on_token)(id).is_break() {
                self.done.finish = Finish::Stopped;
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

impl Speculated {
    fn new() -> Self {
        Self { ids: Vec::new(), finish: Finish::Length, calls: 0, drafted: 0, accepted: 0 }
    }
}

/// The draft model, and the tokens of the sequence that it has not seen.
struct Draft<'d, 'm> {
    decoder: &'d mut Decoder<'m>,
    pending: Vec<u32>,
}

impl Draft<'_, '_> {
    /// The next `count` tokens, as it would have them. It sees all but the last of them.
    fn guess(&mut self, count: usize) -> Result<Vec<u32>, EngineError> {
        let mut guesses = Vec::with_capacity(count);
        if count == 0 {
            return Ok(guesses);
        }
        // What is pending stays: the guesses behind it can be wrong.
        let pending = std::mem::take(&mut self.pending);
        guesses.push(self.next(&pending)?);
        self.decoder.checkpoint();
        while guesses.len() < count {
            let last = guesses[guesses.len() - 1];
            guesses.push(self.next(&[last])?);
        }
        Ok(guesses)
    }

    fn next(&mut self, ids: &[u32]) -> Result<u32, EngineError> {
        let all = chosen(&self.decoder.verify_logits(ids)?)?;
        all.last().copied().ok_or(EngineError::EmptyPrompt)
    }

    /// Brings it to the sequence that goes on behind the `right` first guesses with `next`.
    fn settle(&mut self, guesses: &[u32], right: usize, next: u32) -> Result<(), EngineError> {
        match guesses {
            [.., last] if right == guesses.len() => self.pending.push(*last),
            [] => {}
            _ => self.decoder.rollback(guesses.len() - 1 - right)?,
        }
        self.pending.push(next);
        Ok(())
    }
}

/// The likeliest ids behind each of logits `[1, n, vocab]`, each chosen as [`greedy`] would choose it.
fn chosen(logits: &Array) -> Result<Vec<u32>, EngineError> {
    let rows = ops::reshape(logits, &[logits.dim(1), -1])?;
    let row = |at| greedy(&ops::rows_of_last_but_one(&rows, at, at + 1)?);
    let ids = (0..rows.dim(0)).map(row).collect::<Result<Vec<_>, _>>()?;
    read::<u32>("choices", &ops::concatenate(&ids.iter().collect::<Vec<_>>(), 0)?)
}
