//! Host kernels: each of the list holds on its lattice and its probes, and each of its bugs is rejected there.

mod support;

use mlx_parity_kernels::{CANDIDATES, Call, Data, How, Trial, View};
use mlx_parity_tensor::Dtype;
use rstest::rstest;

use support::host::Hosted;

#[rstest]
fn host_kernels_hold(#[values(Dtype::F32, Dtype::F16, Dtype::Bf16)] dtype: Dtype) {
    let takes = CANDIDATES.iter().filter(|candidate| candidate.spec().dtypes.contains(&dtype));
    takes.for_each(|candidate| Hosted(*candidate).holds(dtype));
}

#[test]
fn host_mutants_are_rejected() {
    for candidate in CANDIDATES.iter().filter(|_| How::MUTANTS) {
        let spec = candidate.spec();
        let survivors = Hosted(*candidate).survivors(spec.dtypes);
        assert!(survivors.is_empty(), "{}: nothing rejects {survivors:?}", spec.id);
    }
}

/// A model asks before MLX has computed the operands: what is said then must be what is said later.
#[rstest]
fn calls_are_planned_without_memory(#[values(Dtype::F32, Dtype::F16, Dtype::Bf16)] dtype: Dtype) {
    for candidate in CANDIDATES.iter().filter(|one| one.spec().dtypes.contains(&dtype)) {
        for class in candidate.classes() {
            for sizes in class.lattice {
                let trial = candidate.trial(class, sizes, dtype, 0);
                let (planned, call) = (planned(&trial), trial.call());
                assert_eq!(candidate.supported(&planned), Ok(()), "{}", trial.name);
                assert_eq!(candidate.class(&planned), candidate.class(&call), "{}", trial.name);
                assert_eq!(candidate.results(&planned), candidate.results(&call), "{}", trial.name);
            }
        }
    }
}

/// The call with no memory behind its views.
fn planned(trial: &Trial) -> Call<'_> {
    let empty = |view: View<'_>| match view.data {
        Data::F32(_) => Data::F32(&[]),
        Data::F16(_) => Data::F16(&[]),
        Data::Bf16(_) => Data::Bf16(&[]),
        Data::U32(_) => Data::U32(&[]),
        Data::I32(_) => Data::I32(&[]),
    };
    let operands = trial.operands.iter().map(|of| {
        let view = of.view();
        (of.name, View { data: empty(view), shape: &of.shape, strides: &of.strides })
    });
    Call { operands: operands.collect(), params: trial.params.clone() }
}
