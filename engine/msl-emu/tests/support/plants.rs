//! Faults planted in the kernels, and what should see each.

use mlx_parity_msl_emu::FaultKind;
use mlx_parity_tensor::Dtype;

/// What gives a fault away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// A report of one of these kinds that names the line where `Plant::at` stands.
    Report(&'static [FaultKind]),
    /// A report of this kind; there is no line to blame.
    Nowhere(FaultKind),
    /// An output too far from ref64.
    Value,
}

/// A kernel made wrong.
#[derive(Debug, Clone, Copy)]
pub struct Plant {
    pub name: &'static str,
    pub kernel: &'static str,
    pub dtype: Dtype,
    /// Index among the kernel's cases.
    pub case: usize,
    /// Replacements in the body; each text stands there once.
    pub edits: &'static [(&'static str, &'static str)],
    pub sign: Sign,
    /// Text on the line to be named: the first such line of the faulty body.
    pub at: &'static str,
}

impl Plant {
    /// The faulty body.
    pub fn body(&self, of: &str) -> String {
        self.edits.iter().fold(of.to_owned(), |body, (from, to)| {
            assert_eq!(body.matches(from).count(), 1, "{}: {from:?}", self.name);
            body.replace(from, to)
        })
    }

    /// The line to be named, from 1.
    pub fn line(&self, body: &str) -> u32 {
        let at = body.lines().position(|line| line.contains(self.at));
        at.unwrap_or_else(|| panic!("{}: no {:?}", self.name, self.at)) as u32 + 1
    }
}

const fn plant(
    name: &'static str,
    kernel: &'static str,
    case: usize,
    edits: &'static [(&'static str, &'static str)],
    kinds: &'static [FaultKind],
    at: &'static str,
) -> Plant {
    Plant { name, kernel, dtype: Dtype::F32, case, edits, sign: Sign::Report(kinds), at }
}

const fn wrong(
    name: &'static str,
    kernel: &'static str,
    case: usize,
    edits: &'static [(&'static str, &'static str)],
) -> Plant {
    Plant { name, kernel, dtype: Dtype::F32, case, edits, sign: Sign::Value, at: "" }
}

use FaultKind::{
    Arithmetic, BarrierDivergence, InactiveLane, InputWritten, IntegerOverflow, Misaligned,
    OrderDependence, OutOfBounds, Race, SimdDivergence, StackOverflow, ThreadgroupMemory,
    TimeLimit, UninitialisedRead, UnwrittenOutput,
};

const BARRIER: &str = "threadgroup_barrier(mem_flags::mem_threadgroup);";

/// Barriers and order.
pub const ORDER: [Plant; 13] = [
    plant(
        "barrier before a fold removed",
        "row_sum_threadgroup",
        4,
        &[(
            "partial[mine] = total;\nthreadgroup_barrier(mem_flags::mem_threadgroup);",
            "partial[mine] = total;",
        )],
        &[Race],
        "partial[mine] += partial[mine + width];",
    ),
    plant(
        "barrier after use of a tile removed",
        "matmul_tiled",
        3,
        &[("  }\n  threadgroup_barrier(mem_flags::mem_threadgroup);\n}", "  }\n}")],
        &[Race],
        "_tile[i][x] =",
    ),
    plant(
        "barrier before the next block removed",
        "prefix_scan",
        6,
        &[(
            "  before += block;\n  threadgroup_barrier(mem_flags::mem_threadgroup);",
            "  before += block;",
        )],
        &[Race],
        "totals[simdgroup_index_in_threadgroup] = running;",
    ),
    plant(
        "barrier of a simdgroup where the group's is needed",
        "rms_norm",
        4,
        &[(
            "threadgroup_barrier(mem_flags::mem_threadgroup);\nif",
            "simdgroup_barrier(mem_flags::mem_threadgroup);\nif",
        )],
        &[Race],
        "const float part =",
    ),
    plant(
        "barrier that orders device memory only",
        "argmax",
        4,
        &[(BARRIER, "threadgroup_barrier(mem_flags::mem_device);")],
        &[Race],
        "const bool second =",
    ),
    plant(
        "barrier in a branch",
        "softmax",
        1,
        &[(
            "threadgroup_barrier(mem_flags::mem_threadgroup);\nfloat peak",
            "if (mine < n) {\n  threadgroup_barrier(mem_flags::mem_threadgroup);\n}\nfloat peak",
        )],
        &[BarrierDivergence],
        BARRIER,
    ),
    plant(
        "threads that leave before a barrier",
        "softmax",
        1,
        &[("float best = -INFINITY;", "if (mine >= n) {\n  return;\n}\nfloat best = -INFINITY;")],
        &[BarrierDivergence],
        BARRIER,
    ),
    plant(
        "sum of a simdgroup in a branch",
        "softmax",
        1,
        &[
            ("sum = simd_sum(best", "if (mine < n) {\n  sum = simd_sum(best"),
            ("exp(best - highest));", "exp(best - highest));\n}"),
        ],
        &[SimdDivergence],
        "sum = simd_sum(best",
    ),
    plant(
        "two lanes write one output",
        "row_sum_simd",
        3,
        &[("if (lane == 0) {", "if (lane < 2) {")],
        &[Race],
        "out[row] = T(total);",
    ),
    plant(
        "two groups write one output",
        "argmax",
        3,
        &[("out[row] =", "out[row / 2] =")],
        &[Race],
        "out[row / 2] =",
    ),
    plant(
        "sums that should be atomic",
        "histogram",
        4,
        &[
            ("threadgroup atomic_uint counts[BINS];", "threadgroup uint counts[BINS];"),
            ("atomic_store_explicit(&counts[bin], 0u, memory_order_relaxed);", "counts[bin] = 0u;"),
            (
                "atomic_fetch_add_explicit(&counts[bin], 1u, memory_order_relaxed);",
                "counts[bin] += 1u;",
            ),
            ("atomic_load_explicit(&counts[bin], memory_order_relaxed);", "counts[bin];"),
        ],
        &[Race],
        "counts[bin] += 1u;",
    ),
    plant(
        "first group clears what others add to",
        "histogram",
        4,
        &[(
            "for (uint i = thread_position_in_grid.x;",
            "if (threadgroup_position_in_grid.x == 0 && mine < BINS) {\n  \
             atomic_store_explicit(&out[mine], 0u, memory_order_relaxed);\n}\n\
             for (uint i = thread_position_in_grid.x;",
        )],
        &[OrderDependence],
        "",
    ),
    plant(
        "loop that never ends",
        "row_sum_threadgroup",
        0,
        &[("width /= 2", "width /= 1")],
        &[TimeLimit],
        "",
    ),
];

