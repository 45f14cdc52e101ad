//! The kernel function around a body, as MLX writes it.
//!
//! The rules are those of MLX 0.32's `fast::metal_kernel`, read off the text that it prints with `verbose`
//! (`tests/wrapper`): inputs of fewer than eight elements are `constant`, those without axes are references;
//! `NAME_shape`, `NAME_strides` and `NAME_ndim` come after an input with axes whose names occur in the body;
//! then the outputs; then each attribute whose name occurs in the body.

use std::fmt::Write as _;

use mlx_parity_tensor::Dtype;

use crate::{EmuError, Kernel, Launch, TemplateArg};

/// Attributes that MLX looks for, in its order, with their types and how the emulator finds their values.
pub(crate) const ATTRIBUTES: [(&str, &str, &str); 20] = [
    (
        "dispatch_quadgroups_per_threadgroup",
        "uint",
        "(t.nominal_size[0] * t.nominal_size[1] * t.nominal_size[2] + 3) / 4",
    ),
    ("dispatch_simdgroups_per_threadgroup", "uint", "t.nominal_simdgroups"),
    ("dispatch_threads_per_threadgroup", "uint3", "t.nominal_size"),
    ("grid_origin", "uint3", "origin"),
    ("grid_size", "uint3", "t.grid"),
    ("quadgroup_index_in_threadgroup", "uint", "t.index / 4"),
    (
        "quadgroups_per_threadgroup",
        "uint",
        "(t.group_size[0] * t.group_size[1] * t.group_size[2] + 3) / 4",
    ),
    ("simdgroup_index_in_threadgroup", "uint", "t.simdgroup"),
    ("simdgroups_per_threadgroup", "uint", "t.simdgroups"),
    ("thread_execution_width", "uint", "emu::simd_width"),
    ("thread_index_in_quadgroup", "uint", "t.index % 4"),
    ("thread_index_in_simdgroup", "uint", "t.lane"),
    ("thread_index_in_threadgroup", "uint", "t.index"),
    ("thread_position_in_grid", "uint3", "t.position"),
    ("thread_position_in_threadgroup", "uint3", "t.local"),
    ("threadgroup_position_in_grid", "uint3", "t.group"),
    ("threadgroups_per_grid", "uint3", "t.groups"),
    ("threads_per_grid", "uint3", "t.grid"),
    ("threads_per_simdgroup", "uint", "emu::simd_width"),
    ("threads_per_threadgroup", "uint3", "t.group_size"),
];

/// Inputs of fewer elements are in the `constant` address space.
const CONSTANT_BELOW: usize = 8;

/// What a buffer of the generated function holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    Input(usize),
    Shape(usize),
    Strides(usize),
    Ndim(usize),
    Output(usize),
}

/// A buffer parameter of the generated function, in order of its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub holds: Holds,
    pub name: String,
    /// Type behind the pointer or reference, without address space and `const`.
    pub element: String,
    pub by_reference: bool,
}

/// The generated function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrapper {
    pub function: String,
    pub buffers: Vec<Buffer>,
    /// Indices into [`ATTRIBUTES`].
    pub attributes: Vec<usize>,
    /// `template <…>` line, if any, and the signature through `) {` and its newline.
    pub signature: String,
    /// `<…>` of the instantiation; empty without template arguments.
    pub arguments: String,
}

impl Wrapper {
    pub(crate) fn new(kernel: &Kernel, launch: &Launch<'_>) -> Result<Self, EmuError> {
        let buffers = buffers(kernel, launch)?;
        let body = &kernel.body.text;
        let attributes =
            (0..ATTRIBUTES.len()).filter(|&i| body.contains(ATTRIBUTES[i].0)).collect();
        let function = function_name(kernel, launch)?;
        let arguments = template_arguments(launch)?;
        let mut wrapper =
            Self { function, buffers, attributes, signature: String::new(), arguments };
        wrapper.signature = signature(&wrapper, launch);
        Ok(wrapper)
    }

    /// Whether MLX ends the parameters after buffer `index`. It counts the arrays, not the buffers: without attributes it ends them after
    /// the first output where a shape, strides or `ndim` came before.
    fn closes_after(&self, index: usize, launch: &Launch<'_>) -> bool {
        let is_output = matches!(self.buffers[index].holds, Holds::Output(_));
        is_output
            && self.attributes.is_empty()
            && index + 1 >= launch.inputs.len() + launch.outputs.len()
    }

    /// Whether the text is that of a function: see [`Wrapper::closes_after`].
    pub(crate) fn is_well_formed(&self, launch: &Launch<'_>) -> bool {
        (0..self.buffers.len() - 1).all(|i| !self.closes_after(i, launch))
    }

    /// The whole text that MLX hands to the Metal compiler after its own preamble.
    pub(crate) fn metal_text(&self, kernel: &Kernel) -> String {
        let mut text =
            format!("{}{}{}\n}}\n", kernel.header.text, self.signature, kernel.body.text);
        if !self.arguments.is_empty() {
            let Self { function, arguments, .. } = self;
            let instance = format!("{function}{arguments}");
            let _ = writeln!(
                text,
                "\ntemplate [[host_name(\"{function}\")]] [[kernel]] decltype({instance}) {instance};"
            );
        }
        text
    }
}

/// Metal's name of a dtype, as MLX spells it.
pub(crate) fn metal_type(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::Bool => "bool",
        Dtype::U8 => "uint8_t",
        Dtype::I8 => "int8_t",
        Dtype::U16 => "uint16_t",
        Dtype::I16 => "int16_t",
        Dtype::U32 => "uint32_t",
        Dtype::I32 => "int32_t",
        Dtype::U64 => "uint64_t",
        Dtype::I64 => "int64_t",
        Dtype::F16 => "float16_t",
        Dtype::Bf16 => "bfloat16_t",
        Dtype::F32 => "float",
        Dtype::F64 | Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::F8E8M0 => return None,
    })
}

