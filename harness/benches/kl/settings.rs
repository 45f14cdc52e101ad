//! The arguments of the bench.

use anyhow::{Context as _, Result, bail, ensure};

/// What is measured.
pub struct Settings {
    pub rows: usize,
    pub rounds: usize,
    pub quick: bool,
}

impl Settings {
    /// The defaults, changed by the arguments.
    pub fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut settings = Self { rows: 4096, rounds: 3, quick: false };
        while let Some(argument) = arguments.next() {
            let mut number = || -> Result<usize> {
                let value =
                    arguments.next().with_context(|| format!("{argument} needs a number"))?;
                value.parse().with_context(|| format!("{argument} {value}"))
            };
            match argument.as_str() {
                "--rows" => settings.rows = number()?,
                "--rounds" => settings.rounds = number()?,
                "--quick" => settings.quick = true,
                // Cargo adds it.
                "--bench" => {}
                other => bail!("{other} is no argument: --rows N, --rounds N, --quick"),
            }
        }
        ensure!(settings.rows > 0 && settings.rounds > 0, "nothing to measure");
        Ok(settings)
    }
}
