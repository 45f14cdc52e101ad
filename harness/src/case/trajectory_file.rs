//! Trajectory cases: `[[prompt]]` and `[[trajectory]]` tables of `goldens/cases/l3/<file>.toml`.

use std::{collections::HashSet, path::Path};

use serde::Deserialize;

use super::{
    Case, CaseError, Composition, DEFAULT_PREFILL_STEP, DecodeFrom, Kind, Prompt, Trajectory,
    file::{invalid, whole_name},
    toml_dir,
    trajectory::{Bounds, Envelope, NamedPrompt},
};
use crate::row::Tier;

/// Fewer prompts give no interval worth the name (design §5, E7).
const MIN_PROMPTS: usize = 4;
/// Fewer positions of a prompt tell too little.
const MIN_POSITIONS: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFile {
    /// Prompts of every trajectory in the file.
    prompt: Vec<WirePrompt>,
    trajectory: Vec<WireTrajectory>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePrompt {
    name: String,
    prompt: Prompt,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireTrajectory {
    name: String,
    model: String,
    positions: usize,
    decode_from: DecodeFrom,
    prefill_step: Option<usize>,
    #[serde(default)]
    large: bool,
    degenerate_because: Option<String>,
    envelope: Vec<WireEnvelope>,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireEnvelope {
    name: String,
    composition: Composition,
    max_mean: f64,
    max_p99: f64,
    min_agreement: f64,
}

/// The cases of one file.
pub(super) fn load(path: &Path) -> Result<Vec<Case>, CaseError> {
    let WireFile { prompt, trajectory } = toml_dir::read(path)?;
    let prompts = prompts(path, prompt)?;
    trajectory.into_iter().map(|wire| case(path, &prompts, wire)).collect()
}

fn prompts(path: &Path, wire: Vec<WirePrompt>) -> Result<Vec<NamedPrompt>, CaseError> {
    if wire.len() < MIN_PROMPTS {
        let message = format!("{} prompts, wanted at least {MIN_PROMPTS}", wire.len());
        return Err(invalid(path, "prompt", message));
    }
    let mut names = HashSet::new();
    for prompt in &wire {
        toml_dir::check_name(path, &prompt.name)?;
        if prompt.name.contains('/') || !names.insert(&prompt.name) {
            return Err(invalid(path, &prompt.name, "a prompt's name has no `/` and stands once"));
        }
    }
    Ok(wire.into_iter().map(|WirePrompt { name, prompt }| NamedPrompt { name, prompt }).collect())
}

fn case(path: &Path, prompts: &[NamedPrompt], wire: WireTrajectory) -> Result<Case, CaseError> {
    toml_dir::check_name(path, &wire.name)?;
    let refuse = |message: String| Err(invalid(path, &wire.name, message));
    if wire.positions < MIN_POSITIONS {
        return refuse(format!("positions = {}, wanted at least {MIN_POSITIONS}", wire.positions));
    }
    if wire.prefill_step == Some(0) {
        return refuse("prefill-step is 0, wanted at least 1 token".to_owned());
    }
    if wire.why.trim().is_empty() {
        return refuse("`why` is empty: say what this case is there to catch".to_owned());
    }
    let envelopes = envelopes(path, wire.envelope)?;
    Ok(Case {
        id: whole_name(path, Tier::L3, None, &wire.name),
        tier: Tier::L3,
        why: wire.why,
        kind: Kind::Trajectory(Trajectory {
            model: wire.model,
            prompts: prompts.to_vec(),
            positions: wire.positions,
            decode_from: wire.decode_from,
            prefill_step: wire.prefill_step.unwrap_or(DEFAULT_PREFILL_STEP),
            large: wire.large,
            degenerate_because: wire.degenerate_because,
            envelopes,
        }),
    })
}

fn envelopes(path: &Path, wire: Vec<WireEnvelope>) -> Result<Vec<Envelope>, CaseError> {
    let mut names = HashSet::new();
    for envelope in &wire {
        toml_dir::check_name(path, &envelope.name)?;
        let fault = if names.insert(&envelope.name) {
            envelope.composition.fault().or_else(|| envelope.fault())
        } else {
            Some("an envelope's name stands once".to_owned())
        };
        if let Some(message) = fault {
            return Err(invalid(path, &envelope.name, message));
        }
    }
    Ok(wire.into_iter().map(WireEnvelope::checked).collect())
}

impl WireEnvelope {
    /// What is wrong with the bounds, if something is.
    fn fault(&self) -> Option<String> {
        let above_zero = |x: f64| x.is_finite() && x > 0.0;
        if !above_zero(self.max_mean) || !above_zero(self.max_p99) {
            return Some("max-mean and max-p99 are nats above 0".to_owned());
        }
        if self.max_p99 < self.max_mean {
            return Some("max-p99 is below max-mean".to_owned());
        }
        let share = self.min_agreement > 0.0 && self.min_agreement < 1.0;
        (!share).then(|| "min-agreement is a part between 0 and 1".to_owned())
    }

    fn checked(self) -> Envelope {
        let Self { name, composition, max_mean, max_p99, min_agreement } = self;
        Envelope { name, composition, bounds: Bounds { max_mean, max_p99, min_agreement } }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rstest::rstest;

    use super::*;

    const GOOD: &str = r#"
        [[prompt]]
        name = "a"
        prompt.text = "one"
        [[prompt]]
        name = "b"
        prompt.ids = [1, 2]
        [[prompt]]
        name = "c"
        prompt.ids = [3]
        [[prompt]]
        name = "d"
        prompt.ids = [4]
        [[trajectory]]
        name = "tiny"
        model = "tiny-f32"
        positions = 64
        decode-from = "greedy"
        why = "test"
        [[trajectory.envelope]]
        name = "packed"
        composition = { kv = { all = { bits = 8, group = 32 } }, convert = "empty" }
        max-mean = 1e-3
        max-p99 = 1e-2
        min-agreement = 0.95
    "#;

    fn read(text: &str) -> Result<Vec<Case>, CaseError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("some.toml");
        fs::write(&path, text).unwrap();
        load(&path)
    }

    #[test]
    fn each_prompt_and_each_envelope_is_a_check() {
        let case = read(GOOD).unwrap().remove(0);
        let checks =
            ["tokenize", "control/a", "control/b", "control/c", "control/d", "envelope/packed"];
        assert_eq!(case.checks(), checks.map(|check| format!("l3/some/tiny/{check}")));
        assert_eq!((case.oracle(), case.model()), ("self", Some("tiny-f32")));
        let ids = GOOD.replace("prompt.text = \"one\"", "prompt.ids = [9]");
        assert_eq!(read(&ids).unwrap()[0].checks()[0], "l3/some/tiny/control/a");
    }

    #[test]
    fn bounds_are_no_part_of_the_identity_and_what_is_computed_is() {
        let digest = |text: &str| read(text).unwrap()[0].digest();
        assert_eq!(digest(&GOOD.replace("1e-3", "2e-3")), digest(GOOD));
        for (from, to) in
            [("= 64", "= 65"), ("greedy", "prompt"), ("[3]", "[5]"), ("y-f32", "y-bf16")]
        {
            assert_ne!(digest(&GOOD.replace(from, to)), digest(GOOD), "{to}");
        }
    }

    #[rstest]
    #[case::few_prompts(&GOOD[GOOD.find("[[prompt]]\n        name = \"b\"").unwrap()..], "3 prompts, wanted at least 4")]
    #[case::prompt_twice(&GOOD.replace("name = \"b\"", "name = \"a\""), "stands once")]
    #[case::few_positions(&GOOD.replace("positions = 64", "positions = 63"), "wanted at least 64")]
    #[case::no_nats(&GOOD.replace("max-mean = 1e-3", "max-mean = 0.0"), "nats above 0")]
    #[case::nan(&GOOD.replace("max-mean = 1e-3", "max-mean = nan"), "nats above 0")]
    #[case::tail_below_mean(&GOOD.replace("max-p99 = 1e-2", "max-p99 = 1e-4"), "below max-mean")]
    #[case::share(&GOOD.replace("0.95", "1.0"), "between 0 and 1")]
    #[case::bits(&GOOD.replace("bits = 8", "bits = 7"), "7 bits in groups of 32")]
    #[case::key(&GOOD.replace("max-mean", "max-median"), "unknown field `max-median`")]
    #[case::no_bound(&GOOD.replace("max-mean = 1e-3", ""), "missing field `max-mean`")]
    #[case::no_reason(&GOOD.replace("why = \"test\"", "why = \" \""), "`why` is empty")]
    fn bad_files_are_named_with_the_fault(#[case] text: &str, #[case] wanted: &str) {
        let message = read(text).unwrap_err().to_string();
        assert!(message.contains(wanted) && message.contains("some.toml"), "{message}");
    }
}
