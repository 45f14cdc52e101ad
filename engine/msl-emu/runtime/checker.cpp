// Mode fibers: the kernel is compiled with -fsanitize=thread and linked against these hooks in place of ThreadSanitizer's.
//
// Time is counted in epochs, one counter for device and one for threadgroup memory: a barrier that orders the memory
// begins a new one, and so does a group. Two accesses of one memory are ordered when their epochs differ and their
// group is the same, when one thread made both, or when a simdgroup_barrier lies between them and both lanes are of
// that simdgroup. Two accesses that are not ordered, one of them a plain write, are a race.
#if defined(EMU_CHECKED)

#include "checker.h"

#include <cstring>

#include "arena.h"
#include "clock.h"
#include "machine.h"

namespace emu::checker {

Clock clocks[memories];
unsigned running = 0;

namespace {

/// Stamp of a plain access by the running thread.
Stamp now[memories];
/// A write whose stamp lies less than `ordered[m]` above `first_stamp[m]` was made in this group, before its last barrier.
Stamp first_stamp[memories], ordered[memories];

void stamp_running() {
  for (unsigned m = 0; m < memories; ++m) {
    const Clock& clock = clocks[m];
    first_stamp[m] = clock.group_start << epoch_shift;
    ordered[m] = (clock.epoch - clock.group_start) << epoch_shift;
    now[m] = clock.epoch << epoch_shift | clock.simd_epoch[running / simd_width] << simd_shift | running;
  }
}

/// Whether an access with stamp `before` and the running thread's with stamp `stamp` are unordered and no pair of atomics.
inline bool conflict(Stamp before, Stamp stamp, const Clock& clock) {
  if (before == 0 || (is_atomic(before) && is_atomic(stamp))) return false;
  if (epoch_of(before) < clock.group_start) return true;
  if (epoch_of(before) != epoch_of(stamp) || thread_of(before) == thread_of(stamp)) return false;
  const bool same_simdgroup = thread_of(before) / simd_width == thread_of(stamp) / simd_width;
  return !(same_simdgroup && simd_epoch_of(before) < simd_epoch_of(stamp));
}

/// Whether the two readers that the cell has are enough: no write that the running thread's read would race with is ordered after both.
/// So it is for two lanes of its simdgroup since that one's last barrier, and for two threads of different simdgroups.
inline bool enough_readers(const Cell& cell, Stamp stamp) {
  const Stamp a = cell.read ^ stamp, b = cell.other_read ^ stamp;
  constexpr Stamp lane = simd_width - 1, simdgroup = Stamp{max_group_threads - 1} & ~lane;
  if (((a | b) & ~lane) == 0) return a != b;
  return (a | b) >> epoch_shift == 0 && ((a ^ b) & simdgroup) != 0 && ((a | b) & atomic_mark) == 0;
}

/// A read: `stamp` becomes the latest reader; one other, of another thread and if possible of another simdgroup, is kept.
inline void note_read(Cell& cell, Stamp stamp, std::uintptr_t pc) {
  if (thread_of(cell.read) != thread_of(stamp) || is_atomic(cell.read) != is_atomic(stamp)) {
    const bool fresh = epoch_of(cell.read) == epoch_of(stamp);
    const bool keep = epoch_of(cell.other_read) == epoch_of(stamp) && thread_of(cell.other_read) / simd_width != thread_of(stamp) / simd_width;
    if (fresh && !keep) cell.other_read = cell.read, cell.other_read_pc = cell.read_pc;
    // Device memory is never ordered across groups: keep the reader of an earlier group.
    if (!fresh && cell.read != 0 && cell.other_read == 0) cell.other_read = cell.read, cell.other_read_pc = cell.read_pc;
  }
  cell.read = stamp;
  cell.read_pc = short_pc(pc);
}

/// A write that covers only part of a granule: cells of half the size, until it covers whole ones.
[[gnu::noinline, gnu::cold]] void refine(Region& region, std::size_t offset, std::size_t size) {
  while (region.shift > 0 && ((offset | size) & ((std::size_t{1} << region.shift) - 1))) {
    Cell* coarse = region.cells;
    const std::size_t cells = region.size >> region.shift;
    region.cells = nullptr;
    --region.shift;
    reset_cells(region);
    for (std::size_t i = 0; i < cells; ++i) region.cells[2 * i] = region.cells[2 * i + 1] = coarse[i];
  }
}

inline void check_cell(const Region& region, Cell& cell, std::uintptr_t address, std::size_t size, bool write, Stamp stamp,
                       Memory memory, std::uintptr_t pc) {
  const Clock& clock = clocks[memory];
  const bool is_group = memory == threadgroup;
  const bool stale = is_group && epoch_of(cell.write) < clock.group_start;
  const Stamp last_write = stale ? 0 : cell.write;
  if (__builtin_expect(conflict(last_write, stamp, clock), false)) {
    race(region, address, size, write, pc, last_write, true, cell.write_pc);
  }
  if (!write) {
    if (__builtin_expect(last_write == 0 && !region.initialised, false)) unwritten(region, address, size, cell.write != 0, pc);
    if (cell.read != stamp && !enough_readers(cell, stamp)) note_read(cell, stamp, pc);
    return;
  }
  const Stamp readers[2] = {cell.read, cell.other_read};
  const std::uint32_t pcs[2] = {cell.read_pc, cell.other_read_pc};
  for (int i = 0; i < 2; ++i) {
    const bool gone = is_group && epoch_of(readers[i]) < clock.group_start;
    if (__builtin_expect(!gone && conflict(readers[i], stamp, clock), false)) {
      race(region, address, size, write, pc, readers[i], false, pcs[i]);
    }
  }
  cell.write = stamp;
  cell.write_pc = short_pc(pc);
}

/// An address outside the arena: the running thread's stack and the program's constants are its own business.
[[gnu::noinline]] void check_private(std::uintptr_t address, std::size_t size, bool write, std::uintptr_t pc) {
  if (!is_private(address)) out_of_bounds(address, size, write, pc);
}

template <bool write>
[[gnu::noinline]] void access(std::uintptr_t address, std::size_t size, bool atomic, std::uintptr_t pc) {
  const std::uintptr_t offset = address - arena_base;
  if (offset >= std::uintptr_t{max_regions} << slot_bits) return check_private(address, size, write, pc);
  Region& region = regions[offset >> slot_bits];
  const std::size_t byte = address - region.base;
  if (__builtin_expect(byte >= region.size || size > region.size - byte, false)) return out_of_bounds(address, size, write, pc);
  if (region.kind == Kind::input) {
    if (write) input_written(region, address, size, pc);
    return;
  }
  if (write && __builtin_expect(((byte | size) & ((std::size_t{1} << region.shift) - 1)) != 0, false)) refine(region, byte, size);
  const Memory memory = memory_of(region);
  const Stamp stamp = now[memory] | (atomic ? atomic_mark : 0);
  const std::size_t last = (byte + size - 1) >> region.shift;
  for (std::size_t i = byte >> region.shift; i <= last; ++i) {
    check_cell(region, region.cells[i], address, size, write, stamp, memory, pc);
  }
}

/// The common read: of one granule, ordered after its writer, by a reader who changes nothing. All others go the long way.
template <std::size_t size>
inline void read(std::uintptr_t address, std::uintptr_t pc) {
  const std::uintptr_t offset = address - arena_base;
  if (offset < std::uintptr_t{max_regions} << slot_bits) {
    const Region& region = regions[offset >> slot_bits];
    const std::size_t byte = address - region.base;
    if (byte < region.size && size <= region.size - byte) {
      if (region.kind == Kind::input) return;
      const Memory memory = memory_of(region);
      const Cell& cell = region.cells[byte >> region.shift];
      const bool one = ((byte + size - 1) >> region.shift) == byte >> region.shift;
      const Stamp stamp = now[memory];
      if (one && cell.write - first_stamp[memory] < ordered[memory] && (cell.read == stamp || enough_readers(cell, stamp))) return;
    }
  }
  access<false>(address, size, false, pc);
}

} // namespace

void start_group(const unsigned (&position)[3], const unsigned (&size)[3]) {
  for (Clock& clock : clocks) {
    clock.group_start = ++clock.epoch;
    std::memset(clock.simd_epoch, 0, sizeof clock.simd_epoch);
  }
  remember_group(clocks[device].epoch, position, size);
}

void enter(unsigned index) {
  running = index;
  stamp_running();
}

void pass_barrier(unsigned order) {
  const unsigned orders[memories] = {order_device, order_threadgroup};
  for (unsigned m = 0; m < memories; ++m) {
    if (!(order & orders[m])) continue;
    ++clocks[m].epoch;
    std::memset(clocks[m].simd_epoch, 0, sizeof clocks[m].simd_epoch);
  }
  stamp_running();
}

void pass_simd_barrier(unsigned simdgroup, unsigned order) {
  const unsigned orders[memories] = {order_device, order_threadgroup};
  for (unsigned m = 0; m < memories; ++m) {
    std::uint64_t& epoch = clocks[m].simd_epoch[simdgroup];
    if ((order & orders[m]) && epoch < max_simd_epoch) ++epoch;
  }
  stamp_running();
}

void finish() {
  for (unsigned i = 0; i < region_count; ++i) {
    const Region& region = regions[i];
    if (region.kind != Kind::output || region.initialised) continue;
    const std::size_t cells = region.size >> region.shift;
    std::size_t missing = 0, first = 0;
    for (std::size_t c = 0; c < cells; ++c) {
      if (region.cells[c].write != 0) continue;
      if (missing++ == 0) first = c;
    }
    if (missing == 0) continue;
    const std::size_t each = region.element >> region.shift ? region.element >> region.shift : 1;
    Text text;
    text << std::uint64_t{(missing + each - 1) / each} << " of " << std::uint64_t{region.size / region.element} << " elements of `"
         << region.name << "` are never written, the first is element " << std::uint64_t{first / each};
    write_fault({"unwritten-output", "checker", text.c_str(), {}, {}});
  }
}

} // namespace emu::checker

