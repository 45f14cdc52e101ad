//! Calls of kernels on arrays.

use mlx_parity_kernels::{Call, Candidate, How, KernelError, Params, candidate};
use mlx_rs::Array;

use super::counters;
use super::defaults::promotes;
use super::deferred::Deferred;
use super::host::Lent;
use super::policy::{Switch, active};
use crate::compiled::is_tracing;
use crate::error::EngineError;

/// Operands by name.
pub(super) type Operands<'a> = [(&'static str, &'a Array)];

/// Runs a kernel by its id on operands that are evaluated first; its results are not yet.
///
/// # Errors
/// [`EngineError::Lever`] for an id that no kernel has, [`EngineError::Kernel`] for a call that it does
/// not take, [`EngineError::KernelInTrace`] while ops are traced, [`EngineError::Op`] where MLX throws.
pub fn run(
    id: &str,
    operands: &Operands<'_>,
    params: Params,
    how: How,
) -> Result<Vec<Array>, EngineError> {
    let candidate = candidate(id).ok_or_else(|| EngineError::Lever {
        found: id.to_owned(),
        wanted: "a kernel that exists".to_owned(),
    })?;
    crate::compiled::custom_kernel_allowed(candidate.spec().id)?;
    let lent = lend(operands)?;
    candidate.supported(&called(operands, &lent, params.clone()))?;
    enqueue(candidate, operands, &lent, params, how)
}

/// Shows the call that [`run`] would make to `look`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn call<T>(
    operands: &Operands<'_>,
    params: Params,
    look: impl FnOnce(&Call<'_>) -> T,
) -> Result<T, EngineError> {
    let lent = lend(operands)?;
    Ok(look(&called(operands, &lent, params)))
}

/// Offers the call of a kernel with so many rows: its results, which MLX computes when it gets to them, or none where the composed ops are to
/// compute them.
///
/// # Errors
/// [`EngineError::Kernel`] and [`EngineError::KernelInTrace`] where the kernel was asked for by name and
/// cannot take the call; else as [`run`].
pub(super) fn offer(
    id: &'static str,
    rows: usize,
    operands: &Operands<'_>,
    params: Params,
) -> Result<Option<Vec<Array>>, EngineError> {
    let (Some(active), Some(candidate)) = (active(), candidate(id)) else { return Ok(None) };
    let lever = active.policy.lever(id);
    let forced = lever.switch == Switch::On;
    if lever.switch == Switch::Off || rows < candidate.spec().min_rows {
        return Ok(None);
    }
    if is_tracing() {
        return if forced {
            Err(EngineError::KernelInTrace { kernel: id.to_owned() })
        } else {
            Ok(None)
        };
    }
    let lent: Vec<Lent> =
        operands.iter().map(|(_, array)| Lent::planned(array)).collect::<Result<_, _>>()?;
    let call = called(operands, &lent, params);
    match candidate.supported(&call) {
        Err(error) if forced => return Err(error.into()),
        Err(_) => return Ok(None),
        Ok(()) => {}
    }
    if !forced && !promotes(candidate, &call)? {
        return Ok(None);
    }
    if !active.takes(id, lever.cap) {
        return Ok(None);
    }
    let how = lever.mutant.map_or(How::new(), |mutant| How::new().mutated(mutant));
    let params = call.params;
    Ok(Some(enqueue(candidate, operands, &lent, params, how)?))
}

/// Whether [`offer`] would look at a call at all: asked before its operands are put together.
pub(super) fn wanted(id: &str) -> bool {
    active().is_some_and(|active| active.policy.lever(id).switch != Switch::Off)
}

/// What [`offer`] says to a call that has no operands for a kernel: none, or an error where the kernel was asked for by
/// name.
pub(super) fn unfit<T>(
    id: &'static str,
    found: &str,
    wanted: &str,
) -> Result<Option<T>, EngineError> {
    match active().map(|active| active.policy.lever(id).switch) {
        Some(Switch::On) => Err(EngineError::Kernel(KernelError::Unsupported {
            kernel: id,
            found: found.to_owned(),
            wanted: wanted.to_owned(),
        })),
        _ => Ok(None),
    }
}

fn lend(operands: &Operands<'_>) -> Result<Vec<Lent>, EngineError> {
    operands.iter().map(|(_, array)| Lent::new(array)).collect()
}

fn called<'a>(operands: &Operands<'_>, lent: &'a [Lent], params: Params) -> Call<'a> {
    let named = operands.iter().zip(lent).map(|((name, _), lent)| (*name, lent.view()));
    Call { operands: named.collect(), params }
}

/// Puts a call that the kernel takes into MLX's graph.
fn enqueue(
    candidate: &'static dyn Candidate,
    operands: &Operands<'_>,
    lent: &[Lent],
    params: Params,
    how: How,
) -> Result<Vec<Array>, EngineError> {
    let call = called(operands, lent, params);
    let results = candidate.results(&call)?;
    let ran = counters::counter(candidate.spec().id, candidate.class(&call));
    let params = call.params;
    let named = operands.iter().zip(lent).map(|((name, _), lent)| (*name, lent.dtype()));
    let deferred = Deferred { candidate, operands: named.collect(), params, how, results, ran };
    deferred.enqueue(&lent.iter().map(Lent::array).collect::<Vec<_>>())
}
