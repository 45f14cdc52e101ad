// Gradients of gelu_approx(gate) · up for a cotangent: dup = cotangent · gelu_approx(g) and dgate = cotangent · up ·
// gelu_approx′(g), where gelu_approx′ = 0.5 · (1 + t) + 0.5 · g · (1 - t²) · √(2/π) · (1 + 3 · 0.044715 · g²) and t is the
// tangent of gelu_approx, of z: with e = exp(-2|z|), 0.5 · (1 + t) is 1 / (1 + e) or e / (1 + e), and 1 - t² is 4e / (1 + e)².
// Everything is a float and rounded once.
// gate, up, cotangent, dgate, dup of T and one shape. A thread makes EACH elements, THREADS apart.
// Grid: THREADS · ceil(elements / (EACH · THREADS)); group: THREADS.
constexpr uint EACH = 4;
constexpr uint THREADS = 256;
constexpr float SLOPE = 0.7978845608f;
constexpr float SLOPE_REST = -2.267034e-8f;
constexpr float BEND = 0.0356774069f;
constexpr float BEND_REST = 1.1994162e-9f;
constexpr float CUBE = 0.044715f;
uint elements = 1;
for (int axis = 0; axis < gate_ndim; axis++) {
  elements *= uint(gate_shape[axis]);
}
const uint first = threadgroup_position_in_grid.x * EACH * THREADS + thread_index_in_threadgroup;
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
  const float g = float(gate[at]);
  const float u = float(up[at]);
#if defined(MUTANT_cotangent_forgotten)
  const float pulled = 1.0f;
#else
  const float pulled = float(cotangent[at]);
#endif
  // Beyond ten either way the tangent is 1 to the last bit of a float; cubes of larger numbers would overflow.
  const float within = g < -10.0f ? -10.0f : g > 10.0f ? 10.0f : g;
  // z = g · (√(2/π) + √(2/π) · 0.044715 · g²) with what rounding takes from it, which the exponential would magnify.
  const float square = within * within;
  const float bend = BEND * square;
  const float bend_rest = fma(BEND, square, -bend) + BEND * fma(within, within, -square) + BEND_REST * square;
  const float slope = SLOPE + bend;
  const float larger = max(SLOPE, bend);
  const float slope_rest = (larger - slope) + min(SLOPE, bend) + bend_rest + SLOPE_REST;
  const float z = within * slope;
  const float z_rest = fma(within, slope, -z) + within * slope_rest;
  // Of the exponential, not of the tangent near ±1, whose last bits the differences would magnify.
  const float power = precise::exp(-2.0f * abs(z));
  const float e = fma(power, z < 0.0f ? 2.0f * z_rest : -2.0f * z_rest, power);
  const float near_one = 1.0f / (1.0f + e);
  const float half_of_both = z < 0.0f ? e * near_one : near_one;
#if defined(MUTANT_three_forgotten)
  const float inner = SLOPE * (1.0f + CUBE * within * within);
#elif defined(MUTANT_cube_forgotten)
  const float inner = SLOPE;
#else
  const float inner = SLOPE * (1.0f + 3.0f * CUBE * within * within);
#endif
#if defined(MUTANT_tangent_not_squared)
  const float curve = within * (1.0f - half_of_both) * inner;
#elif defined(MUTANT_curve_forgotten)
  const float curve = 0.0f;
#else
  const float curve = 2.0f * within * e * near_one * near_one * inner;
#endif
  const float derivative = half_of_both + curve;
#if defined(MUTANT_half_forgotten)
  const float activated = 2.0f * g * half_of_both;
#elif defined(MUTANT_dup_of_derivative)
  const float activated = derivative;
#elif defined(MUTANT_needless_rounding)
  const float activated = float(bfloat16_t(g * half_of_both));
#else
  const float activated = g * half_of_both;
#endif
#if defined(MUTANT_up_forgotten)
  const float by_gate = pulled * derivative;
#else
  const float by_gate = pulled * u * derivative;
#endif
#if defined(MUTANT_results_swapped)
  dgate[at] = T(pulled * activated);
  dup[at] = T(by_gate);
#else
  dgate[at] = T(by_gate);
  dup[at] = T(pulled * activated);
#endif
}
