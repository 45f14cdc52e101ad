//! Periods of rotary embeddings under the scalings in use (`mlx_lm.models.rope_utils`).

use std::f64::consts::PI;

use crate::error::OracleError;

/// What a rotary embedding multiplies by.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    /// Tokens a radian of each pair: the angle is position · `position_scale` / period. Infinite
    /// periods do not turn.
    pub periods: Vec<f64>,
    /// Factor of positions.
    pub position_scale: f64,
    /// Factor of the rotated features.
    pub input_scale: f64,
}

impl RopeTable {
    /// The table of given periods, as `freqs` of `mlx.core.fast.rope`.
    pub fn of_periods(periods: Vec<f64>) -> Self {
        Self { periods, position_scale: 1.0, input_scale: 1.0 }
    }
}

/// `rope_scaling` of a model configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Periods base^(2i/dims).
    Default,
    /// Positions divided by a factor (Chen et al., 2023).
    Linear {
        /// The factor.
        factor: f64,
    },
    /// A base that grows with the sequence (`DynamicNTKScalingRoPE`).
    Dynamic {
        /// The factor.
        factor: f64,
    },
    /// Long periods stretched, short ones kept (`Llama3RoPE`).
    Llama3(Llama3),
    /// Interpolation by parts (Peng et al., 2023; `YarnRoPE`).
    Yarn(Yarn),
    /// One factor a period, short or long by the length of the sequence (Ding et al., 2024).
    LongRope(LongRope),
    /// A part of the pairs turns, by exponents of the whole (`ProportionalRoPE`).
    Proportional(Proportional),
}

/// Parameters of [`RopeScaling::Llama3`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3 {
    /// By how much long periods stretch.
    pub factor: f64,
    /// Periods past `original_max_position_embeddings` over this stretch in full.
    pub low_freq_factor: f64,
    /// Periods below `original_max_position_embeddings` over this stay.
    pub high_freq_factor: f64,
    /// Context of the first training.
    pub original_max_position_embeddings: f64,
}

/// Parameters of [`RopeScaling::Yarn`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// By how much long periods stretch.
    pub factor: f64,
    /// Context of the first training.
    pub original_max_position_embeddings: f64,
    /// Rotations within that context above which a period stays.
    pub beta_fast: f64,
    /// Rotations within that context below which it stretches in full.
    pub beta_slow: f64,
    /// Numerator of the feature scale.
    pub mscale: f64,
    /// Denominator of the feature scale.
    pub mscale_all_dim: f64,
}

/// Parameters of [`RopeScaling::LongRope`]: the short factors while the sequence is no longer than
/// the first training's context, the long ones past it, as in the authors' `Phi3LongRoPE`. mlx-lm
/// uses the long ones at every length.
#[derive(Clone, Debug, PartialEq)]
pub struct LongRope {
    /// Context of the first training.
    pub original_max_position_embeddings: f64,
    /// Factor of each period of short sequences, or one for all.
    pub short_factor: Vec<f64>,
    /// Factor of each period of long sequences, or one for all.
    pub long_factor: Vec<f64>,
    /// Factor of the rotated features of short sequences, where it is given.
    pub short_mscale: Option<f64>,
    /// Factor of the rotated features of long sequences, where it is given.
    pub long_mscale: Option<f64>,
}

/// Parameters of [`RopeScaling::Proportional`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proportional {
    /// Share of the features that turn.
    pub partial_rotary_factor: f64,
    /// Factor of every period.
    pub factor: f64,
}

/// base^(2i/dims) for `rotated` features.
fn powers(dims: usize, rotated: usize, base: f64) -> Vec<f64> {
    (0..rotated.div_ceil(2)).map(|i| libm::pow(base, (2 * i) as f64 / dims as f64)).collect()
}

