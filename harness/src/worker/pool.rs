//! Several workers over one list of cases.

use std::{
    path::PathBuf,
    sync::{
        Mutex,
        mpsc::{Sender, channel},
    },
    thread,
    time::Duration,
};

use super::{Ended, Job, Worker};
use crate::{
    check,
    row::{NotRunKind, Outcome, Row},
};

/// How to run the workers.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// The binary that has the `worker` command.
    pub program: PathBuf,
    /// Worker processes at once.
    pub workers: usize,
    /// Limit for one case.
    pub limit: Duration,
}

/// Runs every job and gives each row to `emit`, in the order they come. A job is one case; its rows
/// are complete whatever happens to the worker.
pub fn run(jobs: &[Job], options: &PoolOptions, emit: impl FnMut(Row)) {
    let each: Vec<&[Job]> = jobs.chunks(1).collect();
    run_groups(&each, options, emit);
}

/// The same; jobs of a group share what a worker remembers, and are run by one, in their order.
pub fn run_groups(groups: &[&[Job]], options: &PoolOptions, mut emit: impl FnMut(Row)) {
    let queue = Mutex::new(groups.iter());
    let (rows, incoming) = channel();
    thread::scope(|scope| {
        for _ in 0..options.workers.min(groups.len()) {
            let (queue, rows) = (&queue, rows.clone());
            scope.spawn(move || slot(queue, options, &rows));
        }
        drop(rows);
        for row in incoming {
            emit(row);
        }
    });
}

/// One slot: takes groups of cases until none is left, and starts a new worker after each death.
fn slot(queue: &Mutex<std::slice::Iter<'_, &[Job]>>, options: &PoolOptions, rows: &Sender<Row>) {
    let mut worker = None;
    loop {
        // A slot that panicked holds no case, so the queue is as good as before.
        let next = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
        let Some(group) = next else { return };
        for job in *group {
            run_one(&mut worker, job, options, &mut |row| {
                // The receiver outlives the scope.
                let _ = rows.send(row);
            });
        }
    }
}

fn run_one(
    worker: &mut Option<Worker>,
    job: &Job,
    options: &PoolOptions,
    emit: &mut dyn FnMut(Row),
) {
    let mut missing = job.case.checks();
    let ended = match ensure(worker, options) {
        Ok(worker) => worker.run(job, options.limit, |row| {
            missing.retain(|id| *id != row.id);
            emit(row);
        }),
        Err(how) => Ended::Died { how },
    };
    let how = match ended {
        Ended::Complete if missing.is_empty() => return,
        Ended::Complete => "it ended the case without all rows".to_owned(),
        Ended::Died { how } => {
            *worker = None;
            how
        }
    };
    let mut missing = missing.into_iter();
    if let Some(id) = missing.next() {
        emit(check::row(job, id, Outcome::Crashed { how }));
    }
    for id in missing {
        let message = "the worker crashed before this check".to_owned();
        emit(check::row(job, id, Outcome::NotRun { kind: NotRunKind::Interrupted, message }));
    }
}

fn ensure<'w>(
    worker: &'w mut Option<Worker>,
    options: &PoolOptions,
) -> Result<&'w mut Worker, String> {
    let running = match worker.take() {
        Some(running) => running,
        None => Worker::start(&options.program).map_err(|error| error.to_string())?,
    };
    Ok(worker.insert(running))
}