/// Memory.
pub const MEMORY: [Plant; 20] = [
    plant(
        "tail not guarded",
        "swiglu",
        4,
        &[("if (start + 4 <= n) {", "if (start < n) {")],
        &[OutOfBounds],
        "(a + start)",
    ),
    plant(
        "bound that wraps below zero",
        "swiglu",
        1,
        &[("if (start + 4 <= n) {", "if (start <= n - 4) {")],
        &[OutOfBounds],
        "(a + start)",
    ),
    plant(
        "bin not clamped",
        "histogram",
        4,
        &[(
            "min(uint(float(x[i]) * float(BINS)), uint(BINS - 1));",
            "uint(float(x[i]) * float(2 * BINS));",
        )],
        &[OutOfBounds],
        "atomic_fetch_add_explicit(&counts[bin], 1u",
    ),
    plant(
        "tile one row short",
        "matmul_tiled",
        1,
        &[("b_tile[TILE][TILE + 1]", "b_tile[TILE - 1][TILE + 1]")],
        &[OutOfBounds],
        "b_tile[i][x] =",
    ),
    plant(
        "matrix of a simdgroup past its slice",
        "matmul_simdgroup",
        1,
        &[("b_slice + part_column, TILE)", "b_slice + part_column, TILE + 4)")],
        &[OutOfBounds],
        "simdgroup_load(right",
    ),
    plant(
        "scale of the next group at a boundary",
        "qmv4",
        0,
        &[("at * 8 / GROUP", "(at + 1) * 8 / GROUP")],
        &[OutOfBounds],
        "total += products",
    ),
    plant(
        "strides of the other operand",
        "strided_sum",
        1,
        &[
            ("a_shape, a_strides, a_ndim", "a_shape, b_strides, a_ndim"),
            ("b_shape, b_strides, b_ndim", "b_shape, a_strides, b_ndim"),
        ],
        &[OutOfBounds],
        "out[i] =",
    ),
    plant(
        "staging one row short",
        "matmul_tiled",
        1,
        &[("i = y; i < TILE;", "i = y; i < TILE - 1;")],
        &[UninitialisedRead],
        "lower += ",
    ),
    plant(
        "staging left from the group before",
        "argmax",
        1,
        &[(
            "if (thread_index_in_simdgroup == 0) {",
            "if (thread_index_in_simdgroup == 0 && place != 0xffffffffu) {",
        )],
        &[UninitialisedRead],
        "const bool second =",
    ),
    plant(
        "counts not cleared",
        "histogram",
        4,
        &[("  atomic_store_explicit(&counts[bin], 0u, memory_order_relaxed);\n", "")],
        &[UninitialisedRead],
        "atomic_fetch_add_explicit(&counts[bin], 1u",
    ),
    plant(
        "accumulator not set",
        "qmv4",
        3,
        &[("float total = 0.0f;", "float total;")],
        &[UninitialisedRead],
        "float total;",
    ),
    plant(
        "sum onto an output nobody set",
        "row_sum_simd",
        3,
        &[("out[row] = T(total);", "out[row] += T(total);")],
        &[UninitialisedRead],
        "out[row] += T(total);",
    ),
    Plant {
        sign: Sign::Nowhere(UnwrittenOutput),
        ..wrong(
            "last row not written",
            "matmul_tiled",
            4,
            &[("row + ROWS < m && column < n", "row + ROWS < m - 1 && column < n")],
        )
    },
    plant(
        "input written",
        "rms_norm",
        3,
        &[(
            "  out[row * n + i] = T(float(values[i])",
            "  const_cast<device T*>(values)[i] = T(1);\n  out[row * n + i] = T(float(values[i])",
        )],
        &[InputWritten],
        "const_cast<device T*>",
    ),
    plant(
        "vector read off its alignment",
        "swiglu",
        4,
        &[("(b + start))", "(b + start - (start > 0 ? 1 : 0)))")],
        &[Misaligned],
        "(b + start - ",
    ),
    plant(
        "too much threadgroup memory",
        "matmul_tiled",
        1,
        &[("a_tile[TILE][TILE + 1]", "a_tile[TILE * 32][TILE + 1]")],
        &[ThreadgroupMemory],
        "a_tile[TILE * 32]",
    ),
    Plant {
        sign: Sign::Nowhere(StackOverflow),
        ..wrong(
            "private array larger than a stack",
            "row_sum_simd",
            3,
            &[(
                "float total = 0.0f;",
                "float heap[1 << 23];\nfor (uint i = 0; i < (1u << 23); i += 64) {\n  \
                 heap[i] = float(i);\n}\nfloat total = heap[n * 64] * 0.0f;",
            )],
        )
    },
    plant(
        "lane beyond the last",
        "argmax",
        4,
        &[("ushort mask = 16;", "ushort mask = 32;")],
        &[InactiveLane],
        "const float other =",
    ),
    plant(
        "fixed point that overflows int",
        "histogram",
        4,
        &[(
            "min(uint(float(x[i]) * float(BINS)), uint(BINS - 1));",
            "uint((int(float(x[i]) * 1073741824.0f) * BINS) >> 30) % uint(BINS);",
        )],
        &[IntegerOverflow],
        "const uint bin = uint((int(",
    ),
    plant(
        "division by zero",
        "rope",
        0,
        &[("offsets[head / heads]", "offsets[head / (heads - 1)]")],
        &[Arithmetic],
        "offsets[head / (heads - 1)]",
    ),
];

