//! Periods of rotary embeddings, from the arguments of a call.
//!
//! Arguments: `base` (10000) and `scale` (1); `freqs` (whether the periods are an operand); or
//! `scaling` = `"linear"`, `"dynamic"`, `"llama3"`, `"yarn"`, `"longrope"`, `"longrope-mscale"` (with
//! factors of the rotated features given), `"proportional"`, each with the parameters of a released
//! model or of its paper, for a context of [`CONTEXT`] tokens that was first [`ORIGINAL`].

#[cfg(feature = "engine")]
use mlx_parity_engine::ops::{self, ScaledRope};
use mlx_parity_oracles::ops::rope::{Llama3, LongRope, Proportional, RopeScaling, RopeTable, Yarn};

use super::operand::unsupported;
use crate::ops::{Call, SuiteError};

/// `max_position_embeddings`.
pub const CONTEXT: usize = 8192;
/// `original_max_position_embeddings`.
const ORIGINAL: f64 = 2048.0;

const LLAMA3: Llama3 = Llama3 {
    factor: 8.0,
    low_freq_factor: 1.0,
    high_freq_factor: 4.0,
    original_max_position_embeddings: ORIGINAL,
};

/// Of Gemma 4's full layers, with a factor.
const PROPORTIONAL: Proportional = Proportional { partial_rotary_factor: 0.25, factor: 2.0 };

const YARN: Yarn = Yarn {
    factor: 4.0,
    original_max_position_embeddings: ORIGINAL,
    beta_fast: 32.0,
    beta_slow: 1.0,
    mscale: 1.0,
    mscale_all_dim: 0.0,
};

/// Of linear and dynamic scaling.
const FACTOR: f64 = 4.0;

/// Factors for each period, exact in float32: short ones near one, long ones far from it.
fn long_rope(dims: usize, mscale: [Option<f64>; 2]) -> LongRope {
    let factors = |step: f64| (0..dims / 2).map(|i| 1.0 + step * i as f64).collect();
    LongRope {
        original_max_position_embeddings: ORIGINAL,
        short_factor: factors(0.03125),
        long_factor: factors(0.5),
        short_mscale: mscale[0],
        long_mscale: mscale[1],
    }
}

/// The scaling that a call names.
fn scaling(call: &Call, dims: usize) -> Result<RopeScaling, SuiteError> {
    Ok(match call.text_or("scaling", "none")? {
        "none" => RopeScaling::Default,
        "linear" => RopeScaling::Linear { factor: FACTOR },
        "dynamic" => RopeScaling::Dynamic { factor: FACTOR },
        "llama3" => RopeScaling::Llama3(LLAMA3),
        "yarn" => RopeScaling::Yarn(YARN),
        "longrope" => RopeScaling::LongRope(long_rope(dims, [None, None])),
        "longrope-mscale" => RopeScaling::LongRope(long_rope(dims, [Some(1.25), Some(1.5)])),
        "proportional" => RopeScaling::Proportional(PROPORTIONAL),
        other => return Err(unsupported(call, format!("no scaling `{other}`"))),
    })
}

/// The base of a call.
pub fn base(call: &Call) -> Result<f64, SuiteError> {
    Ok(call.float_or("base", 10_000.0)?)
}

/// The table of `dims` rotated features for a sequence that ends at `sequence`; `periods` are the
/// operand's, where there is one.
pub fn table(
    call: &Call,
    dims: usize,
    sequence: usize,
    periods: Option<Vec<f64>>,
) -> Result<RopeTable, SuiteError> {
    let mut table = scaling(call, dims)?.table(dims, base(call)?, CONTEXT, sequence)?;
    // MLX takes it in float32.
    table.position_scale *= f64::from(call.float_or("scale", 1.0)? as f32);
    table.periods = periods.unwrap_or(table.periods);
    Ok(table)
}

/// The scaling of a call in the engine.
#[cfg(feature = "engine")]
pub fn engine(call: &Call, dims: usize) -> Result<ScaledRope, SuiteError> {
    let scaling = match scaling(call, dims)? {
        RopeScaling::Linear { factor } => ops::RopeScaling::Linear { factor },
        RopeScaling::Dynamic { factor } => ops::RopeScaling::Dynamic { factor },
        RopeScaling::Llama3(p) => ops::RopeScaling::Llama3(ops::Llama3 {
            factor: p.factor,
            low_freq_factor: p.low_freq_factor,
            high_freq_factor: p.high_freq_factor,
            original_max_position_embeddings: p.original_max_position_embeddings,
        }),
        RopeScaling::Yarn(p) => ops::RopeScaling::Yarn(ops::Yarn {
            factor: p.factor,
            original_max_position_embeddings: p.original_max_position_embeddings,
            beta_fast: p.beta_fast,
            beta_slow: p.beta_slow,
            mscale: p.mscale,
            mscale_all_dim: p.mscale_all_dim,
        }),
        RopeScaling::LongRope(p) => ops::RopeScaling::LongRope(ops::LongRope {
            original_max_position_embeddings: p.original_max_position_embeddings,
            short_factor: p.short_factor.iter().map(|v| *v as f32).collect(),
            long_factor: p.long_factor.iter().map(|v| *v as f32).collect(),
            short_mscale: p.short_mscale,
            long_mscale: p.long_mscale,
        }),
        RopeScaling::Proportional(p) => ops::RopeScaling::Proportional(ops::Proportional {
            partial_rotary_factor: p.partial_rotary_factor,
            factor: p.factor,
        }),
        RopeScaling::Default => ops::RopeScaling::Default,
    };
    let traditional = call.bool_or("traditional", false)?;
    Ok(ScaledRope::new(dims as i32, base(call)?, traditional, CONTEXT as i32, &scaling)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mlx_parity_oracles::ops::Op;
    use mlx_parity_tensor::Dtype;

    use super::*;
    use crate::ops::{Argument, Generator};

    fn call(scaling: &str) -> Call {
        let arguments =
            BTreeMap::from([("scaling".to_owned(), Argument::Text(scaling.to_owned()))]);
        Call { op: Op::Rope, dtype: Dtype::F32, generator: Generator::Random, arguments }
    }

    #[test]
    fn each_scaling_changes_what_the_plain_table_says() {
        let of = |name| table(&call(name), 64, 2 * CONTEXT, None).unwrap();
        let names =
            ["linear", "dynamic", "llama3", "yarn", "longrope", "longrope-mscale", "proportional"];
        for name in names {
            assert_ne!(of(name), of("none"), "{name}");
        }
        assert!(table(&call("ntk"), 64, 1, None).is_err());
    }
}
