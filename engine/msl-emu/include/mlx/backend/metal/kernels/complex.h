// In place of MLX's header of this name, whose overloads differ in address spaces only: complex numbers as its kernels
// use them, with the same names.
#pragma once

#include <metal_type_traits>

#include "mlx/backend/metal/kernels/bf16.h"

template <class T>
struct complex_t;
template <class T>
inline constexpr bool is_complex_v = false;
template <class T>
inline constexpr bool is_complex_v<complex_t<T>> = true;
template <class T>
concept emu_real = metal::is_arithmetic_v<T>;

template <class T>
struct complex_t {
  using value_type = T;
  T real;
  T imag;

  complex_t() = default;
  constexpr complex_t(T re, T im) : real(re), imag(im) {}
  template <emu_real U>
  constexpr complex_t(U re) : real(static_cast<T>(re)), imag(static_cast<T>(0)) {}
  template <class U>
    requires(!std::is_same_v<U, T>)
  constexpr complex_t(complex_t<U> from) : real(static_cast<T>(from.real)), imag(static_cast<T>(from.imag)) {}
  complex_t(metal::vec<T, 2> pair) : real(pair.x), imag(pair.y) {}

  operator metal::vec<T, 2>() const { return metal::vec<T, 2>(real, imag); }
  template <emu_real U>
  constexpr operator U() const {
    return static_cast<U>(real);
  }

  friend constexpr complex_t operator-(complex_t a) { return {-a.real, -a.imag}; }
  friend constexpr complex_t operator+(complex_t a, complex_t b) { return {a.real + b.real, a.imag + b.imag}; }
  friend constexpr complex_t operator-(complex_t a, complex_t b) { return {a.real - b.real, a.imag - b.imag}; }
  friend constexpr complex_t operator*(complex_t a, complex_t b) {
    return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
  }
  friend constexpr complex_t operator/(complex_t a, complex_t b) {
    const T norm = b.real * b.real + b.imag * b.imag;
    return {(a.real * b.real + a.imag * b.imag) / norm, (a.imag * b.real - a.real * b.imag) / norm};
  }
  friend constexpr complex_t& operator+=(complex_t& a, complex_t b) { return a = a + b; }
  friend constexpr bool operator==(complex_t a, complex_t b) { return a.real == b.real && a.imag == b.imag; }
  // By the real part first, as MLX orders complex numbers.
  friend constexpr bool operator<(complex_t a, complex_t b) {
    return a.real < b.real || (a.real == b.real && a.imag < b.imag);
  }
  friend constexpr bool operator>(complex_t a, complex_t b) { return b < a; }
  friend constexpr bool operator<=(complex_t a, complex_t b) { return a < b || a == b; }
  friend constexpr bool operator>=(complex_t a, complex_t b) { return b <= a; }
};

using complex32_t = complex_t<half>;
using complex64_t = complex_t<float>;
