//! `fused_qkv_rope` against the bits of MLX's composed ops, as digests: `fixtures/qkv_mlx.py` says of which
//! inputs.

use half::{bf16, f16};
use mlx_parity_kernels::{Buffer, How, Operand, Params, Path, Trial, candidate};
use mlx_parity_tensor::Dtype;
use rstest::rstest;
use sha2::{Digest, Sha256};

const ANSWERS: &str = include_str!("fixtures/qkv_mlx.txt");
const INPUTS: usize = 192;

fn hashes(count: usize, salt: u32) -> impl Iterator<Item = u32> {
    (0..count as u32).map(move |i| {
        let h = i.wrapping_mul(0x9e37_79b1).wrapping_add(salt.wrapping_mul(0x85eb_ca6b));
        (h ^ h >> 15).wrapping_mul(0x2c1b_3c6d)
    })
}

fn numbers(name: &'static str, shape: &[usize], salt: u32, scale: f32, dtype: Dtype) -> Operand {
    let unit = |hash: u32| ((hash >> 8) as f32 / 16_777_216.0 - 0.5) * scale;
    let numbers = hashes(shape.iter().product(), salt).map(unit);
    let buffer = match dtype {
        Dtype::F16 => Buffer::F16(numbers.map(|x| f16::from_f32(x).to_bits()).collect()),
        Dtype::Bf16 => Buffer::Bf16(numbers.map(|x| bf16::from_f32(x).to_bits()).collect()),
        _ => Buffer::F32(numbers.collect()),
    };
    Operand::new(name, shape, buffer)
}

fn trial(case: &[usize], dtype: Dtype) -> Trial {
    let &[batch, rows, heads, kv_heads, d, bits, group, normed, dims, traditional, offset] = case
    else {
        panic!("a case has eleven numbers")
    };
    let mut operands = vec![numbers("x", &[batch, rows, INPUTS], 3, 4.0, dtype)];
    let projections = [
        (["q_w", "q_scales", "q_biases"], heads * d, 10),
        (["k_w", "k_scales", "k_biases"], kv_heads * d, 20),
        (["v_w", "v_scales", "v_biases"], kv_heads * d, 30),
    ];
    for ([words, scales, biases], width, salt) in projections {
        let codes = hashes(width * INPUTS * bits / 32, salt).collect();
        operands.push(Operand::new(words, [width, INPUTS * bits / 32], Buffer::U32(codes)));
        let groups = [width, INPUTS / group];
        operands.push(numbers(scales, &groups, salt + 1, 0.05, dtype));
        operands.push(numbers(biases, &groups, salt + 2, 0.2, dtype));
    }
    if normed == 1 {
        operands.push(numbers("q_norm", &[d], 40, 2.0, dtype));
        operands.push(numbers("k_norm", &[d], 41, 2.0, dtype));
    }
    let mut params = vec![("theta", 1e4), ("rope_scale", 1.0), ("eps", f64::from(1e-5_f32))];
    let packings = ["q_bits", "k_bits", "v_bits"].map(|name| (name, bits as f64));
    params.extend(packings);
    params.extend(["q_group", "k_group", "v_group"].map(|name| (name, group as f64)));
    let rest = [("heads", heads), ("kv_heads", kv_heads), ("head_dim", d), ("dims", dims)];
    params.extend(rest.map(|(name, number)| (name, number as f64)));
    params.extend([("traditional", traditional as f64), ("offset", offset as f64)]);
    Trial { name: String::new(), operands, params: Params(params) }
}

fn digest(trial: &Trial, how: How) -> String {
    let kernel = candidate("fused_qkv_rope").expect("in the list");
    let results = kernel.results(&trial.call()).expect("a call it takes");
    let buffer = |(dtype, shape): &(Dtype, Vec<usize>)| {
        Buffer::zeros(*dtype, shape.iter().product()).expect("floats")
    };
    let mut buffers: Vec<Buffer> = results.iter().map(buffer).collect();
    let mut outs: Vec<_> = buffers.iter_mut().map(Buffer::out).collect();
    kernel.run(&trial.call(), how, &mut outs).expect("a call it takes");
    let mut digest = Sha256::new();
    for (buffer, (_, shape)) in buffers.iter().zip(&results) {
        digest.update(buffer.to_host(shape).expect("as many elements").bytes());
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[rstest]
fn queries_keys_and_values_have_the_bits_of_mlx(#[values(Path::Auto, Path::Portable)] path: Path) {
    for line in ANSWERS.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let &[dtype, case, wanted] = words.as_slice() else { panic!("{line}") };
        let numbers: Vec<usize> = case.split(',').map(|of| of.parse().expect("a number")).collect();
        let dtype = match dtype {
            "float16" => Dtype::F16,
            "bfloat16" => Dtype::Bf16,
            _ => Dtype::F32,
        };
        assert_eq!(digest(&trial(&numbers, dtype), How::new().on(path)), wanted, "{line}");
    }
}
