//! Scores beside closed forms and the plain version.

use approx::assert_abs_diff_eq;
use mlx_parity_tensor::{Dtype, HostTensor};
use proptest::prelude::*;

use super::naive::{Naive, bells};
use crate::stats::{Position, ScoreOptions, Scored, Side, StatsError, score};

const FLOATS: [Dtype; 4] = [Dtype::F32, Dtype::Bf16, Dtype::F16, Dtype::F64];

fn tensor(dtype: Dtype, rows: usize, values: &[f64]) -> HostTensor {
    HostTensor::from_f64_as(dtype, [rows, values.len() / rows], values).unwrap()
}

fn scored(teacher: &HostTensor, student: &HostTensor, targets: Option<&[u32]>) -> Scored {
    score(teacher.view(), student.view(), targets, &ScoreOptions::default()).unwrap()
}

fn one(teacher: &[f64], student: &[f64]) -> Position {
    let [t, s] = [teacher, student].map(|values| tensor(Dtype::F64, 1, values));
    scored(&t, &s, None).positions[0]
}

fn assert_near(position: &Position, naive: &Naive, what: &str) {
    let scale = |x: f64| 1e-12 * x.abs().max(1.0);
    for (found, wanted, name) in [
        (position.kl, naive.kl, "kl"),
        (position.reverse_kl, naive.reverse_kl, "reverse kl"),
        (position.total_variation.unwrap(), naive.total_variation, "total variation"),
        (position.entropy_teacher, naive.entropies[0], "teacher entropy"),
        (position.entropy_student, naive.entropies[1], "student entropy"),
    ] {
        assert!((found - wanted).abs() <= scale(wanted), "{what} {name}: {found} {wanted}");
    }
}

#[test]
fn every_pair_of_dtypes_agrees_with_the_plain_version() {
    for (seed, vocabulary) in [2, 3, 255, 256, 257, 1000, 4099].into_iter().enumerate() {
        let values = [1, 2].map(|side| bells(side + 10 * seed as u64, 3 * vocabulary, 4.0));
        for a in FLOATS {
            for b in FLOATS {
                let [t, s] = [(a, &values[0]), (b, &values[1])].map(|(d, v)| tensor(d, 3, v));
                let found = scored(&t, &s, Some(&[0, 1, vocabulary as u32 - 1]));
                let (t, s) = (t.to_f64(), s.to_f64());
                for (row, position) in found.positions.iter().enumerate() {
                    let range = row * vocabulary..(row + 1) * vocabulary;
                    let naive = Naive::of(&t[range.clone()], &s[range]);
                    assert_near(position, &naive, &format!("{a} {b} {vocabulary}"));
                    let token = position.true_token.unwrap();
                    let [p, q] = [&naive.log_p, &naive.log_q].map(|v| v[token.id as usize]);
                    assert_abs_diff_eq!(token.nll_teacher, -p, epsilon = 1e-12);
                    assert_abs_diff_eq!(token.nll_student, -q, epsilon = 1e-12);
                    assert_abs_diff_eq!(token.delta_p, q.exp() - p.exp(), epsilon = 1e-12);
                }
            }
        }
    }
}

#[test]
fn a_large_vocabulary_loses_no_digits() {
    for (dtype, deviation) in [(Dtype::F32, 0.01), (Dtype::F32, 6.0), (Dtype::Bf16, 3.0)] {
        let [t, s] = [1, 2].map(|seed| tensor(dtype, 1, &bells(seed, 151_936, deviation)));
        let naive = Naive::of(&t.to_f64(), &s.to_f64());
        assert_near(&scored(&t, &s, None).positions[0], &naive, "151,936 tokens");
    }
}

#[test]
fn two_tokens_give_the_closed_form() {
    for (p, q) in [(0.5f64, 0.5f64), (0.9, 0.1), (0.3, 0.31), (1e-6, 0.5), (0.999_999, 1e-9)] {
        let found = one(&[p.ln(), (1.0 - p).ln()], &[q.ln(), (1.0 - q).ln()]);
        let kl = |p: f64, q: f64| p * (p / q).ln() + (1.0 - p) * ((1.0 - p) / (1.0 - q)).ln();
        assert_abs_diff_eq!(found.kl, kl(p, q), epsilon = 1e-12);
        assert_abs_diff_eq!(found.reverse_kl, kl(q, p), epsilon = 1e-12);
        assert_abs_diff_eq!(found.total_variation.unwrap(), (p - q).abs(), epsilon = 1e-12);
        assert_abs_diff_eq!(found.margin_teacher, (p / (1.0 - p)).ln().abs(), epsilon = 1e-12);
    }
}

