//! Host tensors: construction, widening, narrowing, indexing, digests.

use mlx_parity_tensor::{Dtype, HostTensor, TensorError};
use rstest::rstest;

#[test]
fn bytes_and_shape_must_agree() {
    let error = HostTensor::new(Dtype::F32, [2, 3], vec![0; 20]).unwrap_err();
    assert_eq!(error.to_string(), "shape [2, 3] of f32 wants 24 bytes, found 20");
    let error = HostTensor::new(Dtype::U8, [usize::MAX, 2], vec![]).unwrap_err();
    assert!(matches!(error, TensorError::ShapeOverflow { .. }));
    assert!(HostTensor::zeros(Dtype::F64, [usize::MAX / 4]).is_err());
    assert_eq!(HostTensor::new(Dtype::F32, [], vec![0; 4]).unwrap().len(), 1);
    assert!(HostTensor::new(Dtype::F32, [3, 0], vec![]).unwrap().is_empty());
}

#[rstest]
fn widening_agrees_with_single_elements_and_narrowing_inverts_it(
    #[values(
        Dtype::Bool,
        Dtype::U8,
        Dtype::I8,
        Dtype::U16,
        Dtype::I16,
        Dtype::U32,
        Dtype::I32,
        Dtype::U64,
        Dtype::I64,
        Dtype::F8E4M3,
        Dtype::F8E5M2,
        Dtype::F8E8M0,
        Dtype::F16,
        Dtype::Bf16,
        Dtype::F32,
        Dtype::F64
    )]
    dtype: Dtype,
) {
    let values =
        if dtype == Dtype::F8E8M0 { [0.5, 1.0, 2.0, 1024.0] } else { [0.0, 1.0, 1.0, 0.0] };
    let tensor = HostTensor::from_f64_as(dtype, [2, 2], &values).unwrap();
    assert_eq!(tensor.to_f64(), values);
    for (at, value) in values.into_iter().enumerate() {
        assert_eq!(tensor.value_at(at), value);
        let start = at * dtype.size();
        let mut bits = [0; 8];
        bits[..dtype.size()].copy_from_slice(&tensor.bytes()[start..start + dtype.size()]);
        assert_eq!(tensor.bits_at(at), u64::from_le_bytes(bits));
    }
}

#[test]
fn signed_and_extreme_integers_widen() {
    let bytes = i64::MIN.to_le_bytes().to_vec();
    assert_eq!(HostTensor::new(Dtype::I64, [1], bytes).unwrap().to_f64(), [-(2f64.powi(63))]);
    let bytes = vec![0x80, 0xff];
    assert_eq!(HostTensor::new(Dtype::I8, [2], bytes.clone()).unwrap().to_f64(), [-128.0, -1.0]);
    assert_eq!(HostTensor::new(Dtype::I16, [1], bytes).unwrap().value_at(0), -128.0);
    let bytes = u64::MAX.to_le_bytes().to_vec();
    assert_eq!(HostTensor::new(Dtype::U64, [1], bytes).unwrap().value_at(0), 2f64.powi(64));
}

#[rstest]
#[case(Dtype::U8, 256.0)]
#[case(Dtype::U8, -1.0)]
#[case(Dtype::I8, 128.0)]
#[case(Dtype::I32, 0.5)]
#[case(Dtype::I32, f64::NAN)]
#[case(Dtype::U64, 1.9e19)]
#[case(Dtype::I64, 9.3e18)]
#[case(Dtype::Bool, 2.0)]
#[case(Dtype::F8E8M0, 3.0)]
#[case(Dtype::F8E8M0, -1.0)]
fn a_value_an_exact_dtype_cannot_hold_is_refused(#[case] dtype: Dtype, #[case] value: f64) {
    let filler = if dtype == Dtype::F8E8M0 { 1.0 } else { 0.0 };
    let error = HostTensor::from_f64_as(dtype, [2], &[filler, value]).unwrap_err().to_string();
    assert!(error.contains("at index 1") && error.contains(dtype.name()), "{error}");
}

#[test]
fn integers_at_the_ends_of_their_range_are_exact() {
    let narrow = |dtype, x: f64| HostTensor::from_f64_as(dtype, [1], &[x]).unwrap().bits_at(0);
    assert_eq!(narrow(Dtype::I8, -128.0), 0x80);
    assert_eq!(narrow(Dtype::I64, -(2f64.powi(63))), 1 << 63);
    assert_eq!(narrow(Dtype::U32, 4_294_967_295.0), 0xffff_ffff);
    assert_eq!(narrow(Dtype::F8E8M0, 2f64.powi(-127)), 0);
}

#[test]
fn coordinates_are_row_major() {
    let tensor = HostTensor::zeros(Dtype::U8, [2, 3, 4]).unwrap();
    assert_eq!(tensor.coords(0), [0, 0, 0]);
    assert_eq!(tensor.coords(23), [1, 2, 3]);
    assert_eq!(tensor.coords(17), [1, 1, 1]);
    assert!(HostTensor::zeros(Dtype::U8, []).unwrap().coords(0).is_empty());
}

#[test]
fn rows_are_a_slice_of_the_leading_axis() {
    let tensor = HostTensor::from_f32([3, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
    let rows = tensor.rows(1..3);
    assert_eq!((rows.shape(), rows.to_f64()), (&[2, 2][..], vec![2.0, 3.0, 4.0, 5.0]));
    assert_eq!(tensor.rows(2..2).shape(), [0, 2]);
    assert!(std::panic::catch_unwind(|| tensor.rows(2..4)).is_err());
}

#[test]
fn the_digest_sees_dtype_shape_and_every_byte() {
    let base = HostTensor::new(Dtype::F16, [2, 2], (0..8).collect()).unwrap();
    assert_eq!(base.digest(), base.clone().digest());
    assert!(base.digest().starts_with("sha256:") && base.digest().len() == 71);
    let others = [
        HostTensor::new(Dtype::Bf16, [2, 2], (0..8).collect()).unwrap(),
        HostTensor::new(Dtype::F16, [4], (0..8).collect()).unwrap(),
        HostTensor::new(Dtype::F16, [4, 1], (0..8).collect()).unwrap(),
        HostTensor::new(Dtype::F16, [2, 2], (1..9).collect()).unwrap(),
    ];
    for other in others {
        assert_ne!(base.digest(), other.digest());
    }
}
