//! What a kernel is: the arguments of MLX's `fast::metal_kernel`, and one launch of it.

use mlx_parity_tensor::{Dtype, HostTensor};

/// Metal text, and where the user finds it: messages and faults name `file` and count lines from `line`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The text, unmodified.
    pub text: String,
    /// File name as it is to appear in messages.
    pub file: String,
    /// Line of `file` on which the text begins, from 1.
    pub line: u32,
}

impl Source {
    /// A text that begins on line 1 of `file`.
    pub fn new(file: impl Into<String>, text: impl Into<String>) -> Self {
        Self { text: text.into(), file: file.into(), line: 1 }
    }
}

/// A template argument of the kernel function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateArg {
    /// `int NAME`
    Int(i32),
    /// `bool NAME`
    Bool(bool),
    /// `typename NAME`
    Dtype(Dtype),
}

/// A custom kernel as MLX takes it: the body of a function whose signature is generated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Name: letters, digits and `_`.
    pub name: String,
    /// Text before the function: helpers, includes.
    pub header: Source,
    /// Body of the function.
    pub body: Source,
    /// Names of the inputs, in order.
    pub inputs: Vec<String>,
    /// Names of the outputs, in order.
    pub outputs: Vec<String>,
    /// Strided inputs are copied to row-major order first (MLX's default).
    pub ensure_row_contiguous: bool,
    /// Outputs are `device atomic<T>*`.
    pub atomic_outputs: bool,
}

impl Kernel {
    /// A kernel with an empty header, `ensure_row_contiguous` and no atomic outputs.
    pub fn new(name: &str, body: Source, inputs: &[&str], outputs: &[&str]) -> Self {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Self {
            name: name.to_owned(),
            header: Source::new("header", ""),
            body,
            inputs: owned(inputs),
            outputs: owned(outputs),
            ensure_row_contiguous: true,
            atomic_outputs: false,
        }
    }
}

/// An input array: a host tensor, or a strided view of one.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    /// The elements' storage.
    pub storage: &'a HostTensor,
    /// Shape of the view.
    pub shape: Vec<usize>,
    /// Strides of the view, in elements.
    pub strides: Vec<i64>,
    /// First element of the view in the storage.
    pub offset: usize,
}

impl<'a> Input<'a> {
    /// The whole tensor, row-major.
    pub fn whole(storage: &'a HostTensor) -> Self {
        let shape = storage.shape().to_vec();
        let strides = row_major(&shape);
        Self { storage, shape, strides, offset: 0 }
    }
}

impl<'a> From<&'a HostTensor> for Input<'a> {
    fn from(storage: &'a HostTensor) -> Self {
        Self::whole(storage)
    }
}

/// Strides of a row-major array, in elements.
pub(crate) fn row_major(shape: &[usize]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1) as i64;
    }
    strides
}

/// One output to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Element type.
    pub dtype: Dtype,
    /// Shape.
    pub shape: Vec<usize>,
}

/// One call of a kernel.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// Arrays for [`Kernel::inputs`].
    pub inputs: Vec<Input<'a>>,
    /// Arrays for [`Kernel::outputs`].
    pub outputs: Vec<Output>,
    /// Template arguments, in order.
    pub template: Vec<(String, TemplateArg)>,
    /// Threads of the grid.
    pub grid: [u32; 3],
    /// Threads of a group.
    pub group: [u32; 3],
    /// Value that outputs hold before the kernel runs; without one they are uninitialised.
    pub init_value: Option<f32>,
}
