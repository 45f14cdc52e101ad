//! One small wrong kernel for each thing that the emulator detects, and the right one beside it.

mod support;

use mlx_parity_msl_emu::{FaultKind, Kernel, Launch, Mode, Output, Source, run};
use mlx_parity_tensor::{Dtype, HostTensor};

use support::options;

/// A wrong body over `a` [256] of f32 and `out` [256] of f32, 256 threads in groups of 64; the line with `HERE` is to blame.
struct Wrong {
    name: &'static str,
    kind: FaultKind,
    body: &'static str,
    /// Where it must be seen.
    modes: &'static [Mode],
}

const CHECKED: &[Mode] = &[Mode::Fibers];
const MEMORY: &[Mode] = &[Mode::Fibers, Mode::FibersAddress];
const RACES: &[Mode] = &[Mode::Fibers, Mode::Threads];
const ALL: &[Mode] = &Mode::ALL;

const WRONG: &[Wrong] = &[
    Wrong {
        name: "read_beyond",
        kind: FaultKind::OutOfBounds,
        body: "uint i = thread_position_in_grid.x;\nout[i] = a[i + 1]; // HERE",
        modes: MEMORY,
    },
    Wrong {
        name: "write_before",
        kind: FaultKind::OutOfBounds,
        body: "uint i = thread_position_in_grid.x;\nout[i] = 0;\n\nout[int(i) - 1] = a[i]; // HERE",
        modes: MEMORY,
    },
    Wrong {
        name: "read_far_beyond",
        kind: FaultKind::OutOfBounds,
        body: "uint i = thread_position_in_grid.x;\nout[i] = a[i * 10000000]; // HERE",
        modes: ALL,
    },
    Wrong {
        name: "threadgroup_beyond",
        kind: FaultKind::OutOfBounds,
        body: "threadgroup float s[63];\nuint l = thread_position_in_threadgroup.x;\n\
               threadgroup float* p = s;\np[l] = a[l]; // HERE\nout[thread_position_in_grid.x] = 0;",
        modes: MEMORY,
    },
    Wrong {
        name: "private_beyond",
        kind: FaultKind::OutOfBounds,
        body: "float s[4] = {};\nuint i = thread_position_in_grid.x;\ns[i % 5] = a[i]; // HERE\nout[i] = s[0] + s[1] + s[2] + s[3];",
        modes: MEMORY,
    },
    Wrong {
        name: "threadgroup_unwritten",
        kind: FaultKind::UninitialisedRead,
        body: "threadgroup float s[64];\nuint l = thread_position_in_threadgroup.x;\nif (l < 63) s[l] = a[l];\n\
               threadgroup_barrier(mem_flags::mem_threadgroup);\nout[thread_position_in_grid.x] = s[l]; // HERE",
        modes: CHECKED,
    },
    Wrong {
        name: "stale_staging",
        kind: FaultKind::UninitialisedRead,
        body: "threadgroup float s[64];\nuint l = thread_position_in_threadgroup.x;\n\
               if (threadgroup_position_in_grid.x == 0) s[l] = a[l];\n\
               threadgroup_barrier(mem_flags::mem_threadgroup);\nout[thread_position_in_grid.x] = s[l]; // HERE",
        modes: CHECKED,
    },
    Wrong {
        name: "output_uninitialised",
        kind: FaultKind::UninitialisedRead,
        body: "uint i = thread_position_in_grid.x;\nout[i] += a[i]; // HERE",
        modes: CHECKED,
    },
    Wrong {
        name: "local_uninitialised",
        kind: FaultKind::UninitialisedRead,
        body: "uint i = thread_position_in_grid.x;\nfloat sum;\nfor (uint k = 0; k < 4; k++) {\n  \
               sum += a[(i + k) % 256]; // HERE\n}\nout[i] = sum;",
        modes: &[Mode::Fibers, Mode::FibersPlain],
    },
    Wrong {
        name: "race_in_group",
        kind: FaultKind::Race,
        body: "threadgroup float s[64];\nuint l = thread_position_in_threadgroup.x;\ns[l] = a[l];\n\
               out[thread_position_in_grid.x] = s[63 - l]; // HERE",
        modes: RACES,
    },
    Wrong {
        name: "race_of_groups",
        kind: FaultKind::Race,
        body: "uint i = thread_position_in_grid.x;\nout[i] = 0;\n\nif (thread_position_in_threadgroup.x == 7)\n  out[7] = a[i]; // HERE",
        modes: RACES,
    },
    Wrong {
        name: "barrier_of_the_other_memory",
        kind: FaultKind::Race,
        body: "threadgroup float s[64];\nuint l = thread_position_in_threadgroup.x;\ns[l] = a[l];\n\
               threadgroup_barrier(mem_flags::mem_device);\nout[thread_position_in_grid.x] = s[63 - l]; // HERE",
        modes: CHECKED,
    },
    Wrong {
        name: "barrier_of_no_memory",
        kind: FaultKind::Race,
        body: "threadgroup float s[64];\nuint l = thread_position_in_threadgroup.x;\ns[l] = a[l];\n\
               threadgroup_barrier(mem_flags::mem_none);\nout[thread_position_in_grid.x] = s[63 - l]; // HERE",
        modes: RACES,
    },
    Wrong {
        name: "barrier_of_a_simdgroup",
        kind: FaultKind::Race,
        body: "threadgroup float s[64];\nuint l = thread_position_in_threadgroup.x;\ns[l] = a[l];\n\
               simdgroup_barrier(mem_flags::mem_threadgroup);\nout[thread_position_in_grid.x] = s[63 - l]; // HERE",
        modes: RACES,
    },
    Wrong {
        name: "barrier_in_a_branch",
        kind: FaultKind::BarrierDivergence,
        body: "uint i = thread_position_in_grid.x;\nif (i % 64 < 40) {\n  threadgroup_barrier(mem_flags::mem_threadgroup); // HERE\n}\nout[i] = a[i];",
        modes: ALL,
    },
    Wrong {
        name: "two_barriers",
        kind: FaultKind::BarrierDivergence,
        body: "uint i = thread_position_in_grid.x;\nif (i % 64 < 40) {\n  threadgroup_barrier(mem_flags::mem_threadgroup); // HERE\n\
               } else {\n  threadgroup_barrier(mem_flags::mem_threadgroup);\n}\nout[i] = a[i];",
        modes: ALL,
    },
    Wrong {
        name: "sum_in_a_branch",
        kind: FaultKind::SimdDivergence,
        body: "uint i = thread_position_in_grid.x;\nfloat v = a[i];\nif (i % 32 < 7) {\n  v = simd_sum(v); // HERE\n}\n\
               threadgroup_barrier(mem_flags::mem_threadgroup);\nout[i] = v;",
        modes: ALL,
    },
    Wrong {
        name: "misaligned_vector",
        kind: FaultKind::Misaligned,
        body: "uint i = thread_position_in_grid.x;\nout[i] = 0;\n\
               const device float4* v = (const device float4*)(a + 1);\nif (i < 60) out[i] = v[i].x; // HERE",
        modes: MEMORY,
    },
    Wrong {
        name: "threadgroup_memory",
        kind: FaultKind::ThreadgroupMemory,
        body: "threadgroup float s[8000];\nthreadgroup half t[400]; // HERE\nuint i = thread_position_in_grid.x;\n\
               s[i] = a[i];\nt[i] = half(a[i]);\nout[i] = s[i] + t[i];",
        modes: ALL,
    },
    Wrong {
        name: "index_overflow",
        kind: FaultKind::IntegerOverflow,
        body: "int i = thread_position_in_grid.x;\nint far = (i + 1) * 70000 * 70000; // HERE\nout[i] = a[i] + float(far > 0);",
        modes: MEMORY,
    },
    Wrong {
        name: "float_beyond_int",
        kind: FaultKind::Arithmetic,
        body: "uint i = thread_position_in_grid.x;\nout[i] = float(int(a[i] * 1e10f)); // HERE",
        modes: MEMORY,
    },
    Wrong {
        name: "division_by_zero",
        kind: FaultKind::Arithmetic,
        body: "int i = thread_position_in_grid.x;\nout[i] = a[i] + float(100 / i); // HERE",
        modes: ALL,
    },
    Wrong {
        name: "input_written",
        kind: FaultKind::InputWritten,
        body: "uint i = thread_position_in_grid.x;\nout[i] = a[i];\n((device float*)a)[i] = 0; // HERE",
        modes: ALL,
    },
    Wrong {
        name: "endless_loop",
        kind: FaultKind::TimeLimit,
        body: "uint i = thread_position_in_grid.x;\nfloat v = a[i];\nwhile (v != 7.25f) v = v * 0.5f + 1.0f; // HERE\nout[i] = v;",
        modes: &[Mode::FibersPlain],
    },
    Wrong {
        name: "stack_exhausted",
        kind: FaultKind::StackOverflow,
        body: "uint i = thread_position_in_grid.x; // HERE\nvolatile float big[300000];\nbig[i] = a[i];\nout[i] = big[i];",
        modes: &[Mode::FibersPlain, Mode::Threads],
    },
];

