//! The guide, from `harness/guide/`.

#[doc = include_str!("../guide/concepts.md")]
pub mod concepts {}

#[doc = include_str!("../guide/kl.md")]
pub mod kl {}

#[doc = include_str!("../guide/metal-on-linux.md")]
pub mod metal_on_linux {}

#[doc = include_str!("../guide/gate.md")]
pub mod gate {}

#[doc = include_str!("../guide/gradients.md")]
pub mod gradients {}

#[doc = include_str!("../guide/bisect.md")]
pub mod bisect {}

#[doc = include_str!("../guide/adding-a-case.md")]
pub mod adding_a_case {}

#[doc = include_str!("../guide/adding-a-meta-case.md")]
pub mod adding_a_meta_case {}

#[doc = include_str!("../guide/adding-an-architecture.md")]
pub mod adding_an_architecture {}

#[doc = include_str!("../guide/adding-a-kernel.md")]
pub mod adding_a_kernel {}

#[doc = include_str!("../guide/adding-an-op-case.md")]
pub mod adding_an_op_case {}

#[cfg(feature = "engine")]
#[doc = include_str!("../guide/training.md")]
pub mod training {}
