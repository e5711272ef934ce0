//! Regions are emptied and become free.
//!
//! ```text
//! choose -> Dying -> copies of what is kept -> dead on the device -> Emptied -> index swept -> Free
//! ```
//! Nothing is read but what is kept (`keep`). The index is swept once for many regions, page by page: entries of other
//! regions cost a look each, so regions are reclaimed by the sixty-fourth of the log.
//!
//! That a region is dead is written before its objects leave the index. After a crash the footers that are found are
//! thus those of regions whose objects were all known to the index, or had been removed or replaced before its eyes.
//! Expired regions need no such mark: what is in them expires again. Nor does anything where nothing is recovered.

use super::LargeLog;
use super::log::MIN_FREE_REGIONS;
use super::options::Reinsertion;
use super::reclaim_choice::{ReclaimCause, ReclaimNeed, RegionCandidate, choose};
use super::regions::RegionState;
use crate::device::{self, BLOCK, Buffer};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// So many sweeps of the index for one turn of the log.
const SWEEPS: usize = 64;
/// Where inserts reclaim nothing, so much of the log is kept free for what comes before the next upkeep,
const SPARES: usize = 32;
/// but no more than so many regions for each buffer: of a large log, a 32nd is far more than is written between two
/// upkeeps.
const SPARES_PER_BUFFER: usize = 2;
const BATCH_LIMIT: usize = 1024;
/// With copies to make, which take free regions before there are more.
const BATCH_LIMIT_WITH_COPIES: usize = 64;
/// Of the free regions copies leave one to inserts: so many are kept free for both,
const SPARES_WITH_COPIES: usize = 3;
/// but at most such a part of the log.
const SHARE_OF_SPARES: usize = 16;

/// A log with so small a share of free regions is full: the upkeep keeps half of that free.
const SHARE_FREE: usize = 16;

impl LargeLog {
    /// To be called every second or so, from a thread that may wait for the device: writes buffers that are old or were
    /// refused, drops regions that are expired, flushed or failed, and reclaims ahead of need. `now` is in seconds
    /// since 1970.
    pub fn maintain(self: &Arc<Self>, now: u32) {
        let now = self.observe_time(now);
        self.seal_old(now);
        self.submit_waiting();
        let regions = self.log_regions().len();
        let min = if self.makes_copies() { SPARES_WITH_COPIES.min(regions / SHARE_OF_SPARES) } else { 0 };
        let max = SPARES_PER_BUFFER * self.options.buffers;
        let spare = if self.may_reclaim_for_inserts() { 0 } else { (regions / SPARES).min(max).max(min) };
        let (next_sequence, turn) = (self.free_lists().next_sequence, self.log_regions().len() as u64);
        let max_object_bytes =
            self.max_object_bytes.lock().unwrap().noted(self.wanted.swap(0, Relaxed), next_sequence, turn);
        let is_full = self.memory_bound.is_near(self.index.bytes());
        let more = if is_full { self.free_lists().free.len() + 1 } else { 0 };
        self.reclaim(now, self.batch().max(spare + max_object_bytes).max(more));
        self.space.store(max_object_bytes.min(self.free_lists().free.len()), Relaxed);
    }

    /// Reclaiming waits for the device.
    pub(super) fn may_reclaim_for_inserts(&self) -> bool {
        !self.options.max_buffer_wait.is_zero()
    }

    /// Whether any of what goes may be written again.
    pub(super) fn makes_copies(&self) -> bool {
        self.options.reinsertion != Reinsertion::Never
    }

    /// Has all that is in buffers written, as far as the device takes it.
    pub fn seal_all(self: &Arc<Self>, now: u32) {
        let now = self.observe_time(now);
        for expiry_group in &self.expiry_groups {
            let mut address = expiry_group.lock().unwrap();
            if let Some(open) = address.take() {
                self.seal(open, now);
            }
        }
    }

