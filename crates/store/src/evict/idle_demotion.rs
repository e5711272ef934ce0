//! Entries that nobody has read for a while leave memory before it is needed, to what lies below the store.
//!
//! ```text
//! pass: headers -> since when is each segment sealed?   index -> entry idle for so long? -- lock key, take, unlink
//! ```
//! When an item was written is not known; that its segment was sealed in an earlier pass is, and everything in it is older. So the idle time
//! is counted from the first pass that has found the segment sealed, or from the last use where that is later. It is too short by
//! the time that the segment was open and one pass, never too long.

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

/// The passes over a store, one after the other. Whoever drives them keeps this.
#[derive(Default)]
pub struct IdleDemotion {
    sealed: Vec<SealedSince>,
    scan: Option<Scan<Arc<Store>>>,
}

/// Since when a segment is known to be sealed.
#[derive(Clone, Copy, Default)]
struct SealedSince {
    /// The stamp of that life of the segment; 0 if it was not sealed.
    stamp: u64,
    since_ms: u64,
}

impl IdleDemotion {
    /// Whether a pass is under way.
    pub fn is_running(&self) -> bool {
        self.scan.is_some()
    }

    /// Begins a pass, or goes on with one, for a few entries: of those that were idle for so long and that `take` takes, each leaves the
    /// memory. `take` is called with the lock of the key's buckets held: it must be quick, and must not use the store. True while the
    /// pass has more.
    ///
    /// # Errors
    /// `ScanLimit` if there are as many scans already as there can be at a time.
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

    /// Ends the pass that is under way.
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
    /// Evicts an entry that was found a moment ago, if it is still in its place and `take` has taken it.
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
        // A number may have changed since it was seen.
        let found = Found { bucket: 0, position: 0, slot: place.slot, control };
        let present = self.hit(item, &found, participant.pin());
        if !self.is_live(&item, moment) || !take(&present) {
            return;
        }
        if self.generation.load(Ordering::Acquire) != generation || !self.is_live(&item, moment) {
            // As in `demote`: the flush may have forgotten all copies before this one was made.
            self.lower_tier.get().map(|tier| tier.remove(seen.key()));
        }
        let unlinked = self.footprint(place.slot);
        let notice = self.prepare_removal_notice(participant, place.slot, control);
        pair.remove(&place);
        self.account_unlinked(&unlinked);
        drop(pair);
        self.retire_body(&unlinked);
        self.counters.unlink(participant.number());
        self.counters.add(participant.number(), Counter::Evicted, 1);
        if let Some(notice) = notice {
            self.notify_removed(notice, Cause::Memory, moment);
        }
    }
}
