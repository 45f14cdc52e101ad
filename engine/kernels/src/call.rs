//! One call of a kernel: operands lent by whoever holds them, numbers, and memory for the results.

use mlx_parity_tensor::{Dtype, HostTensor, TensorError};

use crate::error::KernelError;

/// Elements of one dtype; half types as their bits.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the dtypes by their names")]
pub enum Data<'a> {
    F32(&'a [f32]),
    F16(&'a [u16]),
    Bf16(&'a [u16]),
    U32(&'a [u32]),
    I32(&'a [i32]),
}

impl Data<'_> {
    /// The dtype.
    pub const fn dtype(&self) -> Dtype {
        match self {
            Self::F32(_) => Dtype::F32,
            Self::F16(_) => Dtype::F16,
            Self::Bf16(_) => Dtype::Bf16,
            Self::U32(_) => Dtype::U32,
            Self::I32(_) => Dtype::I32,
        }
    }

    /// Elements there are.
    pub const fn len(&self) -> usize {
        match self {
            Self::F32(of) => of.len(),
            Self::F16(of) | Self::Bf16(of) => of.len(),
            Self::U32(of) => of.len(),
            Self::I32(of) => of.len(),
        }
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An array as it lies in memory: its first element is the first of `data`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View<'a> {
    /// The memory, from the first element on. Empty, but of its dtype, where a call is planned whose operands are not
    /// computed yet: what [`Candidate::supported`](crate::Candidate::supported), `class` and `results` say of it rests on
    /// shapes and dtypes.
    pub data: Data<'a>,
    /// Extents.
    pub shape: &'a [usize],
    /// Elements from one index to the next, along each axis. Never negative.
    pub strides: &'a [usize],
}

impl View<'_> {
    /// Whether the elements lie one behind the other, row-major.
    pub fn is_contiguous(&self) -> bool {
        let mut wanted = 1;
        self.shape.iter().zip(self.strides).rev().all(|(&extent, &stride)| {
            let fits = extent <= 1 || stride == wanted;
            wanted *= extent;
            fits
        })
    }

    /// A row-major copy.
    ///
    /// # Errors
    /// [`TensorError::WrongLength`] where the memory does not reach as far as the strides say.
    pub fn to_host(&self) -> Result<HostTensor, TensorError> {
        let places = self.places();
        match self.data {
            Data::F32(of) => HostTensor::from_f32(self.shape, &gather(of, &places)),
            Data::F16(of) => HostTensor::from_f16_bits(self.shape, &gather(of, &places)),
            Data::Bf16(of) => HostTensor::from_bf16_bits(self.shape, &gather(of, &places)),
            Data::U32(of) => HostTensor::from_u32(self.shape, &gather(of, &places)),
            Data::I32(of) => HostTensor::from_i32(self.shape, &gather(of, &places)),
        }
    }

    /// Where each element lies, row-major.
    fn places(&self) -> Vec<usize> {
        let mut places = vec![0; usize::from(!self.shape.contains(&0))];
        for (&extent, &stride) in self.shape.iter().zip(self.strides) {
            places =
                places.iter().flat_map(|at| (0..extent).map(move |i| at + i * stride)).collect();
        }
        places
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn gather<T: Copy>(of: &[T], places: &[usize]) -> Vec<T> {
    places.iter().filter_map(|&at| of.get(at).copied()).collect()
}

/// Memory that owns its elements.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the dtypes by their names")]
pub enum Buffer {
    F32(Vec<f32>),
    F16(Vec<u16>),
    Bf16(Vec<u16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
}

impl Buffer {
    /// `len` zeros; `None` for a dtype that no kernel takes.
    pub fn zeros(dtype: Dtype, len: usize) -> Option<Self> {
        Some(match dtype {
            Dtype::F32 => Self::F32(vec![0.0; len]),
            Dtype::F16 => Self::F16(vec![0; len]),
            Dtype::Bf16 => Self::Bf16(vec![0; len]),
            Dtype::U32 => Self::U32(vec![0; len]),
            Dtype::I32 => Self::I32(vec![0; len]),
            _ => return None,
        })
    }

    /// The elements.
    pub fn data(&self) -> Data<'_> {
        match self {
            Self::F32(of) => Data::F32(of),
            Self::F16(of) => Data::F16(of),
            Self::Bf16(of) => Data::Bf16(of),
            Self::U32(of) => Data::U32(of),
            Self::I32(of) => Data::I32(of),
        }
    }

    /// The elements, to be written.
    pub fn out(&mut self) -> Out<'_> {
        match self {
            Self::F32(of) => Out::F32(of),
            Self::F16(of) => Out::F16(of),
            Self::Bf16(of) => Out::Bf16(of),
            Self::U32(_) | Self::I32(_) => unreachable!("results are floats"),
        }
    }

    /// The first `product(shape)` elements as a tensor.
    ///
    /// # Errors
    /// [`TensorError::WrongLength`] where there are not as many.
    pub fn to_host(&self, shape: &[usize]) -> Result<HostTensor, TensorError> {
        match self {
            Self::F32(of) => HostTensor::from_f32(shape, of),
            Self::F16(of) => HostTensor::from_f16_bits(shape, of),
            Self::Bf16(of) => HostTensor::from_bf16_bits(shape, of),
            Self::U32(of) => HostTensor::from_u32(shape, of),
            Self::I32(of) => HostTensor::from_i32(shape, of),
        }
    }
}

/// Memory for one result, row-major, of exactly its length.
#[derive(Debug)]
#[expect(missing_docs, reason = "the dtypes by their names")]
pub enum Out<'a> {
    F32(&'a mut [f32]),
    F16(&'a mut [u16]),
    Bf16(&'a mut [u16]),
}

/// An operand that owns its memory: what trials are made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Operand {
    /// Its name.
    pub name: &'static str,
    /// The memory; `offset` elements stand before the first one of the view.
    pub buffer: Buffer,
    /// First element of the view in the memory.
    pub offset: usize,
    /// Extents of the view.
    pub shape: Vec<usize>,
    /// Strides of the view, in elements.
    pub strides: Vec<usize>,
}

impl Operand {
    /// A whole buffer, row-major.
    pub fn new(name: &'static str, shape: impl Into<Vec<usize>>, buffer: Buffer) -> Self {
        let shape = shape.into();
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis].max(1);
        }
        Self { name, buffer, offset: 0, shape, strides }
    }

    /// The view.
    pub fn view(&self) -> View<'_> {
        fn from<T>(of: &[T], offset: usize) -> &[T] {
            of.get(offset..).unwrap_or_default()
        }
        let data = match &self.buffer {
            Buffer::F32(of) => Data::F32(from(of, self.offset)),
            Buffer::F16(of) => Data::F16(from(of, self.offset)),
            Buffer::Bf16(of) => Data::Bf16(from(of, self.offset)),
            Buffer::U32(of) => Data::U32(from(of, self.offset)),
            Buffer::I32(of) => Data::I32(from(of, self.offset)),
        };
        View { data, shape: &self.shape, strides: &self.strides }
    }
}

/// Numbers of a call, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params(pub Vec<(&'static str, f64)>);

impl Params {
    /// A number, where the call has it.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// One call of a kernel.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Call<'a> {
    /// Operands by name, that of the activations first.
    pub operands: Vec<(&'static str, View<'a>)>,
    /// Numbers by name.
    pub params: Params,
}

impl<'a> Call<'a> {
    /// An operand.
    ///
    /// # Errors
    /// [`KernelError::Malformed`] where the call has none of the name.
    pub fn operand(&self, kernel: &'static str, name: &str) -> Result<View<'a>, KernelError> {
        self.find(name)
            .ok_or_else(|| KernelError::Malformed { kernel, what: format!("no operand `{name}`") })
    }

    /// An operand that need not be there.
    pub fn find(&self, name: &str) -> Option<View<'a>> {
        self.operands.iter().find(|(known, _)| *known == name).map(|(_, view)| *view)
    }

    /// The dtype of activations: that of the first operand.
    ///
    /// # Errors
    /// [`KernelError::Malformed`] for a call without operands.
    pub fn dtype(&self, kernel: &'static str) -> Result<Dtype, KernelError> {
        let first = self.operands.first();
        first
            .map(|(_, view)| view.data.dtype())
            .ok_or_else(|| KernelError::Malformed { kernel, what: "no operand".to_owned() })
    }

    /// A number.
    ///
    /// # Errors
    /// [`KernelError::Malformed`] where the call has none of the name.
    pub fn param(&self, kernel: &'static str, name: &str) -> Result<f64, KernelError> {
        let missing = || KernelError::Malformed { kernel, what: format!("no number `{name}`") };
        self.params.get(name).ok_or_else(missing)
    }
}
