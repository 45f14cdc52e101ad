// out = a · sigmoid(a) · b, four elements a thread; the last thread may have fewer.
// a, b, out [n] of T. Grid: ceil(n / 4).
const uint n = a_shape[0];
const uint start = thread_position_in_grid.x * 4;
if (start + 4 <= n) {
  const float4 x = float4(*reinterpret_cast<const device vec<T, 4>*>(a + start));
  const float4 gate = float4(*reinterpret_cast<const device vec<T, 4>*>(b + start));
  *reinterpret_cast<device vec<T, 4>*>(out + start) = vec<T, 4>(x / (1.0f + exp(-x)) * gate);
} else {
  for (uint i = start; i < n; i++) {
    const float x = float(a[i]);
    out[i] = T(x / (1.0f + exp(-x)) * float(b[i]));
  }
}
