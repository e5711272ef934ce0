//! The store of small objects: its parts, inserts, removals and tokens.

use super::log::{LogAppend, LogPosition, PageLog};
use super::options::AreaLayout;
use super::options::Options;
use super::page::{self, PAGE};
use super::set_group::{Entry, GENERATIONS, GroupTotals, SETS, SetGroup};
use super::stats::Counters;
use super::stats::Stats;
use crate::Error;
use crate::device::Device;
use crate::memory_bound::MemoryBound;
use crate::object::{FlashHash, Object, Token};
use crate::pools::Occupied;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Set in tokens of objects in sets' pages; other tokens name a position in the log.
pub(super) const IN_PAGE: u64 = 1 << 63;
/// Bits of a token for the repeats of a group: the moment has the 44 above, which are petabytes.
pub(super) const REPEATS_BITS: u32 = 18;

/// Why an object was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallDrop {
    /// Its record is longer than [`MAX_RECORD_BYTES`], or its key is invalid.
    Large,
    Expired,
    /// The log is full: the device or `maintain` is too slow.
    Busy,
    /// The index has no memory left.
    Memory,
    /// Its set has too many objects in the log.
    Crowded,
}

/// The small objects in one area of a device.
pub struct SmallStore {
    pub(super) shared: Arc<SmallShared>,
}

pub(super) struct SmallShared {
    pub(super) device: Arc<dyn Device>,
    pub(super) area: Range<u64>,
    pub(super) options: Options,
    pub(super) area_layout: AreaLayout,
    pub(super) groups: Box<[Mutex<SetGroup>]>,
    pub(super) log: PageLog,
    pub(super) counters: Counters,
    pub(super) page_objects: AtomicU64,
    pub(super) log_objects: AtomicU64,
    pub(super) tombstones: AtomicU64,
    pub(super) group_bytes: AtomicU64,
    pub(super) memory_bound: MemoryBound,
    /// Groups that have sets to rewrite: many tombstones, or unclean.
    pub(super) queue: Mutex<VecDeque<u32>>,
    /// Held by the thread that runs maintenance.
    pub(super) maintenance: Mutex<super::maintenance_state::MaintenanceState>,
}

