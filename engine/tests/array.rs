//! Bits cross the border to MLX and back unchanged; a read as another dtype is refused.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use common::on_mlx_thread;
use half::bf16;
use mlx_parity_engine::array::{detach_copy, from_host, from_view, read, to_host};
use mlx_parity_engine::{Array, EngineError, ops};
use mlx_parity_tensor::{Dtype, HostTensor, TensorView};
use mlx_rs::Dtype as MlxDtype;
use rstest::rstest;

/// Every byte value in turn, so that floats hold NaN payloads, infinities, subnormals and both zeros.
fn all_bytes(dtype: Dtype) -> HostTensor {
    let bytes: Vec<u8> = if dtype == Dtype::Bool {
        (0..96).map(|i| i % 2).collect()
    } else {
        (0..96 * dtype.size()).map(|i| (i * 37 % 256) as u8).collect()
    };
    HostTensor::new(dtype, vec![4, 3, 8], bytes).expect("the lengths agree")
}

#[rstest]
fn every_dtype_comes_back_bit_for_bit(
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
        Dtype::F16,
        Dtype::Bf16,
        Dtype::F32,
        Dtype::F64
    )]
    dtype: Dtype,
) {
    on_mlx_thread(move || {
        let host = all_bytes(dtype);
        assert_eq!(to_host(&from_host(&host).expect("in")).expect("out"), host);
    });
}

#[rstest]
fn eight_bit_floats_are_refused_by_name(
    #[values(Dtype::F8E4M3, Dtype::F8E5M2, Dtype::F8E8M0)] dtype: Dtype,
) {
    let error = on_mlx_thread(move || from_host(&all_bytes(dtype)).expect_err("no such array"));
    assert!(matches!(error, EngineError::NoSuchDtype { .. }), "{error:?}");
    assert!(error.to_string().contains(dtype.name()));
}

#[test]
fn an_extent_above_i32_is_refused() {
    let shape = [1 << 31, 0];
    let error = on_mlx_thread(move || {
        let view = TensorView::new(Dtype::F32, &shape, &[]).expect("no bytes");
        from_view(&view).expect_err("too large")
    });
    assert!(matches!(error, EngineError::ShapeTooLarge { .. }), "{error:?}");
}

#[test]
fn a_view_at_an_odd_address_is_read_right() {
    let host = all_bytes(Dtype::F32);
    let mut shifted = vec![0xff_u8];
    shifted.extend_from_slice(host.bytes());
    // One of the two starts at an address that no f32 may have.
    for start in 0..2 {
        let copy = [&shifted[1 - start..1], host.bytes()].concat();
        let back = on_mlx_thread(move || {
            let view = TensorView::new(Dtype::F32, &[4, 3, 8], &copy[start..]).expect("a view");
            to_host(&from_view(&view).expect("in")).expect("out")
        });
        assert_eq!(back, host);
    }
}

#[test]
fn views_are_copied_out_in_row_major_order() {
    on_mlx_thread(|| {
        let host = HostTensor::from_i32(vec![2, 3], &[0, 1, 2, 3, 4, 5]).expect("a tensor");
        let array = from_host(&host).expect("in");
        let turned = to_host(&ops::transpose(&array, &[1, 0]).expect("turn")).expect("out");
        assert_eq!(turned, HostTensor::from_i32(vec![3, 2], &[0, 3, 1, 4, 2, 5]).expect("ok"));
        let cut = ops::rows_of_last_but_one(&array, 1, 2).expect("cut");
        assert_eq!(read::<i32>("cut", &cut).expect("i32"), [3, 4, 5]);
        let none = ops::rows_of_last_but_one(&array, 1, 1).expect("cut");
        assert_eq!(to_host(&none).expect("out").shape(), [0, 3]);
    });
}

#[test]
fn a_read_as_another_dtype_is_refused_not_reinterpreted() {
    on_mlx_thread(|| {
        let one = Array::from_slice(&[bf16::ONE], &[1]);
        assert_eq!(read::<bf16>("one", &one).expect("its own dtype"), [bf16::ONE]);
        let error = read::<f32>("one", &one).expect_err("another dtype");
        match error {
            EngineError::WrongDtype { what, found, wanted } => {
                assert_eq!((what.as_str(), found.as_str(), wanted), ("one", "bf16", "f32"));
            }
            other => panic!("{other:?}"),
        }
        read::<u32>("ids", &Array::from_slice(&[1_i32], &[1])).expect_err("same width");
    });
}

