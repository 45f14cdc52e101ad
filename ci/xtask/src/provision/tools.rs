//! What must be on the machine already: Python and a C++20 compiler.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::layout::Platform;

/// The minor versions of Python 3 that `oracles/requirements.lock` has wheels for; mlx-lm asks for
/// the lowest.
const PYTHON_MINORS: std::ops::RangeInclusive<u32> = 11..=14;

/// Programs that setup runs; none where no step needs one.
#[derive(Debug, Default)]
pub struct Tools {
    python: Option<PathBuf>,
    cxx: Option<PathBuf>,
}

/// Something the machine lacks, and how to get it.
#[derive(Debug)]
struct Missing {
    what: String,
    debian: &'static str,
    mac: &'static str,
}

impl Tools {
    /// A Python that can make environments.
    pub fn python(&self) -> Result<&Path> {
        self.python.as_deref().context("no Python was looked for")
    }

    /// A compiler that knows C++20.
    pub fn cxx(&self) -> Result<&Path> {
        self.cxx.as_deref().context("no compiler was looked for")
    }

    /// Looks for every tool; the error names all that are missing.
    pub fn find(platform: Platform) -> Result<Self> {
        let python = find_python(&candidates("PYTHON", &PYTHON_NAMES));
        let cxx = find_cxx(&candidates("CXX", &CXX_NAMES));
        // mlx-sys builds MLX there itself, with CMake.
        let cmake = (platform == Platform::MacArm).then(find_cmake).transpose();
        match (python, cxx, cmake) {
            (Ok(python), Ok(cxx), Ok(_)) => Ok(Self { python: Some(python), cxx: Some(cxx) }),
            (python, cxx, cmake) => {
                bail!(describe([python.err(), cxx.err(), cmake.err()].into_iter().flatten()))
            }
        }
    }
}

const PYTHON_NAMES: [&str; 5] = ["python3", "python3.14", "python3.13", "python3.12", "python3.11"];
const CXX_NAMES: [&str; 3] = ["c++", "g++", "clang++"];

/// The program that `variable` names, or else those that are usual.
fn candidates(variable: &str, names: &[&str]) -> Vec<OsString> {
    match env::var_os(variable).filter(|value| !value.is_empty()) {
        Some(program) => vec![program],
        None => names.iter().map(OsString::from).collect(),
    }
}

fn find_python(candidates: &[OsString]) -> Result<PathBuf, Missing> {
    let mut seen = Vec::new();
    for program in candidates {
        match probe_python(program) {
            Ok(()) => return Ok(PathBuf::from(program)),
            Err(why) => seen.push(format!("{}: {why}", program.to_string_lossy())),
        }
    }
    let (low, high) = (PYTHON_MINORS.start(), PYTHON_MINORS.end());
    Err(Missing {
        what: format!("Python 3.{low} to 3.{high} with pip and venv ({})", seen.join("; ")),
        debian: "apt-get install python3 python3-venv",
        mac: "brew install python@3.13",
    })
}

/// Whether `program` is a Python that will do, or else why not.
fn probe_python(program: &OsString) -> Result<(), String> {
    let version =
        output(Command::new(program).args(["-c", "import sys; print(*sys.version_info[:2])"]))
            .ok_or("cannot be run")?;
    let (major, minor) = version.trim().split_once(' ').ok_or("is not Python")?;
    if major != "3" || !minor.parse().is_ok_and(|minor| PYTHON_MINORS.contains(&minor)) {
        return Err(format!("is {major}.{minor}"));
    }
    // Debian ships both modules apart from the interpreter.
    output(Command::new(program).args(["-c", "import venv, ensurepip"]))
        .map(drop)
        .ok_or_else(|| "lacks the modules venv and ensurepip".to_owned())
}

fn find_cxx(candidates: &[OsString]) -> Result<PathBuf, Missing> {
    let knows_cxx20 = |program: &&OsString| {
        let mut probe = Command::new(program);
        probe.args([
            "-std=c++20",
            "-fsyntax-only",
            "-include",
            "concepts",
            "-x",
            "c++",
            "/dev/null",
        ]);
        output(&mut probe).is_some()
    };
    let found = candidates.iter().find(knows_cxx20).map(PathBuf::from);
    found.ok_or_else(|| Missing {
        what: format!("a C++20 compiler (tried {})", joined(candidates)),
        debian: "apt-get install g++",
        mac: "xcode-select --install",
    })
}

fn find_cmake() -> Result<(), Missing> {
    output(Command::new("cmake").arg("--version")).map(drop).ok_or_else(|| Missing {
        what: "CMake (tried cmake)".to_owned(),
        debian: "apt-get install cmake",
        mac: "brew install cmake",
    })
}

/// Standard output of a program that ran and succeeded.
fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn joined(programs: &[OsString]) -> String {
    programs.iter().map(|p| p.to_string_lossy()).collect::<Vec<_>>().join(", ")
}

fn describe(missing: impl Iterator<Item = Missing>) -> String {
    let mut text = String::from("this machine lacks what setup needs:");
    for Missing { what, debian, mac } in missing {
        let _ = write!(text, "\n  - {what}\n      Debian: {debian}\n      macOS:  {mac}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixtures<const N: usize>(names: [&str; N]) -> [OsString; N] {
        names.map(|name| format!("{}/fixtures/{name}", env!("CARGO_MANIFEST_DIR")).into())
    }

    #[test]
    fn the_first_python_that_will_do_is_taken() {
        let programs = fixtures(["none", "python-2", "python-without-venv", "python-fit"]);
        assert_eq!(find_python(&programs).expect("the last one"), PathBuf::from(&programs[3]));
    }

    #[test]
    fn a_missing_python_says_what_each_candidate_lacked() {
        let programs = fixtures(["none", "python-2", "python-without-venv"]);
        let missing = find_python(&programs).expect_err("none will do");
        for part in
            ["none: cannot be run", "python-2: is 2.7", "lacks the modules venv and ensurepip"]
        {
            assert!(missing.what.contains(part), "{} lacks {part}", missing.what);
        }
        assert!(missing.debian.contains("python3-venv"));
    }

    #[test]
    fn a_compiler_without_cxx20_is_no_compiler() {
        let programs = fixtures(["none", "cxx-17"]);
        let missing = find_cxx(&programs).expect_err("none will do");
        assert!(missing.what.starts_with("a C++20 compiler (tried "), "{}", missing.what);
    }

    #[test]
    fn everything_missing_is_named_at_once_with_both_ways_to_get_it() {
        let python = find_python(&[]).expect_err("no candidate");
        let cxx = find_cxx(&[]).expect_err("no candidate");
        let text = describe([python, cxx].into_iter());
        let wanted = [
            "Python 3.11 to 3.14 with pip and venv",
            "apt-get install python3 python3-venv",
            "brew install python@3.13",
            "C++20 compiler",
            "apt-get install g++",
            "xcode-select --install",
        ];
        for part in wanted {
            assert!(text.contains(part), "{text}\nlacks {part}");
        }
    }
}