impl SmallStore {
    /// An empty store; the area is not read.
    ///
    /// # Errors
    ///
    /// Refuses invalid options, or options that do not fit the area.
    ///
    /// # Panics
    ///
    /// Panics when the area reaches beyond the device.
    pub fn new(device: Arc<dyn Device>, area: Range<u64>, options: Options) -> Result<Self, Error> {
        assert!(area.end <= device.capacity(), "an area up to {} on a device of {} bytes", area.end, device.capacity());
        let area_layout = options.divide(&area)?;
        let groups = (0..area_layout.set_layout.groups()).map(|_| Mutex::new(SetGroup::new())).collect();
        let log = PageLog::new(area_layout.log);
        let memory_bound = MemoryBound::new(options.index_bytes);
        let shared = SmallShared {
            device,
            area,
            options,
            area_layout,
            groups,
            log,
            counters: Counters::default(),
            page_objects: AtomicU64::new(0),
            log_objects: AtomicU64::new(0),
            tombstones: AtomicU64::new(0),
            group_bytes: AtomicU64::new(0),
            memory_bound,
            queue: Mutex::default(),
            maintenance: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Inserts an object, in place of any older one of its key. Lookups find it from now on.
    ///
    /// # Errors
    ///
    /// Why the object was not inserted. An older one stays: the caller removes it first if the value has changed.
    pub fn insert(&self, object: &Object<'_>, now: u32) -> Result<Token, SmallDrop> {
        let result = self.shared.insert(object, now);
        if let Err(reason) = result {
            let counters = &self.shared.counters;
            Counters::one(match reason {
                SmallDrop::Large => &counters.dropped_large,
                SmallDrop::Expired => &counters.dropped_expired,
                SmallDrop::Busy => &counters.dropped_busy,
                SmallDrop::Memory => &counters.dropped_memory,
                SmallDrop::Crowded => &counters.dropped_crowded,
            });
        }
        result
    }

    /// Whether a set's page may have objects that a start could find and RAM does not know.
    pub(crate) fn is_unclean(&self) -> bool {
        let groups = 0..self.shared.groups.len() as u32;
        groups.into_iter().any(|group| self.shared.locked(group * SETS as u32).0.has_unclean())
    }

    /// Whether a lookup may find an object with this hash. No I/O.
    pub fn could_exist(&self, hash: FlashHash) -> bool {
        let (group, set) = self.shared.locked(self.shared.area_layout.set_layout.set(hash));
        self.shared.newest(&group, set, hash, &[]) != Newest::Nothing
    }

    /// Removes an object with this hash for every lookup that starts later or is in progress. Returns whether flash may
    /// hold one; then the caller must log the removal, with the [`SmallStore::next_order`] read after it.
    pub fn remove(&self, hash: FlashHash) -> bool {
        let (mut group, set) = self.shared.locked(self.shared.area_layout.set_layout.set(hash));
        self.shared.remove(&mut group, set, hash)
    }

    /// Whether a lookup would still find the object with this token. A change to a neighbour may make this false, too.
    pub fn is_current(&self, hash: FlashHash, token: Token) -> bool {
        let (group, set) = self.shared.locked(self.shared.area_layout.set_layout.set(hash));
        match self.shared.newest(&group, set, hash, &[]) {
            Newest::Nothing => false,
            Newest::Log { page, .. } => self.shared.log_token(&group, page) == Some(token),
            Newest::Page => is_page_token(&group, set, token),
        }
    }

    /// Whether inserts can continue for a while even if the device completes nothing.
    pub fn has_space(&self) -> bool {
        self.shared.log.has_space()
    }

    /// Removes all objects, also for lookups in progress. The caller must log the flush, with the
    /// [`SmallStore::next_order`] read after it.
    pub fn flush(&self) {
        self.shared.log.flush();
    }

    /// Writes full segments, reclaims the log's end ahead of need, rewrites sets. Waits for the device. Call it
    /// regularly; of several concurrent callers only one does the work.
    pub fn maintain(&self, now: u32) {
        if let Some(mut maintenance) = self.shared.maintain(now) {
            self.shared.fill_zeros(&mut maintenance.zero_fill);
        }
    }

    /// Seals the open segment even if it is not full, and submits all writes.
    pub fn seal(&self, now: u32) {
        self.shared.log.seal_open();
        self.maintain(now);
    }

    pub fn stats(&self) -> Stats {
        let shared = &self.shared;
        let (free_log_segments, buffer_bytes) = shared.log.space();
        Stats {
            counts: shared.counters.read(),
            page_objects: shared.page_objects.load(Ordering::Relaxed),
            log_objects: shared.log_objects.load(Ordering::Relaxed),
            tombstones: shared.tombstones.load(Ordering::Relaxed),
            index_bytes: shared.index_bytes() as u64,
            buffer_bytes: buffer_bytes as u64,
            sets: u64::from(shared.area_layout.set_layout.sets),
            free_log_segments: free_log_segments as u64,
        }
    }

    /// Lookups that ended as misses because the device's queue was full, or the set's group changed at each try.
    pub fn undecided_lookups(&self) -> u64 {
        let counters = &self.shared.counters;
        counters.lookups_refused.load(Ordering::Relaxed) + counters.lookups_contended.load(Ordering::Relaxed)
    }

    /// Bytes of the index.
    pub fn index_bytes(&self) -> usize {
        self.shared.index_bytes()
    }

    /// Bytes of memory that the index needs soon, because it has less than `reserve` left, or so little that objects
    /// would be evicted.
    pub fn wanted_memory(&self, reserve: usize) -> usize {
        self.shared.memory_bound.wanted(self.shared.index_bytes(), reserve)
    }

    /// Lowers the bound of the index if far more than `reserve` is left; returns the difference in bytes.
    pub fn release_index(&self, reserve: usize) -> usize {
        self.shared.memory_bound.release(self.shared.index_bytes(), reserve)
    }

    /// Increases the bound of the index by `bytes`.
    pub fn grow_index(&self, bytes: usize) {
        self.shared.memory_bound.increase(bytes);
    }

    /// RAM in use: index and buffers.
    pub fn memory_bytes(&self) -> usize {
        self.shared.index_bytes() + self.shared.log.space().1
    }

    /// Asserts every invariant. No other method may run at the same time.
    pub fn verify(&self) {
        self.shared.verify();
    }
}

/// The newest state of a key, by its entries or its page's filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Newest {
    Nothing,
    /// An entry of the log with this index has the key's tag.
    Log {
        index: usize,
        page: u32,
    },
    /// The set's page may have it.
    Page,
}

impl SmallShared {
    /// Locks the group of a set; returns it with the set's index in it. Applies a flush that the group has not seen.
    pub(super) fn locked(&self, set: u32) -> (LockedGroup<'_>, usize) {
        let group = self.groups[set as usize / SETS].lock().expect("no thread panics with a group");
        let before = group.totals(&self.area_layout.set_layout);
        let mut locked = LockedGroup { shared: self, group, before };
        let epoch = self.log.epoch();
        if locked.epoch != epoch {
            locked.clear(epoch);
        }
        (locked, set as usize % SETS)
    }

