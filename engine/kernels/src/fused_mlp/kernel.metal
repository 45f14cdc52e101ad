// out = residual + (silu(x · gateᵀ) · (x · upᵀ)) · downᵀ with three packed matrices; everything is a float. Each group makes
// TILE hidden values of its rows and adds what they contribute to every result: nothing between the matrices goes to
// memory, and the order of the additions is not fixed.
// x [.., columns] of T; gate and up [width, columns], down [outs, width]; residual [.., outs] of T; out [.., outs] of
// atomic floats that hold zeros before. width is a multiple of TILE.
// Grid: THREADS · width / TILE, rows (ceil(rows / TILE) where TILED); group: THREADS.
constexpr int RESULTS = 4;
constexpr int STAGED = TILED ? TILE * stride<float>() : 1;
threadgroup float left[STAGED];
threadgroup float right[STAGED];
threadgroup float other[STAGED];
threadgroup float hidden[TILED ? TILE * stride<float>() : TILE];
const int columns = x_shape[x_ndim - 1];
const int width = gate_w_shape[0];
const int outs = down_w_shape[0];
int rows = 1;
for (int axis = 0; axis < x_ndim - 1; axis++) {
  rows *= x_shape[axis];
}
const int index = thread_index_in_threadgroup;
const int lane = thread_index_in_simdgroup;
const int simdgroup = simdgroup_index_in_threadgroup;
const int first = threadgroup_position_in_grid.x * TILE;
#if defined(MUTANT_last_block_dropped)
if (first > 0 && first + TILE >= width) {
  return;
}
#endif
#if defined(MUTANT_residual_twice)
const bool adds_residual = first < 2 * TILE;
#elif defined(MUTANT_residual_forgotten)
const bool adds_residual = false;
#else
const bool adds_residual = first == 0;
#endif
const Packed<GATE_BITS, GATE_GROUP, T> gate = {gate_w, gate_scales, gate_biases, width, columns};
const Packed<UP_BITS, UP_GROUP, T> up = {up_w, up_scales, up_biases, width, columns};
const Packed<DOWN_BITS, DOWN_GROUP, T> down = {down_w, down_scales, down_biases, outs, width};
if (TILED) {
  const int row = threadgroup_position_in_grid.y * TILE;
  Quarter gates;
  Quarter ups;
  gates.clear();
  ups.clear();
  for (int column = 0; column < columns; column += TILE) {
    stage(left, x, rows, columns, row, column, index);
    gate.stage(right, first, column, index);
    up.stage(other, first, column, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    gates.add(left, right, simdgroup);
    ups.add(left, other, simdgroup);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (int i = 0; i < 4; i++) {
    for (int j = 0; j < 2; j++) {
      thread float& sum = gates.sums[i].thread_elements()[j];
      sum = gated<float>(sum, ups.sums[i].thread_elements()[j]);
    }
  }
  gates.store(hidden, simdgroup);
  for (int to = 0; to < outs; to += TILE) {
#if defined(MUTANT_stale_tile)
    if (to == 0) {
      down.stage(right, to, first, index);
    }
#else
    down.stage(right, to, first, index);
#endif
    threadgroup_barrier(mem_flags::mem_threadgroup);
    Quarter sums;
    sums.clear();
    sums.add(hidden, right, simdgroup);
    sums.store(left, simdgroup);
#if !defined(MUTANT_no_barrier)
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    for (int i = index; i < TILE * TILE; i += THREADS) {
      const int r = row + i / TILE;
      const int c = to + i % TILE;
      if (r < rows && c < outs) {
        const ulong at = ulong(r) * ulong(outs) + ulong(c);
        float part = left[i / TILE * stride<float>() + i % TILE];
        if (adds_residual) {
          part += float(residual[at]);
        }
        atomic_fetch_add_explicit(&out[at], part, memory_order_relaxed);
      }
    }
  }
} else {
  const int row = threadgroup_position_in_grid.y;
  const device T* from = x + ulong(row) * ulong(columns);
  for (int base = simdgroup * 8; base < simdgroup * 8 + 8; base += RESULTS) {
    float gates[RESULTS] = {0.0f, 0.0f, 0.0f, 0.0f};
    float ups[RESULTS] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int column = lane * 8; column < columns; column += 256) {
      float values[8];
      const float sum = load(values, from + column);
      for (int i = 0; i < RESULTS; i++) {
        gates[i] += gate.dot(values, sum, first + base + i, column);
        ups[i] += up.dot(values, sum, first + base + i, column);
      }
    }
    for (int i = 0; i < RESULTS; i++) {
      const float value = gated<float>(simd_sum(gates[i]), simd_sum(ups[i]));
      if (lane == i) {
#if defined(MUTANT_hidden_rounded)
        hidden[base + i] = float(bfloat16_t(value));
#else
        hidden[base + i] = value;
#endif
      }
    }
  }
#if !defined(MUTANT_hidden_unfenced)
  threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
#if defined(MUTANT_outs_unmasked)
  const int end = (outs + THREADS - 1) / THREADS * THREADS;
#elif defined(MUTANT_tail_skipped)
  const int end = outs / TILE * TILE;
#else
  const int end = outs;
#endif
  for (int to = index; to < end; to += THREADS) {
    const ulong at = ulong(row) * ulong(outs) + ulong(to);
    float part = adds_residual ? float(residual[at]) : 0.0f;
    for (int i = 0; i < TILE; i += 8) {
      float values[8];
      float sum = 0.0f;
      for (int j = 0; j < 8; j++) {
        values[j] = hidden[i + j];
        sum += values[j];
      }
      part += down.dot(values, sum, to, first + i);
    }
    atomic_fetch_add_explicit(&out[at], part, memory_order_relaxed);
  }
}
