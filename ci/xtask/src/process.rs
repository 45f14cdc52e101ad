//! Running other programs.

use std::fmt::Write as _;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// How much of a failed program's output an error repeats.
const TAIL_LINES: usize = 30;

/// Runs `command` to its end and returns its standard output; an error names `what` was tried and
/// repeats the end of what the program printed.
pub fn capture(command: &mut Command, what: &str) -> Result<String> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output =
        command.output().with_context(|| format!("{what}: cannot start {}", shown(command)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    bail!("{what}: {} ({})\n{}", shown(command), output.status, tail(&output))
}

/// The command as a person would type it.
pub fn shown(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        let _ = write!(line, " {}", arg.to_string_lossy());
    }
    line
}

fn tail(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
