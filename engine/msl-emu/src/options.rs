//! How a kernel is run.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How the Metal threads are executed, and what watches them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Fibers, every memory access checked against our own shadow memory: bounds, initialisation, order, ownership.
    Fibers,
    /// Fibers under `AddressSanitizer` (and the undefined-behaviour checks).
    FibersAddress,
    /// Fibers with no checks but guard pages: for speed.
    FibersPlain,
    /// One OS thread for each Metal thread of a group, under `ThreadSanitizer`.
    Threads,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 4] =
        [Self::Fibers, Self::FibersAddress, Self::FibersPlain, Self::Threads];

    /// Name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fibers => "fibers",
            Self::FibersAddress => "fibers-address",
            Self::FibersPlain => "fibers-plain",
            Self::Threads => "threads",
        }
    }
}

/// How to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What executes the threads.
    pub mode: Mode,
    /// Scheduling orders to run, in turn; 0 is the natural order, any other seed permutes threads, simdgroups and groups.
    /// Outputs of all are compared with those of the first. Mode `threads` runs the first only.
    pub seeds: Vec<u64>,
    /// Wall-clock limit for the execution, all seeds together.
    pub time_limit: Duration,
    /// Wall-clock limit for the compiler.
    pub compile_limit: Duration,
    /// Where compiled kernels are kept, by content digest.
    pub cache: PathBuf,
    /// Folders that hold the headers a kernel may include, e.g. `mlx/include` of an MLX wheel.
    pub include: Vec<PathBuf>,
    /// The compiler; `None` takes what the environment variable `CXX` names, else `g++` or `clang++` from `PATH`
    /// (the other way round on macOS).
    pub compiler: Option<PathBuf>,
}

impl Default for Options {
    /// Mode [`Mode::Fibers`], seeds 0, 1, 2, 60 s to run, 120 s to compile, cache in the system's temp folder.
    fn default() -> Self {
        Self {
            mode: Mode::Fibers,
            seeds: vec![0, 1, 2],
            time_limit: Duration::from_mins(1),
            compile_limit: Duration::from_mins(2),
            cache: std::env::temp_dir().join("mlx-parity-msl-emu"),
            include: Vec::new(),
            compiler: None,
        }
    }
}
