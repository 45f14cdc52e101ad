//! The commands: one file each, a documented argument struct and a call into the library.

pub mod bisect;
pub mod case;
pub mod diff;
pub mod doctor;
pub mod freeze;
pub mod gate;
pub mod generate;
pub mod goldens;
pub mod kl;
pub mod ledger;
pub mod metal;
pub mod models;
mod replay;
pub mod size;
pub mod store;
pub mod verify;
pub mod worker;

use std::path::{Path, PathBuf};

use crate::{exit::ExitCode, model::Registry, root::Root};

/// Options every command takes.
#[derive(Debug, Clone, clap::Args)]
pub struct Common {
    /// Project folder [default: the nearest one above that holds goldens/models.toml]
    #[arg(long, global = true, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Log what workers and oracles say, to stderr (twice: everything)
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// An error with the exit code it ends the program with.
#[derive(Debug)]
pub struct Failure {
    /// The code.
    pub exit: ExitCode,
    /// What went wrong.
    pub error: anyhow::Error,
}

impl Failure {
    /// Any error as a failure of the given kind.
    pub fn new(exit: ExitCode, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into() }
    }

    /// A request that cannot be honoured as written.
    pub fn usage(message: impl std::fmt::Display) -> Self {
        Self::new(ExitCode::Usage, anyhow::anyhow!("{message}"))
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(ExitCode::Internal, error)
    }
}

/// What a command returns.
pub type Result<T = ExitCode> = std::result::Result<T, Failure>;

impl Common {
    /// The project.
    pub fn root(&self) -> Result<Root> {
        Root::find(self.root.as_deref()).map_err(|error| Failure::new(ExitCode::Usage, error))
    }

    /// The folder of a model: `model` itself where it has a `config.json`, else the registered model of
    /// that name, made where it must be.
    pub fn model_folder(&self, model: &Path) -> Result<PathBuf> {
        if model.join("config.json").is_file() {
            return Ok(model.to_owned());
        }
        let root = self.root()?;
        let registry =
            Registry::load(&root).map_err(|error| Failure::new(ExitCode::Usage, error))?;
        let name = model.to_string_lossy();
        let entry = registry.get(&name).ok_or_else(|| {
            let known: Vec<_> = registry.iter().map(|model| model.name.as_str()).collect();
            Failure::usage(format!(
                "`{name}` is no model folder and no registered model ({})",
                known.join(", ")
            ))
        })?;
        entry.ready(&root).map_err(Failure::usage)
    }
}

/// Prints a line of data. A reader that has seen enough closes the pipe; that is no error.
pub fn say(line: impl std::fmt::Display) {
    use std::io::Write as _;

    let written = writeln!(std::io::stdout().lock(), "{line}");
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        tracing::error!("cannot write to stdout: {error}");
    }
}

/// The command line with the program's name in place of its path.
pub fn command_line() -> Vec<String> {
    std::iter::once("mlx-parity".to_owned()).chain(std::env::args().skip(1)).collect()
}

/// Prints the error, if there is one, and gives the code.
pub fn exit(result: Result) -> ExitCode {
    result.unwrap_or_else(|failure| {
        eprintln!("mlx-parity: {:#}", failure.error);
        failure.exit
    })
}

/// Prints clap's message; help and version are no errors.
pub fn refuse_arguments(error: &clap::Error) -> ExitCode {
    // Without a terminal there is nobody to tell.
    let _ = error.print();
    if error.use_stderr() { ExitCode::Usage } else { ExitCode::Held }
}

/// Sends log lines to stderr.
pub fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "mlx_parity=debug,child=debug,warn",
        _ => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("MLX_PARITY_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .without_time()
        .init();
}

/// The table of exit codes, for `--help`.
pub fn exit_code_help() -> String {
    let codes = ExitCode::ALL.map(|code| format!("  {:>3}  {}", code.code(), code.meaning()));
    format!("Exit codes:\n{}", codes.join("\n"))
}
