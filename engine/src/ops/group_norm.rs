//! `nn.GroupNorm`.

use mlx_rs::Array;

use super::{
    Axes, add, layer_norm, mean, multiply, refused, reshape, rsqrt, scalar, subtract, transpose,
    var,
};
use crate::error::EngineError;

/// Which channels share a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelOrder {
    /// Channel c is in group c mod groups: the default of `nn.GroupNorm`.
    Strided,
    /// Channel c is in group c / (channels / groups): `pytorch_compatible=True`.
    Contiguous,
}

/// Parameters of [`group_norm`].
#[derive(Debug, Clone, Copy)]
pub struct GroupNorm<'a> {
    /// Number of groups; divides the number of channels.
    pub groups: i32,
    /// Which channels share a group.
    pub order: ChannelOrder,
    /// Weight and bias, `[channels]` each.
    pub affine: Option<(&'a Array, &'a Array)>,
    /// Added to the variance.
    pub eps: f32,
}

/// `nn.GroupNorm`: x `[batch, .., channels]` normalised over all positions and the channels of each
/// group, composed as `mlx/nn/layers/normalization.py` does in x's dtype.
///
/// # Errors
/// [`EngineError::Op`] for channels that the groups do not divide, and where MLX throws.
pub fn group_norm(x: &Array, norm: &GroupNorm) -> Result<Array, EngineError> {
    let [batch, .., channels] = *x.shape() else {
        let found = format!("shape {:?}", x.shape());
        return Err(refused("group_norm", &found, "[batch, .., channels]"));
    };
    if norm.groups < 1 || channels % norm.groups != 0 {
        let found = format!("{} groups", norm.groups);
        return Err(refused("group_norm", &found, &format!("a divisor of {channels} channels")));
    }
    let normalised = match norm.order {
        ChannelOrder::Strided => strided(x, batch, norm)?,
        ChannelOrder::Contiguous => contiguous(x, batch, channels, norm)?,
    };
    match norm.affine {
        Some((weight, bias)) => add(&multiply(weight, &normalised)?, bias),
        None => Ok(normalised),
    }
}

fn strided(x: &Array, batch: i32, norm: &GroupNorm) -> Result<Array, EngineError> {
    let grouped = reshape(x, &[batch, -1, norm.groups])?;
    let mean = mean(&grouped, Axes::Of(&[1]), true)?;
    let var = var(&grouped, Axes::Of(&[1]), true, 0)?;
    let eps = scalar(f64::from(norm.eps), var.dtype())?;
    let scaled = multiply(&subtract(&grouped, &mean)?, &rsqrt(&add(&var, &eps)?)?)?;
    reshape(&scaled, x.shape())
}

fn contiguous(
    x: &Array,
    batch: i32,
    channels: i32,
    norm: &GroupNorm,
) -> Result<Array, EngineError> {
    let (groups, width) = (norm.groups, channels / norm.groups);
    let swapped = |a: &Array| transpose(a, &[0, 2, 1, 3]);
    let grouped = swapped(&reshape(x, &[batch, -1, groups, width])?)?;
    let rows = reshape(&grouped, &[batch, groups, -1])?;
    let rows = layer_norm(&rows, None, None, norm.eps)?;
    reshape(&swapped(&reshape(&rows, &[batch, groups, -1, width])?)?, x.shape())
}
