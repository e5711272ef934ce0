//! Small objects on flash: set pages, with a log before them.
//!
//! ```text
//! insert -> open segment (RAM) -> log (flash) -- a set's objects together --> the set's page (4 KiB)
//! ```
//! A key belongs to one set, and a set has one page. Objects gather in a log, whose index in RAM finds all that belong to a
//! set; when the log's end comes to an object, its set's page is rewritten for all of them, or the object ends. Each get
//! costs at most one read, but for collisions of tags. Removed keys have a tombstone in RAM until their page is rewritten.
//!
//! | where | what |
//! |---|---|
//! | `page` | the format of pages |
//! | `group`, `filter` | what RAM knows of the sets: log index, tombstones, filters |
//! | `log` | segments, from the open one in RAM to the oldest on flash |
//! | `lookup` | lookups, with their reads |
//! | `choose` | pure decisions: which objects move, get another life, end |
//! | `reclaim` | the log's end, and sets to be mended |
//! | `moving` | pages are composed and written |
//! | `zeros` | pages are written with zeros before they get objects |
//! | `scan` | a walk over all objects |
//! | `recover`, `checkpoint` | what RAM knows, from flash |
//!
//! Threads: [`SmallStore::lookup`], `remove`, `is_current`, `could_exist` never wait for the device; `insert` neither. What
//! waits is [`SmallStore::maintain`]. The protocol is in `docs/concurrency.md`.

mod checkpoint;
mod choose;
mod filter;
mod group;
mod log;
mod lookup;
mod moving;
mod options;
mod page;
mod reclaim;
mod recover;
mod scan;
mod stats;
#[cfg(test)]
mod tests;
mod zeros;

pub use options::Options;
pub use page::{PAGE, RECORD_MOST, record_bytes};
pub use recover::Recovered;
pub use stats::{Counts, Stats};

/// What a store that has ended leaves to the next one of the same device: what named its objects names none of the next one's.
#[derive(Clone, Default)]
pub struct Legacy {
    counters: Arc<Counters>,
    moment: u64,
    version: u32,
}

use crate::Error;
use crate::bound::Bound;
use crate::device::Device;
use crate::object::{Done, Key, KeyHash, Lookup, Object, Token};
use group::{Entry, GENERATIONS, Group, SETS, Totals};
use log::{Addition, Log, Place};
use options::Division;
use stats::Counters;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// Tokens of objects in sets' pages; others name a place in the log.
const IN_PAGE: u64 = 1 << 63;
/// Bits of a token for the repeats of a group: the moment has the 44 above, which are petabytes.
const REPEATS_BITS: u32 = 18;

/// A version so much later is that of no page that anyone has read.
const VERSIONS_SKIPPED: u32 = 1 << 16;
/// How often the end of a store looks whether writes are over.
const END_STEP: Duration = Duration::from_micros(100);
/// How long it waits for them.
const END_MOST: Duration = Duration::from_secs(5);

/// Why an object was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Its record is longer than [`RECORD_MOST`], or its key no key.
    Large,
    Expired,
    /// The log is full: the device or `maintain` does not keep up.
    Busy,
    /// The index has no memory left.
    Memory,
    /// Its set has too many objects in the log.
    Crowded,
}

/// The small objects in one area of a device.
pub struct SmallStore {
    shared: Arc<Shared>,
}

struct Shared {
    device: Arc<dyn Device>,
    area: Range<u64>,
    options: Options,
    division: Division,
    groups: Box<[Mutex<Group>]>,
    log: Log,
    counters: Arc<Counters>,
    page_objects: AtomicU64,
    log_objects: AtomicU64,
    tombstones: AtomicU64,
    group_bytes: AtomicU64,
    index_bound: Bound,
    /// Groups that have sets to mend: many tombstones, or unclean.
    queue: Mutex<VecDeque<u32>>,
    /// Held by the thread that does the upkeep.
    upkeep: Mutex<reclaim::Upkeep>,
}

impl Legacy {
    pub fn counts(&self) -> Counts {
        self.counters.read()
    }
}

impl SmallStore {
    /// An empty store; nothing that lies in the area is read.
    ///
    /// # Errors
    ///
    /// Refuses options that make no sense, alone or for the area.
    ///
    /// # Panics
    ///
    /// Panics when the area reaches beyond the device.
    pub fn new(device: Arc<dyn Device>, area: Range<u64>, options: Options) -> Result<Self, Error> {
        Self::after(&Legacy::default(), device, area, options)
    }

