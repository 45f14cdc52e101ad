use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mlx_parity_tensor::safetensors::write;
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;
use tempfile::TempDir;

use super::*;
use crate::compare::{Allowance, Distance};

/// A folder of files for one test.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, tensors: &[(&str, HostTensor)]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let tensors = tensors.iter().map(|(name, tensor)| ((*name).to_owned(), tensor));
        write(&path, tensors, &BTreeMap::new()).unwrap();
        path
    }

    fn pair(&self, a: HostTensor, b: HostTensor) -> [PathBuf; 2] {
        [self.file("a.safetensors", &[("t", a)]), self.file("b.safetensors", &[("t", b)])]
    }
}

fn f32s(values: &[f32]) -> HostTensor {
    HostTensor::from_f32([values.len()], values).unwrap()
}

fn compare(a: &Path, b: &Path, bound: Bound) -> Report {
    diff(a, b, &Options { bound, dump: 0 }).unwrap()
}

/// The only row of two files of one tensor.
fn row_of(a: HostTensor, b: HostTensor, bound: Bound) -> TensorRow {
    let files = Files::new();
    let [a, b] = files.pair(a, b);
    compare(&a, &b, bound).rows.remove(0)
}

#[test]
fn equal_files_hold_and_say_nothing_but_the_count() {
    let files = Files::new();
    let tensors = [("w", f32s(&[1.0, f32::NAN, -0.0])), ("none", f32s(&[]))];
    let (a, b) = (files.file("a", &tensors), files.file("b", &tensors));
    let report = compare(&a, &b, Bound::Exact);
    assert!(report.holds());
    assert_eq!(human(&report), "2 tensors: 2 bit-equal");
    assert_eq!(report.bytes, 12);
}

#[test]
fn what_differs_is_measured_and_placed() {
    let files = Files::new();
    let mut bits = vec![0x3f80u16; 49_152];
    let weight = |bits: &[u16]| HostTensor::from_bf16_bits([128, 384], bits).unwrap();
    let norm = f32s(&[1.0]);
    let a = files.file("a", &[("down_proj.weight", weight(&bits)), ("norm.weight", norm.clone())]);
    bits[17 * 384 + 201] += 2;
    bits[5] += 1;
    let b = files.file("b", &[("down_proj.weight", weight(&bits)), ("q.weight", norm)]);
    let report = compare(&a, &b, Bound::Exact);
    assert!(!report.holds());
    let row = &report.rows[0];
    assert_eq!((row.verdict, row.differ, row.over, row.max_ulp), (Verdict::Differs, 2, 2, Some(2)));
    assert_eq!(row.worst.as_ref().unwrap().coords, [17, 201]);
    assert_eq!(row.max_abs, Some(2.0 / 128.0));
    let rmse = ((4.0 + 1.0) / 128.0f64.powi(2) / 49_152.0).sqrt();
    assert!((row.rmse.unwrap() - rmse).abs() < 1e-15);
    assert_eq!(
        human(&report),
        "tensor             dtype   shape            differ   max ulp   max abs     rmse   where\n\
         down_proj.weight   bf16    [128, 384]   2 / 49,152         2    1.6e-2   7.9e-5   [17, 201]\n\
         norm.weight        f32     [1]           only in a\n\
         q.weight           f32     [1]           only in b\n\
         3 tensors: 1 differs · 2 missing"
    );
}

#[test]
fn another_dtype_or_shape_is_never_the_same() {
    let files = Files::new();
    let flat = HostTensor::from_f32([4], &[0.0; 4]).unwrap();
    let square = HostTensor::from_f32([2, 2], &[0.0; 4]).unwrap();
    let bits = HostTensor::new(Dtype::U32, [4], vec![0; 16]).unwrap();
    let a = files.file("a", &[("x", flat.clone()), ("y", flat)]);
    let b = files.file("b", &[("x", square), ("y", bits)]);
    let report = compare(&a, &b, Bound::Ulp(u64::MAX));
    let verdicts: Vec<Verdict> = report.rows.iter().map(|row| row.verdict).collect();
    assert_eq!(verdicts, [Verdict::Shape, Verdict::Dtype]);
    assert!(!report.holds());
    let text = human(&report);
    assert!(text.contains("[4] / [2, 2]") && text.contains("f32 / u32"), "{text}");
}

