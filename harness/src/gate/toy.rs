//! A kernel small enough to see through, for tests of the gate: x² + x, right or wrong at lengths that no tile divides.

use mlx_parity_kernels::{
    Buffer, Call, Candidate, Claim, Data, Expected, How, KernelError, Mutant, Operand, Out, Params,
    Probe, ShapeClass, Source, Spec, Trial,
};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::bank::Composed;
use crate::ops;

/// Elements that the kernel works on at once.
const TILE: usize = 32;

const fn mutant(name: &'static str, what: &'static str) -> Mutant {
    Mutant { name, what, host: true, metal: false }
}

const MUTANTS: &[Mutant] = &[
    mutant("last_dropped", "the last element is not squared"),
    mutant("first_dropped", "the first element is not squared"),
    mutant("scale_off", "the square is off by one percent"),
    mutant("writes_behind", "one element less is written"),
    mutant("tail_in_bf16", "the last tile is rounded once more"),
    mutant("sees_nothing", "a name that nothing asks for"),
];

const fn spec(id: &'static str, claim: Claim) -> Spec {
    Spec {
        id,
        claim,
        baseline: "x * x + x",
        dtypes: &[Dtype::F32, Dtype::Bf16],
        backward: None,
        spread: None,
        min_rows: 1,
        sources: &[Source { path: "toy.rs", text: "x * x + x" }],
        metal: None,
        mutants: MUTANTS,
    }
}

static RIGHT: Spec = spec("toy", Claim::Envelope);
static EXACT: Spec = spec("toy_exact", Claim::Exact);

/// How the toy computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Toy {
    /// As float64 says, rounded once.
    Right,
    /// As its baseline, which rounds twice.
    Exact,
    /// The tail behind the last whole tile is x² alone.
    WrongTail,
    /// It claims the baseline's bits, and rounds once.
    NotExact,
}

impl Candidate for Toy {
    fn spec(&self) -> &'static Spec {
        if matches!(self, Self::Exact | Self::NotExact) { &EXACT } else { &RIGHT }
    }

    fn supported(&self, call: &Call<'_>) -> Result<(), KernelError> {
        call.operand("toy", "x").map(|_| ())
    }

    fn class(&self, _call: &Call<'_>) -> &'static str {
        "rows"
    }

    fn results(&self, call: &Call<'_>) -> Result<Vec<(Dtype, Vec<usize>)>, KernelError> {
        let x = call.operand("toy", "x")?;
        Ok(vec![(x.data.dtype(), x.shape.to_vec())])
    }

    fn run(&self, call: &Call<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
        let x = call.operand("toy", "x")?;
        let dtype = x.data.dtype();
        let mut y: Vec<f64> = elements(&x.data).into_iter().map(|x| self.one(x, dtype)).collect();
        let n = y.len();
        let source = elements(&x.data);
        let last = n / TILE * TILE;
        if *self == Self::WrongTail {
            (last..n).for_each(|i| y[i] = source[i] * source[i]);
        }
        if how.is("last_dropped") {
            y[n - 1] = source[n - 1];
        }
        if how.is("first_dropped") {
            y[0] = source[0];
        }
        if how.is("scale_off") {
            (0..n).for_each(|i| y[i] += 0.01 * source[i] * source[i]);
        }
        if how.is("tail_in_bf16") {
            (last..n).for_each(|i| y[i] = round(y[i], Dtype::Bf16));
        }
        let end = if how.is("writes_behind") { n - 1 } else { n };
        write(&mut out[0], &y[..end]);
        Ok(())
    }

    fn reference(&self, call: &Call<'_>) -> Result<Vec<Vec<f64>>, KernelError> {
        let x = call.operand("toy", "x")?;
        Ok(vec![elements(&x.data).into_iter().map(|x| x * x + x).collect()])
    }

    fn sizes(&self) -> &'static [&'static str] {
        &["n"]
    }

    fn classes(&self) -> &'static [ShapeClass] {
        &[ShapeClass {
            name: "rows",
            what: "any length",
            lattice: &[&[32], &[33], &[64], &[95], &[1], &[256]],
            timed: &[1024],
        }]
    }

    fn trial(&self, _class: &ShapeClass, sizes: &[usize], dtype: Dtype, seed: u64) -> Trial {
        let mut source = ops::Source::new(seed);
        let x: Vec<f64> = (0..sizes[0]).map(|_| source.bell()).collect();
        trial(format!("n={}/seed={seed}", sizes[0]), dtype, &x)
    }

    fn probes(&self, _class: &ShapeClass, dtype: Dtype) -> Vec<Probe> {
        let mut needle = vec![0.0; 45];
        needle[44] = 1.0;
        let probe = |trial, expected| Probe { trial, expected };
        vec![
            probe(trial("needle-last/n=45".to_owned(), dtype, &needle), Expected::Reference),
            probe(
                trial("copy/n=45".to_owned(), dtype, &needle),
                Expected::SameAs(Box::new(trial("other".to_owned(), dtype, &needle))),
            ),
            probe(trial("numbers/n=45".to_owned(), dtype, &needle), Expected::Finite),
        ]
    }
}

impl Toy {
    fn one(self, x: f64, dtype: Dtype) -> f64 {
        if self == Self::Exact { round(x * x, dtype) + x } else { x * x + x }
    }
}

/// The baseline: every op rounds.
pub(crate) struct Ops;

impl Composed for Ops {
    fn baseline(&self, _kernel: &str, call: &Call<'_>) -> Result<Vec<HostTensor>, String> {
        let x = call.operand("toy", "x").map_err(|error| error.to_string())?;
        let dtype = x.data.dtype();
        let y: Vec<f64> = elements(&x.data).into_iter().map(|x| round(x * x, dtype) + x).collect();
        HostTensor::from_f64_as(dtype, x.shape, &y).map(|y| vec![y]).map_err(|e| e.to_string())
    }
}

fn trial(name: String, dtype: Dtype, x: &[f64]) -> Trial {
    let bits = |x: &f64| half::bf16::from_f64(*x).to_bits();
    let buffer = match dtype {
        Dtype::Bf16 => Buffer::Bf16(x.iter().map(bits).collect()),
        _ => Buffer::F32(x.iter().map(|x| *x as f32).collect()),
    };
    Trial {
        name,
        operands: vec![Operand::new("x", [1, x.len()], buffer)],
        params: Params::default(),
    }
}

fn elements(data: &Data<'_>) -> Vec<f64> {
    match data {
        Data::Bf16(x) => x.iter().map(|x| half::bf16::from_bits(*x).to_f64()).collect(),
        Data::F32(x) => x.iter().map(|x| f64::from(*x)).collect(),
        _ => Vec::new(),
    }
}

fn round(x: f64, dtype: Dtype) -> f64 {
    if dtype == Dtype::Bf16 { half::bf16::from_f64(x).to_f64() } else { f64::from(x as f32) }
}

fn write(out: &mut Out<'_>, y: &[f64]) {
    match out {
        Out::F32(out) => out.iter_mut().zip(y).for_each(|(out, y)| *out = *y as f32),
        Out::Bf16(out) => {
            out.iter_mut().zip(y).for_each(|(out, y)| *out = half::bf16::from_f64(*y).to_bits());
        }
        Out::F16(_) => {}
    }
}