#[test]
fn against_a_flat_student_kl_is_the_lack_of_entropy() {
    let teacher = bells(5, 10_000, 3.0);
    let found = one(&teacher, &vec![7.5; 10_000]);
    assert_abs_diff_eq!(found.kl, 1e4f64.ln() - found.entropy_teacher, epsilon = 1e-12);
    assert_abs_diff_eq!(found.entropy_student, 1e4f64.ln(), epsilon = 1e-12);
    // All tokens of a flat row are its likeliest.
    assert!(found.agree);
    assert_eq!((found.top1_student, found.top_k_overlap), (0, 1.0));
}

#[test]
fn a_small_divergence_is_off_by_little() {
    for e in [1e-3f64, 1e-5, 1e-6] {
        let teacher = vec![0.0; 1000];
        let mut student = teacher.clone();
        student[123] = e;
        let exact = (e.exp_m1() / 1000.0).ln_1p() - e / 1000.0;
        let found = one(&teacher, &student).kl;
        assert!((found - exact).abs() <= 1e-15, "{e}: {found} {exact}");
    }
}

#[test]
fn a_path_agrees_with_itself_exactly_ties_included() {
    for dtype in FLOATS {
        // Coarse values, of which many are equal.
        let values: Vec<f64> = bells(3, 8 * 700, 2.0).iter().map(|x| (x * 2.0).round()).collect();
        let t = tensor(dtype, 8, &values);
        let exact = |p: &Position| {
            let numbers = [p.kl, p.reverse_kl, p.total_variation.unwrap()];
            numbers == [0.0; 3] && p.agree && p.top_k_overlap == 1.0
        };
        let found = scored(&t, &t, Some(&[5; 8]));
        assert!(found.positions.iter().all(exact), "{dtype}");
        assert!(found.positions.iter().all(|p| p.true_token.unwrap().delta_p == 0.0));
        let wide = HostTensor::from_f64([8, 700], &values).unwrap();
        assert!(scored(&t, &wide, None).positions.iter().all(exact), "{dtype} beside f64");
    }
}

#[test]
fn agreement_takes_any_of_the_teachers_equals() {
    let found = one(&[5.0, 1.0, 5.0, 0.0], &[1.0, 2.0, 9.0, 0.0]);
    assert!(found.agree);
    assert_eq!((found.top1_teacher, found.top1_student, found.margin_teacher), (0, 2, 0.0));
    assert!(!one(&[5.0, 1.0, 4.9, 0.0], &[1.0, 2.0, 9.0, 0.0]).agree);
}

#[test]
fn overlap_counts_shared_likeliest_tokens() {
    let options = ScoreOptions { top_k: 3, ..ScoreOptions::default() };
    let of = |teacher: &[f64], student: &[f64]| {
        let [t, s] = [teacher, student].map(|values| tensor(Dtype::F32, 1, values));
        score(t.view(), s.view(), None, &options).unwrap().positions[0].top_k_overlap
    };
    assert_eq!(of(&[9.0, 8.0, 7.0, 1.0, 0.0], &[9.0, 1.0, 7.0, 8.0, 0.0]), 2.0 / 3.0);
    assert_eq!(of(&[9.0, 8.0, 7.0, 1.0, 0.0], &[0.5, 0.0, 0.0, 8.0, 8.0]), 1.0 / 3.0);
    // The third greatest is shared by three, each of which may be the third.
    assert_eq!(of(&[9.0, 8.0, 7.0, 1.0, 0.0], &[0.0, 0.0, 0.0, 8.0, 8.0]), 1.0);
    assert_eq!(of(&[1.0, 0.0], &[0.0, 1.0]), 1.0);
    let long: Vec<f64> = (0..3000).map(|i| f64::from(i * 7919 % 3000)).collect();
    let mut other = long.clone();
    let greatest = long.iter().position(|x| *x == 2999.0).unwrap();
    other[greatest] = -1.0;
    assert_eq!(of(&long, &other), 2.0 / 3.0);
}

#[test]
fn masked_tokens_and_far_maxima_are_no_trouble() {
    let mut teacher = bells(7, 2000, 2.0);
    let mut student = bells(8, 2000, 2.0);
    teacher[5] = f64::from(f32::MIN);
    (teacher[6], student[6]) = (f64::from(f32::MIN), f64::from(f32::MIN));
    // Beyond the first block, and far above it.
    (teacher[1500], student[1700]) = (2e4, 1e4);
    for rows in [[&teacher, &student], [&student, &teacher]] {
        let [t, s] = rows.map(|values| tensor(Dtype::F32, 1, values));
        let found = scored(&t, &s, None).positions[0];
        assert_near(&found, &Naive::of(&t.to_f64(), &s.to_f64()), "far");
        assert_eq!([found.top1_teacher, found.top1_student].iter().sum::<u32>(), 3200);
    }
}

