//! `mlx-parity doctor`: what this machine can prove, and what it lacks.

use anyhow::Context as _;

use super::{Common, Failure, Result, say};
use crate::{
    case,
    exit::ExitCode,
    fingerprint::Fingerprint,
    golden::{self, Store},
    model::Registry,
    oracle::{Launch, Oracle},
    root::Root,
    worker,
};

/// Say what this machine can prove, and what it lacks
#[derive(Debug, Clone, clap::Args)]
pub struct Args {}

/// Runs the command. It reports; only a broken project or engine is an error.
pub fn run(common: &Common, _args: &Args) -> Result {
    let root = common.root()?;
    let program = std::env::current_exe().context("cannot find this binary")?;
    let here = match worker::probe(&program) {
        Ok(here) => here,
        Err(error) => {
            say(format_args!("MLX          no: {error}"));
            say(format_args!(
                "can prove    nothing that needs the engine; diff, report and ref64 work"
            ));
            return Ok(ExitCode::Crashed);
        }
    };
    say(format_args!(
        "MLX          {} {}, {}-{} ({})",
        here.mlx, here.backend, here.arch, here.os, here.chip
    ));
    for (name, value) in &here.env {
        say(format_args!(
            "             {name}={value}: changes kernels, goldens frozen without it do not fit"
        ));
    }
    say(format_args!("oracles      {} · ref64 built in", oracle(&root, "mlx-lm")));
    say(format_args!("goldens      {}", goldens(&root, &here)?));
    models(&root)?;
    say(format_args!("can prove    L1 (bit-exact against mlx-lm) on {}", here.class()));
    say(format_args!("cannot       {}", cannot(&here)));
    Ok(ExitCode::Held)
}

fn oracle(root: &Root, name: &str) -> String {
    match Oracle::start(Launch::of(root, name)) {
        Ok(oracle) => {
            let version = oracle.hello().packages.get(name).cloned().unwrap_or_default();
            format!("{name} {version} ok")
        }
        Err(error) => format!("{name} no: {error}"),
    }
}

fn goldens(root: &Root, here: &Fingerprint) -> Result<String> {
    let usage = |error: case::CaseError| Failure::new(ExitCode::Usage, error);
    let unreadable = |error: golden::GoldenError| Failure::new(ExitCode::Golden, error);
    let cases = case::load_all(&root.cases()).map_err(usage)?;
    let store = Store::new(&root.frozen(), here);
    let fit = cases.iter().filter(|case| store.has(case)).count();
    let pending = golden::pending(&store).map_err(unreadable)?.len();
    let orphans = golden::orphans(&store, &cases).map_err(unreadable)?.len();
    Ok(format!(
        "{fit} of {} cases have one for {} · {pending} pending · {orphans} orphaned",
        cases.len(),
        here.class()
    ))
}

fn models(root: &Root) -> Result<()> {
    let registry = Registry::load(root).map_err(|error| Failure::new(ExitCode::Usage, error))?;
    for model in registry.iter() {
        let state = if model.provisioned(root) {
            "ok".to_owned()
        } else {
            format!("not provisioned: {}", model.provision)
        };
        say(format_args!("model        {} {state}", model.name));
    }
    Ok(())
}

fn cannot(here: &Fingerprint) -> &'static str {
    match here.backend.as_str() {
        "metal" => "CUDA kernels (needs an NVIDIA GPU)",
        "cuda" => "Metal kernels (needs Apple Silicon)",
        _ => "Metal kernels (needs Apple Silicon) · CUDA kernels (needs an NVIDIA GPU)",
    }
}
