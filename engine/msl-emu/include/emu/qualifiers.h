// The last of metal_types: macros, after every header of the host's library. (Address spaces are not here: they are
// taken out of the source before it is compiled.)
#pragma once
#pragma GCC system_header

// Inlined always, so that a fault of memory is laid to the line of the kernel that called.
#define METAL_FUNC inline __attribute__((always_inline))
#define METAL_CONST const
#define __METAL__ 1
#define __METAL_VERSION__ 310

// Not in MSL, so not in a kernel.
#define double METAL_HAS_NO_TYPE_double
