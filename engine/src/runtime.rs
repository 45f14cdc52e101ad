//! What MLX this process runs on.

use std::ffi::CStr;
use std::fmt;

use mlx_rs::{Array, Device, DeviceType};

use crate::error::{EngineError, op};

/// The MLX that answers in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeInfo {
    /// The version libmlx reports, such as `0.32.2`.
    pub mlx_version: String,
    /// Where the default stream runs: `cpu`, `metal` or `cuda`.
    pub backend: String,
    /// The default device as MLX prints it, such as `Device(cpu, 0)`.
    pub device: String,
    /// Whether the default device computes in float64 (MLX's GPU backends refuse it).
    pub has_float64: bool,
}

/// Asks MLX for its version and default device, and probes for float64.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn runtime_info() -> Result<RuntimeInfo, EngineError> {
    let device = op("default_device", Device::try_default())?;
    Ok(RuntimeInfo {
        mlx_version: mlx_version()?,
        backend: default_backend()?.to_owned(),
        device: device.to_string(),
        has_float64: computes_float64(),
    })
}

/// A kind of processor that MLX computes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    /// The CPU, which every MLX has.
    Cpu,
    /// The GPU of this platform: Metal on Apple's, CUDA elsewhere.
    Gpu,
}

/// Computes on a kind of processor from here on, in the place of MLX's default.
///
/// # Errors
/// [`EngineError::NoProcessor`] where this MLX has none of the kind, [`EngineError::Op`] where it throws.
pub fn compute_on(processor: Processor) -> Result<(), EngineError> {
    let kind = match processor {
        Processor::Cpu => DeviceType::Cpu,
        Processor::Gpu => DeviceType::Gpu,
    };
    if device_count(kind)? == 0 {
        let info = runtime_info()?;
        let found = format!("mlx {} on {}", info.mlx_version, info.backend);
        return Err(EngineError::NoProcessor { wanted: processor, found });
    }
    Device::set_default(&Device::new(kind, 0));
    Ok(())
}

fn device_count(kind: DeviceType) -> Result<i32, EngineError> {
    let mut count = 0;
    // SAFETY: the call writes one int that is ours, and takes nothing else.
    let status = unsafe { mlx_sys::mlx_device_count(&raw mut count, kind.into()) };
    if status == 0 {
        return Ok(count);
    }
    let message = format!("no number of devices, status {status}");
    Err(EngineError::Op { op: "device_count", message })
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        })
    }
}

/// Bytes that arrays of this process hold at the moment (`mx.get_active_memory`).
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn active_memory() -> Result<usize, EngineError> {
    op("get_active_memory", mlx_rs::memory::active_memory())
}

/// The most bytes that arrays of this process held at a time since [`reset_peak_memory`]
/// (`mx.get_peak_memory`). Memory of kernels outside of MLX is not counted.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn peak_memory() -> Result<usize, EngineError> {
    op("get_peak_memory", mlx_rs::memory::peak_memory())
}

/// Forgets the peak so far (`mx.reset_peak_memory`).
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn reset_peak_memory() -> Result<(), EngineError> {
    op("reset_peak_memory", mlx_rs::memory::reset_peak_memory())
}

/// Gives back the buffers that MLX keeps for arrays to come (`mx.clear_cache`).
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn clear_cache() -> Result<(), EngineError> {
    op("clear_cache", mlx_rs::memory::clear_cache())
}

/// `cpu`, `metal` or `cuda`.
pub(crate) fn default_backend() -> Result<&'static str, EngineError> {
    let device = op("default_device", Device::try_default())?;
    Ok(backend(op("device_type", device.get_type())?))
}

fn backend(kind: DeviceType) -> &'static str {
    match kind {
        DeviceType::Cpu => "cpu",
        // MLX has one GPU backend a platform: Metal on Apple's, CUDA elsewhere.
        DeviceType::Gpu if cfg!(target_vendor = "apple") => "metal",
        DeviceType::Gpu => "cuda",
    }
}

fn computes_float64() -> bool {
    let one = Array::from_f64(1.0);
    one.add(&one).is_ok_and(|two| two.eval().is_ok())
}

pub(crate) fn mlx_version() -> Result<String, EngineError> {
    // SAFETY: mlx_string_new makes an empty handle that mlx_version fills; the C string is read
    // before the handle is freed, and freed once, on every path.
    unsafe {
        let mut handle = mlx_sys::mlx_string_new();
        let status = mlx_sys::mlx_version(&raw mut handle);
        let data = mlx_sys::mlx_string_data(handle);
        let version = (status == 0 && !data.is_null())
            .then(|| CStr::from_ptr(data).to_string_lossy().into_owned());
        mlx_sys::mlx_string_free(handle);
        version.ok_or_else(|| EngineError::Op {
            op: "version",
            message: format!("no version, status {status}"),
        })
    }
}