    /// All objects are gone, in effect for every lookup that begins later and for those under way. To be logged as a
    /// removal of everything below [`LargeLog::next_order`].
    pub fn flush(&self) {
        let floor = {
            let free_lists = self.free_lists();
            self.floor.store(free_lists.next_sequence, Release);
            free_lists.next_sequence
        };
        self.reinsertion_value.clear_debt();
        for expiry_group in &self.expiry_groups {
            let mut address = expiry_group.lock().unwrap();
            if let Some(open) = address.take_if(|open| self.regions[open.region as usize].sequence() < floor) {
                self.abandon(open);
            }
        }
    }

    /// How many regions are reclaimed at once, and kept free.
    fn batch(&self) -> usize {
        let limit = if self.makes_copies() { BATCH_LIMIT_WITH_COPIES } else { BATCH_LIMIT };
        (self.log_regions().len() / SWEEPS).clamp(1, limit)
    }

    /// Frees what holds nothing, and more if fewer than `wanted` regions are free then. False if none is free after
    /// all.
    pub(super) fn reclaim(self: &Arc<Self>, now: u32, wanted: usize) -> bool {
        let _one = self.reclaiming.lock().unwrap();
        // Acquire: with `checkpoint`.
        if self.is_closed.load(Acquire) {
            return false;
        }
        self.reclaim_locked(now, wanted);
        !self.free_lists().free.is_empty()
    }

    /// The same, for who holds `reclaiming`.
    pub(super) fn reclaim_locked(self: &Arc<Self>, now: u32, wanted: usize) {
        let free = self.free_lists().free.len();
        let missing = if free >= wanted { 0 } else { self.batch().max(wanted - free) };
        let floor = self.floor.load(Acquire);
        let need = ReclaimNeed { now, floor, wanted: free + missing, free, reclaim: self.options.reclaim };
        let candidates = self.regions.iter().enumerate().map(|(number, region)| RegionCandidate {
            region: number as u32,
            state: region.state(),
            summary: region.summary(),
            last_hit: region.last_hit(),
        });
        self.reclaim_chosen(choose(candidates, need), now);
    }

    fn reclaim_chosen(self: &Arc<Self>, mut chosen: Vec<(u32, ReclaimCause)>, now: u32) {
        if chosen.is_empty() {
            return;
        }
        chosen.retain(|&(region, cause)| self.claim(region, cause));
        self.reinsert_some(&chosen, now);
        let buried = chosen.into_iter().filter_map(|(region, cause)| Some((region, self.mark_dead(region, cause)?)));
        let buried: Vec<_> = buried.collect();
        self.sweep(&buried);
        self.free(&buried);
    }

    /// Reclaims a region that is mostly of this pool, the one whose last hit is longest ago: what the pool has on flash
    /// turns over, and others lose little. Waits for the device.
    pub fn reclaim_of_pool(self: &Arc<Self>, pool: u16, now: u32) {
        let _one = self.reclaiming.lock().unwrap();
        // Acquire: with `checkpoint`.
        if self.is_closed.load(Acquire) {
            return;
        }
        let is_mostly_of_pool = |region: u32| {
            let pools = self.region_pools[region as usize].lock().expect("nothing panics under this lock");
            let bytes = |only: bool| -> u64 {
                pools.iter().filter(|(number, _)| !only || *number == pool).map(|(_, bytes)| u64::from(*bytes)).sum()
            };
            2 * bytes(true) > bytes(false)
        };
        let regions = (0..self.regions.len() as u32).filter(|&region| {
            self.regions[region as usize].state() == RegionState::Sealed && is_mostly_of_pool(region)
        });
        let oldest = regions.min_by_key(|&region| {
            let region = &self.regions[region as usize];
            (region.last_hit(), region.sequence())
        });
        self.reclaim_chosen(oldest.map(|region| (region, ReclaimCause::Space)).into_iter().collect(), now);
    }

