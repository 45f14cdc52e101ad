// Gradients of attention from its output and the log of its sums (Dao, 2023, algorithm 2), without atomics: a group
// owns either TILE queries of a head, over whose keys it goes for dq, or TILE keys of a key-value head, over whose
// queries, of every head that shares it, it goes for dk and dv. Either way the rows it owns stay in registers, eight a
// simdgroup, and the tiles it goes over are staged.
// queries, out, cotangent [b, heads, L, D], keys and values [b, kv_heads, S, D] of T; lse [b, heads, L] of float;
// strides free but for the last axis of those of T. dq, dk, dv of T as queries, keys, values.
// limits [2] of int32 as forward. D is a multiple of 8.
// Grid: 4 · TILE · (b · heads · ceil(L / TILE) + b · kv_heads · ceil(S / TILE)); group: 4 · TILE.
constexpr int SIMDGROUPS = TILE / 8;
constexpr int THREADS = 32 * SIMDGROUPS;
constexpr int DEPTH = D / 8;
constexpr int STEPS = TILE / 8;
// Sums over channels are made of so many, each over every CHAINS-th eight of them.
constexpr int CHAINS = 4;
threadgroup float near[TILE * D];
threadgroup float far[TILE * D];
threadgroup float weights[TILE * TILE];
threadgroup float gradients[TILE * TILE];
threadgroup float sums[TILE];
threadgroup float deltas[TILE];
const int heads = queries_shape[1];
const int length = queries_shape[2];
const int kv_heads = keys_shape[1];
const int count = keys_shape[2];
const int share = heads / kv_heads;
const int query_tiles = (length + TILE - 1) / TILE;
const int key_tiles = (count + TILE - 1) / TILE;
const int query_groups = queries_shape[0] * heads * query_tiles;
const int group = threadgroup_position_in_grid.x;
const bool for_keys = group >= query_groups;
const int index = for_keys ? group - query_groups : group;
const int tiles = for_keys ? key_tiles : query_tiles;
const int first = index % tiles * TILE;
const int own_head = index / tiles % (for_keys ? kv_heads : heads);
const int item = index / tiles / (for_keys ? kv_heads : heads);
#if defined(MUTANT_wrong_kv_head)
const int kv_head = for_keys ? own_head : own_head % kv_heads;
#else
const int kv_head = for_keys ? own_head : own_head / share;
#endif
const int first_head = for_keys ? own_head * share : own_head;
#if defined(MUTANT_first_head_only)
const int end_head = first_head + 1;
#else
const int end_head = for_keys ? first_head + share : first_head + 1;
#endif
const int mine = thread_position_in_threadgroup.x;
const int lane = thread_index_in_simdgroup;
const int own = simdgroup_index_in_threadgroup * 8;
const device T* key_head = keys + item * keys_strides[0] + kv_head * keys_strides[1];
const device T* value_head = values + item * values_strides[0] + kv_head * values_strides[1];
#if defined(MUTANT_scale_off)
constexpr float FACTOR = 1.01f * SCALE;
#else
constexpr float FACTOR = SCALE;
#endif
#if defined(MUTANT_causal_top_left)
const int offset = 0;
#else
const int offset = count - length;
#endif
const bool causal = limits[0] != 0;
#if defined(MUTANT_window_off_by_one)
const int window = limits[1] > 0 ? limits[1] + 1 : 0;
#else
const int window = limits[1];
#endif
simdgroup_matrix<float, 8, 8> near_rows[DEPTH];
simdgroup_matrix<float, 8, 8> far_rows[DEPTH];
simdgroup_matrix<float, 8, 8> near_total[DEPTH];
simdgroup_matrix<float, 8, 8> far_total[DEPTH];
simdgroup_matrix<float, 8, 8> right;
simdgroup_matrix<float, 8, 8> part;
simdgroup_matrix<float, 8, 8> parts[CHAINS];
const simdgroup_matrix<float, 8, 8> identity(1.0f);
{
  const device T* query = queries + item * queries_strides[0] + first_head * queries_strides[1];
  const device T* change = cotangent + item * cotangent_strides[0] + first_head * cotangent_strides[1];
  for (int i = mine; i < TILE * D; i += THREADS) {
    const int row = first + i / D;
    const int channel = i % D;
    if (for_keys) {
      near[i] = row < count ? float(key_head[row * keys_strides[2] + channel]) : 0.0f;
      far[i] = row < count ? float(value_head[row * values_strides[2] + channel]) : 0.0f;
    } else {
      near[i] = row < length ? float(query[row * queries_strides[2] + channel]) : 0.0f;
      far[i] = row < length ? float(change[row * cotangent_strides[2] + channel]) : 0.0f;
    }
  }
}
threadgroup_barrier(mem_flags::mem_threadgroup);
for (int d = 0; d < DEPTH; d++) {
  simdgroup_load(near_rows[d], near + own * D + d * 8, D);
  simdgroup_load(far_rows[d], far + own * D + d * 8, D);
  near_total[d] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  far_total[d] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}
