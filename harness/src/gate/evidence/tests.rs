use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;

use super::{error, exactness, place, probes, repeat, sanity, short, spacing, twin};
use crate::gate::memory::Answer;

fn f32s(values: &[f32]) -> HostTensor {
    HostTensor::from_f32([1, values.len()], values).unwrap()
}

fn bf16s(values: &[f64]) -> HostTensor {
    HostTensor::from_f64_as(Dtype::Bf16, [1, values.len()], values).unwrap()
}

/// 256 numbers of both signs.
fn wave() -> Vec<f64> {
    (0..256).map(|i| f64::from(i).sin() * 3.0).collect()
}

fn rounded(values: &[f64]) -> HostTensor {
    HostTensor::from_f64_as(Dtype::F32, [1, values.len()], values).unwrap()
}

/// A row for each number: rows are what the bias is counted in.
fn column(values: &[f64]) -> HostTensor {
    HostTensor::from_f64_as(Dtype::F32, [values.len(), 1], values).unwrap()
}

#[test]
fn spacing_is_that_of_the_dtype() {
    assert_eq!(spacing(Dtype::F32, 1.0), f64::from(f32::EPSILON));
    assert_eq!(spacing(Dtype::Bf16, 1.0), 2f64.powi(-7));
    assert_eq!(spacing(Dtype::F16, 1500.0), 1.0);
    assert_eq!(spacing(Dtype::F16, 0.0), 2f64.powi(-24));
}

#[test]
fn places_and_numbers_read_well() {
    assert_eq!(place(&[2, 3, 4], 23), "[1, 2, 3]");
    assert_eq!(place(&[], 0), "[]");
    assert_eq!([0.0, 1.0, 0.25, 1e-9].map(short).join(" "), "0 1 0.25 1.000e-9");
}

#[test]
fn what_rounds_as_its_baseline_has_no_error_to_show() {
    let exact = wave();
    let report = error::check(&column(&exact), &column(&exact), &exact);
    assert_eq!(report.breach, None);
    assert!(report.rmse < 1.0 && report.largest < 1.0 && report.bias == 0.0, "{report:?}");
}

/// Each would pass the whole-tensor rmse of a half type, or nearly.
#[rstest]
#[case::one_element(&|x: &mut Vec<f64>| x[77] += 2e-6, "max")]
#[case::scale(&|x: &mut Vec<f64>| x.iter_mut().for_each(|x| *x *= 1.000_000_1), "biased")]
#[case::shift(&|x: &mut Vec<f64>| x.iter_mut().for_each(|x| *x += 4e-7), "biased")]
#[case::zero(&|x: &mut Vec<f64>| x.fill(0.0), "rmse")]
fn what_is_off_is_seen(#[case] spoil: &dyn Fn(&mut Vec<f64>), #[case] wanted: &str) {
    let exact = wave();
    let mut wrong = exact.clone();
    spoil(&mut wrong);
    let breach = error::check(&column(&wrong), &column(&exact), &exact).breach.unwrap();
    assert!(breach.contains(wanted), "{breach}");
    assert!(breach.contains("got") && breach.contains("want"), "{breach}");
}

#[test]
fn a_row_of_many_is_held_to_its_own_bound() {
    let exact: Vec<f64> = (0..64 * 64).map(|i| f64::from(i).cos()).collect();
    let tensor = |values: &[f64]| HostTensor::from_f64_as(Dtype::F32, [64, 64], values).unwrap();
    // A baseline with one bad element lends its largest error to all rows, but not its rmse.
    let mut baseline = exact.clone();
    baseline[0] += 1e-3;
    let mut wrong = exact.clone();
    (0..64).for_each(|i| wrong[64 * 5 + i] += if i % 2 == 0 { 9e-6 } else { -9e-6 });
    let report = error::check(&tensor(&wrong), &tensor(&baseline), &exact);
    assert!(report.breach.as_ref().unwrap().starts_with("row [5]: rmse"), "{report:?}");
}