#[test]
fn what_mlx_throws_names_the_op() {
    on_mlx_thread(|| {
        let (a, b) =
            (Array::from_slice(&[0_f32; 6], &[2, 3]), Array::from_slice(&[0_f32; 8], &[4, 2]));
        match ops::matmul(&a, &b).expect_err("3 is not 4") {
            EngineError::Op { op, message } => {
                assert_eq!(op, "matmul");
                assert!(message.contains("matmul"), "{message}");
            }
            other => panic!("{other:?}"),
        }
        ops::matmul(&a, &ops::transpose(&a, &[1, 0]).expect("turn")).expect("a good one after it");
    });
}

#[test]
fn scalars_take_the_dtype_of_their_partner() {
    on_mlx_thread(|| {
        let x = Array::from_slice(&[bf16::ONE], &[1]);
        let one = ops::scalar(1.0, x.dtype()).expect("a scalar");
        let sum = ops::add(&one, &x).expect("a sum");
        assert_eq!(read::<bf16>("sum", &sum).expect("still bf16"), [bf16::from_f32(2.0)]);
    });
}

#[test]
fn the_runtime_names_its_version() {
    let info = on_mlx_thread(|| mlx_parity_engine::runtime_info().expect("mlx answers"));
    assert_eq!(info.mlx_version.split('.').count(), 3, "{info:?}");
    assert!(["cpu", "metal", "cuda"].contains(&info.backend.as_str()), "{info:?}");
    assert_eq!(info.has_float64, info.backend == "cpu");
}

#[test]
fn a_detached_copy_has_the_same_bits_in_every_dtype() {
    on_mlx_thread(|| {
        for dtype in [
            MlxDtype::Bool,
            MlxDtype::Uint8,
            MlxDtype::Int8,
            MlxDtype::Uint16,
            MlxDtype::Int16,
            MlxDtype::Uint32,
            MlxDtype::Int32,
            MlxDtype::Uint64,
            MlxDtype::Int64,
            MlxDtype::Float16,
            MlxDtype::Bfloat16,
            MlxDtype::Float32,
            MlxDtype::Float64,
        ] {
            let values = Array::from_slice(&[0.0_f32, 1.0, -2.5, 300.0, 1e-3, 7.0], &[2, 3]);
            let cast = ops::cast(&values, dtype).expect("a cast");
            let copy = detach_copy(&cast).expect("a copy");
            assert_eq!(to_host(&copy).expect("bytes"), to_host(&cast).expect("bytes"), "{dtype:?}");
        }
        let complex = ops::cast(&Array::from_slice(&[1.0_f32, 2.0], &[2]), MlxDtype::Complex64);
        let copy = detach_copy(&complex.expect("a cast")).expect("a copy");
        assert_eq!((copy.dtype(), copy.shape()), (MlxDtype::Complex64, &[2][..]));
        let empty = ops::zeros(&[0, 4], MlxDtype::Float32).expect("nothing");
        assert_eq!(detach_copy(&empty).expect("nothing").shape(), [0, 4]);
    });
}

#[test]
fn a_view_is_not_detached() {
    on_mlx_thread(|| {
        let values = Array::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
        let turned = ops::transpose(&values, &[1, 0]).expect("a view");
        let message = detach_copy(&turned).expect_err("to refuse").to_string();
        assert!(message.contains("detach_copy") && message.contains("[3, 2]"), "{message}");
        let whole = ops::contiguous(&turned).expect("a copy");
        let copy = detach_copy(&whole).expect("row-major");
        assert_eq!(to_host(&copy).expect("bytes"), to_host(&turned).expect("bytes"));
        // A buffer of its own: writing over the source leaves the copy as it is.
        drop((values, turned, whole));
        assert_eq!(to_host(&copy).expect("bytes").to_f64(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    });
}
