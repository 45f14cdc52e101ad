//! A header that is accepted must describe the file it is in: every tensor inside, none overlapping.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx_parity_tensor::safetensors::SafetensorsFile;

fuzz_target!(|bytes: &[u8]| {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let Ok(tensors) = SafetensorsFile::open(file.path()) else { return };
    let mut total = 0;
    for name in tensors.names() {
        total += tensors.view(name).unwrap().bytes().len();
    }
    assert!(total <= bytes.len());
});
