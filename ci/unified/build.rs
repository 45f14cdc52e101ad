//! Nothing to run; see the manifest.
fn main() {}
