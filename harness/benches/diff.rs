//! How fast tensors are compared: `diff` beside `cmp` and `numpy` on the same cached files, and the kernels under it.
//!
//! The ratios come first: every round runs both sides, one after the other, and the medians are compared. `--quick`
//! (given after `--`) leaves out the kernels. `numpy` comes from `MLX_PARITY_PYTHON`, the provisioned environment, or
//! `python3`.

mod side_by_side;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use mlx_parity::compare::{bit_exact, error_stats};
use mlx_parity_tensor::{Dtype, HostTensor};
use side_by_side::files::Noise;

/// Elements of a tensor of the kernel benches: 64 MiB of f32.
const ELEMENTS: usize = 16 << 20;

fn kernels(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bit_exact");
    group.sample_size(20);
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F64] {
        let [a, near, far] = tensors(dtype);
        group.throughput(Throughput::Bytes(2 * a.bytes().len() as u64));
        for (name, other) in [("equal", &a.clone()), ("near", &near), ("unrelated", &far)] {
            group.bench_with_input(BenchmarkId::new(name, dtype), other, |bencher, other| {
                bencher.iter(|| black_box(bit_exact(&a.view(), &other.view())));
            });
        }
    }
    group.finish();

    let [a, near, _] = tensors(Dtype::Bf16);
    let reference = near.to_f64();
    criterion.bench_function("error_stats/bf16", |bencher| {
        bencher.iter(|| black_box(error_stats(&a.view(), &reference)));
    });
}

/// A tensor, one a few ULP away everywhere, and an unrelated one.
fn tensors(dtype: Dtype) -> [HostTensor; 3] {
    let values = |seed| {
        let noise: Vec<f64> =
            Noise::new(seed).map(|x| f64::from(f32::from_bits(x))).take(ELEMENTS).collect();
        HostTensor::from_f64_as(dtype, [ELEMENTS / 4096, 4096], &noise).expect("floats round")
    };
    let (a, far) = (values(1), values(2));
    let mut bytes = a.bytes().to_vec();
    // The lowest bits of the low byte: at most three ULP away, and never equal.
    bytes.iter_mut().step_by(dtype.size()).for_each(|byte| *byte ^= 3);
    let near = HostTensor::new(dtype, a.shape(), bytes).expect("same length");
    [a, near, far]
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    if let Err(error) = side_by_side::run() {
        eprintln!("diff bench: {error:#}");
        std::process::exit(1);
    }
    if !quick {
        let mut criterion = Criterion::default().configure_from_args();
        kernels(&mut criterion);
        criterion.final_summary();
    }
}
