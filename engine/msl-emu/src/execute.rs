//! One run of a compiled kernel: files in, files out, faults as lines.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;
use std::{fmt::Write as _, fs, io};

use mlx_parity_tensor::HostTensor;
use serde::Deserialize;

use crate::arrays::{contiguous, filled};
use crate::build::Built;
use crate::check::threads_per_group;
use crate::wrapper::{Holds, Wrapper};
use crate::{EmuError, Kernel, Launch, Mode, Options, ThreadId, child};

/// Exit code of an executable that a fault ended, as `runtime/report.h` has it.
const EXIT_FAULT: i32 = 70;
/// Time that the executable gets beyond its own limit, to say where it was.
const GRACE: Duration = Duration::from_secs(10);

/// A fault as the runtime writes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFault {
    pub kind: crate::FaultKind,
    pub detector: String,
    pub message: String,
    pub at: RawPlace,
    pub other: RawPlace,
    pub seed: u64,
}

/// A place as the runtime knows it: a site of the source, or the address of an instruction, or neither.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawPlace {
    pub file: Option<String>,
    pub line: Option<u32>,
    pub pc: u64,
    /// Where `pc` may lie outside the kernel: what may be its callers, innermost first.
    pub callers: Vec<u64>,
    pub thread: Option<ThreadId>,
}

/// What a run left.
pub(crate) struct Ran {
    pub faults: Vec<RawFault>,
    /// Outputs by seed, then by output; only of seeds that ran to their end.
    pub outputs: Vec<Vec<HostTensor>>,
    pub elapsed: Duration,
    /// How the process ended, when no fault of the list explains it: a signal and its last words.
    pub crash: Option<String>,
    pub timed_out: bool,
}

/// Runs `built` in a fresh folder.
pub(crate) fn execute(
    built: &Built,
    wrapper: &Wrapper,
    kernel: &Kernel,
    launch: &Launch<'_>,
    options: &Options,
) -> Result<Ran, EmuError> {
    let folder = tempfile::tempdir().map_err(io_error("making a folder", Path::new("temp")))?;
    let seeds: &[u64] =
        if options.mode == Mode::Threads { &options.seeds[..1] } else { &options.seeds };
    write_launch(folder.path(), wrapper, kernel, launch, seeds, options)?;
    let mut command = Command::new(&built.executable);
    command.current_dir(folder.path()).env_clear().envs(sanitizer_options());
    let messages = folder.path().join("messages");
    let status = child::run(&mut command, &messages, options.time_limit + GRACE)?;
    let faults = read_faults(folder.path())?;
    let crash = status.and_then(|status| crash(status, &faults, &messages));
    if status.is_some_and(|status| !matches!(status.code(), None | Some(0 | EXIT_FAULT)))
        && faults.is_empty()
    {
        return Err(EmuError::Internal(format!(
            "the executable refuses: {}",
            child::messages(&messages)
        )));
    }
    let outputs = read_outputs(folder.path(), wrapper, launch, seeds.len())?;
    let elapsed = fs::read_to_string(folder.path().join("elapsed"))
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let elapsed = Duration::from_nanos(elapsed.unwrap_or(0));
    Ok(Ran { faults, outputs, elapsed, crash, timed_out: status.is_none() })
}

fn io_error<'a>(doing: &'static str, path: &'a Path) -> impl Fn(io::Error) -> EmuError + 'a {
    move |source| EmuError::Io { doing, path: path.to_owned(), source }
}

/// Options of the sanitizers' runtimes: go on after a race, stop at an address; addresses are ours to name.
fn sanitizer_options() -> [(&'static str, &'static str); 2] {
    [
        (
            "ASAN_OPTIONS",
            "detect_leaks=0:symbolize=0:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:allow_user_segv_handler=1:use_sigaltstack=0",
        ),
        (
            "TSAN_OPTIONS",
            "symbolize=0:exitcode=0:halt_on_error=0:report_thread_leaks=0:report_signal_unsafe=0:atexit_sleep_ms=0:\
             history_size=7:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:allow_user_segv_handler=1:report_atomic_races=1",
        ),
    ]
}

fn write_launch(
    folder: &Path,
    wrapper: &Wrapper,
    kernel: &Kernel,
    launch: &Launch<'_>,
    seeds: &[u64],
    options: &Options,
) -> Result<(), EmuError> {
    let [gx, gy, gz] = launch.grid;
    let [tx, ty, tz] = threads_per_group(launch);
    let mut text = format!(
        "grid {gx} {gy} {gz}\ngroup {tx} {ty} {tz}\nlimit {}\n",
        options.time_limit.as_millis()
    );
    for seed in seeds {
        let _ = writeln!(text, "seed {seed}");
    }
    let inputs = contiguous(kernel, launch);
    for (i, buffer) in wrapper.buffers.iter().enumerate() {
        let path = folder.join(i.to_string());
        if let Holds::Output(output) = buffer.holds {
            let output = &launch.outputs[output];
            let bytes = output.shape.iter().product::<usize>() * output.dtype.size();
            let initialised = u8::from(launch.init_value.is_some());
            let _ = writeln!(
                text,
                "output {} {bytes} {} {initialised}",
                buffer.name,
                output.dtype.size()
            );
            if let Some(value) = launch.init_value {
                let filled = filled(&buffer.name, output.dtype, &output.shape, value)?;
                fs::write(&path, filled.bytes()).map_err(io_error("writing", &path))?;
            }
            continue;
        }
        let (Holds::Input(input)
        | Holds::Shape(input)
        | Holds::Strides(input)
        | Holds::Ndim(input)
        | Holds::Output(input)) = buffer.holds;
        let bytes = inputs[input].bytes_for(buffer);
        let element = match buffer.holds {
            Holds::Input(_) => launch.inputs[input].storage.dtype().size(),
            Holds::Strides(_) => 8,
            _ => 4,
        };
        let _ = writeln!(text, "input {} {} {element}", buffer.name, bytes.len());
        fs::write(&path, bytes).map_err(io_error("writing", &path))?;
    }
    let path = folder.join("launch");
    fs::write(&path, text).map_err(io_error("writing", &path))
}

fn read_faults(folder: &Path) -> Result<Vec<RawFault>, EmuError> {
    let text = fs::read_to_string(folder.join("faults")).unwrap_or_default();
    let parse = |line| {
        serde_json::from_str(line)
            .map_err(|error| EmuError::Internal(format!("fault line `{line}`: {error}")))
    };
    text.lines().map(parse).collect()
}

fn crash(status: ExitStatus, faults: &[RawFault], messages: &Path) -> Option<String> {
    let signal = status.signal()?;
    let said = child::messages(messages);
    let last: Vec<_> = said.lines().take(12).collect();
    faults
        .is_empty()
        .then(|| format!("the process ended with signal {signal}: {}", last.join(" | ")))
}

fn read_outputs(
    folder: &Path,
    wrapper: &Wrapper,
    launch: &Launch<'_>,
    seeds: usize,
) -> Result<Vec<Vec<HostTensor>>, EmuError> {
    let mut all = Vec::new();
    for seed in 0..seeds {
        let mut outputs = Vec::new();
        for (i, buffer) in wrapper.buffers.iter().enumerate() {
            let Holds::Output(output) = buffer.holds else { continue };
            let output = &launch.outputs[output];
            let Ok(bytes) = fs::read(folder.join(format!("{i}.{seed}"))) else { return Ok(all) };
            let tensor = HostTensor::new(output.dtype, output.shape.clone(), bytes);
            outputs.push(tensor.map_err(|error| EmuError::Internal(error.to_string()))?);
        }
        all.push(outputs);
    }
    Ok(all)
}
