//! Scalars, vectors and their conversions.

use mlx_parity_tensor::{Dtype, HostTensor};

use crate::answers;
use crate::support::bound::same_bits;
use crate::support::data::Numbers;

const MANY: usize = 8192;

/// Floats whose bits are random, without NaN.
fn any_floats(seed: u64) -> HostTensor {
    let mut numbers = Numbers::new(seed);
    let floats = std::iter::repeat_with(|| f32::from_bits(numbers.bits() as u32));
    let values: Vec<f32> = floats.filter(|v| !v.is_nan()).take(MANY).collect();
    HostTensor::from_f32([MANY], &values).expect("as many values")
}

/// Floats near those of a half type, and halfway between two.
fn near_halves(seed: u64, drop: u32) -> HostTensor {
    let mut numbers = Numbers::new(seed);
    let values: Vec<f32> = (0..MANY)
        .map(|i| {
            let exponent = 100 + (numbers.bits() % 50) as u32;
            let kept = (numbers.bits() as u32 & 0x7f_ffff) >> drop << drop;
            let tail = [0, 1, (1 << (drop - 1)) - 1, 1 << (drop - 1), (1 << (drop - 1)) + 1][i % 5];
            f32::from_bits(exponent << 23 | kept | tail)
        })
        .collect();
    HostTensor::from_f32([MANY], &values).expect("as many values")
}

#[test]
fn floats_round_to_half_and_bfloat() {
    for (dtype, name, drop) in [(Dtype::F16, "half", 13), (Dtype::Bf16, "bfloat", 16)] {
        for x in [any_floats(1), near_halves(2, drop)] {
            let body = format!(
                "for (uint i = thread_position_in_grid.x; i < {MANY}; i += 64) out[i] = {name}(x[i]);"
            );
            let found = answers(&body, &[("x", &x)], dtype, &[MANY], 64);
            let wanted =
                HostTensor::from_f64_as(dtype, [MANY], &x.to_f64()).expect("a float dtype");
            same_bits(&found, &wanted).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
        }
    }
}

#[test]
fn integers_round_once() {
    let values: Vec<i32> = [
        1,
        255,
        257,
        16_777_217,
        0x7fff_ffff,
        -16_777_217,
        0x0101_8001,
        0x0081_0001,
        -0x0081_0001,
        i32::MIN,
    ]
    .to_vec();
    let x = HostTensor::from_i32([values.len()], &values).expect("as many values");
    let found = answers(
        "out[thread_position_in_grid.x] = bfloat(x[thread_position_in_grid.x]);",
        &[("x", &x)],
        Dtype::Bf16,
        &[values.len()],
        values.len() as u32,
    );
    let wanted = HostTensor::from_f64_as(Dtype::Bf16, [values.len()], &x.to_f64()).expect("floats");
    same_bits(&found, &wanted).expect("one rounding");
}

/// Each operation rounds, so a·b + c rounds twice.
#[test]
fn every_operation_of_a_half_type_rounds() {
    let n = 512;
    for dtype in [Dtype::F16, Dtype::Bf16] {
        let mut numbers = Numbers::new(3);
        let [a, b, c] = [(); 3].map(|()| numbers.tensor(dtype, &[n], -4.0, 4.0));
        let body = "const uint i = thread_position_in_grid.x;\nout[i] = a[i] * b[i] + c[i] / b[i];";
        let found = answers(body, &[("a", &a), ("b", &b), ("c", &c)], dtype, &[n], n as u32);
        let round =
            |v: f64| HostTensor::from_f64_as(dtype, [1], &[v]).expect("a float dtype").value_at(0);
        let wanted: Vec<f64> = (0..n)
            .map(|i| {
                let (a, b, c) = (a.value_at(i), b.value_at(i), c.value_at(i));
                round(round(a * b) + round(c / b))
            })
            .collect();
        let wanted = HostTensor::from_f64_as(dtype, [n], &wanted).expect("a float dtype");
        same_bits(&found, &wanted).expect("as rounded after each operation");
    }
}

/// Types of mixed arithmetic, sizes and alignments: what the body asserts, it asserts when it is compiled.
#[test]
fn types_are_those_of_the_specification() {
    let body = r"
static_assert(is_same_v<decltype(half() * 1.0f), float> && is_same_v<decltype(half() * 1), half>);
static_assert(is_same_v<decltype(bfloat() * 1.0f), float> && is_same_v<decltype(1 - bfloat()), bfloat>);
static_assert(is_same_v<decltype(half() + half()), half> && is_same_v<decltype(bfloat() / bfloat()), bfloat>);
static_assert(is_same_v<decltype(1.0 * 2), float> && is_same_v<decltype(1.0h), half>);
static_assert(is_same_v<decltype(float4().xy), decltype(float4().xy)> && is_same_v<decltype(half2() * half2()), half2>);
static_assert(sizeof(float3) == 16 && alignof(float3) == 16 && sizeof(packed_float3) == 12 && alignof(packed_float3) == 4);
static_assert(sizeof(half4) == 8 && alignof(half4) == 8 && sizeof(char2) == 2 && sizeof(ulong4) == 32 && sizeof(bfloat) == 2);
static_assert(is_floating_point_v<half> && is_floating_point_v<bfloat> && is_signed_v<half> && !is_integral_v<half>);
static_assert(numeric_limits<half>::max() == 65504.0f && numeric_limits<bfloat>::epsilon() == 0.0078125f);
out[0] = 1u;";
    answers(body, &[], Dtype::U32, &[1], 1);
}

#[test]
fn swizzles_read_and_write_in_place() {
    let body = r"
float4 v(1, 2, 3, 4);
v.xy = v.yx;
v.zw += float2(10, 20);
v.wx *= 2.0f;
float3 u = v.zyx;
u.rgb = u.bgr;
const float4 all[3] = {v, float4(u, v.w), float4(v.xx, u.zz) - 1.0f};
for (uint i = 0; i < 12; i++) {
  out[i] = all[i / 4][i % 4];
}
packed_float3 p = float3(1, 2, 3);
const float3 q = float3(p) * p[1];
out[12] = dot(q, float3(1, 10, 100));
float4 assigned = float4(0);
float4 other(5, 6, 7, 8);
assigned.xy = other.xy;
out[13] = assigned.z + assigned.w;
out[14] = any(other > 7.0f) && !all(other > 7.0f) ? 1.0f : 0.0f;
out[15] = select(other, -other, other < 7.0f).y;";
    let body = body.replace("all[3]", "rows[3]").replace("all[i / 4]", "rows[i / 4]");
    let found = answers(&body, &[], Dtype::F32, &[16], 1);
    let wanted = [
        4.0, 1.0, 13.0, 48.0, // x y swapped; z + 10; w and x doubled
        4.0, 1.0, 13.0, 48.0, // zyx, then reversed in place
        3.0, 3.0, 12.0, 12.0, //
        642.0, 0.0, 1.0, -6.0,
    ];
    assert_eq!(found.to_f64(), wanted);
}

#[test]
fn bits_are_read_as_another_type() {
    let body = r"
out[0] = as_type<uint>(1.0f);
out[1] = uint(as_type<ushort>(half(1.0f)));
out[2] = uint(as_type<ushort>(bfloat(1.0f)));
out[3] = as_type<uint2>(ulong(0x0000000700000003)).y;
out[4] = as_type<uint>(uchar4(1, 2, 3, 4));";
    let found = answers(body, &[], Dtype::U32, &[5], 1);
    assert_eq!(found.to_f64(), [0x3f80_0000, 0x3c00, 0x3f80, 7, 0x0403_0201].map(f64::from));
}
