//! `mlx-parity case kernel/…`: one trial of the gate again, as its replay lines say.

use std::time::Duration;

use anyhow::Context as _;
use mlx_parity_kernels::candidate;
use mlx_parity_tensor::Dtype;

use super::{Failure, Result, say};
use crate::{
    exit::ExitCode,
    gate::{GateCase, Stage, plan},
    row::Outcome,
    worker::{Ended, Worker},
};

/// Before the names of trials of kernels.
pub(super) const PREFIX: &str = "kernel/";

/// `KERNEL/DTYPE/CLASS/TRIAL` and `KERNEL=mutant:NAME`.
pub(super) fn run(name: &str, lever: Option<&str>, timeout: u64) -> Result {
    let case = plan::gate_case(asked(name, lever)?);
    let job = plan::job(&case).context("a case of the gate has a job")?;
    say(format_args!("case      {PREFIX}{name}"));
    if let Some(lever) = lever {
        say(format_args!("lever     {lever}"));
    }
    let program = std::env::current_exe().context("cannot find this binary")?;
    let mut worker =
        Worker::start(&program).map_err(|error| Failure::new(ExitCode::Crashed, error))?;
    let mut rows = Vec::new();
    if let Ended::Died { how } =
        worker.run(&job, Duration::from_secs(timeout), |row| rows.push(row))
    {
        say(format_args!("CRASHED   {how}"));
        return Ok(ExitCode::Crashed);
    }
    for row in &rows {
        match (&row.gate, &row.outcome) {
            (Some(gate), _) => {
                say(format_args!("{:<3} {:<8} {}", gate.evidence, gate.verdict, gate.what));
            }
            (None, Outcome::Error { message }) => return Err(Failure::usage(message)),
            (None, _) => {}
        }
    }
    Ok(ExitCode::of_rows(&rows))
}

fn asked(name: &str, lever: Option<&str>) -> Result<GateCase> {
    let usage = || {
        Failure::usage(format!(
            "`{PREFIX}{name}` is no trial, wanted {PREFIX}KERNEL/DTYPE/CLASS/TRIAL"
        ))
    };
    let mut parts = name.splitn(4, '/');
    let mut next = || parts.next().filter(|part| !part.is_empty()).ok_or_else(usage);
    let (kernel, dtype, class, trial) = (next()?, next()?, next()?, next()?);
    let found = candidate(kernel);
    let candidate =
        found.ok_or_else(|| Failure::usage(format!("there is no kernel `{kernel}`")))?;
    let dtype = Dtype::parse(dtype).map_err(Failure::usage)?;
    Ok(GateCase {
        kernel: kernel.to_owned(),
        dtype,
        class: class.to_owned(),
        digest: candidate.spec().digest(),
        quick: false,
        stage: Stage::Replay {
            trial: trial.to_owned(),
            mutant: lever.map(|lever| mutant(kernel, lever)).transpose()?,
        },
    })
}

fn mutant(kernel: &str, lever: &str) -> Result<String> {
    let usage =
        || Failure::usage(format!("--lever {lever}: wanted {kernel}=on or {kernel}=mutant:NAME"));
    let (id, position) = lever.split_once('=').ok_or_else(usage)?;
    let name = position.strip_prefix("mutant:").filter(|_| id == kernel).ok_or_else(usage)?;
    if !mlx_parity_kernels::How::MUTANTS {
        return Err(Failure::usage("this build has no mutants: use one with debug assertions"));
    }
    Ok(name.to_owned())
}
