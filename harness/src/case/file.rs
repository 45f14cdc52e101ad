//! Reading case files.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{Case, CaseError, DEFAULT_PREFILL_STEP, DecodeFrom, Prompt};
use crate::row::Tier;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFile {
    #[serde(default)]
    case: Vec<WireCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireCase {
    name: String,
    model: String,
    prompt: Prompt,
    decode: usize,
    why: String,
    #[serde(default)]
    decode_from: DecodeFrom,
    prefill_step: Option<usize>,
    degenerate_because: Option<String>,
}

/// Tiers whose cases replay a model against an oracle, with that oracle.
const MODEL_TIERS: [(Tier, &str); 1] = [(Tier::L1, "mlx-lm")];

/// Reads every model case below `cases`, ordered by tier, file and position in the file.
pub fn load_all(cases: &Path) -> Result<Vec<Case>, CaseError> {
    let mut all = Vec::new();
    let mut seen = HashSet::new();
    for (tier, oracle) in MODEL_TIERS {
        for path in toml_files(&cases.join(tier.name()))? {
            for case in load_file(&path, tier, oracle)? {
                if !seen.insert(case.id.clone()) {
                    let message = "this id is used twice".to_owned();
                    return Err(CaseError::Invalid { path, name: case.id, message });
                }
                all.push(case);
            }
        }
    }
    Ok(all)
}

fn toml_files(dir: &Path) -> Result<Vec<PathBuf>, CaseError> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let read = |source| CaseError::Read { path: dir.into(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path.extension().is_some_and(|ext| ext == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn load_file(path: &Path, tier: Tier, oracle: &str) -> Result<Vec<Case>, CaseError> {
    let text =
        fs::read_to_string(path).map_err(|source| CaseError::Read { path: path.into(), source })?;
    let wire: WireFile = toml::from_str(&text).map_err(|error| CaseError::parse(path, &error))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    wire.case.into_iter().map(|case| validate(path, &stem, tier, oracle, case)).collect()
}

fn validate(
    path: &Path,
    stem: &str,
    tier: Tier,
    oracle: &str,
    wire: WireCase,
) -> Result<Case, CaseError> {
    let fail = |message: String| CaseError::Invalid {
        path: path.into(),
        name: wire.name.clone(),
        message,
    };
    for part in std::iter::once(stem).chain(wire.name.split('/')) {
        if part.is_empty()
            || !part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        {
            return Err(fail(format!(
                "`{part}` is no name: letters, digits, `-`, `_` and `.` only"
            )));
        }
    }
    let empty = match &wire.prompt {
        Prompt::Ids(ids) => ids.is_empty(),
        Prompt::Text(text) => text.is_empty(),
    };
    if empty {
        return Err(fail("the prompt is empty, wanted at least one token".into()));
    }
    let prefill_step = wire.prefill_step.unwrap_or(DEFAULT_PREFILL_STEP);
    if prefill_step == 0 {
        return Err(fail("prefill-step is 0, wanted at least 1 token".into()));
    }
    if wire.why.trim().is_empty() {
        return Err(fail("`why` is empty: say what this case is there to catch".into()));
    }
    Ok(Case {
        id: format!("{}/{stem}/{}", tier.name(), wire.name),
        tier,
        model: wire.model,
        oracle: oracle.to_owned(),
        prompt: wire.prompt,
        decode: wire.decode,
        decode_from: wire.decode_from,
        prefill_step,
        degenerate_because: wire.degenerate_because,
        why: wire.why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        [[case]]
        name = "f32/story"
        model = "tiny"
        prompt = { ids = [1, 2, 3] }
        decode = 2
        why = "example"
    "#;

    fn load(text: &str) -> Result<Vec<Case>, CaseError> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("l1")).unwrap();
        fs::write(dir.path().join("l1/tiny.toml"), text).unwrap();
        load_all(dir.path())
    }

    #[test]
    fn id_names_tier_file_and_case() {
        let case = load(GOOD).unwrap().remove(0);
        assert_eq!(case.id, "l1/tiny/f32/story");
        assert_eq!(case.prefill_step, DEFAULT_PREFILL_STEP);
        assert_eq!(
            case.checks(),
            [
                "l1/tiny/f32/story/prefill",
                "l1/tiny/f32/story/decode/step-001",
                "l1/tiny/f32/story/decode/step-002"
            ]
        );
    }

    #[test]
    fn digest_follows_what_makes_the_answer_and_nothing_else() {
        let case = load(GOOD).unwrap().remove(0);
        let reworded = load(&GOOD.replace("example", "other words")).unwrap().remove(0);
        let longer = load(&GOOD.replace("decode = 2", "decode = 3")).unwrap().remove(0);
        assert_eq!(case.digest(), reworded.digest());
        assert_ne!(case.digest(), longer.digest());
    }

    #[rstest::rstest]
    #[case::unknown_key(&GOOD.replace("why =", "wy ="), "unknown field `wy`")]
    #[case::empty_prompt(&GOOD.replace("[1, 2, 3]", "[]"), "the prompt is empty")]
    #[case::two_prompts(&GOOD.replace("ids = [1, 2, 3]", "ids = [1], text = 'x'"), "prompt")]
    #[case::zero_step(&GOOD.replace("decode = 2", "decode = 2\nprefill-step = 0"), "prefill-step is 0")]
    #[case::bad_name(&GOOD.replace("f32/story", "f32//story"), "is no name")]
    #[case::no_reason(&GOOD.replace("example", " "), "`why` is empty")]
    #[case::twice(&GOOD.repeat(2), "used twice")]
    #[case::not_toml("[[case", "tiny.toml")]
    fn bad_files_are_named_with_the_fault(#[case] text: &str, #[case] wanted: &str) {
        let message = load(text).unwrap_err().to_string();
        assert!(message.contains(wanted) && message.contains("tiny.toml"), "{message}");
    }
}
