//! The kernels of `kernels/` against ref64, over shapes and dtypes, in every mode.

mod support;

use std::collections::BTreeMap;

use mlx_parity_msl_emu::{Mode, Outcome, run};
use mlx_parity_tensor::{Dtype, HostTensor};

use support::bound::{judge, same_bits};
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

/// A kernel is right and clean in each mode, and all modes agree bit for bit where it has no atomics.
fn all_modes(name: &str) {
    let subject = named(name);
    for &dtype in subject.dtypes {
        for case in (subject.cases)(dtype) {
            agree(subject, dtype, &case);
        }
    }
}

fn agree(subject: &Subject, dtype: Dtype, case: &Case) {
    let answers: BTreeMap<&str, Vec<HostTensor>> =
        Mode::ALL.map(|mode| (mode.name(), checked(subject, dtype, case, mode))).into();
    if subject.atomic {
        return;
    }
    let first = &answers[Mode::Fibers.name()];
    for (mode, outputs) in &answers {
        for (found, wanted) in outputs.iter().zip(first) {
            same_bits(found, wanted).unwrap_or_else(|wrong| {
                panic!("{} {} {} {mode}: {wrong}", subject.name, dtype.name(), case.label)
            });
        }
    }
}

macro_rules! holds {
    ($($name:ident),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                all_modes(stringify!($name));
            }
        )+

        #[test]
        fn every_kernel_has_its_test() {
            assert_eq!([$(stringify!($name)),+], SUBJECTS.map(|subject| subject.name));
        }
    };
}

holds!(
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