    /// The same, after another one has ended, which counted from the same counters.
    ///
    /// # Errors
    ///
    /// As [`SmallStore::new`].
    pub fn after(legacy: &Legacy, device: Arc<dyn Device>, area: Range<u64>, options: Options) -> Result<Self, Error> {
        assert!(area.end <= device.capacity(), "an area up to {} on a device of {} bytes", area.end, device.capacity());
        let division = options.divide(&area)?;
        let groups = (0..division.shape.groups()).map(|_| Mutex::new(Group::new(legacy.version))).collect();
        let log = Log::new(division.log, legacy.moment);
        let index_bound = Bound::new(options.index_bytes);
        let shared = Shared {
            device,
            area,
            options,
            division,
            groups,
            log,
            counters: Arc::clone(&legacy.counters),
            page_objects: AtomicU64::new(0),
            log_objects: AtomicU64::new(0),
            tombstones: AtomicU64::new(0),
            group_bytes: AtomicU64::new(0),
            index_bound,
            queue: Mutex::default(),
            upkeep: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Takes an object, instead of any older one of its key. It is found from now on.
    ///
    /// # Errors
    ///
    /// Says why it was not taken. An older one stays: whoever inserts because of a change has removed it before.
    pub fn insert(&self, object: &Object<'_>, now: u32) -> Result<Token, Dropped> {
        let result = self.shared.insert(object, now);
        if let Err(reason) = result {
            let counters = &self.shared.counters;
            Counters::one(match reason {
                Dropped::Large => &counters.dropped_large,
                Dropped::Expired => &counters.dropped_expired,
                Dropped::Busy => &counters.dropped_busy,
                Dropped::Memory => &counters.dropped_memory,
                Dropped::Crowded => &counters.dropped_crowded,
            });
        }
        result
    }

    /// Looks a key up. If flash must be read, `done` is called when that is over, maybe before this returns; otherwise
    /// never.
    pub fn lookup(&self, key: Key<'_>, now: u32, done: Done) -> Lookup {
        lookup::begin(&self.shared, key, now, done)
    }

    /// Whether a lookup may find an object with this hash. No I/O.
    pub fn could_exist(&self, hash: KeyHash) -> bool {
        let (group, set) = self.shared.locked(self.shared.division.shape.set(hash));
        self.shared.newest(&group, set, hash, &[]) != Newest::Nothing
    }

    /// From now on no lookup finds an object with this hash, also none that is under way. Says whether flash may hold one;
    /// then a recovery must be told of the removal, with the [`SmallStore::next_order`] read after it.
    pub fn remove(&self, hash: KeyHash) -> bool {
        let (mut group, set) = self.shared.locked(self.shared.division.shape.set(hash));
        self.shared.remove(&mut group, set, hash)
    }

    /// Whether the object with this token is still what a lookup would find. May say no because of a neighbour.
    pub fn is_current(&self, hash: KeyHash, token: Token) -> bool {
        let (group, set) = self.shared.locked(self.shared.division.shape.set(hash));
        match self.shared.newest(&group, set, hash, &[]) {
            Newest::Nothing => false,
            Newest::Log { page, .. } => self.shared.log_token(&group, page) == Some(token),
            Newest::Page => is_page_token(&group, set, token),
        }
    }

    /// Whether inserts can go on for a while though the device does nothing.
    pub fn has_room(&self) -> bool {
        self.shared.log.has_room()
    }

    /// All objects are gone, also for lookups under way. A recovery must be told of it, with the [`SmallStore::next_order`]
    /// read after it.
    pub fn flush(&self) {
        self.shared.log.flush();
    }

    /// Writes full segments, reclaims the log's end ahead of need, mends sets. Waits for the device. Call it again and again; of
    /// several threads that call it one works.
    pub fn maintain(&self, now: u32) {
        if let Some(mut upkeep) = self.shared.maintain(now) {
            self.shared.write_zeros(&mut upkeep.zeros);
        }
    }

    /// Brings all that was inserted on its way to flash, also from a segment that is not full.
    pub fn seal(&self, now: u32) {
        self.shared.log.seal_open();
        self.maintain(now);
    }

    /// Ends the store: lookups find nothing from now on, also those under way, and when this returns nothing of it is being written
    /// or will be, and nothing is taken. Waits for the device; none if that does nothing for long, and the store goes on.
    pub fn end(&self) -> Option<Legacy> {
        let shared = &self.shared;
        let mut upkeep = shared.upkeep.lock().expect("no thread panics with the upkeep");
        let deadline = Instant::now() + END_MOST;
        while shared.log.is_writing() {
            if Instant::now() > deadline {
                return None;
            }
            thread::sleep(END_STEP);
        }
        upkeep.has_ended = true;
        shared.log.close();
        // Groups that have not seen the last flush count what it took.
        (0..shared.groups.len()).for_each(|group| drop(shared.locked((group * SETS) as u32)));
        Counters::add(&shared.counters.ended_with_the_store, self.stats().objects() as usize);
        self.flush();
        Some(self.legacy())
    }

    /// What it would leave if it ended now.
    pub fn legacy(&self) -> Legacy {
        let shared = &self.shared;
        let versions = shared.groups.iter().map(|group| group.lock().expect("no thread panics with a group").version);
        let version = versions.max().unwrap_or(0).wrapping_add(VERSIONS_SKIPPED);
        let moment = shared.log.moment();
        Legacy { counters: Arc::clone(&shared.counters), moment, version }
    }

    pub fn stats(&self) -> Stats {
        let shared = &self.shared;
        let (free_log_segments, buffer_bytes) = shared.log.room();
        Stats {
            counts: shared.counters.read(),
            page_objects: shared.page_objects.load(Ordering::Relaxed),
            log_objects: shared.log_objects.load(Ordering::Relaxed),
            tombstones: shared.tombstones.load(Ordering::Relaxed),
            index_bytes: shared.index_bytes() as u64,
            buffer_bytes: buffer_bytes as u64,
            sets: u64::from(shared.division.shape.sets),
            free_log_segments: free_log_segments as u64,
        }
    }

    /// Whether more memory for the index would soon save objects.
    pub fn wants_memory(&self) -> bool {
        self.shared.index_bound.is_in_sight(self.shared.index_bytes())
    }

    /// From now on the index may have so many bytes more.
    pub fn raise_index(&self, bytes: usize) {
        self.shared.index_bound.raise(bytes);
    }

    /// RAM in use: index and buffers.
    pub fn memory_bytes(&self) -> usize {
        self.shared.index_bytes() + self.shared.log.room().1
    }

    /// Asserts what always holds. Nothing may be under way.
    pub fn verify(&self) {
        self.shared.verify();
    }
}

/// What the newest entry of a key, or its page's filter, says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Newest {
    Nothing,
    /// An entry of the log with this index has the key's tag.
    Log {
        index: usize,
        page: u32,
    },
    /// The set's page may have it.
    Page,
}

impl Shared {
    /// The group of a set, and the set's place in it. A flush that the group has not seen takes effect.
    fn locked(&self, set: u32) -> (Locked<'_>, usize) {
        let group = self.groups[set as usize / SETS].lock().expect("no thread panics with a group");
        let before = group.totals(&self.division.shape);
        let mut locked = Locked { shared: self, group, before };
        let epoch = self.log.epoch();
        if locked.epoch != epoch {
            locked.clear(epoch);
        }
        (locked, set as usize % SETS)
    }

