//! Known-wrong subjects: whatever one of them does to an answer, the judge sees it. No MLX.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{cell::Cell, collections::BTreeMap};

use mlx_parity::{
    compare::Zeros,
    ops::{Argument, Bound, Call, Fake, Generator, Reply, Subject, SuiteError, Verdict, judge},
};
use mlx_parity_oracles::Op;
use mlx_parity_tensor::{Dtype, HostTensor, Layout};
use proptest::prelude::*;

/// The right answer, changed afterwards.
struct Changed<F>(F);

impl<F: Fn(&mut Reply, Layout)> Subject for Changed<F> {
    fn reply(
        &self,
        call: &Call,
        operands: &[HostTensor],
        layout: Layout,
    ) -> Result<Reply, SuiteError> {
        let mut reply = Fake::default().reply(call, operands, layout)?;
        (self.0)(&mut reply, layout);
        Ok(reply)
    }
}

fn call(op: Op, dtype: Dtype) -> Call {
    let text = |text: &str| Argument::Text(text.into());
    let arguments = match op {
        Op::Add => BTreeMap::from([("a".into(), text("5x9")), ("b".into(), text("9"))]),
        _ => BTreeMap::from([("shape".into(), text("5x9")), ("axis".into(), Argument::Int(-1))]),
    };
    Call { op, dtype, generator: Generator::Random, arguments }
}

fn verdict(call: &Call, units: f64, change: impl Fn(&mut Reply, Layout)) -> Verdict {
    let bound = Bound { units, zeros: Zeros::Signed };
    judge(call, true, bound, &Changed(change)).unwrap()
}

fn with_value(tensor: &HostTensor, index: usize, value: f64) -> HostTensor {
    let mut values = tensor.to_f64();
    values[index] = value;
    HostTensor::from_f64_as(tensor.dtype(), tensor.shape(), &values).unwrap()
}

#[test]
fn an_untouched_answer_holds() {
    for op in [Op::Add, Op::Exp, Op::Sum, Op::Softmax, Op::Sort, Op::Argmax] {
        let found = verdict(&call(op, Dtype::F32), 0.5, |_, _| {});
        assert!(found.held && found.notes.is_empty(), "{op}: {found:?}");
    }
}

#[test]
fn another_dtype_is_seen() {
    let found = verdict(&call(Op::Exp, Dtype::Bf16), 1e9, |reply, _| {
        let values = reply.outputs[0].to_f64();
        let shape = reply.outputs[0].shape().to_vec();
        reply.outputs[0] = HostTensor::from_f64_as(Dtype::F32, shape, &values).unwrap();
    });
    assert!(!found.held && found.notes[0].contains("is f32 [5, 9], wanted bf16"), "{found:?}");
}

#[test]
fn another_shape_is_seen() {
    let found = verdict(&call(Op::Sum, Dtype::F32), 1e9, |reply, _| {
        let bytes = reply.outputs[0].bytes().to_vec();
        reply.outputs[0] = HostTensor::new(Dtype::F32, [5, 1], bytes).unwrap();
    });
    assert!(!found.held && found.notes[0].contains("[5, 1], wanted f32 [5]"), "{found:?}");
}

#[test]
fn a_missing_output_is_seen() {
    let found = verdict(&call(Op::Sum, Dtype::F32), 1e9, |reply, _| reply.outputs.clear());
    assert!(!found.held && found.notes[0].contains("0 outputs, wanted 1"), "{found:?}");
}

#[test]
fn a_changed_operand_is_seen_and_named() {
    let found = verdict(&call(Op::Add, Dtype::F16), 0.5, |reply, _| {
        reply.operands_after[1] = with_value(&reply.operands_after[1], 4, 123.0);
    });
    assert!(!found.held && found.notes[0].contains("operand 1 is changed"), "{found:?}");
    assert_eq!(found.bits.unwrap().first.unwrap().coords, [4]);
}

#[test]
fn an_answer_that_depends_on_the_layout_is_seen_and_named() {
    for layout in Layout::ALL.into_iter().filter(|layout| *layout != Layout::Contiguous) {
        let found = verdict(&call(Op::Exp, Dtype::F32), 4.0, |reply, at| {
            if at == layout {
                // Within the bound, yet not the same bits.
                let value = f64::from((reply.outputs[0].value_at(44) as f32).next_up());
                reply.outputs[0] = with_value(&reply.outputs[0], 44, value);
            }
        });
        let named = found.notes.iter().any(|note| note.contains(layout.name()));
        assert!(!found.held && named, "{layout}: {found:?}");
    }
}

#[test]
fn only_the_layout_that_may_differ_is_allowed_its_bound() {
    let nudged = |units: f64| {
        let first = Cell::new(true);
        verdict(&call(Op::Sum, Dtype::F32), 4.0, move |reply, at| {
            if at == Layout::Transposed && first.replace(false) {
                let value = reply.outputs[0].value_at(0);
                // The condition of a sum is above its value, so this is less than `units`.
                let moved = value + units * f64::from(f32::EPSILON) * value.abs();
                reply.outputs[0] = with_value(&reply.outputs[0], 0, moved);
            }
        })
    };
    assert!(nudged(2.0).held);
    assert!(!nudged(1e6).held);
}

proptest! {
    #[test]
    fn one_wrong_element_anywhere_fails(
        at in 0_usize..45,
        wrong in prop::sample::select(vec![f64::NAN, f64::INFINITY, -1.0, 0.0, 1e30]),
        which in 0_usize..3,
    ) {
        let dtype = [Dtype::F32, Dtype::F16, Dtype::Bf16][which];
        let found = verdict(&call(Op::Exp, dtype), 4.0, |reply, _| {
            reply.outputs[0] = with_value(&reply.outputs[0], at, wrong);
        });
        prop_assert!(!found.held);
        prop_assert_eq!(found.tolerance.unwrap().worst.unwrap().index, at);
    }

    #[test]
    fn a_nan_bound_holds_nothing(units in prop::sample::select(vec![f64::NAN, -1.0])) {
        let found = verdict(&call(Op::Exp, Dtype::F32), units, |_, _| {});
        prop_assert!(!found.held);
    }

    #[test]
    fn steps_over_the_bound_fail_and_steps_under_it_hold(at in 0_usize..45, steps in 0_u32..12) {
        let found = verdict(&call(Op::Exp, Dtype::F32), 5.0, |reply, _| {
            let mut value = reply.outputs[0].value_at(at) as f32;
            (0..steps).for_each(|_| value = value.next_up());
            reply.outputs[0] = with_value(&reply.outputs[0], at, f64::from(value));
        });
        // The reference lies within half a step of the untouched answer; a power of two halves the
        // step below it.
        let edge = (4..=6).contains(&steps);
        prop_assert!(found.held == (steps <= 5) || edge, "{steps} steps, {found:?}");
    }
}
