//! Laws that hold between ops, on drawn inputs.

use mlx_parity_oracles::ops::{
    Axes, CrossEntropy, NormWeight, Scan, SliceAxis, argsort, concat, cross_entropy, cumsum,
    floor_divide_int, layer_norm, logsumexp, matmul, remainder_int, rms_norm, scatter_add, slice,
    slice_update, sort, sum, take, take_along_axis, topk,
};
use mlx_parity_oracles::ops::{Precision, Rounding, softmax};
use mlx_parity_oracles::{IntTensor, Tensor64};
use proptest::prelude::*;

/// Values on a grid of 2⁻¹⁰, so that small sums and shifts are exact.
fn grid(n: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec((-20_000_i32..20_000).prop_map(|v| f64::from(v) / 1024.0), n)
}

#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
fn matrix(rows: usize, columns: usize) -> impl Strategy<Value = Tensor64> {
    grid(rows * columns).prop_map(move |data| Tensor64::new([rows, columns], data).unwrap())
}

fn close(a: &Tensor64, b: &Tensor64, bound: f64) -> bool {
    a.shape() == b.shape()
        && a.data().iter().zip(b.data()).all(|(a, b)| (a - b).abs() <= bound * (1.0 + b.abs()))
}

proptest! {
    #[test]
    fn the_transpose_of_a_product_is_the_product_of_transposes(a in matrix(3, 19), b in matrix(19, 4)) {
        let straight = matmul(&a, &b).unwrap();
        let turned = matmul(&b.transpose_last(), &a.transpose_last()).unwrap();
        prop_assert_eq!(straight.value.transpose_last(), turned.value);
        prop_assert_eq!(straight.condition.transpose_last(), turned.condition);
    }

    #[test]
    fn a_value_never_exceeds_its_condition(a in matrix(3, 19), b in matrix(19, 4)) {
        for answer in [matmul(&a, &b).unwrap(), sum(&a, Axes::Of(&[1]), false).unwrap()] {
            let pairs = answer.value.data().iter().zip(answer.condition.data());
            for (value, condition) in pairs {
                prop_assert!(value.abs() <= condition * (1.0 + 1e-15));
            }
        }
    }

    #[test]
    fn the_last_running_sum_is_the_sum(x in matrix(3, 50)) {
        let all = sum(&x, Axes::Of(&[1]), true).unwrap();
        let running = cumsum(&x, Scan::default()).unwrap();
        let last = [SliceAxis::full(3), SliceAxis { start: 49, stop: 50, step: 1 }];
        prop_assert_eq!(slice(&running.value, &last).unwrap().value, all.value);
    }

    #[test]
    fn sorting_permutes_in_order_and_the_largest_are_its_tail(x in matrix(2, 23), k in 1_usize..23) {
        let order = argsort(&x, -1).unwrap();
        let sorted = sort(&x, -1).unwrap().value;
        prop_assert_eq!(&take_along_axis(&x, &order, -1).unwrap().value, &sorted);
        prop_assert!(sorted.data().chunks(23).all(<[f64]>::is_sorted));
        let tail = SliceAxis { start: 23 - k as i64, stop: 23, step: 1 };
        let wanted = slice(&sorted, &[SliceAxis::full(2), tail]).unwrap().value;
        prop_assert_eq!(topk(&x, k, -1).unwrap().value, wanted);
    }

    #[test]
    fn scattering_is_the_adjoint_of_taking(
        x in matrix(4, 5),
        u in matrix(6, 5),
        at in prop::collection::vec(-4_i64..4, 6),
    ) {
        let at = IntTensor::vector(at);
        let dot = |a: &Tensor64, b: &Tensor64| -> f64 {
            a.data().iter().zip(b.data()).map(|(a, b)| a * b).sum()
        };
        let scattered = scatter_add(&Tensor64::full([4, 5], 0.0), &at, &u, 0).unwrap().value;
        let taken = take(&x, &at, 0).unwrap().value;
        prop_assert_eq!(dot(&scattered, &x), dot(&u, &taken));
    }

    #[test]
    fn joined_parts_slice_apart(a in matrix(2, 3), b in matrix(2, 5)) {
        let joined = concat(&[&a, &b], 1).unwrap().value;
        let part = |start, stop| {
            let columns = SliceAxis { start, stop, step: 1 };
            [SliceAxis::full(2), columns]
        };
        prop_assert_eq!(&slice(&joined, &part(0, 3)).unwrap().value, &a);
        prop_assert_eq!(&slice(&joined, &part(3, 8)).unwrap().value, &b);
        let blank = slice_update(&joined, &Tensor64::scalar(0.0), &part(3, 8)).unwrap().value;
        prop_assert_eq!(slice_update(&blank, &b, &part(3, 8)).unwrap().value, joined);
    }

    #[test]
    fn norms_do_not_see_scales_and_layer_norm_does_not_see_shifts(x in matrix(1, 33), shift in -9_i32..9) {
        prop_assume!(x.data().iter().any(|v| (v - x.data()[0]).abs() > 0.1));
        let moved = x.map(|v| 4.0 * (v + f64::from(shift)));
        let layer = |x: &Tensor64| layer_norm(x, None, None, 0.0).unwrap().value;
        prop_assert!(close(&layer(&moved), &layer(&x), 1e-12));
        let rms = |x: &Tensor64| rms_norm(x, NormWeight::None, 0.0).unwrap().value;
        prop_assert!(close(&rms(&x.map(|v| -4.0 * v)), &rms(&x).map(|v| -v), 1e-15));
    }

    #[test]
    fn the_loss_is_the_negative_log_of_the_softmax(x in matrix(1, 12), target in 0_i64..12) {
        let p = softmax(&x, -1, Precision::Plain).unwrap().value.data()[target as usize];
        let loss = cross_entropy(&x, &IntTensor::vector([target]), CrossEntropy::default()).unwrap();
        let nats = loss.value.data()[0];
        prop_assert!(((-nats).exp() - p).abs() <= 1e-14 * (1.0 + nats) * p, "{} {}", nats, p);
        let lse = logsumexp(&x, Axes::All, false).unwrap().value.data()[0];
        prop_assert!((lse - x.data()[target as usize] - nats).abs() <= 1e-13);
    }

    #[test]
    fn integer_division_is_euclids_identity(
        a in any::<i64>(),
        b in any::<i64>().prop_filter("a divisor", |b| *b != 0 && *b != -1),
    ) {
        for rounding in [Rounding::Floor, Rounding::Truncate] {
            let (x, y) = (IntTensor::scalar(a), IntTensor::scalar(b));
            let quotient = floor_divide_int(&x, &y, rounding).unwrap().data()[0];
            let rest = remainder_int(&x, &y, rounding).unwrap().data()[0];
            prop_assert_eq!(i128::from(quotient) * i128::from(b) + i128::from(rest), i128::from(a));
            let of = if rounding == Rounding::Floor { b } else { a };
            prop_assert!(rest == 0 || (rest < 0) == (of < 0));
            prop_assert!(rest.unsigned_abs() < b.unsigned_abs());
        }
    }
}
