//! Bit-exact: same shape, same dtype, same bits; and where not, how they differ.

use std::fmt;

use mlx_parity_tensor::{Dtype, TensorView};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::decimal::{decimal, hex};
use super::histogram::Histogram;
use super::tally::Tally;
use super::ulp::{Distance, distance_of_bits};

/// Bytes one thread takes at a time.
const PIECE: usize = 1 << 20;
/// Below this many bytes the threads cost more than they save.
const PARALLEL_FROM: usize = 4 << 20;

/// The answer to "are the bits the same", complete enough to explain a no.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BitReport {
    /// Dtype and shape found.
    pub got: Form,
    /// Dtype and shape wanted.
    pub want: Form,
    /// Elements compared: none when the forms differ.
    pub elements: u64,
    /// Elements whose bits differ.
    pub differ: u64,
    /// The first that differs, in row-major order.
    pub first: Option<Difference>,
    /// The farthest apart.
    pub worst: Option<Difference>,
    /// Greatest distance among differing elements that have one.
    pub max_ulp: Option<u64>,
    /// Differing elements by distance.
    pub histogram: Histogram,
    /// Elements differ, and all that do are zeros of opposite sign.
    pub only_zero_sign: bool,
    /// Elements differ, and all that do are NaNs with different payloads or signs.
    pub only_nan_payload: bool,
}

/// Dtype and shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions.
    pub shape: Vec<usize>,
}

/// One element that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// Row-major index.
    pub index: usize,
    /// Coordinates, one for each axis.
    pub coords: Vec<usize>,
    /// The element found.
    pub got: Element,
    /// The element wanted.
    pub want: Element,
    /// How far apart they are.
    pub distance: Distance,
}

/// An element as text: JSON numbers hold neither NaN nor 64 bits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Element {
    /// Bits, as `0x…`.
    pub hex: String,
    /// Value.
    pub decimal: String,
}

/// Compares bit for bit.
///
/// Equal bytes cost a memory comparison; statistics are taken only of pieces that differ. Large tensors are compared
/// by all threads of the current rayon pool, with the same answer.
pub fn bit_exact(got: &TensorView<'_>, want: &TensorView<'_>) -> BitReport {
    let mut tally = Tally::new(want.dtype());
    if Form::of(got) == Form::of(want) {
        tally = tally_of(got, want);
    }
    BitReport::new(got, want, &tally)
}

fn tally_of(got: &TensorView<'_>, want: &TensorView<'_>) -> Tally {
    let dtype = want.dtype();
    let mut whole = Tally::new(dtype);
    if want.bytes().len() < PARALLEL_FROM {
        whole.add(0, got.bytes(), want.bytes());
        return whole;
    }
    let pieces = got.bytes().par_chunks(PIECE).zip(want.bytes().par_chunks(PIECE)).enumerate();
    pieces
        .fold(
            || Tally::new(dtype),
            |mut tally, (at, (got, want))| {
                tally.add(at * (PIECE / dtype.size()), got, want);
                tally
            },
        )
        .reduce(
            || Tally::new(dtype),
            |mut tally, other| {
                tally.merge(&other);
                tally
            },
        )
}

impl BitReport {
    /// A report of tensors whose elements have been tallied; of none when their forms differ.
    pub fn new(got: &TensorView<'_>, want: &TensorView<'_>, tally: &Tally) -> Self {
        let difference = |index| Difference::at(got, want, index);
        let differ = tally.differ();
        Self {
            got: Form::of(got),
            want: Form::of(want),
            elements: tally.elements(),
            differ,
            first: tally.first().map(difference),
            worst: tally.find_worst(got, want).map(difference),
            max_ulp: tally.max_ulp(),
            histogram: tally.histogram(),
            only_zero_sign: differ > 0 && tally.zero_sign() == differ,
            only_nan_payload: differ > 0 && tally.nan_payload() == differ,
        }
    }

    /// Same shape, same dtype, same bits.
    pub fn is_exact(&self) -> bool {
        self.same_form() && self.differ == 0
    }

    /// Same shape and dtype.
    pub fn same_form(&self) -> bool {
        self.got == self.want
    }

    /// The report for people, its coordinates after the name of the tensor: `logits[0, 417]   got …`.
    pub fn named<'a>(&'a self, name: &'a str) -> impl fmt::Display + 'a {
        Named { report: self, name }
    }
}

