#include <metal_simdgroup_matrix>
template <typename T>
[[kernel]] void custom_kernel_matmul_simdgroup__float_floatc_floatc_float(
  const constant float* a [[buffer(0)]],
  const constant int* a_shape [[buffer(1)]],
  const constant float* b [[buffer(2)]],
  const constant int* b_shape [[buffer(3)]],
  device float* out [[buffer(4)]],
  uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]],
  uint3 thread_position_in_threadgroup [[thread_position_in_threadgroup]],
  uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]]) {
// out = a · b: four simdgroups make a tile of 16 × 16, each one 8 × 8 matrix of it, over staged slices of 16 × 8.
// a [m, k], b [k, n], out [m, n] of T. Grid: 128 · ceil(n / 16), ceil(m / 16); group: 128.
constexpr int TILE = 16;
constexpr int DEPTH = 8;
constexpr int THREADS = 128;
threadgroup T a_slice[TILE * DEPTH];
threadgroup T b_slice[DEPTH * TILE];
threadgroup float result[TILE * TILE];
const int m = a_shape[0];
const int inner = a_shape[1];
const int n = b_shape[1];
const int mine = thread_position_in_threadgroup.x;
const int first_row = threadgroup_position_in_grid.y * TILE;
const int first_column = threadgroup_position_in_grid.x * TILE;
const int part_row = simdgroup_index_in_threadgroup / 2 * 8;
const int part_column = simdgroup_index_in_threadgroup % 2 * 8;
simdgroup_matrix<T, 8, 8> left;
simdgroup_matrix<T, 8, 8> right;
simdgroup_matrix<float, 8, 8> sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
for (int k = 0; k < inner; k += DEPTH) {
  for (int i = mine; i < TILE * DEPTH; i += THREADS) {
    const int row = first_row + i / DEPTH;
    const int a_column = k + i % DEPTH;
    a_slice[i] = row < m && a_column < inner ? a[row * inner + a_column] : T(0);
    const int b_row = k + i / TILE;
    const int column = first_column + i % TILE;
    b_slice[i] = b_row < inner && column < n ? b[b_row * n + column] : T(0);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_load(left, a_slice + part_row * DEPTH, DEPTH);
  simdgroup_load(right, b_slice + part_column, TILE);
  simdgroup_multiply_accumulate(sum, left, right, sum);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
simdgroup_store(sum, result + part_row * TILE + part_column, TILE);
threadgroup_barrier(mem_flags::mem_threadgroup);
for (int i = mine; i < TILE * TILE; i += THREADS) {
  const int row = first_row + i / TILE;
  const int column = first_column + i % TILE;
  if (row < m && column < n) {
    out[row * n + column] = T(result[i]);
  }
}

}

template [[host_name("custom_kernel_matmul_simdgroup__float_floatc_floatc_float")]] [[kernel]] decltype(custom_kernel_matmul_simdgroup__float_floatc_floatc_float<float>) custom_kernel_matmul_simdgroup__float_floatc_floatc_float<float>;
