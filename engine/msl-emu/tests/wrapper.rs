//! The generated function against the text that MLX itself generates.
//!
//! `tests/wrapper/*.metal` is what MLX 0.32.2 printed; the MLX that is provisioned here (`cargo xtask setup`) is asked
//! for every kernel and dtype, and with `RECORD_MLX_TEXT=1` the files are written anew.

mod support;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use mlx_parity_msl_emu::{Input, Kernel, Launch, Output, Source, TemplateArg, metal_text};
use mlx_parity_tensor::{Dtype, HostTensor};

use support::subjects::{SUBJECTS, named};

/// Kernels whose text is kept.
const KEPT: [&str; 6] =
    ["rms_norm", "matmul_tiled", "qmv4", "strided_sum", "histogram", "matmul_simdgroup"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrapper")
}

/// What the recorder reads.
fn spec(kernel: &Kernel, launch: &Launch<'_>) -> String {
    let mut spec = format!("name {}\natomic {}\n", kernel.name, u8::from(kernel.atomic_outputs));
    for (word, text) in [("header", &kernel.header.text), ("body", &kernel.body.text)] {
        let _ = write!(spec, "{word} {}\n{text}", text.len());
        spec.push('\n');
    }
    for (name, value) in &launch.template {
        let _ = match value {
            TemplateArg::Int(value) => writeln!(spec, "int {name} {value}"),
            TemplateArg::Bool(value) => writeln!(spec, "bool {name} {}", u8::from(*value)),
            TemplateArg::Dtype(dtype) => writeln!(spec, "dtype {name} {}", dtype.name()),
        };
    }
    for (name, input) in kernel.inputs.iter().zip(&launch.inputs) {
        let axes: Vec<_> = input.shape.iter().map(ToString::to_string).collect();
        let _ = writeln!(spec, "input {name} {} {}", input.storage.dtype().name(), axes.join(" "));
    }
    for (name, output) in kernel.outputs.iter().zip(&launch.outputs) {
        let _ = writeln!(spec, "output {name} {}", output.dtype.name());
    }
    spec
}

/// MLX's installation, as `cargo xtask setup` makes it.
fn mlx() -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mlx/venv/lib");
    let found = fs::read_dir(&target).expect("cargo xtask setup has run").flatten();
    let mut packages = found.map(|python| python.path().join("site-packages/mlx"));
    packages.find(|package| package.is_dir()).expect("mlx in the environment")
}

/// The recorder, compiled against `mlx`.
fn recorder(mlx: &Path) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("record-mlx-text");
    let library = mlx.join("lib");
    let status = Command::new("c++")
        .args(["-std=c++20", "-rdynamic", "-I"])
        .arg(mlx.join("include"))
        .arg(folder().join("record.cpp"))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&library)
        .arg("-lmlx")
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .status();
    assert!(status.expect("a C++ compiler").success());
    program
}

/// What MLX prints between its fences.
fn printed(recorder: &Path, kernel: &Kernel, launch: &Launch<'_>) -> String {
    let mut child = Command::new(recorder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the recorder starts");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(spec(kernel, launch).as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", kernel.name);
    let text = String::from_utf8(output.stdout).expect("text");
    let text = text.split_once("`:\n```\n").expect("an opening fence").1;
    text.strip_suffix("\n```\n").expect("a closing fence").to_owned()
}

