//! The compiler: found, asked for its version, given its flags.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{EmuError, Mode, Options};

/// A C++20 compiler.
#[derive(Debug, Clone)]
pub(crate) struct Compiler {
    pub path: PathBuf,
    /// First line of `--version`.
    pub version: String,
}

impl Compiler {
    /// The compiler that the options or `CXX` name, else the first of the platform's usual ones on `PATH`.
    pub(crate) fn find(options: &Options) -> Result<Self, EmuError> {
        let named = options.compiler.clone().or_else(|| env::var_os("CXX").map(PathBuf::from));
        if let Some(path) = named {
            let looked = format!("`{}` does not answer", path.display());
            return Self::ask(&path).ok_or(EmuError::NoCompiler { looked });
        }
        let names: &[&str] =
            if cfg!(target_os = "macos") { &["clang++", "g++"] } else { &["g++", "clang++"] };
        let folders = env::var_os("PATH").unwrap_or_default();
        let candidates = names
            .iter()
            .flat_map(|name| env::split_paths(&folders).map(move |folder| folder.join(name)));
        candidates.filter(|path| path.is_file()).find_map(|path| Self::ask(&path)).ok_or_else(
            || EmuError::NoCompiler {
                looked: format!("looked for {} on PATH", names.join(" and ")),
            },
        )
    }

    fn ask(path: &Path) -> Option<Self> {
        let answer = Command::new(path).arg("--version").stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&answer.stdout);
        let version = text.lines().next()?.to_owned();
        answer.status.success().then(|| Self { path: path.to_owned(), version })
    }

    pub(crate) fn is_clang(&self) -> bool {
        self.version.contains("clang")
    }

    /// Flags of every compilation in `mode`.
    pub(crate) fn common(mode: Mode) -> Vec<OsString> {
        let mut flags: Vec<&str> =
            vec!["-std=c++20", "-g1", "-ffp-contract=off", "-fno-strict-aliasing", "-pthread"];
        if cfg!(target_os = "linux") {
            flags.extend(["-fPIE", "-fstack-clash-protection"]);
        }
        if cfg!(target_arch = "x86_64") {
            flags.extend(["-mf16c", "-mfma", "-mavx2"]);
        }
        flags.extend(match mode {
            Mode::Fibers => Some("-DEMU_CHECKED"),
            Mode::FibersAddress => Some("-DEMU_ADDRESS"),
            Mode::FibersPlain => None,
            Mode::Threads => Some("-DEMU_THREADS"),
        });
        flags.into_iter().map(OsString::from).collect()
    }

    /// Flags of the kernel itself: what its accesses and its arithmetic call.
    pub(crate) fn kernel(&self, mode: Mode) -> Vec<OsString> {
        let mut flags = vec![
            if mode == Mode::FibersPlain { "-O2" } else { "-O1" },
            "-Wall",
            "-Wno-attributes",
            "-Wno-unknown-pragmas",
            "-Wno-unused",
            "-ftrivial-auto-var-init=pattern",
            "-fno-finite-loops", // an endless one is the kernel's fault, not the compiler's to drop
        ];
        // A literal without a suffix is a float in Metal.
        if self.is_clang() {
            flags.extend([
                "-Wno-ignored-attributes",
                "-Wno-unknown-attributes",
                "-Xclang",
                "-cl-single-precision-constant",
            ]);
        } else {
            flags.push("-fsingle-precision-constant");
        }
        let sanitizer = match mode {
            Mode::Fibers | Mode::Threads => Some("-fsanitize=thread"),
            Mode::FibersAddress => Some("-fsanitize=address"),
            Mode::FibersPlain => None,
        };
        if let Some(sanitizer) = sanitizer {
            flags.push(sanitizer);
            flags.push("-fsanitize=signed-integer-overflow,shift,integer-divide-by-zero,bounds,alignment,null,float-cast-overflow");
        }
        if mode == Mode::Fibers && self.is_clang() {
            // Each read counts, also one that a write to the same place follows: it may be the first of that place.
            flags.extend(["-mllvm", "-tsan-instrument-read-before-write=1", "-mllvm", "-tsan-instrument-func-entry-exit=0"]);
        } else if mode == Mode::Fibers {
            flags.extend(["--param", "tsan-instrument-func-entry-exit=0"]);
        }
        flags.into_iter().map(OsString::from).collect()
    }

    /// Flags of the link: the sanitizer's own runtime, except in mode fibers, which brings ours.
    pub(crate) fn link(mode: Mode) -> Vec<OsString> {
        let mut flags = vec!["-pthread"];
        if cfg!(target_os = "linux") {
            flags.push("-pie");
        }
        match mode {
            Mode::Threads => flags.push("-fsanitize=thread"),
            Mode::FibersAddress => flags.push("-fsanitize=address"),
            Mode::Fibers | Mode::FibersPlain => {}
        }
        flags.into_iter().map(OsString::from).collect()
    }
}
