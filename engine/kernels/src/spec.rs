//! What a candidate says of itself.

use mlx_parity_tensor::Dtype;
use sha2::{Digest, Sha256};

use crate::call::{Call, Operand};
use crate::error::KernelError;

/// What a candidate claims about its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The bits of its baseline, on every shape.
    Exact,
    /// Within the envelope: no worse than its baseline against float64.
    Envelope,
}

/// Results that may vary from run to run, and by how much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Where it varies: `host`, `metal` or `cuda`.
    pub backend: &'static str,
    /// The largest difference of two runs, in ULP of the largest output.
    pub ulp: u32,
    /// Why it does.
    pub why: &'static str,
}

/// A deliberately wrong variant: a real bug that somebody could write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mutant {
    /// Its name, `snake_case`; `How::is` asks for it, and the Metal source tests `MUTANT_` and the name.
    pub name: &'static str,
    /// What is wrong with it, in one phrase.
    pub what: &'static str,
    /// The host source has it.
    pub host: bool,
    /// The Metal source has it.
    pub metal: bool,
}

impl Mutant {
    /// A bug of the host source.
    pub const fn host(name: &'static str, what: &'static str) -> Self {
        Self { name, what, host: true, metal: false }
    }

    /// A bug of the Metal source.
    pub const fn metal(name: &'static str, what: &'static str) -> Self {
        Self { name, what, host: false, metal: true }
    }

    /// A bug that both sources have.
    pub const fn both(name: &'static str, what: &'static str) -> Self {
        Self { name, what, host: true, metal: true }
    }
}

/// Lists of mutants end to end.
///
/// # Panics
/// Where they are not `N`: while the crate is compiled.
pub(crate) const fn joined<const N: usize>(lists: &[&[Mutant]]) -> [Mutant; N] {
    let mut all = [Mutant::host("", ""); N];
    let (mut count, mut list) = (0, 0);
    while list < lists.len() {
        let mut at = 0;
        while at < lists[list].len() {
            all[count] = lists[list][at];
            (count, at) = (count + 1, at + 1);
        }
        list += 1;
    }
    assert!(count == N, "as many mutants as there are");
    all
}

/// A file that a kernel is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Its path in this crate.
    pub path: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// The Metal source of a candidate: the body of a `mx.fast.metal_kernel`.
#[derive(Debug, Clone, Copy)]
pub struct Metal {
    /// What stands before the kernel function.
    pub header: Source,
    /// The body of the kernel function.
    pub body: Source,
    /// Names of the inputs, in order, operands and numbers of the launch; it takes those that its call has.
    pub inputs: &'static [&'static str],
    /// Names of the outputs, in order; a launch may leave out the last of them.
    pub outputs: &'static [&'static str],
    /// Strided operands are copied to row-major order first; otherwise the body reads their strides.
    pub row_contiguous: bool,
    /// Outputs are `device atomic<T>*`.
    pub atomic_outputs: bool,
    /// How a call is launched.
    pub launch: fn(&Call<'_>) -> Result<MetalLaunch, KernelError>,
}

/// One launch of a Metal kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct MetalLaunch {
    /// `#define`s put before the header.
    pub defines: Vec<(&'static str, String)>,
    /// Template arguments that are integers.
    pub ints: Vec<(&'static str, i32)>,
    /// Template arguments that are dtypes.
    pub dtypes: Vec<(&'static str, Dtype)>,
    /// Inputs that are no operands: numbers of the call, and what stands for an operand it lacks.
    pub numbers: Vec<Operand>,
    /// Shape and dtype of each output; float32 ones are rounded to the result's dtype by whoever launches.
    pub outputs: Vec<(Dtype, Vec<usize>)>,
    /// Threads in all.
    pub grid: [u32; 3],
    /// Threads of one group.
    pub group: [u32; 3],
    /// What outputs hold before the launch; nothing where absent.
    pub init_value: Option<f32>,
}

/// What a candidate says of itself.
#[derive(Debug)]
pub struct Spec {
    /// Its name, and that of its lever.
    pub id: &'static str,
    /// What it claims.
    pub claim: Claim,
    /// The composed ops it would replace.
    pub baseline: &'static str,
    /// Dtypes of activations it takes.
    pub dtypes: &'static [Dtype],
    /// The candidate that computes its gradients, where it has one.
    pub backward: Option<&'static str>,
    /// Where results may vary from run to run.
    pub spread: Option<Spread>,
    /// Rows (positions of a call) below which the composed path is taken.
    pub min_rows: usize,
    /// The files it is made of, without those all kernels share.
    pub sources: &'static [Source],
    /// Its Metal source, where it has one.
    pub metal: Option<Metal>,
    /// How it can be wrong.
    pub mutants: &'static [Mutant],
}

/// A file of this crate by its path under `src`.
macro_rules! source {
    ($path:literal) => {
        $crate::Source {
            path: $path,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/", $path)),
        }
    };
}
pub(crate) use source;

/// The files that kernels share.
const SHARED: &[Source] = &[
    source!("call.rs"),
    source!("how.rs"),
    source!("lanes.rs"),
    source!("lanes/portable.rs"),
    source!("lanes/avx2.rs"),
    source!("lanes/avx512.rs"),
];

impl Spec {
    /// SHA-256 of every file the kernel is made of, shared ones included, in hex.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for source in SHARED.iter().chain(self.sources) {
            for part in [source.path, source.text] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
