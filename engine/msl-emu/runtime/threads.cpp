// One OS thread for each Metal thread of a group, under ThreadSanitizer.
//
// This file is not instrumented, and it waits on futexes, which ThreadSanitizer does not see: the only order it knows
// of is what is told to it here: threads that pass a barrier of the group or of the simdgroup. Groups follow each other
// without its knowledge, so that two groups that touch the same device memory race, as they do on a device.
#include <atomic>
#include <cstdio>
#include <initializer_list>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arena.h"
#include "guard.h"
#include "machine.h"
#include "seats.h"

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}

namespace emu {
namespace {

constexpr std::size_t stack_bytes = 1 << 20, guard_bytes = 64 << 10;
/// Group memory is new for each group, until it comes round again after this many.
constexpr std::uint64_t max_blocks = 4096;
constexpr std::size_t block_bytes = 2 * max_group_bytes; // variables are aligned apart
constexpr unsigned nobody = ~0u;

/// Threads that run at one time: enough for them to meet, few enough to leave the machine usable.
constexpr unsigned max_active = 2;

struct Worker {
  pthread_t handle = {};
  char* stack = nullptr;
  std::atomic<int> go{0};
  std::atomic<unsigned> seat{nobody};
  std::atomic<long> os_id{0};
};

Worker workers[max_group_threads];
unsigned worker_count = 0;
thread_local unsigned me = nobody; // the running worker's seat

std::atomic<int> held{0};
std::atomic<int> group_over{0};
unsigned active = 0;
unsigned ready[max_group_threads];
unsigned ready_head = 0, ready_count = 0;
unsigned worker_of[max_group_threads]; // by seat
Random random_order{0};
std::uint64_t order_seed = 0;

/// Addresses that stand for barriers: for each group (in turn) two of the group and two of each simdgroup.
constexpr unsigned points_per_group = 2 + 2 * max_group_threads / simd_width;
char points[1024][points_per_group];
char group_boundary, grid_over;
std::uint64_t barriers_passed = 0;
Region* blocks = nullptr;
std::uint64_t block_count = 0;
std::size_t block_used = 0;

class Held {
public:
  Held() {
    while (held.exchange(1, std::memory_order_acquire)) held.wait(1);
  }
  ~Held() {
    held.store(0, std::memory_order_release);
    held.notify_one();
  }
};

char* point(unsigned index) { return &points[detail::group_serial % 1024][index]; }

/// With the lock: those of `members` in `state` may run again, in an order that the seed picks anew.
void release(unsigned first, unsigned members, State state) {
  unsigned order[max_group_threads];
  permute(order, members, order_seed, random_order);
  for (unsigned i = 0; i < members; ++i) {
    Seat& seat = seats[first + order[i]];
    if (seat.state != state) continue;
    seat.state = State::running;
    ready[(ready_head + ready_count++) % max_group_threads] = first + order[i];
  }
}

/// With the lock: wakes as many as may run.
void dispatch() {
  if (active == 0 && ready_count == 0 && ended < seated) stuck();
  while (active < max_active && ready_count > 0) {
    Worker& worker = workers[worker_of[ready[ready_head]]];
    ready_head = (ready_head + 1) % max_group_threads;
    --ready_count;
    ++active;
    worker.go.store(1, std::memory_order_release);
    worker.go.notify_one();
  }
}

void await_turn(Worker& worker) {
  while (worker.go.load(std::memory_order_acquire) == 0) worker.go.wait(0);
  worker.go.store(0, std::memory_order_relaxed);
}

void end_meeting(const Meeting& meeting, unsigned simdgroup) {
  close_meeting(meeting, simdgroup);
  const unsigned first = simdgroup * simd_width + meeting.first_lane;
  release(first, first + meeting.lanes <= seated ? meeting.lanes : seated - first, State::at_meeting);
}

unsigned meet_lanes(const Meeting& meeting, const void* mine, std::size_t size, Site site) {
  Seat& seat = seats[me];
  unsigned turn = 0;
  {
    Held lock;
    turn = meeting.meet.turn;
    copy_bytes(meeting.slots[turn][seat.id.lane], mine, size);
    seat.site = site;
    seat.state = State::at_meeting;
    meeting.meet.arrived |= 1u << (seat.id.lane - meeting.first_lane);
    if (meeting.meet.arrived == meeting.meet.live) end_meeting(meeting, seat.id.simdgroup);
    --active;
    dispatch();
  }
  await_turn(workers[worker_of[me]]);
  return turn;
}

void end_thread() {
  __tsan_release(&grid_over);
  Held lock;
  Seat& seat = seats[me];
  seat.state = State::ended;
  ++ended;
  for (bool quad : {false, true}) {
    const Meeting meeting = meeting_of(seat, quad);
    meeting.meet.live &= ~(1u << (seat.id.lane - meeting.first_lane));
    if (meeting.meet.live != 0 && meeting.meet.arrived == meeting.meet.live) end_meeting(meeting, seat.id.simdgroup);
  }
  --active;
  dispatch();
  if (ended < seated) return;
  group_over.store(1, std::memory_order_release);
  group_over.notify_one();
}

/// As `copy_bytes`: not with memset.
void poison_blocks() {
  auto* words = reinterpret_cast<std::uint64_t*>(blocks->base);
  for (std::size_t i = 0; i < blocks->size / sizeof *words; ++i) {
    words[i] = ~std::uint64_t{0};
    asm volatile("" ::: "memory");
  }
}

void* worker_body(void* argument) {
  Worker& worker = *static_cast<Worker*>(argument);
  worker.os_id = syscall(SYS_gettid);
  guard_thread();
  for (;;) {
    await_turn(worker);
    me = worker.seat;
    if (detail::group_serial % max_blocks == 0) __tsan_acquire(&group_boundary);
    emu_entry(entry_buffers);
    if ((detail::group_serial + 1) % max_blocks == 0) __tsan_release(&group_boundary);
    end_thread();
    me = nobody;
  }
}

void open_worker(Worker& worker, char* low) {
  mprotect(low, guard_bytes, PROT_NONE);
  worker.stack = low + guard_bytes;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, worker.stack, stack_bytes);
  if (pthread_create(&worker.handle, &attributes, worker_body, &worker) != 0) {
    std::fputs("no more threads\n", stderr);
    _exit(exit_usage);
  }
}
} // namespace

