//! Values as Rust source.

use crate::config::{ConfigFile, Dims, RopeConfig};
use crate::error::EngineError;
use crate::ops::RopeScaling;

/// A double, with underscores between the thousands of its parts where they are long.
pub(super) fn number(value: f64) -> String {
    if value == std::f64::consts::FRAC_1_SQRT_2 {
        return "std::f64::consts::FRAC_1_SQRT_2".to_owned();
    }
    let text = format!("{value:?}");
    match text.split_once('.') {
        Some((whole, part)) if part.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{}.{}", grouped(whole, whole.len()), grouped(part, 0))
        }
        _ => text,
    }
}

/// Digits with an underscore at each multiple of three from position `from`.
fn grouped(digits: &str, from: usize) -> String {
    if digits.len() < 5 {
        return digits.to_owned();
    }
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && i.abs_diff(from).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

/// A size, with underscores between its thousands.
pub(super) fn size(value: usize) -> String {
    let text = number(value as f64);
    text.trim_end_matches(".0").to_owned()
}

/// `const DIMS`.
pub(super) fn dims(dims: &Dims) -> String {
    format!(
        "\nconst DIMS: Dims = Dims {{ hidden_size: {}, num_layers: {}, intermediate_size: {}, heads: {}, \
         kv_heads: {}, head_dim: {}, vocab_size: {}, eps: {}, max_positions: {} }};\n",
        size(dims.hidden_size),
        size(dims.num_layers),
        size(dims.intermediate_size),
        size(dims.heads),
        size(dims.kv_heads),
        size(dims.head_dim),
        size(dims.vocab_size),
        number(dims.eps),
        option(dims.max_positions.map(size)),
    )
}

/// A rotary encoding under a constant's name.
///
/// # Errors
/// [`EngineError::UnsupportedConfig`] for `longrope`, whose factors are no literal.
pub(super) fn rope(
    file: &ConfigFile,
    name: &str,
    rope: &RopeConfig,
) -> Result<String, EngineError> {
    if matches!(rope.scaling, RopeScaling::LongRope(_)) {
        let wanted = "another one: no network is generated for it";
        return Err(file.unsupported("rope_scaling", "`longrope`", wanted));
    }
    let scaling = format!("{:?}", rope.scaling).replace('(', "(crate::ops::");
    Ok(format!(
        "\nconst {name}: crate::config::RopeConfig = crate::config::RopeConfig {{ base: {}, \
         traditional: {}, scaling: crate::ops::RopeScaling::{scaling}, partial_rotary_factor: {}, \
         max_positions: {} }};\n",
        number(rope.base),
        rope.traditional,
        number(rope.partial_rotary_factor),
        option(rope.max_positions.map(size)),
    ))
}

fn option(value: Option<String>) -> String {
    value.map_or("None".to_owned(), |value| format!("Some({value})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_as_themselves() {
        for value in [1e-6, 0.25, 8.0, 10_000.0, 1_000_000.0, 5.656_854_249_492_381] {
            let text = number(value);
            assert_eq!(text.replace('_', "").parse(), Ok(value), "{text}");
        }
        assert_eq!(
            (number(1e6), size(262_144), size(96)),
            ("1_000_000.0".into(), "262_144".into(), "96".into())
        );
    }
}
