//! Each query may attend to exactly the positions that its cache promises, however they are stored.
//!
//! Keys carry their own position as value, so what comes back says where it came from. The promise
//! itself is written here from the definition: causal, and under a window of w the w latest positions.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use std::collections::BTreeSet;

use common::on_mlx_thread;
use mlx_parity_engine::Array;
use mlx_parity_engine::array::{read, to_host};
use mlx_parity_engine::cache::{KvCache, PlainCache, RotatingCache};
use mlx_parity_engine::ops::Mask;
use rstest::rstest;

/// Rows `[1, 2, count, 4]` that all hold their position (values: its negative).
fn rows(start: i32, count: i32, sign: f32) -> Array {
    let data: Vec<f32> = (0..2)
        .flat_map(|_| (start..start + count).flat_map(|position| [sign * position as f32; 4]))
        .collect();
    Array::from_slice(&data, &[1, 2, count, 4])
}

/// The positions stored in the rows of the first head; all heads and values must agree.
fn positions(keys: &Array, values: &Array) -> Vec<i32> {
    let (k, v) =
        (read::<f32>("keys", keys).expect("f32"), read::<f32>("values", values).expect("f32"));
    assert_eq!(keys.shape(), values.shape());
    assert!(k.iter().zip(&v).all(|(k, v)| *k == -*v), "keys and values are stored alike");
    assert_eq!(k[..k.len() / 2], k[k.len() / 2..], "both heads are stored alike");
    k[..k.len() / 2].chunks(4).map(|row| row[0] as i32).collect()
}

/// For each of `count` queries the positions it may attend to.
fn attended(mask: &Mask, count: usize, stored: &[i32]) -> Vec<BTreeSet<i32>> {
    let keys = stored.len();
    let may: Vec<bool> = match mask {
        Mask::Full => vec![true; count * keys],
        Mask::Causal => (0..count * keys).map(|i| i % keys <= keys - count + i / keys).collect(),
        Mask::Allowed(array) => {
            let host = to_host(array).expect("a mask");
            assert!(*host.shape().last().expect("an axis") == keys, "{:?}", host.shape());
            host.bytes().iter().map(|&may| may != 0).cycle().take(count * keys).collect()
        }
    };
    let row = |row: &[bool]| {
        row.iter().zip(stored).filter(|(may, _)| **may).map(|(_, position)| *position).collect()
    };
    may.chunks(keys).map(row).collect()
}

/// Feeds chunks and checks every query against `promise(position)`.
fn check(
    mut cache: KvCache,
    window: Option<i32>,
    chunks: &[i32],
    promise: impl Fn(i32) -> BTreeSet<i32>,
) {
    let mut start = 0;
    for &count in chunks {
        let mask = cache.mask(count, window).expect("a mask");
        let seen =
            cache.update(&rows(start, count, 1.0), &rows(start, count, -1.0)).expect("an update");
        let (keys, values) = seen.plain().expect("plain rows");
        let stored = positions(&keys, &values);
        for (query, seen) in attended(&mask, count as usize, &stored).into_iter().enumerate() {
            let position = start + query as i32;
            assert_eq!(seen, promise(position), "at {position} in {chunks:?}, stored {stored:?}");
        }
        start += count;
        assert_eq!(cache.offset(), start);
        assert_eq!(stored[cache.newest() as usize], start - 1, "the newest row is known");
    }
}

fn causal(position: i32) -> BTreeSet<i32> {
    (0..=position).collect()
}

#[rstest]
#[case::one_by_one(&[1; 12])]
#[case::whole(&[12])]
#[case::past_one_step(&[250, 1, 1, 1, 1, 1, 1, 1, 1, 1])]
#[case::exactly_one_step(&[256, 1, 255, 1])]
#[case::chunk_across_a_step(&[200, 100, 300, 1])]
fn a_plain_cache_keeps_everything(#[case] chunks: &'static [i32]) {
    on_mlx_thread(move || check(KvCache::Plain(PlainCache::new()), None, chunks, causal));
}