impl Form {
    /// Dtype and shape of a tensor.
    pub fn of(tensor: &TensorView<'_>) -> Self {
        Self { dtype: tensor.dtype(), shape: tensor.shape().to_vec() }
    }
}

impl Difference {
    /// The pair at a flat index of two tensors of the same form.
    pub fn at(got: &TensorView<'_>, want: &TensorView<'_>, index: usize) -> Self {
        let dtype = want.dtype();
        Self {
            index,
            coords: want.coords(index),
            got: Element::at(got, index),
            want: Element::at(want, index),
            distance: distance_of_bits(dtype, got.bits_at(index), want.bits_at(index)),
        }
    }
}

impl Element {
    /// The element at a flat index.
    pub fn at(tensor: &TensorView<'_>, index: usize) -> Self {
        let hex = hex(tensor.dtype(), tensor.bits_at(index));
        Self { hex, decimal: decimal(tensor, index) }
    }
}

struct Named<'a> {
    report: &'a BitReport,
    name: &'a str,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BitReport { got, want, elements, differ, .. } = self.report;
        if !self.report.same_form() {
            return write!(f, "{}   got {got}   want {want}", self.name);
        }
        let Some(first) = &self.report.first else {
            return write!(f, "{}   bit-exact, {elements} elements", self.name);
        };
        writeln!(f, "{}{first}", self.name)?;
        write!(f, "differ {differ} of {elements} · {}", self.report.extent())
    }
}

impl BitReport {
    /// `max 2 ulp`, and what a distance cannot say.
    fn extent(&self) -> String {
        if self.only_zero_sign {
            return "only in the sign of zero".to_owned();
        }
        if self.only_nan_payload {
            return "only in NaN payloads".to_owned();
        }
        let Histogram { sign, infinite, nan, .. } = self.histogram;
        let max = self.max_ulp.map(|ulp| format!("max {ulp} ulp"));
        let rest = [(sign, "of other sign"), (infinite, "infinite"), (nan, "NaN")];
        let rest = rest.into_iter().filter(|(count, _)| *count > 0);
        let parts = max.into_iter().chain(rest.map(|(count, what)| format!("{count} {what}")));
        parts.collect::<Vec<_>>().join(" · ")
    }
}

impl fmt::Display for BitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.named("").fmt(f)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.dtype, self.shape)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { coords, got, want, distance, .. } = self;
        write!(f, "{coords:?}   got {got}   want {want}   {distance}")
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.hex, self.decimal)
    }
}

#[cfg(test)]
mod tests {
    use mlx_parity_tensor::HostTensor;
    use proptest::prelude::*;

    use super::*;

    fn f32s(values: &[f32]) -> HostTensor {
        HostTensor::from_f32([values.len()], values).unwrap()
    }

    fn compare(got: &[f32], want: &[f32]) -> BitReport {
        bit_exact(&f32s(got).view(), &f32s(want).view())
    }

    #[test]
    fn it_reads_like_the_mockup() {
        let mut bits = vec![0x41a2u16; 1024];
        let want = HostTensor::from_bf16_bits([1, 1024], &bits).unwrap();
        bits[417] = 0x41a3;
        for bit in &mut bits[700..911] {
            *bit = 0x41a0;
        }
        let got = HostTensor::from_bf16_bits([1, 1024], &bits).unwrap();
        let report = bit_exact(&got.view(), &want.view());
        assert_eq!(
            report.named("logits").to_string(),
            "logits[0, 417]   got 0x41a3 (20.375)   want 0x41a2 (20.25)   1 ulp\n\
             differ 212 of 1024 · max 2 ulp"
        );
        assert_eq!(report.histogram.to_string(), "1 ulp: 1 · 2 ulp: 211");
        assert_eq!(report.worst.unwrap().coords, [0, 700]);
    }

    #[test]
    fn equal_tensors_are_exact_even_where_nan() {
        let report = compare(&[f32::NAN, -0.0, 1.0], &[f32::NAN, -0.0, 1.0]);
        assert!(report.is_exact());
        assert_eq!(report.to_string(), "   bit-exact, 3 elements");
        assert!(bit_exact(&f32s(&[]).view(), &f32s(&[]).view()).is_exact());
    }