// The hooks. The address of the access is the call's return address less one: an address within the call.
#define EMU_PC (reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)) - 1)
#define EMU_AT(pointer) reinterpret_cast<std::uintptr_t>(pointer)
#define EMU_HOOKS(size)                                                                                       \
  void __tsan_read##size(void* p) { emu::checker::read<size>(EMU_AT(p), EMU_PC); }                                     \
  void __tsan_write##size(void* p) { emu::checker::access<true>(EMU_AT(p), size, false, EMU_PC); }                     \
  void __tsan_unaligned_read##size(void* p) { emu::checker::access<false>(EMU_AT(p), size, false, EMU_PC); }           \
  void __tsan_unaligned_write##size(void* p) { emu::checker::access<true>(EMU_AT(p), size, false, EMU_PC); }           \
  void __tsan_volatile_read##size(void* p) { emu::checker::access<false>(EMU_AT(p), size, false, EMU_PC); }            \
  void __tsan_volatile_write##size(void* p) { emu::checker::access<true>(EMU_AT(p), size, false, EMU_PC); }

#define EMU_READ_MODIFY_WRITE(bits, name, builtin)                                                            \
  std::uint##bits##_t __tsan_atomic##bits##_##name(volatile std::uint##bits##_t* p, std::uint##bits##_t v, int) { \
    emu::checker::access<false>(EMU_AT(p), bits / 8, true, EMU_PC);                                                    \
    emu::checker::access<true>(EMU_AT(p), bits / 8, true, EMU_PC);                                                     \
    return builtin(p, v, __ATOMIC_SEQ_CST);                                                                   \
  }
