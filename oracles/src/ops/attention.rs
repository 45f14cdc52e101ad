//! Scaled dot-product attention (Vaswani et al., 2017;
//! `mlx.core.fast.scaled_dot_product_attention`).

use rayon::prelude::*;

use crate::answer::Answer;
use crate::error::OracleError;
use crate::sum::{Compensated, dot, dot_condition, sum, sum_by};
use crate::tensor::{BoolTensor, Tensor64};

/// Which query a causal mask's last key belongs to, where there are fewer queries than keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CausalAlignment {
    /// The last query sees every key: MLX, and any decoder with a cache.
    BottomRight,
    /// The first query sees the first key only: torch's `is_causal`.
    TopLeft,
}

/// Which keys a query sees.
#[derive(Clone, Copy, Debug)]
pub enum Mask<'a> {
    /// All of them.
    None,
    /// Those not after it.
    Causal(CausalAlignment),
    /// Those where it holds; broadcasts to `[batch, heads, queries, keys]`.
    Bool(&'a BoolTensor),
    /// Added to the scores (a 0/1 mask is added, not multiplied); −inf hides. Broadcasts as the
    /// boolean one.
    Additive(&'a Tensor64),
}

/// What a query that sees no key answers. With a sink the answer is zero whatever this says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadRows {
    /// NaN, as softmax of −inf throughout gives: MLX with an additive mask of −inf.
    Nan,
    /// Zero, as flash kernels give.
    Zero,
    /// The mean of all values, as scores filled with the lowest finite number give: MLX with
    /// boolean and causal masks.
    Mean,
}

/// Parameters of [`sdpa`].
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Factor of the scores.
    pub scale: f64,
    /// Which keys a query sees.
    pub mask: Mask<'a>,
    /// Keys, its own included, that a query sees back from its own position (bottom-right aligned);
    /// beside the mask.
    pub window: Option<usize>,
    /// One extra score a query head, with no value ("attention sinks").
    pub sinks: Option<&'a [f64]>,
    /// What a query that sees no key answers.
    pub dead_rows: DeadRows,
}

impl<'a> Attention<'a> {
    /// No window, no sinks, and dead rows as MLX 0.32's composed path answers this kind of mask.
    pub fn new(scale: f64, mask: Mask<'a>) -> Self {
        let dead_rows =
            if matches!(mask, Mask::Additive(_)) { DeadRows::Nan } else { DeadRows::Mean };
        Self { scale, mask, window: None, sinks: None, dead_rows }
    }
}

struct Sizes {
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    width: usize,
    value_width: usize,
}

/// softmax(scale·q·kᵀ + mask)·v for `q` of `[batch, heads, queries, d]`, `k` of `[batch, kv_heads,
/// keys, d]` and `v` of `[batch, kv_heads, keys, dv]`; heads are a multiple of `kv_heads` and share
/// in order.
///
/// A key that is hidden, by a boolean, a window or −inf, is not looked at: NaN in it does not show.
/// The condition is Σp|v|(1 + c + c̄), where c is the condition of a score, scale·Σ|q·k| + |mask|,
/// and c̄ its mean under p.
pub fn sdpa(
    q: &Tensor64,
    k: &Tensor64,
    v: &Tensor64,
    attention: &Attention,
) -> Result<Answer, OracleError> {
    attend(q, &Operand { value: k, terms: k }, &Operand { value: v, terms: v }, attention)
}

/// Keys or values, and what the magnitudes of their elements count as in conditions.
pub(crate) struct Operand<'a> {
    pub value: &'a Tensor64,
    pub terms: &'a Tensor64,
}

impl Operand<'_> {
    /// Value and terms of one kv head.
    fn head(&self, kv: usize, size: usize) -> [&[f64]; 2] {
        [self.value, self.terms].map(|tensor| &tensor.data()[kv * size..][..size])
    }
}

