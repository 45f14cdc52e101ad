use std::fs;

use mlx_parity_kernels::ledger::{Cell, Decision, Entry, Evidence, Finding, Place, Verdict};
use mlx_parity_tensor::Dtype;
use tempfile::TempDir;

use super::*;

struct Project {
    dir: TempDir,
    store: Store,
}

impl Project {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("goldens")).unwrap();
        fs::write(dir.path().join("goldens/models.toml"), "").unwrap();
        let root = Root::find(Some(dir.path())).unwrap();
        Self { store: Store { in_ci: false, ..Store::new(&root) }, dir }
    }
}

fn here() -> Place {
    Place { backend: "cpu".into(), chip: "x86_64".into(), mlx: "0.32.2".into() }
}

fn entry(class: &str, verdict: Verdict) -> Entry {
    let cell = Cell {
        kernel: "gone".into(),
        place: here(),
        dtype: Dtype::F32,
        class: class.into(),
        digest: "ab".repeat(32),
    };
    let all = Evidence::ALL.map(|evidence| Finding::new(evidence, verdict, "words")).to_vec();
    Entry::new(cell, all, "2026-11-30-epyc-1".into())
}

#[test]
fn decisions_wait_until_they_are_accepted() {
    let Project { store, dir } = &Project::new();
    assert!(store.accepted().unwrap().entries().is_empty());
    assert!(
        store
            .propose([entry("decode", Verdict::Missing), entry("prefill", Verdict::Failed)])
            .unwrap()
    );
    assert!(store.accepted().unwrap().entries().is_empty());
    let taken = store.accept("decode").unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(store.pending().unwrap().unwrap().entries().len(), 1);
    assert!(matches!(store.accept("nowhere"), Err(StoreError::NoSuchCell { .. })));
    store.accept("").unwrap();
    assert_eq!(store.accepted().unwrap().entries().len(), 2);
    assert!(matches!(store.accept(""), Err(StoreError::NothingPending { .. })));
    assert!(
        !store.propose([entry("decode", Verdict::Missing)]).unwrap(),
        "it is accepted as it is"
    );
    let left: Vec<_> = fs::read_dir(dir.path().join("goldens"))
        .unwrap()
        .flatten()
        .map(|f| f.file_name())
        .collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn nothing_is_accepted_in_continuous_integration() {
    let Project { store, dir: _kept } = Project::new();
    store.propose([entry("decode", Verdict::Missing)]).unwrap();
    let store = Store { in_ci: true, ..store };
    assert!(matches!(store.accept(""), Err(StoreError::InCi)));
    assert!(store.accepted().unwrap().entries().is_empty());
}

#[test]
fn a_promotion_without_its_run_is_not_accepted() {
    let Project { store, .. } = &Project::new();
    store.propose([entry("decode", Verdict::Held)]).unwrap();
    let error = store.accept("").unwrap_err();
    assert!(error.to_string().contains("its evidence, 2026-11-30-epyc-1, is not in"), "{error}");
    assert!(store.accepted().unwrap().entries().is_empty());
    assert!(store.pending().unwrap().is_some());
}

#[test]
fn two_who_accept_at_once_lose_nothing() {
    let Project { store, .. } = &Project::new();
    let classes: Vec<String> = (0..8).map(|i| format!("class{i}")).collect();
    store.propose(classes.iter().map(|class| entry(class, Verdict::Missing))).unwrap();
    std::thread::scope(|scope| {
        for class in &classes {
            scope.spawn(move || store.accept(class).unwrap());
        }
    });
    assert_eq!(store.accepted().unwrap().entries().len(), 8);
    assert!(store.pending().unwrap().is_none());
}

#[test]
fn an_edited_file_is_refused_with_its_name() {
    let Project { store, dir } = &Project::new();
    store.propose([entry("decode", Verdict::Missing)]).unwrap();
    let path = dir.path().join("goldens/ledger.toml.new");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"hold\"", "\"promote\"")).unwrap();
    for error in [store.accept("").unwrap_err(), store.pending().unwrap_err()] {
        let error = error.to_string();
        assert!(error.contains("ledger.toml.new") && error.contains("not by hand"), "{error}");
    }
}

#[test]
fn a_promotion_goes_stale_with_its_sources_and_with_mlx() {
    let mut ledger = Ledger::default();
    ledger.put(entry("decode", Verdict::Held));
    ledger.put(entry("prefill", Verdict::Missing));
    let found = stale(&ledger, &here());
    assert_eq!(found.len(), 1, "a hold turns nothing on");
    assert!(found[0].why.contains("no such kernel"));

    let Some(candidate) = mlx_parity_kernels::CANDIDATES.first() else { return };
    let cell = |digest: String| Cell {
        kernel: candidate.spec().id.into(),
        digest,
        ..entry("decode", Verdict::Held).cell
    };
    let of = |digest: String, place: &Place| {
        let mut ledger = Ledger::default();
        let all = entry("decode", Verdict::Held).evidence;
        ledger.put(Entry::new(cell(digest), all, "r".into()));
        assert_eq!(ledger.entries()[0].decision, Decision::Promote);
        stale(&ledger, place).into_iter().map(|stale| stale.why).collect::<String>()
    };
    let digest = candidate.spec().digest();
    assert_eq!(of(digest.clone(), &here()), "");
    assert!(of("ab".repeat(32), &here()).contains("its sources were abababab"));
    let newer = Place { mlx: "0.33.0".into(), ..here() };
    assert!(of(digest, &newer).contains("promoted with MLX 0.32.2, this is 0.33.0"));
}
