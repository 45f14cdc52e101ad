// In place of MLX's header of this name, which gives `bfloat` the functions of float through the compiler's own
// intrinsics: here <metal_math> and <metal_simdgroup> have them.
#pragma once

#include <metal_math>
#include <metal_simdgroup>
