//! Kernels, arrays and machines that cannot work: one clear error each, and the caller goes on.

mod support;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use mlx_parity_msl_emu::{
    EmuError, FaultKind, Input, Kernel, Launch, Mode, Options, Output, Source, TemplateArg, run,
};
use mlx_parity_tensor::{Dtype, HostTensor};

use support::options;

const BODY: &str = "uint i = thread_position_in_grid.x;\nout[i] = a[i];";

fn array() -> HostTensor {
    HostTensor::from_f32([8], &[1.0; 8]).expect("eight values")
}

fn kernel(body: &str) -> Kernel {
    Kernel::new(
        "copy",
        Source { text: body.to_owned(), file: "copy.metal".to_owned(), line: 11 },
        &["a"],
        &["out"],
    )
}

fn launch(a: &HostTensor) -> Launch<'_> {
    let outputs = vec![Output { dtype: Dtype::F32, shape: vec![8] }];
    Launch {
        inputs: vec![a.into()],
        outputs,
        template: vec![],
        grid: [8, 1, 1],
        group: [8, 1, 1],
        init_value: None,
    }
}

fn refused(kernel: &Kernel, launch: &Launch<'_>, options: &Options) -> EmuError {
    run(kernel, launch, options).expect_err("it cannot work")
}

/// Refused before anything is compiled.
fn message(change: impl FnOnce(&mut Kernel, &mut Launch<'_>)) -> String {
    let a = array();
    let (mut kernel, mut launch) = (kernel(BODY), launch(&a));
    change(&mut kernel, &mut launch);
    let nothing =
        Options { compiler: Some(PathBuf::from("/nonexistent")), ..options(Mode::Fibers) };
    refused(&kernel, &launch, &nothing).to_string()
}

#[test]
fn names_are_identifiers_and_unlike() {
    let wanted = "wanted a letter or `_`, then letters, digits and `_`";
    assert_eq!(
        message(|kernel, _| kernel.name = "a; rm -rf $HOME".to_owned()),
        format!("kernel `a; rm -rf $HOME`: {wanted}")
    );
    assert_eq!(
        message(|kernel, _| kernel.name = "../up".to_owned()),
        format!("kernel `../up`: {wanted}")
    );
    assert_eq!(
        message(|kernel, _| kernel.inputs[0] = "`id`".to_owned()),
        format!("input ``id``: {wanted}")
    );
    assert_eq!(
        message(|kernel, _| kernel.outputs[0] = String::new()),
        format!("output ``: {wanted}")
    );
    assert_eq!(
        message(|kernel, _| kernel.outputs[0] = "a".to_owned()),
        "output `a` is taken already"
    );
    assert_eq!(
        message(|kernel, _| kernel.inputs[0] = "thread_position_in_grid".to_owned()),
        "input `thread_position_in_grid` is taken already"
    );
    let argument = |name: &'static str, value| {
        move |_: &mut Kernel, launch: &mut Launch<'_>| {
            launch.template = vec![(name.to_owned(), value)];
        }
    };
    assert_eq!(
        message(argument("N ", TemplateArg::Int(1))),
        format!("template argument `N `: {wanted}")
    );
    assert!(message(argument("N", TemplateArg::Int(-1))).contains("template argument `N` is -1"));
}

#[test]
fn arrays_and_sizes_are_checked() {
    assert_eq!(
        message(|_, launch| launch.inputs.clear()),
        "kernel `copy` names 1 inputs, found 0 arrays"
    );
    assert_eq!(
        message(|_, launch| launch.outputs.clear()),
        "kernel `copy` names 1 outputs, found 0 arrays"
    );
    assert_eq!(message(|_, launch| launch.grid[1] = 0), "kernel `copy`: grid [8, 0, 1] has a zero");
    assert_eq!(
        message(|_, launch| launch.group[2] = 0),
        "kernel `copy`: group [8, 1, 0] has a zero"
    );
    let large = message(|_, launch| (launch.grid, launch.group) = ([64; 3], [1025, 1, 17]));
    assert_eq!(large, "kernel `copy`: 1088 threads in a group, at most 1024");
}

#[test]
fn views_stay_in_their_storage() {
    for (shape, strides, offset) in [
        (vec![9], vec![1], 0),
        (vec![8], vec![1], 1),
        (vec![2, 2], vec![-1, 1], 0),
        (vec![8], vec![1, 1], 0),
    ] {
        let said = message(|_, launch| {
            let storage = launch.inputs[0].storage;
            launch.inputs[0] =
                Input { storage, shape: shape.clone(), strides: strides.clone(), offset };
        });
        assert!(
            said.starts_with("input `a`: shape ")
                && said.ends_with("leaves the 8 elements of its storage"),
            "{said}"
        );
    }
}

#[test]
fn dtypes_that_metal_lacks_are_refused() {
    assert_eq!(
        message(|_, launch| launch.outputs[0].dtype = Dtype::F64),
        "output `out`: dtype f64 does not exist in a Metal kernel"
    );
    let huge = message(|_, launch| launch.outputs[0].shape = vec![usize::MAX, 2]);
    assert!(
        huge.starts_with("output `out` has ") && huge.ends_with("bytes, at most 1072693248"),
        "{huge}"
    );
}

