//! What the accepted ledger turns on, here.

use std::cell::RefCell;
use std::sync::OnceLock;

use mlx_parity_kernels::ledger::{Cell, Ledger, LedgerError, Place};
use mlx_parity_kernels::{Call, Candidate};
use mlx_parity_tensor::Dtype;

use crate::error::EngineError;
use crate::runtime::{default_backend, mlx_version};

/// The accepted ledger as it was when this engine was built.
const ACCEPTED: &str = include_str!("../../../goldens/ledger.toml");

/// This process's place.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn here() -> Result<Place, EngineError> {
    Ok(Place {
        backend: default_backend()?.to_owned(),
        chip: std::env::consts::ARCH.to_owned(),
        mlx: mlx_version()?,
    })
}

/// Whether the accepted ledger promotes a kernel for a call.
///
/// # Errors
/// [`EngineError::Ledger`] for a ledger that cannot be read, [`EngineError::Op`] where MLX throws.
pub(super) fn promotes(
    candidate: &'static dyn Candidate,
    call: &Call<'_>,
) -> Result<bool, EngineError> {
    let ledger = ledger()?;
    if ledger.entries().is_empty() {
        return Ok(false);
    }
    let spec = candidate.spec();
    let dtype = call.dtype(spec.id)?;
    let class = candidate.class(call);
    KNOWN.with_borrow_mut(|known| {
        let asked = |one: &Known| one.kernel == spec.id && one.dtype == dtype && one.class == class;
        if let Some(found) = known.iter().find(|one| asked(one)) {
            return Ok(found.promoted);
        }
        let cell = Cell {
            kernel: spec.id.to_owned(),
            place: here()?,
            dtype,
            class: class.to_owned(),
            digest: spec.digest(),
        };
        let promoted = ledger.promotes(&cell);
        known.push(Known { kernel: spec.id, dtype, class, promoted });
        Ok(promoted)
    })
}

/// What the ledger says of a kernel, dtype and class.
struct Known {
    kernel: &'static str,
    dtype: Dtype,
    class: &'static str,
    promoted: bool,
}

thread_local! {
    static KNOWN: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
}

fn ledger() -> Result<&'static Ledger, EngineError> {
    static READ: OnceLock<Result<Ledger, LedgerError>> = OnceLock::new();
    let read = READ.get_or_init(|| Ledger::parse(ACCEPTED)).as_ref();
    read.map_err(|error| EngineError::Ledger { message: error.to_string() })
}
