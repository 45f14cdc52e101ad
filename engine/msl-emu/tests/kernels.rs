//! The kernels of `kernels/` against ref64, over shapes and dtypes, in every mode.

mod support;

use std::time::Duration;

use mlx_parity_msl_emu::{Mode, Outcome, run};
use mlx_parity_tensor::{Dtype, HostTensor};

use support::bound::{judge, same_bits};
use support::subjects::matmul::product;
use support::subjects::{SUBJECTS, named};
use support::{Case, Subject, options};

/// Runs a case; its outputs where it is clean and right.
fn checked(subject: &Subject, dtype: Dtype, case: &Case, mode: Mode) -> Vec<HostTensor> {
    let who = format!("{} {} {} {}", subject.name, dtype.name(), case.label, mode.name());
    let outcome: Outcome = run(&subject.kernel(), &case.launch(), &options(mode))
        .unwrap_or_else(|error| panic!("{who}: {error}"));
    assert!(outcome.is_clean(), "{who}: {:#?}", outcome.faults);
    assert!(!outcome.orders.is_empty(), "{who}");
    for (seed, outputs) in &outcome.orders {
        assert_eq!(outputs.len(), case.expected.len(), "{who}");
        for (found, expected) in outputs.iter().zip(&case.expected) {
            judge(found, expected).unwrap_or_else(|wrong| panic!("{who} order {seed}: {wrong}"));
        }
    }
    outcome.outputs
}

/// A kernel is right and clean, and its modes agree bit for bit where it has no atomics: every case in mode fibers,
/// in the others those of `watched`.
fn holds(name: &str) {
    let subject = named(name);
    for &dtype in subject.dtypes {
        let cases = (subject.cases)(dtype);
        for (i, case) in cases.iter().enumerate() {
            agree(subject, dtype, case, watched(dtype, cases.len() - i));
        }
    }
}

/// Modes beside fibers for the case that so many, itself among them, are left of. The accesses of a kernel are the
/// same in every dtype, so the half types pass the address checker by, and see real threads in their two largest.
fn watched(dtype: Dtype, left: usize) -> &'static [Mode] {
    match (dtype, left) {
        (Dtype::F32, _) => &[Mode::FibersAddress, Mode::FibersPlain, Mode::Threads],
        (_, 1 | 2) => &[Mode::Threads],
        _ => &[],
    }
}

fn agree(subject: &Subject, dtype: Dtype, case: &Case, others: &[Mode]) {
    let first = checked(subject, dtype, case, Mode::Fibers);
    for &mode in others {
        let outputs = checked(subject, dtype, case, mode);
        if subject.atomic {
            continue;
        }
        for (found, wanted) in outputs.iter().zip(&first) {
            same_bits(found, wanted).unwrap_or_else(|wrong| {
                panic!("{} {} {} {}: {wrong}", subject.name, dtype.name(), case.label, mode.name())
            });
        }
    }
}

/// The bar of speed: a product of 256 × 256 × 256 by groups of 128 threads with two barriers a tile.
#[test]
fn a_large_product_takes_less_than_half_a_second() {
    let subject = named("matmul_tiled");
    let case = product(Dtype::F32, [256; 3], [16, 8, 1], [16, 16], 16);
    let mut options = options(Mode::FibersPlain);
    options.seeds = vec![0];
    let runs = (0..3).map(|_| run(&subject.kernel(), &case.launch(), &options).expect("a run"));
    let outcome = runs.min_by_key(|outcome| outcome.elapsed).expect("three runs");
    judge(&outcome.outputs[0], &case.expected[0]).expect("the product");
    println!("{:?}", outcome.elapsed);
    assert!(outcome.elapsed < Duration::from_millis(500), "{:?}", outcome.elapsed);
}

macro_rules! kernels {
    ($($name:ident),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                holds(stringify!($name));
            }
        )+

        #[test]
        fn every_kernel_has_its_test() {
            assert_eq!([$(stringify!($name)),+], SUBJECTS.map(|subject| subject.name));
        }
    };
}

kernels!(
    swiglu,
    strided_sum,
    row_sum_simd,
    row_sum_threadgroup,
    softmax,
    rms_norm,
    argmax,
    prefix_scan,
    matmul_tiled,
    matmul_simdgroup,
    qmv4,
    attention_decode,
    rope,
    histogram,
    scatter_add,
);
