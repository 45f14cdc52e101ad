// Linear head and cross-entropy in one pass over the classes, CLASSES of them at a time, without the logits in memory:
// a group owns ROWS positions, whose running maximum and sum it keeps (Wijmans et al., 2024). Eight rows a simdgroup,
// products as 8 × 8 matrices in float32 over staged slices of DEPTH.
// hidden [n, width] of T; weight [classes, width] of W, or PACKED weight_w [classes, width · BITS / 32] of uint32 with
// weight_scales and weight_biases [classes, width / GROUP] of W; targets [n] of int32, IGNORED for none.
// loss [n] of float: lse - logit of the target, 0 where there is none; lse [n] of float.
// Grid: 128 · ceil(n / 32); group: 128.
constexpr int ROWS = 32;
constexpr int CLASSES = 64;
constexpr int DEPTH = 32;
constexpr int THREADS = 128;
constexpr int STEPS = CLASSES / 8;
constexpr int IGNORED = -100;
constexpr float LOWEST = -3.0e38f;
threadgroup float rows_slice[ROWS * DEPTH];
threadgroup float classes_slice[CLASSES * DEPTH];
threadgroup float logits[ROWS * CLASSES];
const int count = hidden_shape[0];
const int width = hidden_shape[1];
#if defined(PACKED)
const int classes = weight_w_shape[0];
#else
const int classes = weight_shape[0];
#endif
const int first = threadgroup_position_in_grid.x * ROWS;
const int mine = thread_position_in_threadgroup.x;
const int lane = thread_index_in_simdgroup;
const int own = simdgroup_index_in_threadgroup * 8;
// Four lanes a row.
const int row = own + lane / 4;
const int target = first + row < count ? targets[first + row] : IGNORED;
simdgroup_matrix<float, 8, 8> left;
simdgroup_matrix<float, 8, 8> right;
simdgroup_matrix<float, 8, 8> sums[STEPS];
float best = LOWEST;
float whole = 0.0f;
float picked = 0.0f;
#if defined(MUTANT_chunk_dropped)
// Of more chunks than one, a partial one is left out.
const int stop = max(classes - CLASSES, 0) + 1;
#else
const int stop = classes;
#endif
#if defined(MUTANT_depth_tail_dropped)
const int deepest = max(width - DEPTH, 0) + 1;
#else
const int deepest = width;
#endif
for (int chunk = 0; chunk < stop; chunk += CLASSES) {
  for (int j = 0; j < STEPS; j++) {
    sums[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  for (int depth = 0; depth < deepest; depth += DEPTH) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = mine; i < ROWS * DEPTH; i += THREADS) {
#if defined(MUTANT_stale_tile)
      // The slice of the positions is staged for the first depth only.
      if (depth > 0) {
        continue;
      }
#endif
      rows_slice[i] = element(hidden, first + i / DEPTH, depth + i % DEPTH, count, width);
    }
    for (int i = mine; i < CLASSES * DEPTH; i += THREADS) {
      classes_slice[i] = WEIGHT(chunk + i / DEPTH, depth + i % DEPTH);
    }
#if defined(MUTANT_no_barrier)
    simdgroup_barrier(mem_flags::mem_threadgroup);
#else
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    for (int k = 0; k < DEPTH; k += 8) {
      simdgroup_load(left, rows_slice + own * DEPTH + k, DEPTH);
      for (int j = 0; j < STEPS; j++) {
        simdgroup_load(right, classes_slice + j * 8 * DEPTH + k, DEPTH, ulong2(0), true);
        simdgroup_multiply_accumulate(sums[j], left, right, sums[j]);
      }
    }
  }
  for (int j = 0; j < STEPS; j++) {
    simdgroup_store(sums[j], logits + own * CLASSES + j * 8, CLASSES);
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  // Classes that exist: `begin` to `end` of this chunk.
#if defined(MUTANT_first_class_dropped)
  const int begin = chunk == 0 ? 1 : 0;
#else
  const int begin = 0;
#endif
#if defined(MUTANT_tail_unmasked)
  const int end = CLASSES;
#elif defined(MUTANT_last_class_dropped)
  const int end = min(classes - 1 - chunk, CLASSES);
#else
  const int end = min(classes - chunk, CLASSES);
#endif
  float highest = best;
  for (int column = begin + lane % 4; column < end; column += 4) {
    const float logit = logits[row * CLASSES + column];
    highest = max(highest, logit);
#if defined(MUTANT_target_off_by_one)
    picked = chunk + column == target + 1 ? logit : picked;
#else
    picked = chunk + column == target ? logit : picked;
#endif
  }
  highest = max(highest, simd_shuffle_xor(highest, 1));
  highest = max(highest, simd_shuffle_xor(highest, 2));
#if defined(MUTANT_max_not_subtracted)
  highest = 0.0f;
#endif
  float sum = 0.0f;
  for (int column = begin + lane % 4; column < end; column += 4) {
    sum += exp(logits[row * CLASSES + column] - highest);
  }
  sum += simd_shuffle_xor(sum, 1);
  sum += simd_shuffle_xor(sum, 2);
#if defined(MUTANT_rescale_forgotten)
  whole = whole + sum;
#else
  whole = whole * exp(best - highest) + sum;
#endif
  best = highest;
}
// One lane of the four met the target.
picked += simd_shuffle_xor(picked, 1);
picked += simd_shuffle_xor(picked, 2);
if (lane % 4 == 0 && first + row < count) {
#if defined(MUTANT_lse_without_max)
  const float log_sum = log(whole);
#else
  const float log_sum = best + log(whole);
#endif
#if defined(MUTANT_ignored_counted)
  loss[first + row] = log_sum - picked;
#else
  loss[first + row] = target == IGNORED ? 0.0f : log_sum - picked;
#endif
  lse[first + row] = log_sum;
}
