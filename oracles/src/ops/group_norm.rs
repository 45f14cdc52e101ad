//! Group normalization (Wu and He, 2018; `mlx.nn.GroupNorm`).

use super::layer_norm::{affine, normalize};
use crate::answer::Answer;
use crate::error::OracleError;
use crate::tensor::Tensor64;

/// Which channels share a group of g among C channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelOrder {
    /// Channel c is in group c mod g: MLX's default.
    Strided,
    /// Channel c is in group c / (C/g): `pytorch_compatible=True`.
    Contiguous,
}

/// Parameters of [`group_norm`].
#[derive(Clone, Copy, Debug)]
pub struct GroupNorm<'a> {
    /// Number of groups; divides the number of channels.
    pub groups: usize,
    /// Which channels share a group.
    pub order: ChannelOrder,
    /// Per channel.
    pub weight: Option<&'a Tensor64>,
    /// Per channel.
    pub bias: Option<&'a Tensor64>,
    /// Added to the variance.
    pub eps: f64,
}

/// Normalizes `x` of shape `[batch, .., channels]` over all positions and the channels of each
/// group.
pub fn group_norm(x: &Tensor64, norm: &GroupNorm) -> Result<Answer, OracleError> {
    let op = "group_norm";
    let channels = x.last_dim();
    if x.ndim() < 2 || norm.groups == 0 || !channels.is_multiple_of(norm.groups) {
        let wanted = format!("[batch, .., channels] of {} whole groups", norm.groups);
        return Err(OracleError::shape(op, x.shape(), wanted));
    }
    for affine in norm.weight.iter().chain(&norm.bias) {
        if affine.shape() != [channels] {
            return Err(OracleError::shape(op, affine.shape(), format!("[{channels}]")));
        }
    }
    let item: usize = x.shape()[1..].iter().product();
    let mut pairs = vec![(0.0, 0.0); x.len()];
    for start in (0..x.len()).step_by(item.max(1)) {
        for group in 0..norm.groups {
            let members = members(start, item, channels, group, norm);
            let row: Vec<f64> = members.iter().map(|&at| x.data()[at]).collect();
            for (at, pair) in members.into_iter().zip(normalize(&row, norm.eps)) {
                let weight = norm.weight.map_or(1.0, |w| w.data()[at % channels]);
                let bias = norm.bias.map_or(0.0, |b| b.data()[at % channels]);
                pairs[at] = affine(pair, weight, bias);
            }
        }
    }
    Ok(Answer::from_pairs(x.shape().to_vec(), pairs))
}

/// Offsets of a group's elements in one item of the batch.
fn members(
    start: usize,
    item: usize,
    channels: usize,
    group: usize,
    norm: &GroupNorm,
) -> Vec<usize> {
    let group_of = |channel: usize| match norm.order {
        ChannelOrder::Strided => channel % norm.groups,
        ChannelOrder::Contiguous => channel / (channels / norm.groups),
    };
    (start..start + item).filter(|at| group_of(at % channels) == group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(order: ChannelOrder) -> Vec<f64> {
        // Channels 0 and 1 hold ±1 and 2 and 3 hold ±100, by position.
        let data = vec![1.0, 1.0, 100.0, 100.0, -1.0, -1.0, -100.0, -100.0];
        let x = Tensor64::new([1, 2, 4], data).unwrap();
        let norm = GroupNorm { groups: 2, order, weight: None, bias: None, eps: 0.0 };
        group_norm(&x, &norm).unwrap().value.into_data()
    }

    #[test]
    fn the_two_orders_group_different_channels() {
        assert_eq!(signs(ChannelOrder::Contiguous), [1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0]);
        let strided = signs(ChannelOrder::Strided);
        assert!((strided[0] - 1.0 / 5000.5_f64.sqrt()).abs() <= 1e-16);
        assert!((strided[2] - 100.0 / 5000.5_f64.sqrt()).abs() <= 1e-15);
    }

    #[test]
    fn items_of_the_batch_do_not_mix() {
        let x = Tensor64::new([2, 2, 1], vec![-512.0, 512.0, 0.0, 2.0]).unwrap();
        let (w, b) = (Tensor64::vector([2.0]), Tensor64::vector([1.0]));
        let order = ChannelOrder::Strided;
        let norm = GroupNorm { groups: 1, order, weight: Some(&w), bias: Some(&b), eps: 0.0 };
        assert_eq!(group_norm(&x, &norm).unwrap().value.data(), [-1.0, 3.0, -1.0, 3.0]);
        assert!(group_norm(&x, &GroupNorm { groups: 2, ..norm }).is_err());
    }
}
