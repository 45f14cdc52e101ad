//! How fast logits are scored: KL and all other statistics of `[4096 × 151,936]` beside PyTorch's `log_softmax` and
//! `kl_div` on the same cached logits, and beside the speed at which they can be read; and the bootstrap.
//!
//! `--rows N` and `--rounds N` (given after `--`) make it smaller; `--quick` leaves out the kernels. PyTorch comes from
//! the Python of `MLX_PARITY_TORCH` or of `target/mlx/torch`:
//!
//! ```text
//! python3 -m venv target/mlx/torch && target/mlx/torch/bin/pip install numpy torch
//! ```
//!
//! Without it the rival is NumPy, of `MLX_PARITY_PYTHON` or the provisioned environment. 4,096 rows take 5 GB of disk
//! under `target`, and 18 GB of memory while the rival runs.

mod logits;
mod resample;
mod rival;
mod settings;
mod table;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use logits::{VOCABULARY, gaussian};
use mlx_parity::stats::{ScoreOptions, score};
use mlx_parity_tensor::{Dtype, HostTensor};
use settings::Settings;

/// Rows of the kernel benches.
const FEW: usize = 32;

fn kernels(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("score");
    group.sample_size(20);
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
        let [teacher, student] = [1, 2].map(|seed| {
            let values: Vec<f64> = gaussian(seed, FEW).map(f64::from).collect();
            HostTensor::from_f64_as(dtype, [FEW, VOCABULARY], &values).expect("floats round")
        });
        group.throughput(Throughput::Elements((FEW * VOCABULARY) as u64));
        for (name, total_variation) in [("all", true), ("one-pass", false)] {
            let options = ScoreOptions { total_variation, ..ScoreOptions::default() };
            group.bench_function(BenchmarkId::new(name, dtype), |bencher| {
                bencher.iter(|| black_box(score(teacher.view(), student.view(), None, &options)));
            });
        }
    }
    group.finish();
}

fn main() {
    let settings = match Settings::read(std::env::args().skip(1)) {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("kl bench: {error:#}");
            std::process::exit(2);
        }
    };
    if let Err(error) = table::print(&settings) {
        eprintln!("kl bench: {error:#}");
        std::process::exit(1);
    }
    if !settings.quick {
        let mut criterion = Criterion::default();
        kernels(&mut criterion);
        criterion.final_summary();
    }
}
