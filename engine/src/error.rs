//! Every way the engine can refuse or fail.

use std::path::PathBuf;

use mlx_parity_tensor::safetensors::SafetensorsError;
use mlx_parity_tensor::{Dtype, TensorError};
use mlx_rs::error::{AsSliceError, Exception};

use crate::model::Rung;

/// What went wrong, with the file, the found and the wanted where they are known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// MLX threw while an op was built or evaluated.
    #[error("mlx op {op}: {message}")]
    Op {
        /// The op's name as in `mlx.core`.
        op: &'static str,
        /// MLX's own message.
        message: String,
    },
    /// A value was read as a dtype it does not have.
    #[error("{what} has dtype {found}, a read as {wanted} would reinterpret it")]
    WrongDtype {
        /// The thing that was read.
        what: String,
        /// The dtype it has.
        found: String,
        /// The dtype that was asked for.
        wanted: &'static str,
    },
    /// A dtype that only one side of the border between host tensors and MLX arrays knows.
    #[error("dtype {found} cannot cross between host tensors and mlx arrays")]
    NoSuchDtype {
        /// The dtype's name.
        found: String,
    },
    /// A host tensor with an extent MLX cannot index.
    #[error("shape {shape:?} has an extent above 2147483647, the largest mlx can hold")]
    ShapeTooLarge {
        /// The tensor's shape.
        shape: Vec<usize>,
    },
    /// A host tensor that contradicts itself.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A weight file or index that cannot be read.
    #[error(transparent)]
    Safetensors(#[from] SafetensorsError),
    /// A file of the model folder that cannot be opened or read.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A config file that is not what its reader takes: bad JSON, unknown key, missing key, wrong type.
    #[error("{}: {message}", file.display())]
    Config {
        /// The config file.
        file: PathBuf,
        /// What is wrong, naming the key.
        message: String,
    },
    /// A key whose value asks for maths that the reference does not do.
    #[error("{}: `{key}` is {found}, supported: {wanted}", file.display())]
    UnsupportedConfig {
        /// The config file.
        file: PathBuf,
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What is supported.
        wanted: String,
    },
    /// A model type that no architecture here answers to.
    #[error(
        "{}: model_type `{found}` is not supported{}; supported: {}",
        file.display(),
        remap.map(|to| format!(" (mlx-lm runs it as `{to}`)")).unwrap_or_default(),
        supported.join(", ")
    )]
    UnknownModelType {
        /// The config file.
        file: PathBuf,
        /// The value found.
        found: String,
        /// The module mlx-lm maps it to, where it does.
        remap: Option<&'static str>,
        /// All supported types.
        supported: Vec<&'static str>,
    },
    /// A rung of the ladder was asked for that has no network for the config.
    #[error(
        "{}: model_type `{model_type}` has no {} network for this config",
        file.display(),
        rung.map_or("fitting", Rung::name)
    )]
    NoSuchRung {
        /// The config file.
        file: PathBuf,
        /// The type, after mlx-lm's remap.
        model_type: String,
        /// The rung asked for.
        rung: Option<Rung>,
    },
    /// The checkpoint and the architecture disagree on which tensors exist or how they look.
    #[error("{}: {}", dir.display(), audit_text(missing, unexpected, unfit))]
    WeightAudit {
        /// The model folder.
        dir: PathBuf,
        /// Tensors the architecture needs and the checkpoint lacks.
        missing: Vec<String>,
        /// Tensors the checkpoint holds and nothing reads.
        unexpected: Vec<String>,
        /// Tensors of another shape or dtype than the architecture needs, each with found and wanted.
        unfit: Vec<String>,
    },
    /// A call that decodes token by token, on a model that does not.
    #[error(
        "`{model_type}` does not decode token by token: it denoises a canvas; call `Model::denoise`"
    )]
    NotAutoregressive {
        /// The model's type.
        model_type: &'static str,
    },
    /// A canvas asked of a model that decodes token by token.
    #[error(
        "`{model_type}` denoises no canvas: it decodes token by token; use a `Decoder` or `generate`"
    )]
    NotDiffusion {
        /// The model's type.
        model_type: &'static str,
    },
    /// An option of a denoising run outside its range.
    #[error("denoising option `{option}` is {found}, wanted {wanted}")]
    DenoiseOption {
        /// The option.
        option: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        wanted: &'static str,
    },
    /// A prompt without a token.
    #[error("the prompt is empty; at least one token id is needed")]
    EmptyPrompt,
    /// More tokens than the model has positions for.
    #[error("the sequence would have {found} tokens, the model has {limit} positions")]
    PastContext {
        /// Tokens there would be.
        found: usize,
        /// Positions there are.
        limit: usize,
    },
    /// A token id outside the embedding table.
    #[error("token id {id} at position {position} is outside the vocabulary of {vocab_size}")]
    TokenOutOfRange {
        /// The id.
        id: u32,
        /// Its place in the given ids.
        position: usize,
        /// The number of rows of the embedding.
        vocab_size: usize,
    },
    /// A prefill chunk length of zero.
    #[error("prefill_step_size is 0; at least 1 is needed")]
    ZeroPrefillStep,
    /// A call on a decoder whose caches an earlier failure left half-updated.
    #[error("the decoder failed in an earlier call and its caches are incomplete; make a new one")]
    DecoderFailed,
    /// Rows of a batch that differ in length.
    #[error("row {row} of the batch has {found} tokens, row 0 has {wanted}; there is no padding")]
    UnequalRows {
        /// The row, counted from 0.
        row: usize,
        /// Its length.
        found: usize,
        /// The length of the first row.
        wanted: usize,
    },
    /// A call with another number of rows than the caches hold.
    #[error("the call has {found} rows, the caches hold {wanted} sequences")]
    BatchSize {
        /// Rows of the call.
        found: usize,
        /// Sequences in the caches.
        wanted: usize,
    },
    /// A trim of caches of which one has forgotten positions or keeps none.
    #[error(
        "layer {layer} has seen {seen} positions and {}: it cannot be trimmed",
        if *recurrent { "keeps only what they add up to" } else { "its window has wrapped" }
    )]
    NotTrimmable {
        /// The first such layer, counted from 0.
        layer: usize,
        /// Positions it has seen.
        seen: usize,
        /// Whether it is a recurrent layer, rather than a window that has wrapped.
        recurrent: bool,
    },
    /// A model or decoder whose sequences cannot stand beside others.
    #[error("`{model}` cannot decode several requests side by side: {why}")]
    NotBatchable {
        /// The model's type.
        model: String,
        /// Why.
        why: &'static str,
    },
    /// A request that is not in the batch.
    #[error("request {row} is not in the batch: it has left, or never joined")]
    NoSuchRow {
        /// Its number.
        row: u64,
    },
    /// Ids that are not those of the tokens in a decoder.
    #[error("{found} ids were given for a decoder that has seen {wanted} tokens")]
    PrefixLength {
        /// Ids given.
        found: usize,
        /// Tokens seen.
        wanted: usize,
    },
    /// A compiled mode asked of a network that has no segments to compile.
    #[error(
        "the {rung} network of `{model_type}` has no segments to compile; decode eagerly, or load \
         the model with another rung"
    )]
    NotCompilable {
        /// The model's type.
        model_type: &'static str,
        /// The rung of the ladder it was loaded from.
        rung: &'static str,
    },
    /// MLX does not compile here, or failed to compile a kernel it generated.
    #[error("a compiled decode step cannot run: {message}")]
    NotCompiled {
        /// Why.
        message: String,
    },
    /// A kernel of one's own in a trace.
    #[error("kernel `{kernel}` cannot be part of a compiled trace: mlx infers no shapes for it")]
    KernelInTrace {
        /// The kernel.
        kernel: String,
    },
    /// A call that a kernel does not take, though it was asked for by name.
    #[error(transparent)]
    Kernel(#[from] mlx_parity_kernels::KernelError),
    /// The accepted ledger of kernels cannot be read.
    #[error("goldens/ledger.toml: {message}")]
    Ledger {
        /// What is wrong with it.
        message: String,
    },
    /// A lever, or a position of one, that does not exist.
    #[error("kernel lever `{found}`: wanted {wanted}")]
    Lever {
        /// What was given.
        found: String,
        /// What there is.
        wanted: String,
    },
    /// A failure that [`Decoder::fail_next_step`](crate::Decoder::fail_next_step) asked for.
    #[error("made to fail at: {point}")]
    Injected {
        /// The point.
        point: String,
    },
    /// A rollback over more tokens than the caches can take back.
    #[error(
        "{found} tokens were to be taken back; the caches can take back {revocable}, those of the last \
         call or since the last checkpoint"
    )]
    NotRevocable {
        /// Tokens asked for.
        found: usize,
        /// Tokens that can be.
        revocable: usize,
    },
    /// An option of speculative decoding outside its range, or a draft model that does not fit.
    #[error("speculative decoding: `{option}` is {found}, wanted {wanted}")]
    SpeculateOption {
        /// The option.
        option: &'static str,
        /// What it is.
        found: String,
        /// What it may be.
        wanted: String,
    },
    /// Extents of a mask that no cache can have.
    #[error(
        "a mask's {what} is {found}, wanted at least {least}{}",
        if *most == i32::MAX { String::new() } else { format!(" and at most {most}") }
    )]
    MaskRule {
        /// The extent.
        what: &'static str,
        /// What it is.
        found: i32,
        /// The least it may be.
        least: i32,
        /// The most it may be.
        most: i32,
    },
    /// A layer's cache of another kind, or with other extents, than the layer's own.
    #[error("the cache of a layer holds {found}, wanted {wanted}")]
    CacheForm {
        /// What it holds, or was to hold.
        found: String,
        /// What the layer needs.
        wanted: String,
    },
    /// A composition that the model cannot carry.
    #[error("composition: {what} is {found}, wanted {wanted}")]
    Composition {
        /// What does not fit.
        what: String,
        /// What it is.
        found: String,
        /// What it must be.
        wanted: String,
    },
    /// Saved caches of another model, or a file that contradicts itself.
    #[error("{}: {what} is {found}, wanted {wanted}", file.display())]
    SavedCaches {
        /// The file.
        file: PathBuf,
        /// What does not fit.
        what: String,
        /// What it is.
        found: String,
        /// What it must be.
        wanted: String,
    },
    /// A sequence that crosses the length at which its rotations change, in caches from a file.
    #[error(
        "the rotations change where a sequence gets longer than {limit} tokens, and the ids behind \
         loaded caches, which would have to be run again, are not known; prefill the whole sequence"
    )]
    LostIds {
        /// The longest sequence before the change.
        limit: usize,
    },
    /// A way of training that needs a network in stages.
    #[error(
        "the {rung} network of `{model_type}` cannot be cut between layers, as {wanted} needs; load the \
         model with another rung, or train it whole"
    )]
    NotStaged {
        /// The model's type.
        model_type: String,
        /// The rung of the ladder it was loaded from.
        rung: &'static str,
        /// What was asked for.
        wanted: &'static str,
    },
    /// An option of training outside its range.
    #[error("training option `{option}` is {found}, wanted {wanted}")]
    TrainOption {
        /// The option.
        option: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        wanted: &'static str,
    },
    /// A change of adapters while one is fused.
    #[error("an adapter is fused into the weights; unfuse it first")]
    AdapterFused,
    /// A fusion where there is nothing to fuse.
    #[error("no adapter is mounted that could be fused")]
    NoAdapter,
    /// A fault name that does not exist.
    #[error("fault `{found}` does not exist; known: {}", known.join(", "))]
    UnknownFault {
        /// The name given.
        found: String,
        /// All names.
        known: &'static [&'static str],
    },
    /// A kind of processor that this MLX has none of.
    #[error("no {wanted} to compute on: this is {found}")]
    NoProcessor {
        /// The kind asked for.
        wanted: crate::runtime::Processor,
        /// The MLX that runs.
        found: String,
    },
    /// A deliberate fault asked of a build without debug assertions.
    #[error(
        "fault `{name}` is refused: deliberate faults exist only in builds with debug assertions"
    )]
    FaultsCompiledOut {
        /// The fault's name.
        name: String,
    },
    /// An option of a sampler outside its range.
    #[error("sampler option `{option}` is {found}, wanted {wanted}")]
    SamplerOption {
        /// The option, by its name in mlx-lm.
        option: &'static str,
        /// The value found.
        found: String,
        /// What is taken.
        wanted: String,
    },
    /// A tokenizer file that cannot be read, or a text or id it cannot turn.
    #[error("{}: {message}", file.display())]
    Tokenizer {
        /// The tokenizer file.
        file: PathBuf,
        /// The library's reason.
        message: String,
    },
}