#[rstest]
#[case::exact(1.0, 1.0f32.next_up(), Bound::Exact, false)]
#[case::one_ulp(1.0, 1.0f32.next_up(), Bound::Ulp(1), true)]
#[case::two_ulp(1.0, 1.0f32.next_up().next_up(), Bound::Ulp(1), false)]
#[case::zeros_are_no_ulp_apart(0.0, -0.0, Bound::Ulp(0), true)]
#[case::zeros_are_not_exact(0.0, -0.0, Bound::Exact, false)]
#[case::other_sign(1e-45, -1e-45, Bound::Ulp(u64::MAX), false)]
#[case::max_is_not_infinity(f32::MAX, f32::INFINITY, Bound::Ulp(u64::MAX), false)]
#[case::nan_is_near_nothing(f32::NAN, 1.0, Bound::Ulp(u64::MAX), false)]
#[case::nan_is_close_to_nothing(f32::NAN, 1.0, close(1e300, 1e300), false)]
#[case::nothing_is_close_to_nan(1.0, f32::NAN, close(1e300, 1e300), false)]
#[case::infinity_is_close_to_nothing(1.0, f32::INFINITY, close(1e300, 1e300), false)]
#[case::payloads_are_not_close(f32::NAN, f32::from_bits(0x7fc0_0001), close(1.0, 1.0), false)]
#[case::relative(100.5, 100.0, close(0.01, 0.0), true)]
#[case::relative_to_the_second(100.0, 1.0, close(1.0, 0.0), false)]
#[case::absolute(0.5, 0.0, close(0.0, 0.5), true)]
#[case::over_both(0.6, 0.0, close(0.1, 0.5), false)]
fn a_bound_decides(#[case] a: f32, #[case] b: f32, #[case] bound: Bound, #[case] holds: bool) {
    // The pair is surrounded by equal elements, NaN among them.
    let around = |x| f32s(&[&[1.0; 300][..], &[f32::NAN, x, 2.0], &vec![3.0; 9000]].concat());
    let row = row_of(around(a), around(b), bound);
    assert_eq!((row.verdict.holds(), row.differ, row.over), (holds, 1, u64::from(!holds)));
    assert_eq!(row.worst.unwrap().index, 301);
}

fn close(rtol: f64, atol: f64) -> Bound {
    Bound::Close(Allowance { rtol, atol })
}

#[test]
fn over_counts_only_what_is_over() {
    let a: Vec<f32> = vec![1.0; 100_000];
    let mut b = a.clone();
    for (at, x) in b.iter_mut().enumerate().filter(|(at, _)| at % 1000 == 0) {
        *x += if at % 3000 == 0 { 3.0 } else { 1.0 } * f32::EPSILON;
    }
    let row = row_of(f32s(&a), f32s(&b), Bound::Ulp(2));
    assert_eq!((row.differ, row.over, row.verdict), (100, 34, Verdict::Differs));
    let row = row_of(f32s(&a), f32s(&b), close(0.0, 2e-7));
    assert_eq!((row.differ, row.over), (100, 34));
}

#[test]
fn the_dump_lists_the_worst_first() {
    let files = Files::new();
    let a: Vec<f32> = (0..300_000).map(|i| i as f32).collect();
    let mut b = a.clone();
    for (at, by) in [(299_999, 1.0), (7, 5.0), (150_000, 90.0), (200_000, 0.5)] {
        b[at] += by;
    }
    b[100] = f32::NAN;
    let shape = [300, 1000];
    let tensors = [a, b].map(|values| HostTensor::from_f32(shape, &values).unwrap());
    let [a, b] = tensors;
    let [a, b] = files.pair(a, b);
    let dump = |bound, dump| {
        let row = diff(&a, &b, &Options { bound, dump }).unwrap().rows.remove(0);
        row.dump.into_iter().map(|difference| difference.index).collect::<Vec<_>>()
    };
    assert!(dump(Bound::Exact, 0).is_empty());
    assert_eq!(dump(Bound::Exact, 3), [100, 7, 150_000], "by ULP");
    assert_eq!(dump(close(0.0, 0.0), 4), [100, 150_000, 7, 299_999], "by error");
    assert_eq!(dump(Bound::Exact, 99).len(), 5);
    let report = diff(&a, &b, &Options { bound: Bound::Exact, dump: 1 }).unwrap();
    let text = human(&report);
    assert!(
        text.contains("  t[0, 100]   a 0x42c80000 (100)   b 0x7fc00000 (NaN)   NaN\n"),
        "{text}"
    );
}

