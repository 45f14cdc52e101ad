// out = a + b for operands of any strides, out row-major.
// a and b [shape] of T, not copied to rows; out [shape] of T. Grid: number of elements.
const uint i = thread_position_in_grid.x;
out[i] = T(float(a[elem_to_loc(i, a_shape, a_strides, a_ndim)]) + float(b[elem_to_loc(i, b_shape, b_strides, b_ndim)]));