impl RopeScaling {
    /// The table for `dims` rotated features; `sequence` is the number of tokens the call ends at
    /// (under longrope, of the whole sequence), `max_position` the configuration's `max_position_embeddings`.
    pub fn table(
        &self,
        dims: usize,
        base: f64,
        max_position: usize,
        sequence: usize,
    ) -> Result<RopeTable, OracleError> {
        let plain = |base| RopeTable::of_periods(powers(dims, dims, base));
        Ok(match self {
            Self::Default => plain(base),
            Self::Linear { factor } => RopeTable { position_scale: 1.0 / factor, ..plain(base) },
            Self::Dynamic { factor } => {
                plain(dynamic_base(*factor, dims, base, max_position, sequence))
            }
            Self::Llama3(p) => RopeTable::of_periods(llama3(p, plain(base).periods)),
            Self::Yarn(p) => yarn(p, dims, base, plain(base).periods),
            Self::LongRope(p) => long_rope(p, max_position, sequence, &plain(base).periods)?,
            Self::Proportional(p) => proportional(p, dims, base),
        })
    }
}

fn dynamic_base(factor: f64, dims: usize, base: f64, max_position: usize, sequence: usize) -> f64 {
    let (dims, max_position) = (dims as f64, max_position as f64);
    let sequence = (sequence as f64).max(max_position);
    base * libm::pow(factor * sequence / max_position - (factor - 1.0), dims / (dims - 2.0))
}

fn llama3(p: &Llama3, mut periods: Vec<f64>) -> Vec<f64> {
    let context = p.original_max_position_embeddings;
    let (long, short) = (context / p.low_freq_factor, context / p.high_freq_factor);
    for period in &mut periods {
        let wavelength = 2.0 * PI * *period;
        if wavelength > long {
            *period *= p.factor;
        } else if wavelength > short && wavelength < long {
            let span = p.high_freq_factor - p.low_freq_factor;
            let smooth = (context / wavelength - p.low_freq_factor) / span;
            *period /= (1.0 - smooth) / p.factor + smooth;
        }
    }
    periods
}

fn yarn(p: &Yarn, dims: usize, base: f64, periods: Vec<f64>) -> RopeTable {
    let n = dims as f64;
    let pair_of = |rotations: f64| {
        let tokens = p.original_max_position_embeddings / (rotations * 2.0 * PI);
        n * libm::log(tokens) / (2.0 * libm::log(base))
    };
    let low = pair_of(p.beta_fast).floor().max(0.0);
    let high = pair_of(p.beta_slow).ceil().min(n - 1.0);
    // The reference keeps the ramp finite this way.
    let high = if low == high { high + 0.001 } else { high };
    let blend = |(i, short): (usize, f64)| {
        let keep = 1.0 - ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
        let long = p.factor * short;
        long * short / (long * keep + short * (1.0 - keep))
    };
    let magnitude =
        |m: f64| if p.factor <= 1.0 { 1.0 } else { 0.1 * m * libm::log(p.factor) + 1.0 };
    RopeTable {
        periods: periods.into_iter().enumerate().map(blend).collect(),
        position_scale: 1.0,
        input_scale: magnitude(p.mscale) / magnitude(p.mscale_all_dim),
    }
}

fn long_rope(
    p: &LongRope,
    max_position: usize,
    sequence: usize,
    periods: &[f64],
) -> Result<RopeTable, OracleError> {
    let original = p.original_max_position_embeddings;
    let (factors, mscale) = if sequence as f64 > original {
        (&p.long_factor, p.long_mscale)
    } else {
        (&p.short_factor, p.short_mscale)
    };
    if factors.len() != periods.len() && factors.len() != 1 {
        let wanted = format!("1 factor or {}, one a period", periods.len());
        return Err(OracleError::parameter("rope", factors.len(), &wanted));
    }
    let stretch = max_position as f64 / original;
    let default =
        if stretch <= 1.0 { 1.0 } else { (1.0 + libm::log(stretch) / libm::log(original)).sqrt() };
    let periods = periods
        .iter()
        .zip(factors.iter().cycle())
        .map(|(period, factor)| period * factor)
        .collect();
    Ok(RopeTable { periods, position_scale: 1.0, input_scale: mscale.unwrap_or(default) })
}

