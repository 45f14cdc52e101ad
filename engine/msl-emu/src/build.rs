//! From a unit to an executable, kept by the digest of all that goes into it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::toolchain::Compiler;
use crate::unit::Unit;
use crate::{EmuError, Kernel, Mode, Options, Place, child};

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// An executable in the cache.
#[derive(Debug, Clone)]
pub(crate) struct Built {
    pub executable: PathBuf,
    pub cached: bool,
    /// The compiler's warnings, as it printed them.
    pub warnings: String,
}

/// Compiles `unit`, or finds it compiled.
pub(crate) fn build(
    kernel: &Kernel,
    unit: &Unit,
    extra: &[&str],
    options: &Options,
) -> Result<Built, EmuError> {
    let compiler = Compiler::find(options)?;
    let digest = digest(&compiler, unit, extra, options.mode);
    let folder = options.cache.join(format!("kernel-{digest}"));
    let cached = folder.is_dir();
    if !cached {
        let runtime = runtime(&compiler, options)?;
        let scratch = scratch(&options.cache)?;
        compile(&compiler, kernel, unit, extra, &runtime, scratch.path(), options)?;
        publish(scratch, &folder)?;
    }
    let warnings = child::messages(&folder.join("messages"));
    Ok(Built { executable: folder.join("kernel"), cached, warnings })
}

fn digest(compiler: &Compiler, unit: &Unit, extra: &[&str], mode: Mode) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    add(runtime_digest(compiler, mode).as_bytes());
    for flag in compiler.kernel(mode) {
        add(flag.as_encoded_bytes());
    }
    for flag in extra {
        add(flag.as_bytes());
    }
    for (path, text) in &unit.headers {
        add(path.as_os_str().as_encoded_bytes());
        add(text.as_bytes());
    }
    add(unit.text.as_bytes());
    hasher.finalize().to_hex()[..32].to_owned()
}

