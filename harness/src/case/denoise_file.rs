//! Denoising cases: `[[denoise]]` tables of `goldens/cases/l2/<file>.toml`.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;

use super::{
    Case, CaseError, Denoise, DenoiseSettings, Kind, Prompt, SamplerName,
    file::{lane_reasons, whole_name},
    toml_dir,
};
use crate::{row::Tier, synthetic::Lane};

/// The oracle of this tier.
pub(super) const ORACLE: &str = "mlx-optiq";

/// mlx-optiq's default for `diffusion_threshold`.
const DEFAULT_THRESHOLD: f64 = 0.9;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WireDenoise {
    name: String,
    model: String,
    #[serde(default)]
    lanes: Vec<Lane>,
    #[serde(default)]
    not_frozen: BTreeMap<Lane, String>,
    prompt: Prompt,
    sampler: SamplerName,
    #[serde(default)]
    temperature: f64,
    #[serde(default = "default_threshold")]
    threshold: f64,
    steps: usize,
    max_tokens: usize,
    seed: u64,
    min_canvas: Option<usize>,
    max_canvas: Option<usize>,
    prefill_step: Option<usize>,
    #[serde(default)]
    stop: Vec<u32>,
    canvas_steps: Vec<usize>,
    degenerate_because: Option<String>,
    why: String,
}

fn default_threshold() -> f64 {
    DEFAULT_THRESHOLD
}

/// The cases of one file.
pub(super) fn cases(path: &Path, wire: Vec<WireDenoise>) -> Result<Vec<Case>, CaseError> {
    let mut cases = Vec::new();
    for case in wire {
        let lanes = lane_reasons(path, &case.name, &case.lanes, &case.not_frozen)?;
        let denoise = validate(path, &case)?;
        let mut add = |id, denoise| {
            let (tier, why) = (Tier::L2, case.why.clone());
            cases.push(Case { id, tier, why, kind: Kind::Denoise(denoise) });
        };
        if lanes.is_empty() {
            add(whole_name(path, Tier::L2, None, &case.name), denoise);
            continue;
        }
        for (lane, not_frozen) in lanes {
            let model = format!("{}-{}", case.model, lane.name());
            let id = whole_name(path, Tier::L2, Some(lane), &case.name);
            add(id, Denoise { model, not_frozen, ..denoise.clone() });
        }
    }
    Ok(cases)
}

fn validate(path: &Path, wire: &WireDenoise) -> Result<Denoise, CaseError> {
    toml_dir::check_name(path, &wire.name)?;
    let invalid = |message: &str| CaseError::Invalid {
        path: path.into(),
        name: wire.name.clone(),
        message: message.to_owned(),
    };
    let Prompt::Ids(prompt) = &wire.prompt else {
        return Err(invalid("a canvas is denoised behind `ids` or `drawn` ids, not behind text"));
    };
    let some_zero = [wire.min_canvas, wire.max_canvas, wire.prefill_step].contains(&Some(0));
    for (wrong, message) in [
        (prompt.is_empty(), "the prompt is empty, wanted at least one token"),
        (wire.why.trim().is_empty(), "`why` is empty: say what this case is there to catch"),
        (wire.steps == 0 || wire.max_tokens == 0 || some_zero, "a number is 0, wanted 1 or more"),
        (!(0.0..=1.0).contains(&wire.threshold), "`threshold` must lie between 0 and 1"),
        (
            !(wire.temperature >= 0.0 && wire.temperature.is_finite()),
            "`temperature` must be 0 or more",
        ),
        (
            wire.canvas_steps.is_empty()
                || wire.canvas_steps.iter().any(|steps| !(1..=wire.steps).contains(steps)),
            "`canvas-steps` must name each canvas's steps, 1 to `steps`",
        ),
    ] {
        if wrong {
            return Err(invalid(message));
        }
    }
    Ok(Denoise {
        model: wire.model.clone(),
        oracle: ORACLE.to_owned(),
        prompt: prompt.clone(),
        settings: DenoiseSettings {
            max_tokens: wire.max_tokens,
            steps: wire.steps,
            seed: wire.seed,
            temperature: wire.temperature,
            sampler: wire.sampler,
            threshold: wire.threshold,
            min_canvas: wire.min_canvas,
            max_canvas: wire.max_canvas,
            prefill_step: wire.prefill_step,
            stop: wire.stop.clone(),
        },
        canvas_steps: wire.canvas_steps.clone(),
        degenerate_because: wire.degenerate_because.clone(),
        not_frozen: None,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const GOOD: &str = r#"
        [[denoise]]
        name = "loop"
        model = "tiny"
        lanes = ["f32", "4bit"]
        not-frozen = { bf16 = "no such kernel" }
        prompt = { ids = [1, 2, 3] }
        sampler = "entropy-bound"
        steps = 3
        max-tokens = 40
        seed = 7
        canvas-steps = [3, 2]
        why = "example"
    "#;

    fn read(text: &str) -> Result<Vec<Case>, CaseError> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("l2")).unwrap();
        fs::write(dir.path().join("l2/tiny.toml"), text).unwrap();
        super::super::load_all(dir.path())
    }

    #[test]
    fn every_step_of_every_canvas_is_a_check() {
        let cases = read(GOOD).unwrap();
        let ids: Vec<_> = cases.iter().map(|case| case.id.as_str()).collect();
        assert_eq!(ids, ["l2/tiny/f32/loop", "l2/tiny/bf16/loop", "l2/tiny/4bit/loop"]);
        assert_eq!(cases[1].not_frozen(), Some("no such kernel"));
        assert_eq!(cases[2].model(), Some("tiny-4bit"));
        let names = [
            "canvas-1/step-001",
            "canvas-1/step-002",
            "canvas-1/step-003",
            "canvas-2/step-001",
            "canvas-2/step-002",
            "ids",
        ];
        assert_eq!(cases[0].checks(), names.map(|name| format!("l2/tiny/f32/loop/{name}")));
        let Kind::Denoise(denoise) = &cases[0].kind else { panic!() };
        assert_eq!(denoise.step_of("l2/tiny/f32/loop/canvas-2/step-001"), Some(4));
        assert_eq!(denoise.step_of("l2/tiny/f32/loop/ids"), None);
    }

    #[test]
    fn the_digest_follows_the_settings() {
        let digest = |text: &str| read(text).unwrap()[0].digest();
        assert_ne!(digest(GOOD), digest(&GOOD.replace("seed = 7", "seed = 8")));
        assert_eq!(digest(GOOD), digest(&GOOD.replace("example", "other words")));
    }

    #[rstest::rstest]
    #[case::unknown_key("seed", "sed", "unknown field `sed`")]
    #[case::text("ids = [1, 2, 3]", "text = 'x'", "not behind text")]
    #[case::too_many("[3, 2]", "[4]", "1 to `steps`")]
    #[case::no_canvas("[3, 2]", "[]", "1 to `steps`")]
    #[case::sampler("entropy-bound", "greedy", "unknown variant `greedy`")]
    #[case::threshold("seed = 7", "seed = 7\nthreshold = 1.5", "between 0 and 1")]
    #[case::zero("max-tokens = 40", "max-tokens = 0", "1 or more")]
    #[case::lane("\"4bit\"]", "\"4bit\", \"bf16\"]", "lane bf16")]
    #[case::reason("example", " ", "`why` is empty")]
    fn bad_files_are_refused(#[case] from: &str, #[case] to: &str, #[case] wanted: &str) {
        let message = read(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(message.contains(wanted) && message.contains("tiny.toml"), "{message}");
    }
}