pub(crate) fn attend(
    q: &Tensor64,
    k: &Operand,
    v: &Operand,
    attention: &Attention,
) -> Result<Answer, OracleError> {
    let sizes = check(q, k.value, v.value, attention)?;
    let masks = expand(q.shape(), sizes.keys, attention.mask)?;
    let rows = q.data().par_chunks(sizes.width).enumerate();
    let pairs = rows
        .flat_map_iter(|(at, query)| {
            let (item, head) = (at / sizes.queries / sizes.heads, at / sizes.queries % sizes.heads);
            let kv = item * sizes.kv_heads + head / (sizes.heads / sizes.kv_heads);
            let keys = k.head(kv, sizes.keys * sizes.width);
            let scores = scores(at, query, keys, &sizes, attention, &masks);
            let sink = attention.sinks.map(|sinks| sinks[head]);
            let values = v.head(kv, sizes.keys * sizes.value_width);
            weigh(&scores, sink, values, sizes.value_width, attention.dead_rows)
        })
        .collect();
    let mut shape = q.shape().to_vec();
    shape[3] = sizes.value_width;
    Ok(Answer::from_pairs(shape, pairs))
}

fn check(
    q: &Tensor64,
    k: &Tensor64,
    v: &Tensor64,
    attention: &Attention,
) -> Result<Sizes, OracleError> {
    let op = "sdpa";
    let [batch, heads, queries, width] = *q.shape() else {
        return Err(OracleError::shape(op, q.shape(), "[batch, heads, queries, d]"));
    };
    let [k_batch, kv_heads, keys, k_width] = *k.shape() else {
        return Err(OracleError::shape(op, k.shape(), "[batch, kv_heads, keys, d]"));
    };
    if k_batch != batch || k_width != width || kv_heads == 0 || heads % kv_heads != 0 || width == 0
    {
        let wanted = format!("[{batch}, a divisor of {heads}, keys, {width}]");
        return Err(OracleError::shape(op, k.shape(), wanted));
    }
    if v.ndim() != 4 || v.shape()[..3] != k.shape()[..3] {
        return Err(OracleError::shape(
            op,
            v.shape(),
            format!("[{batch}, {kv_heads}, {keys}, dv]"),
        ));
    }
    if let Some(sinks) = attention.sinks.filter(|sinks| sinks.len() != heads) {
        return Err(OracleError::parameter(
            op,
            format!("{} sinks", sinks.len()),
            "one a query head",
        ));
    }
    Ok(Sizes { heads, kv_heads, queries, keys, width, value_width: v.shape()[3] })
}

/// Array masks at their full size.
enum Expanded {
    None,
    Bool(BoolTensor),
    Additive(Tensor64),
}

fn expand(q: &[usize], keys: usize, mask: Mask) -> Result<Expanded, OracleError> {
    let full = [q[0], q[1], q[2], keys];
    Ok(match mask {
        Mask::None | Mask::Causal(_) => Expanded::None,
        Mask::Bool(mask) => Expanded::Bool(mask.broadcast_to(&full)?),
        Mask::Additive(mask) => Expanded::Additive(mask.broadcast_to(&full)?),
    })
}

/// A key's score and its condition, or `None` where it is hidden.
type Score = Option<(f64, f64)>;

fn scores(
    at: usize,
    query: &[f64],
    [keys, terms]: [&[f64]; 2],
    sizes: &Sizes,
    attention: &Attention,
    masks: &Expanded,
) -> Vec<Score> {
    let row = (at % sizes.queries) as i64;
    let position = row + sizes.keys as i64 - sizes.queries as i64;
    let visible = |j: usize| {
        let causal = match attention.mask {
            Mask::Causal(CausalAlignment::BottomRight) => j as i64 <= position,
            Mask::Causal(CausalAlignment::TopLeft) => j as i64 <= row,
            _ => true,
        };
        let shown = !matches!(masks, Expanded::Bool(mask) if !mask.data()[at * sizes.keys + j]);
        causal
            && shown
            && attention.window.is_none_or(|window| position - (j as i64) < window as i64)
    };
    let score = |(j, (key, terms)): (usize, (&[f64], &[f64]))| {
        let bias = match masks {
            Expanded::Additive(mask) => mask.data()[at * sizes.keys + j],
            _ => 0.0,
        };
        if !visible(j) || bias == f64::NEG_INFINITY {
            return None;
        }
        let condition = attention.scale.abs() * dot_condition(query, terms) + bias.abs();
        Some((attention.scale * dot(query, key) + bias, condition))
    };
    keys.chunks(sizes.width).zip(terms.chunks(sizes.width)).enumerate().map(score).collect()
}

