//! Mathematical functions against float64.

use std::f64::consts::PI;

use mlx_parity_tensor::{Dtype, HostTensor};

use crate::answers;
use crate::support::data::Numbers;

type Function = (&'static str, f64, f64, fn(f64) -> f64);

/// Functions of one number, over a range.
const ONE: [Function; 30] = [
    ("acos", -1.0, 1.0, f64::acos),
    ("acosh", 1.0, 50.0, f64::acosh),
    ("asin", -1.0, 1.0, f64::asin),
    ("asinh", -50.0, 50.0, f64::asinh),
    ("atan", -50.0, 50.0, f64::atan),
    ("atanh", -0.99, 0.99, f64::atanh),
    ("ceil", -9.0, 9.0, f64::ceil),
    ("cos", -20.0, 20.0, f64::cos),
    ("cosh", -9.0, 9.0, f64::cosh),
    ("cospi", -9.0, 9.0, |x| (PI * x).cos()),
    ("exp", -20.0, 20.0, f64::exp),
    ("exp10", -9.0, 9.0, |x| 10_f64.powf(x)),
    ("exp2", -20.0, 20.0, f64::exp2),
    ("fabs", -9.0, 9.0, f64::abs),
    ("floor", -9.0, 9.0, f64::floor),
    ("fract", -9.0, 9.0, |x| x - x.floor()),
    ("log", 0.01, 50.0, f64::ln),
    ("log10", 0.01, 50.0, f64::log10),
    ("log2", 0.01, 50.0, f64::log2),
    ("rint", -9.0, 9.0, f64::round_ties_even),
    ("round", -9.0, 9.0, f64::round),
    ("rsqrt", 0.01, 50.0, |x| 1.0 / x.sqrt()),
    ("saturate", -2.0, 2.0, |x| x.clamp(0.0, 1.0)),
    ("sign", -2.0, 2.0, f64::signum),
    ("sin", -20.0, 20.0, f64::sin),
    ("sinh", -9.0, 9.0, f64::sinh),
    ("sinpi", -9.0, 9.0, |x| (PI * x).sin()),
    ("sqrt", 0.0, 50.0, f64::sqrt),
    ("tanh", -9.0, 9.0, f64::tanh),
    ("trunc", -9.0, 9.0, f64::trunc),
];

type Function2 = (&'static str, fn(f64, f64) -> f64);

/// Functions of two numbers, the first of [0.1, 9), the second of [−3, 3).
const TWO: [Function2; 9] = [
    ("atan2", f64::atan2),
    ("copysign", f64::copysign),
    ("fdim", |x, y| (x - y).max(0.0)),
    ("fmax", f64::max),
    ("fmin", f64::min),
    ("fmod", |x, y| x % y),
    ("max", f64::max),
    ("pow", f64::powf),
    ("step", |x, y| if y < x { 0.0 } else { 1.0 }),
];

const N: usize = 256;

/// Values within four units of the last place of float32, or of one where the result is smaller.
fn close(name: &str, found: &[f64], wanted: impl Iterator<Item = f64>) {
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let bound = 4.0 * f64::from(f32::EPSILON) * wanted.abs().max(0.1);
        assert!((found - wanted).abs() <= bound, "{name} of {i}: {found}, wanted {wanted}");
    }
}

#[test]
fn functions_of_one_number() {
    let mut numbers = Numbers::new(11);
    let mut body = "const uint i = thread_position_in_grid.x;\n".to_owned();
    let mut values = Vec::new();
    for (row, (name, low, high, _)) in ONE.iter().enumerate() {
        body += &format!("out[{row} * {N} + i] = {name}(x[{row} * {N} + i]);\n");
        values.extend(numbers.tensor(Dtype::F32, &[N], *low, *high).to_f64());
    }
    let x = HostTensor::from_f64_as(Dtype::F32, [ONE.len(), N], &values).expect("a row each");
    let found = answers(&body, &[("x", &x)], Dtype::F32, &[ONE.len(), N], N as u32).to_f64();
    for (row, (name, .., function)) in ONE.iter().enumerate() {
        let wanted = values[row * N..][..N].iter().map(|&x| function(x));
        close(name, &found[row * N..][..N], wanted);
    }
}

#[test]
fn functions_of_two_numbers() {
    let mut numbers = Numbers::new(12);
    let x = numbers.tensor(Dtype::F32, &[N], 0.1, 9.0);
    let y = numbers.tensor(Dtype::F32, &[N], -3.0, 3.0);
    let mut body = "const uint i = thread_position_in_grid.x;\n".to_owned();
    for (row, (name, _)) in TWO.iter().enumerate() {
        body += &format!("out[{row} * {N} + i] = {name}(x[i], y[i]);\n");
    }
    let found =
        answers(&body, &[("x", &x), ("y", &y)], Dtype::F32, &[TWO.len(), N], N as u32).to_f64();
    for (row, (name, function)) in TWO.iter().enumerate() {
        let wanted = (0..N).map(|i| function(x.value_at(i), y.value_at(i)));
        close(name, &found[row * N..][..N], wanted);
    }
}

#[test]
fn not_a_number_is_passed_over_by_max_and_kept_by_the_rest() {
    let body = "const float nan = NAN;\nout[0] = max(nan, 1.0f);\nout[1] = min(2.0f, nan);\n\
                out[2] = isnan(exp(nan)) ? 1.0f : 0.0f;\nout[3] = isinf(half(70000.0f)) ? 1.0f : 0.0f;\n\
                out[4] = clamp(5.0f, -1.0f, 3.0f);\nout[5] = precise::exp(0.0f) + fast::cos(0.0f);\n\
                out[6] = mix(2.0f, 4.0f, 0.25f);\nout[7] = fma(2.0f, 3.0f, 4.0f);";
    let found = answers(body, &[], Dtype::F32, &[8], 1);
    assert_eq!(found.to_f64(), [1.0, 2.0, 1.0, 1.0, 3.0, 2.0, 2.5, 10.0]);
}
