//! Machines on which MLX does not compile, each a process of its own: MLX looks once.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use mlx_parity_engine::{DecodeMode, Decoder, EngineError};
use mlx_parity_tensor::Dtype;
use tempfile::TempDir;

use crate::common::{Folder, on_mlx_thread};
use crate::models::state;

const CHILD: &str = "MLX_PARITY_TEST_CHILD";

/// Runs a test of this binary in a process with other variables.
fn child(test: &str, variables: &[(&str, &Path)]) {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", &format!("refusals::{test}")]).env(CHILD, "1");
    let output = command.envs(variables.iter().copied()).output().expect("a process");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn without_a_compiler() {
    if std::env::var_os(CHILD).is_none() {
        let nowhere = Path::new("/nonexistent");
        child("without_a_compiler", &[("PATH", nowhere)]);
        child("without_a_compiler", &[("MLX_DISABLE_COMPILE", Path::new("1"))]);
        return;
    }
    on_mlx_thread(|| {
        let model = Folder::llama(Dtype::F32).load().expect("a good folder");
        let mut decoder = Decoder::new(&model, 8);
        for mode in [DecodeMode::Compiled, DecodeMode::Fused] {
            match decoder.set_mode(mode) {
                Err(EngineError::NotCompiled { message }) => assert!(message.contains("g++")),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(decoder.mode(), DecodeMode::Eager);
        decoder.step(1).expect("it decodes eagerly");
    });
}

/// A compiler that is there and compiles nothing: MLX notices when it evaluates the step.
#[test]
fn with_a_broken_compiler() {
    if std::env::var_os(CHILD).is_none() {
        let bin = TempDir::new().expect("a folder");
        let compiler = bin.path().join("g++");
        fs::write(&compiler, "#!/bin/sh\n[ \"$1\" = --version ]\n").expect("a script");
        fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).expect("a mode");
        // MLX keeps kernels that it compiled before under the temporary folder.
        let empty = TempDir::new().expect("a folder");
        child("with_a_broken_compiler", &[("PATH", bin.path()), ("TMPDIR", empty.path())]);
        return;
    }
    on_mlx_thread(|| {
        let model = Folder::llama(Dtype::F32).load().expect("a good folder");
        let mut clean = Decoder::new(&model, 8);
        clean.prefill(&[1, 2, 3]).expect("a prefill");
        let mut decoder = Decoder::new(&model, 8);
        decoder.prefill(&[1, 2, 3]).expect("a prefill");
        decoder.set_mode(DecodeMode::Fused).expect("MLX believes in the compiler");
        match decoder.step(4) {
            Err(EngineError::NotCompiled { message }) => {
                assert!(message.contains("Compile::eval_cpu"), "{message}");
            }
            other => panic!("{other:?}"),
        }
        assert!(state(&decoder) == state(&clean), "the caches changed");
        // Nothing is fused in this mode, so no kernel is compiled.
        decoder.set_mode(DecodeMode::Compiled).expect("a mode");
        assert_eq!(decoder.step(4).expect("a step"), clean.step(4).expect("a step"));
        assert!(state(&decoder) == state(&clean));
    });
}