    pub(super) fn index_bytes(&self) -> usize {
        let segments = self.area_layout.log.segments as usize;
        let fixed = self.groups.len() * size_of::<Mutex<SetGroup>>() + segments * size_of::<AtomicU64>();
        fixed + self.group_bytes.load(Ordering::Relaxed) as usize
    }

    /// Whether the index is near its bound, so that objects must be evicted.
    pub(super) fn is_short_of_memory(&self) -> bool {
        self.memory_bound.is_near(self.index_bytes())
    }

    pub(super) fn insert(&self, object: &Object<'_>, now: u32) -> Result<Token, SmallDrop> {
        let bytes = page::record_bytes(object).ok_or(SmallDrop::Large)?;
        if object.is_expired(now) {
            return Err(SmallDrop::Expired);
        }
        if self.memory_bound.is_reached(self.index_bytes()) {
            return Err(SmallDrop::Memory);
        }
        let set_layout = &self.area_layout.set_layout;
        let hash = object.key.hash;
        let (mut group, set) = self.locked(set_layout.set(hash));
        if group.len(set) == usize::from(u8::MAX) {
            return Err(SmallDrop::Crowded);
        }
        let name = (set_layout.set(hash), set_layout.tag(hash));
        let position = self.log.append(&LogAppend::New(object, bytes), name).ok_or(SmallDrop::Busy)?;
        self.publish(&mut group, set, hash, position);
        Counters::one(&self.counters.inserted);
        Counters::add(&self.counters.inserted_bytes, bytes);
        self.options.pools.occupy(Occupied::Small, object.key.pool, bytes as u64);
        Ok(token_at(&group, position.log_clock))
    }

    /// Counts bytes of pools' records on flash.
    pub(super) fn occupy(&self, pools: &[(u16, u64)]) {
        pools.iter().for_each(|&(pool, bytes)| self.options.pools.occupy(Occupied::Small, pool, bytes));
    }

    /// Subtracts the records of a page from the bytes of their pools.
    pub(super) fn reclaim_bytes(&self, page: &[u8]) {
        let reclaimed = page::pool_bytes(page);
        reclaimed.iter().for_each(|&(pool, bytes)| self.options.pools.reclaim(Occupied::Small, pool, bytes));
    }

    /// Makes an object that was appended under the same lock the newest of its key.
    pub(super) fn publish(&self, group: &mut SetGroup, set: usize, hash: FlashHash, position: LogPosition) {
        if group.epoch != position.epoch {
            group.clear(position.epoch);
        }
        let page = position.page;
        let set_layout = &self.area_layout.set_layout;
        if let Some(twin) = self.entry_at(group, set, hash, page) {
            group.remove(set_layout, set, twin);
        }
        let tag = set_layout.tag(hash);
        group.repeats = group.repeats.wrapping_add(u32::from(position.repeats));
        let pushed = group.push(set_layout, set, Entry::Object { page, hit: false, tag });
        assert!(pushed, "there was space");
    }

    /// The newest place where a lookup would search. Entries in the `foreign` pages are known to be of another key.
    pub(super) fn newest(&self, group: &SetGroup, set: usize, hash: FlashHash, foreign: &[u32]) -> Newest {
        let set_layout = &self.area_layout.set_layout;
        let (tag, mark) = (set_layout.tag(hash), set_layout.mark(hash));
        for (index, entry) in group.entries(set_layout, set).enumerate().rev() {
            match entry {
                Entry::Tombstone { mark: m } if m == mark => return Newest::Nothing,
                Entry::Object { page, tag: t, .. } if t == tag && !foreign.contains(&page) => {
                    return Newest::Log { index, page };
                }
                _ => {}
            }
        }
        if group.may_hold(set_layout, set, hash) { Newest::Page } else { Newest::Nothing }
    }

    /// Hides a key. Returns whether flash may hold it.
    pub(super) fn remove(&self, group: &mut SetGroup, set: usize, hash: FlashHash) -> bool {
        if self.newest(group, set, hash, &[]) == Newest::Nothing {
            return group.is_unclean(set);
        }
        let set_layout = &self.area_layout.set_layout;
        let space = group.tombstones() < usize::from(self.options.tombstones_per_group);
        let pushed = space && group.push(set_layout, set, Entry::Tombstone { mark: set_layout.mark(hash) });
        if !pushed {
            Counters::one(&self.counters.voided_by_tombstones);
            group.invalidate(set_layout, set);
        }
        if !pushed || group.tombstones() > usize::from(self.options.tombstones_per_group) / 2 {
            self.enqueue(group, set_layout.set(hash));
        }
        true
    }

