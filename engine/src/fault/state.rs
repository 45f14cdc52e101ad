//! Faults of what a decoder keeps from one call to the next.

use super::{Fault, is, planted as place};
use crate::cache::KvCache;
use crate::error::EngineError;

/// The position that [`Fault::CacheSlot`] spoils.
const BAD_SLOT: i32 = 3;

/// Fresh caches under a fault.
pub(crate) fn planted(fault: Option<Fault>, mut caches: Vec<KvCache>) -> Vec<KvCache> {
    place::run_starts(fault);
    if is(fault, Fault::WindowOneNarrow) {
        caches.iter_mut().for_each(KvCache::narrow);
    }
    caches
}

/// Whether a trim that must be refused is taken under a fault.
pub(crate) fn trims_anything(fault: Option<Fault>) -> bool {
    is(fault, Fault::TrimPastWindow)
}

/// A trim of every layer under a fault.
pub(crate) fn trim(fault: Option<Fault>, caches: &mut [KvCache], count: i32) {
    let count = if is(fault, Fault::TrimOneShort) { (count - 1).max(0) } else { count };
    let layers = if is(fault, Fault::TrimFirstLayerOnly) { 1 } else { caches.len() };
    for cache in caches.iter_mut().take(layers) {
        cache.trim(count);
    }
    if is(fault, Fault::SharedOffset) {
        // The first two layers have one counter, which each of them takes back.
        for cache in caches.iter_mut().take(2) {
            cache.trim(count);
        }
    }
}

/// Caches that a call leaves behind under a fault: what they were, `count` positions on.
pub(crate) fn stale(fault: Option<Fault>, before: &[KvCache], count: i32) -> Option<Vec<KvCache>> {
    if !is(fault, Fault::StaleSlot) {
        return None;
    }
    let mut stale = before.to_vec();
    for cache in &mut stale {
        cache.skip(count);
    }
    Some(stale)
}

/// Caches after a call over `rows` sequences and `count` positions, under a fault.
pub(crate) fn called(
    fault: Option<Fault>,
    caches: &mut [KvCache],
    [rows, count]: [usize; 2],
) -> Result<(), EngineError> {
    if is(fault, Fault::UnusedSlotCounted) && count > 1 {
        for cache in caches.iter_mut() {
            cache.skip(1);
        }
    }
    if is(fault, Fault::CacheSlot)
        && let Some(cache) = caches.get_mut(1)
    {
        cache.repeat_value(BAD_SLOT, count as i32)?;
    }
    match caches {
        [first, ..] if is(fault, Fault::RowsSwapped) && rows > 1 => first.reverse(),
        _ => Ok(()),
    }
}

/// Caches after a call that was refused, under a fault.
pub(crate) fn refused(fault: Option<Fault>, caches: &mut [KvCache]) {
    if is(fault, Fault::RefusedCallCounted) {
        for cache in caches.iter_mut() {
            cache.skip(1);
        }
    }
}

/// Caches from a file in the place of those there were `before`, under a fault.
pub(crate) fn loaded(
    fault: Option<Fault>,
    mut caches: Vec<KvCache>,
    before: &[KvCache],
) -> Result<Vec<KvCache>, EngineError> {
    if is(fault, Fault::LayerNotLoaded)
        && let (Some(last), Some(before)) = (caches.last_mut(), before.last())
    {
        *last = before.clone();
    }
    for cache in &mut caches {
        match fault {
            _ if !cfg!(debug_assertions) => {}
            Some(Fault::OffsetNotRestored) => cache.skip(-1),
            Some(Fault::RingIndexLost) => cache.turn(),
            Some(Fault::StateNotRestored) => cache.blank()?,
            Some(Fault::ScaleOfAnotherGroup) => cache.shift_scales()?,
            _ => {}
        }
    }
    Ok(caches)
}

/// The tokens that a rollback takes back under a fault, of those it was asked to.
pub(crate) fn taken_back(fault: Option<Fault>, count: usize) -> usize {
    if is(fault, Fault::RollbackOneShort) { count.saturating_sub(1) } else { count }
}

/// Whether what a failed step wrote stays under a fault.
pub(crate) fn keeps_failed(fault: Option<Fault>) -> bool {
    is(fault, Fault::FailedStepKept)
}

/// Caches of a batch that another has joined, under a fault.
pub(crate) fn joined(fault: Option<Fault>, caches: &mut [KvCache]) {
    if is(fault, Fault::PaddingCounted) {
        caches.iter_mut().for_each(KvCache::forget_padding);
    }
}
