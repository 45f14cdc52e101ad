//! Entries that are not what their checksums say.

use std::fs;

use mlx_parity::store::StoreError;
use rstest::rstest;

use super::*;

/// Opens the entry and reads it from end to end.
fn read(home: &Home, key: &Key) -> Result<(), StoreError> {
    let reader = home.store().find(key)?.expect("it is there");
    reader.chunks().try_for_each(|chunk| chunk.map(drop))
}

/// Every byte of a small entry matters to one check or another.
#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let home = Home::new();
    let key = Key { vocab: 10, rows: 2, ids: vec![1, 2], ..key(2) };
    let logits = HostTensor::from_f32([2, 10], &[0.25; 20]).unwrap();
    let mut writer = miss(&home.store(), &key);
    writer.append(&logits).unwrap();
    drop(writer.finish().unwrap());
    for name in ["index", "logits.zst"] {
        let path = home.entry(&key).join(name);
        for at in 0..fs::metadata(&path).unwrap().len() as usize {
            flip(&path, at);
            let error = read(&home, &key).unwrap_err();
            assert!(matches!(error, StoreError::Damaged { .. }), "{name} byte {at}: {error}");
            let message = error.to_string();
            assert!(
                message.contains(name) && message.contains("store verify --remove"),
                "{message}"
            );
            flip(&path, at);
        }
    }
    read(&home, &key).unwrap();
}

#[rstest]
#[case::shorter("logits.zst", |bytes: &mut Vec<u8>| { bytes.pop(); })]
#[case::longer("logits.zst", |bytes: &mut Vec<u8>| bytes.push(0))]
#[case::no_logits("logits.zst", |bytes: &mut Vec<u8>| bytes.clear())]
#[case::no_index("index", |bytes: &mut Vec<u8>| bytes.clear())]
#[case::half_an_index("index", |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2))]
#[case::index_without_its_last_byte("index", |bytes: &mut Vec<u8>| { bytes.pop(); })]
#[case::index_and_more("index", |bytes: &mut Vec<u8>| bytes.push(b'\n'))]
fn a_file_of_another_length_is_found(#[case] name: &str, #[case] change: fn(&mut Vec<u8>)) {
    let home = Home::new();
    fill(&home.store(), &key(3));
    let path = home.entry(&key(3)).join(name);
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(&path, bytes).unwrap();
    let error = read(&home, &key(3)).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(home.store().claim(&key(3)).is_err(), "a damaged entry is neither hit nor miss");
}

#[test]
fn an_entry_under_the_name_of_another_is_found() {
    let home = Home::new();
    fill(&home.store(), &key(3));
    fs::rename(home.entry(&key(3)), home.entry(&key(4))).unwrap();
    let error = read(&home, &key(4)).unwrap_err().to_string();
    assert!(error.contains("its key is that of"), "{error}");
}

#[test]
fn another_schema_is_named() {
    let home = Home::new();
    fill(&home.store(), &key(3));
    let path = home.entry(&key(3)).join("index");
    let text = fs::read_to_string(&path).unwrap();
    let body = text.lines().next().unwrap().replace("{\"schema\":1", "{\"schema\":2");
    let seal = mlx_parity::digest::of_bytes(body.as_bytes());
    fs::write(&path, format!("{body}\n{seal}\n")).unwrap();
    let error = read(&home, &key(3)).unwrap_err();
    assert!(matches!(error, StoreError::Schema { found: 2, wanted: 1, .. }), "{error}");
}

#[test]
fn missing_files_are_named() {
    for name in ["index", "logits.zst"] {
        let home = Home::new();
        fill(&home.store(), &key(3));
        fs::remove_file(home.entry(&key(3)).join(name)).unwrap();
        let error = read(&home, &key(3)).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}