fn arrays() -> (HostTensor, Vec<Output>) {
    let a: Vec<f32> = (0..256).map(|i| 1.0 + i as f32).collect();
    let a = HostTensor::from_f32([256], &a).expect("256 values");
    (a, vec![Output { dtype: Dtype::F32, shape: vec![256] }])
}

fn launch<'a>(a: &'a HostTensor, outputs: &[Output]) -> Launch<'a> {
    Launch {
        inputs: vec![a.into()],
        outputs: outputs.to_vec(),
        template: vec![],
        grid: [256, 1, 1],
        group: [64, 1, 1],
        init_value: None,
    }
}

fn kernel(name: &str, body: &str) -> Kernel {
    Kernel::new(name, Source::new(format!("{name}.metal"), body), &["a"], &["out"])
}

fn seen(wrong: &Wrong, mode: Mode) {
    let (a, outputs) = arrays();
    let mut options = options(mode);
    options.time_limit = std::time::Duration::from_secs(5);
    let kernel = kernel(wrong.name, wrong.body);
    let who = format!("{} in {}", wrong.name, mode.name());
    let outcome = run(&kernel, &launch(&a, &outputs), &options)
        .unwrap_or_else(|error| panic!("{who}: {error}"));
    let line = wrong.body.lines().position(|line| line.contains("HERE")).expect("a line to blame")
        as u32
        + 1;
    let blamed = |fault: &&mlx_parity_msl_emu::Fault| {
        let lines = [&fault.place, &fault.other_place];
        fault.kind == wrong.kind && lines.into_iter().flatten().any(|place| place.line == line)
    };
    let fault = outcome
        .faults
        .iter()
        .find(blamed)
        .unwrap_or_else(|| panic!("{who}, line {line}: {:#?}", outcome.faults));
    assert_eq!(fault.kernel, wrong.name);
    assert_eq!(
        fault.place.as_ref().map(|place| place.file.as_str()),
        Some(kernel.body.file.as_str()),
        "{who}"
    );
    assert!(fault.thread.is_some() || fault.detector == "compiler", "{who}: {fault:#?}");
}

