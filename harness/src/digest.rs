//! SHA-256 digests, written `sha256:<hex>` everywhere.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Digest of a byte string.
pub fn of_bytes(bytes: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(bytes) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
