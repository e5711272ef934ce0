//! Reinsertion: objects of reclaimed regions that are written again.
//!
//! ```text
//! header, footer -> current objects worth a copy -> windows that hold them, each one read -> open regions -> index
//! ```
//! A reclaim may wait for the device. It waits for buffers rather than take those that inserts need.

use super::LargeLog;
use super::address::{Address, UNIT};
use super::format::{
    FOOTER_ENTRY_BYTES, FooterEntry, OBJECT_HEADER_BYTES, ObjectHeader, REGION_HEADER_BYTES, object_bytes,
};
use super::index::IndexKey;
use super::open_region::{AppendError, Appended, ObjectDraft};
use super::options::Reinsertion;
use super::reclaim_choice::{ReclaimCause, is_reinserted};
use crate::FlashHash;
use crate::device::{self, BLOCK, Buffer};
use crate::hash::mix;
use crate::object::has_expired;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

/// Objects of a region are read in one window if the gaps between them are at most `GAP_BYTES`. A window has at most
/// `WINDOW_BYTES` and a quarter of the region.
const GAP_BYTES: usize = 64 << 10;
const WINDOW_BYTES: usize = 1 << 20;
const WINDOWS: usize = 4;
/// Maximum debt to new objects at the start of a reclaim: one part in this many of the log.
const MAX_DEBT_SHARE: usize = 16;
/// Maximum wait of a copy for a buffer: as long as a stall of the drive.
const MAX_COPY_WAIT: Duration = Duration::from_millis(100);
/// Maximum wait of all copies of a reclaim together, which frees nothing meanwhile.
const MAX_RECLAIM_WAIT: Duration = Duration::from_secs(1);

/// An object to reinsert.
struct Survivor {
    hash: FlashHash,
    address: Address,
    /// Offset of its first byte in the region. `end`: offset of its end.
    begin: usize,
    end: usize,
}

impl Survivor {
    fn bytes(&self) -> usize {
        self.end - self.begin
    }
}

/// Why there is no copy.
enum NotCopied {
    /// This object is damaged, not current, or too long.
    This,
    /// No further object can be copied: buffers or regions ran out.
    Rest,
}

/// The result of reinserting the objects of other pools.
#[derive(Clone, Copy, Debug)]
pub(super) struct OthersKept {
    /// Whether copies of some were published.
    pub copies: bool,
    /// Whether buffers or regions ran out, so that others have none.
    pub is_incomplete: bool,
}

/// A region that is being reclaimed.
#[derive(Clone, Copy)]
struct VictimRegion {
    number: u32,
    sequence: u64,
}

/// Which objects of a reclaimed region are copied.
#[derive(Clone, Copy)]
enum Chosen {
    /// Objects whose copies pay. `turn`: turns of the log until now.
    ByValue { copies_pay: bool, turn: u64 },
    /// All objects of pools other than this one, which has more than its share.
    OfOthers(u16),
}

/// The conditions of all copies of one reclaim.
#[derive(Clone, Copy)]
struct ReinsertTerms {
    now: u32,
    chosen: Chosen,
    /// Maximum length of an object to copy.
    max_object_bytes: usize,
    /// Deadline for waits for buffers.
    until: Instant,
}

impl LargeLog {
    /// Reinserts objects whose copies pay, at most half of the bytes that are reclaimed for space: otherwise the
    /// reclaim would free too little.
    pub(super) fn reinsert_some(self: &Arc<Self>, chosen: &[(u32, ReclaimCause)], now: u32) {
        let victims = chosen.iter().filter(|choice| choice.1 == ReclaimCause::Space).map(|&(number, _)| number);
        let victims: Vec<_> =
            victims.map(|number| VictimRegion { number, sequence: self.regions[number as usize].sequence() }).collect();
        if self.options.reinsertion == Reinsertion::Never || victims.is_empty() {
            return;
        }
        let mut space = victims.len() * self.geometry.region_bytes / 2;
        let regions = self.log_regions().len();
        let max_debt = regions * self.geometry.region_bytes / MAX_DEBT_SHARE;
        let copies_pay = self.reinsertion_value.copies_pay(victims.len() as f64 / regions as f64, max_debt);
        let turn = self.free_lists().next_sequence / regions as u64;
        let is_forced = self.options.reinsertion.is_forced();
        let max_object_bytes = if is_forced { usize::MAX } else { self.reinsertion_value.max_object_bytes() };
        let chosen = Chosen::ByValue { copies_pay, turn };
        let terms = ReinsertTerms { now, chosen, max_object_bytes, until: self.copy_deadline() };
        for region in victims {
            if !self.reinsert_region(region, &mut space, terms) {
                return;
            }
        }
    }

