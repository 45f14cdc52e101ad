//! One-dimensional convolution, channels last (`mlx.core.conv1d`: correlation, the kernel is not
//! flipped).

use super::matmul::both;
use crate::answer::Answer;
use crate::error::OracleError;
use crate::tensor::Tensor64;

/// Parameters of [`conv1d`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv1d {
    /// Positions from one output to the next; not zero.
    pub stride: usize,
    /// Zeros on each side.
    pub padding: usize,
    /// Positions from one tap to the next; not zero.
    pub dilation: usize,
    /// Channel groups that do not mix; divides both channel counts.
    pub groups: usize,
}

impl Default for Conv1d {
    fn default() -> Self {
        Self { stride: 1, padding: 0, dilation: 1, groups: 1 }
    }
}

/// `x` of `[batch, length, in]` with `w` of `[out, taps, in / groups]` to `[batch, positions,
/// out]`.
///
/// The condition is Σ|xᵢwᵢ| over the taps inside the input.
pub fn conv1d(x: &Tensor64, w: &Tensor64, conv: Conv1d) -> Result<Answer, OracleError> {
    let (&[batch, length, channels], &[out, taps, depth]) = (x.shape(), w.shape()) else {
        return Err(OracleError::shape(
            "conv1d",
            w.shape(),
            "[out, taps, in / groups] on [batch, length, in]",
        ));
    };
    let Conv1d { stride, padding, dilation, groups } = conv;
    if groups == 0
        || depth * groups != channels
        || out % groups != 0
        || stride * dilation * taps == 0
    {
        let wanted = format!("one for {channels} channels under {conv:?}");
        return Err(OracleError::shape("conv1d", w.shape(), wanted));
    }
    let reach = dilation * (taps - 1) + 1;
    let positions = (length + 2 * padding).checked_sub(reach).map_or(0, |rest| rest / stride + 1);
    let mut pairs = Vec::with_capacity(batch * positions * out);
    for item in x.data().chunks((length * channels).max(1)) {
        for position in 0..positions {
            for (filter, kernel) in w.data().chunks((taps * depth).max(1)).enumerate() {
                let first = filter / (out / groups) * depth;
                let tap = |t: usize| {
                    let at = (position * stride + t * dilation).checked_sub(padding)?;
                    (at < length).then(|| &item[at * channels + first..][..depth])
                };
                let inside =
                    (0..taps).filter_map(|t| Some((tap(t)?, &kernel[t * depth..][..depth])));
                let (inputs, weights): (Vec<&[f64]>, Vec<&[f64]>) = inside.unzip();
                pairs.push(both(&inputs.concat(), &weights.concat()));
            }
        }
    }
    Ok(Answer::from_pairs(vec![batch, positions, out], pairs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_padding_stride_and_dilation() {
        let x = Tensor64::new([1, 5, 1], vec![1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let w = Tensor64::new([1, 2, 1], vec![1.0, -10.0]).unwrap();
        let ask = |conv| conv1d(&x, &w, conv).unwrap().value.into_data();
        assert_eq!(ask(Conv1d::default()), [-19.0, -28.0, -37.0, -46.0]);
        assert_eq!(
            ask(Conv1d { padding: 1, stride: 2, ..Conv1d::default() }),
            [-10.0, -28.0, -46.0]
        );
        assert_eq!(ask(Conv1d { dilation: 3, ..Conv1d::default() }), [-39.0, -48.0]);
        assert!(ask(Conv1d { dilation: 6, ..Conv1d::default() }).is_empty());
    }

    #[test]
    fn groups_keep_their_channels() {
        let x = Tensor64::new([2, 1, 2], vec![1.0, 2.0, 3.0, 4.0]).unwrap();
        let w = Tensor64::new([2, 1, 1], vec![10.0, 100.0]).unwrap();
        let depthwise = Conv1d { groups: 2, ..Conv1d::default() };
        assert_eq!(conv1d(&x, &w, depthwise).unwrap().value.data(), [10.0, 200.0, 30.0, 400.0]);
        assert!(conv1d(&x, &w, Conv1d::default()).is_err());
    }
}
