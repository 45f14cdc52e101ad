"""KL of quantized students beside two public tools, at the very same positions.

    target/mlx/peers/bin/python oracles/peers/compare.py --text FILE [--windows 32] [--window 256] TEACHER STUDENT…

TEACHER and STUDENT are model folders. mlx-kld 0.1.1 picks and cuts the tokens, since it takes a text only; the
windows it stored are then given to mlx-quant-fidelity 0.10.0, to `mlx-parity kl` and to a float64 NumPy computation
of mlx-lm's logits, so that all four score the same positions: all of a window but its last, which nothing follows. Each runs in a process of its own, from nothing to
its report; peak memory is that of the process and its children's largest. Prints a Markdown table.

The environment, apart from the oracles':

    python3 -m venv target/mlx/peers
    target/mlx/peers/bin/pip install -r oracles/peers/requirements.txt
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve()
PEERS = Path(sys.executable).parent
TOOL = Path(os.environ.get("MLX_PARITY", HERE.parents[2] / "target/release/mlx-parity"))


def timed(command):
    """Runs a command; its seconds and the peak resident MB of its largest process."""
    probe = (
        "import resource, subprocess, sys\n"
        "code = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)\n"
        "sys.exit(code)"
    )
    start = time.perf_counter()
    run = subprocess.run([sys.executable, "-c", probe, *map(str, command)], capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if run.returncode:
        sys.exit(f"{command[0]} failed:\n{run.stderr[-3000:]}")
    return seconds, float(run.stdout)


def kld(scratch, args, teacher, student, vocabulary):
    """mlx-kld's record: all positions of a window but the last are scored, and all logits but one stored."""
    record = scratch / "kld.json"
    command = [
        PEERS / "mlx-kld", "score", teacher, student, "--dataset", scratch / "corpus", "--num-samples", args.windows,
        "--max-seq-len", args.window, "--score-window", f"0:{args.window - 1}", "--top-k", vocabulary - 1,
        "--cache-dir", scratch / "cache", "--json", record, "--md", scratch / "kld.md", "--rebuild-cache",
    ]
    seconds, peak = timed(command)
    return json.loads(record.read_text()), seconds, peak


def stored_ids(scratch):
    """The windows of mlx-kld's newest teacher pass, in its order."""
    from safetensors import safe_open

    windows = []
    for shard in sorted((scratch / "cache").rglob("*.safetensors")):
        with safe_open(shard, framework="numpy") as tensors:
            windows += tensors.get_tensor("token_ids").tolist()
    return windows


def logits(folder, ids):
    """mlx-lm's logits of one window but its last position, float64 [positions, vocabulary]."""
    import mlx.core as mx
    import numpy as np

    return np.array(folder(mx.array(ids)[None])[0].astype(mx.float32)).astype(np.float64)[:-1]


def exact(teacher, student, windows):
    """Mean and 99th percentile of KL in float64, and how often the first argmax is the same."""
    import mlx.core as mx
    import numpy as np
    from mlx_lm import load

    mx.set_default_device(mx.cpu)
    teacher, student = load(str(teacher))[0], load(str(student))[0]
    found, same = [], []
    for ids in windows:
        p, q = logits(teacher, ids), logits(student, ids)
        same.append(p.argmax(-1) == q.argmax(-1))
        p, q = (x - x.max(-1, keepdims=True) for x in (p, q))
        p, q = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (p, q))
        found.append((np.exp(p) * (p - q)).sum(-1))
    found = np.concatenate(found)
    return found.mean(), np.quantile(found, 0.99), np.concatenate(same).mean()


FIDELITY = """
import json, sys
import mlx.core as mx
mx.set_default_device(mx.cpu)
from mlx_quant_fidelity import measure_weight_fidelity
from mlx_quant_fidelity.corpora.provenance import Corpus, CorpusProvenance
student, teacher, ids, out = sys.argv[1:]
windows = json.load(open(ids))
about = CorpusProvenance("peers", "all", teacher, len(windows[0]), len(windows[0]), "none", "none", "none",
                         sum(map(len, windows)))
corpus = Corpus(tuple(mx.array(w) for w in windows), about)
report = measure_weight_fidelity(student, teacher, corpus=corpus)
json.dump({"mean": report.kl.mean, "p99": report.kl.p99, "flip": report.flip_rate}, open(out, "w"))
"""


def fidelity(scratch, ids, teacher, student):
    """mlx-quant-fidelity's mean, 99th percentile and agreement over all positions but each window's last."""
    out = scratch / "fidelity.json"
    seconds, peak = timed([sys.executable, "-c", FIDELITY, student, teacher, ids, out])
    return json.loads(out.read_text()), seconds, peak


def ours(scratch, ids, teacher, student, window):
    """`mlx-parity kl`'s report."""
    command = [TOOL, "kl", "--teacher", teacher, "--student", student, "--ids", ids, "--window", window,
               "--record", scratch / "record", "--format", "json"]
    out = scratch / "ours.json"
    seconds, peak = timed(["sh", "-c", 'out=$1; shift; exec "$@" > "$out"', "sh", out, *command])
    return json.loads(out.read_text()), seconds, peak


def kld_figures(record):
    return record["kld"]["mean"], record["kld"]["p99"], record["agreement"]["top1"]


def our_figures(report):
    summary = report["summary"]
    agreement = summary["agreement"]
    return summary["kl"]["mean"], summary["kl"]["p99"], agreement["agree"] / agreement["of"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("teacher", type=Path)
    parser.add_argument("students", type=Path, nargs="+")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--windows", type=int, default=32)
    parser.add_argument("--window", type=int, default=256)
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    vocabulary = json.loads((args.teacher / "config.json").read_text())["vocab_size"]
    print("| student | tool | mean KL, nats | p99 | argmax agrees | s | peak MB |\n|---|---|---|---|---|---|---|")
    for student in args.students:
        with tempfile.TemporaryDirectory() as folder:
            rows(Path(folder), args, student, vocabulary)


def rows(scratch, args, student, vocabulary):
    (scratch / "corpus").mkdir()
    lines = args.text.read_text(encoding="utf-8-sig").split("\n\n")
    corpus = "".join(json.dumps({"text": " ".join(line.split())}) + "\n" for line in lines if line.strip())
    (scratch / "corpus/train.jsonl").write_text(corpus)
    teacher, student = args.teacher.resolve(), student.resolve()

    def row(tool, mean, p99, agreement, seconds="", peak=""):
        cells = [student.name, tool, f"{mean:.12g}", f"{p99:.6g}", f"{agreement:.6f}"]
        print("|", " | ".join(cells + [seconds and f"{seconds:.1f}", peak and f"{peak:.0f}"]), "|", flush=True)

    record, seconds, peak = kld(scratch, args, teacher, student, vocabulary)
    row("mlx-kld 0.1.1", *kld_figures(record), seconds, peak)
    windows = stored_ids(scratch)
    ids = scratch / "ids.json"
    ids.write_text(json.dumps(windows))
    found, seconds, peak = fidelity(scratch, ids, teacher, student)
    row("mlx-quant-fidelity 0.10.0", found["mean"], found["p99"], 1 - found["flip"], seconds, peak)
    report, seconds, peak = ours(scratch, ids, teacher, student, args.window)
    row("mlx-parity kl", *our_figures(report), seconds, peak)
    row("NumPy, float64", *exact(teacher, student, windows))


if __name__ == "__main__":
    main()
