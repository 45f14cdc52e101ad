// Attention of one new token over a cache quantized to 4 bits, of which the first `length` tokens are in use: as the
// newest token sees all of them, the causal mask hides the rest of the cache only. One group of four simdgroups a query
// head; each takes every fourth token with a running maximum, and they are joined at the end (Dao et al., 2023).
// q [heads, D] of T; k and v [kv_heads, capacity, D / 8] of uint32; k_scales, k_biases, v_scales and v_biases
// [kv_heads, capacity, D / GROUP] of T; length [1] of int32; scale [] of float; out [heads, D] of T.
// D is 64 or 128. Grid: 128, heads; group: 128.
constexpr uint SIMDGROUPS = 4;
constexpr uint EACH = D / 32;
threadgroup float maxima[SIMDGROUPS];
threadgroup float sums[SIMDGROUPS];
threadgroup float values[SIMDGROUPS][D];
const uint heads = q_shape[0];
const uint kv_heads = k_shape[0];
const uint capacity = k_shape[1];
const uint head = threadgroup_position_in_grid.y;
const uint kv_head = head / (heads / kv_heads);
const uint lane = thread_index_in_simdgroup;
const uint simdgroup = simdgroup_index_in_threadgroup;
const uint first = lane * EACH;
const uint shift = first % 8 * 4;
const uint tokens = uint(length[0]);
float query[EACH];
float sum[EACH];
for (uint i = 0; i < EACH; i++) {
  query[i] = float(q[head * D + first + i]) * scale;
  sum[i] = 0.0f;
}
float best = -INFINITY;
float whole = 0.0f;
for (uint token = simdgroup; token < tokens; token += SIMDGROUPS) {
  const uint at = kv_head * capacity + token;
  const uint word = at * (D / 8) + first / 8;
  const uint group = at * (D / GROUP) + first / GROUP;
  const uint keys = k[word] >> shift;
  const uint codes = v[word] >> shift;
  float score = 0.0f;
  for (uint i = 0; i < EACH; i++) {
    const float key = float(k_scales[group]) * float((keys >> (4 * i)) & 0xf) + float(k_biases[group]);
    score += query[i] * key;
  }
  score = simd_sum(score);
  const float higher = max(best, score);
  const float keep = exp(best - higher);
  const float weight = exp(score - higher);
  for (uint i = 0; i < EACH; i++) {
    const float value = float(v_scales[group]) * float((codes >> (4 * i)) & 0xf) + float(v_biases[group]);
    sum[i] = sum[i] * keep + weight * value;
  }
  whole = whole * keep + weight;
  best = higher;
}
if (lane == 0) {
  maxima[simdgroup] = best;
  sums[simdgroup] = whole;
}
for (uint i = 0; i < EACH; i++) {
  values[simdgroup][first + i] = sum[i];
}
threadgroup_barrier(mem_flags::mem_threadgroup);
const uint mine = thread_position_in_threadgroup.x;
if (mine < D) {
  float peak = maxima[0];
  for (uint i = 1; i < SIMDGROUPS; i++) {
    peak = max(peak, maxima[i]);
  }
  float total = 0.0f;
  float value = 0.0f;
  for (uint i = 0; i < SIMDGROUPS; i++) {
    const float part = exp(maxima[i] - peak);
    total += sums[i] * part;
    value += values[i][mine] * part;
  }
  out[head * D + mine] = T(value / total);
}
