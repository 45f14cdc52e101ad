//! A host kernel over its lattice and its probes, as it is meant and with each of its bugs: what E0 and E2–E5
//! ask of it, without MLX.
//!
//! Whether an exact kernel has the bits of MLX is asked where MLX is. Here its own bits stand for them: a bug of
//! it is rejected where a bit differs.

use mlx_parity_kernels::{
    Buffer, Candidate, Claim, Expected, How, KernelError, Path, Trial, candidate,
};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::{evidence, widened};

/// What results hold before a call: no kernel may leave it.
const POISON: u32 = 0xffba_dbad;
/// Elements before and behind each result that no kernel may write.
const GUARD: usize = 64;

/// A candidate's host kernel.
#[derive(Clone, Copy)]
pub struct Hosted(pub &'static dyn Candidate);

type Results = Result<Vec<HostTensor>, String>;

impl Hosted {
    /// A candidate of the list.
    pub fn of(id: &str) -> Self {
        Self(candidate(id).expect("a candidate of this id"))
    }

    fn id(self) -> &'static str {
        self.0.spec().id
    }

    /// Every trial of the lattices with one kind of draw each, then every probe.
    fn probes(self, dtype: Dtype) -> Vec<(Trial, Expected)> {
        let mut all = Vec::new();
        for class in self.0.classes() {
            for (seed, sizes) in class.lattice.iter().enumerate() {
                let trial = self.0.trial(class, sizes, dtype, seed as u64);
                assert_eq!(
                    self.0.class(&trial.call()),
                    class.name,
                    "{}: {}",
                    self.id(),
                    trial.name
                );
                all.push((trial, Expected::Reference));
            }
            let probes = self.0.probes(class, dtype);
            all.extend(probes.into_iter().map(|probe| (probe.trial, probe.expected)));
        }
        all
    }

    /// That the kernel holds on every trial and probe of a dtype, and every path has the same bits.
    pub fn holds(self, dtype: Dtype) {
        for (trial, expected) in self.probes(dtype) {
            let held = self.check(&trial, &expected, How::new());
            held.and_then(|()| self.paths_agree(&trial, &expected))
                .unwrap_or_else(|wrong| panic!("{} {dtype} {}: {wrong}", self.id(), trial.name));
        }
    }

    /// Bugs that nothing rejects in any of the dtypes.
    pub fn survivors(self, dtypes: &[Dtype]) -> Vec<&'static str> {
        let probes: Vec<_> = dtypes.iter().flat_map(|&dtype| self.probes(dtype)).collect();
        let mutants = self.0.spec().mutants.iter().filter(|mutant| mutant.host);
        let survives = |name: &&'static str| {
            let how = How::new().mutated(name);
            let killer = probes.iter().find_map(|(trial, expected)| {
                let wrong = self.check(trial, expected, how).err()?;
                Some(format!("{}: {wrong}", trial.name))
            });
            println!("{} {name}: {}", self.id(), killer.as_deref().unwrap_or("survives"));
            killer.is_none()
        };
        mutants.map(|mutant| mutant.name).filter(survives).collect()
    }

    /// What is wrong with one call.
    fn check(self, trial: &Trial, expected: &Expected, how: How) -> Result<(), String> {
        let found = self.run(trial, how)?;
        if self.0.spec().claim == Claim::Exact {
            all_same(&found, &self.run(trial, How::new())?)?;
        }
        match expected {
            Expected::Reference => self.near(trial, &found),
            Expected::SameAs(other) => all_same(&found, &self.run(other, how)?),
            Expected::Finite => {
                let nan = found.iter().any(|of| of.to_f64().iter().any(|value| value.is_nan()));
                if nan { Err("a result is NaN".into()) } else { Ok(()) }
            }
        }
    }

    /// Against float64. The bits of an exact kernel are judged elsewhere, its float32 twin here. Without MLX an envelope
    /// has no baseline: in float32 it is held to E3's bound, in halves to twice E2's floor, for operands that are
    /// results themselves carry a rounding of their own.
    fn near(self, trial: &Trial, found: &[HostTensor]) -> Result<(), String> {
        let exact = self.0.reference(&trial.call()).map_err(|error| error.to_string())?;
        if self.0.spec().claim == Claim::Exact {
            let twin = self.run(&widened(trial), How::new())?;
            return twin.iter().zip(&exact).try_for_each(|(of, exact)| evidence::twin(of, exact));
        }
        for (found, exact) in found.iter().zip(&exact) {
            if found.dtype() == Dtype::F32 {
                evidence::twin(found, exact)?;
            } else {
                let rounded = HostTensor::from_f64_as(found.dtype(), found.shape(), exact)
                    .map_err(|error| error.to_string())?;
                evidence::near_within(found, exact, &rounded.to_f64(), 4.0)?;
            }
        }
        Ok(())
    }

    /// E5 across paths: one order of operations on all instructions. The portable path has the bits of the others where
    /// exactness is claimed; elsewhere it may lack the fused multiply-add.
    fn paths_agree(self, trial: &Trial, expected: &Expected) -> Result<(), String> {
        let wanted = self.run(trial, How::new())?;
        if self.0.spec().claim == Claim::Envelope {
            self.check(trial, expected, How::new().on(Path::Portable))?;
        }
        let portable = (self.0.spec().claim == Claim::Exact).then_some(Path::Portable);
        for path in portable.into_iter().chain([Path::Avx2, Path::Avx512]) {
            match self.run(trial, How::new().on(path)) {
                Ok(found) => {
                    all_same(&found, &wanted).map_err(|wrong| format!("{path:?}: {wrong}"))?;
                }
                Err(wrong) if wrong.contains("instructions of") => {}
                Err(wrong) => return Err(wrong),
            }
        }
        Ok(())
    }

    /// E0: results in full, and nothing around them.
    fn run(self, trial: &Trial, how: How) -> Results {
        let failed = |error: KernelError| error.to_string();
        let call = trial.call();
        let results = self.0.results(&call).map_err(failed)?;
        let len = |shape: &[usize]| shape.iter().product::<usize>();
        let guarded =
            |(dtype, shape): &(Dtype, Vec<usize>)| poisoned(*dtype, len(shape) + 2 * GUARD);
        let mut buffers: Vec<Buffer> = results.iter().map(guarded).collect();
        let mut outs: Vec<_> = buffers.iter_mut().map(inner).collect();
        self.0.run(&call, how, &mut outs).map_err(failed)?;
        buffers.iter().zip(&results).map(|(buffer, (_, shape))| unguarded(buffer, shape)).collect()
    }
}