fn proportional(p: &Proportional, dims: usize, base: f64) -> RopeTable {
    let rotated = (dims as f64 * p.partial_rotary_factor) as usize;
    let mut periods: Vec<f64> = powers(dims, rotated, base).iter().map(|v| v * p.factor).collect();
    periods.resize(periods.len() + (dims - rotated) / 2, f64::INFINITY);
    RopeTable::of_periods(periods)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(scaling: &RopeScaling, sequence: usize) -> RopeTable {
        scaling.table(16, 10_000.0, 256, sequence).unwrap()
    }

    #[test]
    fn scalings_of_factor_one_change_nothing() {
        let plain = table(&RopeScaling::Default, 100);
        let llama3 = Llama3 {
            factor: 1.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 256.0,
        };
        let yarn = Yarn {
            factor: 1.0,
            original_max_position_embeddings: 256.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            mscale: 1.0,
            mscale_all_dim: 0.0,
        };
        let long = LongRope {
            original_max_position_embeddings: 256.0,
            short_factor: vec![1.0],
            long_factor: vec![1.0; 8],
            short_mscale: None,
            long_mscale: None,
        };
        let share = Proportional { partial_rotary_factor: 1.0, factor: 1.0 };
        for scaling in [
            RopeScaling::Linear { factor: 1.0 },
            RopeScaling::Dynamic { factor: 1.0 },
            RopeScaling::Llama3(llama3),
            RopeScaling::Yarn(yarn),
            RopeScaling::LongRope(long),
            RopeScaling::Proportional(share),
        ] {
            let found = table(&scaling, 100);
            let same =
                found.periods.iter().zip(&plain.periods).all(|(a, b)| (a / b - 1.0).abs() <= 4e-16);
            assert!(same && found.input_scale == 1.0 && found.position_scale == 1.0, "{scaling:?}");
        }
    }

    #[test]
    fn dynamic_scaling_starts_past_the_context() {
        let scaling = RopeScaling::Dynamic { factor: 2.0 };
        let plain = table(&RopeScaling::Default, 1).periods[7];
        assert!((table(&scaling, 256).periods[7] / plain - 1.0).abs() <= 1e-14);
        // Past it the base gains (2·512/256 − 1)^(16/14) = 3^(8/7), whose last period takes the
        // power 14/16.
        assert!((table(&scaling, 512).periods[7] / plain - 3.0).abs() <= 1e-14);
    }

    #[test]
    fn longrope_changes_factors_one_token_past_the_first_context() {
        let scaling = RopeScaling::LongRope(LongRope {
            original_max_position_embeddings: 64.0,
            short_factor: vec![2.0],
            long_factor: vec![3.0; 8],
            short_mscale: None,
            long_mscale: Some(1.5),
        });
        let (plain, short, long) =
            (table(&RopeScaling::Default, 1), table(&scaling, 64), table(&scaling, 65));
        assert_eq!(short.periods[3], 2.0 * plain.periods[3]);
        assert_eq!(long.periods[3], 3.0 * plain.periods[3]);
        // sqrt(1 + log(256 / 64) / log(64)) = sqrt(4 / 3).
        assert!((short.input_scale - (4.0_f64 / 3.0).sqrt()).abs() <= 4e-16);
        assert_eq!(long.input_scale, 1.5);
    }

    #[test]
    fn proportional_pairs_past_the_share_do_not_turn() {
        let scaling =
            RopeScaling::Proportional(Proportional { partial_rotary_factor: 0.25, factor: 8.0 });
        let found = table(&scaling, 1).periods;
        assert_eq!(found.len(), 8);
        assert_eq!(found[0], 8.0);
        assert!(found[2..].iter().all(|v| v.is_infinite()));
    }
}
