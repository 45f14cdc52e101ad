//! Goldens: frozen oracle answers, each a folder with a manifest and a safetensors file.
//!
//! `goldens/frozen/<class>/<case id>/` holds the accepted ones, the same path ending in `.new` a
//! pending one, and `target/mlx/live/<class>/<case id>/` those frozen on this machine for itself.

mod manifest;
mod review;
mod store;

use std::path::PathBuf;

pub use self::{
    manifest::{Composition, Denoising, GOLDEN_SCHEMA, Manifest, OracleVersion, TensorEntry},
    review::{Pending, accept, accept_live, in_ci, orphans, pending, reject},
    store::{Golden, MANIFEST, Store, TENSORS, freeze_into},
};

/// A golden that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GoldenError {
    /// There is none.
    #[error("no golden at {0}")]
    Missing(PathBuf),
    /// A file could not be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// `read`, `write`, `replace`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The manifest is not one this version reads.
    #[error("{path}: {message}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The tensors are damaged.
    #[error(transparent)]
    Tensors(#[from] mlx_parity_tensor::safetensors::SafetensorsError),
    /// The tensors do not match the manifest.
    #[error("{path}: tensor `{tensor}`: {message}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Found and wanted.
        message: String,
    },
    /// Frozen from something else than what is to be checked.
    #[error("{path} is stale: {message}; freeze it again with `mlx-parity freeze {case}`")]
    Stale {
        /// The manifest.
        path: PathBuf,
        /// What changed.
        message: String,
        /// The case to freeze.
        case: String,
    },
    /// An answer too poor to check anything against.
    #[error(
        "{case}: refusing a degenerate golden: {reason}; choose another prompt, or say why it is \
         meant with `degenerate-because` in the case"
    )]
    Degenerate {
        /// The case.
        case: String,
        /// What it lacks.
        reason: String,
    },
    /// The oracle took other steps than the case names.
    #[error(
        "{case}: the oracle took {found:?} steps on its canvases, the case says {wanted:?}; mend \
         `canvas-steps`"
    )]
    OtherSteps {
        /// The case.
        case: String,
        /// Steps of each canvas.
        found: Vec<usize>,
        /// Those of the case.
        wanted: Vec<usize>,
    },
    /// The oracle computed in another composition than the case names.
    #[error("{case}: the oracle answered in another composition: {message}")]
    OtherComposition {
        /// The case.
        case: String,
        /// Found and wanted.
        message: String,
    },
    /// Goldens are never written in continuous integration.
    #[error("refusing to write goldens while CI is set; freeze and accept them on a desk")]
    InCi,
}
