// `vec<T, N>`: the vector types of MSL 2.2 with their alignment (three elements take the room of four).
// Operators work element by element; a scalar beside a vector stands for itself in every element.
#pragma once
#pragma GCC system_header

#include <emu/lanes.h>

namespace metal {

template <class T, int N>
struct packed_vec;

// What a constructor takes apart: a scalar is one element, a vector or swizzle has those it holds.
template <class A>
struct elements_of {
  static constexpr int count = 1;
  template <class T>
  static void put(T* to, const A& from) { *to = static_cast<T>(from); }
};
template <class U, int M>
struct elements_of<vec<U, M>> {
  static constexpr int count = M;
  template <class T>
  static void put(T* to, const vec<U, M>& from) {
    for (int i = 0; i < M; i++) to[i] = static_cast<T>(from.data[i]);
  }
};
template <class V, class U, int N, int... I>
struct elements_of<emu::swizzle<V, U, N, I...>> {
  static constexpr int count = sizeof...(I);
  template <class T>
  static void put(T* to, const emu::swizzle<V, U, N, I...>& from) { elements_of<V>::put(to, V(from)); }
};
template <class U, int M>
struct elements_of<packed_vec<U, M>> {
  static constexpr int count = M;
  template <class T>
  static void put(T* to, const packed_vec<U, M>& from) { elements_of<vec<U, M>>::put(to, vec<U, M>(from)); }
};

// The vector type behind a vector, swizzle or packed vector; void for anything else.
template <class A>
struct vector_behind { using type = void; };
template <class T, int N>
struct vector_behind<vec<T, N>> { using type = vec<T, N>; };
template <class V, class T, int N, int... I>
struct vector_behind<emu::swizzle<V, T, N, I...>> { using type = V; };
template <class T, int N>
struct vector_behind<packed_vec<T, N>> { using type = vec<T, N>; };
template <class A>
using vector_behind_t = typename vector_behind<std::remove_cvref_t<A>>::type;
template <class A>
concept vector_like = !std::is_void_v<vector_behind_t<A>>;
template <class A>
concept scalar = std::is_arithmetic_v<A> || std::is_same_v<A, half> || std::is_same_v<A, bfloat>;

#define EMU_VECTOR_BINARY(op)                                                             \
  friend vec operator op(const vec& a, const vec& b) {                                    \
    vec out;                                                                              \
    for (int i = 0; i < N; i++) out.data[i] = static_cast<T>(a.data[i] op b.data[i]);     \
    return out;                                                                           \
  }                                                                                       \
  friend vec& operator op##=(vec& a, const vec& b) { return a = a op b; }
#define EMU_VECTOR_COMPARE(op)                                                            \
  friend vec<bool, N> operator op(const vec& a, const vec& b) {                           \
    vec<bool, N> out;                                                                     \
    for (int i = 0; i < N; i++) out.data[i] = a.data[i] op b.data[i];                     \
    return out;                                                                           \
  }
#define EMU_VECTOR_UNARY(op)                                                              \
  friend vec operator op(const vec& a) {                                                  \
    vec out;                                                                              \
    for (int i = 0; i < N; i++) out.data[i] = static_cast<T>(op a.data[i]);               \
    return out;                                                                           \
  }

template <class T, int N>
struct alignas(sizeof(T) * (N == 3 ? 4 : N)) vec : emu::lanes<T, N> {
  static_assert(N >= 2 && N <= 4, "a vector has two, three or four elements");
  using emu::lanes<T, N>::data;

  vec() = default;
  vec(const vec&) = default;
  vec& operator=(const vec& from) {
    __builtin_memcpy(data, from.data, sizeof(data));
    return *this;
  }

  template <scalar S>
  vec(S value) {
    for (int i = 0; i < N; i++) data[i] = static_cast<T>(value);
  }
  // Between vectors of different elements, as MSL has it: only when asked for.
  template <vector_like A>
    requires(elements_of<A>::count == N && !std::is_same_v<vector_behind_t<A>, vec>)
  explicit vec(const A& from) { elements_of<A>::put(data, from); }
  // From scalars and shorter vectors laid end to end.
  template <class A, class B, class... More>
    requires((elements_of<A>::count + elements_of<B>::count + (0 + ... + elements_of<More>::count)) == N)
  vec(const A& a, const B& b, const More&... more) {
    T* to = data;
    const auto put = [&to]<class E>(const E& from) {
      elements_of<E>::put(to, from);
      to += elements_of<E>::count;
    };
    put(a), put(b), (put(more), ...);
  }

