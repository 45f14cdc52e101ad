// Appended to the generated bindings: on x86-64 the C headers declare no half types. The functions
// are defined in half.cpp beside this file.

/// Raw bits of an IEEE 754 binary16 value.
#[repr(transparent)]
#[derive(Debug, Default, Copy, Clone)]
pub struct float16_t(pub u16);

/// Raw bits of a bfloat16 value.
pub type bfloat16_t = u16;

unsafe extern "C" {
    pub fn mlx_array_item_float16(res: *mut float16_t, arr: mlx_array) -> ::std::os::raw::c_int;
    pub fn mlx_array_item_bfloat16(res: *mut bfloat16_t, arr: mlx_array) -> ::std::os::raw::c_int;
    pub fn mlx_array_data_float16(arr: mlx_array) -> *const float16_t;
    pub fn mlx_array_data_bfloat16(arr: mlx_array) -> *const bfloat16_t;
}