    /// The token of an object of a group in a page of the log.
    pub(super) fn log_token(&self, group: &SetGroup, page: u32) -> Option<Token> {
        self.log.header(page).map(|header| token_at(group, header.log_clock))
    }

    /// Queues a group for a search of sets to rewrite.
    pub(super) fn enqueue(&self, group: &mut SetGroup, set: u32) {
        if !group.queued {
            group.queued = true;
            self.queue.lock().expect("no thread panics with the queue").push_back(set / SETS as u32);
        }
    }

    /// Offset of a set's page, or of a page of the log, by its number in the area.
    pub(super) fn offset(&self, number: u32) -> u64 {
        self.area.start + u64::from(number) * PAGE as u64
    }

    pub(super) fn verify(&self) {
        let mut totals = GroupTotals::default();
        for index in 0..self.groups.len() {
            let (group, _) = self.locked((index * SETS) as u32);
            group.verify(&self.area_layout.set_layout);
            assert!(group.rewrites.is_empty(), "a page is being written");
            for set in 0..SETS {
                for entry in group.entries(&self.area_layout.set_layout, set) {
                    let alive = !matches!(entry, Entry::Object { page, .. } if !self.log.is_used(page));
                    assert!(alive, "{entry:?} of set {set} of group {index} is in no segment");
                }
            }
            let group_totals = group.totals(&self.area_layout.set_layout);
            totals.page_objects += group_totals.page_objects;
            totals.log_objects += group_totals.log_objects;
            totals.tombstones += group_totals.tombstones;
            totals.bytes += group_totals.bytes;
        }
        let sum = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as usize;
        assert_eq!(sum(&self.page_objects), totals.page_objects);
        assert_eq!(sum(&self.log_objects), totals.log_objects);
        assert_eq!(sum(&self.tombstones), totals.tombstones);
        assert_eq!(sum(&self.group_bytes), totals.bytes);
        self.log.verify();
    }
}

/// The token of an object in the log's page of a moment. An open page may get several versions of an object, so the
/// token includes the group's count of repeats.
pub(super) fn token_at(group: &SetGroup, log_clock: u64) -> Token {
    Token(log_clock << REPEATS_BITS | u64::from(group.repeats) & ((1 << REPEATS_BITS) - 1))
}

/// The token of objects in a set's page: its generation, and the group's version, since generations are reused.
pub(super) fn page_token(group: &SetGroup, set: usize) -> Token {
    Token(IN_PAGE | u64::from(group.generation(set)) << 32 | u64::from(group.version))
}

/// Whether the page of a set is still the same; each new one changes the version at least once.
pub(super) fn is_page_token(group: &SetGroup, set: usize, token: Token) -> bool {
    let changes = group.version.wrapping_sub(token.0 as u32);
    let same_generation = (token.0 ^ page_token(group, set).0) >> 32 == 0;
    same_generation && changes < GENERATIONS
}

/// A locked group. Unlocking it adds its changes to the totals.
pub(super) struct LockedGroup<'a> {
    pub(super) shared: &'a SmallShared,
    pub(super) group: MutexGuard<'a, SetGroup>,
    pub(super) before: GroupTotals,
}

impl Deref for LockedGroup<'_> {
    type Target = SetGroup;

    fn deref(&self) -> &SetGroup {
        &self.group
    }
}

impl DerefMut for LockedGroup<'_> {
    fn deref_mut(&mut self) -> &mut SetGroup {
        &mut self.group
    }
}

impl Drop for LockedGroup<'_> {
    fn drop(&mut self) {
        let (before, after) = (self.before, self.group.totals(&self.shared.area_layout.set_layout));
        let shift = |counter: &AtomicU64, before: usize, after: usize| {
            if before != after {
                counter.fetch_add((after as u64).wrapping_sub(before as u64), Ordering::Relaxed);
            }
        };
        shift(&self.shared.page_objects, before.page_objects, after.page_objects);
        shift(&self.shared.log_objects, before.log_objects, after.log_objects);
        shift(&self.shared.tombstones, before.tombstones, after.tombstones);
        shift(&self.shared.group_bytes, before.bytes, after.bytes);
    }
}
