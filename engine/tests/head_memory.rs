//! What a head of 32,000 classes on 1,024 positions takes in memory, forward and backward: the kernel
//! `flash_cce` beside logits that are held. A binary of its own, so that nothing else is in the process.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use mlx_parity_engine::array::read;
use mlx_parity_engine::ops::{self, Axes, Keys};
use mlx_parity_engine::train::{HeadWeight, flash_cce, scope};
use mlx_parity_engine::{
    Array, EngineError, active_memory, clear_cache, peak_memory, reset_peak_memory,
};

const CLASSES: i32 = 32_000;
const POSITIONS: i32 = 1024;
const WIDTH: i32 = 256;
/// Of the materialised head's memory, at the most.
const SHARE: f64 = 0.15;

fn drawn(seed: u64, shape: &[i32], spread: f32) -> Array {
    let key = Keys::seeded(seed).unwrap().draw().unwrap();
    let whole = ops::randint(-1000, 1000, shape, &key).unwrap();
    let values = ops::multiply(&whole, &Array::from_f32(spread / 1000.0)).unwrap();
    ops::eval([&values]).unwrap();
    values
}

/// A field of `/proc/self/status` in bytes; none where there is no such file.
fn status(field: &str) -> Option<usize> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    let kib: usize = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(1024 * kib)
}

struct Measured {
    loss: f32,
    gradient: Vec<f32>,
    /// The most bytes of MLX's arrays above those before.
    arrays: usize,
    /// The most bytes of the process above those before, where the system says.
    process: Option<usize>,
}

fn measured(hidden: &Array, losses: impl Fn(&Array) -> Result<Array, EngineError>) -> Measured {
    clear_cache().unwrap();
    // Linux forgets the peak of a process so far.
    let forgotten = fs::write("/proc/self/clear_refs", "5").is_ok();
    let (before, resident) = (active_memory().unwrap(), status("VmRSS:"));
    reset_peak_memory().unwrap();
    let (values, gradients) = scope(|scope| {
        let mean = |inputs: &[Array]| Ok(vec![ops::mean(&losses(&inputs[0])?, Axes::All, false)?]);
        scope.value_and_grad(mean, &[0], std::slice::from_ref(hidden))
    })
    .unwrap();
    ops::eval(values.iter().chain(&gradients)).unwrap();
    let arrays = peak_memory().unwrap() - before;
    let process = status("VmHWM:").zip(resident).filter(|_| forgotten);
    Measured {
        loss: read::<f32>("loss", &values[0]).unwrap()[0],
        gradient: read::<f32>("gradient", &gradients[0]).unwrap(),
        arrays,
        process: process.map(|(peak, resident)| peak - resident),
    }
}

fn compare(flash: &Measured, held: &Measured) {
    let share = |a: usize, b: usize| a as f64 / b as f64;
    println!(
        "arrays {} of {} bytes, process {:?} of {:?}",
        flash.arrays, held.arrays, flash.process, held.process
    );
    assert!(share(flash.arrays, held.arrays) <= SHARE, "{} of {} bytes", flash.arrays, held.arrays);
    if let (Some(flash), Some(held)) = (flash.process, held.process) {
        assert!(share(flash, held) <= SHARE, "{flash} of {held} bytes of the process");
    }
    assert!((flash.loss / held.loss - 1.0).abs() <= 1e-5, "{} {}", flash.loss, held.loss);
    let pairs = flash.gradient.iter().zip(&held.gradient);
    let (off, whole) = pairs.fold((0.0, 0.0), |(off, whole), (a, b)| {
        let (a, b) = (f64::from(*a), f64::from(*b));
        (off + (a - b) * (a - b), whole + b * b)
    });
    let off = (off / whole).sqrt();
    assert!(off <= 1e-4, "the gradients are {off:e} apart");
}

#[test]
fn flash_cce_takes_a_small_share_of_the_memory_of_held_logits() {
    let hidden = drawn(1, &[POSITIONS, WIDTH], 1.0);
    let weight = drawn(2, &[CLASSES, WIDTH], 0.3);
    let key = Keys::seeded(3).unwrap().draw().unwrap();
    let targets = ops::randint(0, CLASSES, &[POSITIONS], &key).unwrap();
    ops::eval([&targets]).unwrap();

    let turned = ops::transpose(&weight, &[1, 0]).unwrap();
    let held = |h: &Array| ops::cross_entropy(&ops::matmul(h, &turned)?, &targets, 0.0);
    let plain = HeadWeight::Plain(weight.clone());
    let flash = |h: &Array| flash_cce(h, &plain, &targets);
    let flashed = measured(&hidden, flash);
    compare(&flashed, &measured(&hidden, held));
}
