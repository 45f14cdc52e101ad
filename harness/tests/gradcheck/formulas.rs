//! What two public gradient checkers compute, as formulas of our own, for comparison.

use mlx_parity::{
    gradcheck::{Differentiable, Form, GradError},
    ops::Source,
};
use mlx_parity_tensor::{HostTensor, Layout};

/// PyTorch's `gradcheck(fast_mode=True)` with its defaults (eps 1e-6, atol 1e-5, rtol 1e-3): directions u
/// and v uniform in [0, 1) and normalised, vᵀJu by central differences beside the gradient's product, the
/// absolute tolerance times Σu·Σv. Says whether it objects.
pub fn torch_fast(
    subject: &dyn Differentiable,
    operands: &[HostTensor],
    seed: u64,
) -> Result<bool, GradError> {
    let (eps, atol, rtol) = (1e-6, 1e-5, 1e-3);
    let mut source = Source::new(seed);
    let outputs: usize = subject.outputs().iter().map(Form::len).sum();
    let v = uniform(&mut source, outputs);
    let gradients = subject.gradients(operands, &cotangents(subject, &v)?, Layout::Contiguous)?;
    let mut objects = false;
    for (slot, &at) in subject.wrt().iter().enumerate() {
        let u = uniform(&mut source, operands[at].len());
        let up = moved(subject, operands, &[(at, &u)], eps)?;
        let down = moved(subject, operands, &[(at, &u)], -eps)?;
        let slopes: Vec<f64> = up.iter().zip(&down).map(|(a, b)| (a - b) / (2.0 * eps)).collect();
        let (numerical, analytical) = (dot(&v, &slopes), dot(&u, &gradients[slot].to_f64()));
        let tolerance = atol * u.iter().sum::<f64>() * v.iter().sum::<f64>();
        objects |= !((analytical - numerical).abs() <= tolerance + rtol * numerical.abs());
    }
    Ok(objects)
}

/// JAX's `check_vjp` with its defaults for float32 (eps 1e-4, atol and rtol 2e-3): one Gaussian tangent and
/// one Gaussian cotangent, ⟨tangent, vjp(cotangent)⟩ beside ⟨central difference, cotangent⟩. Says whether
/// it objects.
pub fn jax_check_vjp(
    subject: &dyn Differentiable,
    operands: &[HostTensor],
    seed: u64,
) -> Result<bool, GradError> {
    let (eps, tolerance) = (1e-4, 2e-3);
    let mut source = Source::new(seed);
    let mut bells = |n: usize| -> Vec<f64> { (0..n).map(|_| source.bell()).collect() };
    let tangents: Vec<Vec<f64>> =
        subject.wrt().iter().map(|&at| bells(operands[at].len())).collect();
    let c = bells(subject.outputs().iter().map(Form::len).sum());
    let gradients = subject.gradients(operands, &cotangents(subject, &c)?, Layout::Contiguous)?;
    let along: Vec<_> =
        subject.wrt().iter().copied().zip(tangents.iter().map(Vec::as_slice)).collect();
    let (up, down) =
        (moved(subject, operands, &along, eps)?, moved(subject, operands, &along, -eps)?);
    let slopes: Vec<f64> = up.iter().zip(&down).map(|(a, b)| (a - b) / (2.0 * eps)).collect();
    let found: f64 = tangents.iter().zip(&gradients).map(|(t, g)| dot(t, &g.to_f64())).sum();
    let wanted = dot(&c, &slopes);
    Ok(!((found - wanted).abs() <= tolerance + tolerance * wanted.abs()))
}

fn uniform(source: &mut Source, n: usize) -> Vec<f64> {
    let drawn: Vec<f64> = (0..n).map(|_| source.uniform()).collect();
    let norm = dot(&drawn, &drawn).sqrt();
    drawn.into_iter().map(|v| v / norm).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn cotangents(subject: &dyn Differentiable, values: &[f64]) -> Result<Vec<HostTensor>, GradError> {
    let mut rest = values;
    let mut made = Vec::new();
    for form in subject.outputs() {
        let (mine, others) = rest.split_at(form.len());
        made.push(HostTensor::from_f64_as(form.dtype, form.shape.as_slice(), mine)?);
        rest = others;
    }
    Ok(made)
}

fn moved(
    subject: &dyn Differentiable,
    operands: &[HostTensor],
    along: &[(usize, &[f64])],
    step: f64,
) -> Result<Vec<f64>, GradError> {
    let mut wide = operands.to_vec();
    for &at in subject.wrt() {
        let mut values = operands[at].to_f64();
        for (_, tangent) in along.iter().filter(|(moved, _)| *moved == at) {
            values.iter_mut().zip(*tangent).for_each(|(value, t)| *value += step * t);
        }
        wide[at] = HostTensor::from_f64(operands[at].shape(), &values)?;
    }
    subject.value(&wide)
}
