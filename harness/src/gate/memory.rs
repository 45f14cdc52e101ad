//! Running a candidate on memory that shows what it should not do: results poisoned before, guards around them,
//! operands compared afterwards.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mlx_parity_kernels::{Buffer, Candidate, How, Operand, Out, Trial};
use mlx_parity_tensor::{Dtype, HostTensor};

/// Elements before and behind each result that nobody may write.
const GUARD: usize = 64;

/// What memory holds before a run: NaNs that no arithmetic makes.
#[derive(Debug, Clone, Copy)]
struct Poison {
    single: u32,
    half: u16,
    brain: u16,
}

const POISONS: [Poison; 2] = [
    Poison { single: 0x7fc0_dead, half: 0x7e5a, brain: 0x7fda },
    Poison { single: 0xffc0_beef, half: 0xfe3c, brain: 0xffb6 },
];

/// What a run gave.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The results.
    pub results: Vec<HostTensor>,
    /// What the run did that no kernel may, in words.
    pub misdeeds: Vec<String>,
}

/// Runs a trial.
///
/// # Errors
/// What the candidate says of a call that it refuses, or panics with.
pub fn run(candidate: &dyn Candidate, trial: &Trial, how: How) -> Result<Answer, String> {
    let before = trial.operands.clone();
    let first = once(candidate, trial, how, POISONS[0])?;
    let mut misdeeds = Vec::new();
    if first.iter().any(|(memory, _)| memory.holds(POISONS[0])) {
        let second = once(candidate, trial, how, POISONS[1])?;
        for (k, ((a, _), (b, _))) in first.iter().zip(&second).enumerate() {
            misdeeds.extend(
                a.unwritten(b).map(|at| format!("result {k}: element {at} is not written")),
            );
        }
    }
    for (k, (memory, _)) in first.iter().enumerate() {
        misdeeds.extend(
            memory.trespass().map(|at| format!("result {k}: wrote element {at}, outside of it")),
        );
    }
    for (old, new) in before.iter().zip(&trial.operands) {
        if !same_bits(old, new) {
            misdeeds.push(format!("operand `{}` was changed", old.name));
        }
    }
    let results = first.iter().map(|(memory, shape)| memory.to_host(shape)).collect();
    Ok(Answer { results, misdeeds })
}

type Written = Vec<(Guarded, Vec<usize>)>;

fn once(
    candidate: &dyn Candidate,
    trial: &Trial,
    how: How,
    poison: Poison,
) -> Result<Written, String> {
    let call = trial.call();
    let forms = candidate.results(&call).map_err(|error| error.to_string())?;
    let mut memory = Vec::new();
    for (dtype, shape) in forms {
        let len = shape.iter().product();
        let guarded = Guarded::new(dtype, len, poison);
        memory.push((guarded.ok_or_else(|| format!("a result in {dtype}"))?, shape));
    }
    let mut outs: Vec<Out<'_>> = memory.iter_mut().map(|(guarded, _)| guarded.out()).collect();
    let ran = catch_unwind(AssertUnwindSafe(|| candidate.run(&call, how, &mut outs)));
    drop(outs);
    match ran {
        Ok(done) => done.map(|()| memory).map_err(|error| error.to_string()),
        Err(panic) => Err(format!("it panics: {}", said(panic.as_ref()))),
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

/// Memory of a result between two guards.
#[derive(Debug)]
struct Guarded {
    memory: Buffer,
    len: usize,
    poison: Poison,
}

impl Guarded {
    fn new(dtype: Dtype, len: usize, poison: Poison) -> Option<Self> {
        let all = len + 2 * GUARD;
        let memory = match dtype {
            Dtype::F32 => Buffer::F32(vec![f32::from_bits(poison.single); all]),
            Dtype::F16 => Buffer::F16(vec![poison.half; all]),
            Dtype::Bf16 => Buffer::Bf16(vec![poison.brain; all]),
            _ => return None,
        };
        Some(Self { memory, len, poison })
    }

    fn out(&mut self) -> Out<'_> {
        let inner = GUARD..GUARD + self.len;
        match &mut self.memory {
            Buffer::F32(of) => Out::F32(&mut of[inner]),
            Buffer::F16(of) => Out::F16(&mut of[inner]),
            Buffer::Bf16(of) => Out::Bf16(&mut of[inner]),
            Buffer::U32(_) | Buffer::I32(_) => unreachable!("results are floats"),
        }
    }

    /// Whether an element is as poison left it.
    fn is(&self, at: usize, poison: Poison) -> bool {
        match &self.memory {
            Buffer::F32(of) => of[at].to_bits() == poison.single,
            Buffer::F16(of) => of[at] == poison.half,
            Buffer::Bf16(of) => of[at] == poison.brain,
            Buffer::U32(_) | Buffer::I32(_) => false,
        }
    }

    fn holds(&self, poison: Poison) -> bool {
        (GUARD..GUARD + self.len).any(|at| self.is(at, poison))
    }

    /// The first element that neither of two runs wrote.
    fn unwritten(&self, other: &Self) -> Option<usize> {
        (0..self.len)
            .find(|at| self.is(GUARD + at, self.poison) && other.is(GUARD + at, other.poison))
    }

    /// The first element of a guard that was written, counted from the first of the result.
    fn trespass(&self) -> Option<i64> {
        let guards = (0..GUARD).chain(GUARD + self.len..2 * GUARD + self.len);
        guards.into_iter().find(|at| !self.is(*at, self.poison)).map(|at| at as i64 - GUARD as i64)
    }

    fn to_host(&self, shape: &[usize]) -> HostTensor {
        let inner = GUARD..GUARD + self.len;
        let made = match &self.memory {
            Buffer::F32(of) => HostTensor::from_f32(shape, &of[inner]),
            Buffer::F16(of) => HostTensor::from_f16_bits(shape, &of[inner]),
            Buffer::Bf16(of) => HostTensor::from_bf16_bits(shape, &of[inner]),
            Buffer::U32(_) | Buffer::I32(_) => unreachable!("results are floats"),
        };
        made.expect("as many elements as the shape says")
    }
}

/// NaNs are equal to themselves here.
fn same_bits(a: &Operand, b: &Operand) -> bool {
    match (&a.buffer, &b.buffer) {
        (Buffer::F32(a), Buffer::F32(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
        }
        (a, b) => a == b,
    }
}
