//! Metamorphic cases: `goldens/cases/meta/<file>.toml`.

use std::path::Path as FilePath;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Case, CaseError, Kind, Prompt, toml_dir};
use crate::{
    meta::{ConfigChange, Effect, Fuzz, KvPacking, MetaCase, Path, Relation, Route},
    row::Tier,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFile {
    #[serde(default)]
    case: Vec<WireMeta>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireMeta {
    name: String,
    model: String,
    /// Of `paths` and `config`; sequences of operations draw their own tokens.
    prompt: Option<Prompt>,
    why: String,
    /// Part of `verify --quick`.
    #[serde(default)]
    quick: bool,
    #[serde(default)]
    bits_on: Vec<String>,
    kv: Option<KvPacking>,
    #[serde(default)]
    paths: Vec<WirePath>,
    #[serde(default)]
    config: Vec<WireChange>,
    fuzz: Option<Fuzz>,
}

/// One of `again`, `join-and-leave`, `refused-composition`, `chunk`, `trim` or `rollback` with `at`, `speculate`,
/// `refused-trim-at`, `save-at`, `poison-at`, `refusal-at`,
/// `compiled-at`, `failed-step-at`, `batch`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WirePath {
    #[serde(default)]
    again: bool,
    #[serde(default)]
    join_and_leave: bool,
    #[serde(default)]
    refused_composition: bool,
    chunk: Option<usize>,
    trim: Option<usize>,
    at: Option<usize>,
    refused_trim_at: Option<usize>,
    save_at: Option<usize>,
    poison_at: Option<usize>,
    rollback: Option<usize>,
    speculate: Option<usize>,
    refusal_at: Option<usize>,
    compiled_at: Option<usize>,
    failed_step_at: Option<usize>,
    batch: Option<usize>,
    relation: Relation,
    /// Why it is not every bit; only with `close` and `near`.
    why: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireChange {
    /// A key, or several of which each gets `value`.
    #[serde(default)]
    keys: Vec<String>,
    /// Said after the key in the check's name.
    tag: Option<String>,
    value: Option<Value>,
    /// Other keys set along with it.
    #[serde(default)]
    with: Map<String, Value>,
    /// Keys taken away.
    #[serde(default)]
    without: Vec<String>,
    effect: WireEffect,
    /// What a refusal must say; the key where not given.
    says: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WireEffect {
    Moves,
    Same,
    Refused,
}

/// Reads one file.
pub fn load(path: &FilePath) -> Result<Vec<Case>, CaseError> {
    let wire: WireFile = toml_dir::read(path)?;
    let cases = wire.case.iter().map(|case| Ok(in_blocks(validate(path, case)?)));
    Ok(cases.collect::<Result<Vec<_>, CaseError>>()?.concat())
}

/// Random sequences of a case; more are several cases, so that each ends soon.
const BLOCK: u64 = 50;

/// The cases of a case with many random sequences, each named after its first seed.
fn in_blocks(case: Case) -> Vec<Case> {
    let Kind::Meta(MetaCase { fuzz: Some(fuzz), .. }) = &case.kind else { return vec![case] };
    let block = |first| {
        let mut block = case.clone();
        block.id = format!("{}/from-{first:04}", case.id);
        if let Kind::Meta(meta) = &mut block.kind {
            let sequences = BLOCK.min(fuzz.first + fuzz.sequences - first);
            meta.fuzz = Some(Fuzz { first, sequences, ..*fuzz });
        }
        block
    };
    let firsts = (fuzz.first..fuzz.first + fuzz.sequences).step_by(BLOCK as usize);
    firsts.map(block).collect()
}

fn validate(path: &FilePath, wire: &WireMeta) -> Result<Case, CaseError> {
    toml_dir::check_name(path, &wire.name)?;
    let invalid = |message: String| CaseError::Invalid {
        path: path.into(),
        name: wire.name.clone(),
        message,
    };
    if wire.why.trim().is_empty() {
        return Err(invalid("`why` is empty: say what this case is there to catch".to_owned()));
    }
    let paths =
        wire.paths.iter().map(WirePath::path).collect::<Result<Vec<_>, _>>().map_err(invalid)?;
    let config: Vec<_> =
        wire.config.iter().map(changes).collect::<Result<_, _>>().map_err(invalid)?;
    let case = MetaCase {
        model: wire.model.clone(),
        prompt: wire.prompt.clone().unwrap_or(Prompt::Ids(Vec::new())),
        bits_on: wire.bits_on.clone(),
        quick: wire.quick,
        kv: wire.kv,
        one_by_one: None,
        paths,
        config: config.concat(),
        fuzz: wire.fuzz,
    };
    if wire.prompt.is_some() == (case.paths.is_empty() && case.config.is_empty()) {
        let message = "`prompt` goes with `paths` and `config`, and with them alone";
        return Err(invalid(message.to_owned()));
    }
    let mut checks = case.checks();
    if checks.is_empty() {
        return Err(invalid(
            "no `paths`, no `config` and no `fuzz`: nothing is checked".to_owned(),
        ));
    }
    checks.sort();
    if let Some([twice, _]) = checks.array_windows().find(|[one, next]| one == next) {
        return Err(invalid(format!("the check `{twice}` stands twice")));
    }
    if let Prompt::Ids(ids) = &case.prompt
        && let Some(path) = case.paths.iter().find(|path| path.route.tokens() > ids.len())
    {
        let (name, found) = (path.route.name(), ids.len());
        let wanted = path.route.tokens();
        return Err(invalid(format!("`{name}` needs {wanted} tokens, the prompt has {found}")));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok(Case {
        id: format!("{}/{stem}/{}", Tier::Meta.name(), wire.name),
        tier: Tier::Meta,
        why: wire.why.clone(),
        kind: Kind::Meta(case),
    })
}

impl WirePath {
    /// The path, checked.
    pub(super) fn path(&self) -> Result<Path, String> {
        let route = self.route()?;
        let why = self.why.as_deref().unwrap_or_default().trim();
        if (self.relation == Relation::Bits) != why.is_empty() {
            let name = route.name();
            return Err(format!(
                "`{name}`: `why` says why bits may differ, with `close` or `near` and only there"
            ));
        }
        Ok(Path { route, relation: self.relation })
    }

    fn route(&self) -> Result<Route, String> {
        let trim = self.trim.zip(self.at);
        let rollback = self.rollback.zip(self.at);
        let named = [
            self.again.then_some(Route::Again),
            self.join_and_leave.then_some(Route::JoinAndLeave),
            self.refused_composition.then_some(Route::RefusedComposition),
            self.chunk.map(Route::Chunk),
            trim.map(|(tokens, at)| Route::Trim { at, tokens }),
            self.refused_trim_at.map(|at| Route::RefusedTrim { at }),
            self.save_at.map(|at| Route::Save { at }),
            self.poison_at.map(|at| Route::Poison { at }),
            self.refusal_at.map(|at| Route::Refusal { at }),
            rollback.map(|(tokens, at)| Route::Rollback { at, tokens }),
            self.speculate.map(Route::Speculate),
            self.compiled_at.map(|at| Route::Compiled { at }),
            self.failed_step_at.map(|at| Route::FailedStep { at }),
            self.batch.map(Route::Batch),
        ];
        let mut named = named.into_iter().flatten();
        let (Some(route), None) = (named.next(), named.next()) else {
            let wanted = "again, join-and-leave, refused-composition, chunk, trim and at, rollback and at, speculate, refused-trim-at, save-at, poison-at, \
                          refusal-at, compiled-at, failed-step-at, batch";
            return Err(format!("a path names one of {wanted}"));
        };
        if route.numbers().contains(&0)
            || self.trim.or(self.rollback).is_some() != self.at.is_some()
        {
            let name = route.name();
            return Err(format!(
                "`{name}`: wanted numbers above 0, and `at` with `trim` and `rollback` alone"
            ));
        }
        Ok(route)
    }
}

fn changes(wire: &WireChange) -> Result<Vec<ConfigChange>, String> {
    if wire.keys.is_empty() {
        return Err("a config change has no `keys`".to_owned());
    }
    if wire.value.is_none() && wire.with.is_empty() && wire.without.is_empty() {
        return Err(format!("the change of `{}` changes nothing", wire.keys[0]));
    }
    if wire.says.is_some() && wire.effect != WireEffect::Refused {
        return Err(format!("`{}`: `says` goes with `refused` only", wire.keys[0]));
    }
    Ok(wire.keys.iter().map(|key| change(key, wire)).collect())
}

fn change(key: &str, wire: &WireChange) -> ConfigChange {
    let mut set = wire.with.clone();
    set.extend(wire.value.iter().map(|value| (key.to_owned(), value.clone())));
    let tag = wire.tag.iter().map(|tag| format!("-{tag}"));
    let effect = match wire.effect {
        WireEffect::Moves => Effect::Moves,
        WireEffect::Same => Effect::Same,
        WireEffect::Refused => Effect::Refused(wire.says.clone().unwrap_or_else(|| key.to_owned())),
    };
    ConfigChange {
        name: std::iter::once(key.to_owned()).chain(tag).collect(),
        key: key.to_owned(),
        set,
        unset: wire.without.clone(),
        effect,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const GOOD: &str = r#"
        [[case]]
        name = "f32/ids"
        model = "tiny"
        prompt = { ids = [1, 2, 3, 4] }
        why = "example"
        paths = [{ chunk = 2, relation = "bits" }, { trim = 1, at = 2, relation = "close", why = "so" }]
        config = [{ keys = ["a", "b"], value = 1, effect = "refused" }]
    "#;

    fn read(text: &str) -> Result<Vec<Case>, CaseError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tiny.toml");
        fs::write(&path, text).unwrap();
        load(&path)
    }

    #[test]
    fn each_path_and_each_key_is_a_check() {
        let case = read(GOOD).unwrap().remove(0);
        let names = ["chunk-2", "trim-1-at-2", "config/a", "config/b"];
        assert_eq!(case.checks(), names.map(|name| format!("meta/tiny/f32/ids/{name}")));
        let Kind::Meta(meta) = &case.kind else { panic!() };
        assert_eq!(meta.config[1].effect, Effect::Refused("b".to_owned()));
        assert_eq!(
            meta.config[1].apply("{\"a\": 2}").unwrap().replace(['\n', ' '], ""),
            "{\"a\":2,\"b\":1}"
        );
    }

    #[rstest::rstest]
    #[case::two_routes("chunk = 2", "chunk = 2, batch = 2", "a path names one of")]
    #[case::zero("chunk = 2", "chunk = 0", "above 0")]
    #[case::bits_with_reason(
        "relation = \"bits\"",
        "relation = \"bits\", why = \"x\"",
        "only there"
    )]
    #[case::close_without("close\", why = \"so\"", "close\"", "only there")]
    #[case::too_long("at = 2", "at = 9", "needs 10 tokens")]
    #[case::twice("\"a\", \"b\"", "\"a\", \"a\"", "stands twice")]
    #[case::no_change("value = 1, ", "", "changes nothing")]
    #[case::unknown_key("chunk", "chunks", "unknown field")]
    #[case::at_alone("chunk = 2", "chunk = 2, at = 2", "with `trim` and `rollback` alone")]
    fn bad_files_are_refused(#[case] from: &str, #[case] to: &str, #[case] wanted: &str) {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD);
        let message = read(&text).unwrap_err().to_string();
        assert!(message.contains(wanted) && message.contains("tiny.toml"), "{message}");
    }
}
