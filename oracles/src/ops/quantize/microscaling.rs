//! Codes that are small floats, with a shared scale of eight bits (OCP Microscaling 1.0; MLX's
//! mxfp4, mxfp8, nvfp4).

use super::{Arithmetic, Mode, QuantizeRule, Scales};
use crate::format::{E2M1, E4M3, F32, Overflow, decode_e8m0};
use crate::tensor::Tensor;

/// How an E8M0 scale is chosen from the real one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleRule {
    /// The smallest power of two not below it, so that no element saturates: MLX 0.32
    /// (`mx_scale_round_up`).
    Up,
    /// The power of two nearest in the logarithm: MLX before that.
    Nearest,
}

/// The scale codes of E8M0 span 2^−127 to 2^127.
fn encode_e8m0(scale: f64, rule: ScaleRule) -> u8 {
    if !scale.is_finite() {
        return u8::MAX;
    }
    if scale <= 0.0 {
        // log2(0) is −inf; the reference's conversion of it to an integer is undefined. All codes
        // are zero anyway.
        return 127;
    }
    let nearest = libm::log2(scale).round().clamp(-127.0, 127.0) as i32;
    let code = (nearest + 127) as u8;
    let short = decode_e8m0(code) < scale && code < 0xfe;
    code + u8::from(rule == ScaleRule::Up && short)
}

pub(super) fn quantize(
    w: &[f64],
    groups: Vec<usize>,
    mode: Mode,
    rule: QuantizeRule,
) -> (Vec<u32>, Scales) {
    let element = if mode == Mode::Mxfp8 { E4M3 } else { E2M1 };
    let round = |v| rule.arithmetic.round(v);
    let whole = match mode {
        Mode::Nvfp4 { global_scale: Some(g) } => round(E4M3.max_value() * E2M1.max_value() / g),
        _ => 1.0,
    };
    let mut codes = Vec::with_capacity(w.len());
    let mut scales = Vec::with_capacity(w.len() / mode.group_size());
    for group in w.chunks(mode.group_size()) {
        let largest = group.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
        let wanted = round(round(largest / element.max_value()) * whole);
        let (scale_code, scale) = encode_scale(mode, wanted, rule.scale_rule);
        let inverse = if scale == 0.0 { 0.0 } else { round(whole / scale) };
        scales.push(scale_code);
        codes.extend(group.iter().map(|&v| {
            let scaled = scaled(v, scale, inverse, whole, rule.arithmetic);
            element.encode(scaled, Overflow::Saturate) as u32
        }));
    }
    (codes, Scales::Codes(Tensor::trusted(groups, scales)))
}

/// Powers of two divide exactly; other scales multiply by their rounded inverse only where the
/// reference does.
fn scaled(v: f64, scale: f64, inverse: f64, whole: f64, arithmetic: Arithmetic) -> f64 {
    if scale == 0.0 {
        return 0.0;
    }
    let value = if whole == 1.0 { v / scale } else { v * inverse };
    arithmetic.round(value)
}

fn encode_scale(mode: Mode, wanted: f64, rule: ScaleRule) -> (u8, f64) {
    if matches!(mode, Mode::Nvfp4 { .. }) {
        let code = E4M3.encode(wanted, Overflow::Saturate) as u8;
        return (code, E4M3.decode(u64::from(code)));
    }
    let code = encode_e8m0(wanted, rule);
    (code, F32.round(decode_e8m0(code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_codes_round_up_or_to_the_nearest() {
        for code in 0..0xfe_u8 {
            let exact = decode_e8m0(code);
            for rule in [ScaleRule::Up, ScaleRule::Nearest] {
                assert_eq!(encode_e8m0(exact, rule), code, "{rule:?}");
            }
            assert_eq!(encode_e8m0(exact * 1.1, ScaleRule::Up), code + 1);
            assert_eq!(encode_e8m0(exact * 1.1, ScaleRule::Nearest), code);
            assert_eq!(encode_e8m0(exact * 1.6, ScaleRule::Nearest), code + 1);
        }
        assert_eq!(encode_e8m0(f64::INFINITY, ScaleRule::Up), 0xff);
        assert_eq!(encode_e8m0(1e300, ScaleRule::Up), 0xfe);
    }
}
