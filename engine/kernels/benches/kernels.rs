//! The host kernels against what the machine can do at most, measured in the same run:
//!
//!     cargo bench -p mlx-parity-kernels --bench kernels [FILTER]
//!
//! Kernels on one row are bound by reading weights (GB/s of packed operands); those on several by
//! arithmetic (GFLOP/s, two to a multiply-add). Operands are rotated beyond the cache.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Criterion;
use mlx_parity_kernels::limits::{multiply_square, read};
use mlx_parity_kernels::{Buffer, Candidate, Data, How, ShapeClass, Trial, candidate};
use mlx_parity_tensor::Dtype;

/// A kernel on sizes of one of its classes.
struct Row {
    kernel: &'static str,
    class: &'static str,
    sizes: &'static [usize],
    dtype: Dtype,
    /// Bound by reading, not by arithmetic.
    reads: bool,
}

const fn row(
    kernel: &'static str,
    class: &'static str,
    sizes: &'static [usize],
    dtype: Dtype,
    reads: bool,
) -> Row {
    Row { kernel, class, sizes, dtype, reads }
}

const ROWS: &[Row] = &[
    row("fused_swiglu_f32", "prefill-q4", &[128, 1024, 2816, 4, 64, 4, 64], Dtype::F32, false),
    row("fused_swiglu_f32", "decode-q4", &[1, 1024, 2816, 4, 64, 4, 64], Dtype::F32, true),
    row("fused_swiglu_f32", "decode-q4", &[1, 1024, 2816, 4, 64, 4, 64], Dtype::Bf16, true),
    row("fused_swiglu", "prefill-q4", &[128, 1024, 2816, 4, 64, 4, 64], Dtype::F32, false),
    row("fused_swiglu", "prefill-q4", &[128, 1024, 2816, 4, 64, 4, 64], Dtype::Bf16, false),
    row("fused_swiglu", "prefill-q4", &[128, 1024, 2816, 4, 64, 4, 64], Dtype::F16, false),
    row("fused_swiglu", "decode-q4", &[1, 1024, 2816, 4, 64, 4, 64], Dtype::Bf16, true),
    row("fused_swiglu", "prefill-q4", &[64, 128, 384, 4, 64, 4, 64], Dtype::Bf16, false),
    row("fused_swiglu", "decode-q4", &[1, 128, 384, 4, 64, 4, 64], Dtype::Bf16, true),
    row("fused_mlp", "prefill-q4", &[128, 1024, 2816, 1024, 4, 64, 4, 64], Dtype::F32, false),
    row("fused_mlp", "decode-q4", &[1, 1024, 2816, 1024, 4, 64, 4, 64], Dtype::F32, true),
    row("fused_geglu", "prefill", &[128, 2816], Dtype::F32, true),
    row("fused_geglu", "prefill", &[128, 2816], Dtype::Bf16, true),
    row("fused_geglu_vjp", "prefill", &[128, 2816], Dtype::F32, true),
    row("fused_qkv_rope", "prefill-q4", QKV, Dtype::F32, false),
    row("fused_qkv_rope", "prefill-q4", QKV, Dtype::Bf16, false),
    row("flash_attention", "causal", &[1, 8, 2, 2048, 2048, 128, 0], Dtype::F32, false),
    row("flash_attention_vjp", "causal", &[1, 8, 2, 512, 512, 128, 0], Dtype::F32, false),
    row("flash_cce", "plain", &[1024, 1024, 32768, 0, 0], Dtype::F32, false),
    row("flash_cce", "packed", &[1024, 1024, 32768, 4, 64], Dtype::Bf16, false),
    row("flash_cce_vjp", "plain", &[256, 512, 4096, 0, 0], Dtype::F32, false),
    row("fused_decode_sdpa", "kv4", &[1, 8, 2, 8192, 128, 64, 0, 0], Dtype::F32, true),
    row("fused_decode_sdpa", "kv4", &[1, 8, 2, 8192, 128, 64, 0, 0], Dtype::Bf16, true),
    row("fused_decode_sdpa", "kv8", &[1, 8, 2, 8192, 128, 64, 0, 0], Dtype::Bf16, true),
];

/// 16 heads and 8 for keys and values, of 64, of 1024 inputs.
const QKV: &[usize] = &[1, 128, 1024, 16, 8, 64, 4, 4, 64, 1, 64, 0, 40];

