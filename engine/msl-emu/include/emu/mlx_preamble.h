// What MLX puts before every custom kernel, as far as bodies use it: names of its types, and where an element of a
// strided array lies. With an MLX installation at hand its own headers are used instead.
#pragma once

#include <metal_stdlib>

typedef half float16_t;
typedef bfloat bfloat16_t;

// Offset of row-major element `elem` of an array of this shape under these strides, all in elements.
template <class Index = int64_t>
METAL_FUNC Index elem_to_loc(Index elem, const int* shape, const int64_t* strides, int ndim) {
  Index at = 0;
  for (int axis = ndim - 1; axis >= 0 && elem > 0; axis--) {
    at += (elem % shape[axis]) * Index(strides[axis]);
    elem /= shape[axis];
  }
  return at;
}

// The same for an element given as its last two indices and the row-major rest.
template <class Index = int64_t>
METAL_FUNC Index elem_to_loc(uint3 elem, const int* shape, const int64_t* strides, int ndim) {
  Index at = elem.x * Index(strides[ndim - 1]) + elem.y * Index(strides[ndim - 2]);
  uint rest = elem.z;
  for (int axis = ndim - 3; axis >= 0; axis--) {
    at += (rest % shape[axis]) * Index(strides[axis]);
    rest /= shape[axis];
  }
  return at;
}

// The least number of parts of `size` that hold `count`.
template <class T, class U>
METAL_FUNC T ceildiv(T count, U size) {
  return (count + size - 1) / size;
}