#[test]
fn every_nonfinite_logit_is_counted_and_located() {
    for dtype in FLOATS {
        for at in [0, 255, 256, 599] {
            let mut values = bells(9, 4 * 600, 1.0);
            let good = tensor(dtype, 4, &values);
            values[600 + at] = f64::NAN;
            values[1200 + at] = f64::NEG_INFINITY;
            values[1800 + at] = f64::INFINITY;
            let bad = tensor(dtype, 4, &values);
            let found = scored(&good, &bad, None);
            assert_eq!((found.nonfinite_teacher, found.nonfinite_student), (0, 3), "{dtype}");
            let seen: Vec<_> =
                found.nonfinite.iter().map(|n| (n.position, n.token, n.value.as_str())).collect();
            assert_eq!(seen, [(1, at, "NaN"), (2, at, "-inf"), (3, at, "inf")]);
            assert!(found.nonfinite.iter().all(|n| n.side == Side::Student));
            let known: Vec<bool> = found.positions.iter().map(Position::is_scored).collect();
            assert_eq!(known, [true, false, false, false]);
            let found = scored(&bad, &bad, None);
            assert_eq!((found.nonfinite_teacher, found.nonfinite_student), (3, 3), "{dtype}");
            assert!(!found.positions[1].agree && !found.positions[1].is_scored());
        }
    }
}

#[test]
fn few_are_located_and_all_are_counted() {
    let bad = tensor(Dtype::F32, 3, &[f64::NAN; 30]);
    let options = ScoreOptions { locate: 4, ..ScoreOptions::default() };
    let found = score(bad.view(), bad.view(), None, &options).unwrap();
    assert_eq!((found.nonfinite_teacher, found.nonfinite.len(), found.positions.len()), (30, 4, 3));
}

#[test]
fn what_cannot_be_scored_is_an_error() {
    let f32s = |shape: &[usize]| HostTensor::zeros(Dtype::F32, shape).unwrap();
    let error = |t: &HostTensor, s: &HostTensor, targets: Option<&[u32]>| {
        score(t.view(), s.view(), targets, &ScoreOptions::default()).unwrap_err().to_string()
    };
    let good = f32s(&[2, 5]);
    let whole = HostTensor::zeros(Dtype::I32, [2, 5]).unwrap();
    assert_eq!(
        error(&good, &f32s(&[5]), None),
        "Student logits have shape [5], wanted [positions, vocabulary]"
    );
    assert_eq!(error(&whole, &good, None), "Teacher logits are i32, wanted f16, bf16, f32 or f64");
    assert_eq!(
        error(&good, &f32s(&[2, 6]), None),
        "teacher logits have shape [2, 5], student logits [2, 6]"
    );
    assert!(error(&f32s(&[2, 1]), &f32s(&[2, 1]), None).starts_with("a vocabulary of 1 tokens"));
    assert_eq!(error(&good, &good, Some(&[1])), "1 targets for 2 positions");
    assert!(error(&good, &good, Some(&[1, 5])).starts_with("target 5 of position 1 is outside"));
    let options = ScoreOptions { top_k: 0, ..ScoreOptions::default() };
    assert_eq!(score(good.view(), good.view(), None, &options), Err(StatsError::TopK));
    assert_eq!(scored(&f32s(&[0, 5]), &f32s(&[0, 5]), None).positions, []);
}

#[test]
fn a_position_survives_json_bit_by_bit() {
    let t = tensor(Dtype::F32, 2, &bells(1, 2000, 3.0));
    let mut values = bells(2, 2000, 3.0);
    values[1001] = f64::NAN;
    let found = scored(&t, &tensor(Dtype::F32, 2, &values), Some(&[3, 4]));
    for position in found.positions {
        let text = serde_json::to_string(&position).unwrap();
        let again: Position = serde_json::from_str(&text).unwrap();
        // A NaN is not equal to itself, but prints the same.
        assert_eq!(format!("{again:?}"), format!("{position:?}"));
    }
}

#[test]
fn threads_do_not_matter() {
    let [t, s] = [1, 2].map(|seed| tensor(Dtype::Bf16, 50, &bells(seed, 50 * 900, 3.0)));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(pool.install(|| scored(&t, &s, None)), scored(&t, &s, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_shift_of_all_logits_changes_nothing(
        pairs in proptest::collection::vec((-30f64..30.0, -30f64..30.0), 2..600),
        shift in -1000f64..1000.0,
    ) {
        let (t, s): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let found = one(&t, &s);
        let naive = Naive::of(&t, &s);
        assert_near(&found, &naive, "random");
        let moved: Vec<f64> = s.iter().map(|x| x + shift).collect();
        let after = one(&t, &moved);
        // The sum with the shift is rounded, to 2⁻⁴⁴.
        prop_assert!((after.kl - found.kl).abs() <= 1e-11);
        prop_assert!(found.kl >= 0.0 && found.reverse_kl >= 0.0);
        // Pinsker's inequality.
        let variation = found.total_variation.unwrap();
        prop_assert!(2.0 * variation * variation <= found.kl + 1e-12 && variation <= 1.0 + 1e-12);
    }
}
