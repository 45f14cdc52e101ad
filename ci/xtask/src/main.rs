//! `cargo xtask`: provisions what this machine lacks, then verifies, tests and benches. See
//! [`command`] for the commands and [`provision`] for what is put under `target/mlx`.

mod cargo;
mod command;
mod layout;
mod process;
mod provision;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "cargo xtask", about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Setup(command::setup::Setup),
    Verify(command::forward::Verify),
    Bench(command::forward::Bench),
    Fuzz(command::fuzz::Fuzz),
    Doctor(command::forward::Doctor),
    GenModel(command::gen_model::GenModel),
    Test(command::test::Test),
    #[command(hide = true)]
    Bindings(command::bindings::Bindings),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Setup(setup) => setup.run(),
        Command::Verify(verify) => verify.run(),
        Command::Bench(bench) => bench.run(),
        Command::Fuzz(fuzz) => fuzz.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::GenModel(gen_model) => gen_model.run(),
        Command::Test(test) => test.run(),
        Command::Bindings(bindings) => bindings.run(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
