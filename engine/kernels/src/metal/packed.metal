// Matrices in MLX's affine packing, products by them and the tiles that they pass through: what kernels that project
// share. w = scale · code + bias in groups of GROUP columns, BITS (4 or 8) bits a code, the first in the lowest bits.
#include <metal_simdgroup_matrix>

// Rows and columns of a tile of results, and columns of the operands that are staged at a time.
constant constexpr int TILE = 32;
// Threads that work on a tile: four simdgroups, a quarter each.
constant constexpr int THREADS = 128;

// Elements from one row of a staged tile to the next: 16 bytes more than it holds, for the banks of the memory.
template <typename S>
constexpr int stride() {
  return TILE + 16 / int(sizeof(S));
}

// A packed matrix [rows, columns]; columns is a multiple of GROUP.
template <int BITS, int GROUP, typename T>
struct Packed {
  const device uint* words;
  const device T* scales;
  const device T* biases;
  int rows;
  int columns;

  float scale(ulong first) const {
#if defined(MUTANT_scale_off)
    return 1.01f * float(scales[group(first)]);
#else
    return float(scales[group(first)]);
#endif
  }

  float bias(ulong first) const {
#if defined(MUTANT_bias_forgotten)
    return 0.0f;
#else
    return float(biases[group(first)]);
#endif
  }

  ulong group(ulong first) const {
#if defined(MUTANT_wrong_group)
    return (first + 8) / GROUP;
#else
    return first / GROUP;
#endif
  }

  // Code `i` of the eight that begin at element `first`.
  float code(ulong first, int i) const {
    const uint word = words[first / (32 / BITS) + i * BITS / 32];
#if defined(MUTANT_codes_reversed)
    return float((word >> (32 - BITS - i * BITS % 32)) & ((1u << BITS) - 1));
#else
    return float((word >> (i * BITS % 32)) & ((1u << BITS) - 1));
#endif
  }

  // Σ values[i] · w[row, column + i] over eight columns; `sum` is that of the values. Codes are counted from the middle
  // of their range, near which the weights cancel: from 0 on, the two terms would be large and their sum small.
  float dot(const thread float* values, float sum, int row, int column) const {
    constexpr float middle = float(1 << (BITS - 1));
    const ulong first = ulong(row) * ulong(columns) + ulong(column);
    float products = 0.0f;
    for (int i = 0; i < 8; i++) {
      products += values[i] * (code(first, i) - middle);
    }
    return products * scale(first) + sum * fma(middle, scale(first), bias(first));
  }

  // A tile of rows row … and columns column … as numbers of S; rows that there are not are zeros. By all THREADS,
  // of which `index` is one.
  template <typename S>
  void stage(threadgroup S* tile, int row, int column, int index) const {
    const int part = index % 4 * 8;
    const int mine = row + index / 4;
    threadgroup S* to = tile + index / 4 * stride<S>() + part;
#if defined(MUTANT_weights_unmasked)
    const bool exists = true;
#else
    const bool exists = mine < rows;
#endif
    const ulong first = ulong(mine) * ulong(columns) + ulong(column + part);
    const float by = exists ? scale(first) : 0.0f;
    const float offset = exists ? bias(first) : 0.0f;
    for (int i = 0; i < 8; i++) {
      to[i] = exists ? S(by * code(first, i) + offset) : S(0);
    }
  }
};

// A tile of rows row … and columns column … of x [rows, columns]; rows that there are not are zeros. By all THREADS.
template <typename S, typename T>
inline void stage(threadgroup S* tile, const device T* x, int rows, int columns, int row, int column, int index) {
  const int part = index % 4 * 8;
  const int mine = row + index / 4;
#if defined(MUTANT_rows_unmasked)
  const bool exists = true;
#else
  const bool exists = mine < rows;
#endif
  const device T* from = x + ulong(exists ? mine : 0) * ulong(columns) + ulong(column + part);
  threadgroup S* to = tile + index / 4 * stride<S>() + part;
  for (int i = 0; i < 8; i++) {
    to[i] = exists ? S(from[i]) : S(0);
  }
}

// Eight elements of x, widened; their sum.
template <typename T>
inline float load(thread float* values, const device T* x) {
  float sum = 0.0f;
  for (int i = 0; i < 8; i++) {
    values[i] = float(x[i]);
    sum += values[i];
  }
  return sum;
}

// A simdgroup's quarter of a tile of results: 16 × 16 as four matrices.
struct Quarter {
  simdgroup_matrix<float, 8, 8> sums[4];

  void clear() {
    for (int i = 0; i < 4; i++) {
      sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }

  // Adds left · rightᵀ of two staged tiles.
  template <typename S>
  void add(const threadgroup S* left, const threadgroup S* right, int simdgroup) {
    const int row = simdgroup / 2 * 16;
    const int column = simdgroup % 2 * 16;
    for (int k = 0; k < TILE; k += 8) {
      simdgroup_matrix<S, 8, 8> a[2];
      simdgroup_matrix<S, 8, 8> b[2];
      for (int i = 0; i < 2; i++) {
        simdgroup_load(a[i], left + (row + 8 * i) * stride<S>() + k, stride<S>());
        simdgroup_load(b[i], right + (column + 8 * i) * stride<S>() + k, stride<S>(), ulong2(0, 0), true);
      }
      for (int i = 0; i < 4; i++) {
        simdgroup_multiply_accumulate(sums[i], a[i / 2], b[i % 2], sums[i]);
      }
    }
  }

  // Writes the quarter into a tile of floats.
  void store(threadgroup float* tile, int simdgroup) {
    const int row = simdgroup / 2 * 16;
    const int column = simdgroup % 2 * 16;
    for (int i = 0; i < 4; i++) {
      simdgroup_store(sums[i], tile + (row + i / 2 * 8) * stride<float>() + column + i % 2 * 8, stride<float>());
    }
  }
};

// σ(x) with every operation rounded to S, as MLX's Metal kernels compute it.
template <typename S>
inline S sigmoid(S x) {
  const S small = S(1) / (S(1) + exp(abs(x)));
  return x < S(0) ? small : S(1) - small;
}

// silu(gate) · up with every operation rounded to S.
template <typename S>
inline float gated(float gate, float up) {
#if defined(MUTANT_gate_up_swapped)
  const float other = gate;
  gate = up;
  up = other;
#endif
#if defined(MUTANT_gate_in_bfloat)
  gate = float(bfloat16_t(gate));
#endif
  const S value = S(gate);
#if defined(MUTANT_sigmoid_only)
  return float(sigmoid(value) * S(up));
#else
  return float(value * sigmoid(value) * S(up));
#endif
}
