template <typename T>
[[kernel]] void custom_kernel_matmul_tiled__float_floatc_floatc_float(
  const constant float* a [[buffer(0)]],
  const constant int* a_shape [[buffer(1)]],
  const constant float* b [[buffer(2)]],
  const constant int* b_shape [[buffer(3)]],
  device float* out [[buffer(4)]],
  uint3 thread_position_in_threadgroup [[thread_position_in_threadgroup]],
  uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]]) {
// out = a · b with tiles of 16 × 16 staged in threadgroup memory; each of 128 threads makes two elements.
// a [m, k], b [k, n], out [m, n] of T. Grid: 16 · ceil(n / 16), 8 · ceil(m / 16); group: 16, 8.
constexpr int TILE = 16;
constexpr int ROWS = 8;
threadgroup float a_tile[TILE][TILE + 1];
threadgroup float b_tile[TILE][TILE + 1];
const int m = a_shape[0];
const int inner = a_shape[1];
const int n = b_shape[1];
const int x = thread_position_in_threadgroup.x;
const int y = thread_position_in_threadgroup.y;
const int first_row = threadgroup_position_in_grid.y * TILE;
const int column = threadgroup_position_in_grid.x * TILE + x;
float upper = 0.0f;
float lower = 0.0f;
for (int k = 0; k < inner; k += TILE) {
  for (int i = y; i < TILE; i += ROWS) {
    const int row = first_row + i;
    a_tile[i][x] = row < m && k + x < inner ? float(a[row * inner + k + x]) : 0.0f;
    b_tile[i][x] = k + i < inner && column < n ? float(b[(k + i) * n + column]) : 0.0f;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = 0; i < TILE; i++) {
    upper += a_tile[y][i] * b_tile[i][x];
    lower += a_tile[y + ROWS][i] * b_tile[i][x];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
const int row = first_row + y;
if (row < m && column < n) {
  out[row * n + column] = T(upper);
}
if (row + ROWS < m && column < n) {
  out[(row + ROWS) * n + column] = T(lower);
}

}

template [[host_name("custom_kernel_matmul_tiled__float_floatc_floatc_float")]] [[kernel]] decltype(custom_kernel_matmul_tiled__float_floatc_floatc_float<float>) custom_kernel_matmul_tiled__float_floatc_floatc_float<float>;
