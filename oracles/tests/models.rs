//! Whole-model forwards against mlx-lm in float32 (`oracles/numpy/models.py`).

mod common;

use std::path::PathBuf;

use common::{Fixture, fixture_path};
use mlx_parity_oracles::Tensor64;
use mlx_parity_oracles::models::{Model64, State64};

fn folder(name: &str) -> PathBuf {
    let models = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../goldens/models");
    match name {
        "qwen3" => models.join("qwen3-1m"),
        "gemma3_text" => models.join("gemma3-1m"),
        _ => fixture_path("llama-tiny"),
    }
}

fn ids(fixture: &Fixture, name: &str) -> Vec<u32> {
    fixture.words(&format!("{name}.ids")).into_data()
}

/// Largest difference over the largest logit.
fn gap(found: &Tensor64, wanted: &Tensor64) -> f64 {
    let gaps = found.data().iter().zip(wanted.data()).map(|(f, w)| f - w);
    Tensor64::vector(gaps.collect::<Vec<_>>()).max_abs() / wanted.max_abs()
}

#[test]
fn logits_of_every_architecture() {
    let fixture = Fixture::open("models");
    for name in ["llama", "qwen3", "gemma3_text"] {
        let model = Model64::open(folder(name)).unwrap();
        let all = model.forward(&ids(&fixture, name)).unwrap();
        let wanted = fixture.floats(&format!("{name}.logits"));
        let rows = fixture.integers(&format!("{name}.rows"));
        let picked = rows.data().iter().flat_map(|&row| {
            all.data()[row as usize * model.vocab_size()..][..model.vocab_size()].to_vec()
        });
        let found = Tensor64::new(wanted.shape(), picked.collect()).unwrap();
        let gap = gap(&found, &wanted);
        assert!(gap <= 1e-5, "{name}: {gap:e}");
        assert!(wanted.max_abs() > 1.0, "{name}: logits that say something");
    }
}

#[test]
fn a_sequence_in_parts_is_the_sequence() {
    let fixture = Fixture::open("models");
    for name in ["llama", "qwen3", "gemma3_text"] {
        let model = Model64::open(folder(name)).unwrap();
        let ids = &ids(&fixture, name)[..40];
        let whole = model.forward(ids).unwrap();
        let mut state = State64::new(model.num_layers());
        let mut parts = Vec::new();
        for part in [&ids[..13], &ids[13..14], &ids[14..39], &ids[39..]] {
            parts.extend(model.advance(&mut state, part, &mut |_, _| {}).unwrap().into_data());
        }
        assert_eq!(state.tokens(), 40);
        let parts = Tensor64::new(whole.shape(), parts).unwrap();
        let gap = gap(&parts, &whole);
        assert!(gap <= 1e-13, "{name}: {gap:e}");
    }
}

#[test]
fn later_tokens_do_not_change_earlier_logits() {
    let model = Model64::open(folder("gemma3_text")).unwrap();
    let (short, long) =
        (model.forward(&[5, 9, 30]).unwrap(), model.forward(&[5, 9, 30, 7]).unwrap());
    let vocabulary = model.vocab_size();
    assert_eq!(short.data(), &long.data()[..3 * vocabulary]);
    assert_ne!(short.data()[..vocabulary], short.data()[vocabulary..2 * vocabulary]);
}

#[test]
fn taps_name_every_stage_once() {
    let model = Model64::open(folder("gemma3_text")).unwrap();
    let mut names = Vec::new();
    let mut state = State64::new(model.num_layers());
    let logits = model
        .advance(&mut state, &[3, 4, 5], &mut |name, value| {
            assert!(value.data().iter().all(|v| v.is_finite()), "{name}");
            names.push((name.to_owned(), value.shape().to_vec()));
        })
        .unwrap();
    let shape = |wanted: &str| &names.iter().find(|(name, _)| name == wanted).unwrap().1;
    assert_eq!(*shape("layers.1.self_attn.sdpa"), [1, 4, 3, 32]);
    assert_eq!(*shape("layers.3.mlp.act"), [1, 3, 384]);
    assert_eq!(names.first().unwrap().0, "embed");
    assert_eq!(names.last().unwrap(), &("logits".to_owned(), vec![1, 3, model.vocab_size()]));
    assert_eq!(logits.shape(), [3, model.vocab_size()]);
    let mut sorted: Vec<_> = names.iter().map(|(name, _)| name).collect();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), names.len());
}

#[test]
fn an_id_outside_the_vocabulary_is_refused() {
    let model = Model64::open(folder("llama")).unwrap();
    assert!(model.forward(&[64]).unwrap_err().to_string().contains("64"));
}
