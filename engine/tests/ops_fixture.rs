//! Every op wrapper gives the bits of Python MLX, mlx-lm and mlx-optiq on the same libmlx.
//!
//! The answers are those of MLX's portable CPU build, made by `fixtures/ops.py`.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use common::on_mlx_thread;
use mlx_parity_engine::array::{from_host, to_host};
use mlx_parity_engine::ops::packed::{self, Mode, Packed};
use mlx_parity_engine::ops::{
    self, Affine, Axes, ChannelOrder, Conv1d, GroupNorm, Llama3, LongRope, Periods, Proportional,
    RopeOffset, RopeScaling, Rotation, ScaledRope, ScoreMask, SliceAxis, Yarn,
};
use mlx_parity_engine::{Array, EngineError, runtime_info};
use mlx_parity_tensor::HostTensor;
use mlx_parity_tensor::safetensors::SafetensorsFile;
use mlx_rs::{Device, Dtype};

type Outputs = Result<Vec<Array>, EngineError>;
type Case = (String, Box<dyn Fn(&[Array]) -> Outputs>);

fn case(name: &str, run: impl Fn(&[Array]) -> Outputs + 'static) -> Case {
    (name.to_owned(), Box::new(run))
}

type Unary = fn(&Array) -> Result<Array, EngineError>;
type Binary = fn(&Array, &Array) -> Result<Array, EngineError>;

fn elementwise() -> Vec<Case> {
    let unary: [(&str, Unary); 19] = [
        ("exp", ops::exp),
        ("log", ops::log),
        ("log1p", ops::log1p),
        ("expm1", ops::expm1),
        ("sqrt", ops::sqrt),
        ("rsqrt", ops::rsqrt),
        ("sin", ops::sin),
        ("cos", ops::cos),
        ("tanh", ops::tanh),
        ("sigmoid", ops::sigmoid),
        ("erf", ops::erf),
        ("square", ops::square),
        ("negative", ops::negative),
        ("silu", ops::silu),
        ("gelu", ops::gelu),
        ("gelu_approx", ops::gelu_approx),
        ("gelu_fast_approx", ops::gelu_fast_approx),
        ("relu2", ops::relu2),
        ("softplus", ops::softplus),
    ];
    let binary: [(&str, Binary); 9] = [
        ("add", ops::add),
        ("subtract", ops::subtract),
        ("multiply", ops::multiply),
        ("divide", ops::divide),
        ("floor_divide", ops::floor_divide),
        ("remainder", ops::remainder),
        ("power", ops::power),
        ("maximum", ops::maximum),
        ("logaddexp", ops::logaddexp),
    ];
    let unary = unary.map(|(name, f)| case(name, move |x| Ok(vec![f(&x[0])?])));
    let binary = binary.map(|(name, f)| case(name, move |x| Ok(vec![f(&x[0], &x[1])?])));
    unary.into_iter().chain(binary).collect()
}

fn casts() -> Vec<Case> {
    let floats = [("f32", Dtype::Float32), ("bf16", Dtype::Bfloat16), ("f16", Dtype::Float16)];
    let each = floats.into_iter().flat_map(|(name, dtype)| {
        [
            case(&format!("from_fp8_{name}"), move |x| Ok(vec![ops::from_fp8(&x[0], dtype)?])),
            case(&format!("cast_{name}"), move |x| Ok(vec![ops::cast(&x[0], dtype)?])),
        ]
    });
    let others = [
        case("cast_i32", |x| Ok(vec![ops::cast(&x[0], Dtype::Int32)?])),
        case("to_fp8", |x| Ok(vec![ops::to_fp8(&x[0])?])),
    ];
    each.chain(others).collect()
}

fn reductions() -> Vec<Case> {
    type Reduce = fn(&Array, Axes, bool) -> Result<Array, EngineError>;
    let reduce: [(&str, Reduce); 5] = [
        ("sum", ops::sum),
        ("mean", ops::mean),
        ("max", ops::max),
        ("min", ops::min),
        ("logsumexp", ops::logsumexp),
    ];
    let mut cases: Vec<_> = reduce
        .into_iter()
        .map(|(name, f)| {
            case(name, move |x| {
                let x = &x[0];
                Ok(vec![
                    f(x, Axes::All, false)?,
                    f(x, Axes::Of(&[1]), false)?,
                    f(x, Axes::Of(&[0, -1]), true)?,
                ])
            })
        })
        .collect();
    cases.push(case("var", |x| {
        Ok(vec![
            ops::var(&x[0], Axes::All, false, 0)?,
            ops::var(&x[0], Axes::Of(&[1]), false, 1)?,
            ops::var(&x[0], Axes::Of(&[0, -1]), true, 0)?,
        ])
    }));
    cases.push(case("argmax", |x| {
        Ok(vec![ops::argmax(&x[0], 1, false)?, ops::argmax(&x[0], -1, true)?])
    }));
    cases.push(case("argmin", |x| {
        Ok(vec![ops::argmin(&x[0], 1, false)?, ops::argmin(&x[0], -1, true)?])
    }));
    cases
}

