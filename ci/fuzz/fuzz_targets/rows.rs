//! Recorded rows: refused with an error, or the same after writing and reading again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx_parity::{record, row::Row};

fuzz_target!(|bytes: &[u8]| {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    for row in record::read(file.path()).unwrap_or_default() {
        let text = serde_json_text(&row);
        std::fs::write(file.path(), &text).unwrap();
        let again = record::read(file.path()).unwrap();
        assert_eq!(serde_json_text(&again[0]), text);
    }
});

fn serde_json_text(row: &Row) -> String {
    serde_json::to_string(row).unwrap() + "\n"
}
