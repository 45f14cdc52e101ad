// What the checker says of an access that must not be.
#if defined(EMU_CHECKED)

#include <cstring>

#include "clock.h"

namespace emu::checker {
namespace {

/// Groups by their first device epoch, to name threads of earlier ones.
struct GroupStart {
  std::uint64_t epoch;
  unsigned position[3], size[3];
};
constexpr unsigned remembered = 1 << 16;
GroupStart starts[remembered];
std::uint64_t started = 0;

ThreadName name_of(Stamp stamp, Memory memory) {
  ThreadName name;
  const GroupStart* start = nullptr;
  if (memory == threadgroup) {
    start = &starts[(started - 1) % remembered];
  } else {
    const std::uint64_t oldest = started > remembered ? started - remembered : 0;
    for (std::uint64_t i = started; i > oldest && !start; --i) {
      if (starts[(i - 1) % remembered].epoch <= epoch_of(stamp)) start = &starts[(i - 1) % remembered];
    }
  }
  if (!start) return name;
  const unsigned index = thread_of(stamp);
  name.known = true;
  std::memcpy(name.group, start->position, sizeof name.group);
  name.local[0] = index % start->size[0];
  name.local[1] = index / start->size[0] % start->size[1];
  name.local[2] = index / start->size[0] / start->size[1];
  return name;
}

/// "read of 4 bytes at element 256 of `a`"
Text& describe(Text& text, const char* what, std::size_t size, const Region& region, std::uintptr_t address) {
  text << what << " of " << std::uint64_t{size} << (size == 1 ? " byte" : " bytes") << " at ";
  if (address < region.base) {
    return text << "byte " << std::uint64_t{region.base - address} << " before `" << region.name << "`";
  }
  const std::size_t byte = address - region.base;
  text << "element " << std::uint64_t{byte / region.element};
  if (byte % region.element) text << " (byte " << std::uint64_t{byte % region.element} << " of it)";
  return text << " of `" << region.name << "`";
}

Where here(std::uintptr_t pc) { return {nullptr, 0, pc, running_thread(), {}}; }

} // namespace

void remember_group(std::uint64_t epoch, const unsigned (&position)[3], const unsigned (&size)[3]) {
  GroupStart& start = starts[started++ % remembered];
  start.epoch = epoch;
  std::memcpy(start.position, position, sizeof position);
  std::memcpy(start.size, size, sizeof size);
}

void out_of_bounds(std::uintptr_t address, std::size_t size, bool write, std::uintptr_t pc) {
  const Region* region = region_near(address);
  Text text;
  if (!region) {
    text << (write ? "write" : "read") << " of " << std::uint64_t{size} << " bytes at an address in no buffer";
  } else {
    describe(text, write ? "write" : "read", size, *region, address) << ", which has "
        << std::uint64_t{region->size / region->element} << " elements of " << std::uint64_t{region->element}
        << (region->element == 1 ? " byte" : " bytes");
  }
  end_with({"out-of-bounds", "checker", text.c_str(), here(pc), {}});
}

void input_written(const Region& region, std::uintptr_t address, std::size_t size, std::uintptr_t pc) {
  Text text;
  describe(text, "write", size, region, address) << ", an input";
  end_with({"input-written", "checker", text.c_str(), here(pc), {}});
}

void unwritten(const Region& region, std::uintptr_t address, std::size_t size, bool stale, std::uintptr_t pc) {
  Text text;
  describe(text, "read", size, region, address);
  text << (region.kind != Kind::group ? ", which nobody has written"
           : stale                    ? ", which nobody has written in this group (an earlier group has)"
                                      : ", which nobody has written in this group");
  write_fault({"uninitialised-read", "checker", text.c_str(), here(pc), {}});
}

void race(const Region& region, std::uintptr_t address, std::size_t size, bool write, std::uintptr_t pc,
                                       Stamp other, bool other_write, std::uint32_t other_pc) {
  const Memory memory = memory_of(region);
  const bool same_group = epoch_of(other) >= clocks[memory].group_start;
  Text text;
  describe(text, write ? "write" : "read", size, region, address);
  text << (other_write ? ", written" : ", read") << " by another thread" << (same_group ? "" : " of another group");
  const bool same_simdgroup = thread_of(other) / simd_width == running / simd_width;
  text << (!same_group        ? "; no barrier orders groups"
           : same_simdgroup   ? " of the simdgroup with no barrier between"
                              : " of the group with no barrier between");
  if (memory == device && same_group) text << " that orders device memory";
  const Where there{nullptr, 0, start_of_code + other_pc, name_of(other, memory), {}};
  write_fault({"race", "checker", text.c_str(), here(pc), there});
}

} // namespace emu::checker

#endif
