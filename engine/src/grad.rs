//! Gradients: `mx.vjp` with typed errors. One vjp may be taken within the function of another.

use mlx_rs::{Array, error::Exception};

use crate::error::{EngineError, op};

/// What a function answers, and its gradients.
#[derive(Debug, Clone)]
pub struct Vjp {
    /// The outputs of the function.
    pub outputs: Vec<Array>,
    /// Σ cotangent · ∂output/∂primal, of each primal's shape and dtype.
    pub gradients: Vec<Array>,
}

/// The vector-Jacobian product of `f` at `primals`. Nothing is evaluated yet.
///
/// `f` sees tracers in the place of the primals, in their order; arrays that it captures are constants.
/// `cotangents` are as many as its outputs, each of its output's shape and dtype.
///
/// # Errors
/// What `f` says; [`EngineError::Op`] where MLX throws, as it does for a primitive without a gradient and
/// for cotangents that do not fit.
pub fn vjp(
    mut f: impl FnMut(&[Array]) -> Result<Vec<Array>, EngineError>,
    primals: &[Array],
    cotangents: &[Array],
) -> Result<Vjp, EngineError> {
    let mut said = None;
    let traced = |arrays: &[Array]| {
        f(arrays).map_err(|error| {
            let message = error.to_string();
            said = Some(error);
            Exception::custom(message)
        })
    };
    let answer = mlx_rs::transforms::fallible_vjp(traced, primals, cotangents);
    let answer = op("vjp", answer);
    match said {
        Some(error) => Err(error),
        None => answer.map(|(outputs, gradients)| Vjp { outputs, gradients }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops;

    fn values(array: &Array) -> Vec<f32> {
        crate::array::read::<f32>("value", array).unwrap()
    }

    #[test]
    fn a_product_gives_each_factor_the_other() {
        let (x, y) =
            (Array::from_slice(&[2.0_f32, 3.0], &[2]), Array::from_slice(&[5.0_f32, 7.0], &[2]));
        let c = Array::from_slice(&[1.0_f32, -2.0], &[2]);
        let found = vjp(|a| Ok(vec![ops::multiply(&a[0], &a[1])?]), &[x, y], &[c]).unwrap();
        assert_eq!(values(&found.outputs[0]), [10.0, 21.0]);
        assert_eq!(values(&found.gradients[0]), [5.0, -14.0]);
        assert_eq!(values(&found.gradients[1]), [2.0, -6.0]);
    }

    #[test]
    fn a_vjp_within_a_vjp_is_the_second_derivative() {
        let one = Array::from_slice(&[1.0_f32], &[1]);
        let x = Array::from_slice(&[1.5_f32], &[1]);
        let first = |a: &[Array]| {
            let cube = |a: &[Array]| Ok(vec![ops::multiply(&ops::multiply(&a[0], &a[0])?, &a[0])?]);
            Ok(vjp(cube, a, std::slice::from_ref(&one))?.gradients)
        };
        let found = vjp(first, &[x], std::slice::from_ref(&one)).unwrap();
        assert_eq!(values(&found.outputs[0]), [6.75]);
        assert_eq!(values(&found.gradients[0]), [9.0]);
    }

    #[test]
    fn an_error_of_the_function_comes_back_as_it_was() {
        let x = Array::from_slice(&[1.0_f32], &[1]);
        let error = vjp(|_| Err(EngineError::EmptyPrompt), std::slice::from_ref(&x), &[x.clone()]).unwrap_err();
        assert!(matches!(error, EngineError::EmptyPrompt), "{error}");
    }

    #[test]
    fn a_cotangent_of_another_shape_is_refused() {
        let x = Array::from_slice(&[1.0_f32, 2.0], &[2]);
        let c = Array::from_slice(&[1.0_f32], &[1]);
        let error = vjp(|a| Ok(a.to_vec()), &[x], &[c]).unwrap_err();
        assert!(matches!(error, EngineError::Op { op: "vjp", .. }), "{error}");
    }
}
