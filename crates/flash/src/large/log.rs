//! The log: its parts, and the methods that need no file of their own.

use super::address::Address;
use super::index::{IndexKey, LargeIndex, SHARDS};
use super::longest_object::LongestObject;
use super::open_region::{FreeLists, OpenRegion, StagedRegion};
use super::options::Options;
use super::options::{Geometry, MAX_EXPIRY_GROUPS};
use super::regions::{Region, RegionState};
use super::reinsertion_value::ReinsertionValue;
use super::stats::Counters;
use super::stats::Stats;
use crate::device::Device;
use crate::memory_bound::MemoryBound;
use crate::pools::{LivePools, Occupied};
use crate::{Error, FlashHash, Token};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed},
};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Duration;

/// Free regions that the expiry groups may be about to open, and one more.
pub(super) const MIN_FREE_REGIONS: usize = MAX_EXPIRY_GROUPS + 1;

/// Longest wait of `verify` for buffers of writes that have just ended.
const SETTLING: Duration = Duration::from_secs(5);

/// Bytes of pools in one region, by the numbers of their incarnations.
pub(super) type RegionPools = Mutex<Vec<(u16, u32)>>;

/// Records a removal: the hash of a key, and the order below which versions of it are removed.
type RemovalRecord = Box<dyn Fn(FlashHash, u64) + Send + Sync>;

/// The log. Any thread may call any method; those of workers (`lookup`, `could_exist`, `remove`, `is_current`,
/// `flush`) never wait for the device.
pub struct LargeLog {
    pub(super) device: Arc<dyn Device>,
    pub(super) options: Options,
    pub(super) geometry: Geometry,
    pub(super) index: LargeIndex,
    pub(super) regions: Box<[Region]>,
    pub(super) pools: Arc<LivePools>,
    /// Bytes of each pool in a region's current life.
    pub(super) region_pools: Box<[RegionPools]>,
    /// The open region of each group.
    pub(super) expiry_groups: Box<[Mutex<Option<OpenRegion>>]>,
    pub(super) slots: Box<[RwLock<Option<StagedRegion>>]>,
    /// Regions before this one do not belong to the log. Changes under the mutex of `free_lists`.
    pub(super) first_region: AtomicU32,
    /// Maximum bytes of the index.
    pub(super) memory_bound: MemoryBound,
    pub(super) free_lists: Mutex<FreeLists>,
    /// Notified when a buffer becomes free.
    pub(super) freed: Condvar,
    /// One insert at a time for keys of a shard, so that the order of versions is the order of publication.
    pub(super) writers: Box<[Mutex<()>]>,
    /// One reclaim at a time.
    pub(super) reclaiming: Mutex<()>,
    /// Objects in regions with a lower sequence are flushed.
    pub(super) floor: AtomicU64,
    pub(super) next_order: AtomicU64,
    /// Number of regions of the longest multi-region object that arrived since the last maintenance.
    pub(super) wanted: AtomicUsize,
    pub(super) max_object_bytes: Mutex<LongestObject>,
    /// Number of regions that the last maintenance kept free for such an object.
    pub(super) space: AtomicUsize,
    /// Whether copies are worth it.
    pub(super) reinsertion_value: ReinsertionValue,
    /// A checkpoint exists or is being written: the state that it stores must not change.
    pub(super) is_closed: AtomicBool,
    /// Counts hits, for the order of regions by last hit.
    pub(super) tick: AtomicU64,
    /// Latest time passed to any method, in seconds since 1970.
    pub(super) now: AtomicU32,
    /// Bytes of the buffers of pending reads.
    pub(super) reading_bytes: AtomicUsize,
    /// Number of regions with objects that are not in the index.
    pub(super) unclean: AtomicUsize,
    pub(super) counters: Counters,
    /// Records removals by the log itself.
    removal_record: OnceLock<RemovalRecord>,
}

impl LargeLog {
    /// An empty log in an area of the device. The contents of the area are not read, and are never found if the
    /// identity is a new one.
    ///
    /// # Errors
    ///
    /// [`Error::Options`] when the options contradict each other or the area is too small for them.
    pub fn new(device: Arc<dyn Device>, area: Range<u64>, options: Options) -> Result<Arc<Self>, Error> {
        Self::of_pools(device, area, options, Arc::default())
    }

