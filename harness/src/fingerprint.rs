//! Where an answer was computed. Two answers are comparable bit for bit only when these agree.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Environment variables that change which kernels MLX runs or how it splits graphs.
pub const KERNEL_VARIABLES: [&str; 8] = [
    "MLX_BFS_MAX_WIDTH",
    "MLX_DISABLE_COMPILE",
    "MLX_ENABLE_TF32",
    "MLX_MAX_MB_PER_BUFFER",
    "MLX_MAX_OPS_PER_BUFFER",
    "MLX_METAL_FAST_SYNCH",
    "MLX_METAL_GPU_ARCH",
    "MLX_SDPA_BLOCKS",
];

/// The place of a computation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// Version of MLX, `0.32.2`.
    pub mlx: String,
    /// `cpu`, `metal` or `cuda`.
    pub backend: String,
    /// Processor architecture, `x86_64`, `aarch64`.
    pub arch: String,
    /// `linux`, `macos`.
    pub os: String,
    /// The chip's own name.
    pub chip: String,
    /// Those of [`KERNEL_VARIABLES`] that are set.
    pub env: BTreeMap<String, String>,
}

impl Fingerprint {
    /// The fingerprint of this machine for an MLX of the given version and backend.
    pub fn here(mlx: &str, backend: &str) -> Self {
        let env = KERNEL_VARIABLES
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
            .collect();
        Self {
            mlx: mlx.to_owned(),
            backend: backend.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            os: std::env::consts::OS.to_owned(),
            chip: chip_name(),
            env,
        }
    }

    /// The class of machines that share goldens, as a folder name.
    ///
    /// MLX's CPU wheel uses a portable BLAS, so all x86-64 processors form one class; a GPU's
    /// kernels depend on the chip.
    pub fn class(&self) -> String {
        let place = match self.backend.as_str() {
            "cpu" => self.arch.clone(),
            _ => slug(&self.chip),
        };
        format!("mlx-{}-{}-{place}", self.mlx, self.backend)
    }

    /// The chip's name as a part of a file name.
    pub fn chip_slug(&self) -> String {
        slug(&self.chip)
    }

    /// Can an answer from there be compared bit for bit with one from here? Says why not.
    pub fn unfit(&self, here: &Self) -> Option<String> {
        if self.class() != here.class() {
            return Some(format!("frozen on {}, this is {}", self.class(), here.class()));
        }
        (self.env != here.env)
            .then(|| format!("frozen with MLX variables {:?}, here {:?}", self.env, here.env))
    }
}

fn slug(text: &str) -> String {
    let dashed: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    dashed.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

fn chip_name() -> String {
    let name = if cfg!(target_os = "macos") {
        std::process::Command::new("sysctl")
            .args(["-n", "machdep.cpu.brand_string"])
            .output()
            .ok()
            .and_then(|out| String::from_utf8(out.stdout).ok())
    } else {
        std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.to_owned())
        })
    };
    name.map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(backend: &str, arch: &str, chip: &str) -> Fingerprint {
        Fingerprint {
            mlx: "0.32.2".into(),
            backend: backend.into(),
            arch: arch.into(),
            os: "linux".into(),
            chip: chip.into(),
            env: BTreeMap::new(),
        }
    }

    #[test]
    fn cpus_of_one_architecture_share_goldens_and_gpus_do_not() {
        let (epyc, xeon) = (on("cpu", "x86_64", "EPYC 7B13"), on("cpu", "x86_64", "Xeon"));
        assert_eq!(epyc.unfit(&xeon), None);
        assert!(epyc.unfit(&on("cpu", "aarch64", "EPYC 7B13")).is_some());
        let (m1, m4) = (on("metal", "aarch64", "Apple M1 Max"), on("metal", "aarch64", "Apple M4"));
        assert_eq!(m1.class(), "mlx-0.32.2-metal-apple-m1-max");
        assert!(m1.unfit(&m4).is_some());
    }

    #[test]
    fn another_version_or_a_kernel_variable_is_foreign() {
        let here = on("cpu", "x86_64", "EPYC");
        let newer = Fingerprint { mlx: "0.33.0".into(), ..here.clone() };
        assert!(newer.unfit(&here).is_some());
        let mut tf32 = here.clone();
        tf32.env.insert("MLX_ENABLE_TF32".into(), "0".into());
        assert!(tf32.unfit(&here).unwrap().contains("MLX_ENABLE_TF32"));
    }
}
