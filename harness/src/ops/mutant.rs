//! Deliberate faults of ops, each of a kind seen in real engines. The judge must catch every one.

use mlx_parity_oracles::{Convention, Tensor64, format, ops::Op};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::{Argument, Call, Source, SuiteError, fake::rounded, suite};

/// A deliberate fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// The last element of each row is not read.
    DroppedTail,
    /// The answer is the one to the call before.
    StaleOutput,
    /// A causal mask starts at the first key, not at the last.
    SwappedMaskCorner,
    /// A norm's weight is used where one plus it is meant.
    ForgottenOnePlus,
    /// Sums are kept in the half type of the operands.
    HalfAccumulator,
    /// Operands in another layout are read as if contiguous.
    WrongStride,
    /// A window sees one key too many.
    WindowOffByOne,
    /// The tanh approximation of gelu for the exact one.
    SwappedGelu,
    /// NaN is not moved to the end of a sorted row.
    UnsortedNan,
    /// Quotients truncate where they should floor.
    TruncatingDivision,
    /// Rope pairs neighbours for halves, and halves for neighbours.
    RopePairing,
    /// Scales are rounded to bf16 before use.
    ScaleDtype,
}

impl Mutant {
    /// Every mutant.
    pub const ALL: [Self; 12] = [
        Self::DroppedTail,
        Self::StaleOutput,
        Self::SwappedMaskCorner,
        Self::ForgottenOnePlus,
        Self::HalfAccumulator,
        Self::WrongStride,
        Self::WindowOffByOne,
        Self::SwappedGelu,
        Self::UnsortedNan,
        Self::TruncatingDivision,
        Self::RopePairing,
        Self::ScaleDtype,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DroppedTail => "dropped tail",
            Self::StaleOutput => "stale output",
            Self::SwappedMaskCorner => "swapped mask corner",
            Self::ForgottenOnePlus => "forgotten 1+w",
            Self::HalfAccumulator => "f16 accumulator",
            Self::WrongStride => "wrong stride",
            Self::WindowOffByOne => "off-by-one window",
            Self::SwappedGelu => "swapped gelu",
            Self::UnsortedNan => "unsorted NaN",
            Self::TruncatingDivision => "truncating division",
            Self::RopePairing => "rope traditional swapped",
            Self::ScaleDtype => "scale in the wrong dtype",
        }
    }

    /// The ops it lives in.
    pub const fn ops(self) -> &'static [Op] {
        match self {
            Self::DroppedTail => &[Op::Sum, Op::Max, Op::Logsumexp, Op::Softmax, Op::RmsNorm],
            Self::StaleOutput => &[Op::Exp, Op::Add, Op::Softmax, Op::Take, Op::Matmul],
            Self::SwappedMaskCorner | Self::WindowOffByOne => &[Op::Sdpa],
            Self::ForgottenOnePlus => &[Op::RmsNorm],
            Self::HalfAccumulator => &[Op::Sum, Op::Mean, Op::Cumsum],
            Self::WrongStride => &[Op::Add, Op::Sum, Op::Softmax, Op::Take, Op::Sort],
            Self::SwappedGelu => &[Op::Gelu],
            Self::UnsortedNan => &[Op::Sort],
            Self::TruncatingDivision => &[Op::FloorDivide, Op::Remainder],
            Self::RopePairing => &[Op::Rope],
            Self::ScaleDtype => &[Op::Dequantize],
        }
    }

    /// The convention that a row must name, for a mutant that follows one.
    pub const fn convention(self) -> Option<Convention> {
        match self {
            Self::SwappedMaskCorner => Some(Convention::CausalTopLeft),
            Self::ForgottenOnePlus => Some(Convention::NormWithoutOne),
            Self::WindowOffByOne => Some(Convention::WindowPlusOne),
            Self::SwappedGelu => Some(Convention::GeluTanh),
            Self::TruncatingDivision => Some(Convention::DivisionTruncates),
            Self::RopePairing => Some(Convention::RopePairing),
            _ => None,
        }
    }

    /// What it answers, or `None` where the call is not touched by it.
    pub(super) fn outputs(
        self,
        call: &Call,
        operands: &[HostTensor],
        strided: bool,
    ) -> Result<Option<Vec<HostTensor>>, SuiteError> {
        if !self.ops().contains(&call.op) {
            return Ok(None);
        }
        match self {
            Self::DroppedTail => answered(call, &without_tails(operands)?),
            Self::WrongStride if strided => answered(call, &misread(operands)?),
            Self::ScaleDtype => answered(call, &with_coarse_scales(operands)?),
            Self::HalfAccumulator => half_sums(call, operands),
            Self::UnsortedNan => nan_left_in_place(operands).map(Some),
            Self::SwappedGelu => answered(&Call { op: Op::GeluTanh, ..call.clone() }, operands),
            Self::WindowOffByOne => wider_window(call, operands),
            Self::RopePairing => with_argument(call, operands, "traditional", |argument| {
                if let Argument::Bool(b) = argument { Argument::Bool(!b) } else { argument }
            }),
            Self::TruncatingDivision => truncated(call, operands),
            Self::SwappedMaskCorner | Self::ForgottenOnePlus => by_convention(self, call, operands),
            Self::StaleOutput | Self::WrongStride => Ok(None),
        }
    }
}