fn all_seen(mode: Mode) {
    let mut ran = 0;
    for wrong in WRONG.iter().filter(|wrong| wrong.modes.contains(&mode)) {
        seen(wrong, mode);
        ran += 1;
    }
    assert!(ran > 0);
}

#[test]
fn fibers_see_what_they_must() {
    all_seen(Mode::Fibers);
}

#[test]
fn fibers_under_address_sanitizer_see_what_they_must() {
    all_seen(Mode::FibersAddress);
}

#[test]
fn plain_fibers_see_what_they_must() {
    all_seen(Mode::FibersPlain);
}

#[test]
fn threads_see_what_they_must() {
    all_seen(Mode::Threads);
}

#[test]
fn elements_that_nobody_wrote_are_counted() {
    let (a, outputs) = arrays();
    let kernel =
        kernel("unwritten", "uint i = thread_position_in_grid.x;\nif (i < 250) out[i] = a[i];");
    let outcome = run(&kernel, &launch(&a, &outputs), &options(Mode::Fibers)).expect("it runs");
    let [fault] = &outcome.faults[..] else { panic!("{:#?}", outcome.faults) };
    assert_eq!(fault.kind, FaultKind::UnwrittenOutput);
    assert_eq!(
        fault.message,
        "6 of 256 elements of `out` are never written, the first is element 250"
    );
}

