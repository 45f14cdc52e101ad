#include "arena.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

#include "report.h"

#if defined(EMU_ADDRESS)
#include <sanitizer/asan_interface.h>
#endif

namespace emu {

std::uintptr_t arena_base = 0;
Region regions[max_regions];
unsigned region_count = 0;

namespace {
constexpr std::size_t alignment = 64;

[[noreturn]] void refuse(const char* what) {
  std::perror(what);
  _exit(exit_usage);
}

std::size_t page() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}
} // namespace

void open_arena() {
  const std::size_t bytes = std::size_t{max_regions} << slot_bits;
  void* base = mmap(nullptr, bytes + (std::size_t{1} << slot_bits), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) refuse("reserving the arena");
  const std::uintptr_t slot = std::uintptr_t{1} << slot_bits;
  arena_base = (reinterpret_cast<std::uintptr_t>(base) + slot - 1) & ~(slot - 1);
}

Region& map_region(const char* name, std::size_t size, Kind kind, unsigned element) {
  if (region_count == max_regions || size > max_region_bytes) {
    std::fprintf(stderr, "no room for `%s` of %zu bytes\n", name, size);
    _exit(exit_usage);
  }
  Region& region = regions[region_count];
  // Half a slot of nothing below, so that small steps either way stay in this region's slot.
  const std::uintptr_t slot = arena_base + (std::uintptr_t{region_count} << slot_bits);
  const std::uintptr_t low = slot + (std::uintptr_t{1} << 19);
#if defined(EMU_ADDRESS)
  const std::size_t margin = page(); // readable pages that AddressSanitizer watches
#else
  const std::size_t margin = 0;
#endif
  const std::size_t held = (size + alignment + page() - 1) / page() * page();
  if (mprotect(reinterpret_cast<void*>(low), held + 2 * margin, PROT_READ | PROT_WRITE) != 0) refuse("mapping a buffer");
  const std::uintptr_t base = (low + margin + held - size) & ~(alignment - 1);
#if defined(EMU_ADDRESS)
  __asan_poison_memory_region(reinterpret_cast<void*>(low), base - low);
  __asan_poison_memory_region(reinterpret_cast<void*>(base + size), low + held + 2 * margin - base - size);
#endif
  region = {name, base, size, kind, false, element, 0, nullptr};
  ++region_count;
  return region;
}

void seal(Region& region) {
  const std::uintptr_t first = region.base & ~(page() - 1);
  const std::uintptr_t last = (region.base + region.size + page() - 1) & ~(page() - 1);
  if (mprotect(reinterpret_cast<void*>(first), last - first, PROT_READ) != 0) refuse("sealing an input");
}

Region* region_near(std::uintptr_t address) {
  const std::uintptr_t slot = (address - arena_base) >> slot_bits;
  return slot < region_count ? &regions[slot] : nullptr;
}

void reset_cells(Region& region) {
  const std::size_t bytes = (region.size >> region.shift) * sizeof(Cell) + sizeof(Cell);
  if (region.cells) munmap(region.cells, bytes);
  void* cells = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (cells == MAP_FAILED) refuse("mapping shadow cells");
  region.cells = static_cast<Cell*>(cells);
}

} // namespace emu
