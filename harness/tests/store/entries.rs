//! Writing an entry and finding it again.

use mlx_parity::store::StoreError;
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;

use super::*;

#[test]
fn what_is_written_is_read_bit_for_bit() {
    let home = Home::new();
    let (store, key) = (home.store(), key(5000));
    let mut writer = miss(&store, &key);
    for (from, to) in [(0, 1), (1, 7), (7, 4900), (4900, 5000)] {
        assert_eq!(writer.rows(), from);
        writer.append(&rows(from, to)).unwrap();
    }
    let mut reader = writer.finish().unwrap();
    assert_eq!(reader.key(), &key);
    let mut next = 0;
    for chunk in reader.chunks() {
        let chunk = chunk.unwrap();
        let end = next + chunk.logits.shape()[0];
        assert!(chunk.logits.bytes().len() <= 8 << 20, "a chunk is at most 8 MiB");
        assert_eq!((chunk.start, chunk.logits), (next, rows(next, end)));
        next = end;
    }
    assert_eq!((next, reader.chunks().len()), (5000, 3));
    // Within a chunk, over the edges of chunks, backwards, nothing, everything.
    for range in [3..5, 2000..4400, 0..1, 4999..5000, 77..77, 0..5000] {
        assert_eq!(reader.rows(range.clone()).unwrap(), rows(range.start, range.end));
    }
    assert_eq!(hit(&store, &key).rows(9..10).unwrap(), rows(9, 10));
    assert!(!home.partial(&key).exists());
}

#[test]
fn nan_payloads_and_half_types_keep_their_bits() {
    let home = Home::new();
    let bits = [0x7fc1, 0xff80, 0x8000, 0x0001];
    let tensor = HostTensor::from_bf16_bits([2, 2], &bits).unwrap();
    let key = Key { dtype: Dtype::Bf16, rows: 2, vocab: 2, ..key(2) };
    let mut writer = miss(&home.store(), &key);
    writer.append(&tensor).unwrap();
    assert_eq!(writer.finish().unwrap().rows(0..2).unwrap(), tensor);
}

#[test]
fn a_row_longer_than_a_chunk_is_a_chunk_of_its_own() {
    let home = Home::new();
    let key = Key { dtype: Dtype::Bf16, rows: 2, vocab: 5 << 20, ..key(2) };
    let tensor = HostTensor::zeros(Dtype::Bf16, [2, 5 << 20]).unwrap();
    let mut writer = miss(&home.store(), &key);
    writer.append(&tensor).unwrap();
    let mut reader = writer.finish().unwrap();
    assert_eq!(reader.chunks().len(), 2);
    assert_eq!(reader.rows(1..2).unwrap(), tensor.rows(1..2));
}

/// Whatever decides the logits decides the name.
#[rstest]
#[case::weights(Key { weights: "sha256:ab".into(), ..key(3) })]
#[case::config(Key { config: "sha256:bc".into(), ..key(3) })]
#[case::composition(Key { composition: "l2:kv8, prefill 512".into(), ..key(3) })]
#[case::engine(Key { engine: "0.1.0 sha256:cd".into(), ..key(3) })]
#[case::windows(Key { windows: "windows of 2, second half".into(), ..key(3) })]
#[case::ids(Key { ids: vec![0, 2, 1], ..key(3) })]
#[case::dtype(Key { dtype: Dtype::F64, ..key(3) })]
#[case::vocab(Key { vocab: 999, ..key(3) })]
#[case::version(Key { fingerprint: Fingerprint { mlx: "0.33.0".into(), ..key(3).fingerprint }, ..key(3) })]
#[case::variable(Key {
    fingerprint: Fingerprint { env: [("MLX_ENABLE_TF32".into(), "0".into())].into(), ..key(3).fingerprint },
    ..key(3)
})]
fn another_cause_is_another_entry(#[case] other: Key) {
    let home = Home::new();
    let store = home.store();
    fill(&store, &key(3));
    assert!(store.find(&key(3)).unwrap().is_some());
    assert_ne!(other.digest(), key(3).digest());
    assert!(store.find(&other).unwrap().is_none());
}

