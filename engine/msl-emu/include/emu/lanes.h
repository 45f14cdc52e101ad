// Named elements of a vector: x y z w, r g b a, and every swizzle of two, three or four of them.
// All are members of one union, as wide as the vector, so that a swizzle can be read and written in place.
#pragma once
#pragma GCC system_header

namespace metal {
template <class T, int N>
struct vec;
}

namespace emu {

// Elements I... of a vector of N elements of type T, seen as the vector V.
template <class V, class T, int N, int... I>
struct swizzle {
  T data[N];

  static constexpr bool writable = [] {
    const int at[] = {I...};
    for (int i = 0; i < int(sizeof...(I)); i++)
      for (int j = 0; j < i; j++)
        if (at[i] == at[j]) return false;
    return true;
  }();

  operator V() const { return V(data[I]...); }
  swizzle& operator=(const V& from)
    requires writable
  {
    int i = 0;
    ((data[I] = from[i++]), ...);
    return *this;
  }
  swizzle& operator=(const swizzle& from) { return *this = V(from); }
  T operator[](int i) const { return V(*this)[i]; }

#define EMU_SWIZZLE_ASSIGN(op) \
  swizzle& operator op##=(const V& by) { return *this = V(*this) op by; }
  EMU_SWIZZLE_ASSIGN(+)
  EMU_SWIZZLE_ASSIGN(-)
  EMU_SWIZZLE_ASSIGN(*)
  EMU_SWIZZLE_ASSIGN(/)
#undef EMU_SWIZZLE_ASSIGN
};

// The macros below name every swizzle. A, B, C and D choose its first to fourth element; the number is that of the
// vector's elements, and x y z w are their names.
#define EMU_SWIZZLE2(n, a, i, b, j) swizzle<metal::vec<T, 2>, T, n, i, j> a##b;
#define EMU_SWIZZLE3(n, a, i, b, j, c, k) swizzle<metal::vec<T, 3>, T, n, i, j, k> a##b##c;
#define EMU_SWIZZLE4(n, a, i, b, j, c, k, d, l) swizzle<metal::vec<T, 4>, T, n, i, j, k, l> a##b##c##d;

template <class T, int N>
struct lanes;

#define EMU_D2(x, y, a, i, b, j, c, k) \
  EMU_SWIZZLE4(2, a, i, b, j, c, k, x, 0) \
  EMU_SWIZZLE4(2, a, i, b, j, c, k, y, 1)
#define EMU_C2(x, y, a, i, b, j) \
  EMU_SWIZZLE3(2, a, i, b, j, x, 0) EMU_D2(x, y, a, i, b, j, x, 0) \
  EMU_SWIZZLE3(2, a, i, b, j, y, 1) EMU_D2(x, y, a, i, b, j, y, 1)
#define EMU_B2(x, y, a, i) \
  EMU_SWIZZLE2(2, a, i, x, 0) EMU_C2(x, y, a, i, x, 0) \
  EMU_SWIZZLE2(2, a, i, y, 1) EMU_C2(x, y, a, i, y, 1)
#define EMU_A2(x, y) \
  EMU_B2(x, y, x, 0) \
  EMU_B2(x, y, y, 1)
template <class T>
struct lanes<T, 2> {
  union {
    T data[2];
    struct {
      T x, y;
    };
    struct {
      T r, g;
    };
    EMU_A2(x, y)
    EMU_A2(r, g)
  };
};

#define EMU_D3(x, y, z, a, i, b, j, c, k) \
  EMU_SWIZZLE4(3, a, i, b, j, c, k, x, 0) \
  EMU_SWIZZLE4(3, a, i, b, j, c, k, y, 1) \
  EMU_SWIZZLE4(3, a, i, b, j, c, k, z, 2)
#define EMU_C3(x, y, z, a, i, b, j) \
  EMU_SWIZZLE3(3, a, i, b, j, x, 0) EMU_D3(x, y, z, a, i, b, j, x, 0) \
  EMU_SWIZZLE3(3, a, i, b, j, y, 1) EMU_D3(x, y, z, a, i, b, j, y, 1) \
  EMU_SWIZZLE3(3, a, i, b, j, z, 2) EMU_D3(x, y, z, a, i, b, j, z, 2)
#define EMU_B3(x, y, z, a, i) \
  EMU_SWIZZLE2(3, a, i, x, 0) EMU_C3(x, y, z, a, i, x, 0) \
  EMU_SWIZZLE2(3, a, i, y, 1) EMU_C3(x, y, z, a, i, y, 1) \
  EMU_SWIZZLE2(3, a, i, z, 2) EMU_C3(x, y, z, a, i, z, 2)
#define EMU_A3(x, y, z) \
  EMU_B3(x, y, z, x, 0) \
  EMU_B3(x, y, z, y, 1) \
  EMU_B3(x, y, z, z, 2)
template <class T>
struct lanes<T, 3> {
  union {
    T data[3];
    struct {
      T x, y, z;
    };
    struct {
      T r, g, b;
    };
    EMU_A3(x, y, z)
    EMU_A3(r, g, b)
  };
};

#define EMU_D4(x, y, z, w, a, i, b, j, c, k) \
  EMU_SWIZZLE4(4, a, i, b, j, c, k, x, 0) \
  EMU_SWIZZLE4(4, a, i, b, j, c, k, y, 1) \
  EMU_SWIZZLE4(4, a, i, b, j, c, k, z, 2) \
  EMU_SWIZZLE4(4, a, i, b, j, c, k, w, 3)
#define EMU_C4(x, y, z, w, a, i, b, j) \
  EMU_SWIZZLE3(4, a, i, b, j, x, 0) EMU_D4(x, y, z, w, a, i, b, j, x, 0) \
  EMU_SWIZZLE3(4, a, i, b, j, y, 1) EMU_D4(x, y, z, w, a, i, b, j, y, 1) \
  EMU_SWIZZLE3(4, a, i, b, j, z, 2) EMU_D4(x, y, z, w, a, i, b, j, z, 2) \
  EMU_SWIZZLE3(4, a, i, b, j, w, 3) EMU_D4(x, y, z, w, a, i, b, j, w, 3)
#define EMU_B4(x, y, z, w, a, i) \
  EMU_SWIZZLE2(4, a, i, x, 0) EMU_C4(x, y, z, w, a, i, x, 0) \
  EMU_SWIZZLE2(4, a, i, y, 1) EMU_C4(x, y, z, w, a, i, y, 1) \
  EMU_SWIZZLE2(4, a, i, z, 2) EMU_C4(x, y, z, w, a, i, z, 2) \
  EMU_SWIZZLE2(4, a, i, w, 3) EMU_C4(x, y, z, w, a, i, w, 3)
#define EMU_A4(x, y, z, w) \
  EMU_B4(x, y, z, w, x, 0) \
  EMU_B4(x, y, z, w, y, 1) \
  EMU_B4(x, y, z, w, z, 2) \
  EMU_B4(x, y, z, w, w, 3)
template <class T>
struct lanes<T, 4> {
  union {
    T data[4];
    struct {
      T x, y, z, w;
    };
    struct {
      T r, g, b, a;
    };
    EMU_A4(x, y, z, w)
    EMU_A4(r, g, b, a)
  };
};

#undef EMU_A2
#undef EMU_B2
#undef EMU_C2
#undef EMU_D2
#undef EMU_A3
#undef EMU_B3
#undef EMU_C3
#undef EMU_D3
#undef EMU_A4
#undef EMU_B4
#undef EMU_C4
#undef EMU_D4
#undef EMU_SWIZZLE2
#undef EMU_SWIZZLE3
#undef EMU_SWIZZLE4

}  // namespace emu
