//! What caches cost: reading a prompt of 512 ids and decoding behind it, on plain, packed and rotating
//! caches, this engine beside mlx-lm; compiled steps beside eager ones; and bytes beside the formula.
//!
//! All live in processes of their own and take turns, the first of a round changing from round to round.
//! Ids must be those of mlx-lm, and memory within [`MEMORY_BOUND`] of the formula, or the bench fails.
//! Arguments after `--`: names of models (`qwen3-1m`, `gemma3-1m`, `bench-98mb`; all by default),
//! `--rounds N`, `--prompt N`, `--tokens N`.

#[path = "../decode/load.rs"]
#[expect(dead_code, reason = "only its model is used here")]
mod load;
#[path = "../decode/player.rs"]
#[expect(dead_code, reason = "turns are asked for in another form here")]
mod player;
#[path = "../decode/settings.rs"]
mod settings;
#[path = "../decode/table.rs"]
#[expect(dead_code, reason = "only the median and a table's cells are used here")]
mod table;

mod formula;
mod serve;
mod sheet;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use mlx_parity::{model::Registry, root::Root};
use player::{Player, Turn};
use serve::{Kv, Memory, Mode, Request, Starts};
use settings::Settings;
use sheet::Sheet;
use table::Ratios;

/// A model, what its caches are called, and how they are packed.
const ROWS: [(&str, &str, Option<Kv>); 6] = [
    ("qwen3-1m", "plain", None),
    ("qwen3-1m", "kv8", Some(Kv { bits: 8, group: 32 })),
    ("qwen3-1m", "kv4", Some(Kv { bits: 4, group: 32 })),
    ("gemma3-1m", "rotating and plain", None),
    ("bench-98mb", "plain", None),
    ("bench-98mb", "kv8", Some(Kv { bits: 8, group: 64 })),
];

/// Bytes may differ from the formula's by this part of them.
const MEMORY_BOUND: f64 = 0.05;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some(player::SERVE) => serve::serve(Path::new(&arguments[1])),
        _ => settings(arguments).and_then(|settings| run(&settings)),
    };
    if let Err(error) = result {
        eprintln!("caches bench: {error:#}");
        std::process::exit(1);
    }
}

fn settings(arguments: Vec<String>) -> Result<Settings> {
    let settings =
        Settings { rounds: 9, prompt: 512, tokens: 64, models: Vec::new(), levers: String::new() }
            .read(arguments)?;
    ensure!(settings.levers.is_empty(), "kernels have no lever here");
    Ok(settings)
}

fn run(settings: &Settings) -> Result<()> {
    let root = Root::find(None)?;
    let rows = ROWS.into_iter().filter(|(model, ..)| {
        settings.models.is_empty() || settings.models.iter().any(|name| name == model)
    });
    let mut sheet = Sheet::default();
    for (model, caches, kv) in rows {
        let dir = folder(&root, model)?;
        let name = format!("{model}, {caches}");
        eprintln!("{name} …");
        let mut bench = Bench::start(&root, &dir, kv, settings)?;
        bench.play(settings.rounds)?;
        let memory = bench.memory()?;
        sheet.add(&name, &bench.theirs, &bench.modes, &memory, &bench.starts()?);
    }
    println!(
        "{} prompt ids, {} new ids, {} rounds; above 1 ours, or the compiled mode, is faster\n\n{sheet}",
        settings.prompt, settings.tokens, settings.rounds
    );
    ensure!(sheet.worst() <= MEMORY_BOUND, "caches hold more or less than the formula says");
    Ok(())
}

fn folder(root: &Root, model: &str) -> Result<PathBuf> {
    if model == "bench-98mb" {
        return load::folder(root);
    }
    let registry = Registry::load(root)?;
    let entry = registry.get(model).with_context(|| format!("no model `{model}`"))?;
    entry.ready(root).map_err(|error| anyhow::anyhow!("{model}: {error}"))
}

/// This engine and mlx-lm on one model and one kind of cache.
struct Bench<'a> {
    dir: &'a Path,
    kv: Option<Kv>,
    request: Request,
    ours: Player,
    mlx_lm: Player,
    /// Ours, eager, and theirs.
    theirs: Ratios,
    /// Ours in each compiled mode, and ours, eager.
    modes: [Ratios; 2],
}

impl<'a> Bench<'a> {
    fn start(root: &Root, dir: &'a Path, kv: Option<Kv>, settings: &Settings) -> Result<Self> {
        let ids = (0..settings.prompt as u32).map(|i| (i * 37 + 5) % 250 + 3).collect();
        Ok(Self {
            dir,
            kv,
            request: Request { ids, tokens: settings.tokens, ..Request::of(kv) },
            ours: Player::engine(dir, "")?,
            mlx_lm: Player::mlx_lm(root, dir)?,
            theirs: Ratios::default(),
            modes: Default::default(),
        })
    }

    /// The first turn of each warms it up.
    fn play(&mut self, rounds: usize) -> Result<()> {
        for round in 0..=rounds {
            let mut turns: [Option<Turn>; 4] = [const { None }; 4];
            for at in (0..4).map(|at| (at + round) % 4) {
                turns[at] = Some(self.turn(at)?);
            }
            let [Some(theirs), Some(eager), Some(compiled), Some(fused)] = turns else {
                unreachable!("each took its turn")
            };
            let same = eager.ids == theirs.ids && compiled.ids == theirs.ids;
            ensure!(same, "{}: the engines chose other ids", self.dir.display());
            if round > 0 {
                self.theirs.add(&eager, &theirs);
                self.modes[0].add(&compiled, &eager);
                self.modes[1].add(&fused, &eager);
            }
        }
        Ok(())
    }

    fn turn(&mut self, at: usize) -> Result<Turn> {
        let mode = [Mode::Eager, Mode::Eager, Mode::Compiled, Mode::Fused][at];
        let request = Request { mode, ..self.request.clone() };
        if at == 0 { self.mlx_lm.ask(&request) } else { self.ours.ask(&request) }
    }

    /// Bytes of the caches behind all new ids but the last, whose keys nobody computed.
    fn memory(&mut self) -> Result<Memory> {
        let request = Request { mode: Mode::Memory, ..self.request.clone() };
        let mut memory: Memory = self.ours.ask(&request)?;
        let positions = [self.request.ids.len(), self.request.tokens - 1];
        [memory.formula, memory.pages] = formula::bytes(self.dir, self.kv, positions)?;
        Ok(memory)
    }

    /// What the first steps of a decoder take: where fused kernels are yet to be compiled, and where
    /// they lie compiled in the temporary folder.
    fn starts(&self) -> Result<[Starts; 2]> {
        let empty = tempfile::tempdir()?;
        let request = Request { mode: Mode::Starts, ..self.request.clone() };
        let starts = || {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg(player::SERVE).arg(self.dir).env("TMPDIR", empty.path());
            Player::start(command)?.ask(&request)
        };
        Ok([starts()?, starts()?])
    }
}
