//! Fused kernels whose backward is a kernel of its own: no MLX anywhere.
//!
//! The forward's float64 reference is differentiated; the backward gets the forward's operands, what the
//! forward wrote, and the cotangent of its first result.

use mlx_parity_kernels::{Buffer, Candidate, How, Operand, Params, Trial, candidate};
use mlx_parity_tensor::{Dtype, HostTensor, Layout};

use super::{Differentiable, Form, GradError};

/// How a backward's operands are named.
struct Names {
    backward: &'static str,
    /// Numbers that the forward is given besides its own, so that it writes what the backward reads.
    forward_params: &'static [(&'static str, f64)],
    /// The forward's results, as the backward's operands.
    results: &'static [&'static str],
    /// Numbers that the backward is given besides the forward's, where the call has every operand of `gradients`.
    backward_params: &'static [(&'static str, f64)],
    /// The operands of the forward that it gives gradients of, in the order of its results.
    gradients: &'static [&'static str],
}

/// Every backward.
const BACKWARDS: &[Names] = &[
    Names {
        backward: "fused_geglu_vjp",
        forward_params: &[],
        results: &[],
        backward_params: &[],
        gradients: &["gate", "up"],
    },
    Names {
        backward: "flash_attention_vjp",
        forward_params: &[("want_lse", 1.0)],
        results: &["out", "lse"],
        backward_params: &[],
        gradients: &["queries", "keys", "values"],
    },
    Names {
        backward: "flash_cce_vjp",
        forward_params: &[],
        results: &["loss", "lse"],
        backward_params: &[("want_dweight", 1.0)],
        gradients: &["hidden", "weight"],
    },
];

/// A forward and its backward at one shape.
pub struct Fused {
    forward: &'static dyn Candidate,
    backward: &'static dyn Candidate,
    names: &'static Names,
    trial: Trial,
    how: How,
    wrt: Vec<usize>,
    outputs: Vec<Form>,
}

impl Fused {
    /// A shape of a class, with seeded operands.
    ///
    /// # Errors
    /// [`GradError::Subject`] for a kernel, class or shape that does not exist, or one without a backward.
    pub fn new(
        kernel: &str,
        class: &str,
        sizes: &[usize],
        dtype: Dtype,
        seed: u64,
        how: How,
    ) -> Result<Self, GradError> {
        let unknown = |what: String| GradError::Subject(what);
        let forward =
            candidate(kernel).ok_or_else(|| unknown(format!("there is no kernel `{kernel}`")))?;
        let id = forward.spec().backward;
        let id = id.ok_or_else(|| unknown(format!("kernel `{kernel}` names no backward")))?;
        let backward =
            candidate(id).ok_or_else(|| unknown(format!("there is no kernel `{id}`")))?;
        let names = BACKWARDS.iter().find(|names| names.backward == id);
        let names = names.ok_or_else(|| {
            unknown(format!("what `{id}` takes is not listed in gradcheck::kernel"))
        })?;
        let class = forward.classes().iter().find(|known| known.name == class);
        let class =
            class.ok_or_else(|| unknown(format!("`{kernel}` has no such class of shapes")))?;
        if sizes.len() != forward.sizes().len() {
            let wanted = forward.sizes().join(", ");
            return Err(unknown(format!("`{kernel}`: sizes are {sizes:?}, wanted {wanted}")));
        }
        // Kernels choose the kind of draw by the seed's lowest bits; a multiple of four is bell-shaped.
        let mut trial = forward.trial(class, sizes, dtype, seed & !3);
        trial.params = with(trial.params, names.forward_params);
        for name in names.gradients {
            coarsen(&mut trial, name)?;
        }
        let results = forward.results(&trial.call())?;
        let (dtype, shape) = results.into_iter().next().unwrap_or((dtype, Vec::new()));
        let at = |name: &&str| trial.operands.iter().position(|operand| operand.name == *name);
        let wrt = names.gradients.iter().filter_map(at).collect();
        let outputs = vec![Form { dtype, shape }];
        Ok(Self { forward, backward, names, trial, how, wrt, outputs })
    }

    /// The operands, row-major.
    ///
    /// # Errors
    /// [`GradError::Tensor`] for an operand that is no whole buffer.
    pub fn operands(&self) -> Result<Vec<HostTensor>, GradError> {
        let whole = |operand: &Operand| Ok(operand.buffer.to_host(&operand.shape)?);
        self.trial.operands.iter().map(whole).collect()
    }

    /// The trial with other operands.
    fn at(&self, operands: &[HostTensor]) -> Result<Trial, GradError> {
        let mut trial = self.trial.clone();
        for (own, tensor) in trial.operands.iter_mut().zip(operands) {
            *own = Operand::new(own.name, tensor.shape(), buffer(tensor)?);
        }
        Ok(trial)
    }
}