    /// As [`LargeLog::new`], with the live pools.
    ///
    /// # Errors
    ///
    /// As [`LargeLog::new`].
    pub fn of_pools(
        device: Arc<dyn Device>,
        area: Range<u64>,
        options: Options,
        pools: Arc<LivePools>,
    ) -> Result<Arc<Self>, Error> {
        let geometry = Geometry::new(&area, &options)?;
        assert!(area.end <= device.capacity(), "an area up to {} on a device of {}", area.end, device.capacity());
        Ok(Arc::new(Self {
            device,
            options,
            geometry,
            index: LargeIndex::new(),
            regions: (0..geometry.regions).map(|_| Region::free()).collect(),
            pools,
            region_pools: (0..geometry.regions).map(|_| Mutex::default()).collect(),
            expiry_groups: (0..options.expiry_groups).map(|_| Mutex::new(None)).collect(),
            slots: (0..options.buffers + options.long_buffers).map(|_| RwLock::new(None)).collect(),
            first_region: AtomicU32::new(options.first_region),
            memory_bound: MemoryBound::new(options.index_bytes),
            free_lists: Mutex::new(FreeLists::new(
                options.first_region..geometry.regions,
                options.buffers as u16,
                options.long_buffers as u16,
            )),
            freed: Condvar::new(),
            writers: (0..SHARDS).map(|_| Mutex::new(())).collect(),
            reclaiming: Mutex::new(()),
            floor: AtomicU64::new(1),
            next_order: AtomicU64::new(1),
            wanted: AtomicUsize::new(0),
            max_object_bytes: Mutex::default(),
            space: AtomicUsize::new(0),
            reinsertion_value: ReinsertionValue::default(),
            is_closed: AtomicBool::new(false),
            tick: AtomicU64::new(0),
            now: AtomicU32::new(0),
            reading_bytes: AtomicUsize::new(0),
            unclean: AtomicUsize::new(0),
            counters: Counters::default(),
            removal_record: OnceLock::new(),
        }))
    }

    /// Maximum bytes of RAM of a log, without the objects in its index, pending reads, and pending writes of
    /// multi-region objects.
    pub(crate) fn fixed_bytes(area: &Range<u64>, options: &Options) -> usize {
        let buffers = options.buffers * options.region_bytes;
        let regions = area.end.saturating_sub(area.start) / options.region_bytes as u64;
        buffers + regions as usize * size_of::<Region>() + Self::min_index_bytes()
    }

    /// Bytes of an index without an object.
    pub(crate) fn min_index_bytes() -> usize {
        LargeIndex::new().bytes()
    }

    /// Gives away the front of the area, up to an offset on the device or to the free regions that the log keeps,
    /// whichever comes first. Returns the new start of the log.
    pub fn shrink_front(&self, to: u64) -> u64 {
        let mut free_lists = self.free_lists();
        let first = self.first_region.load(Relaxed);
        let max = self.log_regions().len().saturating_sub(self.options.min_regions());
        let free = self.spare_front(&free_lists);
        let wanted = to.saturating_sub(self.geometry.offset(first)) / self.geometry.region_bytes as u64;
        let first = first + free.min(max).min(wanted as usize) as u32;
        self.first_region.store(first, Relaxed);
        free_lists.free.retain(|&region| region >= first);
        self.geometry.offset(first)
    }

    /// Bytes at the front of the area before the first region in use.
    pub fn unused_bytes(&self) -> u64 {
        (self.unused_regions(&self.free_lists()) * self.geometry.region_bytes) as u64
    }

    /// Whether [`LargeLog::shrink_front`] would give anything away.
    pub fn has_free_front(&self) -> bool {
        self.spare_front(&self.free_lists()) > 0 && self.log_regions().len() > self.options.min_regions()
    }

    /// The free regions at the front that can be given away: after them the log has one for each group, and those that
    /// maintenance keeps free in a log of its new length, which otherwise would evict objects for them.
    fn spare_front(&self, free_lists: &FreeLists) -> usize {
        let unused = self.unused_regions(free_lists);
        let left = self.log_regions().len() - unused + MIN_FREE_REGIONS;
        let kept = self.free_regions_kept(left, self.space.load(Relaxed).max(1));
        unused.saturating_sub(MIN_FREE_REGIONS + kept)
    }

