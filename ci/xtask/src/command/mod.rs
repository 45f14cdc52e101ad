//! One file per command.

pub mod bindings;
pub mod forward;
pub mod fuzz;
pub mod gen_model;
pub mod setup;
pub mod test;
