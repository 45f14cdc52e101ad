//! What MLX this process runs on.

use std::ffi::CStr;

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
    let kind = op("device_type", device.get_type())?;
    Ok(RuntimeInfo {
        mlx_version: mlx_version()?,
        backend: backend(kind).to_owned(),
        device: device.to_string(),
        has_float64: computes_float64(),
    })
}

/// Bytes that arrays of this process hold at the moment (`mx.get_active_memory`).
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn active_memory() -> Result<usize, EngineError> {
    op("get_active_memory", mlx_rs::memory::active_memory())
}

/// Gives back the buffers that MLX keeps for arrays to come (`mx.clear_cache`).
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn clear_cache() -> Result<(), EngineError> {
    op("clear_cache", mlx_rs::memory::clear_cache())
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

fn mlx_version() -> Result<String, EngineError> {
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