/// Bytes that rotated operands take together.
const BEYOND_CACHE: usize = 256 << 20;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let bandwidth = bandwidth(&mut criterion);
    let arithmetic = arithmetic(&mut criterion);
    for row in ROWS {
        let Some((seconds, bytes, flops)) = kernel(&mut criterion, row) else { continue };
        let name = format!("{} {} {:?} {}", row.kernel, row.class, row.sizes, row.dtype);
        let (rate, limit, unit) = if row.reads {
            (bytes / seconds / 1e9, bandwidth, "GB/s")
        } else {
            (flops / seconds / 1e9, arithmetic, "GFLOP/s")
        };
        let part = 100.0 * rate / limit;
        println!("{name}: {:.3} ms, {rate:.1} {unit}, {part:.0} % of {limit:.1}", seconds * 1e3);
    }
}

/// Times what `call` does, given how many times it was called before; the fastest sample, in seconds.
fn time(criterion: &mut Criterion, name: &str, mut call: impl FnMut(usize)) -> Option<f64> {
    let best = RefCell::new(None::<f64>);
    let mut calls = 0;
    criterion.bench_function(name, |bencher| {
        bencher.iter_custom(|count| {
            let start = Instant::now();
            for _ in 0..count {
                call(calls);
                calls += 1;
            }
            let spent = start.elapsed();
            let each = spent.as_secs_f64() / count as f64;
            let fastest = best.borrow().map_or(each, |best| best.min(each));
            best.replace(Some(fastest));
            spent
        });
    });
    best.into_inner()
}

/// GB/s of reading memory on all cores.
fn bandwidth(criterion: &mut Criterion) -> f64 {
    let words = vec![1_u64; BEYOND_CACHE / 8];
    let seconds = time(criterion, "limit/read", |_| {
        black_box(read(black_box(&words)));
    });
    BEYOND_CACHE as f64 / seconds.unwrap_or(f64::INFINITY) / 1e9
}

/// GFLOP/s of a float32 matrix product on all cores.
fn arithmetic(criterion: &mut Criterion) -> f64 {
    const N: usize = 1024;
    let (a, b) = (vec![0.5; N * N], vec![0.25; N * N]);
    let seconds = time(criterion, "limit/multiply", |_| {
        black_box(multiply_square(black_box(&a), black_box(&b), N));
    });
    2.0 * (N * N * N) as f64 / seconds.unwrap_or(f64::INFINITY) / 1e9
}

/// Seconds of a call, bytes of its operands, its flops.
fn kernel(criterion: &mut Criterion, row: &Row) -> Option<(f64, f64, f64)> {
    let kernel = candidate(row.kernel)?;
    let class = kernel.classes().iter().find(|class| class.name == row.class)?;
    let trials = rotated(kernel, class, row);
    let (bytes, flops) = (bytes(&trials[0]), kernel.flops(&trials[0].call()));
    let results = kernel.results(&trials[0].call()).ok()?.into_iter();
    let buffers = results.map(|(dtype, shape)| Buffer::zeros(dtype, shape.iter().product()));
    let mut buffers: Vec<Buffer> = buffers.collect::<Option<_>>()?;
    let name = format!("{}/{}/{:?}/{}", row.kernel, row.class, row.sizes, row.dtype);
    let seconds = time(criterion, &name, |calls| {
        let trial = &trials[calls % trials.len()];
        let mut outs: Vec<_> = buffers.iter_mut().map(Buffer::out).collect();
        kernel.run(&trial.call(), How::new(), &mut outs).expect("a call that it takes");
    })?;
    Some((seconds, bytes as f64, flops))
}

/// The same call with operands at several places, together beyond the cache.
fn rotated(kernel: &dyn Candidate, class: &ShapeClass, row: &Row) -> Vec<Trial> {
    let trial = kernel.trial(class, row.sizes, row.dtype, 0);
    let count = if row.reads { BEYOND_CACHE.div_ceil(bytes(&trial)).min(512) } else { 2 };
    vec![trial; count]
}

fn bytes(trial: &Trial) -> usize {
    let size = |data: Data<'_>| data.len() * data.dtype().size();
    trial.operands.iter().map(|of| size(of.buffer.data())).sum()
}
