//! The formulas as they are written, over the whole row at once.

use crate::ops::Source;

/// One position.
pub struct Naive {
    pub kl: f64,
    pub reverse_kl: f64,
    pub total_variation: f64,
    pub entropies: [f64; 2],
    pub log_p: Vec<f64>,
    pub log_q: Vec<f64>,
}

impl Naive {
    pub fn of(teacher: &[f64], student: &[f64]) -> Self {
        let (log_p, log_q) = (log_softmax(teacher), log_softmax(student));
        let sum = |f: &dyn Fn(f64, f64) -> f64| {
            compensated(log_p.iter().zip(&log_q).map(|(p, q)| f(*p, *q)))
        };
        Self {
            kl: sum(&|p, q| p.exp() * (p - q)),
            reverse_kl: sum(&|p, q| q.exp() * (q - p)),
            total_variation: sum(&|p, q| (p.exp() - q.exp()).abs()) / 2.0,
            entropies: [sum(&|p, _| -p.exp() * p), sum(&|_, q| -q.exp() * q)],
            log_p,
            log_q,
        }
    }
}

fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total = compensated(logits.iter().map(|x| (x - max).exp()));
    logits.iter().map(|x| x - max - total.ln()).collect()
}

/// Neumaier's sum.
fn compensated(terms: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0);
    for x in terms {
        let next = sum + x;
        lost += if sum.abs() >= x.abs() { (sum - next) + x } else { (x - next) + sum };
        sum = next;
    }
    sum + lost
}

/// Bell-shaped numbers with this deviation.
pub fn bells(seed: u64, n: usize, deviation: f64) -> Vec<f64> {
    let mut source = Source::new(seed);
    (0..n).map(|_| source.bell() * deviation).collect()
}
