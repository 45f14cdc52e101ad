//! Every way a safetensors file can be wrong: one clear error that names the file, the found and the wanted.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use mlx_parity_tensor::safetensors::{Header, SafetensorsFile};
use rstest::rstest;

/// A file from its parts; `data` is the number of data bytes.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0x5a);
    bytes
}

fn open_error(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.safetensors");
    fs::write(&path, bytes).unwrap();
    let message = SafetensorsFile::open(&path).unwrap_err().to_string();
    assert!(message.starts_with(&path.display().to_string()), "names the file: {message}");
    message
}

const GOOD: &str = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}"#;

#[test]
fn the_good_file_is_good() {
    let header = Header::parse(&file(GOOD, 11)).unwrap();
    assert_eq!(header.entries.len(), 2);
    assert_eq!(header.entries[1].bytes.len(), 3);
}

#[test]
fn null_metadata_is_no_metadata() {
    let header = Header::parse(&file(r#"{"__metadata__":null}"#, 0)).unwrap();
    assert!(header.metadata.is_empty() && header.entries.is_empty());
    let twice = Header::parse(&file(r#"{"__metadata__":null,"__metadata__":{}}"#, 0));
    assert!(twice.unwrap_err().to_string().contains("duplicate key `__metadata__`"));
}

#[rstest]
#[case::trailing(GOOD, 12, &["trailing bytes", "found", "126"])]
#[case::truncated(GOOD, 10, &["truncated in tensor `b`", "found", "126"])]
#[case::truncated_in_the_first(GOOD, 7, &["truncated in tensor `a`"])]
#[case::overlap(
    r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[7,10]}}"#,
    10, &["`a` and `b` overlap", "8", "7"])]
#[case::same_bytes_twice(
    r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}"#,
    8, &["overlap"])]
#[case::hole(
    r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[9,12]}}"#,
    12, &["hole before tensor `b`", "9", "8"])]
#[case::hole_at_the_start(
    r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}"#, 3, &["hole before tensor `a`", "1", "0"])]
#[case::duplicate_tensor(
    r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#,
    2, &["duplicate key `a`"])]
#[case::duplicate_metadata_key(
    r#"{"__metadata__":{"k":"1","k":"2"}}"#, 0, &["duplicate key `k`"])]
#[case::duplicate_metadata(
    r#"{"__metadata__":{},"__metadata__":{}}"#, 0, &["duplicate key `__metadata__`"])]
#[case::duplicate_field(
    r#"{"a":{"dtype":"U8","dtype":"I8","shape":[2],"data_offsets":[0,2]}}"#, 2, &["duplicate field `dtype`"])]
#[case::unknown_field(
    r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"stride":[1]}}"#, 2, &["unknown field `stride`"])]
#[case::unknown_dtype(
    r#"{"a":{"dtype":"F8_E4M3FNUZ","shape":[2],"data_offsets":[0,2]}}"#, 2, &["`a`", "`F8_E4M3FNUZ`", "BF16"])]
#[case::lower_case_dtype(
    r#"{"a":{"dtype":"f32","shape":[2],"data_offsets":[0,8]}}"#, 8, &["`f32`", "F32"])]
#[case::shape_overflow(
    r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}"#, 8, &["`a`", "overflows"])]
#[case::byte_overflow(
    r#"{"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,8]}}"#, 8, &["`a`", "overflows"])]
#[case::offset_overflow(
    r#"{"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]}}"#,
    8, &["truncated in tensor `a`"])]
#[case::size_mismatch(
    r#"{"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,8]}}"#, 8, &["`a` has 8 bytes", "[2, 3]", "bf16", "12"])]
#[case::reversed(
    r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}}"#, 2, &["[2, 0]", "begin <= end"])]
#[case::negative_dimension(
    r#"{"a":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}}"#, 2, &["bad header", "-2"])]
#[case::fractional_dimension(
    r#"{"a":{"dtype":"U8","shape":[2.5],"data_offsets":[0,2]}}"#, 2, &["bad header", "2.5"])]
