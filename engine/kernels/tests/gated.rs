//! The gated kernels against float64, over their lattices and probes: as they are meant, and with each of
//! their bugs.

use half::{bf16, f16};
use mlx_parity_kernels::{Buffer, Candidate, Expected, How, Out, Path, Probe, Trial, candidate};
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;

mod support;
use support::evidence::{near, same, twin};

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

/// Runs into memory that holds NaN, between guards.
fn run(kernel: &dyn Candidate, trial: &Trial, how: How) -> HostTensor {
    const GUARD: usize = 16;
    let (dtype, shape) = kernel.results(&trial.call()).unwrap().remove(0);
    let len: usize = shape.iter().product();
    let mut buffer = match dtype {
        Dtype::F16 => Buffer::F16(vec![f16::NAN.to_bits(); len + 2 * GUARD]),
        Dtype::Bf16 => Buffer::Bf16(vec![bf16::NAN.to_bits(); len + 2 * GUARD]),
        _ => Buffer::F32(vec![f32::NAN; len + 2 * GUARD]),
    };
    let out = match buffer.out() {
        Out::F32(of) => Out::F32(&mut of[GUARD..GUARD + len]),
        Out::F16(of) => Out::F16(&mut of[GUARD..GUARD + len]),
        Out::Bf16(of) => Out::Bf16(&mut of[GUARD..GUARD + len]),
    };
    kernel.run(&trial.call(), how, &mut [out]).unwrap();
    let whole = buffer.to_host(&[len + 2 * GUARD]).unwrap();
    for guard in (0..GUARD).chain(len + GUARD..len + 2 * GUARD) {
        assert!(whole.value_at(guard).is_nan(), "{}: guard {guard} written", trial.name);
    }
    let size = dtype.size();
    let bytes = whole.bytes()[GUARD * size..(GUARD + len) * size].to_vec();
    HostTensor::new(dtype, shape, bytes).unwrap()
}

/// What the composed ops would give at best: float64 rounded to the dtype.
fn rounded(exact: &[f64], dtype: Dtype) -> Vec<f64> {
    HostTensor::from_f64_as(dtype, [exact.len()], exact).unwrap().to_f64()
}

fn check(kernel: &dyn Candidate, probe: &Probe, how: How) -> Result<(), String> {
    let found = run(kernel, &probe.trial, how);
    if let Expected::SameAs(copy) = &probe.expected {
        return same(&found, &run(kernel, copy, how));
    }
    let exact = kernel.reference(&probe.trial.call()).unwrap().remove(0);
    if kernel.spec().id == "fused_swiglu" {
        return near(
            &found,
            &exact,
            &run(kernel, &probe.trial, How::new().on(Path::Portable)).to_f64(),
        );
    }
    if found.dtype() == Dtype::F32 {
        twin(&found, &exact)
    } else {
        near(&found, &exact, &rounded(&exact, found.dtype()))
    }
}

fn probes(kernel: &dyn Candidate, dtype: Dtype) -> Vec<Probe> {
    let lattice = kernel.classes().iter().flat_map(|class| {
        let sized = |(at, sizes): (usize, &&[usize])| kernel.trial(class, sizes, dtype, at as u64);
        class.lattice.iter().enumerate().map(sized).collect::<Vec<_>>()
    });
    let lattice = lattice.map(|trial| Probe { trial, expected: Expected::Reference });
    lattice.chain(kernel.classes().iter().flat_map(|class| kernel.probes(class, dtype))).collect()
}

#[rstest]
fn is_near_float64(
    #[values("fused_swiglu", "fused_swiglu_f32", "fused_mlp")] id: &str,
    #[values(Path::Auto, Path::Portable)] path: Path,
) {
    let kernel = candidate(id).unwrap();
    let how = How::new().on(path);
    for dtype in DTYPES {
        for probe in probes(kernel, dtype) {
            let class = kernel.class(&probe.trial.call());
            check(kernel, &probe, how).unwrap_or_else(|wrong| {
                panic!("{id} {dtype} {class} {}: {wrong}", probe.trial.name)
            });
        }
    }
}

#[rstest]
fn trials_are_of_their_class(#[values("fused_swiglu", "fused_swiglu_f32", "fused_mlp")] id: &str) {
    let kernel = candidate(id).unwrap();
    for class in kernel.classes() {
        for sizes in class.lattice.iter().chain([&class.timed]) {
            let trial = kernel.trial(class, sizes, Dtype::Bf16, 0);
            assert_eq!(kernel.class(&trial.call()), class.name, "{}", trial.name);
        }
    }
}

#[rstest]
fn every_bug_is_seen(#[values("fused_swiglu", "fused_swiglu_f32", "fused_mlp")] id: &str) {
    let kernel = candidate(id).unwrap();
    assert!(kernel.spec().mutants.len() >= 8);
    let probes: Vec<_> = [Dtype::F32, Dtype::Bf16].map(|dtype| probes(kernel, dtype)).concat();
    for mutant in kernel.spec().mutants.iter().filter(|mutant| mutant.host) {
        let how = How::new().mutated(mutant.name);
        let seen =
            probes.iter().find_map(|probe| Some((&probe.trial.name, seen(kernel, probe, how)?)));
        println!("{id} {}: {seen:?}", mutant.name);
        assert!(seen.is_some(), "{id} {} survives", mutant.name);
    }
}

/// Why a bug would be rejected: an exact kernel's bits, the other ones' distance.
fn seen(kernel: &dyn Candidate, probe: &Probe, how: How) -> Option<String> {
    if kernel.spec().id != "fused_swiglu" {
        return check(kernel, probe, how).err();
    }
    same(&run(kernel, &probe.trial, how), &run(kernel, &probe.trial, How::new())).err()
}
