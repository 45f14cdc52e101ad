// Sum of each row: one simdgroup a row, four rows a group.
// x [rows, n] of T; out [rows] of T. Grid: 32, rows; group: 32, 4.
const uint n = x_shape[1];
const uint row = thread_position_in_grid.y;
const uint lane = thread_index_in_simdgroup;
const device T* values = x + row * n;
float total = 0.0f;
for (uint i = lane; i < n; i += 32) {
  total += float(values[i]);
}
total = simd_sum(total);
if (lane == 0) {
  out[row] = T(total);
}