    fn index_bytes(&self) -> usize {
        let segments = self.division.log.segments as usize;
        let fixed = self.groups.len() * size_of::<Mutex<Group>>() + segments * size_of::<AtomicU64>();
        fixed + self.group_bytes.load(Ordering::Relaxed) as usize
    }

    /// Whether the index comes near its bound, so that objects have to end.
    fn is_short_of_memory(&self) -> bool {
        self.index_bound.is_near(self.index_bytes())
    }

    fn insert(&self, object: &Object<'_>, now: u32) -> Result<Token, Dropped> {
        let bytes = page::record_bytes(object).ok_or(Dropped::Large)?;
        if object.is_expired(now) {
            return Err(Dropped::Expired);
        }
        if self.index_bound.is_reached(self.index_bytes()) {
            return Err(Dropped::Memory);
        }
        let shape = &self.division.shape;
        let hash = object.key.hash;
        let (mut group, set) = self.locked(shape.set(hash));
        if group.len(set) == usize::from(u8::MAX) {
            return Err(Dropped::Crowded);
        }
        let name = (shape.set(hash), shape.tag(hash));
        let place = self.log.append(&Addition::New(object, bytes), name).ok_or(Dropped::Busy)?;
        self.publish(&mut group, set, hash, place);
        Counters::one(&self.counters.inserted);
        Counters::add(&self.counters.inserted_bytes, bytes);
        Ok(token_at(&group, place.moment))
    }

    /// Makes an object that was appended under the same lock the newest of its key.
    fn publish(&self, group: &mut Group, set: usize, hash: KeyHash, place: Place) {
        if group.epoch != place.epoch {
            group.clear(place.epoch);
        }
        let page = place.page;
        let shape = &self.division.shape;
        if let Some(twin) = self.entry_at(group, set, hash, page) {
            group.remove(shape, set, twin);
        }
        let tag = shape.tag(hash);
        group.repeats = group.repeats.wrapping_add(u32::from(place.repeats));
        let pushed = group.push(shape, set, Entry::Object { page, hit: false, tag });
        assert!(pushed, "there was room");
    }