    /// Whether what comes takes the place of other objects.
    pub fn is_full(&self) -> bool {
        self.free_lists().free.len() <= (self.log_regions().len() / SHARE_FREE).max(MIN_FREE_REGIONS)
    }

    /// False if the region failed since it was chosen.
    fn claim(&self, region: u32, cause: ReclaimCause) -> bool {
        let _books = self.free_lists();
        let region = &self.regions[region as usize];
        match cause {
            ReclaimCause::Failed => true,
            _ if region.state() == RegionState::Emptied => true,
            _ if region.state() == RegionState::Sealed => {
                region.set_state(RegionState::Dying);
                true
            }
            _ => false,
        }
    }

    /// Makes sure that a restart does not find the region, and says why it goes: it may have failed meanwhile. `None`
    /// if that could not be done: then the index keeps what it knows of it, so that removals are still noticed.
    fn mark_dead(&self, number: u32, cause: ReclaimCause) -> Option<ReclaimCause> {
        let region = &self.regions[number as usize];
        let is_found =
            self.options.recovers && region.state() != RegionState::Emptied && cause != ReclaimCause::Expired;
        let mut is_dead = true;
        if is_found {
            let offset = self.geometry.offset(number);
            is_dead = device::write(&*self.device, offset, Buffer::zeroed(BLOCK)).is_ok();
            let bytes = if is_dead { BLOCK as u64 } else { 0 };
            self.counters.written_death_bytes.add(bytes);
            self.counters.write_errors.add(u64::from(!is_dead));
        }
        let _books = self.free_lists();
        let has_failed = region.state() == RegionState::Failed;
        if is_dead {
            self.set_unclean(number, false);
            region.set_state(RegionState::Emptied);
            return Some(if has_failed { ReclaimCause::Failed } else { cause });
        }
        region.set_state(RegionState::Lost);
        self.counters.regions_failed.one();
        // Of what it holds there may be copies, which the index knows instead.
        self.set_unclean(number, true);
        None
    }

    /// Takes everything out of the index that lies in these regions.
    fn sweep(&self, chosen: &[(u32, ReclaimCause)]) {
        let mut causes = vec![None; self.regions.len()];
        chosen.iter().for_each(|&(region, cause)| causes[region as usize] = Some(cause));
        let mut counts = [0; 4];
        self.index.retain(|_, address| {
            let Some(cause) = causes[self.geometry.split(address.unit()).0 as usize] else { return true };
            counts[cause as usize] += 1;
            false
        });
        self.counters.objects_flushed.add(counts[ReclaimCause::Flushed as usize]);
        self.counters.objects_expired.add(counts[ReclaimCause::Expired as usize]);
        self.counters.objects_failed.add(counts[ReclaimCause::Failed as usize]);
        self.counters.objects_evicted.add(counts[ReclaimCause::Space as usize]);
    }

    fn free(&self, chosen: &[(u32, ReclaimCause)]) {
        for &(region, cause) in chosen {
            self.reclaim_bytes(region);
            match cause {
                ReclaimCause::Flushed => &self.counters.regions_flushed,
                ReclaimCause::Expired => &self.counters.regions_expired,
                ReclaimCause::Failed => &self.counters.regions_failed,
                ReclaimCause::Space => &self.counters.regions_evicted,
            }
            .one();
            let has_failed = cause == ReclaimCause::Failed;
            if self.options.discard && !has_failed {
                // But for the mark of death: a drive may give back what was there before.
                let (offset, bytes) = (self.geometry.offset(region), self.geometry.region_bytes as u64);
                let result = self.device.discard(offset + BLOCK as u64, bytes - BLOCK as u64);
                self.counters.discard_errors.add(u64::from(result.is_err()));
            }
            let mut free_lists = self.free_lists();
            if has_failed {
                self.regions[region as usize].set_state(RegionState::Retired);
            } else {
                self.regions[region as usize].set_state(RegionState::Free);
                free_lists.set_free(region);
            }
        }
    }
}
