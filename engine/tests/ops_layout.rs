//! Arrays made in a layout have its strides and hold its logical values.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use common::on_mlx_thread;
use mlx_parity_engine::array::{from_host_as, to_host};
use mlx_parity_engine::{EngineError, ops};
use mlx_parity_tensor::{Dtype, HostTensor, Layout};
use rstest::rstest;

fn counting(dtype: Dtype, shape: &[usize]) -> HostTensor {
    let elements: usize = shape.iter().product();
    let bytes = (0..elements * dtype.size()).map(|i| (i * 37 % 251) as u8);
    let bytes =
        if dtype == Dtype::Bool { bytes.map(|byte| byte % 2).collect() } else { bytes.collect() };
    HostTensor::new(dtype, shape, bytes).expect("the lengths agree")
}

/// Strides in elements of a `[3, 4, 5]` array.
fn strides(layout: Layout) -> [isize; 3] {
    match layout {
        Layout::Contiguous | Layout::Offset => [20, 5, 1],
        Layout::Transposed => [20, 1, 4],
        Layout::Sliced => [40, 10, 2],
        Layout::Reversed => [20, 5, -1],
        Layout::Broadcast => [0, 5, 1],
        Layout::AxisInserted => [40, 5, 1],
    }
}

#[rstest]
fn a_layout_is_really_made(
    #[values(Dtype::F32, Dtype::Bf16, Dtype::F64, Dtype::U32, Dtype::I8, Dtype::Bool)] dtype: Dtype,
) {
    on_mlx_thread(move || {
        let host = counting(dtype, &[3, 4, 5]);
        for layout in Layout::ALL {
            let array = from_host_as(&host, layout).expect("3 axes take every layout");
            // MLX hands signed strides out as unsigned.
            let found: Vec<isize> = array.strides().iter().map(|s| s.cast_signed()).collect();
            assert_eq!(found, strides(layout), "{layout}");
            let wanted = layout.logical(&host).expect("3 axes take every layout");
            assert_eq!(to_host(&array).expect("out"), wanted, "{layout}");
        }
    });
}

#[test]
fn an_offset_array_starts_inside_its_buffer() {
    on_mlx_thread(|| {
        let host = counting(Dtype::F32, &[2, 8]);
        let array = from_host_as(&host, Layout::Offset).expect("a view");
        let values = array.try_as_slice::<f32>().expect("row-major");
        // MLX aligns buffers to 8 bytes or more.
        assert_eq!(values.as_ptr() as usize % 8, Layout::OFFSET * size_of::<f32>() % 8);
    });
}

#[test]
fn fewer_axes_take_fewer_layouts() {
    on_mlx_thread(|| {
        for shape in [&[][..], &[1], &[6], &[4, 1], &[1, 4], &[0, 3], &[2, 3, 1, 2]] {
            let host = counting(Dtype::F16, shape);
            for layout in Layout::ALL {
                match (from_host_as(&host, layout), layout.logical(&host)) {
                    (Ok(array), Some(wanted)) => {
                        assert_eq!(to_host(&array).expect("out"), wanted, "{layout} of {shape:?}");
                    }
                    (Err(EngineError::Op { op, message }), None) => {
                        assert_eq!(op, "from_host_as");
                        assert!(message.contains(layout.name()), "{message}");
                    }
                    (found, wanted) => panic!("{layout} of {shape:?}: {found:?} for {wanted:?}"),
                }
            }
        }
    });
}

#[test]
fn elementwise_ops_see_the_logical_values() {
    on_mlx_thread(|| {
        let host = counting(Dtype::F32, &[3, 4, 5]);
        for layout in Layout::ALL {
            let view = from_host_as(&host, layout).expect("a view");
            let logical = layout.logical(&host).expect("exists");
            let plain = from_host_as(&logical, Layout::Contiguous).expect("an array");
            let (found, wanted) = (ops::square(&view), ops::square(&plain));
            assert_eq!(
                to_host(&found.expect("ok")).expect("out"),
                to_host(&wanted.expect("ok")).expect("out"),
                "{layout}"
            );
        }
    });
}