type Wrong = Result<Option<Vec<HostTensor>>, SuiteError>;

fn answered(call: &Call, operands: &[HostTensor]) -> Wrong {
    Ok(Some(rounded(call, &suite(call.op).reference(call, operands)?)?))
}

fn with_argument(
    call: &Call,
    operands: &[HostTensor],
    name: &str,
    change: impl Fn(Argument) -> Argument,
) -> Wrong {
    let mut call = call.clone();
    let Some(argument) = call.arguments.remove(name) else { return Ok(None) };
    call.arguments.insert(name.to_owned(), change(argument));
    answered(&call, operands)
}

/// The boolean mask of the call with one key more in its window.
fn wider_window(call: &Call, operands: &[HostTensor]) -> Wrong {
    let mut wider = call.clone();
    let Some(Argument::Int(window)) = call.arguments.get("window") else { return Ok(None) };
    wider.arguments.insert("window".to_owned(), Argument::Int(window + 1));
    let made = suite(call.op).operands(&wider, &mut Source::new(call.seed()))?;
    let pairs = made.into_iter().zip(operands);
    let masked =
        pairs.map(|(made, own)| if made.dtype() == Dtype::Bool { made } else { own.clone() });
    answered(call, &masked.collect::<Vec<_>>())
}

/// Answers as the suite itself answers under the convention.
fn by_convention(mutant: Mutant, call: &Call, operands: &[HostTensor]) -> Wrong {
    let conventions = suite(call.op).conventions(call, operands)?;
    let mine = conventions.iter().find(|(convention, _)| Some(*convention) == mutant.convention());
    mine.map(|(_, answers)| rounded(call, answers)).transpose()
}

/// The last element of each row of the first operand replaced by zero, as if never accumulated.
fn without_tails(operands: &[HostTensor]) -> Result<Vec<HostTensor>, SuiteError> {
    let mut operands = operands.to_vec();
    if let Some(first) = operands.first_mut() {
        let width = first.shape().last().copied().unwrap_or(1).max(1);
        let mut values = first.to_f64();
        values.iter_mut().skip(width - 1).step_by(width).for_each(|v| *v = 0.0);
        *first = HostTensor::from_f64_as(first.dtype(), first.shape(), &values)?;
    }
    Ok(operands)
}

