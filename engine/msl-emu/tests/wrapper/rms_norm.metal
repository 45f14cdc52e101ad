template <typename T>
[[kernel]] void custom_kernel_rms_norm__float_floatc_floatc_floats_float(
  const constant float* x [[buffer(0)]],
  const constant int* x_shape [[buffer(1)]],
  const constant float* weight [[buffer(2)]],
  const constant float& eps [[buffer(3)]],
  device float* out [[buffer(4)]],
  uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]],
  uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
  uint3 thread_position_in_threadgroup [[thread_position_in_threadgroup]],
  uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]]) {
// x / sqrt(mean(x²) + eps) · weight over each row (Zhang and Sennrich, 2019). One group of 128 threads a row.
// x [rows, n] of T, weight [n] of T, eps [] of float; out [rows, n] of T. Grid: 128, rows; group: 128.
constexpr uint THREADS = 128;
constexpr uint SIMDGROUPS = THREADS / 32;
threadgroup float partial[SIMDGROUPS];
threadgroup float scale[1];
const uint n = x_shape[1];
const uint row = threadgroup_position_in_grid.y;
const uint mine = thread_position_in_threadgroup.x;
const device T* values = x + row * n;
float squares = 0.0f;
for (uint i = mine; i < n; i += THREADS) {
  const float value = float(values[i]);
  squares += value * value;
}
squares = simd_sum(squares);
if (thread_index_in_simdgroup == 0) {
  partial[simdgroup_index_in_threadgroup] = squares;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
if (simdgroup_index_in_threadgroup == 0) {
  const float part = thread_index_in_simdgroup < SIMDGROUPS ? partial[thread_index_in_simdgroup] : 0.0f;
  const float total = simd_sum(part);
  if (thread_index_in_simdgroup == 0) {
    scale[0] = precise::rsqrt(total / float(n) + eps);
  }
}
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint i = mine; i < n; i += THREADS) {
  out[row * n + i] = T(float(values[i]) * scale[0] * float(weight[i]));
}

}

template [[host_name("custom_kernel_rms_norm__float_floatc_floatc_floats_float")]] [[kernel]] decltype(custom_kernel_rms_norm__float_floatc_floatc_floats_float<float>) custom_kernel_rms_norm__float_floatc_floatc_floats_float<float>;
