//! The tier: its parts, and what needs no file of its own.

use super::capacity_split::CapacitySplit;
use super::pool_names::TierPools;
use super::small_area::SmallArea;
use super::superblock::Superblock;
use crate::admission::Admission;
use crate::deletion_log::{DeletionLog, StoreKind};
use crate::device::{BlockingRing, Device, Direction, DriveLog, Health, ThreadRing, TransferOutcome, TransferRequest};
use crate::large::LargeLog;
use crate::pools::{FlashPool, PoolStats};
use crate::small::PAGE;
use crate::{FlashHash, Token};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Marks the tokens of large objects. Theirs count regions and small ones' pages, neither gets so far; the bit above it
/// is used.
pub(super) const LARGE: u64 = 1 << 62;
/// Inserts of one key go one after the other: they share one of so many locks.
pub(super) const STRIPES: usize = 64;
/// No split of the capacity waits for memory.
pub(super) const NONE_AWAITED: i64 = i64::MIN;

/// How long [`Tier::settle`] waits at most, and how often it looks.
pub(super) const MAX_SETTLE: Duration = Duration::from_secs(30);
pub(super) const SETTLE_STEP: Duration = Duration::from_micros(50);

/// The flash tier.
pub struct Tier {
    pub(super) device: Arc<dyn Device>,
    pub(super) large: Arc<LargeLog>,
    pub(super) small: Arc<SmallArea>,
    pub(super) admission: Admission,
    /// As it is on the device while the tier runs.
    pub(super) superblock: Mutex<Superblock>,
    pub(super) pools: TierPools,
    /// Where a stop leaves what it knows.
    pub(super) checkpoint: Option<Range<u64>>,
    pub(super) removals: Option<DeletionLog>,
    pub(super) last_run: Option<u64>,
    pub(super) inserting: Box<[Mutex<()>]>,
    /// The latest time that anyone has named: it never goes back, also not with a restart.
    pub(super) latest: AtomicU32,
    /// When the device was judged last, and when admission was told of time.
    pub(super) observed: AtomicU32,
    pub(super) maintained: AtomicU32,
    pub(super) dropped_failed: AtomicU64,
    pub(super) dropped_closed: AtomicU64,
    /// Objects that were refused in the place of copies.
    pub(super) displaced: AtomicU64,
    pub(super) is_closed: AtomicBool,
    /// A flush is to come.
    pub(super) flush_is_pending: AtomicBool,
    /// The superblock says that no crash is recovered from, since the log of removals broke and takes no mark.
    pub(super) is_unlogged: AtomicBool,
    pub(super) superblock_bytes: AtomicU64,
    pub(super) capacity_split: CapacitySplit,
    /// What the bounds of both indexes have beyond the division of [`super::TierOptions::memory_bytes`], or less than
    /// it. Changes under the mutex of the split.
    pub(super) beyond_division: AtomicI64,
    /// The value of `beyond_division` that a split of the capacity waits for; [`NONE_AWAITED`] without one.
    pub(super) awaited_beyond: AtomicI64,
}

impl Tier {
    /// The number of this run of the flash, which the next start finds on the device.
    pub fn run_number(&self) -> u64 {
        self.superblock.lock().unwrap().run
    }

    /// The number of the run that used the device before this one, whether this one began with its objects or empty;
    /// `None` if the device was new or its superblock is not readable.
    pub fn last_run_number(&self) -> Option<u64> {
        self.last_run
    }

    /// Has it written when the device is served. Says whether the device took it.
    pub(super) fn submit_superblock(self: &Arc<Self>, superblock: &Superblock) -> bool {
        // The request may wait for as long as the device lives, which lives as long as the tier.
        let tier = Arc::downgrade(self);
        let written = move |outcome: TransferOutcome| {
            let bytes = outcome.result.map_or(0, |()| outcome.buffer.len());
            if let Some(tier) = tier.upgrade() {
                tier.superblock_bytes.fetch_add(bytes as u64, Relaxed);
            }
        };
        let buffer = superblock.encode();
        let request = TransferRequest { direction: Direction::Write, offset: 0, buffer, done: Box::new(written) };
        self.device.submit(request).is_ok()
    }

    /// Has the calling thread move by itself what its lookups read, for as long as it keeps this. None where that does
    /// not work, or the thread has such a ring.
    pub fn thread_ring(&self) -> Option<ThreadRing> {
        Arc::clone(&self.device).thread_ring()
    }

    /// Whether the calling thread moves by itself what its lookups read.
    pub fn has_thread_ring(&self) -> bool {
        self.device.has_thread_ring()
    }

    /// Has the calling thread move by itself what its lookups read from now until it waits for that. None where that
    /// does not work, or the thread has a ring.
    pub fn blocking_ring(&self) -> Option<BlockingRing> {
        Arc::clone(&self.device).blocking_ring()
    }

    /// Asks the drives below how they are; None where they do not tell. Waits for them, for seconds at most.
    pub fn read_drive_logs(&self) -> Option<DriveLog> {
        self.device.read_drive_logs()
    }

    /// Ends [`Device::serve`] after the transfers that are under way. A later lookup that needs the device is a miss.
    pub fn stop(&self) {
        self.device.stop();
    }

