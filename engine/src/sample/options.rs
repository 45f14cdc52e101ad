//! What a sampler is told.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::Deserialize;

use crate::error::EngineError;

/// The arguments of `make_sampler` and `make_logits_processors` of `mlx_lm/sample_utils.py` under their own
/// names and with their defaults, and the seed of `mx.random`. Unknown keys are refused.
///
/// Ranges are those that these functions and `mlx_lm/server.py` ask for; they are checked whether or not
/// another option makes the value idle, and no number may be infinite or NaN.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SamplerOptions {
    /// Divides the log probabilities that are drawn from, 0 or more; 0 takes the likeliest id, and no filter
    /// is used.
    pub temp: f64,
    /// The probability that the likeliest ids must hold together, 0 to 1; 0 and 1 keep all.
    pub top_p: f64,
    /// The least probability, as a part of the likeliest id's, 0 to 1; 0 keeps all.
    pub min_p: f64,
    /// Ids that min-p leaves at least, 1 to the vocabulary.
    pub min_tokens_to_keep: usize,
    /// How many of the likeliest ids are left, fewer than the vocabulary; 0 keeps all.
    pub top_k: usize,
    /// The chance, 0 to 1, that XTC drops all ids above its threshold but the least likely of them.
    pub xtc_probability: f64,
    /// The probability from which XTC may drop an id, 0 to 0.5.
    pub xtc_threshold: f64,
    /// Ids that XTC never drops.
    pub xtc_special_tokens: Vec<u32>,
    /// What is added to an id's logit.
    pub logit_bias: BTreeMap<u32, f64>,
    /// Divides positive and multiplies negative logits of ids that occurred, 0 or more; 0 is off, and 1 has
    /// no effect.
    pub repetition_penalty: f64,
    /// How many of the newest ids count for it; 0 counts all.
    pub repetition_context_size: usize,
    /// Taken once from the logit of an id that occurred; 0 is off.
    pub presence_penalty: f64,
    /// How many of the newest ids count for it; 0 counts all.
    pub presence_context_size: usize,
    /// Taken from an id's logit for each time it occurred; 0 is off.
    pub frequency_penalty: f64,
    /// How many of the newest ids count for it; 0 counts all.
    pub frequency_context_size: usize,
    /// The seed of `mx.random`.
    pub seed: u64,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            temp: 0.0,
            top_p: 0.0,
            min_p: 0.0,
            min_tokens_to_keep: 1,
            top_k: 0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            xtc_special_tokens: Vec::new(),
            logit_bias: BTreeMap::new(),
            repetition_penalty: 0.0,
            repetition_context_size: 20,
            presence_penalty: 0.0,
            presence_context_size: 20,
            frequency_penalty: 0.0,
            frequency_context_size: 20,
            seed: 0,
        }
    }
}

impl SamplerOptions {
    /// Refuses what has no meaning for a vocabulary.
    pub(super) fn check(&self, vocab_size: usize) -> Result<(), EngineError> {
        within("temp", self.temp, 0.0..=f64::MAX)?;
        within("top_p", self.top_p, 0.0..=1.0)?;
        within("min_p", self.min_p, 0.0..=1.0)?;
        within("xtc_probability", self.xtc_probability, 0.0..=1.0)?;
        within("xtc_threshold", self.xtc_threshold, 0.0..=0.5)?;
        within("repetition_penalty", self.repetition_penalty, 0.0..=f64::MAX)?;
        within("presence_penalty", self.presence_penalty, f64::MIN..=f64::MAX)?;
        within("frequency_penalty", self.frequency_penalty, f64::MIN..=f64::MAX)?;
        for bias in self.logit_bias.values() {
            within("logit_bias", *bias, f64::MIN..=f64::MAX)?;
        }
        if !(1..=vocab_size).contains(&self.min_tokens_to_keep) {
            let wanted = format!("1 to {vocab_size}, the vocabulary");
            return Err(refused("min_tokens_to_keep", &self.min_tokens_to_keep, &wanted));
        }
        if self.top_k >= vocab_size {
            let wanted = format!("fewer than {vocab_size}, the vocabulary");
            return Err(refused("top_k", &self.top_k, &wanted));
        }
        let specials = self.xtc_special_tokens.iter().map(|id| ("xtc_special_tokens", id));
        let biased = self.logit_bias.keys().map(|id| ("logit_bias", id));
        for (option, id) in specials.chain(biased) {
            if *id as usize >= vocab_size {
                let wanted = format!("ids below {vocab_size}, the vocabulary");
                return Err(refused(option, id, &wanted));
            }
        }
        Ok(())
    }

    pub(super) fn is_greedy(&self) -> bool {
        self.temp == 0.0
    }

    pub(super) fn penalises(&self) -> bool {
        [self.repetition_penalty, self.presence_penalty, self.frequency_penalty]
            .iter()
            .any(|penalty| *penalty != 0.0)
    }
}

fn within(option: &'static str, value: f64, range: RangeInclusive<f64>) -> Result<(), EngineError> {
    if range.contains(&value) {
        return Ok(());
    }
    let wanted = match (*range.start(), *range.end()) {
        (f64::MIN, _) => "a finite number".to_owned(),
        (low, f64::MAX) => format!("a finite number, {low} or more"),
        (low, high) => format!("{low} to {high}"),
    };
    Err(refused(option, &value, &wanted))
}

fn refused(option: &'static str, found: &dyn std::fmt::Display, wanted: &str) -> EngineError {
    EngineError::SamplerOption { option, found: found.to_string(), wanted: wanted.to_owned() }
}
