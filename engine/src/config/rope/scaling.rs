//! The kinds of scaling and the subkeys of each.

use serde_json::Value;

use super::RopeKeys;
use super::object::Reader;
use crate::error::EngineError;
use crate::ops::{Llama3, LongRope, Proportional, RopeScaling, Yarn};

const ORIGINAL: &str = "original_max_position_embeddings";

pub(super) fn read(reader: &mut Reader, keys: &RopeKeys) -> Result<RopeScaling, EngineError> {
    match reader.kind()?.to_owned().as_str() {
        "default" => {
            mrope(reader, false)?;
            Ok(RopeScaling::Default)
        }
        // Text has one position a token in all three sections, so that they make no difference.
        "mrope" => {
            mrope(reader, true)?;
            Ok(RopeScaling::Default)
        }
        "linear" => Ok(RopeScaling::Linear { factor: reader.need("factor")? }),
        "dynamic" => dynamic(reader, keys),
        "llama3" => llama3(reader),
        kind @ ("yarn" | "deepseek_yarn" | "telechat3-yarn") => yarn(reader, keys, kind),
        "longrope" | "su" => long_rope(reader, keys),
        "proportional" => Ok(RopeScaling::Proportional(Proportional {
            partial_rotary_factor: share(reader)?,
            factor: reader.number("factor")?.unwrap_or(1.0),
        })),
        other => {
            let wanted = "`default`, `linear`, `dynamic`, `llama3`, `yarn`, `deepseek_yarn`, \
                          `telechat3-yarn`, `longrope`, `su`, `proportional` or `mrope`";
            Err(reader.refuse("rope_type", format!("`{other}`"), wanted))
        }
    }
}

fn mrope(reader: &mut Reader, needed: bool) -> Result<(), EngineError> {
    if let Some(value) =
        reader.get("mrope_interleaved").filter(|value| !value.is_boolean()).cloned()
    {
        return Err(reader.refuse("mrope_interleaved", value, "a boolean"));
    }
    let sections = reader.get("mrope_section").cloned();
    let three = |value: &Value| {
        value.as_array().is_some_and(|all| all.len() == 3 && all.iter().all(Value::is_u64))
    };
    match sections {
        None if needed => Err(reader.refuse("mrope_section", "absent", "three whole numbers")),
        Some(value) if !three(&value) => {
            Err(reader.refuse("mrope_section", value, "three whole numbers"))
        }
        _ => Ok(()),
    }
}

/// The reference goes by `max_position_embeddings` alone.
fn dynamic(reader: &mut Reader, keys: &RopeKeys) -> Result<RopeScaling, EngineError> {
    let Some(limit) = keys.max_positions else {
        let message = "`max_position_embeddings` is missing, which dynamic scaling goes by";
        return Err(reader.file.error(message));
    };
    if let Some(given) = reader.number(ORIGINAL)?.filter(|given| *given != limit as f64) {
        let wanted = format!("max_position_embeddings = {limit}");
        return Err(reader.refuse(ORIGINAL, given, wanted));
    }
    Ok(RopeScaling::Dynamic { factor: reader.need("factor")? })
}

fn llama3(reader: &mut Reader) -> Result<RopeScaling, EngineError> {
    let scaling = Llama3 {
        factor: reader.need("factor")?,
        low_freq_factor: reader.number("low_freq_factor")?.unwrap_or(1.0),
        high_freq_factor: reader.number("high_freq_factor")?.unwrap_or(4.0),
        original_max_position_embeddings: reader.number(ORIGINAL)?.unwrap_or(8192.0),
    };
    if scaling.high_freq_factor <= scaling.low_freq_factor {
        let wanted = format!("above low_freq_factor = {}", scaling.low_freq_factor);
        return Err(reader.refuse("high_freq_factor", scaling.high_freq_factor, wanted));
    }
    Ok(RopeScaling::Llama3(scaling))
}

