// Gradients of the linear head and cross-entropy from the log of its sums, without logits in memory and without atomics:
// a group owns ROWS positions for dhidden, or, with WANT_DWEIGHT, ROWS classes for dweight, and PARTS · 64 of their
// columns. It goes over the other side COLUMNS at a time: it makes their logits again over the whole width, the logits'
// gradient of them, and adds the gradient's product with that side to what its simdgroups keep in registers: eight
// columns of every 64 each.
// hidden [n, width] of T; weight [classes, width] of W, or PACKED weight_w [classes, width · BITS / 32] of uint32 with
// weight_scales and weight_biases [classes, width / GROUP] of W; targets [n] of int32, IGNORED for none; lse and
// cotangent [n] of float. dhidden [n, width] of T; dweight [classes, width] of W.
// Grid: 256 · (ceil(n / 16) + ceil(classes / 16)), ceil(width / (PARTS · 64)); group: 256. Without dweight its groups go.
constexpr int ROWS = 16;
constexpr int COLUMNS = 32;
constexpr int DEPTH = 64;
constexpr int THREADS = 256;
constexpr int IGNORED = -100;
threadgroup float near[ROWS * DEPTH];
threadgroup float far[COLUMNS * DEPTH];
threadgroup float gradient[ROWS * COLUMNS];
const int count = hidden_shape[0];
const int width = hidden_shape[1];
#if defined(PACKED)
const int classes = weight_w_shape[0];
#else
const int classes = weight_shape[0];
#endif
const int position_groups = (count + ROWS - 1) / ROWS;
const int group = threadgroup_position_in_grid.x;
#if defined(WANT_DWEIGHT)
const bool for_weight = group >= position_groups;
#else
constexpr bool for_weight = false;
#endif
const int first = (for_weight ? group - position_groups : group) * ROWS;
const int from = threadgroup_position_in_grid.y * PARTS * DEPTH;
const int others = for_weight ? count : classes;
const int mine = thread_position_in_threadgroup.x;
const int simdgroup = simdgroup_index_in_threadgroup;
// The block of 8 × 8 logits that the simdgroup makes.
const int block_row = simdgroup % 2 * 8;
const int block_column = simdgroup / 2 * 8;
simdgroup_matrix<float, 8, 8> left;
simdgroup_matrix<float, 8, 8> right;
simdgroup_matrix<float, 8, 8> block;
simdgroup_matrix<float, 8, 8> total[PARTS * 2];
for (int j = 0; j < PARTS * 2; j++) {
  total[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}
#if defined(MUTANT_chunk_dropped)
// Of more chunks than one, a partial one is left out.
const int stop = max(others - COLUMNS, 0) + 1;
#else
const int stop = others;
#endif
for (int chunk = 0; chunk < stop; chunk += COLUMNS) {
  block = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (int depth = 0; depth < width; depth += DEPTH) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = mine; i < ROWS * DEPTH; i += THREADS) {
      const int at = first + i / DEPTH;
      const int column = depth + i % DEPTH;
      near[i] = for_weight ? WEIGHT(at, column) : element(hidden, at, column, count, width);
    }
    for (int i = mine; i < COLUMNS * DEPTH; i += THREADS) {
      const int at = chunk + i / DEPTH;
      const int column = depth + i % DEPTH;
      far[i] = for_weight ? element(hidden, at, column, count, width) : WEIGHT(at, column);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int k = 0; k < DEPTH; k += 8) {
      simdgroup_load(left, near + block_row * DEPTH + k, DEPTH);
      simdgroup_load(right, far + block_column * DEPTH + k, DEPTH, ulong2(0), true);
      simdgroup_multiply_accumulate(block, left, right, block);
    }
  }
  simdgroup_store(block, gradient + block_row * COLUMNS + block_column, COLUMNS);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = mine; i < ROWS * COLUMNS; i += THREADS) {
    const int near_at = first + i / COLUMNS;
    const int far_at = chunk + i % COLUMNS;
    const int position = for_weight ? far_at : near_at;
    const int label = for_weight ? near_at : far_at;
#if defined(MUTANT_last_class_dropped)
    const int known = classes - 1;
#else
    const int known = classes;
#endif
    float slope = 0.0f;
    if (position < count && label < known) {
      const int target = targets[position];
#if defined(MUTANT_max_not_subtracted)
      slope = exp(gradient[i]) / exp(lse[position]);
#else
      slope = exp(gradient[i] - lse[position]);
#endif
#if defined(MUTANT_target_off_by_one)
      slope -= label == target + 1 ? 1.0f : 0.0f;
#elif !defined(MUTANT_target_forgotten)
      slope -= label == target ? 1.0f : 0.0f;
#endif
#if !defined(MUTANT_cotangent_forgotten)
      slope *= cotangent[position];
#endif
#if !defined(MUTANT_ignored_counted)
      slope = target == IGNORED ? 0.0f : slope;
#endif
    }
    gradient[i] = slope;
  }
  for (int part = 0; part < PARTS; part++) {
#if defined(MUTANT_no_barrier)
    simdgroup_barrier(mem_flags::mem_threadgroup);
#else
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    for (int i = mine; i < COLUMNS * DEPTH; i += THREADS) {
#if defined(MUTANT_stale_tile)
      // What the logits were made of last is taken for the first part's columns.
      if (part == 0) {
        continue;
      }
#endif
      const int at = chunk + i / DEPTH;
      const int column = from + part * DEPTH + i % DEPTH;
      far[i] = for_weight ? element(hidden, at, column, count, width) : WEIGHT(at, column);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int k = 0; k < COLUMNS; k += 8) {
      simdgroup_load(right, far + k * DEPTH + simdgroup * 8, DEPTH);
      for (int j = 0; j < 2; j++) {
#if defined(MUTANT_dweight_transposed)
        simdgroup_load(left, gradient + j * 8 * COLUMNS + k, COLUMNS, ulong2(0), for_weight);
#else
        simdgroup_load(left, gradient + j * 8 * COLUMNS + k, COLUMNS);
#endif
        simdgroup_multiply_accumulate(total[part * 2 + j], left, right, total[part * 2 + j]);
      }
    }
  }
}
const int rows = for_weight ? classes : count;
for (int part = 0; part < PARTS; part++) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int j = 0; j < 2; j++) {
    simdgroup_store(total[part * 2 + j], far + j * 8 * DEPTH + simdgroup * 8, DEPTH);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = mine; i < ROWS * DEPTH; i += THREADS) {
    const int at = first + i / DEPTH;
    const int column = from + part * DEPTH + i % DEPTH;
    if (at >= rows || column >= width) {
      continue;
    }
#if defined(WANT_DWEIGHT)
    if (for_weight) {
      dweight[size_t(at) * width + column] = W(far[i]);
      continue;
    }
#endif
    dhidden[size_t(at) * width + column] = T(far[i]);
  }
}
