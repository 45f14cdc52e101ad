use mlx_parity_kernels::{
    Candidate, How, Path,
    ledger::{Decision, Evidence, Finding, Verdict, decide},
};
use mlx_parity_tensor::Dtype;
use rstest::rstest;

use super::{
    bank::{Bank, Effort},
    case::{GateCase, Stage},
    model, mutants, replay_line, replayed,
    roofline::Roofline,
    speed::{self, Round, Work},
    toy::{Ops, Toy},
    weigh::{Scale, Weighed, told},
};
use crate::{envelope::Controls, stats::Position};

fn bank(toy: Toy, dtype: Dtype) -> Bank {
    Bank::new(&toy, &Ops, &toy.classes()[0], dtype, Effort::Full).unwrap()
}

fn weighed(toy: Toy, dtype: Dtype) -> Weighed {
    Scale::new(&toy, &bank(toy, dtype)).weigh()
}

fn findings(toy: Toy, weighed: &Weighed) -> Vec<Finding> {
    let tallies = Evidence::ALL.into_iter().zip(&weighed.tallies);
    let found = tallies.map(|(evidence, tally)| {
        let (verdict, what) = told(evidence, tally, &toy);
        Finding::new(evidence, verdict, what)
    });
    found.collect()
}

#[rstest]
#[case(Toy::Right)]
#[case(Toy::Exact)]
fn a_right_kernel_is_not_rejected(
    #[case] toy: Toy,
    #[values(Dtype::F32, Dtype::Bf16)] dtype: Dtype,
) {
    let weighed = weighed(toy, dtype);
    let found = findings(toy, &weighed);
    assert!(found.iter().all(|of| of.verdict.holds()), "{found:#?}");
    assert_eq!(decide(&found), Decision::Hold, "E6 to E10 are missing");
    assert_eq!(toy == Toy::Exact, weighed.differing == 0);
}

#[rstest]
fn a_kernel_wrong_behind_the_last_tile_is_rejected_with_a_replay_that_shows_it(
    #[values(Dtype::F32, Dtype::Bf16)] dtype: Dtype,
) {
    let toy = Toy::WrongTail;
    let weighed = weighed(toy, dtype);
    let found = findings(toy, &weighed);
    assert_eq!(decide(&found), Decision::Reject);
    let rejecting: Vec<_> = weighed.rejecting().map(|(evidence, _)| evidence).collect();
    assert_eq!(rejecting, [Evidence::Error, Evidence::Twin, Evidence::Probes]);
    let (_, breach) = weighed.rejecting().next().unwrap();
    assert!(breach.trial.starts_with("n=33/"), "{breach:?}");
    assert!(breach.what.contains("[0, 32]: got") && breach.what.contains("want"), "{breach:?}");

    let class = &toy.classes()[0];
    let rows = replayed(&toy, &Ops, class, dtype, &breach.trial, None).unwrap();
    let error = &rows[Evidence::Error as usize];
    assert_eq!(error.verdict(), Verdict::Failed);
    assert!(error.what.contains("[0, 32]: got"), "{error:?}");
    let needle = replayed(&toy, &Ops, class, dtype, "needle-last/n=45", None).unwrap();
    assert_eq!(needle[Evidence::Probes as usize].verdict(), Verdict::Failed);
}

#[test]
fn an_exact_claim_is_held_to_bits() {
    let weighed = weighed(Toy::NotExact, Dtype::Bf16);
    let rejecting: Vec<_> = weighed.rejecting().map(|(evidence, _)| evidence).collect();
    assert!(rejecting.contains(&Evidence::Exactness), "{rejecting:?}");
    assert!(!rejecting.contains(&Evidence::Error), "it is nearer to float64 than its baseline");
}

