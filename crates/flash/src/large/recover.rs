//! After a restart: the index from a checkpoint, or from the footers of regions.
//!
//! A recovery finds the objects that were in the index, without those that the caller reports as removed. The caller
//! must log every object that leaves the index otherwise than with its region:
//! - [`LargeLog::remove`], where it returns true: the hash, with [`LargeLog::next_order`] read afterwards;
//! - an insert that replaced something: its hash and order;
//! - a flush: [`LargeLog::next_order`] read afterwards.
//!
//! Of two versions of a key in footers the one with the higher order is current, also if it is expired. The other one,
//! or a copy that a crash left beside its original, makes its region unclean: it is not in the index, so until the
//! region is dead each removal returns true.
//!
//! A region that cannot be read now might be readable after the next restart, when the removals of its objects are no
//! longer logged. So it is marked dead, and if that fails, too, there is no recovery.

use super::address::{Address, UNIT};
use super::format::{
    FOOTER_ENTRY_BYTES, FooterEntry, OBJECT_HEADER_BYTES, REGION_HEADER_BYTES, RegionHeader, checksum,
};
use super::index::IndexKey;
use super::regions::{RegionState, RegionSummary};
use super::{LargeLog, Options};
use crate::Error;
use crate::device::{self, BLOCK, Buffer, Device};
use crate::pools::LivePools;
use crate::recovery::RecoveryInput;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Numbers that were drawn before a crash and never reached the device are not drawn again. The number of skipped
/// sequences is random: objects of a region may have been written without its header, and a later torn write must not
/// be completed by objects of its own sequence. A token holds 2^38 sequences: enough for half a million restarts, and
/// the regions of years.
const SEQUENCES_SKIPPED: Range<u64> = 1 << 16..1 << 20;
const ORDERS_SKIPPED: u64 = 1 << 32;
/// Number of footers that are cached while versions are compared.
const CACHED_FOOTERS: usize = 16;

/// The result of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The index was read from the checkpoint; no region was read.
    pub from_checkpoint: bool,
    pub objects: u64,
    pub regions: u64,
    /// Regions that could not be read, or whose footer is damaged.
    pub regions_damaged: u64,
    /// Objects in footers that were removed, or have a later version.
    pub objects_gone: u64,
}

/// Removals by index key: if an object replaced another one with the same 38 bits of hash, a removal of it applies to
/// both.
pub(super) struct Deletions {
    deletions: HashMap<IndexKey, u64>,
    flushed: u64,
}

impl Deletions {
    fn new(known: &RecoveryInput) -> Self {
        let mut deletions = HashMap::new();
        for removal in &known.deletions {
            let order: &mut u64 = deletions.entry(IndexKey::of(removal.hash)).or_default();
            *order = removal.order.max(*order);
        }
        Self { deletions, flushed: known.flushed }
    }

    fn has(&self, identity: IndexKey, order: u64) -> bool {
        order < self.flushed || self.deletions.get(&identity).is_some_and(|&removed| order < removed)
    }

    fn latest(&self) -> u64 {
        self.deletions.values().copied().max().unwrap_or(0).max(self.flushed)
    }

    /// The keys removed at this order or later; `None` if all were.
    pub(super) fn since(&self, order: u64) -> Option<impl Iterator<Item = IndexKey>> {
        let removed = self.deletions.iter().filter(move |removal| *removal.1 >= order);
        (self.flushed == 0 || self.flushed < order).then(|| removed.map(|removal| *removal.0))
    }
}

impl LargeLog {
    /// Recovers a log in the same area, with the same options; `now` is in seconds since 1970. Reads the checkpoint, or
    /// twice from each region. A checkpoint is valid for one recovery.
    ///
    /// # Errors
    ///
    /// As [`LargeLog::new`]; and [`Error::Transfer`] or [`Error::Sync`] when a checkpoint or a region that must not be
    /// found again cannot be overwritten. Then only a start under another identity is safe.
    pub fn recover(
        device: Arc<dyn Device>,
        area: Range<u64>,
        options: Options,
        known: &RecoveryInput,
        now: u32,
    ) -> Result<(Arc<Self>, Recovered), Error> {
        Self::recover_pools(device, area, (options, Arc::default()), known, now)
    }