fn type_of(what: &'static str, name: &str, dtype: Dtype) -> Result<&'static str, EmuError> {
    metal_type(dtype).ok_or_else(|| EmuError::Dtype { what, name: name.to_owned(), dtype })
}

fn buffers(kernel: &Kernel, launch: &Launch<'_>) -> Result<Vec<Buffer>, EmuError> {
    let mut buffers = Vec::new();
    for (i, (name, input)) in kernel.inputs.iter().zip(&launch.inputs).enumerate() {
        let element = type_of("input", name, input.storage.dtype())?.to_owned();
        let by_reference = input.shape.is_empty();
        buffers.push(Buffer { holds: Holds::Input(i), name: name.clone(), element, by_reference });
        if by_reference {
            continue;
        }
        for (holds, suffix, element) in [
            (Holds::Shape(i), "_shape", "int"),
            (Holds::Strides(i), "_strides", "int64_t"),
            (Holds::Ndim(i), "_ndim", "int"),
        ] {
            let name = format!("{name}{suffix}");
            if kernel.body.text.contains(&name) {
                let by_reference = matches!(holds, Holds::Ndim(_));
                buffers.push(Buffer { holds, name, element: element.to_owned(), by_reference });
            }
        }
    }
    for (i, (name, output)) in kernel.outputs.iter().zip(&launch.outputs).enumerate() {
        let dtype = type_of("output", name, output.dtype)?;
        let element =
            if kernel.atomic_outputs { format!("atomic<{dtype}>") } else { dtype.to_owned() };
        buffers.push(Buffer {
            holds: Holds::Output(i),
            name: name.clone(),
            element,
            by_reference: false,
        });
    }
    Ok(buffers)
}

fn is_constant(launch: &Launch<'_>, input: usize) -> bool {
    launch.inputs[input].shape.iter().product::<usize>() < CONSTANT_BELOW
}

/// `custom_kernel_NAME`, the template arguments, and the types of inputs (`s` where without axes, `c` where constant) and outputs.
fn function_name(kernel: &Kernel, launch: &Launch<'_>) -> Result<String, EmuError> {
    let mut name = format!("custom_kernel_{}", kernel.name);
    if !launch.template.is_empty() {
        name.push('_');
    }
    for (argument, value) in &launch.template {
        name.push('_');
        name.push_str(&argument_text(argument, *value)?);
    }
    for (i, (input, array)) in kernel.inputs.iter().zip(&launch.inputs).enumerate() {
        name.push('_');
        name.push_str(type_of("input", input, array.storage.dtype())?);
        if array.shape.is_empty() {
            name.push('s');
        } else if is_constant(launch, i) {
            name.push('c');
        }
    }
    for (output, array) in kernel.outputs.iter().zip(&launch.outputs) {
        name.push('_');
        name.push_str(type_of("output", output, array.dtype)?);
    }
    Ok(name)
}

fn argument_text(name: &str, value: TemplateArg) -> Result<String, EmuError> {
    Ok(match value {
        TemplateArg::Int(value) => value.to_string(),
        TemplateArg::Bool(value) => i32::from(value).to_string(),
        TemplateArg::Dtype(dtype) => type_of("template argument", name, dtype)?.to_owned(),
    })
}

fn template_arguments(launch: &Launch<'_>) -> Result<String, EmuError> {
    if launch.template.is_empty() {
        return Ok(String::new());
    }
    let texts: Result<Vec<_>, _> =
        launch.template.iter().map(|(name, value)| argument_text(name, *value)).collect();
    Ok(format!("<{}>", texts?.join(", ")))
}

fn signature(wrapper: &Wrapper, launch: &Launch<'_>) -> String {
    let mut text = String::new();
    if !launch.template.is_empty() {
        let parameters: Vec<_> = launch
            .template
            .iter()
            .map(|(name, value)| format!("{} {name}", parameter_kind(*value)))
            .collect();
        let _ = writeln!(text, "template <{}>", parameters.join(", "));
    }
    let _ = writeln!(text, "[[kernel]] void {}(", wrapper.function);
    for (i, buffer) in wrapper.buffers.iter().enumerate() {
        let end = if wrapper.closes_after(i, launch) { ") {" } else { "," };
        let _ = writeln!(text, "{}{end}", parameter(buffer, i, launch));
    }
    for (i, &attribute) in wrapper.attributes.iter().enumerate() {
        let (name, kind, _) = ATTRIBUTES[attribute];
        let end = if i + 1 == wrapper.attributes.len() { ") {" } else { "," };
        let _ = writeln!(text, "  {kind} {name} [[{name}]]{end}");
    }
    text
}

fn parameter_kind(value: TemplateArg) -> &'static str {
    match value {
        TemplateArg::Int(_) => "int",
        TemplateArg::Bool(_) => "bool",
        TemplateArg::Dtype(_) => "typename",
    }
}

fn parameter(buffer: &Buffer, index: usize, launch: &Launch<'_>) -> String {
    let space = match buffer.holds {
        Holds::Input(i) if is_constant(launch, i) => "const constant",
        Holds::Input(_) => "const device",
        Holds::Shape(_) | Holds::Strides(_) | Holds::Ndim(_) => "const constant",
        Holds::Output(_) => "device",
    };
    let sign = if buffer.by_reference { '&' } else { '*' };
    format!("  {space} {}{sign} {} [[buffer({index})]]", buffer.element, buffer.name)
}