fn runtime_digest(compiler: &Compiler, mode: Mode) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    add(compiler.path.as_os_str().as_encoded_bytes());
    add(compiler.version.as_bytes());
    add(mode.name().as_bytes());
    for flag in Compiler::common(mode) {
        add(flag.as_encoded_bytes());
    }
    for (name, text) in HEADERS.iter().chain(RUNTIME) {
        add(name.as_bytes());
        add(text.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// The folder of the headers and the compiled runtime: `include`, `runtime`, `*.o`.
fn runtime(compiler: &Compiler, options: &Options) -> Result<PathBuf, EmuError> {
    let folder = options.cache.join(format!("runtime-{}", runtime_digest(compiler, options.mode)));
    if folder.is_dir() {
        return Ok(folder);
    }
    let scratch = scratch(&options.cache)?;
    for (part, files) in [("include", HEADERS), ("runtime", RUNTIME)] {
        for (name, text) in files {
            write(&scratch.path().join(part).join(name), text)?;
        }
    }
    for name in runtime_sources(options.mode) {
        let mut command = Command::new(&compiler.path);
        command.current_dir(scratch.path()).args(Compiler::common(options.mode)).args([
            "-O2",
            "-Iinclude",
            "-Iruntime",
            "-c",
        ]);
        command.arg(format!("runtime/{name}")).arg("-o").arg(format!("{name}.o"));
        let messages = scratch.path().join("messages");
        match child::run(&mut command, &messages, options.compile_limit)? {
            Some(status) if status.success() => {}
            None => {
                return Err(EmuError::CompileTimeout {
                    kernel: format!("runtime/{name}"),
                    limit: options.compile_limit,
                });
            }
            Some(_) => {
                return Err(EmuError::Internal(format!(
                    "runtime/{name} does not compile: {}",
                    child::messages(&messages)
                )));
            }
        }
    }
    publish(scratch, &folder)?;
    Ok(folder)
}

/// Sources of the runtime in `mode`: fibers or threads, and the rest.
fn runtime_sources(mode: Mode) -> impl Iterator<Item = &'static str> {
    let other = if mode == Mode::Threads { "fibers.cpp" } else { "threads.cpp" };
    RUNTIME.iter().map(|(name, _)| *name).filter(move |name| {
        Path::new(name).extension().is_some_and(|kind| kind == "cpp") && *name != other
    })
}

fn compile(
    compiler: &Compiler,
    kernel: &Kernel,
    unit: &Unit,
    extra: &[&str],
    runtime: &Path,
    scratch: &Path,
    options: &Options,
) -> Result<(), EmuError> {
    for (path, text) in &unit.headers {
        write(&scratch.join("headers").join(path), text)?;
    }
    write(&scratch.join("unit.cpp"), &unit.text)?;
    let mut command = Command::new(&compiler.path);
    command
        .current_dir(scratch)
        .args(Compiler::common(options.mode))
        .args(compiler.kernel(options.mode))
        .args(extra);
    command
        .arg("-I")
        .arg(runtime.join("include"))
        .args(["-I", "headers", "-c", "unit.cpp", "-o", "unit.o"]);
    run_compiler(command, kernel, unit, scratch, options)?;
    let mut link = Command::new(&compiler.path);
    link.current_dir(scratch).args(Compiler::link(options.mode)).arg("unit.o");
    link.args(
        runtime_sources(options.mode).map(|name| OsString::from(runtime.join(format!("{name}.o")))),
    );
    link.args(["-o", "kernel"]);
    let messages = scratch.join("link");
    match child::run(&mut link, &messages, options.compile_limit)? {
        Some(status) if status.success() => Ok(()),
        _ => Err(EmuError::Internal(format!(
            "the kernel does not link: {}",
            child::messages(&messages)
        ))),
    }
}

fn run_compiler(
    mut command: Command,
    kernel: &Kernel,
    unit: &Unit,
    scratch: &Path,
    options: &Options,
) -> Result<(), EmuError> {
    let messages = scratch.join("messages");
    let kernel = kernel.name.clone();
    match child::run(&mut command, &messages, options.compile_limit)? {
        None => Err(EmuError::CompileTimeout { kernel, limit: options.compile_limit }),
        Some(status) if status.success() => Ok(()),
        Some(_) => {
            let messages = child::messages(&messages);
            let place = messages
                .lines()
                .filter(|line| line.contains("error:"))
                .find_map(|line| place_of(line, &unit.files));
            Err(EmuError::Compile { kernel, place, messages })
        }
    }
}

/// `FILE:LINE:…` of a compiler's message, when the file is the user's.
pub(crate) fn place_of(message: &str, files: &[String]) -> Option<Place> {
    files.iter().find_map(|file| {
        let rest = message.strip_prefix(file.as_str())?.strip_prefix(':')?;
        let line = rest.split(':').next()?.parse().ok()?;
        Some(Place { file: file.clone(), line })
    })
}

fn write(path: &Path, text: &str) -> Result<(), EmuError> {
    let fail = |source: io::Error| EmuError::Io { doing: "writing", path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(fail)?;
    }
    fs::write(path, text).map_err(fail)
}

fn scratch(cache: &Path) -> Result<tempfile::TempDir, EmuError> {
    let fail = |source: io::Error| EmuError::Io {
        doing: "making a folder in",
        path: cache.to_owned(),
        source,
    };
    fs::create_dir_all(cache).map_err(fail)?;
    tempfile::Builder::new().prefix("building-").tempdir_in(cache).map_err(fail)
}

/// Gives a finished folder its name; another process may have been first, with the same content.
fn publish(scratch: tempfile::TempDir, folder: &Path) -> Result<(), EmuError> {
    match fs::rename(scratch.path(), folder) {
        Ok(()) => {
            let _ = scratch.keep();
            Ok(())
        }
        Err(_) if folder.is_dir() => Ok(()),
        Err(source) => Err(EmuError::Io { doing: "naming", path: folder.to_owned(), source }),
    }
}
