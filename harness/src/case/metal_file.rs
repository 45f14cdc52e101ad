//! Metal cases: `goldens/cases/metal/<file>.toml`, one case for each table and dtype.

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
};

use mlx_parity_msl_emu::Mode;
use mlx_parity_oracles::ops::Op;
use mlx_parity_tensor::Dtype;
use serde::Deserialize;

use super::{Case, CaseError, Kind, toml_dir};
use crate::{
    metal::{Extent, MetalCase, MetalInput, MetalOracle, MetalOutput, TemplateValue, Values},
    ops::{Argument, Generator, Grid},
    row::Tier,
};

/// Modes of a case that names none: the strict one, and the one that sees real races.
const MODES: [Mode; 2] = [Mode::Fibers, Mode::Threads];

/// Orders of threads and groups that are tried where a case does not say how many.
const ORDERS: u64 = 3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFile {
    #[serde(default)]
    case: Vec<WireMetal>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireMetal {
    name: String,
    source: PathBuf,
    header: Option<PathBuf>,
    /// The kernel's name; that of its file without.
    kernel: Option<String>,
    /// What `T` stands for, each a case of its own.
    dtypes: Vec<Dtype>,
    /// Every combination of one value for each size is a launch; several grids are joined.
    #[serde(default)]
    sizes: Vec<Grid>,
    #[serde(default)]
    generators: Vec<Generator>,
    inputs: Vec<WireInput>,
    outputs: Vec<WireOutput>,
    #[serde(default)]
    template: BTreeMap<String, WireTemplate>,
    grid: [Extent; 3],
    group: [Extent; 3],
    init_value: Option<f32>,
    #[serde(default)]
    atomic_outputs: bool,
    #[serde(default = "yes")]
    row_contiguous: bool,
    modes: Option<Vec<Mode>>,
    orders: Option<u64>,
    oracle: WireOracle,
    units: Option<f64>,
    #[serde(default)]
    quick: bool,
    why: String,
}

const fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireInput {
    name: String,
    dtype: Option<Dtype>,
    #[serde(default)]
    shape: Vec<Extent>,
    generator: Option<Generator>,
    values: Option<Vec<f64>>,
    below: Option<Extent>,
    file: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireOutput {
    name: String,
    dtype: Option<Dtype>,
    shape: Vec<Extent>,
}

/// `"dtype"` (the case's), `"bf16"`, `true`, or an extent.
#[derive(Deserialize)]
#[serde(untagged)]
enum WireTemplate {
    Bool(bool),
    Dtype(Dtype),
    Number(u32),
    Text(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireOracle {
    op: Option<String>,
    #[serde(default)]
    operands: Vec<String>,
    #[serde(default)]
    arguments: BTreeMap<String, Argument>,
    file: Option<PathBuf>,
}

/// Reads one file.
///
/// # Errors
/// A file that is not as it should be: the message names it, the case and the fix.
pub fn load(path: &Path) -> Result<Vec<Case>, CaseError> {
    let wire: WireFile = toml_dir::read(path)?;
    let mut cases = Vec::new();
    for case in wire.case {
        toml_dir::check_name(path, &case.name)?;
        let name = case.name.clone();
        let found = validate(path, case);
        cases.extend(found.map_err(|message| CaseError::Invalid {
            path: path.into(),
            name,
            message,
        })?);
    }
    Ok(cases)
}

fn validate(path: &Path, wire: WireMetal) -> Result<Vec<Case>, String> {
    for (what, empty) in [
        ("dtypes", wire.dtypes.is_empty()),
        ("outputs", wire.outputs.is_empty()),
        ("modes", wire.modes.as_ref().is_some_and(Vec::is_empty)),
        ("why", wire.why.trim().is_empty()),
    ] {
        if empty {
            return Err(format!("`{what}` is empty"));
        }
    }
    let units = wire.units.filter(|units| !(units.is_finite() && *units >= 0.0));
    if let Some(units) = units {
        return Err(format!("`units` is {units}; wanted a finite number that is not negative"));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let (name, why, dtypes) = (wire.name.clone(), wire.why.clone(), wire.dtypes.clone());
    let metal = metal(wire)?;
    let case = |dtype: Dtype| Case {
        id: format!("{}/{stem}/{name}/{}", Tier::Metal.name(), dtype.name()),
        tier: Tier::Metal,
        why: why.clone(),
        kind: Kind::Metal(MetalCase { dtype, ..metal.clone() }),
    };
    Ok(dtypes.into_iter().map(case).collect())
}

/// The case in whatever dtype.
fn metal(wire: WireMetal) -> Result<MetalCase, String> {
    let inputs = wire.inputs.into_iter().map(input).collect::<Result<Vec<_>, _>>()?;
    let outputs: Vec<_> = wire.outputs.into_iter().map(output).collect();
    unique(inputs.iter().map(|input| &input.name).chain(outputs.iter().map(|out| &out.name)))?;
    let oracle = oracle(wire.oracle, &inputs)?;
    if matches!(oracle, MetalOracle::File(_)) && wire.units.is_none() {
        return Err("`units` is missing: how far an output may be from the file's, in units in \
                    the last place; 0 is bit for bit"
            .to_owned());
    }
    let stem = wire.source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let template = wire.template.into_iter().map(|(name, value)| Ok((name, template(value)?)));
    Ok(MetalCase {
        kernel: wire.kernel.unwrap_or(stem),
        source: wire.source,
        header: wire.header,
        dtype: Dtype::F32,
        sizes: if wire.sizes.is_empty() { vec![Grid::default()] } else { wire.sizes },
        generators: if wire.generators.is_empty() {
            vec![Generator::Random]
        } else {
            wire.generators
        },
        inputs,
        outputs,
        template: template.collect::<Result<_, String>>()?,
        grid: wire.grid,
        group: wire.group,
        init_value: wire.init_value,
        atomic_outputs: wire.atomic_outputs,
        row_contiguous: wire.row_contiguous,
        modes: wire.modes.unwrap_or_else(|| MODES.to_vec()),
        orders: wire.orders.unwrap_or(ORDERS),
        oracle,
        units: wire.units,
        quick: wire.quick,
    })
}

fn unique<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(format!("`{name}` names two arrays"));
        }
    }
    Ok(())
}

fn input(wire: WireInput) -> Result<MetalInput, String> {
    let WireInput { name, dtype, shape, generator, values, below, file } = wire;
    let given = [generator.is_some(), values.is_some(), below.is_some(), file.is_some()];
    if given.into_iter().filter(|&given| given).count() > 1 {
        return Err(format!(
            "input `{name}`: wanted one of `generator`, `values`, `below` and `file`, or none"
        ));
    }
    let from_generator = generator.map(Values::Generator);
    let values = values.map(Values::Given).or(below.map(Values::Below)).or(file.map(Values::File));
    let values = values.or(from_generator).unwrap_or(Values::Drawn);
    Ok(MetalInput { name, dtype, shape, values })
}

fn output(WireOutput { name, dtype, shape }: WireOutput) -> MetalOutput {
    MetalOutput { name, dtype, shape }
}

fn template(wire: WireTemplate) -> Result<TemplateValue, String> {
    Ok(match wire {
        WireTemplate::Bool(value) => TemplateValue::Bool(value),
        WireTemplate::Dtype(dtype) => TemplateValue::Dtype(Some(dtype)),
        WireTemplate::Text(text) if text == "dtype" => TemplateValue::Dtype(None),
        WireTemplate::Number(number) => TemplateValue::Int(number.into()),
        WireTemplate::Text(text) => {
            TemplateValue::Int(text.parse().map_err(|error| format!("template: {error}"))?)
        }
    })
}

fn oracle(wire: WireOracle, inputs: &[MetalInput]) -> Result<MetalOracle, String> {
    let WireOracle { op, operands, arguments, file } = wire;
    let op = match (op, file) {
        (Some(op), None) => op,
        (None, Some(file)) if operands.is_empty() && arguments.is_empty() => {
            return Ok(MetalOracle::File(file));
        }
        _ => return Err("`oracle` wants `op` with its operands and arguments, or `file`".into()),
    };
    if Op::parse(&op).is_none() {
        return Err(format!("`{op}` is not an op of the table"));
    }
    let known = |name: &String| inputs.iter().any(|input| input.name == *name);
    if let Some(unknown) = operands.iter().find(|name| !known(name)) {
        return Err(format!("operand `{unknown}` of the oracle is no input"));
    }
    let all = || inputs.iter().map(|input| input.name.clone()).collect();
    let operands = if operands.is_empty() { all() } else { operands };
    Ok(MetalOracle::Ref64 { op, operands, arguments })
}
