//! How far apart two tensors are, and whether that is too far.

use std::fmt;

use mlx_parity_tensor::TensorView;
use serde::Serialize;

use crate::compare::{Moments, bits};

/// From where on two tensors part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Threshold {
    /// Other bits, dtype or shape.
    Bits,
    /// A [`Gap::relative`] that is not at most this.
    Relative(f64),
}

/// The distance of a tensor from the one it should be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gap {
    /// Same dtype and shape.
    pub same_form: bool,
    /// Elements.
    pub elements: u64,
    /// Those with other bits; all where the form is another.
    pub differ: u64,
    /// max|got − want| / max|want|, in float64: 0 where all are equal, infinite where a NaN or an infinity
    /// stands against something else, where all wanted are zero, or where the shape is another.
    pub relative: f64,
}

/// The elements that part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// The shape of the tensor.
    pub shape: Vec<usize>,
    /// The first of them, row-major: an index for each axis.
    pub first: Vec<usize>,
    /// For each axis the least and the greatest index, and how many indices between them there are.
    pub axes: Vec<[usize; 3]>,
    /// How many.
    pub count: u64,
}

impl Threshold {
    /// Whether a gap is too wide.
    pub fn parts(self, gap: &Gap) -> bool {
        match self {
            Self::Bits => !gap.same_form || gap.differ > 0,
            Self::Relative(most) => !(gap.relative <= most),
        }
    }

    /// Where two tensors of one shape part, element by element; none where none does.
    pub fn spread(self, got: &TensorView<'_>, want: &TensorView<'_>) -> Option<Spread> {
        if got.shape() != want.shape() {
            return None;
        }
        let same_dtype = got.dtype() == want.dtype();
        let most = match self {
            Self::Bits => 0.0,
            Self::Relative(most) => most * greatest(&want.to_f64()),
        };
        let far = |at: usize| match self {
            Self::Bits if same_dtype => got.bits_at(at) != want.bits_at(at),
            _ => apart(got.value_at(at), want.value_at(at), most),
        };
        Spread::of(want.shape(), (0..want.len()).filter(|&at| far(at)))
    }
}

impl Gap {
    /// Of `got` from `want`.
    pub fn of(got: &TensorView<'_>, want: &TensorView<'_>) -> Self {
        let elements = want.len() as u64;
        let same_form = bits::Form::of(got) == bits::Form::of(want);
        if same_form && got.bytes() == want.bytes() {
            return Self { same_form, elements, differ: 0, relative: 0.0 };
        }
        let differ = if same_form { bits::bit_exact(got, want).differ } else { elements };
        let relative =
            if got.shape() == want.shape() { relative(got, want) } else { f64::INFINITY };
        Self { same_form, elements, differ, relative }
    }
}

fn relative(got: &TensorView<'_>, want: &TensorView<'_>) -> f64 {
    let (got, want) = (got.to_f64(), want.to_f64());
    let mut moments = Moments::default();
    moments.add_values(0, &got, &want);
    if moments.apart > 0 {
        return f64::INFINITY;
    }
    if moments.max_abs == 0.0 { 0.0 } else { moments.max_abs / greatest(&want) }
}

/// The greatest finite magnitude.
fn greatest(values: &[f64]) -> f64 {
    let finite = values.iter().map(|x| x.abs()).filter(|x| x.is_finite());
    finite.fold(0.0, |a, b| if b > a { b } else { a })
}

fn apart(got: f64, want: f64, most: f64) -> bool {
    let same = got == want || (got.is_nan() && want.is_nan());
    !same && !((got - want).abs() <= most)
}

impl Spread {
    fn of(shape: &[usize], elements: impl Iterator<Item = usize>) -> Option<Self> {
        let mut hit: Vec<Vec<bool>> = shape.iter().map(|&extent| vec![false; extent]).collect();
        let (mut first, mut count) = (None, 0);
        for element in elements {
            let coords = coords(shape, element);
            count += 1;
            for (axis, &at) in hit.iter_mut().zip(&coords) {
                axis[at] = true;
            }
            first.get_or_insert(coords);
        }
        let axes = hit.iter().map(|hit| extent(hit)).collect();
        Some(Self { shape: shape.to_vec(), first: first?, axes, count })
    }
}

