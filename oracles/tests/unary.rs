//! Elementwise functions against 60-digit values (`oracles/numpy/unary.py`).

mod common;

use common::{Fixture, assert_near};
use mlx_parity_oracles::ops::{Family, power, unary};
use mlx_parity_oracles::{Answer, OPS, Op};

/// Units of float64 a function may be off; the rest must be within two.
fn bound(op: Op) -> f64 {
    let units = match op {
        // The exponent of the lower tail, up to 600 here, is rounded before the exponential.
        Op::GeluTanh => 256.0,
        Op::GeluFast => 32.0,
        _ => 2.0,
    };
    units * f64::EPSILON
}

#[test]
fn every_unary_op_is_right_to_the_last_digits() {
    let fixture = Fixture::open("unary");
    for info in OPS.iter().filter(|info| info.family == Family::Unary) {
        let x = fixture.floats(&format!("{}.x", info.name));
        let wanted = fixture.floats(&format!("{}.y", info.name));
        assert!(x.len() >= 10, "{}", info.name);
        let found = unary(info.op, &x).unwrap();
        // Relative to the value alone: a reference may not lean on its condition.
        assert_near(&Answer::exact(found.value.clone()), &wanted, bound(info.op), info.name);
    }
}

#[test]
fn powers_are_right_to_the_last_digits() {
    let fixture = Fixture::open("unary");
    let found = power(&fixture.floats("power.a"), &fixture.floats("power.b")).unwrap();
    let wanted = fixture.floats("power.y");
    assert_near(&Answer::exact(found.value.clone()), &wanted, 2.0 * f64::EPSILON, "power");
}
