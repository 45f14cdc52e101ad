//! The mask builder against the definition in positions, for every extent up to 40, and attention under
//! its masks against float64.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use common::on_mlx_thread;
use mlx_parity_engine::array::{from_host, mlx_dtype, read, to_host};
use mlx_parity_engine::cache::{DeadRows, KvCache, MaskRule, RotatingCache, Rows, added};
use mlx_parity_engine::ops::{Mask, ScoreMask, attend};
use mlx_parity_engine::{Array, EngineError};
use mlx_parity_oracles::ops::{self as ref64, Attention, Sight};
use mlx_parity_oracles::{BoolTensor, Tensor64};
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;

const MOST: i64 = 40;

/// The positions of `keys` rows of a sequence of `end` tokens: the kept ones, then the newest.
fn positions(end: i64, keys: i64, keep: i64) -> Vec<i64> {
    let newest = |row| end - keys + row;
    (0..keys).map(|row| if row < keep { row.min(newest(row)) } else { newest(row) }).collect()
}

/// Of queries at `end - queries ..= end - 1`, a bit for each key.
fn wanted(sight: Sight, queries: i64, end: i64, keys: &[i64]) -> Vec<u64> {
    let row = |query: i64| {
        let seen = keys.iter().enumerate().filter(|(_, key)| sight.sees(query, **key));
        seen.fold(0, |bits, (column, _)| bits | 1 << column)
    };
    (end - queries..end).map(row).collect()
}

fn bits(mask: &Array, keys: i64) -> Vec<u64> {
    let host = to_host(mask).expect("a mask");
    assert_eq!(host.dtype(), Dtype::Bool);
    let row = |row: &[u8]| {
        row.iter().enumerate().fold(0, |bits, (column, &may)| bits | u64::from(may) << column)
    };
    host.bytes().chunks(keys as usize).map(row).collect()
}

fn rule(queries: i64, keys: i64, sight: Sight) -> MaskRule {
    let rule = MaskRule::causal(queries as i32, keys as i32).expect("a rule");
    let Some(window) = sight.window else { return rule };
    rule.within_window(window as i32, sight.keep as i32).expect("a window")
}

/// Every window and every number of kept positions that fits it.
fn sights() -> impl Iterator<Item = Sight> {
    let windows = (1..=MOST)
        .flat_map(|window| (0..window).map(move |keep| Sight { window: Some(window), keep }));
    std::iter::once(Sight::default()).chain(windows)
}

/// Every number of queries and keys, every offset that leaves so many keys, every window and every
/// number of kept positions.
#[test]
fn masks_are_the_definition_for_every_extent() {
    let checked = on_mlx_thread(|| {
        let every = (1..=MOST).flat_map(|keys| sights().map(move |sight| (keys, sight)));
        every.map(|(keys, sight)| check_queries(keys, sight)).sum::<usize>()
    });
    assert_eq!(checked, 8_295_694);
}

/// All numbers of queries and all offsets over so many keys; says how many there were.
fn check_queries(keys: i64, sight: Sight) -> usize {
    let found = |queries| bits(&rule(queries, keys, sight).allowed(), keys);
    let found: Vec<Vec<u64>> = (1..=keys).map(found).collect();
    let mut checked = 0;
    for end in keys..=keys + MOST {
        let wanted = wanted(sight, keys, end, &positions(end, keys, sight.keep));
        for (queries, found) in (1..).zip(&found) {
            // Where rows between them are forgotten, only old rows are kept ones.
            if end - queries > MOST || end > keys && sight.keep > keys - queries {
                continue;
            }
            let newest = &wanted[(keys - queries) as usize..];
            assert_eq!(found, newest, "{queries} of {keys} at {} {sight:?}", end - queries);
            checked += 1;
        }
    }
    checked
}

