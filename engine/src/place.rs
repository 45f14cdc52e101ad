//! Where a module stands.

/// A module's path in the checkpoint, and its name among the taps of its layer.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    path: String,
    tap: String,
}

impl Place {
    /// The root of a layer, or of the model, which has no tap name of its own.
    pub(crate) fn root(path: impl Into<String>) -> Self {
        Self { path: path.into(), tap: String::new() }
    }

    /// A module within this one. Taps leave `_proj` out, as the oracle's do.
    pub(crate) fn join(&self, name: &str) -> Self {
        let spoken = name.strip_suffix("_proj").unwrap_or(name);
        Self { path: format!("{}.{name}", self.path), tap: self.tap(spoken) }
    }

    /// The path in the checkpoint.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The tap name of something within this module that is no module itself.
    pub(crate) fn tap(&self, name: &str) -> String {
        match self.tap.as_str() {
            "" => name.to_owned(),
            own => format!("{own}.{name}"),
        }
    }

    /// The module's own tap name.
    pub(crate) fn own_tap(&self) -> &str {
        &self.tap
    }
}
