//! `mlx-parity worker` and `logits-worker`: the hidden commands the harness starts itself with.

use super::Result;
#[cfg(feature = "engine")]
use crate::exit::ExitCode;

/// Serves jobs on stdin until it ends.
#[cfg(feature = "engine")]
pub fn run() -> Result {
    crate::worker::serve()?;
    Ok(ExitCode::Held)
}

/// Serves requests for logits on stdin until it ends.
#[cfg(feature = "engine")]
pub fn run_logits() -> Result {
    crate::kl::serve()?;
    Ok(ExitCode::Held)
}

/// Without the engine there is nothing to serve.
#[cfg(not(feature = "engine"))]
pub fn run() -> Result {
    Err(super::Failure::usage("this build has no engine (built with --no-default-features)"))
}

/// Without the engine there is nothing to serve.
#[cfg(not(feature = "engine"))]
pub fn run_logits() -> Result {
    run()
}
