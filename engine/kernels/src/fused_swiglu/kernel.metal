// out = silu(x · gateᵀ) · (x · upᵀ) with both matrices packed. Sums are floats; results, and weights that are staged,
// are rounded to S: T where the composed kernels round, float to round once.
// x [.., columns] of T; gate and up [width, columns]; out [.., width] of T.
// TILED 0: a simdgroup makes RESULTS results of a row. Grid: 32, 2 · ceil(width / 8), rows; group: 32, 2.
// TILED 1: a group makes a tile. Grid: THREADS · ceil(width / TILE), ceil(rows / TILE); group: THREADS.
constexpr int RESULTS = 4;
constexpr int STAGED = TILED ? TILE * stride<S>() : 1;
threadgroup S x_tile[STAGED];
threadgroup S gate_tile[STAGED];
threadgroup S up_tile[STAGED];
threadgroup float results[TILED ? TILE * stride<float>() : 1];
const int columns = x_shape[x_ndim - 1];
const int width = gate_w_shape[0];
int rows = 1;
for (int axis = 0; axis < x_ndim - 1; axis++) {
  rows *= x_shape[axis];
}
const int lane = thread_index_in_simdgroup;
const int simdgroup = simdgroup_index_in_threadgroup;
const Packed<GATE_BITS, GATE_GROUP, T> gate = {gate_w, gate_scales, gate_biases, width, columns};
const Packed<UP_BITS, UP_GROUP, T> up = {up_w, up_scales, up_biases, width, columns};
if (TILED) {
  const int index = thread_index_in_threadgroup;
  const int row = threadgroup_position_in_grid.y * TILE;
  const int first = threadgroup_position_in_grid.x * TILE;
  Quarter gates;
  Quarter ups;
  gates.clear();
  ups.clear();
#if defined(MUTANT_last_slice_dropped)
  const int end = columns - TILE;
#else
  const int end = columns;
#endif
  for (int column = 0; column < end; column += TILE) {
#if defined(MUTANT_stale_tile)
    if (column == 0) {
      stage(x_tile, x, rows, columns, row, column, index);
    }
#else
    stage(x_tile, x, rows, columns, row, column, index);
#endif
    gate.stage(gate_tile, first, column, index);
    up.stage(up_tile, first, column, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    gates.add(x_tile, gate_tile, simdgroup);
    ups.add(x_tile, up_tile, simdgroup);
#if !defined(MUTANT_no_barrier)
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
  }
  for (int i = 0; i < 4; i++) {
    for (int j = 0; j < 2; j++) {
      thread float& sum = gates.sums[i].thread_elements()[j];
      sum = gated<S>(sum, ups.sums[i].thread_elements()[j]);
    }
  }
  gates.store(results, simdgroup);
  threadgroup_barrier(mem_flags::mem_threadgroup);
#if defined(MUTANT_tail_skipped)
  if (first + TILE > width) {
    return;
  }
#endif
  for (int i = index; i < TILE * TILE; i += THREADS) {
    const int r = row + i / TILE;
    const int c = first + i % TILE;
    if (r < rows && c < width) {
      out[ulong(r) * ulong(width) + ulong(c)] = T(results[i / TILE * stride<float>() + i % TILE]);
    }
  }
} else {
  const int row = threadgroup_position_in_grid.z;
  const int first = (threadgroup_position_in_grid.y * 2 + simdgroup) * RESULTS;
  const device T* from = x + ulong(row) * ulong(columns);
  float gates[RESULTS] = {0.0f, 0.0f, 0.0f, 0.0f};
  float ups[RESULTS] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int column = lane * 8; column < columns; column += 256) {
    float values[8];
    const float sum = load(values, from + column);
    for (int i = 0; i < RESULTS; i++) {
#if !defined(MUTANT_width_unmasked)
      if (first + i >= width) {
        break;
      }
#endif
      gates[i] += gate.dot(values, sum, first + i, column);
      ups[i] += up.dot(values, sum, first + i, column);
    }
  }
  for (int i = 0; i < RESULTS; i++) {
#if defined(MUTANT_lanes_not_summed)
    const float result = gated<S>(gates[i], ups[i]);
#else
    const float result = gated<S>(simd_sum(gates[i]), simd_sum(ups[i]));
#endif
    if (lane == i && first + i < width) {
      out[ulong(row) * ulong(width) + ulong(first + i)] = T(result);
    }
  }
}
