//! `mlx-parity diff` as a person or a script meets it: exit codes, output, bad input, memory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use mlx_parity::diff::{TensorRow, Verdict};
use mlx_parity_tensor::HostTensor;
use mlx_parity_tensor::safetensors::write;
use rstest::rstest;
use tempfile::TempDir;

const HELD: i32 = 0;
const USAGE: i32 = 2;
const NOTHING_RAN: i32 = 4;
const MISMATCH: i32 = 100;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlx-parity"));
    command.arg("diff");
    command
}

fn diff(a: &Path, b: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        program().args([a, b]).args(arguments).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn file(folder: &TempDir, name: &str, tensors: &[(&str, &[f32])]) -> PathBuf {
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(name, values)| (*name, HostTensor::from_f32([values.len()], values).unwrap()))
        .collect();
    let path = folder.path().join(name);
    let borrowed = tensors.iter().map(|(name, tensor)| ((*name).to_owned(), tensor));
    write(&path, borrowed, &BTreeMap::new()).unwrap();
    path
}

#[test]
fn equal_files_exit_0() {
    let folder = tempfile::tempdir().unwrap();
    let a = file(&folder, "a", &[("t", &[1.0, f32::NAN])]);
    let (code, stdout, stderr) = diff(&a, &a, &[]);
    assert_eq!((code, stderr.as_str()), (Some(HELD), ""));
    assert!(stdout.starts_with("1 tensor: 1 bit-equal") && stdout.contains("8 B in "), "{stdout}");
}

#[test]
fn a_difference_exits_100_unless_the_bound_allows_it() {
    let folder = tempfile::tempdir().unwrap();
    let a = file(&folder, "a", &[("t", &[1.0, 2.0])]);
    let b = file(&folder, "b", &[("t", &[1.0, 2.0f32.next_up()])]);
    let (code, stdout, _) = diff(&a, &b, &["--dump", "1"]);
    assert_eq!(code, Some(MISMATCH));
    assert!(stdout.contains("1 / 2         1    2.4e-7"), "{stdout}");
    assert!(
        stdout.contains("  t[1]   a 0x40000000 (2)   b 0x40000001 (2.0000002)   1 ulp"),
        "{stdout}"
    );
    assert_eq!(diff(&a, &b, &["--ulp", "0"]).0, Some(MISMATCH));
    assert_eq!(diff(&a, &b, &["--ulp", "1"]).0, Some(HELD));
    assert_eq!(diff(&a, &b, &["--rtol", "1e-8"]).0, Some(MISMATCH));
    assert_eq!(diff(&a, &b, &["--rtol", "1e-6"]).0, Some(HELD));
    assert_eq!(diff(&a, &b, &["--atol", "1e-6", "--rtol", "0"]).0, Some(HELD));
}

#[test]
fn json_lines_are_rows_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let a = file(&folder, "a", &[("same", &[1.0]), ("t", &[1.0]), ("old", &[1.0])]);
    let b = file(&folder, "b", &[("t", &[f32::NAN]), ("same", &[1.0]), ("new", &[1.0])]);
    let (code, stdout, _) = diff(&a, &b, &["--format", "jsonl"]);
    assert_eq!(code, Some(MISMATCH));
    let rows: Vec<TensorRow> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let verdicts: Vec<_> = rows.iter().map(|row| (row.tensor.as_str(), row.verdict)).collect();
    let wanted = [
        ("same", Verdict::Equal),
        ("t", Verdict::Differs),
        ("old", Verdict::OnlyInA),
        ("new", Verdict::OnlyInB),
    ];
    assert_eq!(verdicts, wanted);
}

#[test]
fn no_tensor_at_all_exits_4() {
    let folder = tempfile::tempdir().unwrap();
    let a = file(&folder, "a", &[]);
    assert_eq!(diff(&a, &a, &[]).0, Some(NOTHING_RAN));
}

#[rstest]
#[case::negative(&["--atol=-1"])]
#[case::nan(&["--rtol", "nan"])]
#[case::infinite(&["--atol", "inf"])]
#[case::two_kinds(&["--ulp", "1", "--rtol", "0.1"])]
#[case::unknown(&["--tolerance", "1"])]
#[case::not_a_number(&["--dump", "all"])]
fn a_bad_command_line_exits_2(#[case] arguments: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let a = file(&folder, "a", &[("t", &[1.0])]);
    let (code, stdout, stderr) = diff(&a, &a, arguments);
    assert_eq!((code, stdout.as_str()), (Some(USAGE), ""));
    assert!(stderr.contains("error:"), "{stderr}");
}

/// A file from a header and a number of data bytes.
fn raw(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[rstest]
#[case::truncated(&raw(r#"{"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 7), "truncated in tensor `t`")]
#[case::overlapping(
    &raw(r#"{"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"u":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}}"#, 7),
    "`t` and `u` overlap")]
#[case::another_format(b"GGUF\x03\x00\x00\x00\x00\x00\x00\x00", "is this a safetensors file?")]
#[case::huge_header(&u64::MAX.to_le_bytes(), "wanted at most 100000000")]
#[case::shape_overflow(
    &raw(r#"{"t":{"dtype":"F32","shape":[9223372036854775807,3],"data_offsets":[0,4]}}"#, 4), "overflows")]
#[case::unknown_dtype(&raw(r#"{"t":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}}"#, 4), "`F31`, wanted one of BOOL")]
#[case::empty(b"", "0 bytes")]
fn a_bad_file_exits_2_and_is_named(#[case] bytes: &[u8], #[case] wanted: &str) {
    let folder = tempfile::tempdir().unwrap();
    let good = file(&folder, "good", &[("t", &[1.0])]);
    let bad = folder.path().join("bad.safetensors");
    fs::write(&bad, bytes).unwrap();
    for (a, b) in [(&good, &bad), (&bad, &good)] {
        let (code, stdout, stderr) = diff(a, b, &[]);
        assert_eq!((code, stdout.as_str()), (Some(USAGE), ""), "{stderr}");
        assert!(stderr.contains("bad.safetensors: ") && stderr.contains(wanted), "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn what_cannot_be_read_exits_2_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let good = file(&folder, "good", &[("t", &[1.0])]);
    let (code, _, stderr) = diff(&good, &folder.path().join("absent"), &[]);
    assert!(code == Some(USAGE) && stderr.contains("absent: cannot open"), "{stderr}");
    let (code, _, stderr) = diff(folder.path(), &good, &[]);
    assert!(code == Some(USAGE) && stderr.contains("wanted model.safetensors"), "{stderr}");
}

/// Resident memory at its peak stays far below the size of what is compared.
#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_files() {
    const MEGABYTES: u64 = 512;
    const LIMIT: u64 = 200;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bytes = MEGABYTES << 20;
    let header =
        format!(r#"{{"t":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{bytes}]}}}}"#, bytes / 4);
    // Holes take no disk, but read as pages like any others.
    let [a, b] = ["a", "b"].map(|name| {
        let path = folder.path().join(name);
        fs::write(&path, raw(&header, 0)).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(8 + header.len() as u64 + bytes)
            .unwrap();
        path
    });
    let mut child = program().args([&a, &b]).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let ended = loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        peak = peak.max(kilobytes.unwrap_or(0) / 1000);
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    assert_eq!(ended.code(), Some(HELD));
    assert!((1..LIMIT).contains(&peak), "{peak} MB resident to compare 2 x {MEGABYTES} MiB");
}