/// Numbers with others in the place of those of the same name.
fn with(params: Params, others: &[(&'static str, f64)]) -> Params {
    let mut kept: Vec<_> = params.0;
    kept.retain(|(name, _)| !others.iter().any(|(other, _)| other == name));
    kept.extend_from_slice(others);
    Params(kept)
}

/// Rounds an operand to multiples of 2⁻⁸ below 8. References read float32 at most, and this leaves the
/// bits that a difference needs: a step of 2⁻ᵏ is exact down to k = 20.
fn coarsen(trial: &mut Trial, name: &str) -> Result<(), GradError> {
    for operand in trial.operands.iter_mut().filter(|operand| operand.name == name) {
        if !operand.view().is_contiguous() || operand.offset != 0 {
            return Err(GradError::Subject(format!("operand `{name}` is a view")));
        }
        let tensor = operand.buffer.to_host(&operand.shape)?;
        let values = tensor.to_f64();
        let coarse: Vec<f64> =
            values.iter().map(|x| (x * 256.0).round().clamp(-1920.0, 1920.0) / 256.0).collect();
        let coarse = HostTensor::from_f64_as(tensor.dtype(), tensor.shape(), &coarse)?;
        *operand = Operand::new(operand.name, operand.shape.clone(), buffer(&coarse)?);
    }
    Ok(())
}

/// The elements of a tensor; those of float64 as float32, the widest that kernels read.
fn buffer(tensor: &HostTensor) -> Result<Buffer, GradError> {
    let bits = || (0..tensor.len()).map(|i| tensor.bits_at(i));
    Ok(match tensor.dtype() {
        Dtype::F64 => Buffer::F32(tensor.to_f64().into_iter().map(|x| x as f32).collect()),
        Dtype::F32 => Buffer::F32(bits().map(|b| f32::from_bits(b as u32)).collect()),
        Dtype::F16 => Buffer::F16(bits().map(|b| b as u16).collect()),
        Dtype::Bf16 => Buffer::Bf16(bits().map(|b| b as u16).collect()),
        Dtype::U32 => Buffer::U32(bits().map(|b| b as u32).collect()),
        Dtype::I32 => Buffer::I32(bits().map(|b| b as u32 as i32).collect()),
        other => return Err(GradError::Subject(format!("kernels read no {other}"))),
    })
}

/// Every result of a kernel.
fn run(kernel: &dyn Candidate, trial: &Trial, how: How) -> Result<Vec<Operand>, GradError> {
    let call = trial.call();
    let mut made = Vec::new();
    for (dtype, shape) in kernel.results(&call)? {
        let len = shape.iter().product();
        let buffer = Buffer::zeros(dtype, len)
            .ok_or_else(|| GradError::Subject(format!("kernels write no {dtype}")))?;
        made.push(Operand::new("result", shape, buffer));
    }
    let mut out: Vec<_> = made.iter_mut().map(|operand| operand.buffer.out()).collect();
    kernel.run(&call, how, &mut out)?;
    Ok(made)
}

impl Differentiable for Fused {
    fn wrt(&self) -> &[usize] {
        &self.wrt
    }

    fn outputs(&self) -> &[Form] {
        &self.outputs
    }

    /// Operands are float32 at most, multiples of 2⁻⁸ below 8: smaller steps are rounded away.
    fn finest(&self) -> f64 {
        2_f64.powi(-20)
    }

    fn value(&self, operands: &[HostTensor]) -> Result<Vec<f64>, GradError> {
        let results = self.forward.reference(&self.at(operands)?.call())?;
        Ok(results.into_iter().next().unwrap_or_default())
    }

    fn gradients(
        &self,
        operands: &[HostTensor],
        cotangents: &[HostTensor],
        layout: Layout,
    ) -> Result<Vec<HostTensor>, GradError> {
        if layout != Layout::Contiguous {
            return Err(GradError::Subject("views of kernels are the gate's to check".to_owned()));
        }
        let mut trial = self.at(operands)?;
        let results = run(self.forward, &trial, How::new())?;
        for (&name, result) in self.names.results.iter().zip(results) {
            trial.operands.push(Operand { name, ..result });
        }
        let cotangent = &cotangents[0];
        trial.operands.push(Operand::new("cotangent", cotangent.shape(), buffer(cotangent)?));
        if self.wrt.len() == self.names.gradients.len() {
            trial.params = with(trial.params, self.names.backward_params);
        }
        let gradients = run(self.backward, &trial, self.how)?;
        let tensors = gradients.iter().map(|of| Ok(of.buffer.to_host(&of.shape)?));
        tensors.collect()
    }
}
