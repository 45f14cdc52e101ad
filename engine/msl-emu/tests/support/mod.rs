//! Kernels under test: how they are launched, what ref64 answers, and how far they may be from it.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod bound;
pub mod data;
pub mod plants;
pub mod sighting;
pub mod subjects;

use std::path::{Path, PathBuf};

use mlx_parity_msl_emu::{Input, Kernel, Launch, Mode, Options, Output, Source, TemplateArg};
use mlx_parity_oracles::Answer;
use mlx_parity_tensor::{Dtype, HostTensor};

/// The dtypes of every kernel.
pub const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

/// What an output must be.
#[derive(Debug, Clone)]
pub enum Expected {
    /// Within `roundoffs` float32 roundoffs of the condition, and one rounding to the output's dtype.
    Near { answer: Answer, roundoffs: f64 },
    /// These bits.
    Exact(HostTensor),
}

/// A view of an input that is not the whole of it.
#[derive(Debug, Clone)]
pub struct View {
    pub shape: Vec<usize>,
    pub strides: Vec<i64>,
    pub offset: usize,
}

/// One launch with its answers.
#[derive(Debug, Clone)]
pub struct Case {
    pub label: String,
    pub inputs: Vec<HostTensor>,
    /// Empty where all inputs are whole.
    pub views: Vec<View>,
    pub outputs: Vec<Output>,
    pub template: Vec<(String, TemplateArg)>,
    pub grid: [u32; 3],
    pub group: [u32; 3],
    pub init_value: Option<f32>,
    pub expected: Vec<Expected>,
}

impl Case {
    /// The launch of this case.
    pub fn launch(&self) -> Launch<'_> {
        let whole = || self.inputs.iter().map(Input::whole).collect();
        let viewed = || {
            self.inputs
                .iter()
                .zip(&self.views)
                .map(|(storage, view)| Input {
                    storage,
                    shape: view.shape.clone(),
                    strides: view.strides.clone(),
                    offset: view.offset,
                })
                .collect()
        };
        Launch {
            inputs: if self.views.is_empty() { whole() } else { viewed() },
            outputs: self.outputs.clone(),
            template: self.template.clone(),
            grid: self.grid,
            group: self.group,
            init_value: self.init_value,
        }
    }
}

/// A kernel of `kernels/` with its cases.
pub struct Subject {
    pub name: &'static str,
    pub inputs: &'static [&'static str],
    pub header: &'static str,
    pub row_contiguous: bool,
    pub atomic: bool,
    pub dtypes: &'static [Dtype],
    pub cases: fn(Dtype) -> Vec<Case>,
}

impl Subject {
    /// A subject of row-contiguous inputs and one output that is not atomic, in every float dtype.
    pub const fn new(
        name: &'static str,
        inputs: &'static [&'static str],
        cases: fn(Dtype) -> Vec<Case>,
    ) -> Self {
        Self {
            name,
            inputs,
            header: "",
            row_contiguous: true,
            atomic: false,
            dtypes: &FLOATS,
            cases,
        }
    }

    /// The body as it is in its file.
    pub fn body(&self) -> String {
        std::fs::read_to_string(self.path()).expect("the kernel's file")
    }

    fn path(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels").join(self.file())
    }

    /// Name of its file.
    pub fn file(&self) -> String {
        format!("{}.metal", self.name)
    }

    /// The kernel with another body.
    pub fn with_body(&self, body: String) -> Kernel {
        let mut kernel =
            Kernel::new(self.name, Source::new(self.file(), body), self.inputs, &["out"]);
        kernel.header = Source::new("header", self.header);
        kernel.ensure_row_contiguous = self.row_contiguous;
        kernel.atomic_outputs = self.atomic;
        kernel
    }

    /// The kernel.
    pub fn kernel(&self) -> Kernel {
        self.with_body(self.body())
    }
}

/// Options of a mode. Tests keep their compiled kernels in the target folder.
pub fn options(mode: Mode) -> Options {
    let mut options = Options { mode, ..Options::default() };
    if let Some(target) = option_env!("CARGO_TARGET_TMPDIR") {
        options.cache = Path::new(target).join("msl-emu");
    }
    options
}

/// The template argument that names the dtype.
pub fn of_type(dtype: Dtype) -> Vec<(String, TemplateArg)> {
    vec![("T".to_owned(), TemplateArg::Dtype(dtype))]
}

/// The same and integers.
pub fn of_type_and(dtype: Dtype, integers: &[(&str, i32)]) -> Vec<(String, TemplateArg)> {
    let mut template = of_type(dtype);
    template.extend(integers.iter().map(|&(name, n)| (name.to_owned(), TemplateArg::Int(n))));
    template
}
