// Makes a function of scalars work on vectors, element by element; a scalar beside a vector counts for every element.
#pragma once
#pragma GCC system_header

#include <metal_types>

namespace emu {

template <class R, class F, class... V>
inline auto each(F f, const V&... of) {
  constexpr int count = metal::elements_of<R>::count;
  metal::vec<decltype(f(of[0]...)), count> out;
  for (int i = 0; i < count; i++) out.data[i] = f(of[i]...);
  return out;
}

template <class A, class B>
using vector_of_two = std::conditional_t<metal::vector_like<A>, metal::vector_behind_t<A>, metal::vector_behind_t<B>>;
template <class A, class B, class C>
using vector_of_three = std::conditional_t<metal::vector_like<A>, metal::vector_behind_t<A>, vector_of_two<B, C>>;

}  // namespace emu

#define EMU_VECTORS_1(name)                                                           \
  template <vector_like A>                                                            \
  inline auto name(const A& a) {                                                      \
    using V = vector_behind_t<A>;                                                     \
    return emu::each<V>([](auto x) { return name(x); }, V(a));                        \
  }
#define EMU_VECTORS_2(name)                                                           \
  template <class A, class B>                                                         \
    requires vector_like<A> || vector_like<B>                                         \
  inline auto name(const A& a, const B& b) {                                          \
    using V = emu::vector_of_two<A, B>;                                               \
    return emu::each<V>([](auto x, auto y) { return name(x, y); }, V(a), V(b));       \
  }
#define EMU_VECTORS_3(name)                                                           \
  template <class A, class B, class C>                                                \
    requires vector_like<A> || vector_like<B> || vector_like<C>                       \
  inline auto name(const A& a, const B& b, const C& c) {                              \
    using V = emu::vector_of_three<A, B, C>;                                          \
    return emu::each<V>([](auto x, auto y, auto z) { return name(x, y, z); }, V(a), V(b), V(c)); \
  }

// Scalar overloads for the three float types (not a template, so that overloads resolve as MSL's do). F is the
// type in `expression`, which is worked out in float32 (x, y, z) and rounded once.
#define EMU_FLOATS_1(name, expression)                                                        \
  inline float name(float x) { return expression; }                                           \
  inline half name(half h) { const float x = h; return static_cast<half>(expression); }       \
  inline bfloat name(bfloat h) { const float x = h; return bfloat(static_cast<float>(expression)); } \
  EMU_VECTORS_1(name)
#define EMU_FLOATS_2(name, expression)                                                        \
  inline float name(float x, float y) { return expression; }                                  \
  inline half name(half h, half k) { const float x = h, y = k; return static_cast<half>(expression); } \
  inline bfloat name(bfloat h, bfloat k) { const float x = h, y = k; return bfloat(static_cast<float>(expression)); } \
  EMU_VECTORS_2(name)
#define EMU_FLOATS_3(name, expression)                                                        \
  inline float name(float x, float y, float z) { return expression; }                         \
  inline half name(half h, half k, half l) {                                                  \
    const float x = h, y = k, z = l;                                                          \
    return static_cast<half>(expression);                                                     \
  }                                                                                           \
  inline bfloat name(bfloat h, bfloat k, bfloat l) {                                          \
    const float x = h, y = k, z = l;                                                          \
    return bfloat(static_cast<float>(expression));                                            \
  }                                                                                           \
  EMU_VECTORS_3(name)
#define EMU_FLOATS_TEST(name, expression)                     \
  inline bool name(float x) { return expression; }            \
  inline bool name(half h) { const float x = h; return expression; } \
  inline bool name(bfloat h) { const float x = h; return expression; } \
  EMU_VECTORS_1(name)

// M(type) for every integer type.
#define EMU_INTEGERS(M) M(int8_t) M(uchar) M(short) M(ushort) M(int) M(uint) M(long) M(ulong)