/// What no kernel of ours has: other dtypes, several outputs, booleans, a header, every attribute, names within names.
fn oddities(arrays: &[HostTensor]) -> Vec<(Kernel, Launch<'_>)> {
    let every = "dispatch_quadgroups_per_threadgroup dispatch_simdgroups_per_threadgroup dispatch_threads_per_threadgroup grid_origin \
                 grid_size quadgroup_index_in_threadgroup quadgroups_per_threadgroup simdgroup_index_in_threadgroup \
                 simdgroups_per_threadgroup thread_execution_width thread_index_in_quadgroup thread_index_in_simdgroup \
                 thread_index_in_threadgroup thread_position_in_grid thread_position_in_threadgroup threadgroup_position_in_grid \
                 threadgroups_per_grid threads_per_grid threads_per_simdgroup threads_per_threadgroup";
    let bodies = [every, "", "x_shape2 my_y_strides // z_ndim\n", "mythread_position_in_grids"];
    let names = ["x", "y", "z"];
    let mut made = Vec::new();
    for (i, body) in bodies.iter().enumerate() {
        for atomic in [false, true] {
            let mut kernel = Kernel::new(
                &format!("odd_{i}"),
                Source::new("odd.metal", *body),
                &names,
                &["o", "p"],
            );
            kernel.atomic_outputs = atomic;
            kernel.header = Source::new(
                "odd.h",
                if atomic { "// no newline at its end" } else { "// header\n" },
            );
            let inputs = (0..names.len())
                .map(|k| Input::whole(&arrays[(i * 3 + k) % arrays.len()]))
                .collect();
            let outputs =
                [Dtype::I64, Dtype::Bf16].map(|dtype| Output { dtype, shape: vec![4] }).to_vec();
            let dtype = |name: &str, dtype| (name.to_owned(), TemplateArg::Dtype(dtype));
            let template = match i {
                0 => vec![],
                1 => vec![
                    dtype("T", Dtype::Bf16),
                    ("B".to_owned(), TemplateArg::Bool(true)),
                    ("N".to_owned(), TemplateArg::Int(0)),
                ],
                2 => vec![
                    ("B".to_owned(), TemplateArg::Bool(false)),
                    dtype("U", Dtype::U8),
                    dtype("V", Dtype::Bool),
                ],
                _ => vec![("N".to_owned(), TemplateArg::Int(65536))],
            };
            made.push((
                kernel,
                Launch { inputs, outputs, template, grid: [1; 3], group: [1; 3], init_value: None },
            ));
        }
    }
    made
}

/// Arrays of every dtype, with 0, 1, 7, 8 and more elements and with no axes.
fn every_array() -> Vec<HostTensor> {
    use Dtype::{Bf16, Bool, F16, F32, I8, I16, I32, I64, U8, U16, U32, U64};
    let shapes: [&[usize]; 6] = [&[], &[7], &[8], &[0], &[2, 2, 2], &[1, 3]];
    let dtypes = [Bool, U8, I8, U16, I16, U32, I32, U64, I64, F16, Bf16, F32];
    let array = |(i, &dtype): (usize, &Dtype)| {
        HostTensor::zeros(dtype, shapes[i % shapes.len()]).expect("small")
    };
    dtypes.iter().enumerate().map(array).collect()
}

#[test]
fn text_is_mlx_s_byte_for_byte() {
    for name in KEPT {
        let subject = named(name);
        let cases = (subject.cases)(subject.dtypes[0]);
        let ours = metal_text(&subject.kernel(), &cases[0].launch()).expect("a good kernel");
        let file = folder().join(format!("{name}.metal"));
        let theirs = fs::read_to_string(&file).expect("a recorded text");
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn text_is_what_this_mlx_prints() {
    let recorder = recorder(&mlx());
    let record = env::var_os("RECORD_MLX_TEXT").is_some();
    for subject in SUBJECTS {
        for &dtype in subject.dtypes {
            let (kernel, case) = (subject.kernel(), (subject.cases)(dtype).swap_remove(0));
            let theirs = printed(&recorder, &kernel, &case.launch());
            if record && KEPT.contains(&subject.name) && dtype == subject.dtypes[0] {
                fs::write(folder().join(format!("{}.metal", subject.name)), &theirs)
                    .expect("writable");
            }
            assert_eq!(
                metal_text(&kernel, &case.launch()).expect("a good kernel"),
                theirs,
                "{} {}",
                subject.name,
                dtype.name()
            );
        }
    }
    for (kernel, launch) in oddities(&every_array()) {
        assert_eq!(
            metal_text(&kernel, &launch).expect("a good kernel"),
            printed(&recorder, &kernel, &launch),
            "{}",
            kernel.name
        );
    }
}
