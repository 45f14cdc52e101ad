// q, k and v of an attention layer from packed projections: x · Wᵀ, then for q and k the root-mean-square norm of each
// head (where NORMED) and rotary positions of its first DIMS elements. Sums are floats; what the composed
// kernels store (projection, norm, rotation) is rounded to T, and so are weights that are staged.
// x [batch, length, columns] of T; q_w [heads · D, columns], k_w and v_w [kv_heads · D, columns]; q_norm, k_norm [D] of T;
// eps, base_log2 (of the base of the rotation's frequencies), rope_scale floats, offset an int;
// q [batch, heads, length, D], k and v [batch, kv_heads, length, D] of T.
// Grid: THREADS · (heads + 2 · kv_heads), rows (ceil(rows / TILE) where TILED); group: THREADS.
constexpr int RESULTS = 4;
constexpr int ROWS = TILED ? TILE : 1;
constexpr int STAGED = TILED ? TILE * stride<T>() : 1;
constexpr int PAIRS = DIMS / 2;
threadgroup T x_tile[STAGED];
threadgroup T w_tile[STAGED];
threadgroup float results[TILED ? TILE * stride<float>() : 1];
threadgroup T projected[ROWS * D];
const int length = x_shape[1];
const int columns = x_shape[2];
const int rows = x_shape[0] * length;
const int kv_heads = k_w_shape[0] / D;
const int heads = q_w_shape[0] / D;
const int index = thread_index_in_threadgroup;
const int lane = thread_index_in_simdgroup;
const int simdgroup = simdgroup_index_in_threadgroup;
const int row = threadgroup_position_in_grid.y * ROWS;
// Which of the three, and which head of it.
const int unit = threadgroup_position_in_grid.x;
const int which = unit < heads ? 0 : unit < heads + kv_heads ? 1 : 2;
const int head = which == 0 ? unit : which == 1 ? unit - heads : unit - heads - kv_heads;
const int first = head * D;
// A tile may reach beyond the head: what it has there belongs to another.
const Packed<Q_BITS, Q_GROUP, T> q_part = {q_w, q_scales, q_biases, first + D, columns};
const Packed<K_BITS, K_GROUP, T> k_part = {k_w, k_scales, k_biases, first + D, columns};
const Packed<V_BITS, V_GROUP, T> v_part = {v_w, v_scales, v_biases, first + D, columns};
if (TILED) {
  for (int block = 0; block < D; block += TILE) {
    Quarter sums;
    sums.clear();
    for (int column = 0; column < columns; column += TILE) {
      stage(x_tile, x, rows, columns, row, column, index);
      if (which == 0) {
        q_part.stage(w_tile, first + block, column, index);
      } else if (which == 1) {
        k_part.stage(w_tile, first + block, column, index);
      } else {
        v_part.stage(w_tile, first + block, column, index);
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      sums.add(x_tile, w_tile, simdgroup);
#if !defined(MUTANT_no_barrier)
      threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    }
    sums.store(results, simdgroup);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = index; i < TILE * TILE; i += THREADS) {
      const int c = block + i % TILE;
      if (c < D) {
        projected[i / TILE * D + c] = T(results[i / TILE * stride<float>() + i % TILE]);
      }
    }
  }
} else {
  const device T* from = x + ulong(row) * ulong(columns);
  for (int base = simdgroup * RESULTS; base < D; base += THREADS / 32 * RESULTS) {
    float sums[RESULTS] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int column = lane * 8; column < columns; column += 256) {
      float values[8];
      const float sum = load(values, from + column);
      for (int i = 0; i < RESULTS && base + i < D; i++) {
        const int at = first + base + i;
        sums[i] += which == 0 ? q_part.dot(values, sum, at, column)
            : which == 1      ? k_part.dot(values, sum, at, column)
                              : v_part.dot(values, sum, at, column);
      }
    }
    for (int i = 0; i < RESULTS; i++) {
      const float total = simd_sum(sums[i]);
      if (lane == i && base + i < D) {
        projected[base + i] = T(total);
      }
    }
  }
}
#if !defined(MUTANT_projection_unfenced)
threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
for (int r = simdgroup; r < ROWS && row + r < rows; r += THREADS / 32) {
  threadgroup T* values = projected + r * D;
  const int place = (row + r) % length;
#if defined(MUTANT_wrong_head)
  const int out_head = which == 0 ? (head + 1) % heads : head;
#else
  const int out_head = head;
#endif
  const ulong from = (ulong((row + r) / length) * ulong(which == 0 ? heads : kv_heads) + ulong(out_head)) * ulong(length) + ulong(place);
  device T* to = (which == 0 ? q : which == 1 ? k : v) + from * D;
#if defined(MUTANT_value_rotated)
  const int turned = PAIRS;
#else
  const int turned = which == 2 ? 0 : PAIRS;
#endif
#if defined(MUTANT_norm_forgotten)
  const bool normed = false;
#else
  const bool normed = NORMED && which != 2;
#endif
  if (normed) {
    float squares = 0.0f;
    for (int i = lane; i < D; i += 32) {
      squares += float(values[i]) * float(values[i]);
    }
#if defined(MUTANT_norm_of_lane)
    const float by = precise::rsqrt(squares / float(D) + eps);
#elif defined(MUTANT_norm_of_sum)
    const float by = precise::rsqrt(simd_sum(squares) + eps);
#elif defined(MUTANT_eps_forgotten)
    const float by = precise::rsqrt(simd_sum(squares) / float(D));
#else
    const float by = precise::rsqrt(simd_sum(squares) / float(D) + eps);
#endif
    for (int i = lane; i < D; i += 32) {
#if defined(MUTANT_query_norm_for_keys)
      const T weight = q_norm[i];
#else
      const T weight = which == 0 ? q_norm[i] : k_norm[i];
#endif
      values[i] = weight * T(float(values[i]) * by);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
#if defined(MUTANT_position_off_by_one)
  const float position = rope_scale * float(place + offset + 1);
#elif defined(MUTANT_batch_continues)
  const float position = rope_scale * float(row + r + offset);
#elif defined(MUTANT_offset_forgotten)
  const float position = rope_scale * float(place);
#else
  const float position = rope_scale * float(place + offset);
#endif
  for (int pair = lane; pair < turned; pair += 32) {
#if defined(MUTANT_pairs_interleaved)
    const int one = TRADITIONAL ? pair : 2 * pair;
    const int two = TRADITIONAL ? pair + PAIRS : one + 1;
#elif defined(MUTANT_half_of_head)
    const int one = TRADITIONAL ? 2 * pair : pair;
    const int two = TRADITIONAL ? one + 1 : pair + D / 2;
#else
    const int one = TRADITIONAL ? 2 * pair : pair;
    const int two = TRADITIONAL ? one + 1 : pair + PAIRS;
#endif
    const float a = float(values[one]);
    const float b = float(values[two]);
    const float angle = position * exp2(-float(pair) / float(PAIRS) * base_log2);
    const float c = fast::cos(angle);
    const float s = fast::sin(angle);
#if defined(MUTANT_rotated_backwards)
    to[one] = T(a * c + b * s);
    to[two] = T(b * c - a * s);
#else
    to[one] = T(a * c - b * s);
    to[two] = T(a * s + b * c);
#endif
  }
#if !defined(MUTANT_rest_not_copied)
  for (int i = 2 * turned + lane; i < D; i += 32) {
    to[i] = values[i];
  }
#endif
}
