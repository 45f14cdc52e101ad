use mlx_parity_tensor::Dtype;
use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn cell(class: &str) -> Cell {
    Cell {
        kernel: "fused_swiglu".into(),
        place: Place { backend: "cpu".into(), chip: "x86_64".into(), mlx: "0.32.2".into() },
        dtype: Dtype::Bf16,
        class: class.into(),
        digest: "ab".repeat(32),
    }
}

fn all(verdict: Verdict) -> Vec<Finding> {
    Evidence::ALL.map(|evidence| Finding::new(evidence, verdict, "24 shapes")).to_vec()
}

fn with(evidence: Evidence, verdict: Verdict) -> Vec<Finding> {
    let mut findings = all(Verdict::Held);
    findings[evidence as usize].verdict = verdict;
    findings
}

fn promoted() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.put(Entry::new(cell("decode"), all(Verdict::Held), "2026-11-30-epyc-1".into()));
    ledger
}

#[test]
fn evidence_is_numbered_in_order() {
    for (number, evidence) in Evidence::ALL.into_iter().enumerate() {
        assert_eq!(evidence.code(), format!("E{number}"));
    }
}

#[test]
fn only_what_holds_throughout_is_promoted() {
    assert_eq!(decide(&all(Verdict::Held)), Decision::Promote);
    assert_eq!(decide(&[]), Decision::Hold);
    for evidence in Evidence::ALL {
        let wanted = if evidence.rejects() { Decision::Reject } else { Decision::Hold };
        assert_eq!(decide(&with(evidence, Verdict::Failed)), wanted, "{evidence:?} failed");
        for verdict in [Verdict::Missing, Verdict::Weak] {
            assert_eq!(
                decide(&with(evidence, verdict)),
                Decision::Hold,
                "{evidence:?} {verdict:?}"
            );
        }
        let na = decide(&with(evidence, Verdict::NotApplicable));
        assert_eq!(na, Decision::Promote, "{evidence:?} n/a");
        let mut without = all(Verdict::Held);
        without.remove(evidence as usize);
        assert_eq!(decide(&without), Decision::Hold, "without {evidence:?}");
    }
}

#[test]
fn a_ledger_reads_as_it_was_written() {
    let mut ledger = promoted();
    let mut rejected = with(Evidence::Probes, Verdict::Failed);
    rejected[4].what = "needle-last: got \"0.0031\", want 1.0\n\\ row 0".into();
    ledger.put(Entry::new(cell("prefill"), rejected, "2026-11-30-epyc-1".into()));
    assert_eq!(Ledger::parse(&ledger.to_toml()), Ok(ledger));
}

#[test]
fn promotion_is_of_one_source_and_one_mlx() {
    let ledger = promoted();
    assert!(ledger.promotes(&cell("decode")));
    let mut newer = cell("decode");
    newer.place.mlx = "0.33.0".into();
    let mut edited = cell("decode");
    edited.digest = "ac".repeat(32);
    for other in [cell("prefill"), newer, edited] {
        assert!(!ledger.promotes(&other), "{other:?}");
    }
}

#[test]
fn a_newer_decision_takes_the_place_of_the_older() {
    let mut ledger = promoted();
    let mut edited = cell("decode");
    edited.digest = "ac".repeat(32);
    ledger.put(Entry::new(edited.clone(), all(Verdict::Missing), "2026-12-01-epyc-1".into()));
    assert_eq!(ledger.entries().len(), 1);
    assert!(!ledger.promotes(&cell("decode")) && !ledger.promotes(&edited));
}

#[rstest]
#[case::unknown_field("kernel = ", "colour = \"red\"\nkernel = ", "unknown field `colour`")]
#[case::schema("schema = 1", "schema = 2", "schema 2, this version reads 1")]
#[case::decision("\"promote\"", "\"maybe\"", "unknown decision `maybe`")]
#[case::evidence("E3 = \"held", "E11 = \"held", "unknown evidence `E11`")]
#[case::verdict("E3 = \"held", "E3 = \"fine", "unknown verdict `fine`")]
#[case::no_verdict("E3 = \"held: 24 shapes\"", "E3 = \"24 shapes\"", "wanted a verdict")]
#[case::dtype("\"bf16\"", "\"bf17\"", "unknown dtype")]
#[case::hand_edited_decision("\"promote\"", "\"hold\"", "its evidence says promote")]
#[case::lost_evidence(
    "E7 = \"held",
    "E7 = \"missing",
    "decided promote, but its evidence says hold"
)]
#[case::no_evidence(
    "E7 = \"held: 24 shapes\"\n",
    "",
    "decided promote, but its evidence says hold"
)]
#[case::other_numbers("E7 = \"held: 24", "E7 = \"held: 25", "was changed after the gate wrote it")]
#[case::other_class("class = \"decode\"", "class = \"prefill\"", "was changed after")]
#[case::other_digest("abab", "abac", "was changed after")]
#[case::other_mlx("mlx = \"0.32.2\"", "mlx = \"0.33.0\"", "was changed after")]
#[case::emulated("\"cpu\"", "\"metal-emulated\"", "never promote it")]
#[case::not_toml("[[entry]]", "[[entry", "")]
fn what_must_not_be_believed_is_refused(#[case] from: &str, #[case] to: &str, #[case] why: &str) {
    let text = promoted().to_toml();
    assert!(text.contains(from), "{text}");
    let error = Ledger::parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

#[test]
fn a_hold_made_a_promotion_with_all_its_words_is_refused() {
    let mut ledger = Ledger::default();
    ledger.put(Entry::new(cell("decode"), with(Evidence::Model, Verdict::Missing), "r".into()));
    let forged = ledger.to_toml().replace("hold", "promote").replace("missing", "held");
    let error = Ledger::parse(&forged).unwrap_err().to_string();
    assert!(error.contains("was changed after"), "{error}");
}

#[test]
fn a_cell_is_decided_once() {
    let text = promoted().to_toml();
    let entry = &text[text.find("[[entry]]").unwrap()..];
    let error = Ledger::parse(&format!("{text}\n{entry}")).unwrap_err();
    assert_eq!(error, LedgerError::Twice { cell: "fused_swiglu/cpu-x86_64/bf16/decode".into() });
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        let _ = Ledger::parse(&text);
    }

    #[test]
    fn any_changed_letter_is_refused_or_changes_nothing(at in 0usize..2000, to in "[ -~]") {
        let ledger = promoted();
        let text = ledger.to_toml();
        let at = at % text.len();
        if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
            let mut changed = text.clone();
            changed.replace_range(at..=at, &to);
            prop_assert!(Ledger::parse(&changed).is_err_and(|_| true)
                || Ledger::parse(&changed) == Ok(ledger));
        }
    }
}
