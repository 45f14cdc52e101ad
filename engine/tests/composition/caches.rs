//! A packed cache holds what a plain one holds, packed, row by row and in the same order.

use mlx_parity_engine::Array;
use mlx_parity_engine::Route;
use mlx_parity_engine::array::to_host;
use mlx_parity_engine::cache::{
    KvCache, PlainCache, QuantizedCache, RotatingCache, RotatingQuantizedCache, Rows,
};
use mlx_parity_engine::ops::packed::{self, Mode, Packed};
use mlx_parity_engine::ops::{Affine, cast};
use mlx_rs::Dtype as ArrayDtype;
use rstest::rstest;

use crate::common::on_mlx_thread;

/// Rows `[2, 3, count, 64]`, no two alike.
fn rows(start: i32, count: i32, salt: f32) -> Array {
    let value = |i: i32| ((i * 37 % 1009) as f32 * 0.37 + salt + (start * 13) as f32).sin();
    let data: Vec<f32> = (0..2 * 3 * count * 64).map(value).collect();
    Array::from_slice(&data, &[2, 3, count, 64])
}

fn same(found: &Packed, plain: &Array, packing: Affine) {
    let wanted = packed::quantize(plain, Mode::Affine(packing), None).expect("packed rows");
    let host = |array: &Array| to_host(array).expect("an array");
    assert_eq!(host(&found.words), host(&wanted.words));
    assert_eq!(host(&found.scales), host(&wanted.scales));
    let biases = |packed: &Packed| host(packed.biases.as_ref().expect("biases"));
    assert_eq!(biases(found), biases(&wanted));
}

/// Feeds the same chunks to both caches, and compares what they return after each.
fn check(mut plain: KvCache, mut packed: KvCache, packing: Affine, chunks: &[i32]) {
    let mut start = 0;
    for &count in chunks {
        let (keys, values) = (rows(start, count, 0.0), rows(start, count, 0.5));
        let wanted = plain.update(&keys, &values).expect("plain rows").plain().expect("plain");
        match packed.update(&keys, &values).expect("packed rows") {
            Rows::Packed { keys, values, route: Route::Tiled } => {
                same(&keys, &wanted.0, packing);
                same(&values, &wanted.1, packing);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!((packed.offset(), packed.newest()), (plain.offset(), plain.newest()));
        assert_eq!(packed.is_trimmable(), plain.is_trimmable());
        if count > 1 {
            assert_eq!(packed.trim(1), plain.trim(1));
        }
        start = plain.offset();
    }
}

#[rstest]
#[case::one_by_one(&[1; 12])]
#[case::past_one_step(&[250, 1, 1, 1, 1, 1, 1, 1, 1, 1])]
#[case::exactly_one_step(&[256, 1, 255, 1])]
#[case::chunk_across_a_step(&[200, 100, 300, 1])]
fn a_quantized_cache_keeps_every_row(
    #[case] chunks: &'static [i32],
    #[values((2, 64), (3, 32), (4, 64), (5, 32), (6, 64), (8, 32))] packing: (i32, i32),
) {
    on_mlx_thread(move || {
        let packing = Affine { bits: packing.0, group_size: packing.1 };
        let packed = KvCache::Quantized(QuantizedCache::new(packing, Route::Tiled));
        check(KvCache::Plain(PlainCache::new()), packed, packing, chunks);
    });
}

#[rstest]
fn a_rotating_quantized_cache_turns_as_the_plain_one(
    #[values(1, 5, 8)] window: i32,
    #[values(0, 2)] keep: i32,
    #[values(
        &[1; 20], &[20], &[16, 1, 1, 1, 7, 1, 1, 2, 2, 1], &[1, 9, 1, 9, 1], &[8, 1, 8, 1]
    )]
    chunks: &'static [i32],
) {
    if keep >= window {
        return;
    }
    on_mlx_thread(move || {
        let packing = Affine { bits: 4, group_size: 32 };
        let plain = KvCache::Rotating(RotatingCache::new(window, keep));
        let packed = RotatingQuantizedCache::new(window, keep, packing, Route::Tiled);
        check(plain, KvCache::RotatingQuantized(packed), packing, chunks);
    });
}

#[test]
fn rows_that_a_layer_borrows_are_never_tiled() {
    on_mlx_thread(|| {
        let packing = Affine { bits: 8, group_size: 64 };
        let mut cache = QuantizedCache::new(packing, Route::Tiled);
        let rows = cache.update(&rows(0, 3, 0.0), &rows(0, 3, 0.5)).expect("rows");
        assert_eq!(rows.positions(), 3);
        assert!(matches!(rows.borrowed(), Rows::Packed { route: Route::Stock, .. }));
    });
}

/// Keys in bf16 beside values in f32, as an adapter that is not cast can make them.
#[test]
fn values_wider_than_keys_keep_the_dtype_that_the_references_give_them() {
    on_mlx_thread(|| {
        let packing = Affine { bits: 4, group_size: 32 };
        let keys = |count| cast(&rows(0, count, 0.0), ArrayDtype::Bfloat16).expect("bf16");
        let values = |count| rows(0, count, 0.5);
        let scales = |rows: Rows| match rows {
            Rows::Packed { keys, values, .. } => [keys.scales.dtype(), values.scales.dtype()],
            Rows::Plain { .. } => panic!("packed rows"),
        };
        let narrow = [ArrayDtype::Bfloat16; 2];
        let wide = [ArrayDtype::Bfloat16, ArrayDtype::Float32];
        let mut empty = QuantizedCache::new(packing, Route::Stock);
        let mut plain = PlainCache::new();
        plain.update(&keys(250), &values(250)).expect("rows");
        let mut converted = QuantizedCache::of(&plain, packing, Route::Stock).expect("packed");
        let mut ring = RotatingQuantizedCache::new(300, 0, packing, Route::Stock);
        for count in [1, 300, 1] {
            let update = |cache: &mut QuantizedCache| cache.update(&keys(count), &values(count));
            assert_eq!(scales(update(&mut empty).expect("rows")), narrow);
            assert_eq!(scales(update(&mut converted).expect("rows")), wide);
            let turned = ring.update(&keys(count), &values(count)).expect("rows");
            assert_eq!(scales(turned), wide);
        }
    });
}
