//! From a case to a kernel, its inputs and what its outputs should be.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use mlx_parity_msl_emu::{Input, Kernel, Launch, Output, Source, TemplateArg};
use mlx_parity_oracles::{Answer, Tensor64};
use mlx_parity_tensor::{Dtype, HostTensor, safetensors::SafetensorsFile};
use serde::{Deserialize, Serialize};

use super::{
    MetalCase, MetalError,
    case::{MetalInput, MetalOracle, MetalOutput, TemplateValue, Trial, Values},
};
use crate::ops::{self, Argument, suite};

/// Where a case finds its files, and the emulator its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// The folder that the case's paths start from.
    pub folder: PathBuf,
    /// Where compiled kernels are kept.
    pub cache: PathBuf,
    /// Folders with headers that a kernel may include.
    pub include: Vec<PathBuf>,
}

/// A launch with all it needs, and its answers.
#[derive(Debug)]
pub struct Prepared {
    /// The kernel.
    pub kernel: Kernel,
    inputs: Vec<HostTensor>,
    outputs: Vec<Output>,
    template: Vec<(String, TemplateArg)>,
    grid: [u32; 3],
    group: [u32; 3],
    init_value: Option<f32>,
    /// What each output should be.
    pub answers: Vec<Answer>,
}

impl Prepared {
    /// The launch.
    pub fn launch(&self) -> Launch<'_> {
        Launch {
            inputs: self.inputs.iter().map(Input::whole).collect(),
            outputs: self.outputs.clone(),
            template: self.template.clone(),
            grid: self.grid,
            group: self.group,
            init_value: self.init_value,
        }
    }
}

/// Everything of one launch of a case; `id` seeds its inputs, the same for all modes.
///
/// # Errors
/// Those of [`MetalError`], other than the emulator's.
pub fn prepare(
    case: &MetalCase,
    trial: &Trial,
    id: &str,
    files: &Files,
) -> Result<Prepared, MetalError> {
    let sizes = &trial.sizes;
    let input = |input| drawn(case, input, trial, id, files);
    let inputs = case.inputs.iter().map(input).collect::<Result<Vec<_>, _>>()?;
    let output = |output: &MetalOutput| {
        let shape = extents(&output.shape, sizes)?;
        Ok::<_, MetalError>(Output { dtype: output.dtype.unwrap_or(case.dtype), shape })
    };
    let outputs = case.outputs.iter().map(output).collect::<Result<Vec<_>, _>>()?;
    let answers = answers(case, trial, files, &inputs, &outputs)?;
    let threads = |of: &[super::Extent; 3]| -> Result<[u32; 3], MetalError> {
        Ok([of[0].of(sizes)?, of[1].of(sizes)?, of[2].of(sizes)?])
    };
    Ok(Prepared {
        kernel: kernel(case, files)?,
        inputs,
        outputs,
        template: template(case, sizes)?,
        grid: threads(&case.grid)?,
        group: threads(&case.group)?,
        init_value: case.init_value,
        answers,
    })
}

fn kernel(case: &MetalCase, files: &Files) -> Result<Kernel, MetalError> {
    let read = |path: &Path| {
        let full = files.folder.join(path);
        let text =
            fs::read_to_string(&full).map_err(|error| MetalError::Read { path: full, error })?;
        Ok::<_, MetalError>(Source::new(path.display().to_string(), text))
    };
    let names: Vec<_> = case.inputs.iter().map(|input| input.name.as_str()).collect();
    let outputs: Vec<_> = case.outputs.iter().map(|output| output.name.as_str()).collect();
    let mut kernel = Kernel::new(&case.kernel, read(&case.source)?, &names, &outputs);
    if let Some(header) = &case.header {
        kernel.header = read(header)?;
    }
    kernel.ensure_row_contiguous = case.row_contiguous;
    kernel.atomic_outputs = case.atomic_outputs;
    Ok(kernel)
}

