//! Losses of a head in float64.

use super::call::{Head, IGNORED};

/// What float64 says of a head: logits `[rows, classes]`, and for each position its logsumexp and its loss.
#[derive(Debug)]
pub(crate) struct Losses {
    /// `[rows, classes]`.
    pub logits: Vec<f64>,
    /// `[rows]`.
    pub lse: Vec<f64>,
    /// `[rows]`; 0 where the target is to be ignored.
    pub loss: Vec<f64>,
}

/// Cross entropy of `hidden · weightᵀ` for the targets.
pub(crate) fn losses(head: &Head<'_>) -> Losses {
    let hidden = head.hidden.to_f64();
    let mut logits = vec![0.0; head.rows * head.classes];
    for class in 0..head.classes {
        let weight = head.weight.row_f64(class, head.cols);
        for (row, hidden) in hidden.chunks_exact(head.cols).enumerate() {
            logits[row * head.classes + class] =
                hidden.iter().zip(&weight).map(|(h, w)| h * w).sum();
        }
    }
    let lse: Vec<f64> = logits.chunks_exact(head.classes).map(logsumexp).collect();
    let loss = |(row, &target): (usize, &i32)| match target {
        IGNORED => 0.0,
        class => lse[row] - logits[row * head.classes + class as usize],
    };
    let loss = head.targets.iter().enumerate().map(loss).collect();
    Losses { logits, lse, loss }
}

fn logsumexp(logits: &[f64]) -> f64 {
    let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    top + logits.iter().map(|logit| (logit - top).exp()).sum::<f64>().ln()
}