    /// Number of consecutive free regions at the front.
    pub(super) fn unused_regions(&self, free_lists: &FreeLists) -> usize {
        let own = self.first_region.load(Relaxed)..;
        free_lists.free.iter().rev().zip(own).take_while(|&(&free, own)| free == own).count()
    }

    /// Takes back the regions from this one on that were given away.
    pub fn grow_front(&self, first: u32) {
        let mut free_lists = self.free_lists();
        let before = self.first_region.swap(first, Relaxed);
        free_lists.free.extend((first..before).rev());
    }

    /// Bytes of the index.
    pub fn index_bytes(&self) -> usize {
        self.index.bytes()
    }

    /// Bytes of memory that the index needs soon, because it has less than `reserve` left, or so little that objects
    /// would be evicted.
    pub fn wanted_memory(&self, reserve: usize) -> usize {
        self.memory_bound.wanted(self.index.bytes(), reserve)
    }

    /// Lowers the bound of the index if far more than `reserve` is left; returns the difference in bytes.
    pub fn release_index(&self, reserve: usize) -> usize {
        self.memory_bound.release(self.index.bytes(), reserve)
    }

    /// Increases the bound of the index by `bytes`.
    pub fn grow_index(&self, bytes: usize) {
        self.memory_bound.increase(bytes);
    }

    /// Sets the bound of the index to `bytes`.
    pub fn limit_index(&self, bytes: usize) {
        self.memory_bound.set(bytes);
    }

    /// The regions that belong to the log.
    pub(super) fn log_regions(&self) -> &[Region] {
        &self.regions[self.first_region.load(Relaxed) as usize..]
    }

    /// Whether the index has an object for this hash. No I/O.
    pub fn could_exist(&self, hash: FlashHash) -> bool {
        self.find(hash, |_| ()).is_some()
    }

    /// Whether inserts can continue for a while even if the device completes nothing, including one as long as the
    /// longest recent object.
    pub fn has_space(&self) -> bool {
        let free_lists = self.free_lists();
        let regions = self.space.load(Relaxed).max(1);
        let takes_long = if self.options.long_buffers > 0 {
            // The missing slots may be the open ones of the groups, and half of the rest.
            2 * free_lists.free_long_slots.len() + self.options.expiry_groups >= self.options.long_buffers
        } else {
            // Each group may hold one buffer without end.
            free_lists.free_slots.len() + 1 >= regions.min(self.options.buffers + 1 - self.options.expiry_groups)
        };
        !free_lists.free_slots.is_empty() && free_lists.free.len() >= regions && takes_long
    }

    pub(super) fn used_buffers(&self, free_lists: &FreeLists) -> usize {
        self.slots.len() - free_lists.free_slots.len() - free_lists.free_long_slots.len()
    }

    /// How often the shard of the index that has a hash was locked.
    pub fn index_locks(&self, hash: FlashHash) -> u64 {
        self.index.locks(IndexKey::of(hash).shard)
    }

    /// Removes an object for every lookup that starts later or is in progress. True if there may have been one: then it
    /// may still be on the device, and the caller must log the removal with [`LargeLog::next_order`], so that no start
    /// after a crash finds it.
    pub fn remove(&self, hash: FlashHash) -> bool {
        let identity = IndexKey::of(hash);
        let removed = self.index.lock(identity.shard).remove(identity.tag).is_some();
        self.counters.removes.add(u64::from(removed));
        removed || self.is_unclean()
    }

    /// Has removals by the log itself recorded, before they take effect, so that no start finds the objects: of a hash,
    /// of versions with a lower order.
    pub(crate) fn record_removals(&self, record: impl Fn(FlashHash, u64) + Send + Sync + 'static) {
        _ = self.removal_record.set(Box::new(record));
    }

