//! A kernel that includes headers of the MLX that is provisioned here.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use mlx_parity_msl_emu::{Kernel, Launch, Mode, Options, Output, Source, TemplateArg, run};
use mlx_parity_tensor::{Dtype, HostTensor};

use support::options;

/// MLX's include folder, as `cargo xtask setup` makes it.
fn include() -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mlx/venv/lib");
    let found = fs::read_dir(&target).expect("cargo xtask setup has run").flatten();
    let mut folders = found.map(|python| python.path().join("site-packages/mlx/include"));
    folders.find(|folder| folder.is_dir()).expect("mlx in the environment")
}

fn ran(header: &str, body: &str, group: u32, outputs: usize) -> Vec<f64> {
    let values: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let a = HostTensor::from_f32([8, 8], &values).expect("64 values");
    let mut kernel = Kernel::new("with_mlx", Source::new("with_mlx.metal", body), &["a"], &["out"]);
    kernel.header = Source::new("header", header);
    let launch = Launch {
        inputs: vec![(&a).into()],
        outputs: vec![Output { dtype: Dtype::F32, shape: vec![outputs] }],
        template: vec![("T".to_owned(), TemplateArg::Dtype(Dtype::F32))],
        grid: [group, 1, 1],
        group: [group, 1, 1],
        init_value: None,
    };
    let options = Options { include: vec![include()], ..options(Mode::Fibers) };
    let outcome = run(&kernel, &launch, &options).unwrap_or_else(|error| panic!("{error}"));
    assert!(outcome.is_clean(), "{:#?}", outcome.faults);
    outcome.outputs[0].to_f64()
}

#[test]
fn the_preamble_is_mlx_s_own() {
    let body = "uint i = thread_position_in_grid.x;\nuint at = elem_to_loc(i, a_shape, a_strides, a_ndim);\n\
                out[i] = T(a[at]) + Limits<float>::min * 0 + ceildiv(7, 4);";
    let body = body.replace(" + Limits<float>::min * 0", " + (Limits<float>::min < 0 ? 1 : 0)");
    let wanted: Vec<f64> = (0..64).map(|i| f64::from(i) + 3.0).collect();
    assert_eq!(ran("", &body, 64, 64), wanted);
}

#[test]
fn steel_s_fragments_multiply() {
    let header = "#include \"mlx/backend/metal/kernels/steel/gemm/mma.h\"\n";
    let body = "using Frag = mlx::steel::BaseMMAFrag<float, 8, 8>;\n\
                const short2 at = Frag::get_coord(ushort(thread_index_in_simdgroup));\n\
                Frag::frag_type x, y, z = {0, 0};\n\
                Frag::load(x, a + at.y * 8 + at.x, mlx::steel::Int<8>{}, mlx::steel::Int<1>{});\n\
                Frag::load(y, a + at.y * 8 + at.x, mlx::steel::Int<8>{}, mlx::steel::Int<1>{});\n\
                Frag::mma(z, x, y, z);\n\
                Frag::store(z, out + at.y * 8 + at.x, mlx::steel::Int<8>{}, mlx::steel::Int<1>{});";
    let a = |r: usize, c: usize| (8 * r + c) as f64;
    let product = |i: usize| (0..8).map(|k| a(i / 8, k) * a(k, i % 8)).sum::<f64>();
    let wanted: Vec<f64> = (0..64).map(product).collect();
    assert_eq!(ran(header, body, 32, 64), wanted);
}
