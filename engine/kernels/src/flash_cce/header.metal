#include <metal_simdgroup_matrix>

// Element of a row-major matrix in float; 0 outside it.
template <typename T>
METAL_FUNC float element(const device T* matrix, int row, int column, int rows, int columns) {
  return row < rows && column < columns ? float(matrix[size_t(row) * columns + column]) : 0.0f;
}

#if defined(PACKED)
// The same of a matrix packed by MLX's affine mode: scale · code + bias in groups of `group` columns, the first code of
// a word in its lowest bits.
template <typename T>
METAL_FUNC float element(const device uint* codes, const device T* scales, const device T* biases, int row, int column,
                         int rows, int columns, int bits, int group) {
  if (row >= rows || column >= columns) {
    return 0.0f;
  }
  const int each = 32 / bits;
  const uint word = codes[size_t(row) * (columns / each) + column / each];
  const uint code = (word >> (column % each * bits)) & ((1u << bits) - 1u);
#if defined(MUTANT_wrong_group)
  const size_t at = size_t(row) * (columns / group) + (column % group == 0 && column > 0 ? column - 1 : column) / group;
#else
  const size_t at = size_t(row) * (columns / group) + column / group;
#endif
#if defined(MUTANT_bias_forgotten)
  return float(scales[at]) * float(code);
#else
  return float(scales[at]) * float(code) + float(biases[at]);
#endif
}
#define WEIGHT(row, column) \
  element(weight_w, weight_scales, weight_biases, row, column, classes, width, BITS, GROUP)
#else
#define WEIGHT(row, column) element(weight, row, column, classes, width)
#endif
