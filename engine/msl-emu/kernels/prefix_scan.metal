// Running sum along each row, in blocks of 128: within simdgroups, across the four of them, and on to the next block.
// x [rows, n] of T; out as x. Grid: 128, rows; group: 128.
constexpr uint THREADS = 128;
constexpr uint SIMDGROUPS = THREADS / 32;
threadgroup float totals[SIMDGROUPS];
const uint n = x_shape[1];
const uint row = threadgroup_position_in_grid.y;
const uint mine = thread_position_in_threadgroup.x;
float before = 0.0f;
for (uint start = 0; start < n; start += THREADS) {
  const uint i = start + mine;
  const float value = i < n ? float(x[row * n + i]) : 0.0f;
  float running = simd_prefix_inclusive_sum(value);
  if (thread_index_in_simdgroup == 31) {
    totals[simdgroup_index_in_threadgroup] = running;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float block = 0.0f;
  for (uint j = 0; j < SIMDGROUPS; j++) {
    if (j == simdgroup_index_in_threadgroup) {
      running += block;
    }
    block += totals[j];
  }
  if (i < n) {
    out[row * n + i] = T(before + running);
  }
  before += block;
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