fn coords(shape: &[usize], mut element: usize) -> Vec<usize> {
    let mut coords = vec![0; shape.len()];
    for (at, &extent) in coords.iter_mut().zip(shape).rev() {
        *at = element % extent;
        element /= extent;
    }
    coords
}

fn extent(hit: &[bool]) -> [usize; 3] {
    let first = hit.iter().position(|&hit| hit).unwrap_or(0);
    let last = hit.iter().rposition(|&hit| hit).unwrap_or(0);
    [first, last, hit.iter().filter(|&&hit| hit).count()]
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bits => f.write_str("bit equality"),
            Self::Relative(most) => write!(f, "relative error {most:e}"),
        }
    }
}

impl fmt::Display for Spread {
    /// `[0, 1, 3–18, 0–31] of [1, 4, 19, 32]`: per axis where the elements lie.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axis = |&[first, last, count]: &[usize; 3]| match (last - first, count) {
            (0, _) => first.to_string(),
            (between, count) if between + 1 == count => format!("{first}–{last}"),
            (_, count) => format!("{count} in {first}–{last}"),
        };
        let axes: Vec<_> = self.axes.iter().map(axis).collect();
        write!(f, "[{}] of {:?}", axes.join(", "), self.shape)
    }
}

#[cfg(test)]
mod tests {
    use mlx_parity_tensor::HostTensor;
    use rstest::rstest;

    use super::*;

    fn tensor(values: &[f32]) -> HostTensor {
        HostTensor::from_f32([values.len()], values).unwrap()
    }

    #[rstest]
    #[case::equal(&[1.0, -2.0], &[1.0, -2.0], 0, 0.0)]
    #[case::a_quarter(&[1.0, -1.5], &[1.0, -2.0], 1, 0.25)]
    #[case::zero_sign(&[0.0, 1.0], &[-0.0, 1.0], 1, 0.0)]
    #[case::nan_against_number(&[f32::NAN, 1.0], &[0.0, 1.0], 1, f64::INFINITY)]
    #[case::nan_against_nan(&[f32::NAN, 1.0], &[-f32::NAN, 1.0], 1, 0.0)]
    #[case::all_zero(&[1.0, 0.0], &[0.0, 0.0], 1, f64::INFINITY)]
    fn gaps(#[case] got: &[f32], #[case] want: &[f32], #[case] differ: u64, #[case] relative: f64) {
        let gap = Gap::of(&tensor(got).view(), &tensor(want).view());
        assert_eq!((gap.differ, gap.relative), (differ, relative));
        assert_eq!(Threshold::Bits.parts(&gap), differ > 0);
        assert_eq!(Threshold::Relative(0.25).parts(&gap), relative > 0.25);
    }

    #[test]
    fn another_form_parts() {
        let (a, b) = (tensor(&[1.0]), tensor(&[1.0, 1.0]));
        let gap = Gap::of(&a.view(), &b.view());
        assert!(Threshold::Bits.parts(&gap) && Threshold::Relative(1e9).parts(&gap));
        assert_eq!(Threshold::Bits.spread(&a.view(), &b.view()), None);
        // Another dtype with the same values parts by its bits only.
        let half = HostTensor::from_bf16_bits([1], &[0x3f80]).unwrap();
        let gap = Gap::of(&half.view(), &a.view());
        assert!(Threshold::Bits.parts(&gap) && !Threshold::Relative(0.0).parts(&gap));
    }

    #[test]
    fn a_spread_says_where_on_each_axis() {
        let want = HostTensor::from_f32([2, 3, 4], &[1.0; 24]).unwrap();
        let mut values = [1.0f32; 24];
        for at in [5, 7, 17] {
            values[at] = 2.0;
        }
        let got = HostTensor::from_f32([2, 3, 4], &values).unwrap();
        let spread = Threshold::Bits.spread(&got.view(), &want.view()).unwrap();
        assert_eq!((spread.first.as_slice(), spread.count), (&[0, 1, 1][..], 3));
        assert_eq!(spread.to_string(), "[0–1, 1, 2 in 1–3] of [2, 3, 4]");
        assert_eq!(Threshold::Relative(0.5).spread(&got.view(), &want.view()), Some(spread));
        assert_eq!(Threshold::Relative(1.0).spread(&got.view(), &want.view()), None);
    }
}
