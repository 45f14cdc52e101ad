// One OS thread; each Metal thread a fiber. A fiber runs until it waits, ends or faults.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "arena.h"
#include "checker.h"
#include "machine.h"
#include "meet.h"
#include "report.h"
#include "switch.h"

#if defined(EMU_ADDRESS)
#include <sanitizer/common_interface_defs.h>
#endif

namespace emu {

namespace {
enum class State : unsigned char { ready, at_barrier, at_meeting, ended };

struct Fiber {
  Thread id;
  void* stack_pointer = nullptr;
  char* stack = nullptr; // lowest usable byte
  void* fake_stack = nullptr;
  State state = State::ended;
  Site site = {};
};

struct Simdgroup {
  Meet whole;
  Meet quads[8];
  Slots slots, quad_slots;
};

#if defined(EMU_ADDRESS)
constexpr std::size_t stack_bytes = 512 << 10;
#else
constexpr std::size_t stack_bytes = 256 << 10;
#endif
constexpr std::size_t guard_bytes = 64 << 10;

Fiber fibers[max_group_threads];
Simdgroup simdgroups[max_group_threads / simd_width];
char* stacks = nullptr;

unsigned count = 0, ended = 0, arrived = 0;
Fiber* current = nullptr;
unsigned queue[2 * max_group_threads];
unsigned queue_head = 0, queue_length = 0;
std::uint64_t order_seed = 0;
Random random_order{0};
void* main_stack_pointer = nullptr;
void* main_fake_stack = nullptr;
const void* main_stack = nullptr;
std::size_t main_stack_bytes = 0;

void push(unsigned fiber) {
  queue[(queue_head + queue_length++) % (2 * max_group_threads)] = fiber;
}

/// Queues those of `members` that are in `state`, in an order that the seed picks anew.
void release(unsigned first, unsigned members, State state) {
  unsigned order[max_group_threads];
  permute(order, members, order_seed, random_order);
  for (unsigned i = 0; i < members; ++i) {
    Fiber& fiber = fibers[first + order[i]];
    if (fiber.state != state) continue;
    fiber.state = State::ready;
    push(first + order[i]);
  }
}

ThreadName name_of(const Fiber& fiber) {
  ThreadName name;
  name.known = true;
  std::memcpy(name.group, fiber.id.group, sizeof name.group);
  std::memcpy(name.local, fiber.id.local, sizeof name.local);
  return name;
}

Where place_of(const Fiber& fiber) {
  return {fiber.site.file, static_cast<unsigned>(fiber.site.line), 0, name_of(fiber)};
}

/// Ends with the reason why `fiber`, which waits, waits in vain; `other` is where another thread went instead.
[[noreturn]] void diverged(const Fiber& fiber, const Fiber& other) {
  unsigned here = 0;
  for (unsigned i = 0; i < count; ++i) here += fibers[i].state == fiber.state && same_site(fibers[i].site, fiber.site);
  Text text;
  text << std::uint64_t{here} << " of " << std::uint64_t{count} << " threads wait at " << fiber.site.op << "; ";
  if (other.state == State::ended) {
    text << std::uint64_t{ended} << " have ended";
  } else {
    text << "others wait at " << other.site.op << " in line " << static_cast<std::uint64_t>(other.site.line);
  }
  const bool barrier = fiber.state == State::at_barrier;
  Where there = other.state == State::ended ? Where{nullptr, 0, 0, name_of(other)} : place_of(other);
  end_with({barrier ? "barrier-divergence" : "simd-divergence", "scheduler", text.c_str(), place_of(fiber), there});
}

/// Nothing can run, and not all have ended.
[[noreturn]] void stuck() {
  // A simdgroup whose lanes wait at different places is to blame before a barrier that they therefore never reach.
  for (unsigned i = 0; i < count; ++i) {
    if (fibers[i].state != State::at_meeting) continue;
    const unsigned first = i / simd_width * simd_width;
    for (unsigned j = first; j < first + simd_width && j < count; ++j) {
      const bool apart = fibers[j].state != State::at_meeting || !same_site(fibers[j].site, fibers[i].site);
      if (apart && fibers[j].state != State::ended) diverged(fibers[i], fibers[j]);
    }
  }
  for (unsigned i = 0; i < count; ++i) {
    if (fibers[i].state != State::at_barrier) continue;
    for (unsigned j = 0; j < count; ++j) {
      if (fibers[j].state != State::at_barrier || !same_site(fibers[j].site, fibers[i].site)) diverged(fibers[i], fibers[j]);
    }
  }
  std::fputs("the scheduler has nothing to run\n", stderr);
  std::abort();
}

void start_switch(void** fake, const void* bottom, std::size_t size) {
#if defined(EMU_ADDRESS)
  __sanitizer_start_switch_fiber(fake, bottom, size);
#else
  (void)fake, (void)bottom, (void)size;
#endif
}

void finish_switch(void* fake, const void** bottom, std::size_t* size) {
#if defined(EMU_ADDRESS)
  __sanitizer_finish_switch_fiber(fake, bottom, size);
#else
  (void)fake, (void)bottom, (void)size;
#endif
}

/// Gives the processor to the next fiber that can run.
void yield() {
  if (queue_length == 0) stuck();
  Fiber* next = &fibers[queue[queue_head]];
  queue_head = (queue_head + 1) % (2 * max_group_threads);
  --queue_length;
  if (next == current) return;
  Fiber* from = current;
  current = next;
  checker::enter(next->id.index);
  start_switch(&from->fake_stack, next->stack, stack_bytes);
  emu_switch(&from->stack_pointer, next->stack_pointer);
  finish_switch(from->fake_stack, nullptr, nullptr);
}

void complete(Simdgroup& simdgroup, Meet& meet, unsigned first_lane, unsigned lanes, unsigned simd_index) {
  const unsigned first = simd_index * simd_width + first_lane;
  const Fiber* one = nullptr;
  for (unsigned i = first; i < first + lanes && i < count; ++i) {
    if (fibers[i].state != State::at_meeting) continue;
    if (one && !same_site(one->site, fibers[i].site)) diverged(*one, fibers[i]);
    one = &fibers[i];
  }
  (void)simdgroup;
  meet.took_part[meet.turn] = meet.arrived;
  meet.turn ^= 1;
  meet.arrived = 0;
  release(first, first + lanes <= count ? lanes : count - first, State::at_meeting);
}

/// The current lane comes to a meeting of its simdgroup or quad and leaves when all have come.
unsigned meet_lanes(const void* mine, std::size_t size, bool quad, Site site, Simdgroup& simdgroup) {
  const unsigned lane = current->id.lane;
  Meet& meet = quad ? simdgroup.quads[lane / 4] : simdgroup.whole;
  const unsigned first = quad ? lane / 4 * 4 : 0, lanes = quad ? 4 : simd_width;
  const unsigned turn = meet.turn;
  std::memcpy((quad ? simdgroup.quad_slots : simdgroup.slots)[turn][lane], mine, size);
  current->site = site;
  current->state = State::at_meeting;
  meet.arrived |= 1u << (lane - first);
  if (meet.arrived == meet.live) complete(simdgroup, meet, first, lanes, current->id.simdgroup);
  yield();
  return turn;
}

void end_lane(Simdgroup& simdgroup, unsigned lane) {
  const unsigned quad = lane / 4;
  Meet* meets[2] = {&simdgroup.whole, &simdgroup.quads[quad]};
  const unsigned firsts[2] = {0, quad * 4}, widths[2] = {simd_width, 4};
  for (int i = 0; i < 2; ++i) {
    meets[i]->live &= ~(1u << (lane - firsts[i]));
    const bool all = meets[i]->live != 0 && meets[i]->arrived == meets[i]->live;
    if (all) complete(simdgroup, *meets[i], firsts[i], widths[i], current->id.simdgroup);
  }
}

/// The last act of a fiber's turn in a group.
void end_thread() {
  current->state = State::ended;
  ++ended;
  end_lane(simdgroups[current->id.simdgroup], current->id.lane);
  if (ended < count) return yield();
  Fiber* from = current;
  current = nullptr;
  start_switch(&from->fake_stack, main_stack, main_stack_bytes);
  emu_switch(&from->stack_pointer, main_stack_pointer);
  finish_switch(from->fake_stack, nullptr, nullptr);
}

void fiber_body() {
  finish_switch(nullptr, main_stack ? nullptr : &main_stack, main_stack ? nullptr : &main_stack_bytes);
  for (;;) {
    emu_entry(entry_buffers);
    end_thread();
  }
}

void open_simdgroup(Simdgroup& simdgroup, unsigned lanes) {
  simdgroup.whole.open(lanes == 32 ? ~0u : (1u << lanes) - 1);
  for (unsigned quad = 0; quad < 8; ++quad) {
    const unsigned left = lanes > quad * 4 ? lanes - quad * 4 : 0;
    simdgroup.quads[quad].open(left >= 4 ? 15u : (1u << left) - 1);
  }
}
} // namespace

const Thread& self() { return current->id; }

ThreadName running_thread() { return current ? name_of(*current) : ThreadName{}; }

bool below_stack(std::uintptr_t address) {
  if (!current) return false;
  const auto low = reinterpret_cast<std::uintptr_t>(current->stack);
  return address < low && address >= low - guard_bytes;
}

bool is_private(std::uintptr_t address) {
  if (current) {
    const auto low = reinterpret_cast<std::uintptr_t>(current->stack);
    if (address >= low && address < low + stack_bytes) return true;
  }
  return in_program(address);
}

void open_machine(unsigned threads, std::uint64_t) {
  const std::size_t each = stack_bytes + guard_bytes;
  void* base = mmap(nullptr, each * threads, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    std::perror("mapping stacks");
    _exit(exit_usage);
  }
  stacks = static_cast<char*>(base);
  for (unsigned i = 0; i < threads; ++i) {
    mprotect(stacks + i * each, guard_bytes, PROT_NONE);
    fibers[i].stack = stacks + i * each + guard_bytes;
    fibers[i].stack_pointer = emu_fresh_stack(fibers[i].stack + stack_bytes, fiber_body);
  }
}

void run_group(const Shape& shape, const unsigned (&position)[3], std::uint64_t seed) {
  unsigned size[3];
  group_extent(shape, position, size);
  count = size[0] * size[1] * size[2];
  ended = arrived = queue_length = 0;
  order_seed = seed;
  random_order = Random(seed * 0x10001 + detail::group_serial);
  for (unsigned i = 0; i < count; ++i) {
    name_thread(fibers[i].id, shape, position, size, i);
    fibers[i].state = State::at_barrier;
  }
  for (unsigned first = 0; first < count; first += simd_width) {
    open_simdgroup(simdgroups[first / simd_width], count - first < simd_width ? count - first : simd_width);
  }
  checker::start_group(position, size);
  release(0, count, State::at_barrier);
  current = &fibers[queue[queue_head]];
  queue_head = (queue_head + 1) % (2 * max_group_threads);
  --queue_length;
  checker::enter(current->id.index);
  start_switch(&main_fake_stack, current->stack, stack_bytes);
  emu_switch(&main_stack_pointer, current->stack_pointer);
  finish_switch(main_fake_stack, nullptr, nullptr);
}

void threadgroup_barrier(unsigned order, Site site) {
  current->site = site;
  current->state = State::at_barrier;
  if (++arrived == count) {
    for (unsigned i = 1; i < count; ++i) {
      if (!same_site(fibers[0].site, fibers[i].site)) diverged(fibers[0], fibers[i]);
    }
    arrived = 0;
    checker::pass_barrier(order);
    release(0, count, State::at_barrier);
  }
  yield();
}

void simdgroup_barrier(unsigned order, Site site) {
  Simdgroup& simdgroup = simdgroups[current->id.simdgroup];
  const Meet& meet = simdgroup.whole;
  const bool last = (meet.arrived | 1u << current->id.lane) == meet.live;
  if (last) checker::pass_simd_barrier(current->id.simdgroup, order);
  meet_lanes(nullptr, 0, false, site, simdgroup);
}

std::uint32_t detail::exchange(const void* mine, std::size_t size, void* out, bool quad, Site site) {
  Simdgroup& simdgroup = simdgroups[current->id.simdgroup];
  const unsigned lane = current->id.lane;
  const unsigned turn = meet_lanes(mine, size, quad, site, simdgroup);
  const std::uint32_t lanes = (quad ? simdgroup.quads[lane / 4] : simdgroup.whole).took_part[turn];
  copy_lanes((quad ? simdgroup.quad_slots : simdgroup.slots)[turn], quad ? lane / 4 * 4 : 0, quad ? 4 : simd_width, lanes, size, out);
  return lanes;
}

void* group_block(const char* name, std::size_t size, std::size_t granule, void* previous) {
  Region* region = previous ? region_near(reinterpret_cast<std::uintptr_t>(previous)) : nullptr;
  if (!region) {
    region = &map_region(name, size, Kind::group, static_cast<unsigned>(granule));
    region->shift = static_cast<unsigned>(__builtin_ctzll(granule));
#if defined(EMU_CHECKED)
    reset_cells(*region);
#endif
  }
  void* memory = reinterpret_cast<void*>(region->base);
  std::memset(memory, 0xff, size);
  return memory;
}

} // namespace emu
