//! What must hold before anything is compiled.

use std::collections::BTreeSet;

use mlx_parity_tensor::Dtype;

use crate::kernel::Output;
use crate::wrapper::ATTRIBUTES;
use crate::{EmuError, Input, Kernel, Launch, Options, TemplateArg};

/// Orders that one run may try, as `runtime/main.cpp` has it.
const MAX_SEEDS: usize = 64;
/// Bytes of one buffer, at most, as `runtime/arena.h` has it.
const MAX_BYTES: usize = (1 << 30) - (1 << 20);
/// Threads of a group, at most, on Apple's GPUs.
const MAX_GROUP: u64 = 1024;

pub(crate) fn check(kernel: &Kernel, launch: &Launch<'_>) -> Result<(), EmuError> {
    names(kernel, launch)?;
    count(kernel, "inputs", kernel.inputs.len(), launch.inputs.len())?;
    count(kernel, "outputs", kernel.outputs.len(), launch.outputs.len())?;
    for (name, input) in kernel.inputs.iter().zip(&launch.inputs) {
        view(name, input)?;
        size("input", name, input.storage.dtype(), input.storage.len())?;
    }
    for (name, output) in kernel.outputs.iter().zip(&launch.outputs) {
        let Output { dtype, shape } = output;
        let len = shape
            .iter()
            .try_fold(1_usize, |len, &extent| len.checked_mul(extent))
            .unwrap_or(usize::MAX);
        size("output", name, *dtype, len)?;
    }
    for (name, value) in &launch.template {
        negative(name, *value)?;
    }
    extents(kernel, launch)
}

pub(crate) fn check_seeds(options: &Options) -> Result<(), EmuError> {
    if (1..=MAX_SEEDS).contains(&options.seeds.len()) {
        return Ok(());
    }
    Err(EmuError::Seeds { found: options.seeds.len(), limit: MAX_SEEDS })
}

fn size(what: &'static str, name: &str, dtype: Dtype, len: usize) -> Result<(), EmuError> {
    let bytes = len.saturating_mul(dtype.size());
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(EmuError::TooLarge { what, name: name.to_owned(), bytes, limit: MAX_BYTES })
}

fn names(kernel: &Kernel, launch: &Launch<'_>) -> Result<(), EmuError> {
    // MLX puts the kernel's name behind a prefix, so a digit may begin it.
    if kernel.name.is_empty()
        || !kernel.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    {
        return Err(EmuError::Name { what: "kernel", name: kernel.name.clone() });
    }
    let mut seen = BTreeSet::new();
    let template = launch.template.iter().map(|(name, _)| ("template argument", name));
    let inputs = kernel.inputs.iter().map(|name| ("input", name));
    let outputs = kernel.outputs.iter().map(|name| ("output", name));
    for (what, name) in template.chain(inputs).chain(outputs) {
        if !is_identifier(name) {
            return Err(EmuError::Name { what, name: name.clone() });
        }
        if !seen.insert(name) || ATTRIBUTES.iter().any(|attribute| attribute.0 == name) {
            return Err(EmuError::Taken { what, name: name.clone() });
        }
    }
    Ok(())
}

/// Whether `name` can name a variable.
pub(crate) fn is_identifier(name: &str) -> bool {
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    begins && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// MLX writes the arguments into the function's name, where a sign cannot stand.
fn negative(name: &str, value: TemplateArg) -> Result<(), EmuError> {
    match value {
        TemplateArg::Int(value) if value < 0 => {
            Err(EmuError::Negative { name: name.to_owned(), value })
        }
        _ => Ok(()),
    }
}

fn count(kernel: &Kernel, what: &'static str, wanted: usize, found: usize) -> Result<(), EmuError> {
    if wanted == found {
        return Ok(());
    }
    Err(EmuError::Count { kernel: kernel.name.clone(), what, wanted, found })
}

fn view(name: &str, input: &Input<'_>) -> Result<(), EmuError> {
    let len = input.storage.len();
    let fits = input.shape.len() == input.strides.len()
        && reach(input).is_some_and(|(low, high)| low >= 0 && high < len as i128);
    if fits || (input.shape.contains(&0) && input.shape.len() == input.strides.len()) {
        return Ok(());
    }
    Err(EmuError::View {
        name: name.to_owned(),
        shape: input.shape.clone(),
        strides: input.strides.clone(),
        offset: input.offset,
        len,
    })
}

/// Lowest and highest element of the storage that the view touches; `None` where there is none.
pub(crate) fn reach(input: &Input<'_>) -> Option<(i128, i128)> {
    let (mut low, mut high) = (input.offset as i128, input.offset as i128);
    for (&extent, &stride) in input.shape.iter().zip(&input.strides) {
        let step = (extent as i128)
            .checked_sub(1)
            .filter(|&last| last >= 0)?
            .checked_mul(i128::from(stride))?;
        low += step.min(0);
        high += step.max(0);
    }
    Some((low, high))
}

fn extents(kernel: &Kernel, launch: &Launch<'_>) -> Result<(), EmuError> {
    for (what, found) in [("grid", launch.grid), ("group", launch.group)] {
        if found.contains(&0) {
            return Err(EmuError::Extent { kernel: kernel.name.clone(), what, found });
        }
    }
    let found = threads_per_group(launch)
        .iter()
        .map(|&extent| u64::from(extent))
        .fold(1, u64::saturating_mul);
    if found > MAX_GROUP {
        return Err(EmuError::GroupTooLarge {
            kernel: kernel.name.clone(),
            found,
            limit: MAX_GROUP,
        });
    }
    Ok(())
}

/// The group, nowhere larger than the grid: as MLX dispatches it.
pub(crate) fn threads_per_group(launch: &Launch<'_>) -> [u32; 3] {
    std::array::from_fn(|axis| launch.group[axis].min(launch.grid[axis]))
}