#[rstest]
fn a_rotating_cache_shows_the_window(
    #[values(1, 2, 5, 8)] window: i32,
    #[values(
        &[1; 20], &[20], &[3, 1, 1, 1, 1, 1, 1, 1, 1, 1], &[16, 1, 1, 1, 7, 1, 1, 2, 2, 1],
        &[1, 9, 1, 9, 1], &[5, 5, 5, 1, 1, 1, 1, 1, 1, 5], &[8, 1, 8, 1]
    )]
    chunks: &'static [i32],
) {
    on_mlx_thread(move || {
        let cache = KvCache::Rotating(RotatingCache::new(window, 0));
        check(cache, Some(window), chunks, |position| {
            ((position - window + 1).max(0)..=position).collect()
        });
    });
}

#[rstest]
fn a_window_above_one_step_grows_first(#[values(300, 257, 256)] window: i32) {
    on_mlx_thread(move || {
        let chunks: Vec<i32> = std::iter::repeat_n(1, 320).collect();
        let cache = KvCache::Rotating(RotatingCache::new(window, 0));
        check(cache, Some(window), &chunks, |position| {
            ((position - window + 1).max(0)..=position).collect()
        });
    });
}

#[test]
fn kept_rows_are_never_overwritten() {
    on_mlx_thread(|| {
        let cache = KvCache::Rotating(RotatingCache::new(6, 2));
        check(cache, None, &[1; 20], |position| {
            let latest = (position - 3).max(2)..=position;
            (0..2.min(position + 1)).chain(latest).collect()
        });
    });
}

#[test]
fn a_cache_larger_than_the_window_masks_the_rest() {
    on_mlx_thread(|| {
        let cache = KvCache::Rotating(RotatingCache::new(8, 0));
        check(cache, Some(3), &[1; 30], |position| ((position - 2).max(0)..=position).collect());
    });
}

/// Writes in chunks, takes the newest positions back, and checks every query that comes after.
fn check_rollback(keep: i32, window: i32, before: &[i32], [write, back, next]: [i32; 3]) {
    let mut cache = KvCache::Rotating(RotatingCache::new(window, keep));
    for &count in before.iter().chain(&[write]) {
        let start = cache.offset();
        cache.update(&rows(start, count, 1.0), &rows(start, count, -1.0)).expect("an update");
    }
    assert!(cache.revocable() >= write);
    cache.rollback(back).expect("the last write");
    let start = cache.offset();
    assert_eq!(start, before.iter().sum::<i32>() + write - back);
    let mask = cache.mask(next, None).expect("a mask");
    let seen = cache.update(&rows(start, next, 1.0), &rows(start, next, -1.0)).expect("an update");
    let (keys, values) = seen.plain().expect("plain rows");
    let stored = positions(&keys, &values);
    for (query, seen) in attended(&mask, next as usize, &stored).into_iter().enumerate() {
        let position = start + query as i32;
        let latest = (position - (window - keep) + 1).max(keep)..=position;
        let wanted: BTreeSet<i32> = (0..keep.min(position + 1)).chain(latest).collect();
        let what = format!("{back} of {write} behind {before:?}, keep {keep}, stored {stored:?}");
        assert_eq!(seen, wanted, "at {position}: {what}");
    }
}

#[rstest]
fn a_window_shows_what_it_would_have_shown(
    #[values(1, 2, 5, 8)] window: i32,
    #[values(
        &[], &[3], &[1; 7], &[8], &[1; 8], &[9], &[1; 9], &[12, 1], &[1; 20], &[20], &[6, 6]
    )]
    before: &'static [i32],
) {
    on_mlx_thread(move || {
        for write in [1, 2, 3, 9, 12] {
            for back in 1..=write {
                for (next, keep) in [1, 2, 5].into_iter().zip([0, 1, 2].into_iter().cycle()) {
                    check_rollback(keep.min(window - 1), window, before, [write, back, next]);
                }
                check_rollback(0, window, before, [write, back, 5]);
            }
        }
    });
}
