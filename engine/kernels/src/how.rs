//! How a kernel is run: on which instructions, and with which of its bugs.

/// Which instructions a kernel's inner loops use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Path {
    /// The widest that this processor has.
    #[default]
    Auto,
    /// Those of the target's baseline, which the compiler vectorises as far as they go.
    Portable,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512.
    Avx512,
}

/// How one call of a kernel is to be run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct How {
    /// The instructions.
    pub path: Path,
    mutant: Option<&'static str>,
}

impl How {
    /// Whether this build has the mutants in it: those with debug assertions.
    pub const MUTANTS: bool = cfg!(debug_assertions);

    /// As the kernel is meant, on the widest instructions.
    pub const fn new() -> Self {
        Self { path: Path::Auto, mutant: None }
    }

    /// The same on the given instructions.
    #[must_use]
    pub const fn on(mut self, path: Path) -> Self {
        self.path = path;
        self
    }

    /// The same with a bug; none in builds without mutants.
    #[must_use]
    pub const fn mutated(mut self, mutant: &'static str) -> Self {
        self.mutant = Some(mutant);
        self
    }

    /// Whether the kernel is to have this bug. Always `false` in builds without mutants.
    pub fn is(&self, mutant: &str) -> bool {
        Self::MUTANTS && self.mutant == Some(mutant)
    }
}
