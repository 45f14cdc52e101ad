//! The Metal header set against the specification.


#[path = "../support/mod.rs"]
mod support;

mod integers;
mod lanes;
mod maths;
mod missing;
mod types;

use mlx_parity_msl_emu::{Input, Kernel, Launch, Mode, Output, Source, run};
use mlx_parity_tensor::{Dtype, HostTensor};

/// What a body writes to `out` of this dtype and shape, as one group of `threads`.
fn answers(
    body: &str,
    inputs: &[(&str, &HostTensor)],
    dtype: Dtype,
    shape: &[usize],
    threads: u32,
) -> HostTensor {
    let names: Vec<&str> = inputs.iter().map(|&(name, _)| name).collect();
    let mut kernel = Kernel::new("probe", Source::new("probe.metal", body), &names, &["out"]);
    kernel.header = Source::new("header", "#include <metal_simdgroup_matrix>\n");
    let launch = Launch {
        inputs: inputs.iter().map(|&(_, tensor)| Input::whole(tensor)).collect(),
        outputs: vec![Output { dtype, shape: shape.to_vec() }],
        template: Vec::new(),
        grid: [threads, 1, 1],
        group: [threads, 1, 1],
        init_value: None,
    };
    let outcome = run(&kernel, &launch, &support::options(Mode::Fibers));
    let mut outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(outcome.is_clean(), "{:#?}", outcome.faults);
    outcome.outputs.remove(0)
}
