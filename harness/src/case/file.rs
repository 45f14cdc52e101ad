//! Reading case files.

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{
    AdapterUse, Case, CaseError, Composition, DEFAULT_PREFILL_STEP, DecodeFrom, Kind, Lora, Prompt,
    Replay,
    denoise_file::{self, WireDenoise},
    deviation::{self, WireDeviation},
    matrix_file, meta_file, metal_file, op_file, toml_dir, trajectory_file, vjp_file,
};
use crate::{meta::Matrix, row::Tier, synthetic::Lane};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFile {
    #[serde(default)]
    case: Vec<WireReplay>,
    #[serde(default)]
    deviation: Vec<WireDeviation>,
}

/// A file of tier L2.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireComposed {
    #[serde(default)]
    case: Vec<WireReplay>,
    #[serde(default)]
    denoise: Vec<WireDenoise>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireReplay {
    name: String,
    model: String,
    prompt: Prompt,
    decode: usize,
    why: String,
    #[serde(default)]
    decode_from: DecodeFrom,
    prefill_step: Option<usize>,
    degenerate_because: Option<String>,
    /// The lanes of a synthetic model, each a case of its own; `model` is then its folder's name.
    #[serde(default)]
    lanes: Vec<Lane>,
    /// The lanes the oracle cannot answer in, with the reason.
    #[serde(default)]
    not_frozen: BTreeMap<Lane, String>,
    adapter: Option<AdapterUse>,
    composition: Option<Composition>,
}

/// Reads every case below `cases`, ordered by tier, file and position in the file.
pub fn load_all(cases: &Path) -> Result<Vec<Case>, CaseError> {
    let mut all = Unique::default();
    for path in toml_dir::files(&cases.join(Tier::Ops.name()))? {
        all.extend(&path, op_file::load(&path)?)?;
    }
    for path in toml_dir::files(&cases.join(Tier::L1.name()))? {
        let wire: WireFile = toml_dir::read(&path)?;
        all.extend(&path, replays(&path, Tier::L1, "mlx-lm", wire.case)?)?;
        all.extend(&path, deviation::cases(&path, wire.deviation)?)?;
    }
    for path in toml_dir::files(&cases.join(Tier::L2.name()))? {
        let wire: WireComposed = toml_dir::read(&path)?;
        all.extend(&path, replays(&path, Tier::L2, denoise_file::ORACLE, wire.case)?)?;
        all.extend(&path, denoise_file::cases(&path, wire.denoise)?)?;
    }
    for path in toml_dir::files(&cases.join(Tier::L3.name()))? {
        all.extend(&path, trajectory_file::load(&path)?)?;
    }
    for path in toml_dir::files(&cases.join(Tier::Meta.name()))? {
        if !path.ends_with(matrix_file::FILE) {
            all.extend(&path, meta_file::load(&path)?)?;
        }
    }
    if let Some(matrix) = load_matrix(cases)? {
        all.extend(&matrix_path(cases), matrix.cases())?;
    }
    for path in toml_dir::files(&cases.join(Tier::Metal.name()))? {
        all.extend(&path, metal_file::load(&path)?)?;
    }
    for path in toml_dir::files(&cases.join(Tier::Vjp.name()))? {
        all.extend(&path, vjp_file::load(&path)?)?;
    }
    Ok(all.cases)
}

/// The matrix of tier meta, over the models of the folder `synthetic` beside `cases`; none where there
/// is no file of it.
///
/// # Errors
/// A file that is not as it should be: the message names it.
pub fn load_matrix(cases: &Path) -> Result<Option<Matrix>, CaseError> {
    let path = matrix_path(cases);
    if !path.exists() {
        return Ok(None);
    }
    matrix_file::load(&path, &cases.with_file_name("synthetic")).map(Some)
}

fn matrix_path(cases: &Path) -> PathBuf {
    cases.join(Tier::Meta.name()).join(matrix_file::FILE)
}

/// Cases, no id twice.
#[derive(Default)]
struct Unique {
    cases: Vec<Case>,
    ids: HashSet<String>,
}

impl Unique {
    fn extend(&mut self, path: &Path, cases: Vec<Case>) -> Result<(), CaseError> {
        for case in cases {
            if !self.ids.insert(case.id.clone()) {
                return Err(invalid(path, &case.id, "this id is used twice"));
            }
            self.cases.push(case);
        }
        Ok(())
    }
}

pub(super) fn invalid(path: &Path, name: &str, message: impl Into<String>) -> CaseError {
    CaseError::Invalid { path: PathBuf::from(path), name: name.to_owned(), message: message.into() }
}

