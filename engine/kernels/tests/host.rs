//! Host kernels: each of the list holds on its lattice and its probes, and each of its bugs is rejected there.

mod support;

use mlx_parity_kernels::{CANDIDATES, How};
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
