#include "seats.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace emu {

Seat seats[max_group_threads];
Simdgroup simdgroups[max_group_threads / simd_width];
unsigned seated = 0, ended = 0, at_barrier = 0;

void Simdgroup::open(unsigned present) {
  whole.open(present == simd_width ? ~0u : (1u << present) - 1);
  for (unsigned quad = 0; quad < 8; ++quad) {
    const unsigned left = present > quad * 4 ? present - quad * 4 : 0;
    quads[quad].open(left >= 4 ? 15u : (1u << left) - 1);
  }
}

void seat_group(const Shape& shape, const unsigned (&position)[3]) {
  unsigned size[3];
  group_extent(shape, position, size);
  seated = size[0] * size[1] * size[2];
  ended = at_barrier = 0;
  for (unsigned i = 0; i < seated; ++i) {
    name_thread(seats[i].id, shape, position, size, i);
    seats[i].state = State::running;
  }
  for (unsigned first = 0; first < seated; first += simd_width) {
    simdgroups[first / simd_width].open(seated - first < simd_width ? seated - first : simd_width);
  }
}

ThreadName name_of(const Seat& seat) {
  ThreadName name;
  name.known = true;
  std::memcpy(name.group, seat.id.group, sizeof name.group);
  std::memcpy(name.local, seat.id.local, sizeof name.local);
  return name;
}

Meeting meeting_of(const Seat& seat, bool quad) {
  Simdgroup& simdgroup = simdgroups[seat.id.simdgroup];
  const unsigned lane = seat.id.lane;
  if (quad) return {simdgroup.quads[lane / 4], simdgroup.quad_slots, lane / 4 * 4, 4};
  return {simdgroup.whole, simdgroup.slots, 0, simd_width};
}

namespace {
Where place_of(const Seat& seat) {
  if (seat.state == State::ended) return {nullptr, 0, 0, name_of(seat), {}};
  return {seat.site.file, static_cast<unsigned>(seat.site.line), 0, name_of(seat), {}};
}
} // namespace

void diverged(const Seat& seat, const Seat& other) {
  unsigned here = 0;
  for (unsigned i = 0; i < seated; ++i) here += seats[i].state == seat.state && same_site(seats[i].site, seat.site);
  Text text;
  text << std::uint64_t{here} << " of " << std::uint64_t{seated} << " threads wait at " << seat.site.op << "; ";
  if (other.state == State::ended) {
    text << std::uint64_t{ended} << " have ended";
  } else {
    text << "others wait at " << other.site.op << " in line " << static_cast<std::uint64_t>(other.site.line);
  }
  const char* kind = seat.state == State::at_barrier ? "barrier-divergence" : "simd-divergence";
  end_with({kind, "scheduler", text.c_str(), place_of(seat), place_of(other)});
}

void stuck() {
  // A simdgroup whose lanes wait at different places is to blame before a barrier that they therefore never reach.
  for (unsigned i = 0; i < seated; ++i) {
    if (seats[i].state != State::at_meeting) continue;
    const unsigned first = i / simd_width * simd_width;
    for (unsigned j = first; j < first + simd_width && j < seated; ++j) {
      const bool apart = seats[j].state != State::at_meeting || !same_site(seats[j].site, seats[i].site);
      if (apart && seats[j].state != State::ended) diverged(seats[i], seats[j]);
    }
  }
  for (unsigned i = 0; i < seated; ++i) {
    if (seats[i].state != State::at_barrier) continue;
    for (unsigned j = 0; j < seated; ++j) {
      if (seats[j].state != State::at_barrier || !same_site(seats[j].site, seats[i].site)) diverged(seats[i], seats[j]);
    }
  }
  std::fputs("the scheduler has nothing to run\n", stderr);
  std::abort();
}

void check_barrier() {
  for (unsigned i = 1; i < seated; ++i) {
    if (!same_site(seats[0].site, seats[i].site)) diverged(seats[0], seats[i]);
  }
}

void close_meeting(const Meeting& meeting, unsigned index) {
  const unsigned first = index * simd_width + meeting.first_lane;
  const Seat* one = nullptr;
  for (unsigned i = first; i < first + meeting.lanes && i < seated; ++i) {
    if (seats[i].state != State::at_meeting) continue;
    if (one && !same_site(one->site, seats[i].site)) diverged(*one, seats[i]);
    one = &seats[i];
  }
  Meet& meet = meeting.meet;
  meet.took_part[meet.turn] = meet.arrived;
  meet.turn ^= 1;
  meet.arrived = 0;
}

} // namespace emu