#[rstest]
fn every_live_mutant_is_rejected_and_the_dead_one_named(
    #[values(Dtype::F32, Dtype::Bf16)] dtype: Dtype,
) {
    let (toy, bank) = (Toy::Right, bank(Toy::Right, dtype));
    let clean = Scale { paths: vec![Path::Auto], ..Scale::new(&toy, &bank) }.weigh();
    let reports = mutants::all(&toy, &bank, &clean);
    let killers = |name: &str| {
        let report = reports.iter().find(|report| report.name == name).unwrap();
        (report.dead, report.killed_by.join(" "))
    };
    assert_eq!(killers("writes_behind").1, "E0 E3 E4".to_owned());
    assert!(killers("last_dropped").1.contains("E4"));
    assert_eq!(killers("sees_nothing"), (true, String::new()));
    let (verdict, what) = mutants::finding(&reports);
    // In bf16 the needless rounding changes nothing but the float32 twin, which sees it.
    assert_eq!(
        (verdict, what.as_str()),
        (Verdict::Held, "5 of 5 live mutants rejected (1 dead: sees_nothing)")
    );
    const { assert!(How::MUTANTS, "tests are built with mutants") };
}

#[test]
fn a_mutant_that_nothing_rejects_holds_the_cell() {
    let (toy, bank) = (Toy::Right, bank(Toy::Right, Dtype::F32));
    let clean = Scale { paths: vec![Path::Auto], ..Scale::new(&toy, &bank) }.weigh();
    let mut reports = mutants::all(&toy, &bank, &clean);
    reports[0].killed_by.clear();
    let (verdict, what) = mutants::finding(&reports);
    assert_eq!(verdict, Verdict::Failed);
    assert!(what.contains("4 of 5") && what.ends_with("not rejected: last_dropped"), "{what}");
    let few = &reports[1..3];
    assert_eq!(mutants::finding(few).0, Verdict::Weak);
}

#[test]
fn a_replay_names_what_there_is() {
    let class = &Toy::Right.classes()[0];
    let ask = |trial: &str, mutant| replayed(&Toy::Right, &Ops, class, Dtype::F32, trial, mutant);
    assert!(ask("n=34", None).unwrap_err().contains("no trial or probe `n=34`"));
    assert!(ask("needle-last/n=45", Some("none")).unwrap_err().contains("no host mutant `none`"));
    let rows = ask("needle-last/n=45", Some("last_dropped")).unwrap();
    assert!(rows[Evidence::Probes as usize].what.contains("[0, 44]: got 1, want 2"), "{rows:?}");
}

#[test]
fn a_replay_line_can_be_pasted() {
    let line = |trial: &str, mutant| replay_line("toy", Dtype::Bf16, "rows", trial, mutant);
    assert_eq!(line("n=33/seed=0", None), "mlx-parity case kernel/toy/bf16/rows/n=33/seed=0");
    assert_eq!(
        line("needle (last)", Some("last_dropped")),
        "mlx-parity case 'kernel/toy/bf16/rows/needle (last)' --lever toy=mutant:last_dropped"
    );
}

#[test]
fn a_case_gives_its_evidence_in_order() {
    let case = |stage| GateCase {
        kernel: "toy".into(),
        dtype: Dtype::F32,
        class: "rows".into(),
        digest: String::new(),
        quick: false,
        stage,
    };
    assert_eq!(case(Stage::Trials).checks(), ["E0", "E1", "E2", "E3", "E4", "E5", "E6"]);
    assert_eq!(case(Stage::Speed).name(), "toy/f32/rows/speed");
    let json = serde_json::to_string(&case(Stage::Speed)).unwrap();
    assert_eq!(serde_json::from_str::<GateCase>(&json).unwrap(), case(Stage::Speed));
}

const LIMITS: Roofline = Roofline { bandwidth: 1e9, gemm: 1e11 };
const WORK: Work = Work { bytes: 1e6, flops: 1e7 };

/// Rounds of a kernel that takes `fused` ms beside 4 ms, with a noise of a hundredth.
fn rounds(fused: f64) -> Vec<Round> {
    let noise = |i: u32| 1.0 + 0.01 * f64::from(i * 7 % 5);
    let ms = |x: f64, i| x * 1e-3 * noise(i);
    (0..12)
        .map(|i| Round { composed: ms(4.0, i), again: ms(4.0, i + 3), fused: ms(fused, i + 1) })
        .collect()
}

