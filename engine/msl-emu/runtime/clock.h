// Time as the checker counts it, and who is blamed. Internal to checker.cpp and blame.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arena.h"
#include "emu/runtime.h"
#include "report.h"

namespace emu::checker {

/// Who accessed a granule, and when: epoch, epoch within the simdgroup, whether atomically, thread.
using Stamp = std::uint64_t;
constexpr unsigned thread_bits = 10, atomic_bit = 10, simd_shift = 12, epoch_shift = 32;
constexpr Stamp atomic_mark = Stamp{1} << atomic_bit;
constexpr std::uint64_t max_simd_epoch = (1u << (epoch_shift - simd_shift)) - 1;

inline std::uint64_t epoch_of(Stamp s) { return s >> epoch_shift; }
inline std::uint64_t simd_epoch_of(Stamp s) { return s >> simd_shift & max_simd_epoch; }
inline unsigned thread_of(Stamp s) { return s & ((1u << thread_bits) - 1); }
inline bool is_atomic(Stamp s) { return s & atomic_mark; }

enum Memory : unsigned { device, threadgroup, memories };

struct Clock {
  std::uint64_t epoch = 0, group_start = 0;
  std::uint64_t simd_epoch[max_group_threads / simd_width] = {};
};
extern Clock clocks[memories];
/// Index of the running thread in its group.
extern unsigned running;

inline Memory memory_of(const Region& region) { return region.kind == Kind::group ? threadgroup : device; }

/// Keeps the position of the group that starts at this epoch of device memory, to name its threads later.
void remember_group(std::uint64_t epoch, const unsigned (&position)[3], const unsigned (&size)[3]);
inline const std::uintptr_t start_of_code = code_start();
/// An instruction as cells keep it.
inline std::uint32_t short_pc(std::uintptr_t pc) { return static_cast<std::uint32_t>(pc - start_of_code); }

/// Ends the process: the access lies in no region.
[[gnu::cold]] void out_of_bounds(std::uintptr_t address, std::size_t size, bool write, std::uintptr_t pc);
/// Ends the process: the access writes to an input.
[[gnu::cold]] void input_written(const Region& region, std::uintptr_t address, std::size_t size, std::uintptr_t pc);
/// Reports a read of what nobody wrote, or (`stale`) only another group.
[[gnu::cold]] void unwritten(const Region& region, std::uintptr_t address, std::size_t size, bool stale, std::uintptr_t pc);
/// Reports that the access is not ordered with that of `other`, made at `other_pc`.
[[gnu::cold]] void race(const Region& region, std::uintptr_t address, std::size_t size, bool write, std::uintptr_t pc, Stamp other,
                        bool other_write, std::uint32_t other_pc);

} // namespace emu::checker
