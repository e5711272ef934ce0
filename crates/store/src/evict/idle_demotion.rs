//! Demotion of idle items: entries that were not read for a time move to the lower tier before memory is needed.
//!
//! ```text
//! pass: headers -> since when is each segment sealed?   index -> entry idle for so long? -- lock key, take, unlink
//! ```
//! The write time of an item is not stored. But everything in a segment is older than its sealing, and a pass notes
//! which segments are sealed. So the idle time counts from the first pass that found the segment sealed, or from the
//! last use if that is later. It is short by up to one pass and the time that the segment was open; it is never too
//! long.

use super::removal::Cause;
use crate::epoch::Participant;
use crate::error::Error;
use crate::index::Found;
use crate::ops::{Item, Scan};
use crate::segment::State;
use crate::stats::Counter;
use crate::store::Store;
use crate::sync::Ordering;
use std::sync::Arc;

/// The passes over a store, one after the other. Kept by the caller.
#[derive(Default)]
pub struct IdleDemotion {
    sealed: Vec<SealedSince>,
    scan: Option<Scan<Arc<Store>>>,
}

/// The time at which a segment was first seen sealed.
#[derive(Clone, Copy, Default)]
struct SealedSince {
    /// The stamp of the segment at that time; 0 if it was not sealed.
    stamp: u64,
    since_ms: u64,
}

impl IdleDemotion {
    /// Whether a pass is in progress.
    pub fn is_running(&self) -> bool {
        self.scan.is_some()
    }

    /// Starts or continues a pass, for a few entries. Each entry that was idle for `idle_ms` and that `take` accepts
    /// leaves the memory. `take` is called under the lock of the key's buckets: it must be quick, and must not use the
    /// store. True while the pass has more.
    ///
    /// # Errors
    /// `ScanLimit` if the maximum number of scans is running.
    pub fn advance(
        &mut self,
        store: &Arc<Store>,
        participant: &Participant,
        (now_ms, idle_ms): (u64, u64),
        mut take: impl FnMut(&Item<'_>) -> bool,
    ) -> Result<bool, Error> {
        if self.scan.is_none() {
            self.note_sealed(store, now_ms);
            self.scan = Some(store.scan()?);
        }
        let Self { sealed, scan: Some(scan) } = self else { unreachable!("a pass is running") };
        let has_more = scan.advance(participant, now_ms, |scanned| {
            let segment = scanned.item.item_at().at.segment();
            let stamp = store.segments.header(segment).stamp.load(Ordering::Relaxed);
            let known = sealed.get(segment.index()).filter(|known| known.stamp == stamp && stamp != 0);
            let idle = known.map(|known| now_ms.saturating_sub(known.since_ms.max(scanned.active_ms)));
            if idle.is_some_and(|idle| idle >= idle_ms) {
                store.demote_idle(participant, &scanned.item, now_ms, &mut take);
            }
        });
        if !has_more {
            self.scan = None;
        }
        Ok(has_more)
    }

    /// Ends the pass in progress.
    pub fn stop(&mut self) {
        *self = Self::default();
    }

    fn note_sealed(&mut self, store: &Store, now_ms: u64) {
        for segment in store.segments.ids() {
            let header = store.segments.header(segment);
            let is_sealed = header.state() == State::Sealed;
            let stamp = if is_sealed { header.stamp.load(Ordering::Relaxed) } else { 0 };
            if self.sealed.len() <= segment.index() {
                self.sealed.resize(segment.index() + 1, SealedSince::default());
            }
            let known = &mut self.sealed[segment.index()];
            if known.stamp != stamp {
                *known = SealedSince { stamp, since_ms: now_ms };
            }
        }
    }
}

impl Store {
    /// Evicts an idle entry, if it is unchanged and `take` accepts it.
    fn demote_idle(
        &self,
        participant: &Participant,
        seen: &Item<'_>,
        now_ms: u64,
        take: &mut impl FnMut(&Item<'_>) -> bool,
    ) {
        let moment = self.moment(now_ms);
        let item = seen.item_at();
        let mut pair = self.index.lock_pair(self.hash(seen.key()));
        let Some(place) = pair.find(|slot| slot.location() == item.at) else { return };
        // Acquire pairs with the Release in `advance_generation`.
        let generation = self.generation.load(Ordering::Acquire);
        let control = pair.control(Some(&place));
        // The number of a numeric item may have changed since it was seen.
        let found = Found { bucket: 0, position: 0, slot: place.slot, control };
        let present = self.hit(item, &found, participant.pin());
        if !self.is_live(&item, moment) || !take(&present) {
            return;
        }
        let is_demoted = self.generation.load(Ordering::Acquire) == generation && self.is_live(&item, moment);
        if !is_demoted {
            // As in `demote`: the flush may have invalidated all copies before this one was made.
            self.lower_tier.get().map(|tier| tier.remove(seen.key()));
        }
        let unlinked = self.footprint(place.slot);
        let notice = self.prepare_removal_notice(participant, place.slot, control, is_demoted);
        pair.remove(&place);
        self.account_unlinked(&unlinked);
        drop(pair);
        self.retire_body(&unlinked);
        self.counters.unlink(participant.number());
        let counter = if is_demoted { Counter::Demoted } else { Counter::Evicted };
        self.counters.add(participant.number(), counter, 1);
        if let Some(notice) = notice {
            self.notify_removed(notice, Cause::Memory, moment);
        }
        self.settle_lower_tier(moment);
    }
}
