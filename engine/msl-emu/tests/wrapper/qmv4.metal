template <typename T, int GROUP>
[[kernel]] void custom_kernel_qmv4__float_32_float_uint32_tc_floatc_floatc_float(
  const device float* x [[buffer(0)]],
  const constant int* x_shape [[buffer(1)]],
  const constant uint32_t* w [[buffer(2)]],
  const constant float* scales [[buffer(3)]],
  const constant float* biases [[buffer(4)]],
  device float* out [[buffer(5)]],
  uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
  uint3 thread_position_in_grid [[thread_position_in_grid]]) {
// out = W · x for W quantized to 4 bits: w = scale · code + bias in groups of GROUP columns, eight codes a word, the
// first in the lowest bits (the format of MLX's affine mode). One simdgroup a row, two rows a group.
// x [k] of T, w [n, k / 8] of uint32, scales and biases [n, k / GROUP] of T; out [n] of T. Grid: 32, n; group: 32, 2.
const uint columns = x_shape[0];
const uint words = columns / 8;
const uint groups = columns / GROUP;
const uint row = thread_position_in_grid.y;
const uint lane = thread_index_in_simdgroup;
float total = 0.0f;
for (uint at = lane; at < words; at += 32) {
  const uint codes = w[row * words + at];
  const uint group = at * 8 / GROUP;
  float products = 0.0f;
  float values = 0.0f;
  for (uint i = 0; i < 8; i++) {
    const float value = float(x[at * 8 + i]);
    products += value * float((codes >> (4 * i)) & 0xf);
    values += value;
  }
  total += products * float(scales[row * groups + group]) + values * float(biases[row * groups + group]);
}
total = simd_sum(total);
if (lane == 0) {
  out[row] = T(total);
}

}

template [[host_name("custom_kernel_qmv4__float_32_float_uint32_tc_floatc_floatc_float")]] [[kernel]] decltype(custom_kernel_qmv4__float_32_float_uint32_tc_floatc_floatc_float<float, 32>) custom_kernel_qmv4__float_32_float_uint32_tc_floatc_floatc_float<float, 32>;
