// Softmax of each row in one pass for its maximum and sum, which is rescaled as the maximum grows
// (Milakov and Gimelshein, 2018), and one to write. One group of 128 threads a row.
// x [rows, n] of T; out [rows, n] of T. Grid: 128, rows; group: 128.
constexpr uint THREADS = 128;
constexpr uint SIMDGROUPS = THREADS / 32;
threadgroup float maxima[SIMDGROUPS];
threadgroup float sums[SIMDGROUPS];
const uint n = x_shape[1];
const uint row = threadgroup_position_in_grid.y;
const uint mine = thread_position_in_threadgroup.x;
const device T* values = x + row * n;
float best = -INFINITY;
float sum = 0.0f;
for (uint i = mine; i < n; i += THREADS) {
  const float value = float(values[i]);
  const float higher = max(best, value);
  sum = sum * exp(best - higher) + exp(value - higher);
  best = higher;
}
const float highest = simd_max(best);
sum = simd_sum(best == -INFINITY ? 0.0f : sum * exp(best - highest));
if (thread_index_in_simdgroup == 0) {
  maxima[simdgroup_index_in_threadgroup] = highest;
  sums[simdgroup_index_in_threadgroup] = sum;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
float peak = maxima[0];
for (uint i = 1; i < SIMDGROUPS; i++) {
  peak = max(peak, maxima[i]);
}
float whole = 0.0f;
for (uint i = 0; i < SIMDGROUPS; i++) {
  whole += maxima[i] == -INFINITY ? 0.0f : sums[i] * exp(maxima[i] - peak);
}
for (uint i = mine; i < n; i += THREADS) {
  out[row * n + i] = T(exp(float(values[i]) - peak) / whole);
}
