// `bfloat`: the upper half of a float32, rounded to nearest, ties to even, after every operation.
#pragma once
#pragma GCC system_header

struct bfloat {
  uint16_t bits;

  bfloat() = default;
  // MSL 2.1: "neither float nor half can be implicitly converted to bfloat".
  constexpr explicit bfloat(float value) : bits(rounded(value)) {}
  constexpr explicit bfloat(half value) : bits(rounded(static_cast<float>(value))) {}
  template <class I>
    requires std::is_integral_v<I>
  constexpr bfloat(I value) : bits(rounded(to_odd(value))) {}

  constexpr operator float() const { return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16); }

  static constexpr uint16_t rounded(float value) {
    const uint32_t word = __builtin_bit_cast(uint32_t, value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((word >> 16) | 0x40u);
    return static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }

 private:
  // Rounding an integer to float32 to odd keeps the second rounding, to bfloat, correct.
  template <class I>
  static constexpr float to_odd(I value) {
    const bool negative = value < I(0);
    const uint64_t magnitude = negative ? uint64_t(0) - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    if (magnitude < (uint64_t(1) << 24)) return static_cast<float>(value);
    const int drop = 40 - __builtin_clzll(magnitude);
    const bool sticky = (magnitude & ((uint64_t(1) << drop) - 1)) != 0;
    const uint64_t kept = ((magnitude >> drop) | (sticky ? 1u : 0u)) << drop;
    return negative ? -static_cast<float>(kept) : static_cast<float>(kept);
  }
};

// bfloat with bfloat or an integer is bfloat; with float it is float (MSL 2.1, "usual arithmetic conversions").
#define EMU_BFLOAT_BINARY(op)                                                             \
  constexpr bfloat operator op(bfloat a, bfloat b) { return bfloat(float(a) op float(b)); } \
  template <class I>                                                                      \
    requires std::is_integral_v<I>                                                        \
  constexpr bfloat operator op(bfloat a, I b) { return a op bfloat(b); }                  \
  template <class I>                                                                      \
    requires std::is_integral_v<I>                                                        \
  constexpr bfloat operator op(I a, bfloat b) { return bfloat(a) op b; }                  \
  template <class F>                                                                      \
    requires std::is_same_v<F, float>                                                     \
  constexpr float operator op(bfloat a, F b) { return float(a) op b; }                    \
  template <class F>                                                                      \
    requires std::is_same_v<F, float>                                                     \
  constexpr float operator op(F a, bfloat b) { return a op float(b); }
EMU_BFLOAT_BINARY(+)
EMU_BFLOAT_BINARY(-)
EMU_BFLOAT_BINARY(*)
EMU_BFLOAT_BINARY(/)
#undef EMU_BFLOAT_BINARY

#define EMU_BFLOAT_COMPARE(op)                                                         \
  constexpr bool operator op(bfloat a, bfloat b) { return float(a) op float(b); }      \
  template <class N>                                                                   \
    requires std::is_integral_v<N> || std::is_same_v<N, float>                         \
  constexpr bool operator op(bfloat a, N b) { return float(a) op static_cast<float>(b); } \
  template <class N>                                                                   \
    requires std::is_integral_v<N> || std::is_same_v<N, float>                         \
  constexpr bool operator op(N a, bfloat b) { return static_cast<float>(a) op float(b); }
EMU_BFLOAT_COMPARE(==)
EMU_BFLOAT_COMPARE(!=)
EMU_BFLOAT_COMPARE(<)
EMU_BFLOAT_COMPARE(<=)
EMU_BFLOAT_COMPARE(>)
EMU_BFLOAT_COMPARE(>=)
#undef EMU_BFLOAT_COMPARE

#define EMU_BFLOAT_ASSIGN(op)                                   \
  template <class N>                                            \
  constexpr bfloat& operator op##=(bfloat& a, N b) {            \
    return a = bfloat(a op b);                                  \
  }
EMU_BFLOAT_ASSIGN(+)
EMU_BFLOAT_ASSIGN(-)
EMU_BFLOAT_ASSIGN(*)
EMU_BFLOAT_ASSIGN(/)
#undef EMU_BFLOAT_ASSIGN

constexpr bfloat operator-(bfloat a) { return __builtin_bit_cast(bfloat, static_cast<uint16_t>(a.bits ^ 0x8000u)); }
constexpr bfloat operator+(bfloat a) { return a; }
constexpr bfloat& operator++(bfloat& a) { return a = a + 1; }
constexpr bfloat& operator--(bfloat& a) { return a = a - 1; }
