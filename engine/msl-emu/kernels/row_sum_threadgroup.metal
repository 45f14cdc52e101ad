// Sum of each row: one group of 128 threads a row, which fold their sums in threadgroup memory.
// x [rows, n] of T; out [rows] of T. Grid: 128, rows; group: 128.
constexpr uint THREADS = 128;
threadgroup float partial[THREADS];
const uint n = x_shape[1];
const uint row = threadgroup_position_in_grid.y;
const uint mine = thread_position_in_threadgroup.x;
const device T* values = x + row * n;
float total = 0.0f;
for (uint i = mine; i < n; i += THREADS) {
  total += float(values[i]);
}
partial[mine] = total;
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint width = THREADS / 2; width > 0; width /= 2) {
  if (mine < width) {
    partial[mine] += partial[mine + width];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
if (mine == 0) {
  out[row] = T(partial[0]);
}