#[case::number_for_metadata(r#"{"__metadata__":{"k":1}}"#, 0, &["bad header", "string"])]
#[case::missing_field(r#"{"a":{"dtype":"U8","shape":[2]}}"#, 2, &["bad header", "data_offsets"])]
#[case::not_json("{a", 0, &["bad header", "column"])]
#[case::json_array("[]", 0, &["bad header", "`{`"])]
#[case::two_documents("{}{}", 0, &["bad header", "trailing"])]
#[case::leading_space(" {}", 0, &["bad header", "`{`"])]
#[case::empty_header("", 4, &["bad header", "`{`"])]
fn a_bad_header_is_refused(#[case] header: &str, #[case] data: usize, #[case] wanted: &[&str]) {
    let message = open_error(&file(header, data));
    for part in wanted {
        // "found" stands for the length of the file, which only this helper knows.
        let part = part.replace("found", &format!("{} bytes", file(header, data).len()));
        assert!(message.contains(&part), "{part:?} in {message:?}");
    }
}

#[rstest]
#[case::empty(&[], "0 bytes, wanted at least 8")]
#[case::seven_bytes(&[0; 7], "7 bytes, wanted at least 8")]
#[case::truncated_header(&[200, 0, 0, 0, 0, 0, 0, 0, b'{'], "9 bytes, header wants 208")]
#[case::huge_header(&u64::MAX.to_le_bytes(), "18446744073709551615 bytes, wanted at most 100000000")]
#[case::just_too_huge(&100_000_001u64.to_le_bytes(), "100000001 bytes, wanted at most")]
#[case::another_format(b"PK\x03\x04\x14\x00\x00\x08rest of a zip", "is this a safetensors file?")]
#[case::not_utf8(&[4, 0, 0, 0, 0, 0, 0, 0, b'{', b'"', 0xff, b'"'], "bad header")]
fn bad_bytes_are_refused(#[case] bytes: &[u8], #[case] wanted: &str) {
    let message = open_error(bytes);
    assert!(message.contains(wanted), "{wanted:?} in {message:?}");
}

#[test]
fn nesting_without_end_is_refused() {
    let header = format!(r#"{{"a":{}"#, "[".repeat(100_000));
    assert!(open_error(&file(&header, 0)).contains("bad header"));
}

#[test]
fn what_is_not_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let message = |path: &Path| SafetensorsFile::open(path).unwrap_err().to_string();
    assert!(message(folder.path()).contains("not a regular file"));
    assert!(message(&folder.path().join("none")).contains("cannot open"));
    assert!(message(&folder.path().join("none")).contains("none"));
}

/// What the `safetensors` crate is relied on for: it must refuse the same files without our checks before it.
#[rstest]
#[case::overlap(r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}}"#, 12)]
#[case::hole(r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}"#, 3)]
#[case::trailing(GOOD, 12)]
#[case::truncated(GOOD, 10)]
#[case::unknown_dtype(r#"{"a":{"dtype":"F7","shape":[2],"data_offsets":[0,2]}}"#, 2)]
#[case::overflow(
    r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}"#,
    8
)]
fn the_crate_refuses_it_too(#[case] header: &str, #[case] data: usize) {
    assert!(safetensors::SafeTensors::read_metadata(&file(header, data)).is_err());
}

/// And what it does not refuse, which is why we read the header ourselves.
#[test]
fn the_crate_accepts_a_duplicate_key() {
    let twice = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}}"#;
    assert!(safetensors::SafeTensors::read_metadata(&file(twice, 2)).is_ok());
    assert!(Header::parse(&file(twice, 2)).is_err());
}

proptest::proptest! {
    #[test]
    fn one_flipped_byte_never_panics(at in 0usize..116, to: u8) {
        let mut bytes = file(GOOD, 11);
        bytes[at] = to;
        let _ = Header::parse(&bytes);
    }

    #[test]
    fn any_shorter_or_longer_file_is_refused(len in 0usize..200) {
        let mut bytes = file(GOOD, 11);
        let whole = bytes.len();
        bytes.resize(len, 0);
        proptest::prop_assert_eq!(Header::parse(&bytes).is_ok(), len == whole);
    }
}
