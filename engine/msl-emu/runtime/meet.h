// A rendezvous of the lanes of a simdgroup or quadgroup: who has come, and what they brought.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emu/runtime.h"

namespace emu {

/// Two sets of slots in turn: a lane that runs ahead cannot overwrite what others have yet to read.
struct Meet {
  std::uint32_t live = 0, arrived = 0;
  std::uint32_t took_part[2] = {};
  unsigned turn = 0;

  void open(std::uint32_t lanes) { live = lanes, arrived = 0; }
};

inline bool same_site(const Site& a, const Site& b) {
  return a.line == b.line && std::strcmp(a.op, b.op) == 0 && std::strcmp(a.file, b.file) == 0;
}

/// Copies bytes without the library's memcpy, which ThreadSanitizer watches even in code that it does not instrument.
inline void copy_bytes(void* to, const void* from, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
    asm volatile("" ::: "memory"); // else the loop becomes a call of memcpy
  }
}

/// What the lanes of each turn brought.
using Slots = std::byte[2][simd_width][detail::exchange_bytes];

/// Copies what `lanes` (bit i: slot `first` + i) brought to `out`, `size` bytes apart.
inline void copy_lanes(const std::byte (&slots)[simd_width][detail::exchange_bytes], unsigned first, unsigned count, std::uint32_t lanes,
                       std::size_t size, void* out) {
  for (unsigned i = 0; i < count; ++i) {
    if (lanes >> i & 1) copy_bytes(static_cast<std::byte*>(out) + i * size, slots[first + i], size);
  }
}

} // namespace emu