fn rows() -> Vec<Case> {
    type Scan = fn(&Array, i32, bool, bool) -> Result<Array, EngineError>;
    let scans: [(&str, Scan); 2] = [("cumsum", ops::cumsum), ("cummax", ops::cummax)];
    let scans = scans.map(|(name, f)| {
        case(name, move |x| {
            Ok(vec![
                f(&x[0], 1, false, true)?,
                f(&x[0], -1, true, true)?,
                f(&x[0], 0, false, false)?,
            ])
        })
    });
    let others = [
        case("softmax", |x| {
            Ok(vec![
                ops::softmax(&x[0], false)?,
                ops::softmax(&x[0], true)?,
                ops::softmax_axis(&x[0], 1, true)?,
            ])
        }),
        case("sort", |x| Ok(vec![ops::sort(&x[0], 1)?, ops::argsort(&x[0], 1)?])),
        case("topk", |x| Ok(vec![ops::topk(&x[0], 7, 1)?, ops::topk(&x[0], 2, -1)?])),
    ];
    scans.into_iter().chain(others).collect()
}

fn indexing() -> Vec<Case> {
    vec![
        case("take", |x| Ok(vec![ops::take(&x[0], &x[1], 1)?])),
        case("take_along_axis", |x| Ok(vec![ops::take_along_axis(&x[0], &x[1], 1)?])),
        case("scatter_add", |x| Ok(vec![ops::scatter_add(&x[0], &x[1], &x[2], -2)?])),
        case("select", |x| Ok(vec![ops::select(&x[0], &x[1], &x[2])?])),
        case("clip", |x| Ok(vec![ops::clip(&x[0], &x[1], &x[2])?])),
        case("slice", |x| {
            // x is [4, 6, 5].
            let (all, step) =
                (SliceAxis::full, |start, stop, step| SliceAxis { start, stop, step });
            Ok(vec![
                ops::slice(&x[0], &[SliceAxis::range(1, 3), step(0, 6, 2), step(4, 0, -2)])?,
                ops::slice(&x[0], &[step(3, -1, -1), step(5, 1, -3), all(5)])?,
                ops::slice(&x[0], &[SliceAxis::range(2, 2), all(6), SliceAxis::range(1, 5)])?,
            ])
        }),
        case("slice_update", |x| {
            let back = SliceAxis { start: 3, stop: -1, step: -1 };
            let second = SliceAxis { start: 0, stop: 6, step: 2 };
            let head = [SliceAxis::full(4), SliceAxis::full(6), SliceAxis::full(3)];
            let factor = ops::scalar(1.25, x[0].dtype())?;
            Ok(vec![
                ops::slice_update(&x[0], &x[1], &[SliceAxis::range(1, 3), second, back])?,
                ops::slice_multiply(&x[0], &factor, &head)?,
            ])
        }),
        case("shape", |x| {
            let x = &x[0];
            let column =
                ops::slice(x, &[SliceAxis::full(4), SliceAxis::full(1), SliceAxis::full(5)])?;
            let first =
                ops::slice(x, &[SliceAxis::full(1), SliceAxis::full(6), SliceAxis::full(5)])?;
            Ok(vec![
                ops::flip(x, &[1])?,
                ops::broadcast_to(&column, &[4, 6, 5])?,
                ops::pad(x, &[(1, 0), (0, 2), (0, 0)])?,
                ops::stack(&[x, x], 1)?,
                ops::swap_axes(x, 0, 2)?,
                ops::squeeze(&first, 0)?,
            ])
        }),
        case("concatenate", |x| Ok(vec![ops::concatenate(&[&x[0], &x[1]], 1)?])),
    ]
}

