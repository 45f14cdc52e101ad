//! Where the reference is wrong and the engine is not: `[[deviation]]` tables of
//! `goldens/cases/l1/<file>.toml`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Case, CaseError, DEFAULT_PREFILL_STEP, Kind, Prompt, file::whole_name, toml_dir};
use crate::row::Tier;

/// One fault of mlx-lm, shown to happen there, with the right value. Of its two checks `right` must
/// hold, and `reference`, the engine beside the wrong answer, must fail and be on file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Deviation {
    /// The fault.
    pub fault: FaultName,
    /// A registered model.
    pub model: String,
    /// The model that drafts for it.
    pub draft: Option<String>,
    /// Token ids.
    pub prompt: Vec<u32>,
    /// The ids at the end of the prompt that are single steps, or the tokens of a generation.
    pub steps: usize,
    /// Prompt tokens per call.
    pub prefill_step: usize,
}

/// Faults of mlx-lm, one function of `oracles/mlx_lm/deviations.py` each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultName {
    /// A ring that has turned says that it trimmed.
    TrimAfterWrap,
    /// A list of caches of which one cannot be trimmed says 0.
    MixedTrim,
    /// Calls of several tokens do not see the prefix that a ring keeps.
    KeptPrefix,
    /// Speculative decoding over a ring that turns is not greedy decoding.
    Speculative,
    /// As many padded rows as key heads mix.
    PaddedBatch,
    /// Attention over packed keys scales the caller's queries.
    ScaledInPlace,
}

/// Names of the checks, in the order they run.
pub(super) const CHECKS: [&str; 2] = ["right", "reference"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WireDeviation {
    name: String,
    fault: FaultName,
    model: String,
    draft: Option<String>,
    prompt: Prompt,
    steps: usize,
    prefill_step: Option<usize>,
    why: String,
}

/// The cases of one file.
pub(super) fn cases(path: &Path, wire: Vec<WireDeviation>) -> Result<Vec<Case>, CaseError> {
    wire.into_iter().map(|wire| case(path, wire)).collect()
}

fn case(path: &Path, wire: WireDeviation) -> Result<Case, CaseError> {
    toml_dir::check_name(path, &wire.name)?;
    let invalid = |message: &str| CaseError::Invalid {
        path: path.into(),
        name: wire.name.clone(),
        message: message.to_owned(),
    };
    let Prompt::Ids(prompt) = &wire.prompt else {
        return Err(invalid("the prompt must be `ids` or `drawn` ids"));
    };
    let prefill_step = wire.prefill_step.unwrap_or(DEFAULT_PREFILL_STEP);
    for (wrong, message) in [
        (wire.why.trim().is_empty(), "`why` is empty: say what this case is there to catch"),
        (wire.steps == 0 || prompt.len() <= wire.steps, "wanted `steps`, fewer than ids"),
        (prefill_step == 0, "prefill-step is 0, wanted at least 1 token"),
        (
            (wire.fault == FaultName::Speculative) != wire.draft.is_some(),
            "`draft` and the fault `speculative` come together",
        ),
    ] {
        if wrong {
            return Err(invalid(message));
        }
    }
    let (fault, prompt, steps) = (wire.fault, prompt.clone(), wire.steps);
    let (model, draft) = (wire.model, wire.draft);
    let deviation = Deviation { fault, model, draft, prompt, steps, prefill_step };
    Ok(Case {
        id: whole_name(path, Tier::L1, None, &wire.name),
        tier: Tier::L1,
        why: wire.why,
        kind: Kind::Deviation(deviation),
    })
}

impl Deviation {
    /// The prompt without its single steps, and those.
    pub fn split(&self) -> (&[u32], &[u32]) {
        self.prompt.split_at(self.prompt.len() - self.steps)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const GOOD: &str = r#"
        [[deviation]]
        name = "trim"
        fault = "trim-after-wrap"
        model = "tiny"
        prompt = { ids = [1, 2, 3] }
        steps = 2
        why = "example"
    "#;

    fn read(text: &str) -> Result<Vec<Case>, CaseError> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("l1")).unwrap();
        fs::write(dir.path().join("l1/faults.toml"), text).unwrap();
        super::super::load_all(dir.path())
    }

    #[test]
    fn a_deviation_has_a_right_value_and_a_wrong_one() {
        let case = read(GOOD).unwrap().remove(0);
        assert_eq!(case.checks(), ["l1/faults/trim/right", "l1/faults/trim/reference"]);
        assert_eq!((case.oracle(), case.model()), ("mlx-lm", Some("tiny")));
        let Kind::Deviation(deviation) = &case.kind else { panic!() };
        assert_eq!(deviation.split(), ([1].as_slice(), [2, 3].as_slice()));
    }

    #[rstest::rstest]
    #[case::unknown_fault("trim-after-wrap", "trimmed", "unknown variant `trimmed`")]
    #[case::no_draft("trim-after-wrap", "speculative", "come together")]
    #[case::draft("steps = 2", "steps = 2\ndraft = 'tiny'", "come together")]
    #[case::steps("steps = 2", "steps = 3", "fewer than ids")]
    #[case::no_steps("steps = 2", "steps = 0", "fewer than ids")]
    #[case::text("ids = [1, 2, 3]", "text = 'x'", "`drawn` ids")]
    #[case::reason("example", " ", "`why` is empty")]
    #[case::zero("steps = 2", "steps = 2\nprefill-step = 0", "prefill-step is 0")]
    fn bad_tables_are_refused(#[case] from: &str, #[case] to: &str, #[case] wanted: &str) {
        let message = read(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(message.contains(wanted) && message.contains("faults.toml"), "{message}");
    }
}