fn replays(
    path: &Path,
    tier: Tier,
    oracle: &str,
    wire: Vec<WireReplay>,
) -> Result<Vec<Case>, CaseError> {
    let mut cases = Vec::new();
    for case in wire {
        let lanes = lane_reasons(path, &case.name, &case.lanes, &case.not_frozen)?;
        let replay = validate(path, oracle, &case)?;
        if let Some(message) = composition_fault(tier, &case) {
            return Err(invalid(path, &case.name, message));
        }
        let (name, model) = (&case.name, &case.model);
        let mut add = |id, replay| {
            cases.push(Case { id, tier, why: case.why.clone(), kind: Kind::Replay(replay) });
        };
        if lanes.is_empty() {
            add(whole_name(path, tier, None, name), replay);
            continue;
        }
        for (lane, not_frozen) in lanes {
            let model = format!("{model}-{}", lane.name());
            let replay = Replay { model, not_frozen, ..replay.clone() };
            add(whole_name(path, tier, Some(lane), name), replay);
        }
    }
    Ok(cases)
}

/// `<tier>/<file stem>/<lane>/<name>`, without the lane where there is none.
pub(super) fn whole_name(path: &Path, tier: Tier, lane: Option<Lane>, name: &str) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let lane = lane.map(|lane| format!("{}/", lane.name())).unwrap_or_default();
    format!("{}/{stem}/{lane}{name}", tier.name())
}

/// Every lane with the reason it is not frozen, if it is not; none where the case names no lane.
pub(super) fn lane_reasons(
    path: &Path,
    case: &str,
    lanes: &[Lane],
    not_frozen: &BTreeMap<Lane, String>,
) -> Result<Vec<(Lane, Option<String>)>, CaseError> {
    if lanes.is_empty() && not_frozen.is_empty() {
        return Ok(Vec::new());
    }
    let lane = |lane: Lane| {
        let (listed, reason) = (lanes.contains(&lane), not_frozen.get(&lane));
        if listed == reason.is_some() || reason.is_some_and(|reason| reason.trim().is_empty()) {
            let message = format!(
                "lane {} must be in `lanes`, or in `not-frozen` with a reason",
                lane.name()
            );
            return Err(invalid(path, case, message));
        }
        Ok((lane, reason.cloned()))
    };
    Lane::ALL.into_iter().map(lane).collect()
}

/// What is wrong with the composition of a case in a tier.
fn composition_fault(tier: Tier, wire: &WireReplay) -> Option<String> {
    match (&wire.composition, tier) {
        (None, Tier::L2) => Some("a case of tier l2 needs a `composition`".to_owned()),
        (None, _) => None,
        (Some(composition), Tier::L2) => {
            let mounted = wire.adapter.map(|adapter| adapter == AdapterUse::Mounted);
            let uncast = (composition.lora == Lora::Uncast).then_some(true);
            let adapter = (mounted != uncast).then(|| {
                "lora = \"uncast\" and adapter = \"mounted\" come together in tier l2".to_owned()
            });
            adapter.or_else(|| composition.fault())
        }
        (Some(_), _) => Some("`composition` belongs into tier l2".to_owned()),
    }
}

