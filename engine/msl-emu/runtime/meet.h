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

/// What the lanes of each turn brought.
using Slots = std::byte[2][simd_width][detail::exchange_bytes];

/// Copies what `lanes` (bit i: slot `first` + i) brought to `out`, `size` bytes apart.
inline void copy_lanes(const std::byte (&slots)[simd_width][detail::exchange_bytes], unsigned first, unsigned count, std::uint32_t lanes,
                       std::size_t size, void* out) {
  for (unsigned i = 0; i < count; ++i) {
    if (lanes >> i & 1) std::memcpy(static_cast<std::byte*>(out) + i * size, slots[first + i], size);
  }
}

} // namespace emu