impl EngineError {
    /// The error as [`EngineError::NotCompiled`] where it is of a kernel that MLX generated and could not
    /// compile or load.
    pub(crate) fn of_a_kernel(self) -> Self {
        match self {
            Self::Op { message, .. } if message.contains("[Compile::eval_cpu]") => {
                Self::NotCompiled { message }
            }
            other => other,
        }
    }
}

/// Names the op on whatever MLX threw.
pub(crate) fn op<T, E: Into<MlxFailure>>(
    op: &'static str,
    result: Result<T, E>,
) -> Result<T, EngineError> {
    result.map_err(|error| EngineError::Op { op, message: error.into().0 })
}

/// The message of any error type that mlx-rs returns.
#[derive(Debug)]
pub(crate) struct MlxFailure(String);

impl From<Exception> for MlxFailure {
    fn from(error: Exception) -> Self {
        Self(error.what().to_owned())
    }
}

impl From<AsSliceError> for MlxFailure {
    fn from(error: AsSliceError) -> Self {
        Self(error.to_string())
    }
}

/// The error for a dtype that cannot cross the border.
pub(crate) fn no_such_dtype(found: Dtype) -> EngineError {
    EngineError::NoSuchDtype { found: found.name().to_owned() }
}

fn audit_text(missing: &[String], unexpected: &[String], unfit: &[String]) -> String {
    [("missing", missing), ("read by nothing", unexpected), ("unfit", unfit)]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("{} {what}: {}", tensors(names.len()), names.join(", ")))
        .collect::<Vec<_>>()
        .join("; ")
}

fn tensors(count: usize) -> String {
    if count == 1 { "1 tensor".to_owned() } else { format!("{count} tensors") }
}
