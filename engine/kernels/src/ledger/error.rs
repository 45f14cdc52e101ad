//! Why a ledger is refused.

/// A ledger that cannot be read, or must not be believed. Whoever read the file adds its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// Not TOML, or not of this form: an unknown field, an unknown word.
    #[error("{0}")]
    Format(String),
    /// Written by another version.
    #[error("ledger schema {found}, this version reads {}", super::LEDGER_SCHEMA)]
    Schema {
        /// The version of the file.
        found: u32,
    },
    /// A cell is decided twice.
    #[error("two entries of {cell}; keep one, or gate it again")]
    Twice {
        /// The cell.
        cell: String,
    },
    /// The decision is not the one that its evidence gives.
    #[error(
        "{cell}: decided {found}, but its evidence says {wanted}; decisions are made by `mlx-parity gate`, not by hand"
    )]
    Unfounded {
        /// The cell.
        cell: String,
        /// The decision of the file.
        found: &'static str,
        /// What follows from the evidence.
        wanted: &'static str,
    },
    /// The entry says something else than what was sealed.
    #[error("{cell}: the entry was changed after the gate wrote it; gate it again")]
    Seal {
        /// The cell.
        cell: String,
    },
    /// A backend that only emulates is promoted.
    #[error("{cell}: emulation can reject a kernel, never promote it")]
    Emulated {
        /// The cell.
        cell: String,
    },
}
