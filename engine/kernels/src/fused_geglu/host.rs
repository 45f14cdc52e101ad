//! `gelu_approx(gate) * up` on the host. Of 16-bit formats the activation is a table; in f32 it asks the C
//! library for cubes and tanh, as MLX does.

use std::sync::OnceLock;

use mlx_parity_tensor::Dtype;

use super::Pair;
use crate::call::Out;
use crate::error::KernelError;
use crate::exact;
use crate::how::How;
use crate::numbers::{Bf16, F16, F32, Format};
use crate::parallel;
use crate::rows::Rows;

/// Elements of a block of the inner loop.
const BLOCK: usize = 16;
/// Multiply-adds that an element costs as much as.
const COST: usize = 32;

/// A format with an activation that is fast in it.
trait Gelu: Format {
    /// What the activation looks up.
    type Table: Copy + Send + Sync;

    /// The table of `nn.gelu_approx`, made once.
    fn table() -> Self::Table;
    /// `nn.gelu_approx` of a number, rounded to the format.
    fn gelu(table: Self::Table, bits: Self::Bits) -> f32;
}

impl Gelu for F32 {
    type Table = ();

    fn table() {}

    #[inline(always)]
    fn gelu((): (), bits: f32) -> f32 {
        exact::gelu_approx::<Self>(bits)
    }
}

type Table = [u16; 1 << 16];

/// `nn.gelu_approx` of every number of a 16-bit format.
fn tabulate<F: Format<Bits = u16>>() -> Box<Table> {
    let all = (0..=u16::MAX).map(|bits| F::narrow(exact::gelu_approx::<F>(F::widen(bits))));
    all.collect::<Box<[u16]>>().try_into().expect("one entry for each number")
}

impl Gelu for F16 {
    type Table = &'static Table;

    fn table() -> &'static Table {
        static TABLE: OnceLock<Box<Table>> = OnceLock::new();
        TABLE.get_or_init(tabulate::<Self>)
    }

    #[inline(always)]
    fn gelu(table: &'static Table, bits: u16) -> f32 {
        Self::widen(table[usize::from(bits)])
    }
}

impl Gelu for Bf16 {
    type Table = &'static Table;

    fn table() -> &'static Table {
        static TABLE: OnceLock<Box<Table>> = OnceLock::new();
        TABLE.get_or_init(tabulate::<Self>)
    }

    #[inline(always)]
    fn gelu(table: &'static Table, bits: u16) -> f32 {
        Self::widen(table[usize::from(bits)])
    }
}

/// Computes a call.
pub(crate) fn run(
    kernel: &'static str,
    pair: Pair<'_>,
    how: How,
    out: &mut [Out<'_>],
) -> Result<(), KernelError> {
    let results = out.len();
    let malformed =
        || KernelError::Malformed { kernel, what: format!("{results} results, wanted 1") };
    let [out] = out else { return Err(malformed()) };
    match pair.gate.data.dtype() {
        Dtype::F16 => run_in::<F16>(kernel, pair, how, out),
        Dtype::Bf16 => run_in::<Bf16>(kernel, pair, how, out),
        _ => run_in::<F32>(kernel, pair, how, out),
    }
}

fn run_in<F: Gelu>(
    kernel: &'static str,
    pair: Pair<'_>,
    how: How,
    out: &mut Out<'_>,
) -> Result<(), KernelError> {
    let malformed = |what: &str| KernelError::Malformed { kernel, what: what.into() };
    let len = pair.gate.len();
    let rows = Rows::<F>::of([pair.gate, pair.up]).ok_or_else(|| malformed("operands differ"))?;
    let out = F::out(out).ok_or_else(|| malformed("the result has another dtype"))?;
    if out.len() != len {
        return Err(malformed("the result has another length"));
    }
    let [mut gate, mut up] = rows;
    if how.is("strides_ignored") {
        (gate, up) = (gate.without_gaps(), up.without_gaps());
    }
    if how.is("operands_swapped") {
        (gate, up) = (up, gate);
    }
    let wrong = wrong_activation::<F>(how);
    let table = F::table();
    parallel::chunks(out, gate.width(), len * COST, |row, out| {
        let (gate, up) = (gate.row(row, out.len()), up.row(row, out.len()));
        match wrong {
            None => blocks::<F>(&gate, &up, out, how, |bits| F::gelu(table, bits)),
            Some(wrong) => blocks::<F>(&gate, &up, out, how, |bits| wrong(F::widen(bits))),
        }
    });
    Ok(())
}

/// One row, block by block.
#[inline(always)]
fn blocks<F: Format>(
    gate: &[F::Bits],
    up: &[F::Bits],
    out: &mut [F::Bits],
    how: How,
    gelu: impl Fn(F::Bits) -> f32,
) {
    let mut act = [0.0; BLOCK];
    let (skip, stale) = (how.is("tail_skipped"), how.is("stale_tail"));
    for ((gate, up), out) in gate.chunks(BLOCK).zip(up.chunks(BLOCK)).zip(out.chunks_mut(BLOCK)) {
        let partial = gate.len() < BLOCK;
        if partial && skip {
            return;
        }
        if !(partial && stale) {
            act.iter_mut().zip(gate).for_each(|(act, &gate)| *act = gelu(gate));
        }
        for ((out, &act), &up) in out.iter_mut().zip(&act).zip(up) {
            *out = F::narrow(act * F::widen(up));
        }
    }
}

/// A function of one number.
type Activation = fn(f32) -> f32;

/// The activation under a bug in it.
fn wrong_activation<F: Format>(how: How) -> Option<Activation> {
    let known: [(_, Activation); 7] = [
        ("erf_gelu", |x| {
            let bend = exact::erf::<F>(F::round(x / F::round(std::f32::consts::SQRT_2)));
            F::round(F::round(x * F::round(1.0 + bend)) / 2.0)
        }),
        ("sigmoid_gelu", |x| F::round(x * exact::sigmoid::<F>(F::round(F::round(1.702) * x)))),
        ("slope_off", |x| {
            F::round(0.5 * x * (1.0 + (0.805_86 * (x + 0.044_715 * x * x * x)).tanh()))
        }),
        ("cube_forgotten", |x| F::round(0.5 * x * (1.0 + (0.797_884_6 * x).tanh()))),
        ("half_forgotten", |x| F::round(2.0 * exact::gelu_approx::<F>(x))),
        ("step_unrounded", |x| {
            let (x, slope) = (f64::from(x), (2.0 / std::f64::consts::PI).sqrt());
            F::round((0.5 * x * (1.0 + (slope * (x + 0.044_715 * x * x * x)).tanh())) as f32)
        }),
        ("needless_rounding", |x| F::round(Bf16::round(exact::gelu_approx::<F>(x)))),
    ];
    known.into_iter().find(|(name, _)| how.is(name)).map(|(_, wrong)| wrong)
}