#[test]
fn an_entry_is_found_by_the_beginning_of_its_name() {
    let home = Home::new();
    let store = home.store();
    (1..=17).for_each(|rows| fill(&store, &key(rows)));
    let name = key(4).digest();
    assert_eq!(store.get(&name).unwrap().key(), &key(4));
    // Of seventeen names two at least begin with the same digit.
    let first = |rows| key(rows).digest()[..1].to_owned();
    let shared = (1..=17)
        .map(first)
        .find(|digit| (1..=17).filter(|rows| first(*rows) == *digit).count() > 1);
    for prefix in [shared.unwrap().as_str(), "xyz"] {
        let error = store.get(prefix).unwrap_err();
        assert!(matches!(&error, StoreError::NotOne { matches, .. } if *matches != 1), "{error}");
        assert!(error.to_string().contains("store list"), "{error}");
    }
}

#[rstest]
#[case::dtype(HostTensor::zeros(Dtype::Bf16, [1, 1000]))]
#[case::vocab(HostTensor::zeros(Dtype::F32, [1, 999]))]
#[case::rank(HostTensor::zeros(Dtype::F32, [1000]))]
fn other_logits_are_refused(#[case] logits: Result<HostTensor, mlx_parity_tensor::TensorError>) {
    let home = Home::new();
    let mut writer = miss(&home.store(), &key(3));
    let error = writer.append(&logits.unwrap()).unwrap_err();
    assert!(matches!(error, StoreError::Shape { .. }), "{error}");
    assert!(error.to_string().contains("f32 [rows, 1000]"), "{error}");
    assert_eq!(writer.rows(), 0, "nothing of it is kept");
}

#[test]
fn as_many_rows_as_the_key_says_no_more_and_no_fewer() {
    let home = Home::new();
    let (store, key) = (home.store(), key(3));
    let mut writer = miss(&store, &key);
    writer.append(&rows(0, 2)).unwrap();
    let error = writer.append(&rows(2, 4)).unwrap_err();
    assert!(matches!(error, StoreError::Rows { found: 4, wanted: 3, .. }), "{error}");
    let error = writer.finish().unwrap_err();
    assert!(matches!(error, StoreError::Rows { found: 2, wanted: 3, .. }), "{error}");
    assert!(store.find(&key).unwrap().is_none());
    assert_eq!(miss(&store, &key).rows(), 2, "the two rows are kept");
}

#[test]
fn two_writers_of_one_entry_do_not_meet() {
    let home = Home::new();
    let (one, other) = (home.store(), home.store());
    let mut writer = miss(&one, &key(3));
    let error = other.claim(&key(3)).unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    let _another_key = miss(&other, &key(4));
    writer.append(&rows(0, 3)).unwrap();
    let _reader = writer.finish().unwrap();
    // Read by several at once, then.
    let _readers = [hit(&other, &key(3)), hit(&one, &key(3))];
}

/// Many threads ask for a few entries at once; each ends up with the right rows, written by one of them.
#[test]
fn a_crowd_gets_the_same_answer() {
    let home = Home::new();
    std::thread::scope(|scope| {
        for at in 0..16 {
            let (store, key) = (home.store(), key(5 + at % 3));
            scope.spawn(move || {
                let mut reader = loop {
                    match store.claim(&key) {
                        Ok(Claim::Hit(reader)) => break reader,
                        Ok(Claim::Miss(mut writer)) => {
                            writer.append(&rows(writer.rows(), key.rows)).unwrap();
                            break writer.finish().unwrap();
                        }
                        Err(StoreError::Busy { .. }) => std::thread::yield_now(),
                        Err(error) => panic!("{error}"),
                    }
                };
                assert_eq!(reader.rows(0..key.rows).unwrap(), rows(0, key.rows));
            });
        }
    });
    assert_eq!(home.store().entries().unwrap().len(), 3);
}