    /// Reinserts the objects of a region that belong to pools other than this one, as far as there are buffers and free
    /// regions.
    pub(super) fn reinsert_others(self: &Arc<Self>, number: u32, pool: u16, now: u32) -> OthersKept {
        let region = VictimRegion { number, sequence: self.regions[number as usize].sequence() };
        let chosen = Chosen::OfOthers(pool);
        let terms = ReinsertTerms { now, chosen, max_object_bytes: usize::MAX, until: self.copy_deadline() };
        let survivors = self.survivors(region, terms);
        let mut space = usize::MAX;
        let (done, has_space) = self.reinsert_all(region, &survivors, &mut space, terms);
        OthersKept { copies: done > 0, is_incomplete: !has_space }
    }

    fn copy_deadline(&self) -> Instant {
        let max_wait = if self.may_reclaim_for_inserts() { self.options.max_buffer_wait } else { MAX_RECLAIM_WAIT };
        Instant::now() + max_wait.min(MAX_RECLAIM_WAIT)
    }

    /// Reinserts the chosen objects of a region. False if buffers or regions ran out.
    fn reinsert_region(self: &Arc<Self>, region: VictimRegion, space: &mut usize, terms: ReinsertTerms) -> bool {
        let survivors = self.survivors(region, terms);
        let (done, has_space) = self.reinsert_all(region, &survivors, space, terms);
        self.counters.reinsertions_dropped.add((survivors.len() - done) as u64);
        has_space
    }

    /// The current objects of a region that are to be reinserted, in their order.
    fn survivors(&self, region: VictimRegion, terms: ReinsertTerms) -> Vec<Survivor> {
        let reinsertion = self.options.reinsertion;
        let was_hit = self.regions[region.number as usize].was_hit();
        if !was_hit && !reinsertion.is_forced() && matches!(terms.chosen, Chosen::ByValue { .. }) {
            return Vec::new();
        }
        let survivor = |entry: FooterEntry| {
            let identity = IndexKey::of(entry.hash);
            let address = self.index.lock(identity.shard).get(identity.tag)?;
            let is_current = self.geometry.split(address.unit()) == (region.number, entry.position);
            let is_chosen = match terms.chosen {
                Chosen::ByValue { copies_pay, turn } => {
                    // A number that differs between objects and between turns of the log.
                    let drawn = mix(entry.order.wrapping_add(turn << 48)) >> 32;
                    is_reinserted(reinsertion, copies_pay, address.hits(), drawn)
                        && entry.bytes as usize <= object_bytes(0, terms.max_object_bytes)
                }
                Chosen::OfOthers(pool) => entry.pool != pool,
            };
            let begin = entry.position as usize * UNIT;
            let end = begin + entry.bytes as usize;
            let survivor = Survivor { hash: entry.hash, address, begin, end };
            let is_alive = self.pools.is_live(entry.pool);
            (is_current && is_chosen && is_alive && !has_expired(entry.expiry, terms.now)).then_some(survivor)
        };
        let listed = self.listed(region.number, |blocks| self.read(region, blocks));
        let mut survivors: Vec<_> = listed.unwrap_or_default().into_iter().filter_map(survivor).collect();
        survivors.sort_unstable_by_key(|object| object.begin);
        survivors
    }

    fn read(&self, region: VictimRegion, blocks: Range<usize>) -> Option<Buffer> {
        let offset = self.geometry.offset(region.number) + blocks.start as u64;
        let read = device::read(&*self.device, offset, Buffer::zeroed(blocks.len())).ok();
        if read.is_some() {
            self.counters.read_bytes.add(blocks.len() as u64);
        } else {
            self.counters.read_errors.one();
            self.fail(region.number, region.sequence);
        }
        read
    }

    /// Reinserts these objects, as far as there is space. Returns the number of copies, and whether there were enough
    /// buffers and regions.
    fn reinsert_all(
        self: &Arc<Self>,
        region: VictimRegion,
        mut objects: &[Survivor],
        space: &mut usize,
        terms: ReinsertTerms,
    ) -> (usize, bool) {
        let max = WINDOW_BYTES.min(self.geometry.region_bytes / WINDOWS);
        let mut done = 0;
        while !objects.is_empty() {
            let (window, behind) = objects.split_at(window(objects, max));
            objects = behind;
            if window.iter().all(|object| in_region(object.bytes()) > *space) {
                continue;
            }
            let begin = window[0].begin / BLOCK * BLOCK;
            let bytes = window[window.len() - 1].end.next_multiple_of(BLOCK) - begin;
            self.reading_bytes.fetch_add(bytes, Relaxed);
            let read = self.read(region, begin..begin + bytes);
            let is_read = read.is_some();
            let has_space = read.is_none_or(|buffer| {
                window.iter().all(|object| {
                    let survivor = self.reinsert(region, object, &buffer[object.begin - begin..], *space, terms);
                    if let Ok(taken) = survivor {
                        *space -= taken;
                        done += 1;
                    }
                    !matches!(survivor, Err(NotCopied::Rest))
                })
            });
            self.reading_bytes.fetch_sub(bytes, Relaxed);
            if !is_read || !has_space {
                return (done, has_space);
            }
        }
        (done, true)
    }

