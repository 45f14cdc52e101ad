//! How `kernel.metal` is launched: one launch, whose first groups own positions and whose others own classes.

use crate::call::Call;
use crate::error::KernelError;
use crate::flash_cce::metal::Head;
use crate::launch::{count, integer, operand, threads};
use crate::spec::{Metal, MetalLaunch, source};

use super::ID;

/// The Metal source.
pub const METAL: Metal = Metal {
    header: source!("flash_cce/header.metal"),
    body: source!("flash_cce_vjp/kernel.metal"),
    inputs: &[
        "hidden",
        "weight",
        "weight_w",
        "weight_scales",
        "weight_biases",
        "targets",
        "lse",
        "cotangent",
    ],
    outputs: &["dhidden", "dweight"],
    row_contiguous: true,
    atomic_outputs: false,
    launch,
};

/// Positions or classes of a group.
const ROWS: usize = 16;
/// Columns that a group's simdgroups make together at a time.
const COLUMNS: usize = 64;
/// Such times of a group: sums of 1024 columns stay in registers.
const PARTS: usize = 16;
/// Threads of a group.
const THREADS: usize = 256;

fn launch(call: &Call<'_>) -> Result<MetalLaunch, KernelError> {
    let (hidden, [rows, width]) = operand(call, ID, "hidden")?;
    let mut head = Head::of(ID, call, &hidden)?;
    let dtype = hidden.data.dtype();
    let mut outputs = vec![(dtype, vec![rows, width])];
    let mut groups = rows.div_ceil(ROWS);
    if count(call, "want_dweight", 0) != 0 {
        head.defines.push(("WANT_DWEIGHT", "1".to_owned()));
        outputs.push((call.operand(ID, "weight")?.data.dtype(), vec![head.classes, width]));
        groups += head.classes.div_ceil(ROWS);
    }
    let parts = width.div_ceil(COLUMNS).clamp(1, PARTS);
    head.ints.push(("PARTS", integer(ID, parts)?));
    Ok(MetalLaunch {
        defines: head.defines,
        ints: head.ints,
        dtypes: head.dtypes,
        numbers: Vec::new(),
        outputs,
        grid: [threads(ID, groups, THREADS)?, threads(ID, width.div_ceil(parts * COLUMNS), 1)?, 1],
        group: [threads(ID, 1, THREADS)?, 1, 1],
        init_value: None,
    })
}
