// out = gelu_approx(gate) · up with every operation rounded to T, as the composed kernels round it: 0.5 · g · (1 +
// tanh(√(2/π) · (g + 0.044715 · g³))) (Hendrycks and Gimpel, 2016), then the product.
// gate, up, out of T and one shape. A thread makes EACH elements, THREADS apart, so that neighbours read neighbours.
// Grid: THREADS · ceil(elements / (EACH · THREADS)); group: THREADS.
constexpr uint EACH = 4;
constexpr uint THREADS = 256;
uint elements = 1;
for (int axis = 0; axis < gate_ndim; axis++) {
  elements *= uint(gate_shape[axis]);
}
#if defined(MUTANT_blocks_overlap)
const uint first = threadgroup_position_in_grid.x * THREADS + thread_index_in_threadgroup;
#else
const uint first = threadgroup_position_in_grid.x * EACH * THREADS + thread_index_in_threadgroup;
#endif
for (uint i = 0; i < EACH; i++) {
  const uint at = first + i * THREADS;
#if defined(MUTANT_tail_skipped)
  if (threadgroup_position_in_grid.x * EACH * THREADS + (i + 1) * THREADS > elements) {
    break;
  }
#elif !defined(MUTANT_tail_unmasked)
  if (at >= elements) {
    break;
  }
#endif
#if defined(MUTANT_operands_swapped)
  const T g = up[at];
  const T u = gate[at];
#else
  const T g = gate[at];
  const T u = up[at];
#endif
#if defined(MUTANT_cube_forgotten)
  const T inner = g;
#elif defined(MUTANT_square_for_cube)
  const T inner = g + T(0.044715f) * (g * g);
#else
  const T inner = g + T(0.044715f) * pow(g, T(3.0f));
#endif
#if defined(MUTANT_slope_off)
  const T bend = precise::tanh(T(0.8f) * inner);
#elif defined(MUTANT_tanh_linear)
  const T bend = clamp(T(0.7978846f) * inner, T(-1.0f), T(1.0f));
#else
  const T bend = precise::tanh(T(0.7978846f) * inner);
#endif
#if defined(MUTANT_half_forgotten)
  const T activated = g * (T(1.0f) + bend);
#elif defined(MUTANT_sigmoid_gelu)
  const T activated = g / (T(1.0f) + exp(T(-1.702f) * g));
#elif defined(MUTANT_needless_rounding)
  const T activated = T(float(bfloat16_t(float(T(0.5f) * g * (T(1.0f) + bend)))));
#else
  const T activated = T(0.5f) * g * (T(1.0f) + bend);
#endif
#if defined(MUTANT_up_forgotten)
  out[at] = activated;
#else
  out[at] = activated * u;
#endif
}