    /// Removes the first part of an object, unless it has been replaced: a later part is gone. Without it ranges of the
    /// first part would be found where lookups of the whole miss, also after a change has found the key absent. Where
    /// removals are not recorded a checkpoint has the part: it may have written by now that its region is clean.
    pub(super) fn remove_incomplete(&self, hash: FlashHash, token: Token, order: u64) {
        let identity = IndexKey::of(hash);
        let record = self.removal_record.get();
        if let Some(record) = record {
            record(hash, order + 1);
        }
        let mut shard = self.index.lock(identity.shard);
        // Acquire: with `checkpoint`, which locks the shards after that.
        if record.is_none() && self.is_closed.load(Acquire) {
            return;
        }
        let first = shard.get(identity.tag).filter(|address| self.is_alive(*address) && self.token(*address) == token);
        let Some(address) = first else { return };
        shard.remove(identity.tag);
        if record.is_none() {
            // A restart finds the part again: a removal of the key is to be logged.
            self.set_unclean(self.geometry.split(address.unit()).0, true);
        }
    }

    /// Whether a lookup would find the object with this token.
    pub fn is_current(&self, hash: FlashHash, token: Token) -> bool {
        self.find(hash, |address| self.token(address)) == Some(token)
    }

    /// All objects inserted from now on have this order or a higher one; all that were published have a lower one. A
    /// removal in a deletion log applies to all lower orders.
    pub fn next_order(&self) -> u64 {
        self.next_order.load(Relaxed)
    }

    pub fn stats(&self) -> Stats {
        let count = |wanted: &[RegionState]| {
            self.log_regions().iter().filter(|region| wanted.contains(&region.state())).count() as u64
        };
        Stats {
            objects: self.index.objects() as u64,
            regions_free: count(&[RegionState::Free, RegionState::Emptied]),
            regions_retired: count(&[RegionState::Failed, RegionState::Lost, RegionState::Retired]),
            regions: self.log_regions().len() as u64,
            region_bytes: self.geometry.region_bytes as u64,
            ..self.counters.read()
        }
    }

    /// Bytes of RAM: the index, the table of regions, buffers, reads under way.
    pub fn memory_bytes(&self) -> usize {
        let buffers = self.used_buffers(&self.free_lists());
        self.index.bytes()
            + size_of_val(&self.regions[..])
            + size_of_val(&self.region_pools[..])
            + buffers * self.geometry.region_bytes
            + self.reading_bytes.load(Relaxed)
    }

    pub fn region_bytes(&self) -> u64 {
        self.geometry.region_bytes as u64
    }

    /// Counts the bytes of a pool's object in a region.
    pub(super) fn occupy(&self, region: u32, pool: u16, bytes: u32) {
        let mut pools = self.region_pools[region as usize].lock().expect("nothing panics under this lock");
        match pools.iter_mut().find(|(number, _)| *number == pool) {
            Some((_, total)) => *total += bytes,
            None => pools.push((pool, bytes)),
        }
        self.pools.occupy(Occupied::Large, pool, bytes.into());
    }

    /// Clears the byte counts of an empty region.
    pub(super) fn reclaim_bytes(&self, region: u32) {
        let pools =
            std::mem::take(&mut *self.region_pools[region as usize].lock().expect("nothing panics under this lock"));
        for (pool, bytes) in pools {
            self.pools.reclaim(Occupied::Large, pool, bytes.into());
        }
    }

