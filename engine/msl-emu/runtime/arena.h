// Memory that kernels may touch: one region for each buffer and threadgroup variable, 1 GiB apart, between pages without access.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emu {

/// What the checker knows of one granule of memory: who wrote and read it last, and from which instruction.
struct Cell {
  std::uint64_t write, read, other_read;
  std::uint32_t write_pc, read_pc, other_read_pc, reserved;
};

enum class Kind : unsigned char { none, input, output, group };

struct Region {
  const char* name = "";
  std::uintptr_t base = 0;
  std::size_t size = 0;
  Kind kind = Kind::none;
  bool initialised = false; // an output with an initial value
  unsigned element = 1;     // bytes
  unsigned shift = 0;       // log2 of the granule
  Cell* cells = nullptr;    // size >> shift of them, in mode fibers
};

inline constexpr unsigned slot_bits = 30;
inline constexpr unsigned max_regions = 256;
inline constexpr std::size_t max_region_bytes = (std::size_t{1} << slot_bits) - (std::size_t{1} << 20);

extern std::uintptr_t arena_base;
extern Region regions[max_regions];
extern unsigned region_count;

/// Reserves the address space. Exits where the system refuses.
void open_arena();
/// Maps a new region of `size` bytes, aligned to 64, its end as near to a page without access as that allows.
Region& map_region(const char* name, std::size_t size, Kind kind, unsigned element);
/// Makes an input unwritable.
void seal(Region& region);
/// The region in whose gigabyte `address` lies; null outside the arena.
Region* region_near(std::uintptr_t address);
/// Shadow cells for all granules, unwritten.
void reset_cells(Region& region);

} // namespace emu
