//! `rope_scaling` of a configuration, as `mlx_lm.models.rope_utils.initialize_rope` reads it.

use serde_json::Value;

use crate::ops::RopeScaling;
use crate::ops::rope::{Llama3, LongRope, Proportional, Yarn};

/// The scaling, or what is wrong with it.
pub(super) fn scaling(value: &Value) -> Result<RopeScaling, String> {
    let named = |key| value.get(key).and_then(Value::as_str);
    let kind = named("type").or_else(|| named("rope_type")).unwrap_or("default");
    let given = |key: &str| match value.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(given) => match given.as_f64() {
            Some(number) => Ok(Some(number)),
            None => Err(format!("rope_scaling `{key}` is {given}, wanted a number")),
        },
    };
    let or = |key: &str, default: f64| Ok::<_, String>(given(key)?.unwrap_or(default));
    let need = |key: &str| match or(key, f64::NAN)? {
        found if found.is_nan() => {
            Err(format!("rope_scaling `{key}` is absent, wanted by `{kind}`"))
        }
        found => Ok(found),
    };
    let context = "original_max_position_embeddings";
    Ok(match kind {
        "default" | "mrope" => RopeScaling::Default,
        "linear" => RopeScaling::Linear { factor: need("factor")? },
        "dynamic" => RopeScaling::Dynamic { factor: need("factor")? },
        "llama3" => RopeScaling::Llama3(Llama3 {
            factor: need("factor")?,
            low_freq_factor: or("low_freq_factor", 1.0)?,
            high_freq_factor: or("high_freq_factor", 4.0)?,
            original_max_position_embeddings: or(context, 8192.0)?,
        }),
        "yarn" | "deepseek_yarn" | "telechat3-yarn" => RopeScaling::Yarn(Yarn {
            factor: need("factor")?,
            original_max_position_embeddings: or(context, 4096.0)?,
            beta_fast: or("beta_fast", 32.0)?,
            beta_slow: or("beta_slow", 1.0)?,
            mscale: or("mscale", 1.0)?,
            mscale_all_dim: or("mscale_all_dim", 0.0)?,
        }),
        "longrope" | "su" => RopeScaling::LongRope(LongRope {
            original_max_position_embeddings: need(context)?,
            short_factor: factors(value, "short_factor")?,
            long_factor: factors(value, "long_factor")?,
            short_mscale: given("short_mscale")?,
            long_mscale: given("long_mscale")?,
        }),
        "proportional" => RopeScaling::Proportional(Proportional {
            partial_rotary_factor: or("partial_rotary_factor", 1.0)?,
            factor: or("factor", 1.0)?,
        }),
        other => return Err(format!("rope_scaling type is `{other}`, which ref64 does not know")),
    })
}

/// A list of numbers, or one for all.
fn factors(value: &Value, key: &str) -> Result<Vec<f64>, String> {
    let found = match value.get(key) {
        Some(Value::Array(list)) => list.iter().map(Value::as_f64).collect(),
        Some(one) => one.as_f64().map(|one| vec![one]),
        None => None,
    };
    found.ok_or_else(|| format!("rope_scaling `{key}` is neither a number nor a list of numbers"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_and_what_they_need() {
        assert_eq!(scaling(&json!({})), Ok(RopeScaling::Default));
        let linear = Ok(RopeScaling::Linear { factor: 2.0 });
        assert_eq!(scaling(&json!({"type": "linear", "rope_type": "yarn", "factor": 2})), linear);
        assert!(scaling(&json!({"rope_type": "llama3"})).unwrap_err().contains("factor"));
        assert!(
            scaling(&json!({"rope_type": "yarn", "factor": "2"})).unwrap_err().contains("factor")
        );
        assert!(scaling(&json!({"rope_type": "spiral"})).unwrap_err().contains("spiral"));
        let long =
            json!({"type": "longrope", "original_max_position_embeddings": 8, "short_factor": 1});
        assert!(scaling(&long).unwrap_err().contains("long_factor"));
    }
}
