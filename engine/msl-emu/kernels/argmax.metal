// Position of the first largest element of each row. One group of two simdgroups a row.
// x [rows, n] of T; out [rows] of uint32. Grid: 64, rows; group: 64.
constexpr uint THREADS = 64;
threadgroup float best_values[2];
threadgroup uint best_places[2];
const uint n = x_shape[1];
const uint row = threadgroup_position_in_grid.y;
const uint mine = thread_position_in_threadgroup.x;
float best = -INFINITY;
uint place = 0xffffffffu;
for (uint i = mine; i < n; i += THREADS) {
  const float value = float(x[row * n + i]);
  if (value > best || place == 0xffffffffu) {
    best = value;
    place = i;
  }
}
for (ushort mask = 16; mask > 0; mask /= 2) {
  const float other = simd_shuffle_xor(best, mask);
  const uint other_place = simd_shuffle_xor(place, mask);
  if (other > best || (other == best && other_place < place)) {
    best = other;
    place = other_place;
  }
}
if (thread_index_in_simdgroup == 0) {
  best_values[simdgroup_index_in_threadgroup] = best;
  best_places[simdgroup_index_in_threadgroup] = place;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
if (mine == 0) {
  const bool second = best_values[1] > best_values[0] ||
                      (best_values[1] == best_values[0] && best_places[1] < best_places[0]);
  out[row] = second ? best_places[1] : best_places[0];
}