    /// As [`LargeLog::recover`], with the live pools.
    ///
    /// # Errors
    ///
    /// As [`LargeLog::recover`].
    pub fn recover_pools(
        device: Arc<dyn Device>,
        area: Range<u64>,
        (options, pools): (Options, Arc<LivePools>),
        known: &RecoveryInput,
        now: u32,
    ) -> Result<(Arc<Self>, Recovered), Error> {
        let deletions = Deletions::new(known);
        if let Some(checkpoint) = &known.checkpoint {
            let log = Self::of_pools(Arc::clone(&device), area.clone(), options, Arc::clone(&pools))?;
            let loaded = log.load(checkpoint, &deletions);
            device::write(&*device, checkpoint.start, Buffer::zeroed(BLOCK))?;
            device.sync()?;
            if loaded.is_some() {
                let recovered = Recovered { from_checkpoint: true, ..Recovered::default() };
                return Ok(log.recovered(recovered, deletions.latest(), now));
            }
            (0..log.regions.len() as u32).for_each(|region| log.reclaim_bytes(region));
        }
        let log = Self::of_pools(device, area, options, pools)?;
        let (recovered, latest) = RecoveryScan::run(&log, &deletions)?;
        Ok(log.recovered(recovered, latest.max(deletions.latest()), now))
    }

    /// Updates the state that depends on the regions.
    fn recovered(self: Arc<Self>, mut recovered: Recovered, latest_order: u64, now: u32) -> (Arc<Self>, Recovered) {
        self.observe_time(now);
        let is_free = |region: &u32| self.regions[*region as usize].state() == RegionState::Free;
        {
            let mut free_lists = self.free_lists();
            free_lists.free.retain(is_free);
            let latest = self.regions.iter().map(|region| region.sequence()).max().unwrap_or(0);
            let drawn = RandomState::new().hash_one(latest) % (SEQUENCES_SKIPPED.end - SEQUENCES_SKIPPED.start);
            free_lists.next_sequence = free_lists.next_sequence.max(latest) + SEQUENCES_SKIPPED.start + drawn;
            recovered.regions = (self.log_regions().len() - free_lists.free.len()) as u64;
        }
        self.next_order.fetch_max(latest_order.max(self.next_order()) + ORDERS_SKIPPED, Relaxed);
        recovered.objects = self.index.objects() as u64;
        (self, recovered)
    }

    /// The footer entries of a region on the device; `None` if they cannot be read or are damaged. `read` reads blocks
    /// of the region.
    pub(super) fn listed(
        &self,
        region: u32,
        read: impl Fn(Range<usize>) -> Option<Buffer>,
    ) -> Option<Vec<FooterEntry>> {
        let block = read(0..BLOCK)?;
        self.footer(&RegionHeader::decode(&block[..REGION_HEADER_BYTES], self.options.identity, region)?, read)
    }

    fn footer(&self, header: &RegionHeader, read: impl Fn(Range<usize>) -> Option<Buffer>) -> Option<Vec<FooterEntry>> {
        let offset = header.footer_offset as usize;
        let bytes = (header.objects as usize).checked_mul(FOOTER_ENTRY_BYTES)?;
        let end = offset.checked_add(bytes).filter(|&end| end <= self.geometry.region_bytes)?;
        let begin = offset / BLOCK * BLOCK;
        let buffer = read(begin..end.next_multiple_of(BLOCK))?;
        let footer = &buffer[offset - begin..end - begin];
        if checksum(self.options.identity, footer) != header.footer_checksum {
            return None;
        }
        let entries: Vec<_> = footer.chunks_exact(FOOTER_ENTRY_BYTES).map(FooterEntry::decode).collect();
        let fits = |entry: &FooterEntry| {
            let begin = entry.position as usize * UNIT;
            let bytes = entry.bytes as usize;
            begin >= REGION_HEADER_BYTES && bytes >= OBJECT_HEADER_BYTES && begin + bytes <= offset
        };
        entries.iter().all(fits).then_some(entries)
    }
}

/// A scan of all regions.
struct RecoveryScan<'a> {
    log: &'a LargeLog,
    deletions: &'a Deletions,
    /// The lowest and the highest order of each region.
    orders: Vec<(u64, u64)>,
    footers: VecDeque<(u32, Vec<FooterEntry>)>,
    found: Recovered,
}

