//! Compiles the C++ part: an operation of MLX's graph that calls a kernel of ours.
//!
//! mlx-sys says where the headers are that its MLX was built from (`DEP_MLX_INCLUDE`); on Linux, where
//! `cargo xtask setup` stands in for its build script, `target/mlx/cargo.toml` says so.

use std::env;

const SOURCE: &str = "native/host_kernel.cpp";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    let Some(include) = env::var_os("DEP_MLX_INCLUDE") else {
        println!("cargo::error=mlx-sys says nothing about MLX's headers: run `cargo xtask setup`");
        return;
    };
    let mut build = cc::Build::new();
    build.cpp(true).std("c++20").opt_level(2).file(SOURCE);
    for folder in env::split_paths(&include) {
        build.flag("-isystem").flag(folder);
    }
    for define in env::var("DEP_MLX_DEFINES").unwrap_or_default().split_whitespace() {
        match define.split_once('=') {
            Some((name, value)) => build.define(name, value),
            None => build.define(define, None),
        };
    }
    build.compile("mlx_parity_native");
}