#define EMU_ATOMICS(bits)                                                                                     \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* p, int) {                \
    emu::checker::access<false>(EMU_AT(p), bits / 8, true, EMU_PC);                                                    \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                              \
  }                                                                                                           \
  void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* p, std::uint##bits##_t v, int) {             \
    emu::checker::access<true>(EMU_AT(p), bits / 8, true, EMU_PC);                                                     \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                                 \
  }                                                                                                           \
  EMU_READ_MODIFY_WRITE(bits, exchange, __atomic_exchange_n)                                                  \
  EMU_READ_MODIFY_WRITE(bits, fetch_add, __atomic_fetch_add)                                                  \
  EMU_READ_MODIFY_WRITE(bits, fetch_sub, __atomic_fetch_sub)                                                  \
  EMU_READ_MODIFY_WRITE(bits, fetch_and, __atomic_fetch_and)                                                  \
  EMU_READ_MODIFY_WRITE(bits, fetch_or, __atomic_fetch_or)                                                    \
  EMU_READ_MODIFY_WRITE(bits, fetch_xor, __atomic_fetch_xor)                                                  \
  EMU_READ_MODIFY_WRITE(bits, fetch_nand, __atomic_fetch_nand)                                                \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile std::uint##bits##_t* p, std::uint##bits##_t* c,  \
                                                    std::uint##bits##_t v, int, int) {                        \
    emu::checker::access<true>(EMU_AT(p), bits / 8, true, EMU_PC);                                                     \
    return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                   \
  }                                                                                                           \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile std::uint##bits##_t* p, std::uint##bits##_t* c,    \
                                                  std::uint##bits##_t v, int, int) {                          \
    emu::checker::access<true>(EMU_AT(p), bits / 8, true, EMU_PC);                                                     \
    return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                   \
  }

extern "C" {
EMU_HOOKS(1)
EMU_HOOKS(2)
EMU_HOOKS(4)
EMU_HOOKS(8)
EMU_HOOKS(16)
EMU_ATOMICS(8)
EMU_ATOMICS(16)
EMU_ATOMICS(32)
EMU_ATOMICS(64)
void __tsan_read_range(void* p, unsigned long size) { if (size) emu::checker::access<false>(EMU_AT(p), size, false, EMU_PC); }
void __tsan_write_range(void* p, unsigned long size) { if (size) emu::checker::access<true>(EMU_AT(p), size, false, EMU_PC); }
// clang calls these for what the language copies and fills.
void* __tsan_memcpy(void* to, const void* from, unsigned long size) {
  if (size) emu::checker::access<false>(EMU_AT(from), size, false, EMU_PC), emu::checker::access<true>(EMU_AT(to), size, false, EMU_PC);
  return std::memcpy(to, from, size);
}
void* __tsan_memmove(void* to, const void* from, unsigned long size) {
  if (size) emu::checker::access<false>(EMU_AT(from), size, false, EMU_PC), emu::checker::access<true>(EMU_AT(to), size, false, EMU_PC);
  return std::memmove(to, from, size);
}
void* __tsan_memset(void* to, int value, unsigned long size) {
  if (size) emu::checker::access<true>(EMU_AT(to), size, false, EMU_PC);
  return std::memset(to, value, size);
}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}
}

#endif