/// Right in the natural order, wrong in another: the last thread to come wins.
#[test]
fn an_order_that_matters_is_caught_with_its_seed() {
    let (a, outputs) = arrays();
    let body = "threadgroup atomic_uint last[1];\nuint l = thread_position_in_threadgroup.x;\n\
                if (l == 0) atomic_store_explicit(&last[0], 0u, memory_order_relaxed);\n\
                threadgroup_barrier(mem_flags::mem_threadgroup);\n\
                atomic_store_explicit(&last[0], l, memory_order_relaxed);\n\
                threadgroup_barrier(mem_flags::mem_threadgroup);\n\
                out[thread_position_in_grid.x] = int(atomic_load_explicit(&last[0], memory_order_relaxed) + a[0]);";
    let outputs: Vec<_> =
        outputs.into_iter().map(|output| Output { dtype: Dtype::I32, ..output }).collect();
    let outcome = run(&kernel("last_wins", body), &launch(&a, &outputs), &options(Mode::Fibers))
        .expect("it runs");
    let fault = outcome.faults.iter().find(|fault| fault.kind == FaultKind::OrderDependence);
    let fault = fault.unwrap_or_else(|| panic!("{:#?}", outcome.faults));
    assert_eq!(fault.seed, 1);
    assert_eq!(outcome.orders.len(), 3);
    assert_eq!(outcome.orders[0].1[0].value_at(0), 64.0, "natural order");
    assert_eq!(outcome.orders[1].1[0].value_at(0), 1.0, "reversed order");
}

/// What the wrong kernels above do, done right: nothing may be reported.
#[test]
fn a_right_kernel_is_clean_in_every_mode() {
    let (a, outputs) = arrays();
    let body = "threadgroup float s[64];\nuint l = thread_position_in_threadgroup.x;\nuint i = thread_position_in_grid.x;\n\
                for (uint k = 0; k < 3; k++) {\n  s[l] = a[i] + k;\n  threadgroup_barrier(mem_flags::mem_threadgroup);\n  \
                const float other = s[63 - l];\n  out[i] = other + simd_sum(s[l]);\n  \
                threadgroup_barrier(mem_flags::mem_threadgroup);\n  \
                s[l ^ 1] = other;\n  simdgroup_barrier(mem_flags::mem_threadgroup);\n  out[i] += s[l];\n  \
                threadgroup_barrier(mem_flags::mem_threadgroup);\n}";
    let mut first = None;
    for mode in Mode::ALL {
        let outcome =
            run(&kernel("right", body), &launch(&a, &outputs), &options(mode)).expect("it runs");
        assert!(outcome.is_clean(), "{}: {:#?}", mode.name(), outcome.faults);
        let outputs = first.get_or_insert_with(|| outcome.outputs.clone());
        assert_eq!(&outcome.outputs, outputs, "{}", mode.name());
    }
}

/// The group at the edge of the grid is smaller, as Metal's `dispatchThreads` makes it.
#[test]
fn the_last_group_is_short() {
    let (a, _) = arrays();
    let outputs = vec![Output { dtype: Dtype::I32, shape: vec![5] }];
    let body = "uint i = thread_position_in_grid.x;\nout[i] = int(threads_per_threadgroup.x * 100 + \
                dispatch_threads_per_threadgroup.x * 10 + threadgroups_per_grid.x) + int(a[0] - 1);";
    let launch = Launch { grid: [5, 1, 1], group: [3, 1, 1], ..launch(&a, &outputs) };
    let outcome = run(&kernel("short", body), &launch, &options(Mode::Fibers)).expect("it runs");
    assert!(outcome.is_clean(), "{:#?}", outcome.faults);
    assert_eq!(outcome.outputs[0].to_f64(), [332.0, 332.0, 332.0, 232.0, 232.0]);
}
