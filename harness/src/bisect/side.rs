//! A path that can be walked again and again.

use std::{path::Path, sync::Arc, time::Duration};

use mlx_parity_tensor::safetensors::{SafetensorsError, SafetensorsFile};

use super::{
    dump::Dump,
    script::Script,
    walk::{CachesBefore, EnginePath, Walk, Walked, Watch},
};
use crate::worker::{AskError, Command, Worker, WorkerError};

/// Why a path could not be walked.
#[derive(Debug, thiserror::Error)]
pub enum SideError {
    /// It cannot be walked as asked.
    #[error("{0}")]
    Refused(String),
    /// The process that walked it ended.
    #[error("its worker crashed: {0}")]
    Died(String),
    /// No process could be started.
    #[error(transparent)]
    Start(#[from] WorkerError),
    /// What it gave cannot be read.
    #[error(transparent)]
    File(#[from] SafetensorsError),
    /// There is no place for what it gives.
    #[error("cannot make a scratch folder: {0}")]
    Scratch(#[from] std::io::Error),
}

/// A path.
pub trait Side {
    /// Runs a script from its start.
    ///
    /// # Errors
    /// Those of [`SideError`].
    fn walk(&mut self, script: &Script, watch: Option<&Watch>) -> Result<Walked, SideError>;

    /// The caches before a call, where there are any.
    ///
    /// # Errors
    /// Those of [`SideError`].
    fn caches(
        &mut self,
        script: &Script,
        before: usize,
    ) -> Result<Option<SafetensorsFile>, SideError>;

    /// Whether it computes: what is stored repeats itself.
    fn computes(&self) -> bool;
}

/// The engine in a worker process of its own.
pub struct EngineSide {
    path: EnginePath,
    worker: Worker,
    limit: Duration,
}

impl EngineSide {
    /// Starts `program worker`; `limit` bounds each run.
    ///
    /// # Errors
    /// A worker that does not start.
    pub fn start(program: &Path, path: EnginePath, limit: Duration) -> Result<Self, WorkerError> {
        Ok(Self { path, worker: Worker::start(program)?, limit })
    }

    fn ask(
        &mut self,
        script: &Script,
        watch: Option<&Watch>,
        caches: Option<CachesBefore>,
        out: &Path,
    ) -> Result<(), SideError> {
        let walk = Walk {
            engine: self.path.clone(),
            ids: script.ids().to_vec(),
            calls: script.calls().to_vec(),
            watch: watch.cloned(),
            caches,
            out: out.to_owned(),
        };
        self.worker.ask(&Command::Walk(Box::new(walk)), self.limit).map_err(|error| match error {
            AskError::Refused(message) => SideError::Refused(message),
            AskError::Died(how) => SideError::Died(how),
        })
    }
}

impl Side for EngineSide {
    fn walk(&mut self, script: &Script, watch: Option<&Watch>) -> Result<Walked, SideError> {
        let scratch = tempfile::tempdir()?;
        let out = scratch.path().join("walk.safetensors");
        self.ask(script, watch, None, &out)?;
        let file = SafetensorsFile::open(&out)?;
        Ok(Walked::of_worker(file, script.calls().len(), scratch)?)
    }

    fn caches(
        &mut self,
        script: &Script,
        before: usize,
    ) -> Result<Option<SafetensorsFile>, SideError> {
        let scratch = tempfile::tempdir()?;
        let caches = scratch.path().join("caches.safetensors");
        let asked = CachesBefore { call: before, out: caches.clone() };
        self.ask(script, None, Some(asked), &scratch.path().join("walk.safetensors"))?;
        // The map outlives the folder's name.
        Ok(Some(SafetensorsFile::open(&caches)?))
    }

    fn computes(&self) -> bool {
        true
    }
}

impl Side for Dump {
    fn walk(&mut self, script: &Script, watch: Option<&Watch>) -> Result<Walked, SideError> {
        let logits = (0..script.calls().len()).map(|call| self.logits_name(call)).collect();
        let wanted = |point: &_| watch.is_some_and(|watch| watch.wants(point));
        Ok(Walked::of(Arc::clone(self.file()), logits, wanted))
    }

    fn caches(
        &mut self,
        _script: &Script,
        _before: usize,
    ) -> Result<Option<SafetensorsFile>, SideError> {
        Ok(None)
    }

    fn computes(&self) -> bool {
        false
    }
}
