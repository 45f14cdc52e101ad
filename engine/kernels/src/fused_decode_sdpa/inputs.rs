//! Where the kernel is tried: keys on both sides of lanes, blocks (64) and pieces (1024), every head that packs,
//! heads that share keys in every number, windows across pieces, caches with spare capacity.

use mlx_parity_tensor::Dtype;

use crate::call::{Buffer, Operand, Params};
use crate::candidate::{Expected, Probe, ShapeClass, Trial};
use crate::draw::{Draw, Kind, buffer};

/// Names of the sizes of a trial.
pub(super) const SIZES: &[&str] =
    &["batch", "heads", "kv_heads", "keys", "dim", "group", "window", "kept"];

/// What is tried at 4 and at 8 bits.
const LATTICE: &[&[usize]] = &[
    &[1, 1, 1, 1, 32, 32, 0, 0],
    &[1, 2, 1, 2, 64, 64, 0, 0],
    &[1, 4, 1, 3, 128, 64, 0, 0],
    &[2, 4, 2, 4, 64, 32, 0, 0],
    &[1, 5, 1, 5, 96, 32, 0, 0],
    &[1, 3, 3, 6, 128, 128, 0, 0],
    &[1, 8, 1, 7, 64, 64, 0, 0],
    &[1, 14, 2, 8, 64, 64, 0, 0],
    &[1, 16, 1, 9, 128, 32, 0, 0],
    &[1, 8, 2, 15, 256, 64, 0, 0],
    &[1, 4, 4, 16, 256, 32, 0, 0],
    &[3, 6, 2, 17, 192, 64, 0, 0],
    &[1, 4, 2, 31, 32, 32, 0, 0],
    &[1, 4, 2, 63, 96, 32, 0, 0],
    &[1, 4, 2, 64, 64, 64, 0, 0],
    &[1, 4, 2, 65, 64, 64, 0, 0],
    &[1, 8, 2, 129, 128, 64, 0, 0],
    &[1, 8, 2, 333, 128, 64, 0, 0],
    &[1, 4, 2, 1023, 64, 64, 0, 0],
    &[1, 4, 2, 1024, 64, 64, 0, 0],
    &[1, 4, 2, 1025, 64, 64, 0, 0],
    &[1, 2, 1, 2100, 32, 32, 0, 0],
    &[1, 4, 2, 33, 64, 64, 1, 0],
    &[1, 4, 2, 100, 64, 64, 64, 0],
    &[1, 4, 2, 130, 64, 64, 65, 4],
    &[1, 4, 2, 40, 64, 64, 64, 4],
    &[1, 4, 2, 1300, 64, 64, 1025, 16],
];

/// 4 bits or 8.
pub(super) const CLASSES: &[ShapeClass] = &[
    ShapeClass {
        name: "kv4",
        what: "keys and values of 4 bits",
        lattice: LATTICE,
        timed: &[1, 8, 2, 4096, 128, 64, 0, 0],
    },
    ShapeClass {
        name: "kv8",
        what: "keys and values of 8 bits",
        lattice: LATTICE,
        timed: &[1, 8, 2, 4096, 128, 64, 0, 0],
    },
];

/// A trial's sizes, by name.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    keys: usize,
    dim: usize,
    bits: u32,
    group: usize,
    window: usize,
    kept: usize,
}

impl Sizes {
    fn of(class: &ShapeClass, sizes: &[usize]) -> Self {
        let &[batch, heads, kv_heads, keys, dim, group, window, kept] = sizes else {
            unreachable!("sizes of this kernel's classes: {sizes:?}")
        };
        let bits = if class.name == "kv8" { 8 } else { 4 };
        Self { batch, heads, kv_heads, keys, dim, bits, group, window, kept }
    }

    fn params(&self) -> Params {
        Params(vec![
            ("scale", 1.0 / (self.dim as f64).sqrt()),
            ("bits", f64::from(self.bits)),
            ("group", self.group as f64),
            ("window", self.window as f64),
            ("kept", self.kept as f64),
        ])
    }
}

/// A call with the draw that a seed chooses. Offsets are those of values alone: scores of keys far from zero
/// lose in float32 what they differ by.
pub(super) fn seeded(class: &ShapeClass, sizes: &[usize], dtype: Dtype, seed: u64) -> Trial {
    let kind = Kind::ALL[seed as usize % Kind::ALL.len()];
    let named: Vec<String> =
        SIZES.iter().zip(sizes).map(|(name, size)| format!("{name}={size}")).collect();
    let name = format!("{}/{}", named.join(","), kind.name());
    drawn(name, Sizes::of(class, sizes), dtype, kind, seed)
}

