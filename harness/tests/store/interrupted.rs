//! Writers that end early, and those that take up what they left.

use std::fs;

use mlx_parity::store::StoreError;
use rstest::rstest;

use super::*;

/// An unfinished entry of two chunks (rows 0..2 and 2..3) of 4 rows.
fn left_behind(home: &Home) -> Key {
    let key = key(4);
    let mut writer = miss(&home.store(), &key);
    for (from, to) in [(0, 2), (2, 3)] {
        writer.append(&rows(from, to)).unwrap();
        writer.flush().unwrap();
    }
    key
}

/// Finishes an unfinished entry; the rows that were still there.
fn go_on(home: &Home, key: &Key) -> usize {
    let mut writer = miss(&home.store(), key);
    let kept = writer.rows();
    writer.append(&rows(kept, key.rows)).unwrap();
    assert_eq!(writer.finish().unwrap().rows(0..key.rows).unwrap(), rows(0, key.rows));
    kept
}

#[test]
fn whole_chunks_are_kept_and_gathered_rows_are_not() {
    let home = Home::new();
    let key = left_behind(&home);
    assert!(home.store().find(&key).unwrap().is_none(), "half an entry is no entry");
    let mut writer = miss(&home.store(), &key);
    writer.append(&rows(3, 4)).unwrap();
    assert_eq!(writer.rows(), 4);
    drop(writer);
    assert_eq!(go_on(&home, &key), 3);
}

/// Whatever a killed writer leaves, only what is whole is taken up, and the entry ends up right.
#[rstest]
#[case::torn_line("journal", |bytes: &mut Vec<u8>| { bytes.pop(); }, 2)]
#[case::half_a_line("journal", |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 40), 2)]
#[case::no_journal("journal", |bytes: &mut Vec<u8>| bytes.clear(), 0)]
#[case::bit_in_the_journal("journal", |bytes: &mut Vec<u8>| bytes[20] ^= 1, 0)]
#[case::no_text("journal", |bytes: &mut Vec<u8>| bytes[0] = 0xff, 0)]
#[case::torn_chunk("logits.zst", |bytes: &mut Vec<u8>| { bytes.pop(); }, 2)]
#[case::half("logits.zst", |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2), 0)]
#[case::nothing("logits.zst", |bytes: &mut Vec<u8>| bytes.clear(), 0)]
#[case::bit_in_the_last("logits.zst", |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1, 2)]
#[case::bit_in_the_first("logits.zst", |bytes: &mut Vec<u8>| bytes[9] ^= 1, 0)]
#[case::chunk_without_a_line("logits.zst", |bytes: &mut Vec<u8>| bytes.extend([7; 99]), 3)]
fn what_is_torn_is_written_again(
    #[case] name: &str,
    #[case] change: fn(&mut Vec<u8>),
    #[case] kept: usize,
) {
    let home = Home::new();
    let key = left_behind(&home);
    let path = home.partial(&key).join(name);
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(&path, bytes).unwrap();
    assert_eq!(go_on(&home, &key), kept);
}

#[test]
fn a_writer_that_died_between_seal_and_name_is_taken_up() {
    let home = Home::new();
    let key = left_behind(&home);
    // The index is there, the name is not: the next writer starts from the chunks all the same.
    fs::write(home.partial(&key).join("index"), "anything").unwrap();
    assert_eq!(go_on(&home, &key), 3);
    let key = Key { vocab: 1000, ..super::key(5) };
    fs::create_dir_all(home.partial(&key)).unwrap();
    assert_eq!(go_on(&home, &key), 0);
}

/// The disk is full: `/dev/full` says so to every write.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_loses_nothing_and_says_how_to_go_on() {
    let home = Home::new();
    let key = left_behind(&home);
    let logits = home.partial(&key).join("logits.zst");
    let journal = home.partial(&key).join("journal");
    let kept = [fs::read(&logits).unwrap(), fs::read(&journal).unwrap()];
    fs::remove_file(&logits).unwrap();
    std::os::unix::fs::symlink("/dev/full", &logits).unwrap();
    fs::write(&journal, "").unwrap();
    let mut writer = miss(&home.store(), &key);
    writer.append(&rows(0, 4)).unwrap();
    for _ in 0..2 {
        let error = writer.flush().unwrap_err();
        assert!(matches!(error, StoreError::DiskFull { rows: 0, .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("logits.zst") && message.contains("store gc"), "{message}");
    }
    assert!(writer.finish().is_err());
    assert!(home.store().find(&key).unwrap().is_none());
    // There is room again.
    fs::remove_file(&logits).unwrap();
    fs::write(&logits, &kept[0]).unwrap();
    fs::write(&journal, &kept[1]).unwrap();
    assert_eq!(go_on(&home, &key), 3);
}

#[test]
fn a_store_that_is_a_file_is_named() {
    let home = Home::new();
    fs::write(home.path(), "").unwrap();
    let error = Store::open(home.path(), 1).unwrap_err();
    assert!(error.to_string().contains("store"), "{error}");
}
