//! Evidence is bound to the digest of a kernel's sources: every file of its folder is one of them.

use std::{collections::BTreeSet, fs, path::Path};

use mlx_parity_kernels::CANDIDATES;

#[test]
fn every_file_of_a_kernel_is_one_of_its_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for candidate in CANDIDATES {
        let spec = candidate.spec();
        let named: BTreeSet<_> = spec.sources.iter().map(|source| source.path).collect();
        assert_eq!(named.len(), spec.sources.len(), "{}: a source stands twice", spec.id);
        for file in fs::read_dir(root.join(spec.id)).expect("a folder of the kernel's name") {
            let name = file.expect("a file").file_name().into_string().expect("UTF-8");
            let path = format!("{}/{name}", spec.id);
            assert!(
                named.contains(path.as_str()),
                "{path} is not among the sources of {}",
                spec.id
            );
        }
    }
}
