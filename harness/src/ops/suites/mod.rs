//! One file for each op or tight family.

mod heavy;

use mlx_parity_oracles::ops::Op;

use super::Suite;

pub(super) fn suite(op: Op) -> Option<&'static dyn Suite> {
    heavy::suite(op)
}