fn yarn(reader: &mut Reader, keys: &RopeKeys, kind: &str) -> Result<RopeScaling, EngineError> {
    let original = reader.number(ORIGINAL)?;
    // Without the key the reference takes 4096, as DeepSeek's code does; transformers takes
    // max_position_embeddings. Only where both are the same is it clear what is meant.
    let clear = kind == "deepseek_yarn" || keys.max_positions.is_none_or(|limit| limit == 4096);
    if original.is_none() && !clear {
        return Err(reader.refuse(ORIGINAL, "absent", "a number above 0"));
    }
    let scaling = Yarn {
        factor: reader.need("factor")?,
        original_max_position_embeddings: original.unwrap_or(4096.0),
        beta_fast: reader.number("beta_fast")?.unwrap_or(32.0),
        beta_slow: reader.number("beta_slow")?.unwrap_or(1.0),
        mscale: weight(reader, "mscale")?.unwrap_or(1.0),
        mscale_all_dim: weight(reader, "mscale_all_dim")?.unwrap_or(0.0),
    };
    // Keys of transformers that the reference does not read.
    attention_factor(reader, scaling.input_scale())?;
    if let Some(value) = reader.get("truncate").filter(|value| **value != true).cloned() {
        return Err(reader.refuse("truncate", value, "true"));
    }
    Ok(RopeScaling::Yarn(scaling))
}

fn long_rope(reader: &mut Reader, keys: &RopeKeys) -> Result<RopeScaling, EngineError> {
    let inner = reader.number(ORIGINAL)?;
    let outer = keys.original.map(|original| original as f64);
    if let (Some(inner), Some(outer)) = (inner, outer)
        && inner != outer
    {
        return Err(reader.refuse(ORIGINAL, inner, format!("{ORIGINAL} = {outer}")));
    }
    let Some(original) = outer.or(inner) else {
        return Err(reader.refuse(ORIGINAL, "absent", "a number above 0"));
    };
    let Some(limit) = keys.max_positions else {
        let message = "`max_position_embeddings` is missing, which longrope scaling goes by";
        return Err(reader.file.error(message));
    };
    let scaling = LongRope {
        original_max_position_embeddings: original,
        short_factor: factors(reader, "short_factor")?,
        long_factor: factors(reader, "long_factor")?,
        short_mscale: reader.number("short_mscale")?,
        long_mscale: reader.number("long_mscale")?,
    };
    // Keys of transformers that the reference does not read.
    attention_factor(reader, scaling.input_scale(limit as i32))?;
    let stretch = limit as f64 / original;
    if let Some(factor) = reader.number("factor")?.filter(|factor| *factor != stretch) {
        return Err(reader.refuse("factor", factor, stretch));
    }
    Ok(RopeScaling::LongRope(scaling))
}

/// A number, or one a pair, all above zero.
fn factors(reader: &mut Reader, key: &'static str) -> Result<Vec<f32>, EngineError> {
    let value = reader.get(key).cloned().unwrap_or(Value::Null);
    let number = |value: &Value| value.as_f64().filter(|n| *n > 0.0).map(|n| n as f32);
    let found: Option<Vec<f32>> = match &value {
        Value::Array(all) => all.iter().map(number).collect(),
        one => number(one).map(|one| vec![one]),
    };
    found.filter(|found| !found.is_empty()).ok_or_else(|| {
        let found = if value.is_null() { "absent".to_owned() } else { value.to_string() };
        reader.refuse(key, found, "a number above 0, or a list of them")
    })
}

/// `partial_rotary_factor` of proportional scaling: the share of pairs that turn.
fn share(reader: &mut Reader) -> Result<f64, EngineError> {
    match reader.number("partial_rotary_factor")? {
        None => Ok(1.0),
        Some(share) if share <= 1.0 => Ok(share),
        Some(share) => Err(reader.refuse("partial_rotary_factor", share, "above 0, at most 1")),
    }
}

/// A number that may be zero.
fn weight(reader: &mut Reader, key: &'static str) -> Result<Option<f64>, EngineError> {
    match reader.get(key).cloned() {
        None => Ok(None),
        Some(value) => match value.as_f64().filter(|number| *number >= 0.0) {
            Some(number) => Ok(Some(number)),
            None => Err(reader.refuse(key, value, "0 or more")),
        },
    }
}

/// `attention_factor` may only say what is computed anyway.
fn attention_factor(reader: &mut Reader, computed: f64) -> Result<(), EngineError> {
    match reader.number("attention_factor")? {
        Some(given) if (given / computed - 1.0).abs() > 1e-12 => {
            Err(reader.refuse("attention_factor", given, computed))
        }
        _ => Ok(()),
    }
}
