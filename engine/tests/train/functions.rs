//! Functions that MLX differentiates.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mlx_parity_engine::array::read;
use mlx_parity_engine::train::{Function, scope};
use mlx_parity_engine::{Array, EngineError, ops};

use crate::common::on_mlx_thread;

fn numbers(array: &Array) -> Vec<f32> {
    read::<f32>("numbers", array).unwrap()
}

fn three() -> Array {
    Array::from_slice(&[1.0_f32, -2.0, 3.0], &[3])
}

fn total(a: &Array) -> Result<Array, EngineError> {
    ops::sum(a, ops::Axes::All, false)
}

#[test]
fn the_gradient_of_a_function_is_the_one_it_was_given() {
    on_mlx_thread(|| {
        // Three times the square, with a backward that says 7 times the cotangent.
        let forward = |inputs: &[Array]| {
            let values: Vec<f32> = numbers(&inputs[0]).iter().map(|x| 3.0 * x * x).collect();
            Ok(vec![Array::from_slice(&values, inputs[0].shape())])
        };
        let backward = |inputs: &[Array], cotangents: &[Array], outputs: &[Array]| {
            assert_eq!(numbers(&inputs[0]), [2.0, -4.0, 6.0]);
            assert_eq!(numbers(&outputs[0]), [12.0, 48.0, 108.0]);
            let seven = Array::from_f32(7.0);
            Ok(vec![ops::multiply(&cotangents[0], &seven)?])
        };
        let function = Function::with_vjp(forward, backward).unwrap();
        let (values, gradients) = scope(|scope| {
            let loss = move |inputs: &[Array]| {
                let twice = ops::add(&inputs[0], &inputs[0])?;
                Ok(vec![total(&function.call(&[twice])?[0])?])
            };
            scope.value_and_grad(loss, &[0], &[three()])
        })
        .unwrap();
        assert_eq!(numbers(&values[0]), [168.0]);
        assert_eq!(numbers(&gradients[0]), [14.0; 3], "7 for each of the two summands");
    });
}

#[test]
fn a_checkpointed_function_runs_again_on_the_way_back() {
    on_mlx_thread(|| {
        let (runs, counted) = (Cell::new(0), Cell::new(0));
        let gradients = scope(|scope| {
            let body = |inputs: &[Array]| {
                runs.set(runs.get() + 1);
                Ok(vec![ops::exp(&ops::square(&inputs[0])?)?])
            };
            let kept = scope.checkpoint(body)?;
            let loss = move |inputs: &[Array]| Ok(vec![total(&kept.call(inputs)?[0])?]);
            let (_, gradients) = scope.value_and_grad(loss, &[0], &[three()])?;
            counted.set(runs.get());
            Ok(gradients)
        })
        .unwrap();
        assert_eq!(counted.get(), 2);
        let wanted = [1.0_f32, -2.0, 3.0].map(|x| 2.0 * x * (x * x).exp());
        for (found, wanted) in numbers(&gradients[0]).iter().zip(wanted) {
            assert!((found / wanted - 1.0).abs() <= 1e-6, "{found} {wanted}");
        }
    });
}

#[test]
fn a_cotangent_for_each_output_gives_the_gradients_of_each_input() {
    on_mlx_thread(|| {
        let (values, gradients) = scope(|scope| {
            let both = |inputs: &[Array]| {
                Ok(vec![ops::multiply(&inputs[0], &inputs[1])?, ops::square(&inputs[1])?])
            };
            let cotangents = [Array::from_f32(1.0), Array::from_f32(10.0)];
            scope.vjp(both, &[Array::from_f32(3.0), Array::from_f32(5.0)], &cotangents)
        })
        .unwrap();
        assert_eq!([numbers(&values[0]), numbers(&values[1])], [[15.0], [25.0]]);
        assert_eq!([numbers(&gradients[0]), numbers(&gradients[1])], [[5.0], [103.0]]);
    });
}

#[test]
fn what_a_function_fails_with_comes_out() {
    on_mlx_thread(|| {
        let failed = scope(|scope| {
            scope.value_and_grad(|_| Err(EngineError::EmptyPrompt), &[0], &[three()])
        });
        assert!(matches!(failed, Err(EngineError::EmptyPrompt)), "{failed:?}");

        let panicked = catch_unwind(AssertUnwindSafe(|| {
            scope(|scope| scope.vjp(|_| panic!("in the function"), &[three()], &[three()]))
        }));
        let message = panicked.unwrap_err();
        assert_eq!(message.downcast_ref::<&str>(), Some(&"in the function"));

        let thrown =
            scope(|scope| scope.value_and_grad(|inputs| Ok(inputs.to_vec()), &[0], &[three()]));
        let error = thrown.unwrap_err().to_string();
        assert!(error.contains("does not match cotangent shape"), "{error}");
    });
}

#[test]
fn a_function_cannot_be_called_behind_its_scope() {
    on_mlx_thread(|| {
        let offset = Array::from_f32(1.0);
        let kept = scope(|scope| {
            let kept = scope.checkpoint(|inputs| Ok(vec![ops::add(&inputs[0], &offset)?]))?;
            assert_eq!(numbers(&kept.call(&[three()])?[0]), [2.0, -1.0, 4.0]);
            Ok(kept)
        })
        .unwrap();
        drop(offset);
        let error = kept.call(&[three()]).unwrap_err().to_string();
        assert!(error.contains("behind the end of its scope"), "{error}");
    });
}
