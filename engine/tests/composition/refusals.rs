//! Compositions that a model cannot carry.

use mlx_parity_engine::{Composition, Decoder, EngineError, KvBits, Model};
use mlx_parity_tensor::Dtype;
use rstest::rstest;

use crate::common::on_mlx_thread;
use crate::{KV4, synthetic};

fn refusal(model: &Model, kv: Vec<Option<KvBits>>) -> String {
    match Decoder::with(model, 8, &Composition { kv, ..Composition::l1() }) {
        Err(error @ EngineError::Composition { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[case::bits(7, 32, "the bits of cache 1 is 7, wanted 2, 3, 4, 5, 6 or 8")]
#[case::no_bits(0, 32, "the bits of cache 1 is 0, wanted 2, 3, 4, 5, 6 or 8")]
#[case::group(4, 16, "the group of cache 1 is 16, wanted 32, 64 or 128")]
#[case::no_group(4, 0, "the group of cache 1 is 0, wanted 32, 64 or 128")]
#[case::width(4, 64, "the group of cache 1 is 64, wanted a divisor of the head's width 32")]
fn bits_and_groups_that_do_not_fit(
    #[case] bits: i32,
    #[case] group: i32,
    #[case] wanted: &'static str,
) {
    on_mlx_thread(move || {
        let model = synthetic("qwen3", Dtype::F32);
        let message = refusal(&model, vec![None, Some(KvBits { bits, group }), None]);
        assert_eq!(message, format!("composition: {wanted}"));
    });
}

#[rstest]
#[case::too_few(2)]
#[case::too_many(4)]
fn another_number_of_caches(#[case] caches: usize) {
    on_mlx_thread(move || {
        let model = synthetic("qwen3", Dtype::F32);
        let message = refusal(&model, vec![Some(KV4); caches]);
        let wanted = format!("composition: the number of caches is {caches}, wanted 3");
        assert_eq!(message, wanted);
    });
}

/// A gemma4 layer that reads another's keys owns no cache, so a composition does not count it.
#[test]
fn caches_are_counted_and_not_layers() {
    on_mlx_thread(|| {
        let model = synthetic("gemma4_text", Dtype::F32);
        let message = refusal(&model, vec![None; model.num_layers()]);
        assert!(message.ends_with("is 6, wanted 4"), "{message}");
    });
}

#[rstest]
#[case::recurrent("qwen3_5", 0, "its layer is recurrent")]
#[case::softcap("gemma2", 1, "computes on plain keys and values")]
fn layers_that_cannot_be_packed(
    #[case] name: &'static str,
    #[case] cache: usize,
    #[case] wanted: &'static str,
) {
    on_mlx_thread(move || {
        let model = synthetic(name, Dtype::F32);
        let mut kv = vec![None; model.num_layers()];
        kv[cache] = Some(KV4);
        let message = refusal(&model, kv);
        assert!(message.contains(wanted), "{message}");
        assert!(message.contains(&format!("cache {cache} ")), "{message}");
    });
}
