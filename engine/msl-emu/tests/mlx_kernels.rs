//! Kernels of MLX itself, built from its headers where `cargo xtask setup` puts them.

mod support;

use std::path::{Path, PathBuf};

use mlx_parity_msl_emu::{Kernel, Mode, Source, run};
use mlx_parity_tensor::Dtype;

use support::bound::judge;
use support::options;
use support::subjects::matmul::product;
use support::subjects::named;
use support::{Case, FLOATS};

/// The product of MLX's steel kernels.
const STEEL: [&str; 2] = [
    "#include \"mlx/backend/metal/kernels/steel/gemm/gemm.h\"\n",
    "\
using Gemm = mlx::steel::GEMMKernel<T, T, 32, 32, 16, 2, 2, false, false, false, false>;
threadgroup T a_tile[Gemm::tgp_mem_size_a];
threadgroup T b_tile[Gemm::tgp_mem_size_b];
const int m = a_shape[0];
const int k = a_shape[1];
const int n = b_shape[1];
const mlx::steel::GEMMParams params = {
    m, n, k, k, n, n, (n + 31) / 32, (m + 31) / 32, 0, 0, 0, 0, k / 16, 0};
Gemm::run(a, b, out, &params, a_tile, b_tile, thread_index_in_simdgroup, simdgroup_index_in_threadgroup,
          threadgroup_position_in_grid, thread_position_in_threadgroup);
",
];

/// Its softmax of a row that one group holds.
const SOFTMAX: [&str; 2] = [
    "#include \"mlx/backend/metal/kernels/defines.h\"\n\
     #include \"mlx/backend/metal/kernels/softmax.h\"\n",
    "\
const int size = x_shape[1];
softmax_single_row<T, float>(x, out, size, threadgroup_position_in_grid.y, thread_position_in_threadgroup.x,
                             thread_index_in_simdgroup, simdgroup_index_in_threadgroup);
",
];

/// The headers of the MLX that is set up.
fn mlx_include() -> PathBuf {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mlx/venv/lib");
    let pythons = std::fs::read_dir(&lib).expect("MLX, as `cargo xtask setup` provides it");
    pythons
        .map(|python| python.expect("a folder").path().join("site-packages/mlx/include"))
        .find(|include| include.is_dir())
        .expect("MLX's headers")
}

/// Runs a body over MLX's headers, and holds it to the case.
fn holds([header, body]: [&str; 2], inputs: &[&str], dtype: Dtype, case: &Case) {
    let mut kernel = Kernel::new("probe", Source::new("probe.metal", body), inputs, &["out"]);
    kernel.header = Source::new("header", header);
    let mut options = options(Mode::Fibers);
    options.include = vec![mlx_include()];
    let outcome = run(&kernel, &case.launch(), &options).unwrap_or_else(|error| panic!("{error}"));
    assert!(outcome.is_clean(), "{} {}: {:#?}", dtype.name(), case.label, outcome.faults);
    judge(&outcome.outputs[0], &case.expected[0])
        .unwrap_or_else(|wrong| panic!("{} {}: {wrong}", dtype.name(), case.label));
}

#[test]
fn a_steel_product_is_right() {
    for dtype in FLOATS {
        for shape in [[32, 32, 32], [33, 20, 47], [5, 65, 32]] {
            let case = product(dtype, shape, [128, 1, 1], [32, 32], 128);
            holds(STEEL, &["a", "b"], dtype, &case);
        }
    }
}

#[test]
fn the_softmax_of_a_row_is_right() {
    for dtype in FLOATS {
        for mut case in (named("softmax").cases)(dtype) {
            let columns = case.inputs[0].shape()[1] as u32;
            let threads = columns.div_ceil(4).next_multiple_of(32);
            case.grid[0] = threads;
            case.group[0] = threads;
            holds(SOFTMAX, &["x"], dtype, &case);
        }
    }
}
