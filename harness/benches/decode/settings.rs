//! The arguments of the benches: names of models, `--rounds N`, `--prompt N`, `--tokens N`, `--levers TEXT`.

use anyhow::{Context as _, Result, ensure};

/// What is measured.
pub struct Settings {
    pub rounds: usize,
    pub prompt: usize,
    pub tokens: usize,
    pub models: Vec<String>,
    /// Levers of kernels, as `MLX_PARITY_KERNELS` has them; `l2` and `l3` for those that are promoted.
    pub levers: String,
}

impl Settings {
    /// These, changed by the arguments.
    pub fn read(mut self, arguments: Vec<String>) -> Result<Self> {
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value =
                || arguments.next().with_context(|| format!("{argument} needs a value"));
            if argument == "--levers" {
                self.levers = value()?;
                continue;
            }
            let mut number = || -> Result<usize> {
                let value = value()?;
                value.parse().with_context(|| format!("{argument} {value}"))
            };
            match argument.as_str() {
                "--rounds" => self.rounds = number()?,
                "--prompt" => self.prompt = number()?,
                "--tokens" => self.tokens = number()?,
                // Cargo adds it.
                "--bench" => {}
                name => self.models.push(name.to_owned()),
            }
        }
        // A prompt of one id has nothing before its last.
        ensure!(self.rounds > 0 && self.prompt > 1 && self.tokens > 1, "nothing to measure");
        Ok(self)
    }
}