fn drawn(name: String, of: Sizes, dtype: Dtype, kind: Kind, seed: u64) -> Trial {
    let mut draw = Draw::new(seed);
    let queries = match kind {
        Kind::Offset => Kind::Normal,
        other => other,
    };
    let queries = draw.operand("queries", &[of.batch, of.heads, 1, of.dim], dtype, queries, 1.0);
    let mut operands = vec![queries];
    operands.extend(cache(&mut draw, ["keys_w", "keys_scales", "keys_biases"], of, dtype));
    operands.extend(cache(&mut draw, ["values_w", "values_scales", "values_biases"], of, dtype));
    if kind == Kind::Offset {
        let by = if dtype == Dtype::F16 { 512.0 } else { 1e6 };
        let last = operands.len() - 1;
        let numbers: Vec<f32> = operands[last].view().to_f32();
        let moved: Vec<f32> = numbers.iter().map(|of| of + by).collect();
        operands[last].buffer = buffer(dtype, &moved);
    }
    Trial { name, operands, params: of.params() }
}

/// A cache `[batch, kv_heads, keys, ..]` of numbers near 1.
fn cache(draw: &mut Draw, names: [&'static str; 3], of: Sizes, dtype: Dtype) -> [Operand; 3] {
    let rows = of.batch * of.kv_heads * of.keys;
    let drawn = draw.packed(names, (rows, of.dim), (of.bits, of.group), dtype, 1.0);
    drawn.map(|operand| {
        let shape = [of.batch, of.kv_heads, of.keys, operand.shape[1]];
        Operand::new(operand.name, shape, operand.buffer)
    })
}

/// Needles where keys, blocks, pieces and windows begin and end; caps; views.
pub(super) fn probes(class: &ShapeClass, dtype: Dtype) -> Vec<Probe> {
    let mut probes = Vec::new();
    let mut add = |trial, expected| probes.push(Probe { trial, expected });
    for (what, key, keys) in [
        ("first", 0, 333),
        ("last", 332, 333),
        ("block-end", 63, 200),
        ("block-start", 64, 200),
        ("piece-end", 1023, 1100),
        ("piece-start", 1024, 1100),
        ("last-of-piece", 1023, 1024),
        ("alone-in-piece", 1024, 1025),
    ] {
        add(needle(class, dtype, what, key, (keys, 0, 0)), Expected::Reference);
    }
    for (what, key, keys, window, kept) in [
        ("window-first", 236, 300, 64, 0),
        ("before-window", 235, 300, 64, 0),
        ("window-across-pieces", 1020, 1300, 280, 0),
        ("kept-last", 3, 300, 64, 4),
        ("behind-kept", 4, 300, 64, 4),
    ] {
        add(needle(class, dtype, what, key, (keys, window, kept)), Expected::Reference);
    }
    let sizes = Sizes::of(class, &[1, 4, 2, 70, 64, 64, 0, 0]);
    let mut capped = drawn("softcap=2/keys=70".into(), sizes, dtype, Kind::Normal, 5);
    capped.params.0.push(("softcap", 2.0));
    add(capped, Expected::Reference);
    for sizes in [[1, 4, 2, 33, 64, 64, 0, 0], [2, 4, 2, 1030, 64, 32, 100, 4]] {
        let sizes = Sizes::of(class, &sizes);
        let plain = drawn(format!("capacity/keys={}", sizes.keys), sizes, dtype, Kind::Normal, 6);
        let spare = with_capacity(&plain, sizes.keys + 27);
        add(spare.clone(), Expected::Finite);
        add(spare, Expected::SameAs(Box::new(plain)));
    }
    let sizes = Sizes::of(class, &[2, 8, 2, 50, 128, 64, 0, 0]);
    let plain = drawn("queries-with-gaps/keys=50".into(), sizes, dtype, Kind::Normal, 8);
    add(with_gaps(&plain), Expected::SameAs(Box::new(plain)));
    probes
}

/// Random keys but for one, which every query scores far above the others: the result is its value. Scores are
/// beyond what exp can take.
fn needle(
    class: &ShapeClass,
    dtype: Dtype,
    what: &str,
    key: usize,
    (keys, window, kept): (usize, usize, usize),
) -> Trial {
    let of = Sizes::of(class, &[1, 4, 2, keys, 64, 64, window, kept]);
    let name = format!("needle-{what}/keys={keys},window={window},kept={kept}");
    let mut trial = drawn(name, of, dtype, Kind::Normal, 4 + key as u64);
    for operand in &mut trial.operands {
        let set = match operand.name {
            "queries" => (0..usize::MAX, 4.0),
            "keys_scales" => (key..key + 1, 0.0),
            "keys_biases" => (key..key + 1, 4.0),
            _ => continue,
        };
        let mut numbers = operand.view().to_f32();
        for (index, number) in numbers.iter_mut().enumerate() {
            if set.0.contains(&(index % keys)) {
                *number = set.1;
            }
        }
        operand.buffer = buffer(dtype, &numbers);
    }
    trial
}

/// The same call on a cache with room for more keys; NaN stands in it.
fn with_capacity(trial: &Trial, capacity: usize) -> Trial {
    let mut spare = trial.clone();
    for operand in spare.operands.iter_mut().filter(|operand| operand.name != "queries") {
        let &[batch, heads, keys, row] = operand.shape.as_slice() else { continue };
        let len = batch * heads * capacity * row;
        let places = (0..batch * heads).flat_map(|head| {
            (0..keys * row).map(move |at| (head * keys * row + at, head * capacity * row + at))
        });
        operand.buffer = match &operand.buffer {
            Buffer::U32(of) => Buffer::U32(spread(of, vec![u32::MAX; len], places)),
            Buffer::F32(of) => Buffer::F32(spread(of, vec![f32::NAN; len], places)),
            Buffer::F16(of) => Buffer::F16(spread(of, vec![0x7e00; len], places)),
            Buffer::Bf16(of) => Buffer::Bf16(spread(of, vec![0x7fc0; len], places)),
            Buffer::I32(of) => Buffer::I32(of.clone()),
        };
        operand.strides = vec![heads * capacity * row, capacity * row, row, 1];
    }
    spare
}

fn spread<T: Copy>(
    of: &[T],
    mut to: Vec<T>,
    places: impl Iterator<Item = (usize, usize)>,
) -> Vec<T> {
    places.for_each(|(from, at)| to[at] = of[from]);
    to
}

/// The same call with its queries three elements into rows that are eight longer, as slices of a wider array are.
fn with_gaps(trial: &Trial) -> Trial {
    let mut wide = trial.clone();
    let operand = &mut wide.operands[0];
    let numbers = operand.view().to_f32();
    let row = operand.shape[3];
    let dtype = operand.buffer.data().dtype();
    let rows = numbers
        .chunks(row)
        .flat_map(|row| [f32::NAN; 3].into_iter().chain(row.iter().copied()).chain([f32::NAN; 5]));
    operand.buffer = buffer(dtype, &rows.collect::<Vec<_>>());
    operand.offset = 3;
    operand.strides = vec![operand.shape[1] * (row + 8), row + 8, row + 8, 1];
    wide
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::Candidate;
    use crate::fused_decode_sdpa::FusedDecodeSdpa;
    use crate::how::{How, Path};

    fn run(trial: &Trial, how: How) -> Vec<f32> {
        let mut out = vec![f32::NAN; trial.operands[0].view().len()];
        let mut outs = [crate::call::Out::F32(&mut out)];
        FusedDecodeSdpa.run(&trial.call(), how, &mut outs).unwrap();
        out
    }

    #[test]
    fn the_wide_paths_agree_to_the_bit() {
        let [avx2, avx512] = [Path::Avx2, Path::Avx512].map(|path| How::new().on(path));
        let there = |how: How| crate::lanes::Width::choose("test", how.path).is_ok();
        if !there(avx2) || !there(avx512) {
            return;
        }
        for class in CLASSES {
            for sizes in class.lattice {
                let trial = seeded(class, sizes, Dtype::F32, 0);
                assert_eq!(run(&trial, avx2), run(&trial, avx512), "{}", trial.name);
            }
        }
    }

    #[test]
    fn results_do_not_depend_on_the_number_of_threads() {
        let trial = seeded(&CLASSES[0], &[1, 8, 2, 2100, 128, 64, 0, 0], Dtype::F32, 0);
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let wanted = alone.install(|| run(&trial, How::new()));
        let three = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        assert_eq!(three.install(|| run(&trial, How::new())), wanted);
    }

    #[test]
    fn malformed_calls_are_refused() {
        let trial = seeded(&CLASSES[0], &[1, 4, 2, 33, 64, 64, 0, 0], Dtype::F32, 0);
        let spoilt = |spoil: &dyn Fn(&mut Trial)| {
            let mut trial = trial.clone();
            spoil(&mut trial);
            FusedDecodeSdpa.supported(&trial.call()).unwrap_err().to_string()
        };
        let words = |trial: &mut Trial| trial.operands[1].shape[3] += 1;
        assert!(spoilt(&words).contains("keys_w"));
        let behind = |trial: &mut Trial| trial.operands[4].strides[1] += 1_000;
        assert!(spoilt(&behind).contains("reaches behind"));
        let rank = |trial: &mut Trial| trial.operands[0].shape[2] = 2;
        assert!(spoilt(&rank).contains("queries"));
        let gone = |trial: &mut Trial| drop(trial.operands.remove(3));
        assert!(spoilt(&gone).contains("no operand `keys_biases`"));
        let bits = |trial: &mut Trial| trial.params.0[1].1 = 3.0;
        assert!(spoilt(&bits).contains("3 bits"));
        let empty = |trial: &mut Trial| trial.operands[1].shape[2] = 0;
        assert!(spoilt(&empty).contains("0 keys"));
    }
}