#[test]
fn padded_masks_are_the_definition_in_each_sequence_of_its_own() {
    on_mlx_thread(|| {
        for (queries, keys) in (1..=16).flat_map(|keys| (1..=keys).map(move |few| (few, keys))) {
            let padding: Vec<i32> = (-1..=keys as i32).collect();
            for sight in sights().filter(|sight| sight.window.is_none_or(|window| window <= 18)) {
                for dead in [DeadRows::Nothing, DeadRows::Itself] {
                    let mask = rule(queries, keys, sight).padded(&padding, dead);
                    assert_eq!(
                        mask.shape(),
                        [padding.len() as i32, 1, queries as i32, keys as i32]
                    );
                    let found = bits(&mask, keys);
                    for (rows, &padding) in found.chunks(queries as usize).zip(&padding) {
                        let first = -i64::from(padding.max(0));
                        let at: Vec<i64> = (first..first + keys).collect();
                        let mut wanted = wanted(sight, queries, first + keys, &at);
                        for (query, row) in wanted.iter_mut().enumerate() {
                            let own = keys - queries + query as i64;
                            assert_eq!(*row == 0, own + first < 0, "only padding sees nothing");
                            if *row == 0 && dead == DeadRows::Itself {
                                *row = 1 << own;
                            }
                        }
                        assert_eq!(rows, wanted, "{queries} {keys} {sight:?} {padding} {dead:?}");
                    }
                }
            }
        }
    });
}

/// Rows `[1, 1, count, 1]` that hold their own position.
fn rows(start: i32, count: i32) -> Array {
    let data: Vec<f32> = (start..start + count).map(|position| position as f32).collect();
    Array::from_slice(&data, &[1, 1, count, 1])
}

/// Each query of a rotating cache sees what the definition says, in whatever order rows lie, and the
/// kept prefix from calls of several tokens too.
#[rstest]
fn a_rotating_cache_shows_what_the_definition_says(
    #[values(1, 2, 3, 5, 8, 13)] size: i32,
    #[values(&[1; 30], &[30], &[7, 1, 1, 9, 1, 1, 2, 3, 1], &[1, 1, 4, 4, 4, 4, 1, 1, 1])]
    chunks: &'static [i32],
) {
    on_mlx_thread(move || {
        for (window, keep) in (1..=size).flat_map(|window| (0..window).map(move |k| (window, k))) {
            let mut cache = KvCache::Rotating(RotatingCache::new(size, keep));
            // A window shorter than the cache has no kept rows of its own.
            if window < size && keep > 0 {
                continue;
            }
            let sight = Sight { window: Some(window.into()), keep: keep.into() };
            let mut start = 0;
            for &count in chunks {
                let mask = cache.mask(count, Some(window)).expect("a mask");
                let new = rows(start, count);
                let (keys, _) = cache.update(&new, &new).and_then(Rows::plain).expect("an update");
                let stored: Vec<i64> =
                    read::<f32>("keys", &keys).expect("f32").iter().map(|&at| at as i64).collect();
                let all = stored.len() as i64;
                let end = i64::from(start + count);
                let wanted = wanted(sight, count.into(), end, &stored);
                let found = match &mask {
                    Mask::Full => vec![(1 << all) - 1; count as usize],
                    Mask::Causal => bits(&rule(count.into(), all, Sight::default()).allowed(), all),
                    Mask::Allowed(array) => bits(array, all),
                };
                assert_eq!(found, wanted, "{size} {window} {keep} at {start} of {chunks:?}");
                let seen = sight.window.map_or(end, |window| window.min(end));
                let last = wanted.last().expect("a query").count_ones();
                assert_eq!(i64::from(last), seen, "no row in sight was forgotten");
                start += count;
            }
        }
    });
}

#[test]
fn a_rotated_mask_is_the_temporal_one_turned() {
    on_mlx_thread(|| {
        for keys in 1..=16_i64 {
            for sight in sights().filter(|sight| sight.keep < keys) {
                let temporal = bits(&rule(1, keys, sight).allowed(), keys)[0];
                for newest in sight.keep..keys {
                    let found = bits(&rule(1, keys, sight).rotated(newest as i32), keys)[0];
                    // Of the rows that turn, the oldest lies behind the newest.
                    let turning = keys - sight.keep;
                    let slot = |row: i64| match row - sight.keep {
                        kept if kept < 0 => row,
                        turn => sight.keep + (newest + 1 - sight.keep + turn) % turning,
                    };
                    let wanted = (0..keys)
                        .filter(|row| temporal >> row & 1 == 1)
                        .fold(0, |bits, row| bits | 1 << slot(row));
                    assert_eq!(found, wanted, "{keys} {sight:?} {newest}");
                }
            }
        }
    });
}

