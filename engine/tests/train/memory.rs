//! What ways of computing gradients hold in memory.

use mlx_parity_engine::train::{Backward, TrainOptions, Trainer};
use mlx_parity_engine::{active_memory, clear_cache, peak_memory, reset_peak_memory};

use crate::common::on_mlx_thread;
use crate::setting::{Setting, options};

/// Bytes of arrays above what model and adapter hold, at the most, in one step.
fn peak(setting: &Setting, backward: Backward) -> usize {
    let (mut model, adapter) = setting.load();
    let options = TrainOptions { backward, ..options() };
    let mut trainer = Trainer::new(&mut model, &adapter, options).unwrap();
    let rows = &setting.rows()[2];
    // The first step makes the optimizer's state.
    trainer.step(rows).unwrap();
    clear_cache().unwrap();
    let before = active_memory().unwrap();
    reset_peak_memory().unwrap();
    trainer.step(rows).unwrap();
    peak_memory().unwrap() - before
}

#[test]
fn a_segmented_step_holds_the_values_of_one_run_of_layers() {
    on_mlx_thread(|| {
        let setting = Setting::of_blocks("glassllm-f32", 4);
        let [whole, checkpointed, two, one] = [
            Backward::Whole,
            Backward::Checkpointed,
            Backward::Segmented { layers: 2 },
            Backward::Segmented { layers: 1 },
        ]
        .map(|backward| peak(&setting, backward));
        println!("whole {whole}, checkpointed {checkpointed}, runs of 2 {two}, of 1 {one} bytes");
        assert!(one < two && two < whole, "{one} {two} {whole}");
        assert!(2 * one < whole, "{one} {whole}");
    });
}
