//! `mlx-parity diff`: two safetensors files or model folders, tensor by tensor.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::{Common, Failure, Result, say, size};
use crate::compare::Allowance;
use crate::diff::{Bound, Options, Report, diff, human};
use crate::exit::ExitCode;
use crate::golden::{Composition, Golden, MANIFEST, TENSORS};

/// Compare two safetensors files or model folders, tensor by tensor
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A safetensors file, a model folder (its index decides which files are read), or a golden's
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// What to compare it with
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Accept elements at most this many ULP apart
    #[arg(long, value_name = "N", conflicts_with_all = ["rtol", "atol"])]
    pub ulp: Option<u64>,
    /// Accept |a - b| <= atol + rtol * |b|
    #[arg(long, value_name = "X", value_parser = tolerance)]
    pub rtol: Option<f64>,
    /// Accept |a - b| <= atol + rtol * |b|
    #[arg(long, value_name = "X", value_parser = tolerance)]
    pub atol: Option<f64>,
    /// List the N worst elements of each tensor that differs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub dump: usize,
    /// Compare goldens even where their compositions differ
    #[arg(long)]
    pub across_compositions: bool,
    /// What stdout gets
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
}

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table of what is not bit-equal.
    Human,
    /// One JSON row a line, for every tensor.
    Jsonl,
}

fn tolerance(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && x >= 0.0 => Ok(x),
        _ => Err("wanted a finite number that is not negative".to_owned()),
    }
}

impl Args {
    /// What may differ.
    pub fn bound(&self) -> Bound {
        match (self.ulp, self.rtol, self.atol) {
            (Some(ulps), _, _) => Bound::Ulp(ulps),
            (None, None, None) => Bound::Exact,
            (None, rtol, atol) => {
                Bound::Close(Allowance { rtol: rtol.unwrap_or(0.0), atol: atol.unwrap_or(0.0) })
            }
        }
    }
}

/// Runs the command.
pub fn run(_common: &Common, args: &Args) -> Result {
    let start = Instant::now();
    let options = Options { bound: args.bound(), dump: args.dump };
    if !args.across_compositions {
        same_composition(&args.a, &args.b)?;
    }
    let (a, b) = (tensors(&args.a), tensors(&args.b));
    let report = diff(&a, &b, &options).map_err(|error| Failure::new(ExitCode::Usage, error))?;
    print(&report, args.format, start.elapsed())?;
    Ok(match (report.rows.is_empty(), report.holds()) {
        (true, _) => ExitCode::NothingRan,
        (false, true) => ExitCode::Held,
        (false, false) => ExitCode::Mismatch,
    })
}

/// The tensors of a golden's folder; of anything else the path itself.
fn tensors(path: &Path) -> PathBuf {
    if path.join(MANIFEST).is_file() { path.join(TENSORS) } else { path.to_owned() }
}

/// The golden that a path is, or is the tensors of.
fn golden(path: &Path) -> Option<Golden> {
    let dir = if path.is_dir() { path } else { path.parent()? };
    dir.join(MANIFEST).is_file().then(|| Golden::open(dir).ok())?
}

/// Refuses two goldens of different compositions: their difference says nothing of either.
fn same_composition(a: &Path, b: &Path) -> Result<()> {
    let (Some(a), Some(b)) = (golden(a), golden(b)) else { return Ok(()) };
    let (one, other) = (&a.manifest.composition, &b.manifest.composition);
    if one == other {
        return Ok(());
    }
    let text = |of: &Composition| serde_json::to_string(of).unwrap_or_default();
    Err(Failure::usage(format!(
        "{} and {} were computed in different compositions\n  {}\n  {}\n--across-compositions \
         compares them all the same",
        a.manifest.case,
        b.manifest.case,
        text(one),
        text(other)
    )))
}

fn print(report: &Report, format: Format, elapsed: Duration) -> Result<()> {
    match format {
        Format::Human => {
            let (text, bytes) = (human(report), size::text(report.bytes));
            say(format_args!("{text}{bytes:>30} in {:.2} s", elapsed.as_secs_f64()));
        }
        Format::Jsonl => {
            for row in &report.rows {
                say(serde_json::to_string(row).context("cannot write a row")?);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tolerance_is_a_finite_number() {
        assert_eq!(tolerance("1e-3"), Ok(1e-3));
        for bad in ["-1", "nan", "inf", "x", ""] {
            assert!(tolerance(bad).is_err(), "{bad}");
        }
    }
}