#[rstest]
#[case::faster(2.0, Verdict::Held, "2.0")]
#[case::as_fast(4.0, Verdict::Weak, "no speed-up beyond the noise")]
#[case::barely(3.98, Verdict::Weak, "no speed-up")]
#[case::slower(5.0, Verdict::Failed, "slower")]
#[case::too_fast(0.5, Verdict::Failed, "above the roofline")]
fn times_are_weighed(#[case] fused: f64, #[case] verdict: Verdict, #[case] told: &str) {
    let timed = speed::weigh(&rounds(fused), WORK, &LIMITS).unwrap();
    assert_eq!(timed.verdict, verdict, "{}", timed.what);
    assert!(timed.what.contains(told), "{}", timed.what);
    assert_eq!(timed.limit, "bandwidth");
}

#[test]
fn few_or_broken_times_tell_nothing() {
    assert_eq!(speed::weigh(&rounds(2.0)[..5], WORK, &LIMITS), None);
    let mut broken = rounds(2.0);
    broken[3].fused = 0.0;
    assert_eq!(speed::weigh(&broken, WORK, &LIMITS), None);
}

fn positions(kl: f64, agree: impl Fn(usize) -> bool, count: usize) -> Vec<Position> {
    let one = |at: usize| Position {
        kl: kl * (1.0 + (at % 7) as f64 / 7.0),
        reverse_kl: kl,
        total_variation: None,
        entropy_teacher: 1.0,
        entropy_student: 1.0,
        margin_teacher: 1.0,
        top1_teacher: 1,
        top1_student: if agree(at) { 1 } else { 2 },
        agree: agree(at),
        top_k_overlap: 1.0,
        true_token: None,
    };
    (0..count).map(one).collect()
}

#[rstest]
#[case::held(1e-4, 400, 0, 9, Verdict::Held, "60")]
#[case::far(2e-2, 400, 0, 9, Verdict::Failed, "mean KL")]
#[case::disagrees(1e-4, 400, 40, 9, Verdict::Failed, "decided agreement")]
#[case::few(1e-4, 128, 0, 9, Verdict::Weak, "128 positions")]
#[case::idle(0.0, 400, 0, 0, Verdict::Missing, "took no call")]
fn models_are_weighed(
    #[case] kl: f64,
    #[case] count: usize,
    #[case] wrong: usize,
    #[case] dispatches: u64,
    #[case] verdict: Verdict,
    #[case] told: &str,
) {
    let clusters: Vec<u32> = (0..count as u32).map(|at| at / (count as u32).div_ceil(8)).collect();
    let own = positions(0.0, |_| true, count);
    let controls = Controls { again: own.clone(), split: own };
    let found = positions(kl, |at| at % count.div_ceil(wrong.max(1)) != 3 || wrong == 0, count);
    let modelled = model::weigh(&found, &controls, &clusters, dispatches);
    assert_eq!(modelled.verdict, verdict, "{}", modelled.what);
    let told = if verdict == Verdict::Held { "64/64" } else { told };
    assert!(modelled.what.contains(told), "{}", modelled.what);
}

#[test]
fn one_prompt_tells_nothing() {
    let own = positions(0.0, |_| true, 64);
    let controls = Controls { again: own.clone(), split: own };
    let modelled = model::weigh(&positions(1e-4, |_| true, 64), &controls, &[0; 64], 9);
    assert_eq!(modelled.verdict, Verdict::Weak, "{}", modelled.what);
    assert!(modelled.what.contains("1 prompt"), "{}", modelled.what);
}

#[test]
fn memory_shows_what_a_run_must_not_do() {
    let class = &Toy::Right.classes()[0];
    let trial = Toy::Right.trial(class, &[33], Dtype::F32, 0);
    let clean = super::run(&Toy::Right, &trial, How::new()).unwrap();
    assert!(clean.misdeeds.is_empty());
    let bad = super::run(&Toy::Right, &trial, How::new().mutated("writes_behind")).unwrap();
    assert_eq!(bad.misdeeds, ["result 0: element 32 is not written"]);
}
