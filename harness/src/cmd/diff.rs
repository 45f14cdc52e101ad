//! `mlx-parity diff`: two safetensors files or model folders, tensor by tensor.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::{Common, Failure, Result, say};
use crate::compare::Allowance;
use crate::diff::{Bound, Options, Report, diff, human};
use crate::exit::ExitCode;

/// Compare two safetensors files or model folders, tensor by tensor
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A safetensors file, or a model folder (its index decides which files are read)
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
    let report =
        diff(&args.a, &args.b, &options).map_err(|error| Failure::new(ExitCode::Usage, error))?;
    print(&report, args.format, start.elapsed())?;
    Ok(match (report.rows.is_empty(), report.holds()) {
        (true, _) => ExitCode::NothingRan,
        (false, true) => ExitCode::Held,
        (false, false) => ExitCode::Mismatch,
    })
}

fn print(report: &Report, format: Format, elapsed: Duration) -> Result<()> {
    match format {
        Format::Human => {
            let (text, bytes) = (human(report), size(report.bytes));
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

/// `1.02 GiB`
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if bytes < 1024 { format!("{bytes} B") } else { format!("{value:.2} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(
            [0, 1023, 1024, 1_100_000_000].map(size).join(" "),
            "0 B 1023 B 1.00 KiB 1.02 GiB"
        );
    }

    #[test]
    fn a_tolerance_is_a_finite_number() {
        assert_eq!(tolerance("1e-3"), Ok(1e-3));
        for bad in ["-1", "nan", "inf", "x", ""] {
            assert!(tolerance(bad).is_err(), "{bad}");
        }
    }
}