fn products() -> Vec<Case> {
    vec![
        case("matmul", |x| Ok(vec![ops::matmul(&x[0], &x[1])?])),
        case("addmm", |x| {
            Ok(vec![
                ops::addmm(&x[0], &x[1], &x[2])?,
                ops::addmm_scaled(&x[0], &x[1], &x[2], 0.5, 2.0)?,
            ])
        }),
        case("gather_mm", |x| {
            let [a, b, left, right] = x else { panic!("4 inputs") };
            let ones = Array::from_slice(&[1_u32, 1], &[2]);
            Ok(vec![
                ops::gather_mm(a, b, Some(left), Some(right), false)?,
                ops::gather_mm(a, b, None, Some(&ones), false)?,
                ops::gather_mm(a, b, Some(left), Some(right), true)?,
            ])
        }),
        case("conv1d", |x| {
            let spread = Conv1d { stride: 2, padding: 1, dilation: 3, groups: 1 };
            let grouped = Conv1d { groups: 2, ..Conv1d::default() };
            Ok(vec![
                ops::conv1d(&x[0], &x[1], Conv1d::default())?,
                ops::conv1d(&x[0], &x[1], spread)?,
                ops::conv1d(&x[0], &x[2], grouped)?,
            ])
        }),
    ]
}

fn norms() -> Vec<Case> {
    vec![
        case("rms_norm", |x| {
            Ok(vec![ops::rms_norm(&x[0], &x[1], 1e-6)?, ops::rms_norm(&x[0], None, 1e-5)?])
        }),
        case("layer_norm", |x| {
            let [x, w, b] = x else { panic!("3 inputs") };
            Ok(vec![
                ops::layer_norm(x, Some(w), Some(b), 1e-5)?,
                ops::layer_norm(x, Some(w), None, 1e-5)?,
                ops::layer_norm(x, None, None, 1e-5)?,
            ])
        }),
        case("group_norm", |x| {
            let [x, w, b] = x else { panic!("3 inputs") };
            let mut out = Vec::new();
            for order in [ChannelOrder::Strided, ChannelOrder::Contiguous] {
                for affine in [Some((w, b)), None] {
                    out.push(ops::group_norm(
                        x,
                        &GroupNorm { groups: 4, order, affine, eps: 1e-5 },
                    )?);
                }
            }
            Ok(out)
        }),
        case("cross_entropy", |x| {
            Ok(vec![ops::cross_entropy(&x[0], &x[1], 0.0)?, ops::cross_entropy(&x[0], &x[1], 0.1)?])
        }),
    ]
}

fn rotations() -> Case {
    case("rotate", |x| {
        let [x, offsets, periods] = x else { panic!("3 inputs") };
        let turn = |dims, traditional, periods, scale, offset| {
            ops::rotate(x, &Rotation { dims, traditional, periods, scale }, offset)
        };
        let (base, given) = (Periods::Base(10_000.0), Periods::Given(periods));
        let per_item = RopeOffset::PerItem(offsets);
        assert_eq!(
            to_host(&ops::rope(x, 16, false, 10_000.0, 1.0, 1003)?)?,
            to_host(&turn(16, false, base, 1.0, RopeOffset::At(1003))?)?,
        );
        Ok(vec![
            turn(16, false, base, 1.0, RopeOffset::At(1003))?,
            turn(24, true, Periods::Base(500.0), 0.5, RopeOffset::At(0))?,
            turn(16, false, base, 1.0, per_item)?,
            turn(16, true, given, 1.0, RopeOffset::At(3))?,
            turn(16, false, given, 2.0, per_item)?,
        ])
    })
}

fn scaled_ropes() -> Vec<Case> {
    let context = 64.0;
    let scalings = [
        ("default", RopeScaling::Default),
        ("linear", RopeScaling::Linear { factor: 3.0 }),
        ("dynamic", RopeScaling::Dynamic { factor: 2.0 }),
        (
            "llama3",
            RopeScaling::Llama3(Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_max_position_embeddings: context,
            }),
        ),
        (
            "yarn",
            RopeScaling::Yarn(Yarn {
                factor: 4.0,
                original_max_position_embeddings: context,
                beta_fast: 32.0,
                beta_slow: 1.0,
                mscale: 1.0,
                mscale_all_dim: 0.0,
            }),
        ),
        (
            "longrope",
            RopeScaling::LongRope(LongRope {
                original_max_position_embeddings: context,
                short_factor: vec![1.0],
                long_factor: vec![1.0, 1.1, 1.3, 1.7, 2.5, 4.1, 7.3, 13.7],
                short_mscale: None,
                long_mscale: None,
            }),
        ),
        (
            "proportional",
            RopeScaling::Proportional(Proportional { partial_rotary_factor: 0.5, factor: 2.0 }),
        ),
    ];
    let each = scalings.into_iter().map(|(name, scaling)| {
        case(&format!("rope_{name}"), move |x| {
            let rope = ScaledRope::new(16, 10_000.0, false, 256, &scaling)?;
            let mut offsets = vec![RopeOffset::At(0), RopeOffset::At(1003)];
            if !matches!(scaling, RopeScaling::Dynamic { .. }) {
                offsets.push(RopeOffset::PerItem(&x[1]));
            }
            // The reference takes the long factors of longrope whatever the length.
            let long = Some(256);
            offsets.into_iter().map(|offset| rope.forward(&x[0], offset, long)).collect()
        })
    });
    each.chain([rotations()]).collect()
}