/// Softmax of the scores, then Σp·v with its condition.
fn weigh(
    scores: &[Score],
    sink: Option<f64>,
    [values, terms]: [&[f64]; 2],
    width: usize,
    dead_rows: DeadRows,
) -> Vec<(f64, f64)> {
    let all = scores.iter().flatten().copied().chain(sink.map(|s| (s, s.abs())));
    let top = all.clone().map(|(s, _)| s).fold(f64::NEG_INFINITY, super::reduce::greater);
    let weights = |scores: &mut dyn Iterator<Item = (f64, f64)>| {
        let mut total = Compensated::default();
        let mut condition = 0.0;
        for (score, c) in scores {
            total.add(libm::exp(score - top));
            condition += libm::exp(score - top) * c;
        }
        (total.value(), condition)
    };
    let (total, condition) = weights(&mut all.clone());
    if scores.iter().all(Option::is_none) && sink.is_none() {
        return dead(dead_rows, [values, terms], width, scores.len());
    }
    let mean_condition = condition / total;
    let mut sums = vec![(Compensated::default(), 0.0); width];
    let rows = values.chunks(width.max(1)).zip(terms.chunks(width.max(1)));
    for (score, (value, terms)) in scores.iter().zip(rows) {
        let Some((score, c)) = *score else { continue };
        let p = libm::exp(score - top) / total;
        for ((sum, condition), (v, term)) in sums.iter_mut().zip(value.iter().zip(terms)) {
            sum.add(p * v);
            *condition += (p * term).abs() * (1.0 + c + mean_condition);
        }
    }
    sums.into_iter().map(|(sum, condition)| (sum.value(), condition)).collect()
}

