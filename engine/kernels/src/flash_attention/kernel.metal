// Attention by tiles of TILE queries and TILE keys with a running maximum (Dao, 2023): eight rows a simdgroup, products
// as 8 × 8 matrices in float32, rescaled by a diagonal matrix. The last query sees the last key: query i stands at
// position i + S - L.
// queries [b, heads, L, D], keys and values [b, kv_heads, S, D] of T, strides free but for the last axis;
// out [b, heads, L, D] of T; with WANT_LSE also logsumexp [b, heads, L] of float.
// limits [2] of int32: where the first is not 0, no key past a query's position, and where the second is not 0 the last
// so many of those. D is a multiple of 8.
// Grid: 4 · TILE · ceil(L / TILE), heads, b; group: 4 · TILE.
constexpr int SIMDGROUPS = TILE / 8;
constexpr int THREADS = 32 * SIMDGROUPS;
constexpr int DEPTH = D / 8;
constexpr int STEPS = TILE / 8;
constexpr float LOWEST = -3.0e38f;
threadgroup float staged[TILE * D];
threadgroup float scores[TILE * TILE];
threadgroup float factors[SIMDGROUPS * 64];
const int heads = queries_shape[1];
const int length = queries_shape[2];
const int kv_heads = keys_shape[1];
const int count = keys_shape[2];
const int first = threadgroup_position_in_grid.x * TILE;
const int head = threadgroup_position_in_grid.y;
const int item = threadgroup_position_in_grid.z;
#if defined(MUTANT_wrong_kv_head)
const int kv_head = head % kv_heads;
#else
const int kv_head = head / (heads / kv_heads);
#endif
const int mine = thread_position_in_threadgroup.x;
const int lane = thread_index_in_simdgroup;
const int own = simdgroup_index_in_threadgroup * 8;
const device T* query = queries + item * queries_strides[0] + head * queries_strides[1];
const device T* key_head = keys + item * keys_strides[0] + kv_head * keys_strides[1];
const device T* value_head = values + item * values_strides[0] + kv_head * values_strides[1];
#if defined(MUTANT_scale_off)
constexpr float FACTOR = 1.01f * SCALE;
#else
constexpr float FACTOR = SCALE;
#endif
for (int i = mine; i < TILE * D; i += THREADS) {
  const int row = first + i / D;
  staged[i] = row < length ? float(query[row * queries_strides[2] + i % D]) : 0.0f;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
simdgroup_matrix<float, 8, 8> left[DEPTH];
simdgroup_matrix<float, 8, 8> total[DEPTH];
simdgroup_matrix<float, 8, 8> right;
simdgroup_matrix<float, 8, 8> part;
simdgroup_matrix<float, 8, 8> factor;
for (int d = 0; d < DEPTH; d++) {
  simdgroup_load(left[d], staged + own * D + d * 8, D);
  total[d] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}
// Four lanes a row.
const int row = own + lane / 4;
#if defined(MUTANT_causal_top_left)
const int offset = 0;
#else
const int offset = count - length;
#endif
const int position = first + row + offset;
const bool causal = limits[0] != 0;
#if defined(MUTANT_window_off_by_one)
const int window = limits[1] > 0 ? limits[1] + 1 : 0;
#else
const int window = limits[1];
#endif
const int begin = window > 0 ? max(first + offset - window + 1, 0) : 0;
#if defined(MUTANT_last_key_dropped)
const int end = (causal ? min(first + TILE + offset, count) : count) - 1;
#else
const int end = causal ? min(first + TILE + offset, count) : count;
#endif
#if defined(MUTANT_chunk_dropped)
// Of more tiles than one, a partial one is left out.
const int stop = max(end - TILE, begin) + 1;
#else
const int stop = end;
#endif
// Whether any of the simdgroup's rows is a query.
const bool active = first + own < length;
float best = LOWEST;
float whole = 0.0f;
for (int tile = begin; tile < stop; tile += TILE) {
  // Eights of keys in the tile.
  const int steps = min((end - tile + 7) / 8, STEPS);
#if !defined(MUTANT_no_barrier)
  threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
  for (int i = mine; i < steps * 8 * D; i += THREADS) {
    const int key = tile + i / D;
    staged[i] = key < end ? float(key_head[key * keys_strides[2] + i % D]) : 0.0f;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int j = 0; active && j < steps; j++) {
    part = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (int d = 0; d < DEPTH; d++) {
      simdgroup_load(right, staged + j * 8 * D + d * 8, D, ulong2(0), true);
      simdgroup_multiply_accumulate(part, left[d], right, part);
    }
    simdgroup_store(part, scores + own * TILE + j * 8, TILE);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = mine; i < steps * 8 * D; i += THREADS) {
#if defined(MUTANT_stale_tile)
    // A partial tile of values is not staged.
    if (tile + TILE > end) {
      continue;
    }
#endif
    const int key = tile + i / D;
    staged[i] = key < end ? float(value_head[key * values_strides[2] + i % D]) : 0.0f;
  }
  if (active) {
    float highest = best;
    bool visible[TILE / 4];
    for (int j = 0; j < TILE / 4; j++) {
      const int key = tile + j * 4 + lane % 4;
#if defined(MUTANT_tail_unmasked)
      visible[j] = true;
#elif defined(MUTANT_first_key_dropped)
      visible[j] = key > 0 && key < end;
#else
      visible[j] = key < end;
#endif
      visible[j] = visible[j] && (!causal || key <= position) && (window == 0 || key > position - window);
      highest = visible[j] ? max(highest, FACTOR * scores[row * TILE + j * 4 + lane % 4]) : highest;
    }
    highest = max(highest, simd_shuffle_xor(highest, 1));
    highest = max(highest, simd_shuffle_xor(highest, 2));
#if defined(MUTANT_max_not_subtracted)
    highest = 0.0f;
#endif
    float sum = 0.0f;
    for (int j = 0; j < TILE / 4; j++) {
      const int at = row * TILE + j * 4 + lane % 4;
      const float weight = visible[j] ? exp(fma(FACTOR, scores[at], -highest)) : 0.0f;
#if defined(MUTANT_half_weights)
      scores[at] = float(half(weight));
#else
      scores[at] = weight;
#endif
      sum += weight;
    }
    sum += simd_shuffle_xor(sum, 1);
    sum += simd_shuffle_xor(sum, 2);
    const float keep = exp(best - highest);
    whole = fma(whole, keep, sum);
    best = highest;
#if defined(MUTANT_rescale_forgotten)
    const float rescale = 1.0f;
#else
    const float rescale = keep;
#endif
    for (int j = 0; j < 2; j++) {
      const int column = lane % 4 * 2 + j;
      factors[own * 8 + lane / 4 * 8 + column] = column == lane / 4 ? rescale : 0.0f;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (active) {
    simdgroup_load(factor, factors + own * 8, 8);
    for (int d = 0; d < DEPTH; d++) {
      simdgroup_multiply(total[d], factor, total[d]);
    }
    for (int j = 0; j < steps; j++) {
      simdgroup_load(part, scores + own * TILE + j * 8, TILE);
      for (int d = 0; d < DEPTH; d++) {
        simdgroup_load(right, staged + j * 8 * D + d * 8, D);
        simdgroup_multiply_accumulate(total[d], part, right, total[d]);
      }
    }
  }
}
threadgroup_barrier(mem_flags::mem_threadgroup);
const size_t rows = size_t(item * heads + head) * length;
if (active) {
  for (int d = 0; d < DEPTH; d++) {
    simdgroup_store(total[d], staged + own * D + d * 8, D);
  }
  // The sums of its rows, one of four lanes each.
  if (lane % 4 == 0) {
    factors[row] = whole;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = lane; i < 8 * D; i += 32) {
    const int at = first + own + i / D;
    if (at < length) {
      out[(rows + at) * D + i % D] = T(staged[own * D + i] / factors[own + i / D]);
    }
  }
}
#if defined(WANT_LSE)
if (lane % 4 == 0 && first + row < length) {
#if defined(MUTANT_lse_without_max)
  logsumexp[rows + first + row] = log(whole);
#else
  logsumexp[rows + first + row] = best + log(whole);
#endif
}
#endif
