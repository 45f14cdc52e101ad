// The checker of mode fibers: every access that the kernel makes, against shadow cells.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emu::checker {

#if defined(EMU_CHECKED)
/// A group at `position` starts.
void start_group(const unsigned (&position)[3], const unsigned (&size)[3]);
/// Thread `index` runs from here on.
void enter(unsigned index);
/// All threads of the group have passed a barrier that orders the memories in `order`.
void pass_barrier(unsigned order);
/// All lanes of a simdgroup have.
void pass_simd_barrier(unsigned simdgroup, unsigned order);
/// The kernel has ended: elements of outputs that nobody wrote.
void finish();
#else
inline void start_group(const unsigned (&)[3], const unsigned (&)[3]) {}
inline void enter(unsigned) {}
inline void pass_barrier(unsigned) {}
inline void pass_simd_barrier(unsigned, unsigned) {}
inline void finish() {}
#endif

} // namespace emu::checker
