//! Case files: refused with an error, or read into cases whose ids and checks can be listed.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // A grid is a product; a short file can stand for more calls than memory holds.
    if bytes.len() > 600 {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for tier in ["l1", "ops"] {
        std::fs::create_dir(dir.path().join(tier)).unwrap();
        std::fs::write(dir.path().join(tier).join("case.toml"), bytes).unwrap();
        if let Ok(cases) = mlx_parity::case::load_all(dir.path()) {
            cases.iter().for_each(|case| assert!(case.id.starts_with(case.tier.name())));
        }
        std::fs::remove_file(dir.path().join(tier).join("case.toml")).unwrap();
    }
});
