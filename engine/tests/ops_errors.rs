//! What an op refuses, and what MLX throws, is an error that names the op.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use common::on_mlx_thread;
use mlx_parity_engine::ops::packed::{self, Mode};
use mlx_parity_engine::ops::{
    self, Affine, ChannelOrder, GroupNorm, LongRope, RopeOffset, RopeScaling, ScaledRope, SliceAxis,
};
use mlx_parity_engine::{Array, EngineError};

fn ones(shape: &[i32]) -> Array {
    Array::from_slice(&vec![1.0_f32; shape.iter().product::<i32>() as usize], shape)
}

/// Asserts that `result` is an error of `op` whose message has all the words.
fn refuses<T>(result: Result<T, EngineError>, op: &str, words: &[&str]) {
    match result.err() {
        Some(EngineError::Op { op: found, message }) => {
            assert_eq!(found, op, "{message}");
            for word in words {
                assert!(message.contains(word), "{op}: {message}");
            }
        }
        other => panic!("{op}: {other:?}"),
    }
}

#[test]
fn messages_of_calls_that_mlx_rs_lacks_come_through() {
    on_mlx_thread(|| {
        let mode = Mode::Affine(Affine { group_size: 64, bits: 4 });
        refuses(packed::quantize(&ones(&[2, 33]), mode, None), "quantize", &["[quantize]", "64"]);
        // Both ways of catching MLX's messages go on working side by side.
        let unfit = ops::matmul(&ones(&[2, 3]), &ones(&[4, 2]));
        refuses(unfit, "matmul", &["[matmul]"]);
        let w = packed::quantize(&ones(&[4, 64]), mode, None).expect("64 is one group");
        let unfit = packed::quantized_matmul(&ones(&[1, 32]), &w, true);
        refuses(unfit, "quantized_matmul", &["[quantized_matmul]"]);
        packed::quantized_matmul(&ones(&[1, 64]), &w, true).expect("a good one after it");
    });
}

#[test]
fn slices_outside_an_axis_are_refused() {
    on_mlx_thread(|| {
        let x = ones(&[4]);
        for (start, stop, step) in
            [(0, 5, 1), (-1, 4, 1), (0, 4, 0), (0, -1, 1), (5, -1, -1), (3, -2, -1)]
        {
            refuses(
                ops::slice(&x, &[SliceAxis { start, stop, step }]),
                "slice",
                &["SliceAxis", "4"],
            );
        }
        refuses(ops::slice(&x, &[]), "slice", &["0 axes", "1"]);
        let update = ops::slice_update(&x, &ones(&[5]), &[SliceAxis::full(5)]);
        refuses(update, "slice_update", &["SliceAxis"]);
        let unfit = ops::slice_update(&x, &ones(&[3]), &[SliceAxis::full(4)]);
        refuses(unfit, "slice_update", &[]);
    });
}

#[test]
fn shapes_and_parameters_without_meaning_are_refused() {
    on_mlx_thread(|| {
        let x = ones(&[2, 6]);
        let ids = Array::from_slice(&[0_u32, 1], &[2]);
        refuses(ops::cross_entropy(&x, &ids, 1.0), "cross_entropy", &["smoothing 1"]);
        refuses(ops::cross_entropy(&x, &ids, f64::NAN), "cross_entropy", &["NaN"]);
        refuses(ops::cross_entropy(&x, &ones(&[3]), 0.0), "cross_entropy", &["[3]", "[2, 6]"]);
        for groups in [0, 4] {
            let norm = GroupNorm { groups, order: ChannelOrder::Strided, affine: None, eps: 1e-5 };
            refuses(ops::group_norm(&x, &norm), "group_norm", &["groups", "6 channels"]);
        }
        let updates = ones(&[2, 5]);
        refuses(ops::scatter_add(&x, &ids, &updates, 0), "scatter_add", &["[2, 5]", "[2, 6]"]);
        refuses(ops::scatter_add(&x, &ids, &updates, 2), "scatter_add", &["axis 2"]);
        refuses(ops::topk(&x, 7, -1), "topk", &[]);
        refuses(ops::sum(&x, ops::Axes::Of(&[2]), false), "sum", &[]);
    });
}

#[test]
fn ropes_without_meaning_are_refused() {
    on_mlx_thread(|| {
        let long = RopeScaling::LongRope(LongRope {
            original_max_position_embeddings: 64.0,
            short_factor: vec![1.0],
            long_factor: vec![1.0; 7],
            short_mscale: None,
            long_mscale: None,
        });
        refuses(ScaledRope::new(16, 1e4, false, 256, &long), "rope", &["7 factors", "8"]);
        let dynamic = ScaledRope::new(16, 1e4, false, 256, &RopeScaling::Dynamic { factor: 2.0 });
        let offsets = Array::from_slice(&[0, 1], &[2]);
        let turned = dynamic.expect("no table").forward(
            &ones(&[2, 1, 3, 16]),
            RopeOffset::PerItem(&offsets),
            None,
        );
        refuses(turned, "rope", &["one offset an item"]);
    });
}

#[test]
fn attention_over_unfit_heads_is_refused() {
    on_mlx_thread(|| {
        let mode = Mode::Affine(Affine { group_size: 32, bits: 8 });
        let kv = packed::quantize(&ones(&[1, 2, 4, 32]), mode, None).expect("whole groups");
        let q = ones(&[1, 3, 1, 32]);
        let attend = packed::scaled_dot_product_attention(&q, &kv, &kv, 1.0, ops::ScoreMask::None);
        refuses(attend, "quantized attention", &["3 heads", "2 key heads"]);
        let q = ones(&[1, 2, 1, 32]);
        let tiled = packed::tiled_attention(&q, &kv, &kv, 1.0, true, 0);
        refuses(tiled, "tiled_attention", &["tiles of 0"]);
    });
}