fn noise(shape: [usize; 4], seed: u64) -> HostTensor {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let data: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    HostTensor::from_f32(shape.to_vec(), &data).expect("a tensor")
}

/// Attention under the boolean and the added form, with rows that see nothing by either policy.
#[rstest]
fn attention_under_a_mask_is_that_of_the_definition(
    #[values((1, 9), (4, 4), (5, 12), (12, 40), (40, 40))] extents: (usize, usize),
    #[values(false, true)] add: bool,
    #[values(DeadRows::Nothing, DeadRows::Itself)] dead: DeadRows,
) {
    on_mlx_thread(move || {
        for window in [None, Some((1, 0)), Some((4, 0)), Some((6, 3))] {
            check_attention(extents, window, add, dead);
        }
    });
}

fn check_attention(
    (queries, keys): (usize, usize),
    window: Option<(i64, i64)>,
    add: bool,
    dead: DeadRows,
) {
    let (width, padding) = (16, [0, 3, keys as i32 - 1]);
    let shapes = [[3, 4, queries, width], [3, 2, keys, width], [3, 2, keys, width]];
    let [q, k, v] = [0, 1, 2].map(|at| noise(shapes[at], at as u64 + 1));
    let sight =
        window.map_or_else(Sight::default, |(window, keep)| Sight { window: Some(window), keep });
    let mask = rule(queries as i64, keys as i64, sight).padded(&padding, dead);
    let mask = if add { added(&mask, mlx_dtype(Dtype::F32).expect("a dtype")) } else { Ok(mask) };
    let mask = mask.expect("a mask");
    let [mq, mk, mv] = [&q, &k, &v].map(|host| from_host(host).expect("an array"));
    let found = attend(&mq, &mk, &mv, 0.25, ScoreMask::Array(&mask), None).expect("attention");
    let found = read::<f32>("answer", &found).expect("f32");

    let mut may = Vec::new();
    for &padding in &padding {
        let own = |row: usize| (keys - queries + row) as i64 - i64::from(padding);
        for query in 0..queries {
            let lives = own(query) >= 0;
            may.extend((0..keys).map(|key| {
                let key = key as i64 - i64::from(padding);
                let itself = !lives && dead == DeadRows::Itself && key == own(query);
                sight.sees(own(query), key) || itself
            }));
        }
    }
    let may = BoolTensor::new(vec![3, 1, queries, keys], may).expect("a mask");
    let mut attention = Attention::new(0.25, ref64::Mask::Bool(&may));
    if add {
        attention.dead_rows = ref64::DeadRows::Nan;
    }
    let [q, k, v] = [&q, &k, &v].map(Tensor64::from_host);
    let wanted = ref64::sdpa(&q, &k, &v, &attention).expect("attention");
    for (found, wanted) in found.iter().zip(wanted.value.data()) {
        let near = (f64::from(*found) - wanted).abs() <= 4e-6;
        assert!(near || (found.is_nan() && wanted.is_nan()), "{found} {wanted}");
    }
}

#[test]
fn extents_that_no_cache_has_are_refused() {
    let message = |rule: Result<MaskRule, EngineError>| rule.unwrap_err().to_string();
    assert!(message(MaskRule::causal(0, 4)).contains("queries is 0, wanted at least 1"));
    assert!(message(MaskRule::causal(5, 4)).contains("queries is 5"));
    let good = MaskRule::causal(2, 4).expect("a rule");
    assert!(message(good.within_window(0, 0)).contains("window is 0, wanted at least 1"));
    assert!(
        message(good.within_window(3, 3)).contains("keep is 3, wanted at least 0 and at most 2")
    );
    assert!(message(good.within_window(3, -1)).contains("keep is -1"));
}