#[test]
fn a_row_in_which_the_baseline_was_lucky_has_the_usual_bound() {
    let exact: Vec<f64> = (0..8 * 64).map(|i| f64::from(i).cos()).collect();
    let tensor = |values: &[f64]| HostTensor::from_f64_as(Dtype::F32, [8, 64], values).unwrap();
    let off = |by: &dyn Fn(usize) -> f64| {
        let sign = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
        let values: Vec<f64> =
            exact.iter().enumerate().map(|(i, x)| x + sign(i) * by(i / 64)).collect();
        tensor(&values)
    };
    let baseline = off(&|row| if row == 5 { 0.0 } else { 4e-6 });
    let check = |size: f64| error::check(&off(&|_| size), &baseline, &exact).breach;
    assert_eq!(check(6e-6), None);
    assert!(check(20e-6).is_some());
    let own = off(&|row| if row == 5 { 20e-6 } else { 1e-6 });
    let breach = error::check(&own, &baseline, &exact).breach.unwrap();
    assert!(breach.contains("[5]") || breach.starts_with("max"), "{breach}");
}

#[test]
fn a_nan_breaks_every_bound() {
    let exact = [1.0, 2.0, 3.0];
    let nan = f32s(&[1.0, f32::NAN, 3.0]);
    let answer = Answer { results: vec![nan.clone()], misdeeds: Vec::new() };
    let sane = sanity::check(&answer, &[rounded(&exact)], &[exact.to_vec()]);
    assert_eq!(sane.unwrap(), "result 0[0, 1]: got NaN, want 2");
    assert!(twin::check(&nan, &exact).1.is_some());
    assert!(probes::no_nan(&[nan]).is_some());
}

#[test]
fn an_overflow_is_the_baselines_or_that_of_rounding() {
    let answer = |x: f32| Answer { results: vec![f32s(&[x])], misdeeds: Vec::new() };
    let infinite = [f32s(&[f32::INFINITY])];
    assert_eq!(sanity::check(&answer(1e38), &infinite, &[vec![1e38]]), None);
    assert_eq!(sanity::check(&answer(f32::INFINITY), &infinite, &[vec![1e38]]), None);
    assert!(sanity::check(&answer(f32::NEG_INFINITY), &infinite, &[vec![1e38]]).is_some());
    assert!(sanity::check(&answer(1e38), &infinite, &[vec![1e300]]).is_some());
}

#[test]
fn form_and_misdeeds_are_seen() {
    let good = f32s(&[1.0, 2.0]);
    let exact = vec![vec![1.0, 2.0]];
    let check = |results: Vec<HostTensor>, misdeeds: Vec<String>| {
        sanity::check(&Answer { results, misdeeds }, std::slice::from_ref(&good), &exact)
    };
    assert_eq!(check(vec![good.clone()], Vec::new()), None);
    assert!(check(vec![good.clone()], vec!["wrote behind".into()]).unwrap().contains("wrote"));
    assert!(check(vec![bf16s(&[1.0, 2.0])], Vec::new()).unwrap().contains("bf16"));
    assert!(check(vec![HostTensor::from_f32([2], &[1.0, 2.0]).unwrap()], Vec::new()).is_some());
    assert!(check(Vec::new(), Vec::new()).is_some());
}

#[test]
fn bits_are_told_with_their_place() {
    let (a, b) = (bf16s(&[1.0, 2.0, 3.0]), bf16s(&[1.0, 2.0, 3.02]));
    assert_eq!(exactness::check(std::slice::from_ref(&a), std::slice::from_ref(&a)), None);
    let told = exactness::check(&[b], &[a]).unwrap();
    assert_eq!(told, "result 0[0, 2]: got 0x4041 (3.015625), want 0x4040 (3); 1 of 3 differ");
}

#[test]
fn the_twin_is_held_to_a_part_of_the_largest() {
    let exact = [100.0, 1e-9];
    assert_eq!(twin::check(&f32s(&[100.0, 9e-4]), &exact).1, None);
    assert!(twin::check(&f32s(&[100.0, 2e-3]), &exact).1.is_some());
    assert!(twin::check(&f32s(&[1.0]), &[0.0]).1.is_some());
    assert_eq!(twin::check(&f32s(&[0.0]), &[0.0]), (0.0, None));
}

#[test]
fn a_repeat_may_only_spread_as_declared() {
    let (a, b) = (f32s(&[8.0, 1.0]), f32s(&[8.0, 1.0 + 4.0 * f32::EPSILON]));
    let check = |ulp| repeat::check(std::slice::from_ref(&a), std::slice::from_ref(&b), ulp);
    assert!(check(None).is_some());
    assert_eq!(check(Some(1)), None, "an ulp of 8 is eight of 1");
    let nan = f32s(&[8.0, f32::NAN]);
    assert!(repeat::check(std::slice::from_ref(&a), &[nan], Some(100)).is_some());
}
