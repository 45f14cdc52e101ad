//! Every path against plain arithmetic, and the wide ones against each other.

use super::{F32s, LANES, Mask, Simd, Task, U32s, Width};
use crate::how::Path;
use crate::numbers::exp;

const PATHS: [Path; 3] = [Path::Portable, Path::Avx2, Path::Avx512];

/// The widths this processor has.
fn widths() -> impl Iterator<Item = (Path, Width)> {
    PATHS.into_iter().filter_map(|path| Some((path, Width::choose("test", path).ok()?)))
}

const A: [f32; LANES] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    2.5,
    3.5,
    1e-3,
    -1e6,
    65504.0,
    1e-41,
    f32::MAX,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    0.333_333_34,
    -7.75,
];
const B: [f32; LANES] =
    [1.0, 0.0, f32::NAN, 2.0, -2.5, 4.5, 7.0, 3.0, 2.0, 1.0, 2.0, 1.0, 5.0, 1.0, 3.0, 0.5];

fn bits(of: [f32; LANES]) -> [u32; LANES] {
    of.map(|of| if of.is_nan() { f32::NAN.to_bits() } else { of.to_bits() })
}

struct Elementwise;

impl Task for Elementwise {
    type Out = Vec<[f32; LANES]>;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Self::Out {
        let (a, b) = (simd.load(&A), simd.load(&B));
        let mut out = Vec::new();
        let every = [a + b, a - b, a * b, a / b, -a, a.max(b), a.min(b)];
        let chosen = [a.lt(b).select(a, b), a.le(b).select(a, b), simd.first(5).select(a, b)];
        let turned = [a.lookup(b.bits()), a.round_bf16()];
        for vector in every.into_iter().chain(chosen).chain(turned) {
            let mut to = [0.0; LANES];
            vector.store(&mut to);
            out.push(to);
        }
        out
    }
}

#[test]
fn lanes_do_what_one_number_does() {
    let pair = |of: fn(f32, f32) -> f32| std::array::from_fn(|lane| of(A[lane], B[lane]));
    let bf16 = |of: f32| half::bf16::from_f32(of).to_f32();
    let wanted: Vec<[f32; LANES]> = vec![
        pair(|a, b| a + b),
        pair(|a, b| a - b),
        pair(|a, b| a * b),
        pair(|a, b| a / b),
        pair(|a, _| -a),
        pair(|a, b| if a > b { a } else { b }),
        pair(|a, b| if a < b { a } else { b }),
        pair(|a, b| if a < b { a } else { b }),
        pair(|a, b| if a <= b { a } else { b }),
        std::array::from_fn(|lane| if lane < 5 { A[lane] } else { B[lane] }),
        pair(|_, b| A[b.to_bits() as usize % 8]),
        A.map(bf16),
    ];
    for (path, width) in widths() {
        for (at, (got, wanted)) in width.run(Elementwise).into_iter().zip(&wanted).enumerate() {
            assert_eq!(bits(got), bits(*wanted), "{path:?}, operation {at}");
        }
    }
}

struct Integers;

impl Task for Integers {
    type Out = Vec<[u32; LANES]>;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Self::Out {
        let words: [u32; LANES] = std::array::from_fn(word);
        let (a, shifts) =
            (simd.load_bits(&words), simd.load_bits(&std::array::from_fn(|i| i as u32)));
        let rows =
            std::array::from_fn(|row| simd.load_bits(&std::array::from_fn(|i| word(16 * row + i))));
        let rounded = simd.load(&[
            -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 9.0, -9.0, 1e6, -1e6, 0.0, -0.0, 0.49, 0.51, 127.5,
            -87.3,
        ]);
        let every = [
            a + shifts,
            a - shifts,
            a & shifts,
            a | shifts,
            a ^ shifts,
            a << 3,
            a >> 5,
            a.shift_right(shifts),
            a.to_f32().bits(),
            a.low_nibbles().bits(),
            a.low_bytes().bits(),
            a.centred_nibbles().bits(),
            a.bytes(0),
            a.bytes(2),
            a.bytes(3),
            a.top_bytes(0),
            a.top_bytes(1),
            a.top_bytes(3),
            rounded.round_to_int(),
        ];
        every
            .into_iter()
            .chain(simd.transpose(rows))
            .map(|vector| {
                let mut to = [0; LANES];
                vector.store(&mut to);
                to
            })
            .collect()
    }
}

fn word(at: usize) -> u32 {
    (at as u32 + 1).wrapping_mul(0x9e37_79b9)
}

#[test]
fn integers_wrap_shift_and_turn() {
    let each = |of: fn(u32, u32) -> u32| std::array::from_fn(|i| of(word(i), i as u32));
    let mut wanted: Vec<[u32; LANES]> = vec![
        each(u32::wrapping_add),
        each(u32::wrapping_sub),
        each(|a, i| a & i),
        each(|a, i| a | i),
        each(|a, i| a ^ i),
        each(|a, _| a << 3),
        each(|a, _| a >> 5),
        each(|a, i| a >> i),
        each(|a, _| (a as i32 as f32).to_bits()),
        each(|a, _| ((a & 15) as f32).to_bits()),
        each(|a, _| ((a & 255) as f32).to_bits()),
        each(|a, _| ((a & 15) as f32 - 8.0).to_bits()),
        each(|a, _| a & 255),
        each(|a, _| a >> 16 & 255),
        each(|a, _| a >> 24),
        each(|a, _| a << 24),
        each(|a, _| (a >> 8) << 24),
        each(|a, _| a >> 24 << 24),
        [-2i32, -2, 0, 0, 2, 2, 9, -9, 1_000_000, -1_000_000, 0, 0, 0, 1, 128, -87]
            .map(|of| of as u32),
    ];
    wanted.extend((0..LANES).map(|i| std::array::from_fn(|row| word(16 * row + i))));
    for (path, width) in widths() {
        for (at, (got, wanted)) in width.run(Integers).into_iter().zip(&wanted).enumerate() {
            assert_eq!(got, *wanted, "{path:?}, operation {at}");
        }
    }
}