    /// The upkeep of both stores, of the admission and of the device's health; to be called again and again, about
    /// every 10 ms, from a thread that may wait for the device. `now` is in seconds since 1970.
    pub fn maintain(self: &Arc<Self>, now: u32) {
        let now = self.observe_time(now);
        self.check_deletion_log();
        if self.has_failed(now) {
            return;
        }
        self.maintain_pools();
        self.update_split();
        self.small.maintain(now);
        self.large.maintain(now);
        self.turn_over_shares(now);
        if self.maintained.swap(now, Relaxed) != now {
            self.admission.maintain(now, self.written(&self.large.stats(), &self.small.stats()).total());
        }
    }

    /// As [`Tier::maintain`], and waits until the device has done what was started: for those whose time does not pass
    /// by itself. A device that does nothing is waited for half a minute.
    pub fn settle(self: &Arc<Self>, now: u32) {
        let deadline = Instant::now() + MAX_SETTLE;
        self.maintain(now);
        while self.device.account().under_way() > 0 && Instant::now() < deadline {
            std::thread::sleep(SETTLE_STEP);
            self.maintain(now);
        }
    }

    /// Whether a lookup may find an object. No I/O.
    pub fn could_exist(&self, hash: FlashHash) -> bool {
        self.health() != Health::Failed && (self.large.could_exist(hash) || self.small.could_exist(hash))
    }

    /// Bytes that a lookup would read, if it may find an object. No I/O.
    pub fn probe(&self, hash: FlashHash) -> Option<u64> {
        if self.health() == Health::Failed {
            return None;
        }
        let large = self.large.bytes_to_read(hash);
        large.or_else(|| self.small.could_exist(hash).then_some(PAGE)).map(|bytes| bytes as u64)
    }

    /// Whether inserts can go on for a while though the device does nothing. A caller that can wait with inserts until
    /// it is so loses none. A tier that was closed, or whose device has failed, has room for all that it drops.
    pub fn has_space(&self) -> bool {
        let takes_nothing = self.is_closed.load(Relaxed) || self.health() == Health::Failed;
        takes_nothing || self.small.has_space() && self.large.has_space()
    }

    /// Writes that the device has completed since it was opened: without space, one more shows that it works.
    pub fn completed_writes(&self) -> u64 {
        self.device.account().completed_writes()
    }

    /// About how many bytes a lookup would read.
    pub fn bytes_to_read(&self, hash: FlashHash) -> u64 {
        self.large.bytes_to_read(hash).unwrap_or(PAGE) as u64
    }

    /// Takes an object away: no lookup that begins later finds it, none that is under way, and none after a crash. Says
    /// whether flash may have held one.
    pub fn remove(&self, hash: FlashHash) -> bool {
        let was_small = self.remove_small(hash);
        self.remove_large(hash) || was_small
    }

    pub(super) fn remove_small(&self, hash: FlashHash) -> bool {
        let removed = self.small.remove(hash);
        if removed {
            self.log(StoreKind::Small, hash, self.next_order(StoreKind::Small));
        }
        removed
    }

    pub(super) fn remove_large(&self, hash: FlashHash) -> bool {
        let removed = self.large.remove(hash);
        if removed {
            self.log(StoreKind::Large, hash, self.next_order(StoreKind::Large));
        }
        removed
    }

    /// The order is read after the removal, as both stores want it.
    pub(super) fn log(&self, store: StoreKind, hash: FlashHash, order: u64) {
        if let Some(removals) = &self.removals {
            removals.log_removal(store, hash, order);
        }
    }

    pub(super) fn next_order(&self, store: StoreKind) -> u64 {
        match store {
            StoreKind::Small => self.small.next_order(),
            StoreKind::Large => self.large.next_order(),
        }
    }

    /// Whether the object with this token is still what a lookup would find. May say no because of a neighbour.
    pub fn is_current(&self, hash: FlashHash, token: Token) -> bool {
        let is_there = match large_token(token) {
            Some(token) => self.large.is_current(hash, token),
            None => self.small.is_current(hash, token),
        };
        is_there && self.health() != Health::Failed
    }

    /// A flush is to come: a start before that finds nothing, since nobody knows then when it was to be.
    pub fn announce_flush(&self) {
        self.record_pending_flush(true);
    }

    pub(super) fn record_pending_flush(&self, waits: bool) {
        if self.flush_is_pending.swap(waits, Relaxed) != waits
            && let Some(removals) = &self.removals
        {
            removals.flush_is_pending(waits);
        }
    }

    /// All objects are gone, also for lookups under way; no other flush is to come.
    pub fn flush(&self) {
        self.small.flush();
        self.large.flush();
        self.pools.live.clear_small();
        if let Some(removals) = &self.removals {
            for store in [StoreKind::Small, StoreKind::Large] {
                removals.log_flush(store, self.next_order(store));
            }
        }
        self.record_pending_flush(false);
    }

    /// A key was requested and is not in DRAM: for admission by history. Takes no lock.
    pub fn missed(&self, hash: FlashHash) {
        self.admission.missed(hash);
    }