fn poisoned(dtype: Dtype, len: usize) -> Buffer {
    match dtype {
        Dtype::F16 => Buffer::F16(vec![POISON as u16 | 0x7c00; len]),
        Dtype::Bf16 => Buffer::Bf16(vec![(POISON >> 16) as u16; len]),
        _ => Buffer::F32(vec![f32::from_bits(POISON); len]),
    }
}

fn inner(buffer: &mut Buffer) -> mlx_parity_kernels::Out<'_> {
    use mlx_parity_kernels::Out;
    fn within<T>(of: &mut [T]) -> &mut [T] {
        let end = of.len() - GUARD;
        &mut of[GUARD..end]
    }
    match buffer {
        Buffer::F16(of) => Out::F16(within(of)),
        Buffer::Bf16(of) => Out::Bf16(within(of)),
        Buffer::F32(of) => Out::F32(within(of)),
        Buffer::U32(_) | Buffer::I32(_) => unreachable!("results are floats"),
    }
}

fn unguarded(buffer: &Buffer, shape: &[usize]) -> Result<HostTensor, String> {
    let all = buffer.to_host(&[buffer.data().len()]).map_err(|error| error.to_string())?;
    let poison = poisoned(all.dtype(), 1).to_host(&[1]).map_err(|error| error.to_string())?;
    let poison = poison.bits_at(0);
    let end = all.len() - GUARD;
    if (0..GUARD).chain(end..all.len()).any(|at| all.bits_at(at) != poison) {
        return Err("a guard was written".into());
    }
    if let Some(at) = (GUARD..end).find(|&at| all.bits_at(at) == poison) {
        return Err(format!("element {} was not written", at - GUARD));
    }
    let width = all.dtype().size();
    let bytes = all.bytes()[GUARD * width..end * width].to_vec();
    HostTensor::new(all.dtype(), shape, bytes).map_err(|error| error.to_string())
}

fn all_same(found: &[HostTensor], wanted: &[HostTensor]) -> Result<(), String> {
    found.iter().zip(wanted).try_for_each(|(found, wanted)| evidence::same(found, wanted))
}
