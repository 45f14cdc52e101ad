// What the Metal header set and the generated kernels call. No Metal names here; the headers build those on top.
//
// Metal threads of one group run as fibers of one OS thread (or as OS threads in mode `threads`), one group after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace emu {

/// Where in the user's source something was called, and as what.
struct Site {
  const char* op;
  const char* file;
  int line;
};

/// As the default argument of a Metal function: the caller's file and line.
///   inline float simd_sum(float v, emu::Site site = emu::here("simd_sum"));
constexpr Site here(const char* op, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return {op, file, line};
}

/// Lanes of a simdgroup, threads of a group and bytes of threadgroup memory: limits of Apple GPUs.
inline constexpr unsigned simd_width = 32;
inline constexpr unsigned max_group_threads = 1024;
inline constexpr unsigned max_group_bytes = 32 * 1024;

/// Memory whose order a barrier fixes; a mask.
enum Order : unsigned { order_none = 0, order_device = 1, order_threadgroup = 2, order_texture = 4 };

/// The running Metal thread.
struct Thread {
  unsigned position[3];        // thread_position_in_grid
  unsigned local[3];           // thread_position_in_threadgroup
  unsigned group[3];           // threadgroup_position_in_grid
  unsigned group_size[3];      // threads_per_threadgroup: smaller in a group at the edge of the grid
  unsigned nominal_size[3];    // dispatch_threads_per_threadgroup
  unsigned groups[3];          // threadgroups_per_grid
  unsigned grid[3];            // threads_per_grid
  unsigned index;              // thread_index_in_threadgroup
  unsigned lane;               // thread_index_in_simdgroup
  unsigned simdgroup;          // simdgroup_index_in_threadgroup
  unsigned simdgroups;         // simdgroups_per_threadgroup
  unsigned nominal_simdgroups; // dispatch_simdgroups_per_threadgroup
};
const Thread& self();

/// All threads of the group wait here. A thread that has ended, or that waits elsewhere, is `barrier-divergence`.
void threadgroup_barrier(unsigned order, Site site);
/// All lanes of the simdgroup wait here.
void simdgroup_barrier(unsigned order, Site site);

namespace detail {
/// Rendezvous of the simdgroup's (or the quad's) live lanes: takes `size` (≤ 64) bytes of `mine`, writes each lane's value that took part
/// to `out + lane * size`, and returns the mask of those lanes.
inline constexpr std::size_t exchange_bytes = 64;
std::uint32_t exchange(const void* mine, std::size_t size, void* out, bool quad, Site site);
} // namespace detail

/// Every live lane of the simdgroup gives `mine` and gets all lanes' values; returns the mask of lanes that took part.
/// `out[lane]` of a lane that did not take part (it has ended, or the simdgroup is short) is left alone.
/// Lanes of one simdgroup that meet at different sites, or never, are `simd-divergence`.
template <class T>
std::uint32_t simd_exchange(const T& mine, T (&out)[simd_width], Site site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= detail::exchange_bytes);
  return detail::exchange(&mine, sizeof(T), out, false, site);
}

/// The same over the four lanes of a quadgroup; bit `i` of the mask is lane `i` of the quad.
template <class T>
std::uint32_t quad_exchange(const T& mine, T (&out)[4], Site site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= detail::exchange_bytes);
  return detail::exchange(&mine, sizeof(T), out, true, site);
}

/// A fault that the kernel can survive: recorded (once for each site and kind), the run goes on.
/// `kind` is one of the kinds that `FaultKind` in src/fault.rs lists, e.g. "inactive-lane".
void report(const char* kind, const char* message, Site site);
/// A fault that it cannot: recorded, and the process ends.
[[noreturn]] void fail(const char* kind, const char* message, Site site);

/// Threadgroup variables. `threadgroup float tile[16][17];` becomes
///   typedef float emu_tile[16][17]; emu_tile& tile = emu::group_memory<emu_tile, 3>("tile", here("threadgroup"));
/// The first thread of a group that gets there finds it poisoned (all bits one), the others find the same memory.
namespace detail {
struct GroupVariable {
  const char* name;
  void* memory = nullptr;
  std::uint64_t group = 0; // serial of the group it was last poisoned for
};
extern std::uint64_t group_serial;
void open_group_memory(GroupVariable& variable, std::size_t size, std::size_t granule, Site site);
template <class T>
constexpr std::size_t granule() {
  using Element = std::remove_all_extents_t<T>;
  return alignof(Element) < 4 ? alignof(Element) : 4;
}
} // namespace detail

template <class T, int Id>
T& group_memory(const char* name, Site site = here("threadgroup")) {
  static_assert(std::is_trivially_default_constructible_v<std::remove_all_extents_t<T>>,
                "a threadgroup variable needs a type without a constructor");
  static detail::GroupVariable variable{name};
  // Several OS threads may come here at once in mode `threads`.
  if (__atomic_load_n(&variable.group, __ATOMIC_ACQUIRE) != detail::group_serial) {
    detail::open_group_memory(variable, sizeof(T), detail::granule<T>(), site);
  }
  return *static_cast<T*>(variable.memory);
}

} // namespace emu