// The rows that the owned ones meet: keys from the window's first to the last that is visible, or queries from the first
// that sees a key of the tile to the last.
int begin = 0;
int end = for_keys ? length : count;
if (for_keys) {
  begin = causal ? max(first - offset, 0) : 0;
  end = window > 0 ? min(first + TILE - 1 + window - offset, length) : length;
} else {
  begin = window > 0 ? max(first + offset - window + 1, 0) : 0;
  end = causal ? min(first + TILE + offset, count) : count;
}
#if defined(MUTANT_chunk_dropped)
// Of more tiles than one, a partial one is left out.
const int stop = max(end - TILE, begin) + 1;
#else
const int stop = end;
#endif
const int rows = for_keys ? count : length;
// Whether any of the simdgroup's rows is one.
const bool active = first + own < rows;
for (int head = first_head; head < end_head; head++) {
  const device T* query = queries + item * queries_strides[0] + head * queries_strides[1];
  const device T* change = cotangent + item * cotangent_strides[0] + head * cotangent_strides[1];
  const device T* result = out + item * out_strides[0] + head * out_strides[1];
  for (int tile = begin; tile < stop; tile += TILE) {
    // Eights of rows in the tile.
    const int steps = min((end - tile + 7) / 8, STEPS);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = mine; i < steps * 8 * D; i += THREADS) {
      const int row = tile + i / D;
      const int channel = i % D;
      if (for_keys) {
        near[i] = row < end ? float(query[row * queries_strides[2] + channel]) : 0.0f;
      } else {
        near[i] = row < end ? float(key_head[row * keys_strides[2] + channel]) : 0.0f;
      }
#if defined(MUTANT_stale_tile)
      // The far rows are staged for the first tile only.
      if (tile > begin) {
        continue;
      }
#endif
      if (for_keys) {
        far[i] = row < end ? float(change[row * cotangent_strides[2] + channel]) : 0.0f;
      } else {
        far[i] = row < end ? float(value_head[row * values_strides[2] + channel]) : 0.0f;
      }
    }
    // What a query's row needs: its log of sums, and out · cotangent, summed in the order of the products of which it
    // is taken, so that they cancel where a query sees one key.
    if ((for_keys || tile == begin) && mine < TILE) {
      const int at = (for_keys ? tile : first) + mine;
      float delta[CHAINS] = {};
      for (int channel = 0; at < length && channel < D; channel++) {
        delta[channel / 8 % CHAINS] +=
            float(result[at * out_strides[2] + channel]) * float(change[at * cotangent_strides[2] + channel]);
      }
      for (int i = 1; i < CHAINS; i++) {
        delta[0] += delta[i];
      }
#if defined(MUTANT_delta_forgotten)
      deltas[mine] = 0.0f;
#else
      deltas[mine] = delta[0];
#endif
      sums[mine] = at < length ? lse[item * lse_strides[0] + head * lse_strides[1] + at * lse_strides[2]] : 0.0f;
    }
#if defined(MUTANT_no_barrier)
    simdgroup_barrier(mem_flags::mem_threadgroup);
#else
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    if (!active) {
      continue;
    }
    for (int j = 0; j < steps; j++) {
      for (int i = 0; i < CHAINS; i++) {
        parts[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      }
      for (int d = 0; d < DEPTH; d++) {
        simdgroup_load(right, near + j * 8 * D + d * 8, D, ulong2(0), true);
        simdgroup_multiply_accumulate(parts[d % CHAINS], near_rows[d], right, parts[d % CHAINS]);
      }
      for (int i = 1; i < CHAINS; i++) {
        simdgroup_multiply_accumulate(parts[0], identity, parts[i], parts[0]);
      }
      simdgroup_store(parts[0], weights + own * TILE + j * 8, TILE);
      for (int i = 0; i < CHAINS; i++) {
        parts[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      }
      for (int d = 0; d < DEPTH; d++) {
        simdgroup_load(right, far + j * 8 * D + d * 8, D, ulong2(0), true);
        simdgroup_multiply_accumulate(parts[d % CHAINS], far_rows[d], right, parts[d % CHAINS]);
      }
      for (int i = 1; i < CHAINS; i++) {
        simdgroup_multiply_accumulate(parts[0], identity, parts[i], parts[0]);
      }
      simdgroup_store(parts[0], gradients + own * TILE + j * 8, TILE);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int column = lane % 4; column < steps * 8; column += 4) {
      const int row = own + lane / 4;
      const int query_row = for_keys ? tile + column : first + row;
      const int key = for_keys ? first + row : tile + column;
      const int position = query_row + offset;
#if defined(MUTANT_last_key_dropped)
      bool visible = query_row < length && key < count - 1;
#elif defined(MUTANT_first_key_dropped)
      bool visible = query_row < length && key < count && key > 0;
#else
      bool visible = query_row < length && key < count;
#endif
      visible = visible && (!causal || key <= position) && (window == 0 || key > position - window);
      const int at = row * TILE + column;
      const int query_at = for_keys ? column : row;
#if defined(MUTANT_max_not_subtracted)
      const float weight = visible ? exp(FACTOR * weights[at]) : 0.0f;
#else
      const float weight = visible ? exp(fma(FACTOR, weights[at], -sums[query_at])) : 0.0f;
#endif
      weights[at] = weight;
      gradients[at] = weight * (gradients[at] - deltas[query_at]);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int j = 0; j < steps; j++) {
#if defined(MUTANT_dk_transposed)
      simdgroup_load(part, gradients + own * TILE + j * 8, TILE, ulong2(0), for_keys);
#else
      simdgroup_load(part, gradients + own * TILE + j * 8, TILE);
#endif
      for (int d = 0; d < DEPTH; d++) {
        simdgroup_load(right, near + j * 8 * D + d * 8, D);
        simdgroup_multiply_accumulate(near_total[d], part, right, near_total[d]);
      }
      if (for_keys) {
        simdgroup_load(part, weights + own * TILE + j * 8, TILE);
        for (int d = 0; d < DEPTH; d++) {
          simdgroup_load(right, far + j * 8 * D + d * 8, D);
          simdgroup_multiply_accumulate(far_total[d], part, right, far_total[d]);
        }
      }
    }
  }
}
threadgroup_barrier(mem_flags::mem_threadgroup);
if (active) {
  for (int d = 0; d < DEPTH; d++) {
    simdgroup_store(near_total[d], near + own * D + d * 8, D);
    simdgroup_store(far_total[d], far + own * D + d * 8, D);
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  const size_t start = size_t(for_keys ? item * kv_heads + kv_head : item * heads + own_head) * rows;
  for (int i = lane; i < 8 * D; i += 32) {
    const int at = first + own + i / D;
    if (at >= rows) {
      continue;
    }
    const size_t place = (start + at) * D + i % D;
#if defined(MUTANT_scale_forgotten)
    const float scaled = near[own * D + i];
#else
    const float scaled = near[own * D + i] * FACTOR;
#endif
    if (for_keys) {
      dk[place] = T(scaled);
      dv[place] = T(far[own * D + i]);
    } else {
      dq[place] = T(scaled);
    }
  }
}
