//! Losses beside their formulas in float64, and gradients beside finite differences.

use std::collections::BTreeMap;

use mlx_parity_engine::Adapter;
use mlx_parity_engine::array::{from_host, to_host};
use mlx_parity_engine::ops;
use mlx_parity_engine::train::{Objective, TrainOptions, Trainer};
use mlx_parity_tensor::HostTensor;

use crate::common::on_mlx_thread;
use crate::setting::{Setting, host, options};

/// Along the gradient of every matrix at once, the loss changes as the gradient says: central differences.
/// Float32 losses of about 10 tell 1e-6 apart, so steps are wide and the bound is that of their curvature.
#[test]
fn the_loss_changes_along_the_gradient_as_the_gradient_says() {
    on_mlx_thread(|| {
        for objective in [Objective::NextToken, Objective::Orpo { weight: 2.0 }] {
            let setting = Setting::of_blocks("glassllm-f32", 4);
            let options = TrainOptions { objective, ..options() };
            let (mut model, adapter) = setting.load();
            let rows = &setting.rows()[0];
            let found =
                Trainer::new(&mut model, &adapter, options).unwrap().gradients(rows).unwrap();
            let gradients = host(&found.gradients);
            let squares: f64 =
                gradients.values().flat_map(HostTensor::to_f64).map(|value| value * value).sum();
            let step = 2e-3 / squares.sqrt();
            let mut at = |sign: f64| -> f64 {
                let dir = tempfile::tempdir().unwrap();
                let moved = adapter.tensors().iter().map(|(name, matrix)| {
                    let slope = from_host(&gradients[name]).unwrap();
                    let factor = ops::scalar(sign * step, matrix.dtype()).unwrap();
                    let by = ops::multiply(&factor, &slope).unwrap();
                    (name.clone(), to_host(&ops::add(matrix, &by).unwrap()).unwrap())
                });
                let moved: Vec<_> = moved.collect();
                adapter.save(dir.path()).unwrap();
                let named = moved.iter().map(|(name, tensor)| (name.clone(), tensor));
                let file = dir.path().join("adapters.safetensors");
                mlx_parity_tensor::safetensors::write(file, named, &BTreeMap::new()).unwrap();
                let moved = Adapter::load(dir.path()).unwrap();
                let trainer = Trainer::new(&mut model, &moved, options).unwrap();
                f64::from(trainer.loss(rows).unwrap().value)
            };
            let slope = (at(1.0) - at(-1.0)) / (2.0 * step);
            let off = (slope / squares - 1.0).abs();
            println!("{objective:?}: slope {slope}, squared norm {squares}, off {off:e}");
            assert!(off <= 1e-2, "{objective:?}: {slope} and {squares}");
        }
    });
}

/// The loss of Hong et al., 2024, of mean log probabilities, in float64.
#[test]
fn orpo_is_its_formula_in_float64() {
    on_mlx_thread(|| {
        let setting = Setting::new("glassllm-f32");
        let (mut model, adapter) = setting.load();
        let rows = &setting.rows()[0];
        let (weight, next) = (0.7, options());
        let orpo = TrainOptions { objective: Objective::Orpo { weight }, ..options() };
        let loss = Trainer::new(&mut model, &adapter, orpo).unwrap().loss(rows).unwrap();
        // One row a batch: the mean loss of its targets is its mean log probability.
        let means = setting.single_rows(0).map(|row| {
            let trainer = Trainer::new(&mut model, &adapter, next).unwrap();
            -f64::from(trainer.loss(&row).unwrap().value)
        });
        let [chosen, rejected] = means;
        let odds = |p: f64| p - (-p.exp()).ln_1p();
        let ratio = odds(chosen) - odds(rejected);
        let wanted = -chosen + weight * (-ratio).exp().ln_1p();
        let off = (f64::from(loss.value) - wanted).abs();
        assert!(off <= 2e-6 * wanted.abs(), "{} and {wanted}", loss.value);
    });
}

#[test]
fn odd_rows_are_no_preferences() {
    on_mlx_thread(|| {
        let setting = Setting::new("glassllm-f32");
        let (mut model, adapter) = setting.load();
        let objective = Objective::Orpo { weight: 0.1 };
        let options = TrainOptions { objective, ..options() };
        let trainer = Trainer::new(&mut model, &adapter, options).unwrap();
        let [row, _] = setting.single_rows(0);
        let error = trainer.loss(&row).unwrap_err().to_string();
        assert!(error.contains("as many chosen as rejected"), "{error}");
    });
}
