//! One new token over a quantized cache.

use mlx_parity_oracles::ops::{self, Attention, Mask, Quantized, Scales};
use mlx_parity_oracles::{PackedTensor, Tensor, Tensor64};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::output;
use super::quantized::{GROUP, Packed, packed};
use crate::support::data::{Numbers, wide};
use crate::support::{Case, Expected, Subject, of_type_and};

pub const DECODE: Subject = Subject::new(
    "attention_decode",
    &["q", "k", "k_scales", "k_biases", "v", "v_scales", "v_biases", "length", "scale"],
    decode,
);

/// Features of a head.
const WIDTH: usize = 64;

fn decode(dtype: Dtype) -> Vec<Case> {
    [1, 3, 33, 64].map(|length| decode_case(dtype, length)).into()
}

/// Four query heads over two of keys and values, `length` tokens of a cache for 64.
fn decode_case(dtype: Dtype, length: usize) -> Case {
    let (heads, kv_heads, capacity) = (4, 2, 64);
    let mut numbers = Numbers::new(length as u64);
    let q = numbers.tensor(dtype, &[heads, WIDTH], -2.0, 2.0);
    let mut cache = || packed(&mut numbers, dtype, &[kv_heads, capacity, WIDTH]);
    let (k, v) = (cache(), cache());
    let query = wide(&q).reshape([1, heads, 1, WIDTH]).expect("one token");
    let attention = Attention::new(0.125, Mask::None);
    let mut answer =
        ops::quantized_sdpa(&query, &in_use(&k, length), &in_use(&v, length), &attention)
            .expect("matching heads");
    let flat = |x: Tensor64| x.reshape([heads, WIDTH]).expect("one token");
    answer.value = flat(answer.value);
    answer.condition = flat(answer.condition);
    // A score's dot product and dequantization, then a rescaling of three operations a token.
    let roundoffs = 12.0 + 3.0 * length.div_ceil(4) as f64;
    let length = HostTensor::from_i32([1], &[length as i32]).expect("one number");
    let scale = HostTensor::from_f32(Vec::new(), &[0.125]).expect("a scalar");
    Case {
        label: format!("length={}", length.value_at(0)),
        inputs: vec![q, k.words, k.scales, k.biases, v.words, v.scales, v.biases, length, scale],
        views: Vec::new(),
        outputs: output(dtype, &[heads, WIDTH]),
        template: of_type_and(dtype, &[("D", WIDTH as i32), ("GROUP", GROUP as i32)]),
        grid: [128, heads as u32, 1],
        group: [128, 1, 1],
        init_value: None,
        expected: vec![Expected::Near { answer, roundoffs }],
    }
}

/// The first tokens of a cache, with a batch of one.
fn in_use(cache: &Packed, length: usize) -> Quantized {
    let Scales::Affine { scales, biases } = cache.meaning.scales() else {
        unreachable!("affine scales")
    };
    let scales = Scales::Affine { scales: first(scales, length), biases: first(biases, length) };
    let words: PackedTensor = first(cache.meaning.words(), length);
    Quantized::new(cache.meaning.mode(), words, scales).expect("whole groups")
}

/// `[heads, capacity, n]` cut to `[1, heads, length, n]`.
fn first<T: Copy>(of: &Tensor<T>, length: usize) -> Tensor<T> {
    let [heads, capacity, n] = of.shape()[..] else { unreachable!("three axes") };
    let data = of.data().chunks(capacity * n).flat_map(|head| &head[..length * n]).copied();
    Tensor::new([1, heads, length, n], data.collect()).expect("a part of each head")
}