    /// What a lookup would look at first; entries of these pages are known to be another key's.
    fn newest(&self, group: &Group, set: usize, hash: KeyHash, foreign: &[u32]) -> Newest {
        let shape = &self.division.shape;
        let (tag, mark) = (shape.tag(hash), shape.mark(hash));
        for (index, entry) in group.entries(shape, set).enumerate().rev() {
            match entry {
                Entry::Tombstone { mark: m } if m == mark => return Newest::Nothing,
                Entry::Object { page, tag: t, .. } if t == tag && !foreign.contains(&page) => {
                    return Newest::Log { index, page };
                }
                _ => {}
            }
        }
        if group.may_hold(shape, set, hash) { Newest::Page } else { Newest::Nothing }
    }

    /// Hides a key. Says whether flash may hold it.
    fn remove(&self, group: &mut Group, set: usize, hash: KeyHash) -> bool {
        if self.newest(group, set, hash, &[]) == Newest::Nothing {
            return group.is_unclean(set);
        }
        let shape = &self.division.shape;
        let room = group.tombstones() < usize::from(self.options.tombstones_per_group);
        let pushed = room && group.push(shape, set, Entry::Tombstone { mark: shape.mark(hash) });
        if !pushed {
            Counters::one(&self.counters.voided_by_tombstones);
            group.void(shape, set);
        }
        if !pushed || group.tombstones() > usize::from(self.options.tombstones_per_group) / 2 {
            self.enqueue(group, shape.set(hash));
        }
        true
    }

    /// The token of an object of a group in a page of the log.
    fn log_token(&self, group: &Group, page: u32) -> Option<Token> {
        self.log.header(page).map(|header| token_at(group, header.moment))
    }

    /// Has a group looked at for sets to mend.
    fn enqueue(&self, group: &mut Group, set: u32) {
        if !group.queued {
            group.queued = true;
            self.queue.lock().expect("no thread panics with the queue").push_back(set / SETS as u32);
        }
    }

    /// A set's page, or a page of the log, by its number in the area.
    fn offset(&self, number: u32) -> u64 {
        self.area.start + u64::from(number) * PAGE as u64
    }

    fn verify(&self) {
        let mut totals = Totals::default();
        for index in 0..self.groups.len() {
            let (group, _) = self.locked((index * SETS) as u32);
            group.verify(&self.division.shape);
            assert!(group.moves.is_empty(), "a page is being written");
            for set in 0..SETS {
                for entry in group.entries(&self.division.shape, set) {
                    let alive = !matches!(entry, Entry::Object { page, .. } if !self.log.is_used(page));
                    assert!(alive, "{entry:?} of set {set} of group {index} is in no segment");
                }
            }
            let own = group.totals(&self.division.shape);
            totals.page_objects += own.page_objects;
            totals.log_objects += own.log_objects;
            totals.tombstones += own.tombstones;
            totals.bytes += own.bytes;
        }
        let sum = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as usize;
        assert_eq!(sum(&self.page_objects), totals.page_objects);
        assert_eq!(sum(&self.log_objects), totals.log_objects);
        assert_eq!(sum(&self.tombstones), totals.tombstones);
        assert_eq!(sum(&self.group_bytes), totals.bytes);
        self.log.verify();
    }
}

/// Names an object in the log's page of a moment. While a page is filled it may get several versions of an object, so the
/// group counts those.
fn token_at(group: &Group, moment: u64) -> Token {
    Token(moment << REPEATS_BITS | u64::from(group.repeats) & ((1 << REPEATS_BITS) - 1))
}

/// Names what a set's page holds: its generation, and the group's version, since generations come again.
fn page_token(group: &Group, set: usize) -> Token {
    Token(IN_PAGE | u64::from(group.generation(set)) << 32 | u64::from(group.version))
}

/// Whether the page of a set is still the same; each new one changes the version at least once.
fn is_page_token(group: &Group, set: usize, token: Token) -> bool {
    let changes = group.version.wrapping_sub(token.0 as u32);
    let same_generation = (token.0 ^ page_token(group, set).0) >> 32 == 0;
    same_generation && changes < GENERATIONS
}

/// A locked group. When it is unlocked, what changed is added to the totals.
struct Locked<'a> {
    shared: &'a Shared,
    group: MutexGuard<'a, Group>,
    before: Totals,
}

impl Deref for Locked<'_> {
    type Target = Group;

    fn deref(&self) -> &Group {
        &self.group
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Group {
        &mut self.group
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let (before, after) = (self.before, self.group.totals(&self.shared.division.shape));
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
