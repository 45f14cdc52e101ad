//! Logits of another engine.

use std::collections::BTreeMap;

use mlx_parity::store::Dump;
use mlx_parity_tensor::safetensors;
use rstest::rstest;

use super::*;

struct Parts {
    logits: HostTensor,
    ids: HostTensor,
    window: Option<&'static str>,
}

/// A dump of 6 rows over a vocabulary of 1,000.
fn parts() -> Parts {
    let ids = HostTensor::from_i32([6], &[5, 0, 999, 1, 2, 3]).unwrap();
    Parts { logits: rows(0, 6), ids, window: None }
}

fn open(parts: &Parts) -> Result<(Dump, TempDir), String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.safetensors");
    let note = HostTensor::zeros(Dtype::U8, [1]).unwrap();
    let tensors = [("logits", &parts.logits), ("ids", &parts.ids), ("note", &note)];
    let metadata: BTreeMap<_, _> =
        parts.window.iter().map(|text| ("window".to_owned(), (*text).to_owned())).collect();
    let named = tensors.map(|(name, tensor)| (name.to_owned(), tensor));
    safetensors::write(&path, named, &metadata).unwrap();
    Dump::open(&path).map(|dump| (dump, dir)).map_err(|error| error.to_string())
}

#[test]
fn rows_are_read_as_they_are() {
    let (dump, _dir) = open(&parts()).unwrap();
    assert_eq!(dump.ids(), [5, 0, 999, 1, 2, 3]);
    assert_eq!((dump.vocab(), dump.dtype(), dump.window()), (1000, Dtype::F32, 6));
    for range in [0..6, 2..4, 5..6, 3..3, 0..6] {
        assert_eq!(dump.rows(range.clone()), rows(range.start, range.end));
    }
    let (dump, _dir) = open(&Parts { window: Some("3"), ..parts() }).unwrap();
    assert_eq!(dump.window(), 3);
}

#[rstest]
#[case::u32(HostTensor::from_u32([1], &[7]))]
#[case::i64(HostTensor::from_f64_as(Dtype::I64, [1], &[7.0]))]
#[case::u64(HostTensor::from_f64_as(Dtype::U64, [1], &[7.0]))]
fn ids_may_be_any_whole_numbers(#[case] ids: Result<HostTensor, mlx_parity_tensor::TensorError>) {
    let (dump, _dir) =
        open(&Parts { logits: rows(0, 1), ids: ids.unwrap(), window: None }).unwrap();
    assert_eq!(dump.ids(), [7]);
}

fn ids(dtype: Dtype, values: &[f64]) -> HostTensor {
    HostTensor::from_f64_as(dtype, [values.len()], values).unwrap()
}

#[rstest]
#[case::whole_logits(Parts { logits: HostTensor::zeros(Dtype::I32, [6, 1000]).unwrap(), ..parts() }, "`logits` is i32")]
#[case::flat(Parts { logits: HostTensor::zeros(Dtype::F32, [6]).unwrap(), ..parts() }, "`logits` is f32 [6]")]
#[case::empty(Parts { logits: HostTensor::zeros(Dtype::F32, [0, 10]).unwrap(), ..parts() }, "not empty")]
#[case::fewer_ids(Parts { ids: ids(Dtype::U32, &[1.0; 5]), ..parts() }, "`ids` is u32 [5], wanted i32, u32, i64 or u64 [6]")]
#[case::float_ids(Parts { ids: ids(Dtype::F32, &[1.0; 6]), ..parts() }, "`ids` is f32")]
#[case::large(Parts { ids: ids(Dtype::U32, &[1.0, 1.0, 1000.0, 1.0, 1.0, 1.0]), ..parts() }, "ids[2] is 1000, wanted 0 to 999")]
#[case::larger(Parts { ids: ids(Dtype::I64, &[4_294_967_297.0, 1.0, 1.0, 1.0, 1.0, 1.0]), ..parts() }, "ids[0] is 4294967297")]
#[case::negative(Parts { ids: ids(Dtype::I64, &[1.0, -1.0, 1.0, 1.0, 1.0, 1.0]), ..parts() }, "ids[1] is -1")]
#[case::no_window(Parts { window: Some("0"), ..parts() }, "`window` is `0`")]
#[case::bad_window(Parts { window: Some("a"), ..parts() }, "`window` is `a`")]
fn bad_dumps_are_named_with_the_fault(#[case] parts: Parts, #[case] wanted: &str) {
    let message = open(&parts).unwrap_err();
    assert!(message.contains(wanted) && message.contains("other.safetensors"), "{message}");
}

#[test]
fn a_file_without_the_tensors_and_none_at_all_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.safetensors");
    let error = Dump::open(&path).unwrap_err().to_string();
    assert!(error.contains("other.safetensors"), "{error}");
    let ids = parts().ids;
    safetensors::write(&path, [("ids".to_owned(), &ids)], &BTreeMap::new()).unwrap();
    let error = Dump::open(&path).unwrap_err().to_string();
    assert!(error.contains("logits"), "{error}");
}