  T& operator[](size_t i) { return data[i]; }
  const T& operator[](size_t i) const { return data[i]; }

  EMU_VECTOR_BINARY(+)
  EMU_VECTOR_BINARY(-)
  EMU_VECTOR_BINARY(*)
  EMU_VECTOR_BINARY(/)
  EMU_VECTOR_BINARY(%)
  EMU_VECTOR_BINARY(&)
  EMU_VECTOR_BINARY(|)
  EMU_VECTOR_BINARY(^)
  EMU_VECTOR_BINARY(<<)
  EMU_VECTOR_BINARY(>>)
  EMU_VECTOR_COMPARE(==)
  EMU_VECTOR_COMPARE(!=)
  EMU_VECTOR_COMPARE(<)
  EMU_VECTOR_COMPARE(<=)
  EMU_VECTOR_COMPARE(>)
  EMU_VECTOR_COMPARE(>=)
  EMU_VECTOR_COMPARE(&&)
  EMU_VECTOR_COMPARE(||)
  EMU_VECTOR_UNARY(-)
  EMU_VECTOR_UNARY(+)
  EMU_VECTOR_UNARY(~)
  friend vec<bool, N> operator!(const vec& a) {
    vec<bool, N> out;
    for (int i = 0; i < N; i++) out.data[i] = !a.data[i];
    return out;
  }
  vec& operator++() { return *this += vec(T(1)); }
  vec& operator--() { return *this -= vec(T(1)); }
};

#undef EMU_VECTOR_BINARY
#undef EMU_VECTOR_COMPARE
#undef EMU_VECTOR_UNARY

// `packed_float3` and its like: a vector at the alignment of one element.
template <class T, int N>
struct packed_vec {
  T data[N];

  packed_vec() = default;
  packed_vec(const vec<T, N>& from) { *this = from; }
  packed_vec& operator=(const vec<T, N>& from) {
    for (int i = 0; i < N; i++) data[i] = from.data[i];
    return *this;
  }
  template <class... A>
    requires(sizeof...(A) > 1)
  packed_vec(const A&... from) : packed_vec(vec<T, N>(from...)) {}

  operator vec<T, N>() const {
    vec<T, N> out;
    for (int i = 0; i < N; i++) out.data[i] = data[i];
    return out;
  }
  T& operator[](size_t i) { return data[i]; }
  const T& operator[](size_t i) const { return data[i]; }
};

}  // namespace metal

#define EMU_NAME_VECTORS(name, type)                  \
  namespace metal {                                   \
  using name##2 = vec<type, 2>;                       \
  using name##3 = vec<type, 3>;                       \
  using name##4 = vec<type, 4>;                       \
  using packed_##name##2 = packed_vec<type, 2>;       \
  using packed_##name##3 = packed_vec<type, 3>;       \
  using packed_##name##4 = packed_vec<type, 4>;       \
  }                                                   \
  using metal::name##2, metal::name##3, metal::name##4; \
  using metal::packed_##name##2, metal::packed_##name##3, metal::packed_##name##4;
EMU_NAME_VECTORS(bool, bool)
EMU_NAME_VECTORS(char, signed char)
EMU_NAME_VECTORS(uchar, uchar)
EMU_NAME_VECTORS(short, short)
EMU_NAME_VECTORS(ushort, ushort)
EMU_NAME_VECTORS(int, int)
EMU_NAME_VECTORS(uint, uint)
EMU_NAME_VECTORS(long, long)
EMU_NAME_VECTORS(ulong, ulong)
EMU_NAME_VECTORS(half, half)
EMU_NAME_VECTORS(bfloat, bfloat)
EMU_NAME_VECTORS(float, float)
#undef EMU_NAME_VECTORS