    /// Asserts every invariant. No other method may run at the same time.
    pub fn verify(&self) {
        let mut units = HashSet::new();
        self.index.verify(|_, address| {
            let (region, position) = self.geometry.split(address.unit());
            let state = self.regions[region as usize].state();
            assert!(
                !matches!(state, RegionState::Free | RegionState::Retired),
                "{address:?} is in a region that is {state:?}"
            );
            assert!(position > 0, "{address:?} is where the header of its region is");
            assert!(units.insert(address.unit()), "{address:?} is that of two objects");
        });
        let opened: Vec<u32> = self
            .expiry_groups
            .iter()
            .filter_map(|expiry_group| Some(expiry_group.lock().unwrap().as_ref()?.region))
            .collect();
        let free_lists = self.settled_free_lists();
        assert!(free_lists.free.iter().is_sorted_by(|a, b| a > b), "{:?}", free_lists.free);
        let mut used = 0;
        for (number, region) in self.regions.iter().enumerate() {
            let state = region.state();
            let is_own = number >= self.first_region.load(Relaxed) as usize;
            assert!(is_own || state == RegionState::Free, "region {number} is {state:?}, and not the log's");
            let is_free = is_own && state == RegionState::Free;
            assert_eq!(is_free, free_lists.free.contains(&(number as u32)), "region {number} is {state:?}");
            assert_eq!(state == RegionState::Open, opened.contains(&(number as u32)), "region {number} is {state:?}");
            if matches!(state, RegionState::Open | RegionState::Writing) {
                used += 1;
                let staged = self.slots[usize::from(region.slot())].read().unwrap();
                let staged = staged.as_ref().expect("a region that is open or being written has a buffer");
                assert_eq!((staged.region, staged.sequence), (number as u32, region.sequence()));
            }
            assert!(region.sequence() < free_lists.next_sequence);
        }
        assert_eq!(used, self.used_buffers(&free_lists), "a buffer is lost");
        let unclean = self.regions.iter().filter(|region| region.is_unclean()).count();
        assert_eq!(unclean, self.unclean.load(Relaxed));
    }

    /// The free lists, once each buffer is used by a region or free: a write that ends changes the state of its region
    /// first and frees its buffer then (`release`). After `SETTLING` returns them in any case.
    fn settled_free_lists(&self) -> MutexGuard<'_, FreeLists> {
        let uses_buffer = |region: &&Region| matches!(region.state(), RegionState::Open | RegionState::Writing);
        let is_unsettled = |free_lists: &mut FreeLists| {
            self.regions.iter().filter(uses_buffer).count() != self.used_buffers(free_lists)
        };
        self.freed.wait_timeout_while(self.free_lists(), SETTLING, is_unsettled).unwrap().0
    }

    /// Calls `tell` with the address of a live object, under the lock of its shard.
    pub(super) fn find<T>(&self, hash: FlashHash, tell: impl FnOnce(Address) -> T) -> Option<T> {
        let identity = IndexKey::of(hash);
        let shard = self.index.lock(identity.shard);
        let address = shard.get(identity.tag)?;
        self.is_alive(address).then(|| tell(address))
    }

    /// Whether the region of an address holds live objects. Only under the lock of the shard in which the address was
    /// found, so that the region is in the same life.
    pub(super) fn is_alive(&self, address: Address) -> bool {
        let region = self.region_of(address);
        let holds = matches!(
            region.state(),
            RegionState::Open | RegionState::Writing | RegionState::Sealed | RegionState::Dying
        );
        holds && region.sequence() >= self.floor.load(Acquire)
    }

    /// As [`LargeLog::is_alive`].
    pub(super) fn token(&self, address: Address) -> Token {
        let position = self.geometry.split(address.unit()).1;
        Token(self.region_of(address).sequence() << 24 | u64::from(position))
    }

    /// Records whether a restart could find objects in a region that are not in the index.
    pub(super) fn set_unclean(&self, region: u32, is_unclean: bool) {
        let was_unclean = self.regions[region as usize].set_unclean(is_unclean);
        self.unclean.fetch_add(usize::from(is_unclean), Relaxed);
        self.unclean.fetch_sub(usize::from(was_unclean), Relaxed);
    }

    /// Whether the device may have objects that are not in the index.
    pub(crate) fn is_unclean(&self) -> bool {
        self.unclean.load(Relaxed) > 0
    }

    /// Whether a region has failed and is not yet marked dead. No lookup finds its objects, and a restart could.
    pub(crate) fn has_failed_region(&self) -> bool {
        self.log_regions().iter().any(|region| region.state() == RegionState::Failed)
    }

    pub(super) fn region_of(&self, address: Address) -> &Region {
        &self.regions[self.geometry.split(address.unit()).0 as usize]
    }

    pub(super) fn free_lists(&self) -> MutexGuard<'_, FreeLists> {
        self.free_lists.lock().unwrap()
    }

    /// Records the time; returns the latest one recorded.
    pub(super) fn observe_time(&self, now: u32) -> u32 {
        self.now.fetch_max(now, Relaxed).max(now)
    }
}
