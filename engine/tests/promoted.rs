//! What is on by default is what the accepted ledger promotes, here, of these sources; nothing else.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use std::path::Path;

use common::on_mlx_thread;
use mlx_parity_engine::kernels::{Policy, dispatches, dispatches_of, here, reset_dispatches};
use mlx_parity_engine::{Composition, DEFAULT_PREFILL_STEP_SIZE, Decoder, LoadOptions, Model};
use mlx_parity_kernels::ledger::{Cell, Ledger};
use mlx_parity_kernels::{CANDIDATES, candidate};
use mlx_parity_tensor::Dtype;

const LEDGER: &str = include_str!("../../goldens/ledger.toml");
/// Kernels of a layer that no other one stands in for under the widest policy, and their class in a prompt at 4 bits.
const ASKED: [(&str, &str); 2] = [("fused_mlp", "prefill-q4"), ("fused_qkv_rope", "prefill-q4")];

fn prefill(model: &Model, kernels: Policy) {
    reset_dispatches();
    let composition = Composition { kernels, ..Composition::l1() };
    let mut decoder =
        Decoder::with(model, DEFAULT_PREFILL_STEP_SIZE, &composition).expect("a decoder");
    decoder.prefill(&[3, 14, 15, 9, 26, 5, 35, 8]).expect("a prefill");
}

fn promoted(kernel: &str, class: &str) -> bool {
    let spec = candidate(kernel).expect("a kernel").spec();
    let cell = Cell {
        kernel: kernel.to_owned(),
        place: here().expect("a place"),
        dtype: Dtype::F32,
        class: class.to_owned(),
        digest: spec.digest(),
    };
    Ledger::parse(LEDGER).expect("the accepted ledger").promotes(&cell)
}

#[test]
fn what_runs_is_what_the_ledger_promotes() {
    on_mlx_thread(|| {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/mlx/models/glassllm-4bit");
        let model = Model::load(&folder, &LoadOptions::default()).expect("cargo xtask setup");
        prefill(&model, Policy::l1());
        for one in CANDIDATES {
            assert_eq!(dispatches(one.spec().id), 0, "no kernel runs under l1");
        }
        prefill(&model, Policy::l3());
        for (kernel, class) in ASKED {
            let (ran, promoted) = (dispatches_of(kernel, class), promoted(kernel, class));
            println!("{kernel} {class}: promoted {promoted}, {ran} calls");
            assert_eq!(ran > 0, promoted, "{kernel} {class}: {ran} calls");
        }
    });
}
