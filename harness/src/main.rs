//! The `mlx-parity` command line.

use clap::{Parser, Subcommand};
use mlx_parity::cmd;

/// Prove that an MLX engine computes what the reference computes.
#[derive(Parser)]
#[command(version, after_help = cmd::exit_code_help())]
struct Cli {
    #[command(flatten)]
    common: cmd::Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Verify(cmd::verify::Args),
    Case(cmd::case::Args),
    Freeze(cmd::freeze::Args),
    Goldens(cmd::goldens::Args),
    Diff(cmd::diff::Args),
    Kl(cmd::kl::Args),
    Gate(cmd::gate::Args),
    Ledger(cmd::ledger::Args),
    Bisect(cmd::bisect::Args),
    Generate(cmd::generate::Args),
    Metal(cmd::metal::Args),
    Models(cmd::models::Args),
    Store(cmd::store::Args),
    Doctor(cmd::doctor::Args),
    #[command(hide = true)]
    Worker,
    #[command(hide = true)]
    LogitsWorker,
}

fn main() -> std::process::ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return cmd::refuse_arguments(&error).into(),
    };
    cmd::log_to_stderr(cli.common.verbose);
    let result = match &cli.command {
        Command::Verify(args) => cmd::verify::run(&cli.common, args),
        Command::Case(args) => cmd::case::run(&cli.common, args),
        Command::Freeze(args) => cmd::freeze::run(&cli.common, args),
        Command::Goldens(args) => cmd::goldens::run(&cli.common, args),
        Command::Diff(args) => cmd::diff::run(&cli.common, args),
        Command::Kl(args) => cmd::kl::run(&cli.common, args),
        Command::Gate(args) => cmd::gate::run(&cli.common, args),
        Command::Ledger(args) => cmd::ledger::run(&cli.common, args),
        Command::Bisect(args) => cmd::bisect::run(&cli.common, args),
        Command::Generate(args) => cmd::generate::run(&cli.common, args),
        Command::Metal(args) => cmd::metal::run(&cli.common, args),
        Command::Models(args) => cmd::models::run(&cli.common, args),
        Command::Store(args) => cmd::store::run(&cli.common, args),
        Command::Doctor(args) => cmd::doctor::run(&cli.common, args),
        Command::Worker => cmd::worker::run(),
        Command::LogitsWorker => cmd::worker::run_logits(),
    };
    cmd::exit(result).into()
}