const Thread& self() { return seats[me].id; }

ThreadName running_thread() { return me == nobody ? ThreadName{} : name_of(seats[me]); }

bool below_stack(std::uintptr_t address) {
  for (unsigned i = 0; i < worker_count; ++i) {
    const auto low = reinterpret_cast<std::uintptr_t>(workers[i].stack);
    if (address < low && address >= low - guard_bytes) return true;
  }
  return false;
}

std::uintptr_t stack_end() {
  return me == nobody ? 0 : reinterpret_cast<std::uintptr_t>(workers[worker_of[me]].stack + stack_bytes);
}

void open_machine(unsigned threads, std::uint64_t groups) {
  block_count = groups < max_blocks ? groups + 1 : max_blocks;
  blocks = &map_region("threadgroup memory", block_count * block_bytes, Kind::group, 1);
  poison_blocks();
  worker_count = threads;
  const std::size_t each = stack_bytes + guard_bytes;
  void* base = mmap(nullptr, each * threads, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    std::perror("mapping stacks");
    _exit(exit_usage);
  }
  for (unsigned i = 0; i < threads; ++i) open_worker(workers[i], static_cast<char*>(base) + i * each);
}

void run_group(const Shape& shape, const unsigned (&position)[3], std::uint64_t seed) {
  seat_group(shape, position);
  block_used = 0;
  if (detail::group_serial % max_blocks == 0) poison_blocks();
  // Threads change seats from group to group: what one thread does in two groups must not count as ordered by that.
  random_order = Random(seed * 0x10001 + detail::group_serial);
  order_seed = seed;
  permute(worker_of, worker_count, 2, random_order);
  for (unsigned i = 0; i < seated; ++i) workers[worker_of[i]].seat = i;
  group_over = 0;
  {
    Held lock;
    release(0, seated, State::running);
    dispatch();
  }
  while (group_over.load(std::memory_order_acquire) == 0) group_over.wait(0);
}

void end_grid() { __tsan_acquire(&grid_over); }

void threadgroup_barrier(unsigned order, Site site) {
  Seat& seat = seats[me];
  unsigned parity = 0;
  {
    Held lock;
    parity = barriers_passed % 2;
    if (order != order_none) __tsan_release(point(parity));
    seat.site = site;
    seat.state = State::at_barrier;
    if (++at_barrier == seated) {
      check_barrier();
      at_barrier = 0;
      ++barriers_passed;
      release(0, seated, State::at_barrier);
    }
    --active;
    dispatch();
  }
  await_turn(workers[worker_of[me]]);
  if (order != order_none) __tsan_acquire(point(parity));
}

void simdgroup_barrier(unsigned order, Site site) {
  const Seat& seat = seats[me];
  const Meeting meeting = meeting_of(seat, false);
  char* at = point(2 + 2 * seat.id.simdgroup + meeting.meet.turn);
  if (order != order_none) __tsan_release(at);
  meet_lanes(meeting, nullptr, 0, site);
  if (order != order_none) __tsan_acquire(at);
}

std::uint32_t detail::exchange(const void* mine, std::size_t size, void* out, bool quad, Site site) {
  const Meeting meeting = meeting_of(seats[me], quad);
  const unsigned turn = meet_lanes(meeting, mine, size, site);
  const std::uint32_t lanes = meeting.meet.took_part[turn];
  copy_lanes(meeting.slots[turn], meeting.first_lane, meeting.lanes, lanes, size, out);
  return lanes;
}

void* group_block(const char*, std::size_t size, std::size_t, void*) {
  auto* block = reinterpret_cast<std::byte*>(blocks->base) + detail::group_serial % block_count * block_bytes;
  std::byte* memory = block + block_used;
  block_used += (size + 63) / 64 * 64;
  return memory;
}

ThreadName thread_of_system(unsigned long os_id) {
  for (unsigned w = 0; w < worker_count; ++w) {
    const unsigned seat = workers[w].seat;
    if (static_cast<unsigned long>(workers[w].os_id) == os_id && seat != nobody) return name_of(seats[seat]);
  }
  return {};
}

} // namespace emu
