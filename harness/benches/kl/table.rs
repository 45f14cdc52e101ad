//! The rivals turn by turn, and the table of medians.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, ensure};
use mlx_parity::stats::{Position, ScoreOptions, score};
use mlx_parity_tensor::{Dtype, HostTensor, TensorView};
use rayon::prelude::*;

use crate::logits::{Logits, VOCABULARY};
use crate::resample;
use crate::rival::Rival;
use crate::settings::Settings;

/// Seconds of every round.
#[derive(Default)]
struct Rounds {
    read: Vec<f64>,
    all: Vec<f64>,
    one_pass: Vec<f64>,
    rival: Vec<f64>,
}

/// Measures, and prints what was found.
///
/// # Errors
/// Logits that cannot be made, or an answer that is wrong.
pub fn print(settings: &Settings) -> Result<()> {
    let logits = Logits::make(settings.rows)?;
    let (mut rounds, mut rival) = (Rounds::default(), String::new());
    match Rival::start(&logits) {
        Ok((mut other, exact)) => {
            rival.clone_from(&other.name);
            check(&logits, &exact)?;
            for _ in 0..settings.rounds {
                let positions = turn(&logits, &mut rounds)?;
                let answer = other.mean()?;
                let mean = positions.iter().map(|p| p.kl).sum::<f64>() / positions.len() as f64;
                ensure!(
                    (answer.mean - mean).abs() <= 1e-3 * mean,
                    "{mean}, {rival} {}",
                    answer.mean
                );
                rounds.rival.push(answer.seconds);
            }
        }
        Err(error) => {
            println!("rival: not run, {error:#}");
            for _ in 0..settings.rounds {
                turn(&logits, &mut rounds)?;
            }
        }
    }
    let (rows, threads) = (settings.rows, rayon::current_num_threads());
    println!(
        "[{rows} × {VOCABULARY}] f32 beside f32 in page cache, {threads} threads, {} rounds turn by turn, medians",
        settings.rounds
    );
    let bandwidth = logits.bytes() as f64 / median(&rounds.read);
    println!("{:<44}{:>8.3} s {:>6.2} GB/s", "read both", median(&rounds.read), bandwidth / 1e9);
    for (what, times) in
        [("all statistics", &rounds.all), ("without total variation", &rounds.one_pass)]
    {
        let seconds = median(times);
        let speed = logits.bytes() as f64 / seconds;
        let share = 100.0 * speed / bandwidth;
        println!(
            "{what:<44}{seconds:>8.3} s {:>6.2} GB/s {share:>5.1} % of read   30 %",
            speed / 1e9
        );
        if !rounds.rival.is_empty() {
            let other = median(&rounds.rival);
            println!("  beside {rival:<35}{other:>8.3} s {:>21.2}x   2x", other / seconds);
        }
    }
    halves(&logits, median(&rounds.all), settings.rounds)?;
    resample::print();
    Ok(())
}

/// One round of ours.
fn turn(logits: &Logits, rounds: &mut Rounds) -> Result<Vec<Position>> {
    let views = logits.views()?;
    rounds
        .read
        .push(timed(|| black_box(views.iter().map(|view| read(view.bytes())).sum::<u64>())).0);
    let options = ScoreOptions { total_variation: false, ..ScoreOptions::default() };
    rounds.one_pass.push(timed(|| black_box(score(views[0], views[1], None, &options))).0);
    let (seconds, scored) = timed(|| score(views[0], views[1], None, &ScoreOptions::default()));
    rounds.all.push(seconds);
    Ok(scored?.positions)
}

/// Our KL is that of NumPy in float64.
fn check(logits: &Logits, exact: &[f64]) -> Result<()> {
    let [teacher, student] = logits.views()?.map(|view| view.rows(0..exact.len()));
    let found = score(teacher.view(), student.view(), None, &ScoreOptions::default())?;
    for (position, exact) in found.positions.iter().zip(exact) {
        let close = (position.kl - exact).abs() <= 1e-9 * exact;
        ensure!(close, "KL {}, NumPy in float64 {exact}", position.kl);
    }
    Ok(())
}

/// The same logits in bf16, in values a second.
fn halves(logits: &Logits, f32_seconds: f64, rounds: usize) -> Result<()> {
    let halves = logits.views()?.map(|view| upper_halves(&view));
    let [teacher, student] = halves;
    let mut times = Vec::new();
    for _ in 0..rounds {
        let work = || score(teacher.view(), student.view(), None, &ScoreOptions::default());
        times.push(timed(|| black_box(work().is_ok())).0);
    }
    let seconds = median(&times);
    println!(
        "{:<44}{seconds:>8.3} s {:>6.2}x the values/s of f32   1x",
        "all statistics, bf16",
        f32_seconds / seconds
    );
    Ok(())
}

fn upper_halves(view: &TensorView<'_>) -> HostTensor {
    let bits = view.bytes().as_chunks::<4>().0.iter().flat_map(|bytes| [bytes[2], bytes[3]]);
    HostTensor::new(Dtype::Bf16, view.shape(), bits.collect()).expect("same shape")
}

/// Reads all bytes on all threads.
fn read(bytes: &[u8]) -> u64 {
    let sum = |bytes: &[u8]| -> u64 {
        let mut sums = [0u64; 32];
        for words in bytes.as_chunks::<8>().0.as_chunks::<32>().0 {
            for (sum, word) in sums.iter_mut().zip(words) {
                *sum = sum.wrapping_add(u64::from_le_bytes(*word));
            }
        }
        sums.iter().fold(0, |a, b| a.wrapping_add(*b))
    };
    bytes.par_chunks(1 << 20).map(sum).reduce(|| 0, u64::wrapping_add)
}

fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let found = work();
    (start.elapsed().as_secs_f64(), found)
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