fn extents(
    shape: &[super::Extent],
    sizes: &BTreeMap<String, Argument>,
) -> Result<Vec<usize>, MetalError> {
    let extent = |extent: &super::Extent| Ok(extent.of(sizes)? as usize);
    shape.iter().map(extent).collect()
}

fn template(
    case: &MetalCase,
    sizes: &BTreeMap<String, Argument>,
) -> Result<Vec<(String, TemplateArg)>, MetalError> {
    let argument = |(name, value): (&String, &TemplateValue)| {
        let value = match value {
            TemplateValue::Dtype(dtype) => TemplateArg::Dtype(dtype.unwrap_or(case.dtype)),
            TemplateValue::Bool(value) => TemplateArg::Bool(*value),
            TemplateValue::Int(extent) => TemplateArg::Int(extent.of(sizes)? as i32),
        };
        Ok((name.clone(), value))
    };
    case.template.iter().map(argument).collect()
}

fn drawn(
    case: &MetalCase,
    input: &MetalInput,
    trial: &Trial,
    id: &str,
    files: &Files,
) -> Result<HostTensor, MetalError> {
    let dtype = input.dtype.unwrap_or(case.dtype);
    let shape = extents(&input.shape, &trial.sizes)?;
    let wrong = |error| MetalError::Input { name: input.name.clone(), error };
    let mut source =
        ops::Source::new(ops::seed_of(&format!("{id}/{}/{}", trial.inputs_name(), input.name)));
    let made = match &input.values {
        Values::Drawn => source.tensor(trial.generator, dtype, &shape),
        Values::Generator(generator) => source.tensor(*generator, dtype, &shape),
        Values::Given(values) => HostTensor::from_f64_as(dtype, shape, values),
        Values::Below(most) => {
            let most = most.of(&trial.sizes)?.max(1) as usize;
            let count: usize = shape.iter().product();
            let values: Vec<f64> = (0..count).map(|_| source.below(most) as f64).collect();
            HostTensor::from_f64_as(dtype, shape, &values)
        }
        Values::File(path) => return of_file(&files.folder.join(path), &input.name, dtype, &shape),
    };
    made.map_err(wrong)
}

fn of_file(
    path: &Path,
    name: &str,
    dtype: Dtype,
    shape: &[usize],
) -> Result<HostTensor, MetalError> {
    let tensor = SafetensorsFile::open(path)?.tensor(name)?;
    if tensor.dtype() == dtype && tensor.shape() == shape {
        return Ok(tensor);
    }
    Err(MetalError::Form {
        path: path.to_owned(),
        name: name.to_owned(),
        found: format!("{} {:?}", tensor.dtype(), tensor.shape()),
        wanted: format!("{dtype} {shape:?}"),
    })
}

fn answers(
    case: &MetalCase,
    trial: &Trial,
    files: &Files,
    inputs: &[HostTensor],
    outputs: &[Output],
) -> Result<Vec<Answer>, MetalError> {
    let answers = match (&case.oracle, case.call(trial)) {
        (MetalOracle::File(path), _) => {
            let path = files.folder.join(path);
            let answer = |(output, of): (&MetalOutput, &Output)| {
                let tensor = of_file(&path, &output.name, of.dtype, &of.shape)?;
                let value = Tensor64::from_host(&tensor);
                // The value is its own condition: plain units in the last place.
                Ok::<_, MetalError>(Answer { condition: value.map(f64::abs), value })
            };
            case.outputs.iter().zip(outputs).map(answer).collect::<Result<Vec<_>, _>>()?
        }
        (MetalOracle::Ref64 { operands, .. }, Some(call)) => {
            let named = |name: &String| case.inputs.iter().position(|input| input.name == *name);
            let operands: Vec<_> =
                operands.iter().filter_map(named).map(|at| inputs[at].clone()).collect();
            suite(call.op).reference(&call, &operands)?
        }
        (MetalOracle::Ref64 { .. }, None) => Vec::new(),
    };
    let (found, wanted) = (answers.len(), outputs.len());
    if found == wanted { Ok(answers) } else { Err(MetalError::Outputs { found, wanted }) }
}
