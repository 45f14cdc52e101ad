//! What `diff` is measured beside.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

/// Seconds `cmp` takes to find two files equal.
pub fn cmp(a: &Path, b: &Path) -> Result<f64> {
    let start = Instant::now();
    let status = Command::new("cmp").arg(a).arg(b).status().context("cannot run cmp")?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(status.success(), "cmp found a difference");
    Ok(seconds)
}

/// A `numpy` process that answers one pair of files a line.
pub struct Numpy {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// What `numpy` says.
pub struct Answer {
    /// Time from opening the files to the last number.
    pub seconds: f64,
    /// Elements that are not equal.
    pub differ: u64,
    /// Greatest absolute difference.
    pub max_abs: f64,
}

/// The data starts after the header; the files are mapped, as `diff` maps them.
const PROGRAM: &str = "
import sys, time, struct
import numpy as np
def data(path):
    with open(path, 'rb') as f:
        header = struct.unpack('<Q', f.read(8))[0]
    return np.memmap(path, np.float32, 'r', 8 + header)
print('ready', flush=True)
for line in sys.stdin:
    a, b = line.rstrip('\\n').split('\\t')
    start = time.perf_counter()
    a, b = data(a), data(b)
    error = np.abs(a - b)
    answer = np.count_nonzero(a != b), error.max(), error.mean()
    print(time.perf_counter() - start, answer[0], answer[1], flush=True)
";

impl Numpy {
    /// Starts Python and waits until `numpy` is loaded.
    pub fn start() -> Result<Self> {
        let python = python();
        let mut child = Command::new(&python)
            .args(["-c", PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", python.display()))?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut numpy = Self { child, stdin, stdout };
        ensure!(numpy.line()? == "ready", "{} has no NumPy", python.display());
        Ok(numpy)
    }

    /// Max-abs, mean and count of differing elements.
    pub fn compare(&mut self, a: &Path, b: &Path) -> Result<Answer> {
        writeln!(self.stdin, "{}\t{}", a.display(), b.display())?;
        let line = self.line()?;
        let mut words = line.split_whitespace();
        let mut next = || words.next().with_context(|| format!("NumPy said {line:?}"));
        let seconds = next()?.parse()?;
        let (differ, max_abs) = (next()?.parse()?, next()?.parse()?);
        Ok(Answer { seconds, differ, max_abs })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Numpy {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone after this.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn python() -> PathBuf {
    if let Some(python) = std::env::var_os("MLX_PARITY_PYTHON") {
        return python.into();
    }
    let provisioned = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/mlx/venv/bin/python");
    if provisioned.exists() { provisioned } else { "python3".into() }
}
