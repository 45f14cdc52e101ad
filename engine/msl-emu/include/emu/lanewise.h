// How the functions of simdgroups and quadgroups see the values of their lanes.
#pragma once
#pragma GCC system_header

#include <metal_types>

// For functions that touch no memory but their own stack: what watches the kernel's memory passes them over.
#define EMU_UNWATCHED \
  [[gnu::no_sanitize("thread"), gnu::no_sanitize("address"), gnu::no_sanitize("undefined")]]

namespace emu {

// A value as plain bytes: vectors are not trivially copyable, because their swizzles assign.
template <class T>
struct Bytes {
  unsigned char of[sizeof(T)];

  Bytes() = default;
  explicit Bytes(const T& value) { __builtin_memcpy(of, static_cast<const void*>(&value), sizeof(T)); }
  T get() const {
    T value;
    __builtin_memcpy(static_cast<void*>(&value), of, sizeof(T));
    return value;
  }
};

// The lanes of one simdgroup (Width 32) or quadgroup (Width 4), as one of them sees them.
template <class T, unsigned Width>
struct Lanes {
  Bytes<T> lane[Width];
  uint32_t active;
  unsigned mine;
  Site site;

  EMU_UNWATCHED Lanes(const T& value, Site at) : mine(self().lane % Width), site(at) {
    const Bytes<T> bytes(value);
    if constexpr (Width == 4) {
      active = quad_exchange(bytes, lane, at);
    } else {
      active = simd_exchange(bytes, lane, at);
    }
  }

  bool has(unsigned i) const { return i < Width && (active >> i & 1) != 0; }
  T own() const { return lane[mine].get(); }
  // Value of lane i, which must take part.
  EMU_UNWATCHED T at(unsigned i) const {
    if (has(i)) return lane[i].get();
    report("inactive-lane", i < Width ? "reads a lane that takes no part" : "reads a lane beyond the last", site);
    return own();
  }

  // f over the values of all lanes that take part, as a tree over halves, quarters, …: Metal fixes no order.
  template <class F>
  EMU_UNWATCHED T fold(F f) const { return folded(0, Width, f); }
  // f over lanes below this one, from the first; `from` where there is none.
  template <class F>
  EMU_UNWATCHED T fold_below(T from, F f) const {
    bool first = true;
    for (unsigned i = 0; i < mine; i++) {
      if (!has(i)) continue;
      from = first ? lane[i].get() : f(from, lane[i].get());
      first = false;
    }
    return from;
  }

 private:
  EMU_UNWATCHED bool any_in(unsigned low, unsigned count) const {
    const uint64_t mask = ((uint64_t(1) << count) - 1) << low;
    return (active & mask) != 0;
  }
  template <class F>
  EMU_UNWATCHED T folded(unsigned low, unsigned count, F f) const {
    if (count == 1) return lane[low].get();
    const unsigned half_of = count / 2;
    if (!any_in(low + half_of, half_of)) return folded(low, half_of, f);
    if (!any_in(low, half_of)) return folded(low + half_of, half_of, f);
    return f(folded(low, half_of, f), folded(low + half_of, half_of, f));
  }
};

// A parameter that must be the same in every lane.
template <unsigned Width>
EMU_UNWATCHED inline void require_uniform(unsigned value, const char* message, Site site) {
  const Lanes<unsigned, Width> lanes(value, site);
  for (unsigned i = 0; i < Width; i++) {
    if (lanes.has(i) && lanes.lane[i].get() != value) return report("simd-divergence", message, site);
  }
}

}  // namespace emu