/// Values that no detector of memory or order can know to be wrong.
pub const VALUES: [Plant; 12] = [
    wrong(
        "operand transposed",
        "matmul_tiled",
        1,
        &[("b[(k + i) * n + column]", "b[column * inner + k + i]")],
    ),
    wrong("half of a shuffle's lanes", "argmax", 1, &[("ushort mask = 16;", "ushort mask = 8;")]),
    wrong(
        "tail of a row left out",
        "row_sum_simd",
        3,
        &[("i = lane; i < n;", "i = lane; i < n / 32 * 32;")],
    ),
    wrong(
        "stride of half a group",
        "row_sum_threadgroup",
        5,
        &[("i += THREADS", "i += THREADS / 2")],
    ),
    wrong("scale of another group", "qmv4", 2, &[("at * 8 / GROUP", "at * 8 / (GROUP * 2)")]),
    wrong("one token too many", "attention_decode", 2, &[("token < tokens", "token <= tokens")]),
    wrong("last of ties", "argmax", 5, &[("other_place < place)", "other_place > place)")]),
    wrong("sum not rescaled", "softmax", 6, &[("sum = sum * exp(best - higher) +", "sum = sum +")]),
    wrong(
        "key of another head",
        "attention_decode",
        3,
        &[("head / (heads / kv_heads)", "head % kv_heads")],
    ),
    wrong(
        "rotation the wrong way",
        "rope",
        1,
        &[("first * cos(angle) - second", "first * cos(angle) + second")],
    ),
    Plant {
        dtype: Dtype::F16,
        ..wrong(
            "half that overflows",
            "swiglu",
            5,
            &[(
                "vec<T, 4>(x / (1.0f + exp(-x)) * gate)",
                "vec<T, 4>(x / float4(vec<T, 4>(1.0f + exp(-x))) * gate)",
            )],
        )
    },
    Plant {
        dtype: Dtype::Bf16,
        ..wrong("sum in bfloat", "qmv4", 3, &[("float total = 0.0f;", "T total = T(0);")])
    },
];

/// All of them.
pub fn plants() -> impl Iterator<Item = &'static Plant> {
    ORDER.iter().chain(&MEMORY).chain(&VALUES)
}
