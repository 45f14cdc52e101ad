//! Nothing to call; see the manifest.