fn dead(
    policy: DeadRows,
    [values, terms]: [&[f64]; 2],
    width: usize,
    keys: usize,
) -> Vec<(f64, f64)> {
    let n = keys as f64;
    let column = |of: &[f64], i: usize| -> Vec<f64> {
        of.iter().skip(i).step_by(width.max(1)).copied().collect()
    };
    (0..width)
        .map(|i| match policy {
            DeadRows::Nan => (f64::NAN, f64::NAN),
            DeadRows::Zero => (0.0, 0.0),
            DeadRows::Mean => {
                (sum(&column(values, i)) / n, sum_by(&column(terms, i), f64::abs) / n)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(shape: [usize; 4], pitch: f64) -> Tensor64 {
        let n = shape.iter().product();
        Tensor64::trusted(shape.to_vec(), (0..n).map(|i: usize| (i as f64 * pitch).sin()).collect())
    }

    fn qkv(queries: usize, keys: usize) -> [Tensor64; 3] {
        [wave([2, 4, queries, 8], 0.7), wave([2, 2, keys, 8], 0.3), wave([2, 2, keys, 5], 1.1)]
    }

    fn value(qkv: &[Tensor64; 3], attention: &Attention) -> Tensor64 {
        sdpa(&qkv[0], &qkv[1], &qkv[2], attention).unwrap().value
    }

    fn causal() -> Mask<'static> {
        Mask::Causal(CausalAlignment::BottomRight)
    }

    fn triangle(queries: usize, keys: usize) -> BoolTensor {
        let shown = |i: usize| i % keys + queries <= i / keys + keys;
        BoolTensor::new([queries, keys], (0..queries * keys).map(shown).collect()).unwrap()
    }

    #[test]
    fn causal_boolean_and_additive_masks_are_the_same_function() {
        for (queries, keys) in [(1, 6), (3, 6), (6, 6)] {
            let x = qkv(queries, keys);
            let mask = triangle(queries, keys);
            let added = mask.map(|shown| if shown { 0.0 } else { f64::NEG_INFINITY });
            let found = value(&x, &Attention::new(0.4, causal()));
            assert_eq!(found, value(&x, &Attention::new(0.4, Mask::Bool(&mask))));
            assert_eq!(found, value(&x, &Attention::new(0.4, Mask::Additive(&added))));
            let other = value(&x, &Attention::new(0.4, Mask::Causal(CausalAlignment::TopLeft)));
            assert_eq!(found == other, queries == keys);
            assert_eq!(found == value(&x, &Attention::new(0.4, Mask::None)), queries == 1);
        }
    }

    #[test]
    fn equal_scores_average_the_values_seen() {
        let mut x = qkv(3, 6);
        x[1] = Tensor64::full([2, 2, 6, 8], 0.0);
        let found = value(&x, &Attention { window: Some(2), ..Attention::new(1.0, causal()) });
        // Query 1 of 3 stands at key 4 of 6: with a window of two it sees keys 3 and 4.
        for (head, kv) in [(0, 0), (1, 0), (2, 1), (7, 3)] {
            let v = &x[2].data()[kv * 30..];
            let mean = f64::midpoint(v[3 * 5], v[4 * 5]);
            assert!((found.data()[(head * 3 + 1) * 5] - mean).abs() <= 1e-16);
        }
    }

    #[test]
    fn a_window_is_a_mask_and_neighbouring_windows_differ() {
        let x = qkv(6, 6);
        let shown = |i: usize| i % 6 <= i / 6 && i / 6 < i % 6 + 3;
        let mask = BoolTensor::new([6, 6], (0..36).map(shown).collect()).unwrap();
        let windowed = |window| {
            value(&x, &Attention { window: Some(window), ..Attention::new(0.4, causal()) })
        };
        assert_eq!(windowed(3), value(&x, &Attention::new(0.4, Mask::Bool(&mask))));
        assert_ne!(windowed(3), windowed(2));
        assert_ne!(windowed(3), windowed(4));
        assert_eq!(windowed(6), value(&x, &Attention::new(0.4, causal())));
    }

    #[test]
    fn a_sink_takes_its_share() {
        let mut x = qkv(1, 3);
        x[1] = Tensor64::full([2, 2, 3, 8], 0.0);
        let sinks = [0.0, f64::NEG_INFINITY, 3.0_f64.ln(), 0.0];
        let none = value(&x, &Attention::new(1.0, Mask::None));
        let found =
            value(&x, &Attention { sinks: Some(&sinks), ..Attention::new(1.0, Mask::None) });
        for (head, share) in [(0, 0.75), (1, 1.0), (2, 0.5)] {
            let (a, b) = (found.data()[head * 5], none.data()[head * 5]);
            assert!((a - share * b).abs() <= 1e-15, "{head}");
        }
    }

    #[test]
    fn dead_rows_follow_the_policy_and_hidden_nan_does_not_show() {
        let mut x = qkv(5, 3);
        let ask = |x: &[Tensor64; 3], dead_rows, sinks| {
            value(x, &Attention { sinks, dead_rows, ..Attention::new(1.0, causal()) }).into_data()
        };
        // Five queries on three keys: the first two see none.
        assert!(ask(&x, DeadRows::Nan, None)[..10].iter().all(|v| v.is_nan()));
        assert_eq!(ask(&x, DeadRows::Zero, None)[..10], [0.0; 10]);
        let v = x[2].data();
        let mean = ask(&x, DeadRows::Mean, None)[0] - (v[0] + v[5] + v[10]) / 3.0;
        assert!(mean.abs() <= 1e-16);
        assert_eq!(ask(&x, DeadRows::Nan, Some(&[0.0; 4]))[..10], [0.0; 10]);
        let before = ask(&x, DeadRows::Zero, None);
        for tensor in &mut x[1..] {
            let width = tensor.last_dim();
            tensor.data_mut()[2 * width..3 * width].fill(f64::NAN);
        }
        let after = ask(&x, DeadRows::Zero, None);
        assert_eq!(before[..20], after[..20], "queries before the poisoned key");
        assert!(after[20].is_nan(), "the query that sees it");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let [q, k, v] = qkv(2, 3);
        let plain = Attention::new(1.0, Mask::None);
        assert!(sdpa(&q, &v, &k, &plain).is_err());
        assert!(sdpa(&q, &k, &wave([2, 1, 3, 5], 1.0), &plain).is_err());
        assert!(sdpa(&wave([2, 3, 2, 8], 1.0), &k, &v, &plain).is_err());
        assert!(sdpa(&q, &k, &v, &Attention { sinks: Some(&[0.0]), ..plain }).is_err());
        let mask = BoolTensor::full([2, 2], true);
        assert!(sdpa(&q, &k, &v, &Attention::new(1.0, Mask::Bool(&mask))).is_err());
    }
}