    /// RAM in use: indexes, filters, buffers, reads under way.
    pub fn memory_bytes(&self) -> u64 {
        (self.large.memory_bytes() + self.small.memory_bytes() + self.admission.memory_bytes()) as u64
    }

    /// Bytes that the indexes should get soon: less than `reserve` is left to one, or so little that objects would end
    /// while flash has space for them; or a split of the capacity waits for them.
    pub fn wanted_memory(&self, reserve: u64) -> u64 {
        let of_indexes = self.small.wanted_memory(reserve as usize) + self.large.wanted_memory(reserve as usize);
        let awaited = self.awaited_beyond().map_or(0, |beyond| beyond - self.beyond_division.load(Relaxed));
        awaited.max(of_indexes as i64) as u64
    }

    /// What `beyond_division` is to be for a split that waits; none where there will be no split.
    fn awaited_beyond(&self) -> Option<i64> {
        let takes_nothing = self.is_closed.load(Relaxed) || self.health() == Health::Failed;
        Some(self.awaited_beyond.load(Relaxed)).filter(|&beyond| beyond != NONE_AWAITED && !takes_nothing)
    }

    /// Gives the indexes this memory: what was released, and beyond that more than
    /// [`super::TierOptions::memory_bytes`]. False, and nothing changes, while a split sets the bounds: to be tried
    /// again.
    pub fn grow_memory(&self, bytes: u64, reserve: u64) -> bool {
        let Ok(_split) = self.capacity_split.split.try_lock() else { return false };
        let to_small = self.small.wanted_memory(reserve as usize).min(bytes as usize);
        self.small.grow_index(to_small);
        self.large.grow_index(bytes as usize - to_small);
        self.beyond_division.fetch_add(bytes as i64, Relaxed);
        true
    }

    /// Takes from the indexes what is far more than they use and `reserve`, and answers how many bytes. One thread at a
    /// time may move memory.
    pub fn release_memory(&self, reserve: u64) -> u64 {
        let Ok(_split) = self.capacity_split.split.try_lock() else { return 0 };
        // What a split waits for stays until it is made.
        if self.awaited_beyond().is_some() {
            return 0;
        }
        let released = self.small.release_index(reserve as usize) + self.large.release_index(reserve as usize);
        self.beyond_division.fetch_sub(released as i64, Relaxed);
        released as u64
    }

    /// Bytes that the indexes were given less those that they have released, since the start.
    pub fn moved_memory(&self) -> i64 {
        self.beyond_division.load(Relaxed)
    }

    /// Bytes of both indexes.
    pub fn index_bytes(&self) -> u64 {
        (self.large.index_bytes() + self.small.index_bytes()) as u64
    }

    /// Bytes of both indexes for the objects of each of these pools, in proportion to their bytes on flash.
    pub fn pool_index_bytes<'a>(&self, pools: impl Iterator<Item = &'a FlashPool>) -> Vec<u64> {
        let (all_large, all_small) = self.pools.live.total_bytes();
        let large = (all_large, self.large.index_bytes() as u64);
        let small = (all_small, self.small.index_bytes() as u64);
        pools.map(|pool| pool.index_part(large, small)).collect()
    }

    /// Counters and gauges of a pool.
    pub fn pool_stats(&self, pool: &FlashPool) -> PoolStats {
        pool.stats(self.pool_index_bytes(std::iter::once(pool))[0])
    }

    pub fn capacity_bytes(&self) -> u64 {
        self.device.capacity()
    }

    /// As it was found within the last second of work.
    pub fn health(&self) -> Health {
        self.device.account().health()
    }

    /// Asserts every invariant. Only while nothing else is going on.
    pub fn verify(&self) {
        self.large.verify();
        self.small.verify();
    }

    /// The latest time that anyone has named, which this may be. A thread that names a new second notes it for a
    /// restart: what had expired stays so when the clock goes back.
    pub(super) fn observe_time(&self, now: u32) -> u32 {
        if self.latest.load(Relaxed) >= now {
            return self.latest.load(Relaxed);
        }
        if self.latest.fetch_max(now, Relaxed) < now
            && let Some(removals) = &self.removals
        {
            removals.record_time(now);
        }
        self.latest.load(Relaxed)
    }

    /// Whether the device has failed. Judges it once a second: the first thread to ask does so, since the thread that
    /// maintains may wait for a device that does nothing.
    pub fn has_failed(&self, now: u32) -> bool {
        if self.observed.load(Relaxed) != now && self.observed.swap(now, Relaxed) != now {
            let beside = self.removals.as_ref().map_or(Duration::ZERO, DeletionLog::stalled_for);
            self.device.account().observe(Instant::now(), beside);
        }
        self.health() == Health::Failed
    }
}

/// The large log's own token; none for one of a small object.
pub(super) fn large_token(token: Token) -> Option<Token> {
    (token.0 & LARGE != 0).then_some(Token(token.0 & !LARGE))
}

pub(super) fn token_of_large(token: Token) -> Token {
    assert_eq!(token.0 & LARGE, 0, "the sequences of regions have run out");
    Token(token.0 | LARGE)
}
