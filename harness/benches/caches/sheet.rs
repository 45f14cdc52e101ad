//! The tables.

use std::fmt;

use super::serve::{Memory, Starts};
use super::table::{Ratios, cells};

/// Lines of the four tables.
#[derive(Default)]
pub struct Sheet {
    beside: Vec<String>,
    modes: Vec<String>,
    starts: Vec<String>,
    memory: Vec<String>,
    worst: f64,
}

impl Sheet {
    /// Adds what was measured of a model with one kind of cache.
    pub fn add(
        &mut self,
        name: &str,
        theirs: &Ratios,
        [compiled, fused]: &[Ratios; 2],
        memory: &Memory,
        [cold, warm]: &[Starts; 2],
    ) {
        self.beside.push(format!(
            "| {name} | {} | {} |",
            cells(&theirs.prefill),
            cells(&theirs.decode)
        ));
        self.modes.push(format!(
            "| {name} | {} | {} |",
            cells(&compiled.decode),
            cells(&fused.decode)
        ));
        let ms = |[first, later]: [f64; 2]| format!("{:.1} / {:.1}", first * 1e3, later * 1e3);
        self.starts.push(format!(
            "| {name} | {} | {} | {} | {} |",
            ms(warm.eager),
            ms(warm.compiled),
            ms(cold.fused),
            ms(warm.fused)
        ));
        let off = |bytes: f64, wanted: f64| (bytes - wanted).abs() / wanted;
        let held = off(memory.held, memory.pages);
        let arrays = off(memory.arrays, memory.formula);
        self.worst = self.worst.max(held).max(arrays);
        let mb = |bytes: f64| format!("{:.3}", bytes / 1e6);
        self.memory.push(format!(
            "| {name} | {} | {} | {:.1} % | {} | {} | {:.1} % |",
            mb(memory.held),
            mb(memory.pages),
            held * 100.0,
            mb(memory.arrays),
            mb(memory.formula),
            arrays * 100.0
        ));
    }

    /// The part by which memory is off the formula where it is most.
    pub fn worst(&self) -> f64 {
        self.worst
    }
}

impl fmt::Display for Sheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = [
            (
                "| caches | prefill ms, ours / mlx-lm | ratio | spread | decode ms a token, ours / \
                 mlx-lm | ratio | spread |",
                7,
                &self.beside,
            ),
            (
                "| caches | decode ms a token, compiled / eager | ratio | spread | fused / eager | \
                 ratio | spread |",
                7,
                &self.modes,
            ),
            (
                "| caches | first and third step ms, eager | compiled | fused, kernels to be \
                 compiled | fused, kernels on disk |",
                5,
                &self.starts,
            ),
            (
                "| caches | MB held | pages by the formula | off | MB of arrays | by the formula | off |",
                7,
                &self.memory,
            ),
        ];
        for (at, (head, columns, lines)) in tables.into_iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            writeln!(f, "{head}\n|{}", "---|".repeat(columns))?;
            for line in lines {
                writeln!(f, "{line}")?;
            }
        }
        Ok(())
    }
}