/// The first operand with its elements in column-major order.
fn misread(operands: &[HostTensor]) -> Result<Vec<HostTensor>, SuiteError> {
    let mut operands = operands.to_vec();
    if let Some(first) = operands.first_mut() {
        let width = first.shape().last().copied().unwrap_or(1).max(1);
        let (values, rows) = (first.to_f64(), first.len() / width);
        let moved = |i: usize| values[i % rows * width + i / rows];
        let moved: Vec<f64> = (0..values.len()).map(moved).collect();
        *first = HostTensor::from_f64_as(first.dtype(), first.shape(), &moved)?;
    }
    Ok(operands)
}

/// Float operands after the first, rounded to bf16.
fn with_coarse_scales(operands: &[HostTensor]) -> Result<Vec<HostTensor>, SuiteError> {
    let mut operands = operands.to_vec();
    for scales in operands.iter_mut().skip(1).filter(|operand| operand.dtype() == Dtype::F32) {
        let values: Vec<f64> = scales.to_f64().iter().map(|&v| format::BF16.round(v)).collect();
        *scales = HostTensor::from_f64_as(Dtype::F32, scales.shape(), &values)?;
    }
    Ok(operands)
}

/// Sums of rows with every partial sum rounded to the operands' half type.
fn half_sums(call: &Call, operands: &[HostTensor]) -> Wrong {
    let format = match call.dtype {
        Dtype::F16 => format::F16,
        Dtype::Bf16 => format::BF16,
        _ => return Ok(None),
    };
    let [x] = operands else { return Ok(None) };
    let right = suite(call.op).reference(call, operands)?;
    let width = x.shape().last().copied().unwrap_or(1).max(1);
    let values = x.to_f64();
    let running: Vec<f64> = values
        .chunks(width)
        .flat_map(|row| {
            row.iter().scan(0.0, |sum, v| {
                *sum = format.round(*sum + v);
                Some(*sum)
            })
        })
        .collect();
    let sums: Vec<f64> = running.chunks(width).map(|row| row[width - 1]).collect();
    let outputs = match call.op {
        Op::Cumsum => running,
        Op::Mean => sums.iter().map(|sum| sum / width as f64).collect(),
        _ => sums,
    };
    let value = &right[0].value;
    if outputs.len() != value.len() {
        // Reduced over other axes than the last.
        return Ok(None);
    }
    Ok(Some(vec![HostTensor::from_f64_as(call.dtype, value.shape(), &outputs)?]))
}

/// Rows sorted around their NaNs, which stay where they are.
fn nan_left_in_place(operands: &[HostTensor]) -> Result<Vec<HostTensor>, SuiteError> {
    let x = &operands[0];
    let width = x.shape().last().copied().unwrap_or(1).max(1);
    let mut values = x.to_f64();
    for row in values.chunks_mut(width) {
        let mut numbers: Vec<f64> = row.iter().copied().filter(|v| !v.is_nan()).collect();
        numbers.sort_by(f64::total_cmp);
        let mut numbers = numbers.into_iter();
        for value in row.iter_mut().filter(|value| !value.is_nan()) {
            *value = numbers.next().unwrap_or(*value);
        }
    }
    Ok(vec![HostTensor::from_f64_as(x.dtype(), x.shape(), &values)?])
}

/// C's division and remainder.
fn truncated(call: &Call, operands: &[HostTensor]) -> Wrong {
    let right = suite(call.op).reference(call, operands)?;
    let shape = right[0].value.shape().to_vec();
    let wide =
        |x: &HostTensor| Tensor64::from_host(x).broadcast_to(&shape).map(Tensor64::into_data);
    let (a, b) = (wide(&operands[0])?, wide(&operands[1])?);
    let c = |a: f64, b: f64| if call.op == Op::Remainder { a % b } else { (a / b).trunc() };
    let values: Vec<f64> = a.iter().zip(&b).map(|(a, b)| c(*a, *b)).collect();
    let fits = call.dtype.is_float() || b.iter().all(|b| *b != 0.0);
    if !fits {
        return Ok(None);
    }
    Ok(Some(vec![HostTensor::from_f64_as(call.dtype, shape, &values)?]))
}
