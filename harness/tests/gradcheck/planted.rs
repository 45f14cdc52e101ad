//! Functions with a right gradient and a wrong one, each wrong in a way that real backwards have been.

use std::sync::atomic::{AtomicUsize, Ordering};

use half::{bf16, f16};
use mlx_parity::{
    gradcheck::{Cotangent, Differentiable, Form, GradError},
    ops::{Generator, Source},
};
use mlx_parity_tensor::{Dtype, HostTensor, Layout};

use crate::functions::{attention, gather, linear, mean, rectified, rows, sine, softmax, wide};

/// Values of the operands.
pub type Values<'a> = &'a [Vec<f64>];
/// From operands and cotangent to one gradient for each operand.
pub type Gradient = fn(Values<'_>, &[f64]) -> Vec<Vec<f64>>;

/// A function of float32 tensors.
#[derive(Clone, Copy)]
pub struct Function {
    pub shapes: &'static [&'static [usize]],
    pub output: &'static [usize],
    pub value: fn(Values<'_>) -> Vec<f64>,
    pub gradient: Gradient,
    pub generator: Generator,
    pub kinks: &'static [Cotangent],
}

/// A wrong gradient.
pub struct Fault {
    pub what: &'static str,
    pub function: Function,
    pub wrong: Gradient,
    pub dtype: Dtype,
}

/// A function with the gradient that is claimed for it.
pub struct Claimed {
    function: Function,
    gradient: Gradient,
    dtype: Dtype,
    wrt: Vec<usize>,
    outputs: Vec<Form>,
}

impl Claimed {
    pub fn new(function: Function, gradient: Gradient, dtype: Dtype) -> Self {
        let wrt = (0..function.shapes.len()).collect();
        let outputs = vec![Form { dtype: Dtype::F32, shape: function.output.to_vec() }];
        Self { function, gradient, dtype, wrt, outputs }
    }

    pub fn operands(&self) -> Vec<HostTensor> {
        let mut source = Source::new(11);
        let make = |shape: &&[usize]| source.tensor(self.function.generator, Dtype::F32, shape);
        self.function.shapes.iter().map(make).collect::<Result<_, _>>().unwrap()
    }
}

impl Differentiable for Claimed {
    fn wrt(&self) -> &[usize] {
        &self.wrt
    }

    fn outputs(&self) -> &[Form] {
        &self.outputs
    }

    fn value(&self, operands: &[HostTensor]) -> Result<Vec<f64>, GradError> {
        Ok((self.function.value)(&operands.iter().map(HostTensor::to_f64).collect::<Vec<_>>()))
    }

    fn gradients(
        &self,
        operands: &[HostTensor],
        cotangents: &[HostTensor],
        _: Layout,
    ) -> Result<Vec<HostTensor>, GradError> {
        let values: Vec<_> = operands.iter().map(HostTensor::to_f64).collect();
        let gradients = (self.gradient)(&values, &cotangents[0].to_f64());
        let pairs = gradients.iter().zip(operands);
        let made = pairs.map(|(g, x)| HostTensor::from_f64_as(self.dtype, x.shape(), g));
        Ok(made.collect::<Result<_, _>>()?)
    }
}

const fn fault(what: &'static str, function: Function, wrong: Gradient) -> Fault {
    Fault { what, function, wrong, dtype: Dtype::F32 }
}

/// The planted faults.
pub fn faults() -> Vec<Fault> {
    vec![
        fault("sign turned", linear::FUNCTION, |x, c| negated(linear::gradient(x, c))),
        fault("transposed Jacobian", linear::FUNCTION, |_, c| vec![linear::times(c, false)]),
        fault("one entry of 256² off by 1e-2", linear::FUNCTION, |x, c| {
            let mut g = linear::gradient(x, c);
            g[0][201] += 1e-2 * c[77];
            g
        }),
        fault("one coordinate of 1000 zeroed", sine::FUNCTION, |x, c| {
            let mut g = sine::gradient(x, c);
            g[0][617] = 0.0;
            g
        }),
        fault("cotangent ignored", sine::FUNCTION, |x, _| sine::gradient(x, &[1.0; 1000])),
        fault("gradient rounded to bf16", sine::FUNCTION, |x, c| {
            each(sine::gradient(x, c), |g| bf16::from_f64(g).to_f64())
        }),
        fault("gradient clipped to norm 1", sine::FUNCTION, |x, c| {
            let g = sine::gradient(x, c);
            let norm = g[0].iter().map(|g| g * g).sum::<f64>().sqrt().max(1.0);
            each(g, |g| g / norm)
        }),
        fault("another run, other bits", sine::FUNCTION, |x, c| {
            static RUNS: AtomicUsize = AtomicUsize::new(0);
            let run = RUNS.fetch_add(1, Ordering::Relaxed);
            each(sine::gradient(x, c), |g| g * (1.0 + (run % 7) as f64 * 2_f64.powi(-23)))
        }),
        Fault {
            dtype: Dtype::F16,
            ..fault("gradient of another dtype", sine::FUNCTION, sine::gradient)
        },
        fault("f16 accumulator", wide::FUNCTION, |_, c| {
            vec![wide::gradient_with(c, |sum, term| f16::from_f64(sum + term).to_f64())]
        }),
        fault("missing 1/N", mean::FUNCTION, |x, c| each(mean::gradient(x, c), |g| g * 64.0)),
        fault("softmax without its row sum", softmax::FUNCTION, |x, c| {
            softmax::gradient_over(x, c, 0)
        }),
        fault("row sum without its last term", softmax::FUNCTION, |x, c| {
            softmax::gradient_over(x, c, softmax::WIDTH - 1)
        }),
        fault("gather assigns, not adds", gather::FUNCTION, |_, c| gather::scattered(c, true, 0)),
        fault("gather one row off", gather::FUNCTION, |_, c| gather::scattered(c, false, 1)),
        fault("attention scale missing", attention::FUNCTION, |x, c| {
            attention::gradient_of(x, c, attention::Wrong { unscaled: true, ..attention::RIGHT })
        }),
        fault("attention mask dropped", attention::FUNCTION, |x, c| {
            attention::gradient_of(x, c, attention::Wrong { unmasked: true, ..attention::RIGHT })
        }),
        fault("one of two query heads counted", attention::FUNCTION, |x, c| {
            attention::gradient_of(x, c, attention::Wrong { one_head: true, ..attention::RIGHT })
        }),
        fault("dK of a stale tile", attention::FUNCTION, |x, c| {
            let mut g = attention::gradient(x, c);
            let (tile, all) = (2 * attention::DIM, g[1].len());
            g[1].copy_within(all - 2 * tile..all - tile, all - tile);
            g
        }),
        fault("dK transposed", attention::FUNCTION, |x, c| {
            let mut g = attention::gradient(x, c);
            g[1] = rows::transposed(&g[1], attention::KEYS, attention::DIM);
            g
        }),
        fault("NaN of 0·inf where masked", rectified::LOG, |x, c| {
            let slope = |x: f64| if x > 0.0 { 1.0 / x } else { 0.0 * f64::INFINITY };
            vec![x[0].iter().zip(c).map(|(x, c)| c * slope(*x)).collect()]
        }),
        fault("slope 2 at a kink", rectified::RELU, |x, c| {
            let slope = |x: f64| if x == 0.0 { 2.0 } else { f64::from(u8::from(x > 0.0)) };
            vec![x[0].iter().zip(c).map(|(x, c)| c * slope(*x)).collect()]
        }),
    ]
}

fn each(gradients: Vec<Vec<f64>>, change: impl Fn(f64) -> f64) -> Vec<Vec<f64>> {
    gradients.into_iter().map(|g| g.into_iter().map(&change).collect()).collect()
}

fn negated(gradients: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    each(gradients, |g| -g)
}
