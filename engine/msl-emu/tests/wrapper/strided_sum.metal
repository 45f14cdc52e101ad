template <typename T>
[[kernel]] void custom_kernel_strided_sum__float_float_float_float(
  const device float* a [[buffer(0)]],
  const constant int* a_shape [[buffer(1)]],
  const constant int64_t* a_strides [[buffer(2)]],
  const constant int& a_ndim [[buffer(3)]],
  const device float* b [[buffer(4)]],
  const constant int* b_shape [[buffer(5)]],
  const constant int64_t* b_strides [[buffer(6)]],
  const constant int& b_ndim [[buffer(7)]],
  device float* out [[buffer(8)]],
  uint3 thread_position_in_grid [[thread_position_in_grid]]) {
// out = a + b for operands of any strides, out row-major.
// a and b [shape] of T, not copied to rows; out [shape] of T. Grid: number of elements.
const uint i = thread_position_in_grid.x;
out[i] = T(float(a[elem_to_loc(i, a_shape, a_strides, a_ndim)]) + float(b[elem_to_loc(i, b_shape, b_strides, b_ndim)]));

}

template [[host_name("custom_kernel_strided_sum__float_float_float_float")]] [[kernel]] decltype(custom_kernel_strided_sum__float_float_float_float<float>) custom_kernel_strided_sum__float_float_float_float<float>;
