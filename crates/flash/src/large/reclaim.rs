//! Reclaim: regions are emptied and become free.
//!
//! ```text
//! choose -> Dying -> copies of what is kept -> dead on the device -> Emptied -> index swept -> Free
//! ```
//! Only reinserted objects are read (`reinsert`). The index is swept once for many regions, page by page. The sweep
//! also checks the entries of all other regions, so a reclaim takes a sixty-fourth of the log.
//!
//! The death mark of a region is written before its objects leave the index. So the footers found after a crash are of
//! regions whose objects all were in the index, or were removed or replaced while they were. Expired regions need no
//! mark: their objects are expired after a restart, too. No region needs one if nothing is recovered.

use super::LargeLog;
use super::log::MIN_FREE_REGIONS;
use super::options::Reinsertion;
use super::reclaim_choice::{ReclaimCause, ReclaimNeed, RegionCandidate, choose};
use super::regions::RegionState;
use crate::device::{self, BLOCK, Buffer};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Number of sweeps of the index for one turn of the log.
const SWEEPS: usize = 64;
/// If inserts never reclaim, one part in this many of the log is kept free for inserts before the next maintenance,
const SPARES: usize = 32;
/// but at most this number of regions for each buffer: a 32nd of a large log is far more than is written between two
/// calls.
const SPARES_PER_BUFFER: usize = 2;
const BATCH_LIMIT: usize = 1024;
/// Limit of a batch if copies are made: they take free regions before the reclaim frees any.
const BATCH_LIMIT_WITH_COPIES: usize = 64;
/// Free regions kept for copies and inserts together, as copies leave one region to inserts,
const SPARES_WITH_COPIES: usize = 3;
/// but at most one part in this many of the log.
const SHARE_OF_SPARES: usize = 16;
/// Free regions kept beside several pools, as the shares of pools need copies of others' objects.
const SPARES_FOR_SHARES: usize = 2;

/// The unit for the fraction of a region that a pool has: this is a whole region.
const WHOLE: u64 = 256;
/// A region of which a pool above its share has a smaller fraction costs the pool more refused bytes, in proportion: a
/// pool with a little of each region writes less of others again than it offers.
const MIN_FRACTION: u64 = WHOLE / 8;

/// A log with at most one part in this many of its regions free is full. Maintenance keeps half of that free.
const SHARE_FREE: usize = 16;

impl LargeLog {
    /// Maintains the log. Call it about every second, from a thread that may wait for the device. Writes buffers that
    /// are old or were refused, drops regions that are expired, flushed or failed, and reclaims regions in advance.
    /// `now` is in seconds since 1970.
    pub fn maintain(self: &Arc<Self>, now: u32) {
        let now = self.observe_time(now);
        self.seal_old(now);
        self.submit_waiting();
        let regions = self.log_regions().len();
        let (next_sequence, turn) = (self.free_lists().next_sequence, regions as u64);
        let max_object_bytes =
            self.max_object_bytes.lock().unwrap().noted(self.wanted.swap(0, Relaxed), next_sequence, turn);
        let is_full = self.memory_bound.is_near(self.index.bytes());
        let more = if is_full { self.free_lists().free.len() + 1 } else { 0 };
        self.reclaim(now, self.free_regions_kept(regions, max_object_bytes).max(more));
        self.space.store(max_object_bytes.min(self.free_lists().free.len()), Relaxed);
    }

    /// Whether inserts may reclaim, which waits for the device.
    pub(super) fn may_reclaim_for_inserts(&self) -> bool {
        !self.options.max_buffer_wait.is_zero()
    }

    /// Whether reclaim may reinsert objects.
    pub(super) fn makes_copies(&self) -> bool {
        self.options.reinsertion != Reinsertion::Never
    }

    /// Seals all open regions and submits their writes, as far as the device's queue has space.
    pub fn seal_all(self: &Arc<Self>, now: u32) {
        let now = self.observe_time(now);
        for expiry_group in &self.expiry_groups {
            let mut address = expiry_group.lock().unwrap();
            if let Some(open) = address.take() {
                self.seal(open, now);
            }
        }
    }

    /// Removes all objects for every lookup that starts later or is in progress. The caller logs a removal of all
    /// orders lower than [`LargeLog::next_order`].
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

    /// The free regions that maintenance keeps in a log of this length, with those for a long object.
    pub(super) fn free_regions_kept(&self, regions: usize, object_regions: usize) -> usize {
        let min_for_copies = if self.makes_copies() { SPARES_WITH_COPIES.min(regions / SHARE_OF_SPARES) } else { 0 };
        let min = min_for_copies.max(if self.pools.are_several() { SPARES_FOR_SHARES } else { 0 });
        let max = SPARES_PER_BUFFER * self.options.buffers;
        let spare = if self.may_reclaim_for_inserts() { 0 } else { (regions / SPARES).min(max).max(min) };
        self.batch(regions).max(spare + object_regions)
    }

