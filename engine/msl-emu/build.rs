//! Embeds the C++ headers and the runtime's sources, so that a binary needs no source tree.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut code = String::new();
    for (name, folder) in [("HEADERS", "include"), ("RUNTIME", "runtime")] {
        println!("cargo::rerun-if-changed={folder}");
        let folder = root.join(folder);
        let mut files = Vec::new();
        collect(&folder, &mut files)?;
        files.sort();
        writeln!(code, "pub(crate) const {name}: &[(&str, &str)] = &[").expect("a string grows");
        for file in files {
            let relative = file.strip_prefix(&folder).expect("the file was found there");
            writeln!(
                code,
                "    ({:?}, include_str!({:?})),",
                relative.display().to_string(),
                file.display().to_string()
            )
            .expect("a string grows");
        }
        code.push_str("];\n");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("embedded.rs"), code)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            println!("cargo::rerun-if-changed={}", path.display());
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
