// Attention of one new token over a cache packed by MLX's affine mode (w = scale · code + bias in groups of GROUP
// channels, the first code of a word in its lowest bits), which is never dequantized to memory. One group a query head;
// each simdgroup takes every SIMDGROUPS-th visible key with a running maximum (Milakov and Gimelshein, 2018), and
// they are joined at the end (Dao et al., 2023).
// queries [b, heads, 1, D] of T; keys_w and values_w [b, kv_heads, keys, D · BITS / 32] of uint32; their scales and
// biases [b, kv_heads, keys, D / GROUP] of T; out [b, heads, 1, D] of T. Strides are free but for the last axis.
// limits [2] of int32: visible are the last limits[0] keys (all where it is 0) and those before limits[1]. D is a
// multiple of 32.
// Grid: 32 · SIMDGROUPS, heads, b; group: 32 · SIMDGROUPS.
constexpr int THREADS = 32 * SIMDGROUPS;
constexpr int CODES = 32 / BITS;
constexpr uint MASK = (1u << BITS) - 1u;
constexpr int EACH = D / 32;
// Neighbouring channels of a lane: they share a word and a group.
constexpr int UNIT = EACH % 4 == 0 ? 4 : EACH % 2 == 0 ? 2 : 1;
constexpr int PASSES = EACH / UNIT;
constexpr float LOWEST = -3.0e38f;
threadgroup float maxima[SIMDGROUPS];
threadgroup float sums[SIMDGROUPS];
threadgroup float totals[SIMDGROUPS * D];
const int window = limits[0];
const int heads = queries_shape[1];
const int kv_heads = keys_w_shape[1];
const int keys = keys_w_shape[2];
const int head = threadgroup_position_in_grid.y;
const int item = threadgroup_position_in_grid.z;
#if defined(MUTANT_wrong_kv_head)
const int kv_head = head % kv_heads;
#else
const int kv_head = head / (heads / kv_heads);
#endif
const int mine = thread_position_in_threadgroup.x;
const int lane = thread_index_in_simdgroup;
const int simdgroup = simdgroup_index_in_threadgroup;
#if defined(MUTANT_strides_ignored)
const auto key_codes = keys_w + size_t(item * kv_heads + kv_head) * keys * keys_w_strides[2];
#else
const auto key_codes = keys_w + item * keys_w_strides[0] + kv_head * keys_w_strides[1];
#endif
const auto key_scales = keys_scales + item * keys_scales_strides[0] + kv_head * keys_scales_strides[1];
const auto key_biases = keys_biases + item * keys_biases_strides[0] + kv_head * keys_biases_strides[1];
const auto value_codes = values_w + item * values_w_strides[0] + kv_head * values_w_strides[1];
const auto value_scales = values_scales + item * values_scales_strides[0] + kv_head * values_scales_strides[1];
const auto value_biases = values_biases + item * values_biases_strides[0] + kv_head * values_biases_strides[1];
const auto query_head = queries + item * queries_strides[0] + head * queries_strides[1];
float query[EACH];
float total[EACH];
for (int pass = 0; pass < PASSES; pass++) {
  for (int i = 0; i < UNIT; i++) {
    query[pass * UNIT + i] = float(query_head[(pass * 32 + lane) * UNIT + i]);
    total[pass * UNIT + i] = 0.0f;
  }
}
#if defined(MUTANT_window_off_by_one)
const int recent = window > 0 ? max(keys - window - 1, 0) : 0;
#else
const int recent = window > 0 ? max(keys - window, 0) : 0;
#endif
#if defined(MUTANT_kept_ignored)
const int kept = 0;
#else
const int kept = min(limits[1], recent);
#endif
#if defined(MUTANT_newest_dropped)
const int visible = kept + keys - recent - 1;
#else
const int visible = kept + keys - recent;
#endif
float best = LOWEST;
float whole = 0.0f;
#if defined(MUTANT_first_dropped)
const int oldest = 1;
#else
const int oldest = 0;
#endif
for (int i = oldest + simdgroup; i < visible; i += SIMDGROUPS) {
  const int key = i < kept ? i : i - kept + recent;
  float score = 0.0f;
  for (int pass = 0; pass < PASSES; pass++) {
    const int channel = (pass * 32 + lane) * UNIT;
#if defined(MUTANT_wrong_group)
    const int group = channel / (GROUP + UNIT);
#else
    const int group = channel / GROUP;
#endif
    const uint codes = key_codes[key * keys_w_strides[2] + channel / CODES] >> (channel % CODES * BITS);
    const float scale = float(key_scales[key * keys_scales_strides[2] + group]);
#if defined(MUTANT_bias_forgotten)
    const float bias = 0.0f;
#else
    const float bias = float(key_biases[key * keys_biases_strides[2] + group]);
#endif
    for (int j = 0; j < UNIT; j++) {
      const float value = fma(scale, float((codes >> (j * BITS)) & MASK), bias);
      score = fma(query[pass * UNIT + j], value, score);
    }
  }
#if defined(MUTANT_scale_off)
  score = simd_sum(score) * (1.01f * SCALE);
#else
  score = simd_sum(score) * SCALE;
#endif
#if defined(SOFTCAP) && !defined(MUTANT_softcap_ignored)
  score = SOFTCAP * precise::tanh(score / SOFTCAP);
#endif
#if defined(MUTANT_max_not_subtracted)
  const float higher = 0.0f;
#else
  const float higher = max(best, score);
#endif
#if defined(MUTANT_rescale_forgotten)
  const float keep = 1.0f;
#else
  const float keep = exp(best - higher);
#endif
  const float weight = exp(score - higher);
  for (int pass = 0; pass < PASSES; pass++) {
    const int channel = (pass * 32 + lane) * UNIT;
    const int group = channel / GROUP;
    const uint codes = value_codes[key * values_w_strides[2] + channel / CODES] >> (channel % CODES * BITS);
    const float scale = float(value_scales[key * values_scales_strides[2] + group]);
    const float bias = float(value_biases[key * values_biases_strides[2] + group]);
    for (int j = 0; j < UNIT; j++) {
      const float value = fma(scale, float((codes >> (j * BITS)) & MASK), bias);
#if defined(MUTANT_half_accumulator)
      total[pass * UNIT + j] = float(bfloat16_t(fma(weight, value, total[pass * UNIT + j] * keep)));
#else
      total[pass * UNIT + j] = fma(weight, value, total[pass * UNIT + j] * keep);
#endif
    }
  }
  whole = fma(whole, keep, weight);
  best = higher;
}
if (lane == 0) {
  maxima[simdgroup] = best;
  sums[simdgroup] = whole;
}
for (int pass = 0; pass < PASSES; pass++) {
  for (int i = 0; i < UNIT; i++) {
    totals[simdgroup * D + (pass * 32 + lane) * UNIT + i] = total[pass * UNIT + i];
  }
}
#if defined(MUTANT_no_barrier)
simdgroup_barrier(mem_flags::mem_threadgroup);
#else
threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
#if defined(MUTANT_chunk_dropped)
constexpr int PARTS = SIMDGROUPS - 1;
#else
constexpr int PARTS = SIMDGROUPS;
#endif
float peak = maxima[0];
for (int i = 1; i < PARTS; i++) {
  peak = max(peak, maxima[i]);
}
for (int channel = mine; channel < D; channel += THREADS) {
  float sum = 0.0f;
  float value = 0.0f;
  for (int i = 0; i < PARTS; i++) {
#if defined(MUTANT_join_unweighted)
    const float part = 1.0f;
#else
    const float part = exp(maxima[i] - peak);
#endif
    sum = fma(sums[i], part, sum);
    value = fma(totals[i * D + channel], part, value);
  }
  out[(item * heads + head) * D + channel] = T(value / sum);
}
