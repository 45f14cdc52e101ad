//! Planted gradient faults: all are caught, no right gradient is objected to, and what the formulas of two
//! public checkers see of the same faults is printed beside it:
//!
//! ```text
//! cargo test -p mlx-parity --no-default-features --test gradcheck -- --nocapture
//! ```
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod formulas;
mod functions;
mod planted;

use mlx_parity::gradcheck::{GradientReport, Settings, check};
use mlx_parity_tensor::Dtype;
use planted::{Claimed, Fault, Function, Gradient, faults};

/// Draws of the formulas that draw once.
const DRAWS: u64 = 20;

fn report(function: Function, gradient: Gradient, dtype: Dtype) -> GradientReport {
    let claimed = Claimed::new(function, gradient, dtype);
    let settings = Settings { kinks: function.kinks.to_vec(), ..Settings::new(17) };
    check(&claimed, &claimed.operands(), &settings).unwrap()
}

/// How many of the draws a formula objects in.
fn objections(fault: &Fault, gradient: Gradient, formula: impl Fn(&Claimed, u64) -> bool) -> usize {
    let claimed = Claimed::new(fault.function, gradient, fault.dtype);
    (0..DRAWS).filter(|seed| formula(&claimed, *seed)).count()
}

/// What a report objects to first.
fn reason(report: &GradientReport) -> String {
    match report.failures.first() {
        Some(failure) if report.over == 0 => failure.chars().take(60).collect(),
        _ => format!("{} at {}", report.words(), report.at),
    }
}

#[test]
fn every_planted_fault_is_caught_and_no_right_gradient_is_objected_to() {
    let mut lines = vec![format!(
        "{:<32} {:<11} {:<10} {:<14} {}",
        "fault", "mlx-parity", "torch fast", "jax check_vjp", "why"
    )];
    let mut missed = Vec::new();
    for fault in faults() {
        let right = report(fault.function, fault.function.gradient, Dtype::F32);
        assert!(right.held, "{}: {} {:?}", fault.what, right.words(), right.failures);
        let found = report(fault.function, fault.wrong, fault.dtype);
        let torch = objections(&fault, fault.wrong, |claimed, seed| {
            formulas::torch_fast(claimed, &claimed.operands(), seed).unwrap()
        });
        let jax = objections(&fault, fault.wrong, |claimed, seed| {
            formulas::jax_check_vjp(claimed, &claimed.operands(), seed).unwrap()
        });
        let caught = if found.held { "missed" } else { "caught" };
        lines.push(format!(
            "{:<32} {caught:<11} {:<10} {:<14} {}",
            fault.what,
            format!("{torch}/{DRAWS}"),
            format!("{jax}/{DRAWS}"),
            reason(&found)
        ));
        if found.held {
            missed.push(fault.what);
        }
    }
    println!("{}", lines.join("\n"));
    assert!(faults().len() >= 15);
    assert!(missed.is_empty(), "missed: {missed:?}\n{}", lines.join("\n"));
}

#[test]
fn an_error_a_little_over_the_power_is_caught_anywhere_and_one_far_below_it_is_not() {
    let function = functions::sine::FUNCTION;
    let right = report(function, function.gradient, Dtype::F32);
    assert!(right.power > 0.0 && right.relative_power < 1e-3, "{right:?}");
    assert!(right.power < 1e-3, "{right:?}");
    // 3e-4 in one of a thousand coordinates that no single entry looks at.
    let wrong: Gradient = |x, c| {
        let mut g = functions::sine::gradient(x, c);
        g[0][501] += 3e-4 * c[501];
        g
    };
    assert!(right.power < 2e-4, "{right:?}");
    assert!(!report(function, wrong, Dtype::F32).held);
    let tiny: Gradient = |x, c| {
        let mut g = functions::sine::gradient(x, c);
        g[0][501] += 1e-8 * c[501];
        g
    };
    assert!(report(function, tiny, Dtype::F32).held);
}

#[test]
fn the_formulas_do_not_object_to_right_gradients() {
    for function in
        [functions::linear::FUNCTION, functions::sine::FUNCTION, functions::softmax::FUNCTION]
    {
        let claimed = Claimed::new(function, function.gradient, Dtype::F32);
        for seed in 0..DRAWS {
            assert!(!formulas::torch_fast(&claimed, &claimed.operands(), seed).unwrap());
            assert!(!formulas::jax_check_vjp(&claimed, &claimed.operands(), seed).unwrap());
        }
    }
}
