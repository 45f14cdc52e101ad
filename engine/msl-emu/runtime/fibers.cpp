// One OS thread; each Metal thread a fiber. A fiber runs until it waits, ends or faults.
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <sys/mman.h>
#include <unistd.h>

#include "arena.h"
#include "checker.h"
#include "machine.h"
#include "seats.h"
#include "switch.h"

#if defined(EMU_ADDRESS)
#include <sanitizer/common_interface_defs.h>
#endif

namespace emu {
namespace {

#if defined(EMU_ADDRESS)
constexpr std::size_t stack_bytes = 512 << 10;
#else
constexpr std::size_t stack_bytes = 256 << 10;
#endif
constexpr std::size_t guard_bytes = 64 << 10;
constexpr unsigned queue_length = 2 * max_group_threads;
constexpr unsigned nobody = ~0u;

struct Fiber {
  void* stack_pointer = nullptr;
  char* stack = nullptr; // lowest usable byte
  void* fake_stack = nullptr;
};

Fiber fibers[max_group_threads];
unsigned current = nobody;
unsigned queue[queue_length];
unsigned queue_head = 0, queued = 0;
std::uint64_t order_seed = 0;
Random random_order{0};
Fiber main_fiber;
const void* main_stack = nullptr;
std::size_t main_stack_bytes = 0;

/// Queues those of `members` that are in `state`, in an order that the seed picks anew.
void release(unsigned first, unsigned members, State state) {
  unsigned order[max_group_threads];
  permute(order, members, order_seed, random_order);
  for (unsigned i = 0; i < members; ++i) {
    Seat& seat = seats[first + order[i]];
    if (seat.state != state) continue;
    seat.state = State::running;
    queue[(queue_head + queued++) % queue_length] = first + order[i];
  }
}

unsigned next_ready() {
  if (queued == 0) stuck();
  const unsigned next = queue[queue_head];
  queue_head = (queue_head + 1) % queue_length;
  --queued;
  return next;
}

void switch_fiber(Fiber& from, Fiber& to, const void* bottom, std::size_t size) {
#if defined(EMU_ADDRESS)
  __sanitizer_start_switch_fiber(&from.fake_stack, bottom, size);
#else
  (void)bottom, (void)size;
#endif
  emu_switch(&from.stack_pointer, to.stack_pointer);
#if defined(EMU_ADDRESS)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void switch_to(Fiber& from, unsigned next) {
  current = next;
  checker::enter(next);
  switch_fiber(from, fibers[next], fibers[next].stack, stack_bytes);
}

/// Gives the processor to the next fiber that can run.
void yield() {
  const unsigned from = current, next = next_ready();
  if (next != from) switch_to(fibers[from], next);
}

void end_meeting(const Meeting& meeting, unsigned simdgroup) {
  close_meeting(meeting, simdgroup);
  const unsigned first = simdgroup * simd_width + meeting.first_lane;
  release(first, first + meeting.lanes <= seated ? meeting.lanes : seated - first, State::at_meeting);
}

/// The running lane comes to a meeting and leaves when all live lanes have come; the turn it took part in.
unsigned meet_lanes(const Meeting& meeting, Site site) {
  Seat& seat = seats[current];
  const unsigned turn = meeting.meet.turn;
  seat.site = site;
  seat.state = State::at_meeting;
  meeting.meet.arrived |= 1u << (seat.id.lane - meeting.first_lane);
  if (meeting.meet.arrived == meeting.meet.live) end_meeting(meeting, seat.id.simdgroup);
  yield();
  return turn;
}

/// The last act of a fiber's turn in a group.
void end_thread() {
  const unsigned me = current;
  Seat& seat = seats[me];
  seat.state = State::ended;
  ++ended;
  for (bool quad : {false, true}) {
    const Meeting meeting = meeting_of(seat, quad);
    Meet& meet = meeting.meet;
    meet.live &= ~(1u << (seat.id.lane - meeting.first_lane));
    if (meet.live != 0 && meet.arrived == meet.live) end_meeting(meeting, seat.id.simdgroup);
  }
  if (ended < seated) return switch_to(fibers[me], next_ready());
  current = nobody;
  switch_fiber(fibers[me], main_fiber, main_stack, main_stack_bytes);
}

void fiber_body() {
#if defined(EMU_ADDRESS)
  // The first switch comes from the main stack: keep its bounds for the way back.
  const bool first = main_stack == nullptr;
  __sanitizer_finish_switch_fiber(nullptr, first ? &main_stack : nullptr, first ? &main_stack_bytes : nullptr);
#endif
  for (;;) {
    emu_entry(entry_buffers);
    end_thread();
  }
}
} // namespace

const Thread& self() { return seats[current].id; }

ThreadName running_thread() { return current == nobody ? ThreadName{} : name_of(seats[current]); }

bool below_stack(std::uintptr_t address) {
  if (current == nobody) return false;
  const auto low = reinterpret_cast<std::uintptr_t>(fibers[current].stack);
  return address < low && address >= low - guard_bytes;
}

std::uintptr_t stack_end() {
  return current == nobody ? 0 : reinterpret_cast<std::uintptr_t>(fibers[current].stack + stack_bytes);
}

bool is_private(std::uintptr_t address) {
  const auto low = current == nobody ? 0 : reinterpret_cast<std::uintptr_t>(fibers[current].stack);
  return address - low < stack_bytes || in_program(address);
}

void open_machine(unsigned threads, std::uint64_t) {
  const std::size_t each = stack_bytes + guard_bytes;
  void* base = mmap(nullptr, each * threads, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    std::perror("mapping stacks");
    _exit(exit_usage);
  }
  for (unsigned i = 0; i < threads; ++i) {
    char* low = static_cast<char*>(base) + i * each;
    mprotect(low, guard_bytes, PROT_NONE);
    fibers[i].stack = low + guard_bytes;
    fibers[i].stack_pointer = emu_fresh_stack(fibers[i].stack + stack_bytes, fiber_body);
  }
}

void run_group(const Shape& shape, const unsigned (&position)[3], std::uint64_t seed) {
  seat_group(shape, position);
  queued = 0;
  order_seed = seed;
  random_order = Random(seed * 0x10001 + detail::group_serial);
  checker::start_group(position, seats[0].id.group_size);
  release(0, seated, State::running);
  switch_to(main_fiber, next_ready());
}

void end_grid() {}

void threadgroup_barrier(unsigned order, Site site) {
  seats[current].site = site;
  seats[current].state = State::at_barrier;
  if (++at_barrier == seated) {
    check_barrier();
    at_barrier = 0;
    checker::pass_barrier(order);
    release(0, seated, State::at_barrier);
  }
  yield();
}

void simdgroup_barrier(unsigned order, Site site) {
  const Seat& seat = seats[current];
  const Meeting meeting = meeting_of(seat, false);
  const bool last = (meeting.meet.arrived | 1u << seat.id.lane) == meeting.meet.live;
  if (last) checker::pass_simd_barrier(seat.id.simdgroup, order);
  meet_lanes(meeting, site);
}

std::uint32_t detail::exchange(const void* mine, std::size_t size, void* out, bool quad, Site site) {
  const Seat& seat = seats[current];
  const Meeting meeting = meeting_of(seat, quad);
  std::memcpy(meeting.slots[meeting.meet.turn][seat.id.lane], mine, size);
  const unsigned turn = meet_lanes(meeting, site);
  const std::uint32_t lanes = meeting.meet.took_part[turn];
  copy_lanes(meeting.slots[turn], meeting.first_lane, meeting.lanes, lanes, size, out);
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