fn validate(path: &Path, oracle: &str, wire: &WireReplay) -> Result<Replay, CaseError> {
    toml_dir::check_name(path, &wire.name)?;
    let empty = match &wire.prompt {
        Prompt::Ids(ids) => ids.is_empty(),
        Prompt::Text(text) => text.is_empty(),
    };
    if empty {
        return Err(invalid(path, &wire.name, "the prompt is empty, wanted at least one token"));
    }
    let prefill_step = wire.prefill_step.unwrap_or(DEFAULT_PREFILL_STEP);
    if prefill_step == 0 {
        return Err(invalid(path, &wire.name, "prefill-step is 0, wanted at least 1 token"));
    }
    if wire.why.trim().is_empty() {
        let message = "`why` is empty: say what this case is there to catch";
        return Err(invalid(path, &wire.name, message));
    }
    Ok(Replay {
        model: wire.model.clone(),
        oracle: oracle.to_owned(),
        prompt: wire.prompt.clone(),
        decode: wire.decode,
        decode_from: wire.decode_from,
        prefill_step,
        degenerate_because: wire.degenerate_because.clone(),
        not_frozen: None,
        adapter: wire.adapter,
        composition: wire.composition.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        load_as("l1", text)
    }

    fn load_as(tier: &str, text: &str) -> Result<Vec<Case>, CaseError> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(tier)).unwrap();
        fs::write(dir.path().join(tier).join("tiny.toml"), text).unwrap();
        load_all(dir.path())
    }

    #[test]
    fn id_names_tier_file_and_case() {
        let case = load(GOOD).unwrap().remove(0);
        assert_eq!(case.id, "l1/tiny/f32/story");
        assert_eq!(case.replay().unwrap().prefill_step, DEFAULT_PREFILL_STEP);
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

    const LANES: &str = r#"
        [[case]]
        name = "window"
        model = "tiny"
        lanes = ["f32", "4bit"]
        not-frozen = { bf16 = "the reference throws" }
        prompt = { drawn = { seed = 1, count = 4 } }
        decode = 1
        why = "example"
    "#;

    #[test]
    fn lanes_are_cases_of_their_own() {
        let cases = load(LANES).unwrap();
        let found: Vec<_> = cases.iter().map(|case| case.id.as_str()).collect();
        assert_eq!(found, ["l1/tiny/f32/window", "l1/tiny/bf16/window", "l1/tiny/4bit/window"]);
        let replays: Vec<_> = cases.iter().filter_map(Case::replay).collect();
        assert_eq!(replays[2].model, "tiny-4bit");
        assert_eq!(replays[0].prompt, Prompt::Ids(vec![184, 82, 232, 65]));
        assert_eq!(replays[1].not_frozen.as_deref(), Some("the reference throws"));
        assert_eq!([&replays[0].not_frozen, &replays[2].not_frozen], [&None, &None]);
    }

    #[rstest::rstest]
    #[case::lane_forgotten(&LANES.replace("\"f32\", ", ""), "lane f32 must be in `lanes`")]
    #[case::lane_twice(&LANES.replace("\"4bit\"]", "\"4bit\", \"bf16\"]"), "lane bf16 must be in")]
    #[case::lane_without_reason(&LANES.replace("the reference throws", " "), "with a reason")]
    #[case::unknown_lane(&LANES.replace("\"f32\"", "\"f16\""), "unknown variant `f16`")]
    #[case::no_vocabulary(&LANES.replace("count = 4", "count = 4, vocabulary = 0"), "nonzero")]
    #[case::no_ids(&LANES.replace("count = 4", "count = 0"), "the prompt is empty")]
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
    const COMPOSED: &str = r#"
        [[case]]
        name = "kv8"
        model = "tiny"
        prompt = { ids = [1, 2, 3] }
        decode = 2
        composition = { kv = { all = { bits = 8, group = 32 } }, convert = "empty" }
        why = "example"
    "#;

    #[test]
    fn the_composition_is_part_of_the_identity() {
        let case = load_as("l2", COMPOSED).unwrap().remove(0);
        assert_eq!((case.id.as_str(), case.oracle()), ("l2/tiny/kv8", "mlx-optiq"));
        for (from, to) in [
            ("bits = 8", "bits = 4"),
            ("group = 32", "group = 64"),
            ("\"empty\"", "\"after-forward\""),
            ("\"empty\"", "\"empty\", attention = \"tiled\""),
        ] {
            let other = load_as("l2", &COMPOSED.replace(from, to)).unwrap().remove(0);
            assert_ne!(case.digest(), other.digest(), "{to}");
        }
    }

    #[rstest::rstest]
    #[case::none("l2", GOOD, "needs a `composition`")]
    #[case::wrong_tier("l1", COMPOSED, "belongs into tier l2")]
    #[case::no_adapter("l2", &COMPOSED.replace("\"empty\"", "\"empty\", lora = \"uncast\""), "come together")]
    #[case::no_uncast("l2", &COMPOSED.replace("decode = 2", "decode = 2\nadapter = \"mounted\""), "come together")]
    #[case::fused("l2", &COMPOSED.replace("decode = 2", "decode = 2\nadapter = \"fused\""), "come together")]
    #[case::bits("l2", &COMPOSED.replace("bits = 8", "bits = 7"), "7 bits in groups")]
    #[case::key("l2", &COMPOSED.replace("convert", "converted"), "unknown field `converted`")]
    fn bad_compositions_are_named_with_the_fault(
        #[case] tier: &str,
        #[case] text: &str,
        #[case] wanted: &str,
    ) {
        let message = load_as(tier, text).unwrap_err().to_string();
        assert!(message.contains(wanted) && message.contains("tiny.toml"), "{message}");
    }
}
