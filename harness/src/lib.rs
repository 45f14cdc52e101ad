//! mlx-parity proves, on the machine at hand, that an MLX engine computes what the reference
//! computes. The guide starts with [`guide`].

pub mod bisect;
pub mod case;
pub mod check;
pub mod cmd;
pub mod compare;
pub mod composition;
pub mod diff;
pub mod digest;
pub mod envelope;
pub mod exit;
pub mod expect;
pub mod explain;
pub mod fingerprint;
pub mod gate;
pub mod golden;
pub mod gradcheck;
pub mod kl;
pub mod ledger;
pub mod meta;
pub mod metal;
pub mod model;
pub mod ops;
pub mod oracle;
mod pipe;
pub mod plan;
pub mod record;
pub mod report;
pub mod root;
pub mod row;
pub mod stats;
pub mod store;
pub mod summary;
pub mod support;
pub mod synthetic;
pub mod verify;
pub mod weights;
pub mod worker;

pub mod guide;