    #[test]
    fn a_zero_sign_alone_is_named() {
        let report = compare(&[0.0, 1.0], &[-0.0, 1.0]);
        assert!(!report.is_exact() && report.only_zero_sign && !report.only_nan_payload);
        assert_eq!(report.max_ulp, Some(0));
        assert!(report.to_string().ends_with("only in the sign of zero"), "{report}");
        assert!(!compare(&[0.0, 1.0], &[-0.0, 2.0]).only_zero_sign);
    }

    #[test]
    fn a_nan_payload_alone_is_named() {
        let payload = f32::from_bits(0x7fc0_0001);
        let report = compare(&[f32::NAN, 1.0], &[payload, 1.0]);
        assert!(!report.is_exact() && report.only_nan_payload && !report.only_zero_sign);
        assert_eq!((report.max_ulp, report.histogram.nan), (None, 1));
        assert!(!compare(&[f32::NAN, 1.0], &[payload, 2.0]).only_nan_payload);
        assert!(!compare(&[f32::NAN], &[1.0]).only_nan_payload);
    }

    #[test]
    fn what_has_no_distance_is_counted_apart() {
        let report = compare(
            &[f32::INFINITY, 1.0, f32::NAN, 4.0, f32::MAX],
            &[f32::NEG_INFINITY, -1.0, 3.0, 4.0f32.next_up(), f32::INFINITY],
        );
        let text = report.to_string();
        assert!(
            text.ends_with("differ 5 of 5 · max 1 ulp · 1 of other sign · 2 infinite · 1 NaN"),
            "{text}"
        );
        assert_eq!(report.worst.unwrap().index, 2, "NaN is the farthest");
    }

    #[test]
    fn another_form_is_never_exact() {
        let vector = f32s(&[1.0, 2.0]);
        let column = HostTensor::from_f32([2, 1], &[1.0, 2.0]).unwrap();
        let integers = HostTensor::new(Dtype::U32, [2], vector.bytes().to_vec()).unwrap();
        for other in [&column, &integers] {
            let report = bit_exact(&other.view(), &vector.view());
            assert!(!report.is_exact() && !report.same_form());
            assert_eq!((report.differ, report.elements), (0, 0));
        }
        let report = bit_exact(&column.view(), &vector.view());
        assert_eq!(report.named("x").to_string(), "x   got f32 [2, 1]   want f32 [2]");
    }

    #[test]
    fn a_large_tensor_is_reported_like_a_small_one() {
        let len = 2 * PARALLEL_FROM / 4 + 3;
        let mut values = vec![1.0f32; len];
        let want = f32s(&values);
        for at in [len - 1, len / 2, 777_777] {
            values[at] = 1.5;
        }
        values[len / 2] = 2.0;
        let report = bit_exact(&f32s(&values).view(), &want.view());
        assert_eq!((report.differ, report.elements), (3, len as u64));
        assert_eq!(report.first.unwrap().index, 777_777);
        assert_eq!(report.worst.unwrap().index, len / 2);
        assert_eq!(report.histogram.total(), 3);
    }

    #[test]
    fn it_survives_json() {
        let report = compare(&[f32::NAN, f32::INFINITY, 0.1], &[1.0, 2.0, 0.2]);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<BitReport>(&text).unwrap(), report);
        assert!(text.contains(r#""hex":"0x7fc00000","decimal":"NaN""#), "{text}");
    }

    proptest! {
        #[test]
        fn exact_means_equal_bytes(a: [u16; 3], b: [u16; 3], same: bool) {
            let want = HostTensor::from_f16_bits([3], &a).unwrap();
            let got = HostTensor::from_f16_bits([3], if same { &a } else { &b }).unwrap();
            let report = bit_exact(&got.view(), &want.view());
            prop_assert_eq!(report.is_exact(), got.bytes() == want.bytes());
            prop_assert_eq!(report.histogram.total(), report.differ);
            prop_assert_eq!(report.first.is_some(), report.differ > 0);
        }

        #[test]
        fn one_flipped_bit_is_found_where_it_is(at in 0usize..5000, bit in 0u32..32) {
            let mut values = vec![1.0f32; 5000];
            let want = f32s(&values);
            values[at] = f32::from_bits(values[at].to_bits() ^ (1 << bit));
            let report = bit_exact(&f32s(&values).view(), &want.view());
            prop_assert_eq!(report.differ, 1);
            prop_assert_eq!(report.first.unwrap().index, at);
        }
    }
}
