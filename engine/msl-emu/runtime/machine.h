// What executes one group after the other: fibers.cpp or threads.cpp.
#pragma once

#include <cstdint>

#include "emu/runtime.h"
#include "report.h"

namespace emu {

/// The kernel function, its arguments taken from `buffers` in order of their index and from `self()`. Generated.
extern "C" void emu_entry(void* const* buffers);
/// What `emu_entry` gets.
extern void* const* entry_buffers;

/// The grid as it is cut into groups.
struct Shape {
  unsigned grid[3], nominal[3], groups[3];
};

/// Stacks or threads for groups of up to `threads`, for `groups` groups.
void open_machine(unsigned threads, std::uint64_t groups);
/// Runs the group at `position` to its end; `seed` 0 is the natural order of its threads.
void run_group(const Shape& shape, const unsigned (&position)[3], std::uint64_t seed);
/// All groups have ended.
void end_grid();
/// Ids of thread `index` of the group at `position`.
void name_thread(Thread& thread, const Shape& shape, const unsigned (&position)[3], const unsigned (&size)[3], unsigned index);
/// Threads of the group at `position`, by axis: fewer at the edge of the grid.
void group_extent(const Shape& shape, const unsigned (&position)[3], unsigned (&size)[3]);
/// Whether `address` lies below the running thread's stack, where nothing may be.
bool below_stack(std::uintptr_t address);
/// End of the running thread's stack; 0 outside a kernel.
std::uintptr_t stack_end();
/// Whether `address` lies in the running thread's stack or in the program's own data. Mode fibers only.
bool is_private(std::uintptr_t address);
/// The Metal thread that an OS thread runs, by the system's number of it. Mode threads only.
ThreadName thread_of_system(unsigned long os_id);
/// Poisoned memory for a threadgroup variable of the running group.
void* group_block(const char* name, std::size_t size, std::size_t granule, void* previous);

/// A small generator for permutations: splitmix64.
class Random {
public:
  explicit Random(std::uint64_t seed) : state(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }

private:
  std::uint64_t state;
};

/// Order of `count` items under `seed`: 0 natural, 1 reversed, else a random permutation.
template <class Index>
void permute(Index* order, std::uint64_t count, std::uint64_t seed, Random& random) {
  for (std::uint64_t i = 0; i < count; ++i) order[i] = static_cast<Index>(seed == 1 ? count - 1 - i : i);
  if (seed < 2) return;
  for (std::uint64_t i = count; i > 1; --i) {
    const std::uint64_t j = random.below(i);
    const Index held = order[i - 1];
    order[i - 1] = order[j];
    order[j] = held;
  }
}

} // namespace emu
