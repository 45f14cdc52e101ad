//! Fixtures written by the scripts of `oracles/numpy`, and how answers are held against them.

#![expect(dead_code, reason = "each test file uses its part")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use mlx_parity_oracles::{Answer, BoolTensor, IntTensor, PackedTensor, Tensor, Tensor64};
use mlx_parity_tensor::HostTensor;
use mlx_parity_tensor::safetensors::SafetensorsFile;

/// A folder or file of `tests/fixtures`.
pub fn fixture_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

pub struct Fixture(SafetensorsFile);

impl Fixture {
    pub fn open(name: &str) -> Self {
        Self(SafetensorsFile::open(fixture_path(&format!("{name}.safetensors"))).unwrap())
    }

    pub fn host(&self, name: &str) -> HostTensor {
        self.0.tensor(name).unwrap()
    }

    pub fn floats(&self, name: &str) -> Tensor64 {
        Tensor64::from_host(&self.host(name))
    }

    pub fn integers(&self, name: &str) -> IntTensor {
        IntTensor::from_host(&self.host(name)).unwrap()
    }

    pub fn booleans(&self, name: &str) -> BoolTensor {
        BoolTensor::from_host(&self.host(name)).unwrap()
    }

    pub fn words(&self, name: &str) -> PackedTensor {
        PackedTensor::from_host(&self.host(name)).unwrap()
    }

    pub fn codes(&self, name: &str) -> Tensor<u8> {
        Tensor::<u8>::from_host(&self.host(name)).unwrap()
    }
}

/// Same class of number, and for finite ones `|found − wanted| ≤ bound·(|wanted| + condition)`.
fn near(found: f64, wanted: f64, condition: f64, bound: f64) -> bool {
    if wanted.is_nan() {
        return found.is_nan();
    }
    if wanted.is_infinite() || found.is_infinite() {
        return found == wanted;
    }
    (found - wanted).abs() <= bound * (wanted.abs() + condition)
}

/// Every element within `bound` of its magnitude and condition.
#[track_caller]
pub fn assert_near(answer: &Answer, wanted: &Tensor64, bound: f64, what: &str) {
    assert_eq!(answer.value.shape(), wanted.shape(), "{what}: shape");
    assert_eq!(answer.condition.shape(), wanted.shape(), "{what}: shape of the condition");
    let rows = answer.value.data().iter().zip(answer.condition.data()).zip(wanted.data());
    for (i, ((&found, &condition), &wanted)) in rows.enumerate() {
        assert!(
            near(found, wanted, condition, bound),
            "{what}[{i}]: found {found:e}, wanted {wanted:e}, condition {condition:e}"
        );
    }
}

/// Equal elements, NaN equal to NaN, the zeros equal.
#[track_caller]
pub fn assert_same(found: &Tensor64, wanted: &Tensor64, what: &str) {
    assert_near(&Answer::exact(found.clone()), wanted, 0.0, what);
}

/// Whether any element differs by more than `bound` of its magnitude.
pub fn differs(found: &Tensor64, wanted: &Tensor64, bound: f64) -> bool {
    found.data().iter().zip(wanted.data()).any(|(&f, &w)| !near(f, w, 0.0, bound))
}
