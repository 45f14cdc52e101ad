//! `mlx-parity generate`: the engine speaks.

use std::path::PathBuf;

#[cfg(feature = "engine")]
use super::say;
use super::{Common, Result};

/// Let the engine continue a prompt, greedily, with the kernels that the accepted ledger turns on
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A model from goldens/models.toml, or a folder with config.json and safetensors
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// The prompt
    #[arg(long)]
    pub prompt: String,
    /// Tokens at most
    #[arg(long, default_value_t = 64)]
    pub max_tokens: usize,
    /// Kernels otherwise: ID=off|promoted|on,…; `MLX_PARITY_KERNELS` comes after it
    #[arg(long, value_name = "LEVERS", default_value = "")]
    pub levers: String,
}

/// Runs the command: this is the one place where the engine runs in the program's own process.
#[cfg(feature = "engine")]
pub fn run(common: &Common, args: &Args) -> Result {
    use std::ops::ControlFlow;

    use mlx_parity_engine::{
        GenerateOptions, LoadOptions, Model, Tokenizer, generate, kernels::Policy,
    };

    use super::Failure;
    use crate::exit::ExitCode;

    let dir = common.model_folder(&args.model)?;
    let engine = |error: mlx_parity_engine::EngineError| Failure::new(ExitCode::Mismatch, error);
    let model = Model::load(&dir, &LoadOptions::default()).map_err(engine)?;
    let tokenizer = Tokenizer::load(&dir).map_err(engine)?;
    let prompt = tokenizer.encode(&args.prompt).map_err(engine)?;
    let levers = Policy::l3().with(&args.levers).and_then(Policy::with_environment);
    let mut options = GenerateOptions::for_model(&model, args.max_tokens);
    options.composition.kernels = levers.map_err(Failure::usage)?;
    let mut said = Said { tokenizer: &tokenizer, ids: prompt.clone(), shown: String::new() };
    let mut failed = said.show().err();
    generate(&model, &prompt, &options, |id| {
        said.ids.push(id);
        match said.show() {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed.get_or_insert(error);
                ControlFlow::Break(())
            }
        }
    })
    .map_err(engine)?;
    failed.map_or(Ok(()), Err)?;
    say("");
    Ok(ExitCode::Held)
}

/// Text that grows token by token.
#[cfg(feature = "engine")]
struct Said<'a> {
    tokenizer: &'a mlx_parity_engine::Tokenizer,
    ids: Vec<u32>,
    shown: String,
}

#[cfg(feature = "engine")]
impl Said<'_> {
    /// Prints what the newest ids add. A character may take several tokens, so that its first ones
    /// decode to a replacement character; the text waits for the rest of it.
    fn show(&mut self) -> anyhow::Result<()> {
        use std::io::Write as _;

        let text = self.tokenizer.decode(&self.ids)?;
        if text.ends_with('\u{fffd}') {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        out.write_all(text.strip_prefix(self.shown.as_str()).unwrap_or_default().as_bytes())?;
        out.flush()?;
        self.shown = text;
        Ok(())
    }
}

/// Without the engine there is nothing to speak.
#[cfg(not(feature = "engine"))]
pub fn run(_common: &Common, _args: &Args) -> Result {
    Err(super::Failure::usage("this build has no engine (built with --no-default-features)"))
}
