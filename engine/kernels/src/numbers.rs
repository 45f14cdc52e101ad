//! Functions of floats, in lanes.

mod exp;

pub(crate) use exp::exp;
