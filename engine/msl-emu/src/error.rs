//! Why a kernel could not be run at all.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use mlx_parity_tensor::{Dtype, TensorError};

/// A kernel that was not run.
#[derive(Debug, thiserror::Error)]
pub enum EmuError {
    /// A name that cannot be an identifier of the language.
    #[error("{what} `{name}`: wanted a letter or `_`, then letters, digits and `_`")]
    Name {
        /// What is named.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A name that is given twice, or that the language or the wrapper uses.
    #[error("{what} `{name}` is taken already")]
    Taken {
        /// What is named.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// As many arrays as names are needed.
    #[error("kernel `{kernel}` names {wanted} {what}, found {found} arrays")]
    Count {
        /// The kernel.
        kernel: String,
        /// `inputs` or `outputs`.
        what: &'static str,
        /// Names.
        wanted: usize,
        /// Arrays.
        found: usize,
    },
    /// A view that leaves its storage.
    #[error(
        "input `{name}`: shape {shape:?} with strides {strides:?} from element {offset} leaves the {len} elements of its storage"
    )]
    View {
        /// The input.
        name: String,
        /// Shape of the view.
        shape: Vec<usize>,
        /// Its strides.
        strides: Vec<i64>,
        /// Its first element.
        offset: usize,
        /// Elements there are.
        len: usize,
    },
    /// A dtype that Metal kernels of MLX do not have.
    #[error("{what} `{name}`: dtype {} does not exist in a Metal kernel", dtype.name())]
    Dtype {
        /// What has it.
        what: &'static str,
        /// Its name.
        name: String,
        /// The dtype.
        dtype: Dtype,
    },
    /// An empty grid or group.
    #[error("kernel `{kernel}`: {what} {found:?} has a zero")]
    Extent {
        /// The kernel.
        kernel: String,
        /// `grid` or `group`.
        what: &'static str,
        /// As given.
        found: [u32; 3],
    },
    /// More than 1024 threads in a group.
    #[error("kernel `{kernel}`: {found} threads in a group, at most {limit}")]
    GroupTooLarge {
        /// The kernel.
        kernel: String,
        /// Threads asked for.
        found: u64,
        /// Threads allowed.
        limit: u64,
    },
    /// An array beyond what the emulator maps.
    #[error("{what} `{name}` has {bytes} bytes, at most {limit}")]
    TooLarge {
        /// `input` or `output`.
        what: &'static str,
        /// Its name.
        name: String,
        /// Bytes it has.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// A negative template argument, which MLX writes into the function's name.
    #[error(
        "template argument `{name}` is {value}: MLX makes it part of the function's name, which is then no identifier"
    )]
    Negative {
        /// The argument.
        name: String,
        /// Its value.
        value: i32,
    },
    /// A signature that MLX writes wrongly.
    #[error(
        "kernel `{kernel}`: MLX closes the signature after the first of several outputs when the body uses a shape, strides or ndim \
         but no thread attribute; mention one, e.g. thread_position_in_grid"
    )]
    NoAttribute {
        /// The kernel.
        kernel: String,
    },
    /// No order to run, or too many.
    #[error("{found} seeds, wanted 1 to {limit}")]
    Seeds {
        /// Seeds given.
        found: usize,
        /// Seeds allowed.
        limit: usize,
    },
    /// The initial value does not exist in the output's dtype.
    #[error("output `{name}`")]
    Output {
        /// The output.
        name: String,
        /// Why.
        #[source]
        source: TensorError,
    },
    /// A construct that the source rewriter does not support.
    #[error("{file}:{line}: {message}")]
    Unsupported {
        /// The user's file.
        file: String,
        /// Line of it.
        line: u32,
        /// What.
        message: String,
    },
    /// The source does not compile.
    #[error("kernel `{kernel}` does not compile\n{messages}")]
    Compile {
        /// The kernel.
        kernel: String,
        /// File and line of the first error, when it lies in the user's source.
        place: Option<crate::Place>,
        /// The compiler's messages, lines of the user's source.
        messages: String,
    },
    /// No C++20 compiler.
    #[error("no C++20 compiler: {looked}; install clang or g++ (not run)")]
    NoCompiler {
        /// What was looked for.
        looked: String,
    },
    /// The compiler ran past its limit.
    #[error("kernel `{kernel}`: the compiler took longer than {limit:?}")]
    CompileTimeout {
        /// The kernel.
        kernel: String,
        /// The limit.
        limit: Duration,
    },
    /// A file or process could not be used.
    #[error("{doing} {}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The emulator broke its own contract.
    #[error("the emulator failed: {0}")]
    Internal(String),
}
