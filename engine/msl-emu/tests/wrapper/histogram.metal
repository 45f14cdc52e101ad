template <typename T, int BINS>
[[kernel]] void custom_kernel_histogram__float_16_floatc_uint32_t(
  const constant float* x [[buffer(0)]],
  const constant int* x_shape [[buffer(1)]],
  device atomic<uint32_t>* out [[buffer(2)]],
  uint3 thread_position_in_grid [[thread_position_in_grid]],
  uint3 thread_position_in_threadgroup [[thread_position_in_threadgroup]],
  uint3 threads_per_grid [[threads_per_grid]],
  uint3 threads_per_threadgroup [[threads_per_threadgroup]]) {
// How many elements of [0, 1) fall into each of BINS equal bins: counted in threadgroup memory, then added up.
// x [n] of T; out [BINS] of uint32, atomic, zero at first. Grid: any multiple of 64; group: 64.
threadgroup atomic_uint counts[BINS];
const uint n = x_shape[0];
const uint mine = thread_position_in_threadgroup.x;
for (uint bin = mine; bin < BINS; bin += threads_per_threadgroup.x) {
  atomic_store_explicit(&counts[bin], 0u, memory_order_relaxed);
}
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint i = thread_position_in_grid.x; i < n; i += threads_per_grid.x) {
  const uint bin = min(uint(float(x[i]) * float(BINS)), uint(BINS - 1));
  atomic_fetch_add_explicit(&counts[bin], 1u, memory_order_relaxed);
}
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint bin = mine; bin < BINS; bin += threads_per_threadgroup.x) {
  const uint count = atomic_load_explicit(&counts[bin], memory_order_relaxed);
  atomic_fetch_add_explicit(&out[bin], count, memory_order_relaxed);
}

}

template [[host_name("custom_kernel_histogram__float_16_floatc_uint32_t")]] [[kernel]] decltype(custom_kernel_histogram__float_16_floatc_uint32_t<float, 16>) custom_kernel_histogram__float_16_floatc_uint32_t<float, 16>;