fn attention() -> Vec<Case> {
    let packing = Mode::Affine(Affine { group_size: 32, bits: 8 });
    vec![
        case("attend", |x| {
            let [q, k, v, allowed, bias, sinks] = x else { panic!("6 inputs") };
            let call = |mask, sinks| ops::attend(q, k, v, 0.25, mask, sinks);
            Ok(vec![
                call(ScoreMask::None, None)?,
                call(ScoreMask::Causal, None)?,
                call(ScoreMask::Array(allowed), None)?,
                call(ScoreMask::Array(bias), None)?,
                call(ScoreMask::Causal, Some(sinks))?,
            ])
        }),
        case("packed_attention", move |x| {
            let [q, keys @ .., allowed, bias] = x else { panic!("9 inputs") };
            let (k, v) = (pack(packing, &keys[..3]), pack(packing, &keys[3..]));
            let stock = |mask| packed::scaled_dot_product_attention(q, &k, &v, 0.125, mask);
            Ok(vec![
                stock(ScoreMask::None)?,
                stock(ScoreMask::Causal)?,
                stock(ScoreMask::Array(allowed))?,
                stock(ScoreMask::Array(bias))?,
                packed::tiled_attention(q, &k, &v, 0.125, false, 4)?,
                packed::tiled_attention(q, &k, &v, 0.125, true, 4)?,
            ])
        }),
    ]
}

fn pack(mode: Mode, parts: &[Array]) -> Packed {
    let (words, scales) = (parts[0].clone(), parts[1].clone());
    Packed { words, scales, biases: parts.get(2).cloned(), mode }
}

fn unpack(packed: Packed) -> Vec<Array> {
    [packed.words, packed.scales].into_iter().chain(packed.biases).collect()
}

fn modes() -> Vec<(String, Mode)> {
    let affine = [2, 3, 4, 5, 6, 8].into_iter().flat_map(|bits| {
        [32, 64, 128].map(|group_size| {
            (format!("affine_{bits}_{group_size}"), Mode::Affine(Affine { group_size, bits }))
        })
    });
    let others = [Mode::Mxfp4, Mode::Mxfp8, Mode::Nvfp4].map(|mode| (mode.name().to_owned(), mode));
    affine.chain(others).collect()
}

fn quantized() -> Vec<Case> {
    let mut cases: Vec<Case> =
        modes().into_iter().flat_map(|(name, mode)| in_mode(&name, mode)).collect();
    cases.push(case("nvfp4_global", |x| {
        let w = packed::quantize(&x[0], Mode::Nvfp4, Some(&x[1]))?;
        let values = packed::dequantize(&w, Some(&x[1]), None)?;
        Ok(unpack(w).into_iter().chain([values]).collect())
    }));
    cases
}

fn in_mode(name: &str, mode: Mode) -> [Case; 5] {
    let parts = if matches!(mode, Mode::Affine(_)) { 3 } else { 2 };
    [
        case(&format!("quantize_{name}"), move |x| {
            Ok(unpack(packed::quantize(&x[0], mode, None)?))
        }),
        case(&format!("dequantize_{name}"), move |x| {
            let w = pack(mode, x);
            Ok(vec![
                packed::dequantize(&w, None, None)?,
                packed::dequantize(&w, None, Some(Dtype::Float32))?,
            ])
        }),
        case(&format!("qmm_t_{name}"), move |x| {
            Ok(vec![packed::quantized_matmul(&x[0], &pack(mode, &x[1..]), true)?])
        }),
        // Row counts around the padding guard: the reference does not pad.
        case(&format!("qmm_{name}"), move |x| {
            let (w, x) = x.split_at(parts);
            let first = w.iter().map(|part| ops::take(part, &Array::from_int(0), 0));
            let one = pack(mode, &first.collect::<Result<Vec<_>, _>>()?);
            let (flat, batched) = x.split_at(8);
            let flat = flat.iter().map(|x| packed::quantized_matmul(x, &one, false));
            let all = pack(mode, w);
            flat.chain(batched.iter().map(|x| packed::quantized_matmul(x, &all, false))).collect()
        }),
        case(&format!("gather_qmm_{name}"), move |x| {
            let (w, x) = x.split_at(parts);
            let [x, y, left, right] = x else { panic!("4 inputs beside w") };
            let w = pack(mode, w);
            Ok(vec![
                packed::gather_qmm(x, &w, Some(left), Some(right), true, false)?,
                packed::gather_qmm(y, &w, Some(left), Some(right), false, false)?,
            ])
        }),
    ]
}

