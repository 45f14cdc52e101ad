//! The deliberate fault of routers.

#![cfg(debug_assertions)]

use mlx_parity_engine::{Decoder, Fault, LoadOptions, Model, Taps};
use mlx_parity_tensor::HostTensor;
use rstest::rstest;

use super::common::on_mlx_thread;
use super::{IDS, synthetic};

fn taps(name: &str, fault: Option<Fault>) -> Vec<(String, HostTensor)> {
    let options = LoadOptions { fault, ..LoadOptions::default() };
    let model = Model::load(synthetic(name).write().path(), &options).expect("a model");
    let mut decoder = Decoder::new(&model, 2048);
    decoder.set_taps(Taps::All);
    decoder.prefill(&IDS).expect("a prefill");
    decoder.take_taps()
}

#[rstest]
#[case::softmax_first("qwen3_moe", "layers.3.mlp")]
#[case::softmax_last("mixtral", "layers.0.block_sparse_moe")]
#[case::softmax_last_in_f32("granitemoe", "layers.0.block_sparse_moe")]
#[case::normalised("olmoe-biased", "layers.0.mlp")]
#[case::sigmoid("glm4_moe", "layers.1.mlp")]
#[case::f32("ernie4_5_moe", "layers.1.mlp")]
#[case::sparsemixer("phimoe", "layers.0.block_sparse_moe")]
fn unnormalised_weights_show_first_where_experts_are_summed(
    #[case] name: &'static str,
    #[case] wanted: &'static str,
) {
    on_mlx_thread(move || {
        let fault = Fault::parse("unnormalised-top-k").expect("a debug build");
        let (good, bad) = (taps(name, None), taps(name, Some(fault)));
        let first = good.iter().zip(&bad).find(|(good, bad)| good != bad).expect("a difference");
        assert_eq!(first.0.0, wanted);
    });
}
