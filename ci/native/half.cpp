// The four half-precision accessors that mlx-c declares on Arm only and mlx-rs calls everywhere.
// Values cross as raw bits: half.rs declares the same functions for Rust.
#include <cstdint>
#include <cstring>
#include <exception>

#include "mlx/c/array.h"
#include "mlx/c/error.h"
#include "mlx/c/private/mlx.h"

namespace {

template <class Half>
int item_bits(uint16_t* out, mlx_array array) {
  static_assert(sizeof(Half) == sizeof(uint16_t));
  try {
    const Half value = mlx_array_get_(array).item<Half>();
    std::memcpy(out, &value, sizeof(value));
    return 0;
  } catch (const std::exception& error) {
    mlx_error("%s", error.what());
    return 1;
  }
}

template <class Half>
const uint16_t* data_bits(mlx_array array) {
  try {
    return reinterpret_cast<const uint16_t*>(mlx_array_get_(array).data<Half>());
  } catch (const std::exception& error) {
    mlx_error("%s", error.what());
    return nullptr;
  }
}

} // namespace

extern "C" int mlx_array_item_float16(uint16_t* out, const mlx_array array) {
  return item_bits<mlx::core::float16_t>(out, array);
}

extern "C" int mlx_array_item_bfloat16(uint16_t* out, const mlx_array array) {
  return item_bits<mlx::core::bfloat16_t>(out, array);
}

extern "C" const uint16_t* mlx_array_data_float16(const mlx_array array) {
  return data_bits<mlx::core::float16_t>(array);
}

extern "C" const uint16_t* mlx_array_data_bfloat16(const mlx_array array) {
  return data_bits<mlx::core::bfloat16_t>(array);
}
