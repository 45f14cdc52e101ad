use mlx_parity_kernels::*;
use mlx_parity_tensor::Dtype;
#[repr(C)]
struct Ts {
    s: i64,
    n: i64,
}
unsafe extern "C" {
    fn clock_gettime(id: i32, t: *mut Ts) -> i32;
}
fn cpu() -> f64 {
    let mut t = Ts { s: 0, n: 0 };
    unsafe { clock_gettime(2, &mut t) };
    t.s as f64 + t.n as f64 * 1e-9
}
fn main() {
    let words = vec![1_u64; (256 << 20) / 8];
    let mut best = f64::MAX;
    for _ in 0..6 {
        let t = cpu();
        let mut s = [0u64; 16];
        for c in words.chunks_exact(16) {
            for i in 0..16 {
                s[i] = s[i].wrapping_add(c[i]);
            }
        }
        std::hint::black_box(s);
        best = best.min(cpu() - t);
    }
    println!("read, cpu: {:.2} GB/s a core", 0.268435 / best);
    let k = candidate("fused_decode_sdpa").unwrap();
    for (class, sizes, dtype) in [
        ("kv4", [1, 8, 2, 8192, 128, 64, 0, 0], Dtype::Bf16),
        ("kv4", [1, 8, 2, 8192, 128, 64, 0, 0], Dtype::F32),
        ("kv8", [1, 8, 2, 8192, 128, 64, 0, 0], Dtype::Bf16),
        ("kv4", [1, 8, 8, 4096, 64, 64, 0, 0], Dtype::Bf16),
        ("kv4", [1, 4, 2, 256, 32, 32, 0, 0], Dtype::Bf16),
        ("kv4", [1, 16, 2, 8192, 128, 64, 0, 0], Dtype::Bf16),
    ] {
        for path in [Path::Avx512] {
            let class = k.classes().iter().find(|c| c.name == class).unwrap();
            let trial = k.trial(class, &sizes, dtype, 0);
            let bytes: usize = trial
                .operands
                .iter()
                .map(|o| o.buffer.data().len() * o.buffer.data().dtype().size())
                .sum();
            let trials = vec![trial; ((64 << 20) / bytes).clamp(1, 64)];
            let mut out = Buffer::zeros(dtype, sizes[1] * sizes[4]).unwrap();
            let mut best = f64::MAX;
            for _ in 0..8 {
                let t = cpu();
                for trial in &trials {
                    k.run(&trial.call(), How::new().on(path), &mut [out.out()]).unwrap();
                }
                best = best.min((cpu() - t) / trials.len() as f64);
            }
            println!(
                "{} {sizes:?} {dtype} {path:?}: cpu {:.3} ms, {:.2} GB/s a core",
                class.name,
                best * 1e3,
                bytes as f64 / best / 1e9
            );
        }
    }
}