    /// Appends a copy of an object that was read, with its order. The new address is published only if the old one is
    /// still current, also if the old region failed meanwhile: the copy will be on the device, and a restart would find
    /// it.
    fn reinsert(
        self: &Arc<Self>,
        region: VictimRegion,
        survivor: &Survivor,
        object: &[u8],
        space: usize,
        terms: ReinsertTerms,
    ) -> Result<usize, NotCopied> {
        let position = (survivor.begin / UNIT) as u32;
        let header = ObjectHeader::check(object, self.options.identity, region.sequence, position)
            .map_err(|_| NotCopied::This)?;
        let takes = share_of_region(survivor.bytes(), self.geometry.region_bytes);
        // A part is copied as an object of its own. The parts of an object longer than a region lie in many regions:
        // where value decides, some of them would be copied in vain.
        let is_spanning = header.total_bytes as usize > self.geometry.object_bytes_limit();
        let is_refused = is_spanning && matches!(terms.chosen, Chosen::ByValue { .. });
        if is_refused || header.total_bytes as usize > terms.max_object_bytes || takes > space {
            return Err(NotCopied::This);
        }
        let (key, value) = (&object[OBJECT_HEADER_BYTES..][..header.key_bytes.into()], &object[header.value()]);
        let draft =
            ObjectDraft { hash: survivor.hash, header, key, value: &[value], from: 0, may_cut: false, is_copy: true };
        let appended = self.add_copy(&draft, terms).ok_or(NotCopied::Rest)?;
        let pays = matches!(terms.chosen, Chosen::ByValue { copies_pay: true, .. });
        if pays && !self.options.reinsertion.is_forced() {
            self.reinsertion_value.add_debt(header.object_bytes());
        }
        let identity = IndexKey::of(survivor.hash);
        let mut shard = self.index.lock(identity.shard);
        let is_flushed = region.sequence < self.floor.load(Acquire);
        let is_same = |current: Address| current.without_hits() == survivor.address.without_hits() && !is_flushed;
        let Some(new) = self.publishable(appended).filter(|_| shard.get(identity.tag).is_some_and(is_same)) else {
            // A later part with the same tag may have replaced this object: then its copy is not in the index either.
            if self.regions[region.number as usize].is_unclean() {
                self.set_unclean(appended.region, true);
            }
            return Err(NotCopied::This);
        };
        shard.insert(identity.tag, new);
        self.counters.reinserted.one();
        Ok(takes)
    }

    /// Adds a copy, without reclaiming.
    fn add_copy(self: &Arc<Self>, draft: &ObjectDraft<'_>, terms: ReinsertTerms) -> Option<Appended> {
        let add = || self.add(self.expiry_group(draft.header.expiry, terms.now), draft, &mut Vec::new(), terms.now);
        let max = || MAX_COPY_WAIT.min(terms.until.saturating_duration_since(Instant::now()));
        match add() {
            Err(AppendError::Buffers) if self.wait_for_buffer(self.buffers_reserved_for_inserts(), max()) => add().ok(),
            appended => appended.ok(),
        }
    }
}

/// Bytes of a region that an object takes, with its footer entry.
fn in_region(object_bytes: usize) -> usize {
    object_bytes.next_multiple_of(UNIT) + FOOTER_ENTRY_BYTES
}

/// As [`in_region`], plus its share of the space that stays empty after the last object of its length.
fn share_of_region(object_bytes: usize, region_bytes: usize) -> usize {
    region_bytes / ((region_bytes - REGION_HEADER_BYTES) / in_region(object_bytes)).max(1)
}

/// Number of these objects, from the first on, that are read in one window.
fn window(objects: &[Survivor], max: usize) -> usize {
    let begin = objects[0].begin;
    let continues = |pair: &&[Survivor]| pair[1].begin - pair[0].end <= GAP_BYTES && pair[1].end - begin <= max;
    1 + objects.windows(2).take_while(continues).count()
}