struct Halves<'a>(&'a [u16; LANES], u32);

impl Task for Halves<'_> {
    type Out = ([f32; LANES], [u16; LANES], [f32; LANES]);
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Self::Out {
        let mut out = ([0.0; LANES], [0; LANES], [0.0; LANES]);
        let short = simd.load_f16(self.0);
        short.store(&mut out.0);
        short.store_f16(&mut out.1);
        let long = simd.load(&self.0.map(|bits| brain(bits, self.1)));
        long.round_bf16().store(&mut out.2);
        out
    }
}

/// A float with a bfloat16 above the given lower half.
fn brain(bits: u16, below: u32) -> f32 {
    f32::from_bits(u32::from(bits) << 16 | below)
}

#[test]
fn every_half_widens_and_comes_back() {
    let lower = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
    for ((path, width), below) in widths().flat_map(|of| lower.map(|below| (of, below))) {
        for from in (0..=u16::MAX).step_by(LANES) {
            let all = std::array::from_fn(|lane| from + lane as u16);
            let (f16, back, rounded) = width.run(Halves(&all, below));
            let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            for lane in 0..LANES {
                let short = half::f16::from_bits(all[lane]);
                assert!(same(f16[lane], short.to_f32()), "{path:?} {from:04x} {lane} {below:04x}");
                assert_eq!(
                    half::f16::from_bits(back[lane]).is_nan(),
                    short.is_nan(),
                    "{path:?} {from:04x} {lane} {below:04x}"
                );
                assert!(
                    short.is_nan() || back[lane] == all[lane],
                    "{path:?} {from:04x} {lane} {below:04x}"
                );
                let wanted = half::bf16::from_f32(brain(all[lane], below)).to_f32();
                assert!(same(rounded[lane], wanted), "{path:?} {from:04x} {lane} {below:04x}");
            }
        }
    }
}

struct Reduce<'a>(&'a [f32]);

impl Task for Reduce<'_> {
    type Out = (f32, f32, [f32; LANES], Vec<f32>);
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Self::Out {
        let of = simd.load_first(self.0);
        let mut fused = [0.0; LANES];
        of.mul_add(of, simd.splat(-1.0)).store(&mut fused);
        let mut first = vec![9.0; self.0.len()];
        of.store_first(&mut first);
        (of.sum(), of.largest(), fused, first)
    }
}

#[test]
fn sums_go_by_halves_and_tails_stay_inside() {
    let numbers: Vec<f32> = (0..LANES).map(|i| 1.0 / (i as f32 + 3.0)).collect();
    for (path, width) in widths() {
        for len in 0..=LANES {
            let (sum, largest, fused, first) = width.run(Reduce(&numbers[..len]));
            let mut halves = super::padded(&numbers[..len]);
            for half in [8, 4, 2, 1] {
                for lane in 0..half {
                    halves[lane] += halves[lane + half];
                }
            }
            assert_eq!(sum.to_bits(), halves[0].to_bits(), "{path:?}, {len} numbers");
            assert_eq!(largest, numbers[..len].first().copied().unwrap_or(0.0), "{path:?}");
            assert_eq!(first, numbers[..len], "{path:?}");
            if path != Path::Portable && len > 0 {
                assert_eq!(fused[0], numbers[0].mul_add(numbers[0], -1.0), "{path:?}");
            }
        }
    }
}

struct Exp<'a>(&'a [f32]);

impl Task for Exp<'_> {
    type Out = Vec<f32>;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Self::Out {
        let mut out = vec![0.0; self.0.len()];
        for (from, to) in self.0.chunks(LANES).zip(out.chunks_mut(LANES)) {
            exp(simd, simd.load_first(from)).store_first(to);
        }
        out
    }
}

#[test]
fn exp_is_within_two_ulp() {
    let mut numbers: Vec<f32> = (-873_000..887_000).map(|i| i as f32 * 1e-4).collect();
    numbers.extend([-87.336, 88.722, 0.0, -0.0, 1e-30, -1e-10]);
    for (path, width) in widths() {
        let worst = numbers.iter().zip(width.run(Exp(&numbers))).map(|(&x, got)| {
            let wanted = f64::from(x).exp();
            (f64::from(got) - wanted).abs() / wanted * f64::from(1 << 23)
        });
        let worst = worst.fold(0.0, |a: f64, b| if b <= a { a } else { b });
        assert!(worst <= 2.0, "{path:?}: {worst} ulp");
        let edges = [f32::NEG_INFINITY, -104.0, -88.0, f32::INFINITY, 89.0, f32::NAN];
        let got = width.run(Exp(&edges));
        assert_eq!(got[..3], [0.0; 3], "{path:?}");
        assert_eq!(got[3..5], [f32::INFINITY; 2], "{path:?}");
        assert!(got[5].is_nan(), "{path:?}");
    }
}

#[test]
fn avx2_and_avx512_give_the_same_bits() {
    let numbers: Vec<f32> = (-90_000..90_000).map(|i| i as f32 * 1e-3).collect();
    let bits = |path| {
        let width = Width::choose("test", path).ok()?;
        Some(width.run(Exp(&numbers)).into_iter().map(f32::to_bits).collect::<Vec<_>>())
    };
    if let (Some(narrow), Some(wide)) = (bits(Path::Avx2), bits(Path::Avx512)) {
        assert!(narrow == wide);
    }
}
