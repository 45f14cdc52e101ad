//! Keeping a store within its budget.

use std::{fs, io, path::Path};

use super::{Entry, State, Store, StoreError};

/// See [`Store::collect`].
pub(super) fn collect(store: &Store) -> Result<Vec<Entry>, StoreError> {
    let (partial, whole): (Vec<_>, Vec<_>) =
        store.entries()?.into_iter().partition(|entry| entry.state == State::Partial);
    sweep(store.dir())?;
    let mut removed = Vec::new();
    for entry in partial {
        removed.extend(removed_if_idle(store, entry)?);
    }
    let mut total = whole.iter().map(|entry| entry.bytes).sum::<u64>();
    for entry in whole {
        if total <= store.budget() {
            break;
        }
        if let Some(entry) = removed_if_idle(store, entry)? {
            total -= entry.bytes;
            removed.push(entry);
        }
    }
    Ok(removed)
}

/// Removes idle entries, least recently used first, until `more` bytes fit beside the rest. `writing` names the entry
/// that they are for.
///
/// # Errors
/// [`StoreError::OverBudget`] where what is in use leaves too little.
pub(super) fn make_room(store: &Store, writing: &str, more: u64) -> Result<(), StoreError> {
    let entries = store.entries()?;
    let mut total = more + entries.iter().map(|entry| entry.bytes).sum::<u64>();
    for entry in entries.into_iter().filter(|entry| entry.digest != writing) {
        if total <= store.budget() {
            break;
        }
        if let Some(entry) = removed_if_idle(store, entry)? {
            total -= entry.bytes;
        }
    }
    if total <= store.budget() {
        return Ok(());
    }
    Err(StoreError::OverBudget {
        path: store.whole(writing),
        budget: store.budget(),
        wanted: total,
    })
}

fn removed_if_idle(store: &Store, entry: Entry) -> Result<Option<Entry>, StoreError> {
    match store.remove(&entry) {
        Ok(()) => Ok(Some(entry)),
        Err(StoreError::Busy { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a folder of the store; one that is not there is no error.
///
/// It loses its name first, so that a removal cut short leaves nothing that looks like an entry.
pub(super) fn remove_folder(path: &Path) -> Result<(), StoreError> {
    let doomed = path.with_extension("removed");
    for step in
        [fs::remove_dir_all(&doomed), fs::rename(path, &doomed), fs::remove_dir_all(&doomed)]
    {
        match step {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::io("remove", path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Ends removals that were cut short.
fn sweep(dir: &Path) -> Result<(), StoreError> {
    for item in fs::read_dir(dir).map_err(StoreError::io("list", dir))? {
        let path = item.map_err(StoreError::io("list", dir))?.path();
        if path.extension().is_some_and(|extension| extension == "removed") {
            remove_folder(&path)?;
        }
    }
    Ok(())
}
