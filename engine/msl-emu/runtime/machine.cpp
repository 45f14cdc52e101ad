#include "machine.h"

#include <cstring>

#include "arena.h"
#include "report.h"

namespace emu {

void* const* entry_buffers = nullptr;

namespace {
std::size_t group_bytes = 0;
std::uint64_t group_bytes_of = 0;
char opening = 0;
} // namespace

namespace detail {
std::uint64_t group_serial = 0;

void open_group_memory(GroupVariable& variable, std::size_t size, std::size_t granule, Site site) {
  while (__atomic_test_and_set(&opening, __ATOMIC_ACQUIRE)) {}
  if (variable.group != group_serial) {
    if (group_bytes_of != group_serial) group_bytes = 0;
    group_bytes_of = group_serial;
    group_bytes += size;
    if (group_bytes > max_group_bytes) {
      Text text;
      text << "`" << variable.name << "` of " << std::uint64_t{size} << " bytes makes " << std::uint64_t{group_bytes}
           << " bytes of threadgroup memory, at most " << std::uint64_t{max_group_bytes};
      const Where at{site.file, static_cast<unsigned>(site.line), 0, running_thread(), {}};
      end_with({"threadgroup-memory", "scheduler", text.c_str(), at, {}});
    }
    variable.memory = group_block(variable.name, size, granule, variable.memory);
    __atomic_store_n(&variable.group, group_serial, __ATOMIC_RELEASE);
  }
  __atomic_clear(&opening, __ATOMIC_RELEASE);
}
} // namespace detail

void group_extent(const Shape& shape, const unsigned (&position)[3], unsigned (&size)[3]) {
  for (int axis = 0; axis < 3; ++axis) {
    const unsigned first = position[axis] * shape.nominal[axis];
    const unsigned left = shape.grid[axis] - first;
    size[axis] = left < shape.nominal[axis] ? left : shape.nominal[axis];
  }
}

void name_thread(Thread& thread, const Shape& shape, const unsigned (&position)[3], const unsigned (&size)[3], unsigned index) {
  thread.local[0] = index % size[0];
  thread.local[1] = index / size[0] % size[1];
  thread.local[2] = index / size[0] / size[1];
  unsigned nominal = 1, actual = 1;
  for (int axis = 0; axis < 3; ++axis) {
    thread.group[axis] = position[axis];
    thread.position[axis] = position[axis] * shape.nominal[axis] + thread.local[axis];
    thread.group_size[axis] = size[axis];
    thread.nominal_size[axis] = shape.nominal[axis];
    thread.groups[axis] = shape.groups[axis];
    thread.grid[axis] = shape.grid[axis];
    nominal *= shape.nominal[axis];
    actual *= size[axis];
  }
  thread.index = index;
  thread.lane = index % simd_width;
  thread.simdgroup = index / simd_width;
  thread.simdgroups = (actual + simd_width - 1) / simd_width;
  thread.nominal_simdgroups = (nominal + simd_width - 1) / simd_width;
}

} // namespace emu