fn all_cases() -> Vec<Case> {
    [
        elementwise(),
        casts(),
        reductions(),
        rows(),
        indexing(),
        products(),
        norms(),
        scaled_ropes(),
        attention(),
        quantized(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Tensors of the fixture by case, then variant.
struct Fixture {
    file: SafetensorsFile,
    variants: BTreeMap<String, BTreeSet<String>>,
}

impl Fixture {
    fn open() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ops.safetensors");
        let file = SafetensorsFile::open(&path).expect("the committed fixture");
        let mut variants: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for name in file.names() {
            let mut parts = name.split('/');
            let (case, variant) = (parts.next(), parts.next());
            let (case, variant) = case.zip(variant).expect("names are case/variant/tensor");
            variants.entry(case.to_owned()).or_default().insert(variant.to_owned());
        }
        Self { file, variants }
    }

    fn tensors(&self, case: &str, variant: &str, kind: &str) -> Vec<HostTensor> {
        (0..).map_while(|i| self.file.tensor(&format!("{case}/{variant}/{kind}{i}")).ok()).collect()
    }

    /// Each output that differs, in words.
    fn differences(&self, (name, run): &Case) -> Vec<String> {
        let mut found = Vec::new();
        for variant in &self.variants[name] {
            let inputs: Vec<Array> = self
                .tensors(name, variant, "in")
                .iter()
                .map(|tensor| from_host(tensor).expect("inputs cross"))
                .collect();
            let wanted = self.tensors(name, variant, "out");
            let outputs = run(&inputs).and_then(|arrays| arrays.iter().map(to_host).collect());
            let outputs: Vec<HostTensor> = match outputs {
                Ok(outputs) => outputs,
                Err(error) => {
                    found.push(format!("{name}/{variant}: {error}"));
                    continue;
                }
            };
            assert!(!wanted.is_empty(), "{name}/{variant} has no outputs");
            assert_eq!(outputs.len(), wanted.len(), "{name}/{variant}");
            for (i, (output, wanted)) in outputs.iter().zip(&wanted).enumerate() {
                if output != wanted {
                    found.push(format!(
                        "{name}/{variant}/out{i}: {}",
                        first_difference(output, wanted)
                    ));
                }
            }
        }
        found
    }
}

fn first_difference(found: &HostTensor, wanted: &HostTensor) -> String {
    let (a, b) = (found.view(), wanted.view());
    if (a.dtype(), a.shape()) != (b.dtype(), b.shape()) {
        return format!("{:?} {:?}, wanted {:?} {:?}", a.dtype(), a.shape(), b.dtype(), b.shape());
    }
    let differing: Vec<usize> = (0..a.len()).filter(|&i| a.bits_at(i) != b.bits_at(i)).collect();
    let at = differing[0];
    format!(
        "{} of {} differ, first at {:?}: {} ({:#x}), wanted {} ({:#x})",
        differing.len(),
        a.len(),
        a.coords(at),
        a.value_at(at),
        a.bits_at(at),
        b.value_at(at),
        b.bits_at(at)
    )
}

#[test]
fn ops_give_the_bits_of_the_reference() {
    let differences = on_mlx_thread(|| {
        Device::set_default(&Device::cpu());
        let fixture = Fixture::open();
        let made_by = &fixture.file.metadata()["mlx"];
        assert_eq!(
            *made_by,
            runtime_info().expect("mlx answers").mlx_version,
            "remake the fixture"
        );
        let cases = all_cases();
        let names: BTreeSet<_> = cases.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names.len(), cases.len(), "a case is listed twice");
        assert_eq!(names, fixture.variants.keys().cloned().collect(), "fixture and table differ");
        cases.iter().flat_map(|case| fixture.differences(case)).collect::<Vec<_>>()
    });
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
