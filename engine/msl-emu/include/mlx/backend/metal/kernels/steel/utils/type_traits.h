// In place of MLX's header of this name, whose specializations differ in address spaces only.
#pragma once

#include <metal_type_traits>

namespace metal {

template <class T>
struct is_empty : bool_constant<std::is_empty_v<T>> {};
template <class T>
inline constexpr bool is_empty_v = std::is_empty_v<T>;
template <class... T>
using void_t = std::void_t<T...>;
// Whether all of a value is in its type.
template <class T>
struct is_static : bool_constant<std::is_empty_v<remove_cv_t<T>>> {};

template <class T>
struct pointer_element {};
template <class T>
struct pointer_element<T*> {
  using type = remove_cv_t<T>;
};
template <class T>
using pointer_element_t = typename pointer_element<remove_cv_t<T>>::type;

}  // namespace metal
