//! `gen-model ROOT CONFIG...`: prints generated networks as JSON, for `cargo xtask gen-model`.

use std::path::Path;
use std::process::ExitCode;

use mlx_parity_engine::generate_networks;
use serde_json::json;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let Some(root) = words.next() else {
        eprintln!("usage: gen-model ROOT CONFIG...");
        return ExitCode::FAILURE;
    };
    match generate_networks(Path::new(&root), &words.collect::<Vec<_>>()) {
        Ok(files) => {
            let files: Vec<_> =
                files.iter().map(|file| json!({"name": file.name, "text": file.text})).collect();
            println!("{}", json!(files));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
