//! How `kernel.metal` is launched.

use mlx_parity_tensor::Dtype;

use crate::call::{Call, View};
use crate::error::KernelError;
use crate::launch::{in_device_memory, integer, operand, threads};
use crate::spec::{Metal, MetalLaunch, source};

use super::ID;

/// The Metal source.
pub const METAL: Metal = Metal {
    header: source!("flash_cce/header.metal"),
    body: source!("flash_cce/kernel.metal"),
    inputs: &["hidden", "weight", "weight_w", "weight_scales", "weight_biases", "targets"],
    outputs: &["loss", "lse"],
    row_contiguous: true,
    atomic_outputs: false,
    launch,
};

/// Positions of a group.
const ROWS: usize = 32;

fn launch(call: &Call<'_>) -> Result<MetalLaunch, KernelError> {
    let (hidden, [rows, _]) = operand(call, ID, "hidden")?;
    let head = Head::of(ID, call, &hidden)?;
    Ok(MetalLaunch {
        defines: head.defines,
        ints: head.ints,
        dtypes: head.dtypes,
        numbers: Vec::new(),
        outputs: vec![(Dtype::F32, vec![rows]), (Dtype::F32, vec![rows])],
        grid: [threads(ID, rows.div_ceil(ROWS), 4 * ROWS)?, 1, 1],
        group: [threads(ID, 1, 4 * ROWS)?, 1, 1],
        init_value: None,
    })
}

/// What forward and backward are compiled for, and the head as its operands show it.
pub struct Head {
    /// `PACKED` where the weight is.
    pub defines: Vec<(&'static str, String)>,
    /// `BITS` and `GROUP` of a packed weight, 0 of a plain one.
    pub ints: Vec<(&'static str, i32)>,
    /// `T` of the hidden states, `W` of the weight or its scales.
    pub dtypes: Vec<(&'static str, Dtype)>,
    /// Classes.
    pub classes: usize,
}

impl Head {
    /// The head of a call.
    ///
    /// # Errors
    /// As [`operand`] and [`integer`].
    pub fn of(
        kernel: &'static str,
        call: &Call<'_>,
        hidden: &View<'_>,
    ) -> Result<Self, KernelError> {
        let packed = call.find("weight").is_none();
        let (weight, [classes, _]) =
            operand(call, kernel, if packed { "weight_w" } else { "weight" })?;
        let (mut defines, mut dtype) = (Vec::new(), weight.data.dtype());
        let (mut bits, mut group) = (0, 0);
        if packed {
            defines.push(("PACKED", "1".to_owned()));
            dtype = call.operand(kernel, "weight_scales")?.data.dtype();
            bits = integer(kernel, call.param(kernel, "bits")? as usize)?;
            if !matches!(bits, 2 | 4 | 8) {
                return Err(KernelError::Unsupported {
                    kernel,
                    found: format!("codes of {bits} bits"),
                    wanted: "codes that no word cuts: 2, 4 or 8".to_owned(),
                });
            }
            group = integer(kernel, call.param(kernel, "group")? as usize)?;
        }
        for name in ["hidden", if packed { "weight_scales" } else { "weight" }] {
            let view = call.operand(kernel, name)?;
            in_device_memory(kernel, name, &view)?;
        }
        Ok(Self {
            defines,
            ints: vec![("BITS", bits), ("GROUP", group)],
            dtypes: vec![("T", hidden.data.dtype()), ("W", dtype)],
            classes,
        })
    }
}
