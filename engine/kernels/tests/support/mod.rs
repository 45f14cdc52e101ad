//! Metal sources run in emulation and held against the reference: what E0–E5 ask of them, without MLX.
//!
//! Claims of exactness are not judged here: they are against MLX's Metal arithmetic, which no CPU has. Every kernel
//! is judged by its distance from float64.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod evidence;
pub mod host;
pub mod sweep;

use std::path::Path;
use std::time::Duration;

use mlx_parity_kernels::{Buffer, Call, KernelError, Metal, MetalLaunch, Operand, Trial};
use mlx_parity_msl_emu::{
    Input, Kernel, Launch, Mode, Options, Outcome, Output, Source, TemplateArg, run,
};
use mlx_parity_tensor::{Dtype, HostTensor};

/// Orders of threads, simdgroups and groups that a kernel is run in.
const ORDERS: [u64; 3] = [0, 1, 2];

/// A Metal kernel to be emulated.
#[derive(Clone, Copy)]
pub struct Emulated<'a> {
    /// Id of its candidate.
    pub id: &'static str,
    /// Its sources and how it is launched.
    pub metal: &'a Metal,
    /// The bug that it is built with.
    pub mutant: Option<&'static str>,
    /// What executes and watches its threads.
    pub mode: Mode,
}

impl<'a> Emulated<'a> {
    /// The kernel as it is meant, every access watched.
    pub const fn new(id: &'static str, metal: &'a Metal) -> Self {
        Self { id, metal, mutant: None, mode: Mode::Fibers }
    }

    /// The same with a bug.
    pub const fn mutated(self, mutant: &'static str) -> Self {
        Self { mutant: Some(mutant), ..self }
    }

    /// Whether the launch of a trial is refused.
    pub fn refuses(&self, trial: &Trial) -> bool {
        matches!((self.metal.launch)(&trial.call()), Err(KernelError::Unsupported { .. }))
    }

    /// Runs a trial in three orders. `Err` where the kernel does not take it or does not compile.
    pub fn run(&self, trial: &Trial) -> Result<Outcome, String> {
        let planned = self.launch(&trial.call())?;
        // A launch takes the inputs that its call has.
        let known = |name: &&'static str| {
            trial.operands.iter().chain(&planned.numbers).find(|operand| operand.name == *name)
        };
        let operands: Vec<&Operand> = self.metal.inputs.iter().filter_map(known).collect();
        let storages: Vec<HostTensor> = operands.iter().map(|of| storage(&of.buffer)).collect();
        let inputs = operands.iter().zip(&storages).map(|(of, storage)| viewed(of, storage));
        let launch = Launch {
            inputs: inputs.collect(),
            outputs: outputs(&planned),
            template: template(&planned),
            grid: planned.grid,
            group: planned.group,
            init_value: planned.init_value,
        };
        run(&self.kernel(&planned, &operands), &launch, &self.options())
            .map_err(|error| error.to_string())
    }

    fn launch(&self, call: &Call<'_>) -> Result<MetalLaunch, String> {
        (self.metal.launch)(call).map_err(|error| error.to_string())
    }

    fn kernel(&self, planned: &MetalLaunch, operands: &[&Operand]) -> Kernel {
        let Metal { header, body, outputs, .. } = self.metal;
        let body = Source::new(body.path, body.text);
        let inputs: Vec<&str> = operands.iter().map(|operand| operand.name).collect();
        let mut kernel = Kernel::new(self.id, body, &inputs, &outputs[..planned.outputs.len()]);
        let mut defines: String = planned
            .defines
            .iter()
            .map(|(name, value)| format!("#define {name} {value}\n"))
            .collect();
        if let Some(mutant) = self.mutant {
            defines += &format!("#define MUTANT_{mutant}\n");
        }
        let text = format!("{defines}#line 1 \"{}\"\n{}", header.path, header.text);
        kernel.header = Source::new(header.path, text);
        kernel.ensure_row_contiguous = self.metal.row_contiguous;
        kernel.atomic_outputs = self.metal.atomic_outputs;
        kernel
    }

    fn options(&self) -> Options {
        Options {
            mode: self.mode,
            seeds: ORDERS.to_vec(),
            time_limit: Duration::from_secs(20),
            cache: Path::new(env!("CARGO_TARGET_TMPDIR")).join("msl-emu"),
            ..Options::default()
        }
    }
}

fn storage(buffer: &Buffer) -> HostTensor {
    buffer.to_host(&[buffer.data().len()]).expect("as many elements as there are")
}

fn viewed<'a>(operand: &Operand, storage: &'a HostTensor) -> Input<'a> {
    Input {
        storage,
        shape: operand.shape.clone(),
        strides: operand.strides.iter().map(|&stride| stride as i64).collect(),
        offset: operand.offset,
    }
}

fn outputs(planned: &MetalLaunch) -> Vec<Output> {
    let output =
        |(dtype, shape): &(Dtype, Vec<usize>)| Output { dtype: *dtype, shape: shape.clone() };
    planned.outputs.iter().map(output).collect()
}

fn template(planned: &MetalLaunch) -> Vec<(String, TemplateArg)> {
    let dtypes = planned.dtypes.iter().map(|&(name, dtype)| (name, TemplateArg::Dtype(dtype)));
    let ints = planned.ints.iter().map(|&(name, value)| (name, TemplateArg::Int(value)));
    dtypes.chain(ints).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The same trial with every half widened to float32.
pub fn widened(trial: &Trial) -> Trial {
    let f16 = |&bits: &u16| half::f16::from_bits(bits).to_f32();
    let bf16 = |&bits: &u16| half::bf16::from_bits(bits).to_f32();
    let mut twin = trial.clone();
    for operand in &mut twin.operands {
        operand.buffer = match &operand.buffer {
            Buffer::F16(bits) => Buffer::F32(bits.iter().map(f16).collect()),
            Buffer::Bf16(bits) => Buffer::F32(bits.iter().map(bf16).collect()),
            other => other.clone(),
        };
    }
    twin
}
