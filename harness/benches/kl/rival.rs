//! What scoring is measured beside.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::logits::{Logits, VOCABULARY};

/// A Python process that finds the mean KL as often as it is asked.
pub struct Rival {
    /// `torch 2.8.0, 2 threads`, or NumPy's version.
    pub name: String,
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// What it says.
pub struct Answer {
    /// Time of the computation alone.
    pub seconds: f64,
    /// Mean KL, in its float32.
    pub mean: f64,
}

/// The file is mapped, as ours is. The first line also tells the KL of the first rows in float64.
const PROGRAM: &str = "
import struct, sys, time
import numpy as np
path, rows, vocabulary = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(path, 'rb') as f:
    start = 8 + struct.unpack('<Q', f.read(8))[0]
both = np.memmap(path, np.float32, 'c', start, (2, rows, vocabulary))
def exact(p, q):
    p, q = p.astype(np.float64), q.astype(np.float64)
    p, q = p - p.max(-1, keepdims=True), q - q.max(-1, keepdims=True)
    p, q = p - np.log(np.exp(p).sum(-1, keepdims=True)), q - np.log(np.exp(q).sum(-1, keepdims=True))
    return (np.exp(p) * (p - q)).sum(-1)
try:
    import torch
    name = f'torch {torch.__version__}, {torch.get_num_threads()} threads'
    teacher, student = torch.from_numpy(both[0]), torch.from_numpy(both[1])
    def mean():
        p, q = torch.log_softmax(teacher, -1), torch.log_softmax(student, -1)
        return torch.nn.functional.kl_div(q, p, reduction='batchmean', log_target=True).item()
except ImportError:
    name = f'numpy {np.__version__}'
    def log_softmax(x):
        x = x - x.max(-1, keepdims=True)
        return x - np.log(np.exp(x).sum(-1, keepdims=True))
    def mean():
        p, q = log_softmax(both[0]), log_softmax(both[1])
        return float((np.exp(p) * (p - q)).sum(-1).mean())
print(name, *exact(both[0, :4], both[1, :4]), sep='\\t', flush=True)
for line in sys.stdin:
    begin = time.perf_counter()
    answer = mean()
    print(time.perf_counter() - begin, answer, sep='\\t', flush=True)
";

impl Rival {
    /// Starts Python, and gives the float64 KL of the first rows.
    pub fn start(logits: &Logits) -> Result<(Self, Vec<f64>)> {
        let python = python();
        let mut child = Command::new(&python)
            .args(["-c", PROGRAM])
            .arg(&logits.path)
            .args([logits.rows, VOCABULARY].map(|n| n.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", python.display()))?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut rival = Self { name: String::new(), child, stdin, stdout };
        let words = rival.words().with_context(|| format!("{} has no NumPy", python.display()))?;
        let (name, exact) = words.split_first().context("no answer")?;
        rival.name.clone_from(name);
        let exact = exact.iter().map(|word| word.parse().context("KL is a number"));
        let exact = exact.collect::<Result<_>>()?;
        Ok((rival, exact))
    }

    /// The mean KL once more.
    pub fn mean(&mut self) -> Result<Answer> {
        writeln!(self.stdin)?;
        let words = self.words()?;
        ensure!(words.len() == 2, "the rival said {words:?}");
        Ok(Answer { seconds: words[0].parse()?, mean: words[1].parse()? })
    }

    fn words(&mut self) -> Result<Vec<String>> {
        let mut line = String::new();
        ensure!(self.stdout.read_line(&mut line)? > 0, "the rival has ended");
        Ok(line.trim_end().split('\t').map(str::to_owned).collect())
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone after this.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn python() -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/mlx");
    let given = |name| std::env::var_os(name).map(PathBuf::from);
    let provisioned =
        |venv: &str| Some(target.join(venv).join("bin/python")).filter(|p| p.exists());
    given("MLX_PARITY_TORCH")
        .or_else(|| provisioned("torch"))
        .or_else(|| given("MLX_PARITY_PYTHON"))
        .or_else(|| provisioned("venv"))
        .unwrap_or_else(|| "python3".into())
}
