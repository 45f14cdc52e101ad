// The threads of the running group as the scheduler sees them: where each one is, and what that means when nothing moves.
#pragma once

#include "emu/runtime.h"
#include "machine.h"
#include "meet.h"
#include "report.h"

namespace emu {

enum class State : unsigned char { running, at_barrier, at_meeting, ended };

struct Seat {
  Thread id;
  State state = State::ended;
  Site site = {};
};

/// A simdgroup's meetings: its own and its quads'.
struct Simdgroup {
  Meet whole;
  Meet quads[8];
  Slots slots, quad_slots;

  void open(unsigned lanes);
};

/// The part of a meeting that one lane sees.
struct Meeting {
  Meet& meet;
  Slots& slots;
  unsigned first_lane, lanes;
};

extern Seat seats[max_group_threads];
extern Simdgroup simdgroups[max_group_threads / simd_width];
/// Seats of the running group, and how many of its threads have ended or wait at a barrier.
extern unsigned seated, ended, at_barrier;

/// Seats the group at `position`.
void seat_group(const Shape& shape, const unsigned (&position)[3]);
ThreadName name_of(const Seat& seat);
Meeting meeting_of(const Seat& seat, bool quad);
/// Ends the process with the reason why `seat`, which waits, waits in vain: `other` went elsewhere.
[[noreturn]] void diverged(const Seat& seat, const Seat& other);
/// Ends the process: nothing can run, and not all have ended.
[[noreturn]] void stuck();
/// All threads have come to a barrier: to the same one?
void check_barrier();
/// All live lanes have come to `meeting` of simdgroup `index`: to the same one? Then its turn is over.
void close_meeting(const Meeting& meeting, unsigned index);

} // namespace emu
