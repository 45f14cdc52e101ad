//! How fast models load, read a prompt and decode: this engine beside mlx-lm, on one libmlx, one model and
//! the same ids.
//!
//! Both live in processes of their own and take turns, the first of a round changing from round to round;
//! each round gives a ratio of mlx-lm's seconds to ours, and the medians are shown with the spread.
//! Arguments after `--`: names of models (those of `goldens/models.toml`, all of [`MODELS`] by default),
//! `--rounds N`, `--prompt N`, `--tokens N`, `--levers TEXT` (kernels that are on: positions of levers, or
//! `l2`, `l3`).

mod load;
mod player;
mod settings;
mod table;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use mlx_parity::{model::Registry, root::Root};
use player::{Player, Turn};
use settings::Settings;
use table::Ratios;

/// Models that are measured where none is named.
const MODELS: [&str; 5] =
    ["glassllm-f32", "glassllm-4bit", "qwen3-1m", "gemma3-1m", "smollm2-135m"];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some(player::SERVE) => player::serve(Path::new(&arguments[1]), &arguments[2]),
        Some(load::LOAD) => load::serve(Path::new(&arguments[1])),
        _ => settings(arguments).and_then(|settings| run(&settings)),
    };
    if let Err(error) = result {
        eprintln!("decode bench: {error:#}");
        std::process::exit(1);
    }
}

fn settings(arguments: Vec<String>) -> Result<Settings> {
    let settings =
        Settings { rounds: 9, prompt: 128, tokens: 128, models: Vec::new(), levers: String::new() };
    let mut settings = settings.read(arguments)?;
    if settings.models.is_empty() {
        settings.models = MODELS.map(str::to_owned).to_vec();
    }
    Ok(settings)
}

fn run(settings: &Settings) -> Result<()> {
    let root = Root::find(None)?;
    let registry = Registry::load(&root)?;
    println!(
        "{} prompt ids, {} new ids, {} rounds, levers `{}`; mlx-lm / ours, above 1 ours is faster\n",
        settings.prompt, settings.tokens, settings.rounds, settings.levers
    );
    println!("{}", table::HEAD);
    for name in &settings.models {
        let entry = registry.get(name).with_context(|| format!("no model `{name}`"))?;
        match entry.ready(&root) {
            Ok(dir) => println!("{}", table::row(name, &measure(&root, &dir, settings)?)),
            Err(error) => println!("| {name} | not run: {error} |"),
        }
    }
    println!("\n{}", load::HEAD);
    let mut folders = vec![("98 MB, made for this".to_owned(), load::folder(&root)?)];
    for name in &settings.models {
        let entry = registry.get(name).with_context(|| format!("no model `{name}`"))?;
        folders.extend(entry.ready(&root).map(|dir| (name.clone(), dir)));
    }
    for (name, dir) in folders {
        println!("{}", load::row(&name, &dir, settings.rounds)?);
    }
    Ok(())
}

fn measure(root: &Root, dir: &Path, settings: &Settings) -> Result<Ratios> {
    let mut ours = Player::engine(dir, &settings.levers)?;
    let mut theirs = Player::mlx_lm(root, dir)?;
    let ids: Vec<u32> = (0..settings.prompt as u32).map(|i| (i * 37 + 5) % 250 + 3).collect();
    let mut ratios = Ratios::default();
    // The first turn of each warms it up.
    for round in 0..=settings.rounds {
        let play = |player: &mut Player| player.play(&ids, settings.tokens);
        let (us, them): (Turn, Turn) = if round % 2 == 0 {
            let us = play(&mut ours)?;
            (us, play(&mut theirs)?)
        } else {
            let them = play(&mut theirs)?;
            (play(&mut ours)?, them)
        };
        ensure!(us.ids == them.ids, "{}: the engines chose other ids", dir.display());
        if round > 0 {
            ratios.add(&us, &them);
        }
    }
    Ok(ratios)
}
