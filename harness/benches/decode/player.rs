//! The two that take turns.

use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use mlx_parity::root::Root;
use mlx_parity_engine::kernels::Policy;
use mlx_parity_engine::{GenerateOptions, LoadOptions, Model, generate};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The argument that makes this binary the engine's player.
pub const SERVE: &str = "--serve";

/// One turn: a prompt and greedy ids behind it.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    ids: Vec<u32>,
    tokens: usize,
}

/// What one turn took.
#[derive(Debug, Serialize, Deserialize)]
pub struct Turn {
    /// Seconds to the first new id.
    pub prefill: f64,
    /// Seconds from there to the last.
    pub decode: f64,
    /// The new ids.
    pub ids: Vec<u32>,
}

/// A process with a model in memory.
pub struct Player {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Player {
    /// This engine, with levers of kernels where a [`policy`] has them.
    pub fn engine(dir: &Path, levers: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(SERVE).arg(dir).arg(levers);
        Self::start(command)
    }

    /// mlx-lm's `generate_step`.
    pub fn mlx_lm(root: &Root, dir: &Path) -> Result<Self> {
        let mut command = Command::new(root.oracle_python());
        command.arg(root.path().join("oracles/mlx_lm/decode_bench.py")).arg(dir);
        Self::start(command)
    }

    /// Starts a process that says `ready` and then answers line by line.
    pub fn start(mut command: Command) -> Result<Self> {
        let shown = format!("{}", command.get_program().display());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {shown}"))?;
        let stdin = child.stdin.take().context("no pipe")?;
        let stdout = BufReader::new(child.stdout.take().context("no pipe")?);
        let mut player = Self { child, stdin, stdout };
        ensure!(player.line()?.trim() == "ready", "{shown} did not get ready");
        Ok(player)
    }

    /// Plays one turn.
    pub fn play(&mut self, ids: &[u32], tokens: usize) -> Result<Turn> {
        self.ask(&Request { ids: ids.to_vec(), tokens })
    }

    /// Asks for a turn of any kind.
    pub fn ask<T: DeserializeOwned>(&mut self, request: &impl Serialize) -> Result<T> {
        writeln!(self.stdin, "{}", serde_json::to_string(request)?)?;
        self.stdin.flush()?;
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("a turn: `{line}`"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.stdout.read_line(&mut line)? > 0, "a player ended");
        Ok(line)
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // Its end is all that is wanted; one that is gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The policy that `--levers` means: a preset's name, or positions of levers.
pub fn policy(levers: &str) -> Result<Policy> {
    Ok(match levers {
        "l2" => Policy::l2(),
        "l3" => Policy::l3(),
        levers => Policy::l1().with(levers)?,
    })
}

/// The engine's side of the pipes.
pub fn serve(dir: &Path, levers: &str) -> Result<()> {
    let model = Model::load(dir, &LoadOptions::default())?;
    let kernels = policy(levers)?;
    println!("ready");
    for line in std::io::stdin().lines() {
        let Request { ids, tokens } = serde_json::from_str(&line?)?;
        let mut options = GenerateOptions::for_model(&model, tokens);
        options.eos_token_ids.clear();
        options.composition.kernels = kernels.clone();
        let start = Instant::now();
        let mut first = None;
        let generated = generate(&model, &ids, &options, |_| {
            first.get_or_insert_with(|| start.elapsed().as_secs_f64());
            ControlFlow::Continue(())
        })?;
        let prefill = first.unwrap_or_default();
        let decode = start.elapsed().as_secs_f64() - prefill;
        println!("{}", serde_json::to_string(&Turn { prefill, decode, ids: generated.ids })?);
    }
    Ok(())
}