    /// Number of regions that are reclaimed at once, and kept free.
    fn batch(&self, regions: usize) -> usize {
        let limit = if self.makes_copies() { BATCH_LIMIT_WITH_COPIES } else { BATCH_LIMIT };
        (regions / SWEEPS).clamp(1, limit)
    }

    /// Frees regions without live objects, and more if fewer than `wanted` are free then. False if none is free
    /// afterwards.
    pub(super) fn reclaim(self: &Arc<Self>, now: u32, wanted: usize) -> bool {
        let _one = self.reclaiming.lock().unwrap();
        // Acquire: with `checkpoint`.
        if self.is_closed.load(Acquire) {
            return false;
        }
        self.reclaim_locked(now, wanted);
        !self.free_lists().free.is_empty()
    }

    /// As [`LargeLog::reclaim`], for a caller that holds `reclaiming`.
    pub(super) fn reclaim_locked(self: &Arc<Self>, now: u32, wanted: usize) {
        let free = self.free_lists().free.len();
        let missing = if free >= wanted { 0 } else { self.batch(self.log_regions().len()).max(wanted - free) };
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
        self.reclaim_claimed(&chosen);
    }

    fn reclaim_claimed(self: &Arc<Self>, claimed: &[(u32, ReclaimCause)]) {
        let buried = claimed.iter().filter_map(|&(region, cause)| Some((region, self.mark_dead(region, cause)?)));
        let buried: Vec<_> = buried.collect();
        self.sweep(&buried);
        self.free(&buried);
    }

    /// Reclaims a region for a pool above its share: the least recently hit one of which at least half belongs to the
    /// pool, otherwise the one of which most does. What ended incarnations have counts as its own. The objects of other
    /// pools in it are reinserted; if one finds no space, the region stays. Waits for the device. Returns the refused
    /// bytes for which that is done.
    pub fn reclaim_of_pool(self: &Arc<Self>, pool: u16, now: u32) -> u64 {
        let region_bytes = self.region_bytes();
        let _one = self.reclaiming.lock().unwrap();
        // Acquire: with `checkpoint`.
        if self.is_closed.load(Acquire) {
            return region_bytes;
        }
        let found = self.region_of_pool(pool).filter(|&(number, _)| self.claim(number, ReclaimCause::Space));
        let Some((number, fraction)) = found else { return region_bytes };
        let kept = self.reinsert_others(number, pool, now);
        if kept.is_incomplete {
            self.put_back(number, kept.copies);
            return region_bytes;
        }
        self.reclaim_claimed(&[(number, ReclaimCause::Space)]);
        region_bytes * MIN_FRACTION / fraction.min(MIN_FRACTION)
    }

    /// The region to reclaim for a pool, and the pool's fraction of it in units of [`WHOLE`].
    fn region_of_pool(&self, pool: u16) -> Option<(u32, u64)> {
        let live = self.pools.numbers();
        let ranked = (0..self.regions.len() as u32).filter_map(|number| {
            let region = &self.regions[number as usize];
            let fraction =
                if region.state() == RegionState::Sealed { self.fraction_of_pool(number, pool, &live) } else { 0 };
            let rank = ((WHOLE / 2).saturating_sub(fraction), region.last_hit(), region.sequence());
            (fraction > 0).then_some((rank, number, fraction))
        });
        ranked.min().map(|(_, number, fraction)| (number, fraction))
    }

    /// The fraction of the bytes written to a region that belongs to a pool or to ended incarnations, in units of
    /// [`WHOLE`] and rounded up; 0 if there are none.
    fn fraction_of_pool(&self, region: u32, pool: u16, live: &HashSet<u16>) -> u64 {
        let pools = self.region_pools[region as usize].lock().expect("nothing panics under this lock");
        let is_own = |number: &u16| *number == pool || !live.contains(number);
        let of_pool: u64 = pools.iter().filter(|(number, _)| is_own(number)).map(|&(_, bytes)| u64::from(bytes)).sum();
        let all: u64 = pools.iter().map(|&(_, bytes)| u64::from(bytes)).sum();
        (WHOLE * of_pool).div_ceil(all.max(1))
    }

    /// A claimed region is not reclaimed. Of some of its objects the index may have copies: a restart could find these
    /// objects in it, too.
    fn put_back(&self, number: u32, has_copies: bool) {
        let _books = self.free_lists();
        let region = &self.regions[number as usize];
        if region.state() == RegionState::Dying {
            region.set_state(RegionState::Sealed);
        }
        if has_copies {
            self.set_unclean(number, true);
        }
    }

    /// Whether new objects displace others.
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

    /// Makes sure that a restart does not find the region. Returns the cause of its reclaim, as it may have failed
    /// meanwhile. `None` if the mark could not be written: then the index keeps the region's entries, so that removals
    /// of its objects are still logged.
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
        // Some of its objects may have copies, to which the index refers instead.
        self.set_unclean(number, true);
        None
    }

    /// Removes all objects in these regions from the index.
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
                // The death mark is not discarded: a drive may return the old bytes of a discarded block.
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
