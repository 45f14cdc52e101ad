//! `diff` and its rivals, turn by turn on the same files.

pub mod files;
mod rivals;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use files::Files;
use mlx_parity::diff::{Options, Report, diff};
use rivals::{Numpy, cmp};

/// Rounds of each pair of rivals.
const ROUNDS: usize = 9;

/// Prints the table of medians and ratios.
///
/// # Errors
/// Files that cannot be made, or an answer of `diff` that is wrong.
pub fn run() -> Result<()> {
    let files = Files::make().context("cannot make the files")?;
    println!("1 GiB f32 in page cache, {ROUNDS} rounds turn by turn, medians");
    println!("{:<22}{:>10}{:>16}{:>9}   wanted", "", "diff", "rival", "ratio");
    against_cmp(&files)?;
    match Numpy::start() {
        Ok(mut numpy) => {
            against_numpy(&files.a, &files.near, "differ, a few ulp", &mut numpy)?;
            against_numpy(&files.a, &files.unrelated, "differ, unrelated", &mut numpy)?;
        }
        Err(error) => println!("differ: not run, {error:#}"),
    }
    if let Some(growth) = peak_growth() {
        println!("peak memory of this process: {growth:.0} MB (wanted below 200)");
    }
    Ok(())
}

fn against_cmp(files: &Files) -> Result<()> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let (seconds, report) = timed_diff(&files.a, &files.copy)?;
        ensure!(report.holds(), "equal files were found to differ");
        times[0].push(seconds);
        times[1].push(cmp(&files.a, &files.copy)?);
    }
    show("equal", "cmp", times, 2.0);
    Ok(())
}

fn against_numpy(a: &Path, b: &Path, what: &str, numpy: &mut Numpy) -> Result<()> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let (seconds, report) = timed_diff(a, b)?;
        times[0].push(seconds);
        let answer = numpy.compare(a, b)?;
        times[1].push(answer.seconds);
        let differ: u64 = report.rows.iter().map(|row| row.differ).sum();
        let max = report.rows.iter().filter_map(|row| row.max_abs).fold(0.0, f64::max);
        ensure!(differ == answer.differ, "differ: {differ}, NumPy counts {}", answer.differ);
        ensure!(max as f32 == answer.max_abs as f32, "max {max}, NumPy {}", answer.max_abs);
    }
    show(what, "numpy", times, 5.0);
    Ok(())
}

fn timed_diff(a: &Path, b: &Path) -> Result<(f64, Report)> {
    let start = Instant::now();
    let report = diff(a, b, &Options::default())?;
    Ok((start.elapsed().as_secs_f64(), report))
}

fn show(what: &str, rival: &str, times: [Vec<f64>; 2], wanted: f64) {
    let [ours, theirs] = times.map(median);
    let ratio = theirs / ours;
    println!("{what:<22}{ours:>8.3} s{rival:>7}{theirs:>7.3} s{ratio:>8.2}x   {wanted}x");
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Greatest resident size so far, in MB; known on Linux only.
fn peak_growth() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes / 1000.0)
}