#[test]
fn windows_and_threads_change_nothing() {
    let len = 3 * WINDOW / 4 + 77;
    let a: Vec<f32> = (0..len).map(|i| (i as f32).sin()).collect();
    let b: Vec<f32> =
        a.iter().enumerate().map(|(i, x)| if i % 5 == 0 { x * 1.001 } else { *x }).collect();
    let files = Files::new();
    let [x, y] = files.pair(f32s(&a), f32s(&b));
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let many = rayon::ThreadPoolBuilder::new().num_threads(5).build().unwrap();
    let rows =
        [one, many].map(|pool| pool.install(|| compare(&x, &y, Bound::Exact).rows.remove(0)));
    assert_eq!(rows[0], rows[1]);
    let pairs = || a.iter().zip(&b).filter(|(x, y)| x.to_bits() != y.to_bits());
    assert_eq!((rows[0].differ, rows[0].elements), (pairs().count() as u64, len as u64));
    let worst = pairs().map(|(x, y)| crate::compare::ulp_distance(*x, *y)).max().unwrap();
    assert_eq!(rows[0].worst.as_ref().unwrap().distance, worst);
    let squares: f64 = pairs().map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2)).sum();
    let rmse = (squares / len as f64).sqrt();
    assert!((rows[0].rmse.unwrap() / rmse - 1.0).abs() < 1e-12);
}

#[test]
fn folders_compare_with_files_and_the_index_decides() {
    let files = Files::new();
    let (u, v) = (f32s(&[1.0]), f32s(&[2.0]));
    let whole = files.file("whole.safetensors", &[("u", u.clone()), ("v", v.clone())]);
    files.file("model/s1", &[("u", u)]);
    files.file("model/s2", &[("v", v)]);
    let stale = files.file("model/model.safetensors", &[("stale", f32s(&[9.0]))]);
    let folder = stale.parent().unwrap();
    let index = r#"{"weight_map":{"u":"s1","v":"s2"}}"#;
    fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
    assert!(compare(folder, &whole, Bound::Exact).holds());
    assert!(compare(&whole, folder, Bound::Exact).holds());
}

#[test]
fn nothing_to_compare_does_not_hold() {
    let files = Files::new();
    let (a, b) = (files.file("a", &[]), files.file("b", &[]));
    let report = compare(&a, &b, Bound::Exact);
    assert!(report.rows.is_empty() && !report.holds());
}

#[test]
fn an_unreadable_side_is_named() {
    let files = Files::new();
    let good = files.file("good", &[("t", f32s(&[1.0]))]);
    let bad = files.0.path().join("bad");
    fs::write(&bad, fs::read(&good).unwrap().split_last().unwrap().1).unwrap();
    for (a, b) in [(&good, &bad), (&bad, &good)] {
        let message = diff(a, b, &Options::default()).unwrap_err().to_string();
        assert!(message.contains("bad: truncated in tensor `t`"), "{message}");
    }
    let absent = files.0.path().join("absent");
    let message = diff(&absent, &good, &Options::default()).unwrap_err().to_string();
    assert!(message.contains("absent: cannot open"), "{message}");
}

#[test]
fn rows_survive_json() {
    let row = row_of(f32s(&[1.0, f32::NAN]), f32s(&[f32::INFINITY, 1.0]), Bound::Exact);
    let text = serde_json::to_string(&row).unwrap();
    assert_eq!(serde_json::from_str::<TensorRow>(&text).unwrap(), row);
    assert_eq!(row.max_abs, None, "no pair is finite");
    assert_eq!(row.worst.unwrap().distance, Distance::Nan);
}