#[test]
fn no_compiler_says_what_was_looked_for() {
    let a = array();
    let nothing =
        Options { compiler: Some(PathBuf::from("/nonexistent/c++")), ..options(Mode::Fibers) };
    let error = refused(&kernel(BODY), &launch(&a), &nothing);
    assert_eq!(
        error.to_string(),
        "no C++20 compiler: `/nonexistent/c++` does not answer; install clang or g++ (not run)"
    );
}

#[test]
fn a_source_that_does_not_compile_names_the_user_s_line() {
    let a = array();
    for (body, line) in [
        ("uint i = thread_position_in_grid.x;\n\nout[i] = a[j];", 13),
        ("out[0] = a[0]\nout[1] = 1;", 11),
        ("uint i = thread_position_in_grid.x;\na[i] = 0;\nout[i] = 1;", 12),
        ("threadgroup float s[4];\nfloat x = s.nothing;\nout[0] = x;", 12),
    ] {
        let error = refused(&kernel(body), &launch(&a), &options(Mode::Fibers));
        let EmuError::Compile { kernel, place, messages } = &error else { panic!("{error}") };
        assert_eq!(kernel, "copy");
        let place = place.as_ref().unwrap_or_else(|| panic!("{messages}"));
        assert_eq!((place.file.as_str(), place.line), ("copy.metal", line), "{messages}");
    }
}

#[test]
fn braces_that_do_not_pair_are_refused() {
    let a = array();
    for (body, said) in [
        ("out[0] = a[0];\n}", "12: `}` closes nothing"),
        ("\n\nif (true) {\n// }\nout[0] = a[0];", "13: `{` is never closed"),
    ] {
        let error = refused(&kernel(body), &launch(&a), &options(Mode::Fibers));
        assert_eq!(error.to_string(), format!("copy.metal:{said}"));
    }
}

/// MLX's own text of such a kernel is no Metal.
#[test]
fn a_signature_that_mlx_breaks_is_refused() {
    let a = array();
    let mut kernel = kernel("out[0] = a_shape[0];\nmore[0] = 1;");
    kernel.outputs.push("more".to_owned());
    let outputs = vec![Output { dtype: Dtype::F32, shape: vec![8] }; 2];
    let error = refused(&kernel, &Launch { outputs, ..launch(&a) }, &options(Mode::Fibers));
    assert!(matches!(error, EmuError::NoAttribute { .. }), "{error}");
}

#[test]
fn a_threadgroup_variable_with_an_initialiser_is_refused() {
    let a = array();
    let error =
        refused(&kernel("\nthreadgroup float s[2] = {0, 0};"), &launch(&a), &options(Mode::Fibers));
    assert_eq!(
        error.to_string(),
        "copy.metal:12: a threadgroup variable cannot have an initialiser"
    );
}

#[test]
fn an_unwritable_cache_is_named() {
    let a = array();
    let file = tempfile::NamedTempFile::new().expect("a file");
    let bad = Options { cache: file.path().join("cache"), ..options(Mode::Fibers) };
    let error = refused(&kernel(BODY), &launch(&a), &bad);
    let EmuError::Io { path, .. } = &error else { panic!("{error}") };
    assert!(path.starts_with(file.path()), "{error}");
}

#[test]
fn a_compiler_that_hangs_is_ended() {
    let a = array();
    let folder = tempfile::tempdir().expect("a folder");
    let slow = folder.path().join("slow");
    fs::write(&slow, "#!/bin/sh\n[ \"$1\" = --version ] && echo slow 1 || sleep 60\n")
        .expect("writable");
    fs::set_permissions(&slow, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    let limit = Duration::from_millis(200);
    let bad = Options {
        compiler: Some(slow),
        compile_limit: limit,
        cache: folder.path().join("cache"),
        ..Options::default()
    };
    let error = refused(&kernel(BODY), &launch(&a), &bad);
    assert!(error.to_string().contains("took longer than 200ms"), "{error}");
    assert!(
        fs::read_dir(folder.path().join("cache")).expect("made").next().is_none(),
        "nothing half-made stays"
    );
}

#[test]
fn the_caller_goes_on_after_a_kernel_that_never_ends() {
    let a = array();
    let quick = Options { time_limit: Duration::from_millis(300), ..options(Mode::Fibers) };
    let endless = kernel("uint i = thread_position_in_grid.x;\nwhile (a[i] > 0) out[i] = a[i];");
    let outcome = run(&endless, &launch(&a), &quick).expect("it runs");
    assert_eq!(outcome.faults[0].kind, FaultKind::TimeLimit);
    assert_eq!(outcome.faults[0].place.as_ref().map(|place| place.line), Some(12));
    assert!(outcome.outputs.is_empty());
    let outcome = run(&kernel(BODY), &launch(&a), &options(Mode::Fibers)).expect("it runs");
    assert!(outcome.is_clean());
    assert_eq!(outcome.outputs[0], a);
}

#[test]
fn a_second_run_comes_from_the_cache() {
    let a = array();
    let folder = tempfile::tempdir().expect("a folder");
    let fresh =
        Options { cache: folder.path().to_owned(), mode: Mode::FibersPlain, ..Options::default() };
    let cached = |body: &str| run(&kernel(body), &launch(&a), &fresh).expect("it runs").cached;
    assert_eq!(
        [cached(BODY), cached(BODY), cached(&BODY.replace("a[i]", "a[i] + 0")), cached(BODY)],
        [false, true, false, true]
    );
}
