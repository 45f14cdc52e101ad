//! A kernel built from MLX's own headers, read from where `cargo xtask setup` puts MLX.

mod support;

use std::path::{Path, PathBuf};

use mlx_parity_msl_emu::{Kernel, Mode, Source, run};

use support::FLOATS;
use support::bound::judge;
use support::options;
use support::subjects::matmul::product;

const HEADER: &str = "#include \"mlx/backend/metal/kernels/steel/gemm/gemm.h\"\n";

const BODY: &str = "\
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
";

/// The headers of the MLX that is set up.
fn mlx_include() -> PathBuf {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mlx/venv/lib");
    let pythons = std::fs::read_dir(&lib).expect("MLX, as `cargo xtask setup` provides it");
    pythons
        .map(|python| python.expect("a folder").path().join("site-packages/mlx/include"))
        .find(|include| include.is_dir())
        .expect("MLX's headers")
}

#[test]
fn a_steel_product_is_right() {
    let mut kernel = Kernel::new("steel", Source::new("steel.metal", BODY), &["a", "b"], &["out"]);
    kernel.header = Source::new("header", HEADER);
    for dtype in FLOATS {
        for shape in [[32, 32, 32], [33, 20, 47], [5, 65, 32]] {
            let case = product(dtype, shape, [128, 1, 1], [32, 32], 128);
            let mut options = options(Mode::Fibers);
            options.include = vec![mlx_include()];
            let outcome = run(&kernel, &case.launch(), &options).unwrap_or_else(|e| panic!("{e}"));
            assert!(outcome.is_clean(), "{} {}: {:#?}", dtype.name(), case.label, outcome.faults);
            judge(&outcome.outputs[0], &case.expected[0])
                .unwrap_or_else(|wrong| panic!("{} {}: {wrong}", dtype.name(), case.label));
        }
    }
}