impl RecoveryScan<'_> {
    fn run(log: &LargeLog, deletions: &Deletions) -> Result<(Recovered, u64), Error> {
        let orders = vec![(u64::MAX, 0); log.regions.len()];
        let mut scan = RecoveryScan { log, deletions, orders, footers: VecDeque::new(), found: Recovered::default() };
        let mut headers = Vec::new();
        for region in log.options.first_region..log.regions.len() as u32 {
            headers.extend(scan.header(region)?);
        }
        // Later regions mostly hold later versions: then no footer is read again for a comparison.
        headers.sort_by_key(|header| header.sequence);
        for header in headers {
            match log.footer(&header, |blocks| scan.read(header.region, blocks)) {
                Some(entries) => scan.add(&header, entries),
                None => scan.mark_dead(header.region)?,
            }
        }
        log.device.sync()?;
        let latest = scan.orders.iter().map(|orders| orders.1).max().unwrap_or(0);
        Ok((scan.found, latest))
    }

    fn read(&self, region: u32, blocks: Range<usize>) -> Option<Buffer> {
        let offset = self.log.geometry.offset(region) + blocks.start as u64;
        device::read(&*self.log.device, offset, Buffer::zeroed(blocks.len())).ok()
    }

    /// The header of a region that is not blank.
    fn header(&mut self, region: u32) -> Result<Option<RegionHeader>, Error> {
        let block = device::read(&*self.log.device, self.log.geometry.offset(region), Buffer::zeroed(BLOCK));
        if block.as_ref().is_ok_and(|block| block.iter().all(|&byte| byte == 0)) {
            return Ok(None);
        }
        let header = block
            .ok()
            .and_then(|block| RegionHeader::decode(&block[..REGION_HEADER_BYTES], self.log.options.identity, region));
        if header.is_none() {
            self.mark_dead(region)?;
        }
        Ok(header)
    }

    fn add(&mut self, header: &RegionHeader, entries: Vec<FooterEntry>) {
        let number = header.region;
        let region = &self.log.regions[number as usize];
        region.complete(RegionSummary {
            sequence: header.sequence,
            lowest_order: header.lowest_order,
            latest_expiry: header.latest_expiry,
        });
        region.set_state(RegionState::Sealed);
        let highest = entries.iter().map(|entry| entry.order).max().unwrap_or(0);
        self.orders[number as usize] = (header.lowest_order, highest);
        for entry in &entries {
            self.log.occupy(number, entry.pool, entry.bytes);
            self.add_object(number, entry);
        }
        self.cache_footer(number, entries);
    }

    fn add_object(&mut self, region: u32, entry: &FooterEntry) {
        let identity = IndexKey::of(entry.hash);
        let mut shard = self.log.index.lock(identity.shard);
        let other = shard.get(identity.tag);
        if !self.log.pools.is_live(entry.pool) || self.deletions.has(identity, entry.order) {
            self.found.objects_gone += 1;
            return;
        }
        let mut hidden = Some(region);
        if other.is_none_or(|other| self.is_later(entry.order, identity, other)) {
            let address = Address::new(self.log.geometry.unit(region, entry.position), entry.bytes as usize);
            let other = shard.insert(identity.tag, address);
            hidden = other.map(|other| self.log.geometry.split(other.unit()).0);
        }
        // The version in the index may be removed from it before the other one's region is dead.
        if let Some(hidden) = hidden {
            self.found.objects_gone += 1;
            self.log.set_unclean(hidden, true);
        }
    }

    /// Whether a version is at least as late as the one at an address.
    fn is_later(&mut self, order: u64, identity: IndexKey, address: Address) -> bool {
        let (region, position) = self.log.geometry.split(address.unit());
        let (lowest, highest) = self.orders[region as usize];
        if order >= highest || order < lowest {
            return order >= highest;
        }
        let find = |entries: &[FooterEntry]| {
            let at = entries.iter().find(|entry| entry.position == position && IndexKey::of(entry.hash) == identity);
            at.map(|entry| entry.order)
        };
        if let Some((_, entries)) = self.footers.iter().find(|footer| footer.0 == region) {
            return find(entries).is_none_or(|other| order >= other);
        }
        let entries = self.log.listed(region, |blocks| self.read(region, blocks)).unwrap_or_default();
        let other = find(&entries);
        self.cache_footer(region, entries);
        // If the order is not known, the version in the region that was opened later is current.
        other.is_none_or(|other| order >= other)
    }

    fn cache_footer(&mut self, region: u32, entries: Vec<FooterEntry>) {
        if self.footers.len() == CACHED_FOOTERS {
            self.footers.pop_front();
        }
        self.footers.push_back((region, entries));
    }

    fn mark_dead(&mut self, region: u32) -> Result<(), Error> {
        self.found.regions_damaged += 1;
        let bytes = Buffer::zeroed(BLOCK);
        device::write(&*self.log.device, self.log.geometry.offset(region), bytes).map(drop)
    }
}
