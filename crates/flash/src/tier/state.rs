//! The tier: its parts, and the methods that need no file of their own.

use super::capacity_split::CapacitySplit;
use super::pool_names::TierPools;
use super::small_area::SmallArea;
use super::superblock::{DeviceRuns, LastRun, Superblock};
use super::token_section::PoolTokens;
use crate::admission::Admission;
use crate::deletion_log::{DeletionLog, StoreKind};
use crate::device::{
    self, BlockingRing, Device, Direction, DriveLog, Health, ThreadRing, TransferOutcome, TransferRequest,
};
use crate::large::LargeLog;
use crate::pools::{FlashPool, PoolStats};
use crate::{Error, FlashHash, KeyRouting, Token};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Set in the tokens of large objects. Tokens of large objects count regions and tokens of small ones count pages;
/// neither count reaches this bit. The bit above it is used elsewhere.
pub(super) const LARGE: u64 = 1 << 62;
/// Number of insert locks. The hash of a key selects its lock, so inserts of one key are serialized.
pub(super) const STRIPES: usize = 64;
/// Value of `awaited_beyond` while no split waits for memory.
pub(super) const NONE_AWAITED: i64 = i64::MIN;

/// Longest wait of [`Tier::settle`], and the time between two of its checks.
pub(super) const MAX_SETTLE: Duration = Duration::from_secs(30);
pub(super) const SETTLE_STEP: Duration = Duration::from_micros(50);

/// The flash tier.
pub struct Tier {
    pub(super) device: Arc<dyn Device>,
    pub(super) large: Arc<LargeLog>,
    pub(super) small: Arc<SmallArea>,
    pub(super) admission: Admission,
    /// The superblock that is on the device while the tier runs.
    pub(super) superblock: Mutex<Superblock>,
    pub(super) pools: TierPools,
    /// Area for the checkpoint that a stop writes; `None` if nothing is kept for another start.
    pub(super) checkpoint: Option<Range<u64>>,
    pub(super) deletion_log: Option<DeletionLog>,
    pub(super) last_run: LastRun,
    /// CAS tokens that the last stop kept, until they are taken.
    pub(super) tokens: Mutex<Vec<PoolTokens>>,
    pub(super) inserting: Box<[Mutex<()>]>,
    /// Latest time passed to any method, in seconds since 1970. It never decreases, not even over a restart.
    pub(super) latest: AtomicU32,
    /// Second in which the device's health was last judged. `maintained`: second in which admission was last
    /// maintained.
    pub(super) observed: AtomicU32,
    pub(super) maintained: AtomicU32,
    pub(super) dropped_failed: AtomicU64,
    pub(super) dropped_closed: AtomicU64,
    /// Objects refused because the log prefers copies of hit objects.
    pub(super) displaced: AtomicU64,
    pub(super) is_closed: AtomicBool,
    /// True while an announced flush has not yet been carried out.
    pub(super) flush_is_pending: AtomicBool,
    /// True once a superblock was submitted that forbids recovery from a crash, because the deletion log broke and
    /// could not be marked.
    pub(super) is_unlogged: AtomicBool,
    pub(super) superblock_bytes: AtomicU64,
    pub(super) capacity_split: CapacitySplit,
    /// Bytes by which the bounds of both indexes together exceed the division of [`super::TierOptions::memory_bytes`];
    /// negative if they are smaller. Changes only under the mutex of the split.
    pub(super) beyond_division: AtomicI64,
    /// The value of `beyond_division` that a split of the capacity waits for; [`NONE_AWAITED`] if none waits.
    pub(super) awaited_beyond: AtomicI64,
}

impl Tier {
    /// The runs of the device, whether or not the present one started with its objects.
    pub fn runs(&self) -> DeviceRuns {
        let superblock = self.superblock.lock().unwrap();
        DeviceRuns { device: superblock.shape.identity, last: self.last_run, present: superblock.run }
    }

    /// The rules by which the caller divides keys among pools, and whether their change is finished.
    pub fn key_routing(&self) -> KeyRouting {
        self.superblock.lock().unwrap().key_routing
    }

    /// Has the next start find these rules. Waits for the device.
    ///
    /// # Errors
    /// [`Error::Transfer`] and [`Error::Sync`] when the device refuses the write.
    pub fn set_key_routing(&self, key_routing: KeyRouting) -> Result<(), Error> {
        match self.key_routing() == key_routing {
            true => Ok(()),
            false => self.replace_superblock(|superblock| Superblock { key_routing, ..*superblock }),
        }
    }

    /// Makes a superblock durable, also one that is as before: a write that failed may have left another. Not after a
    /// close, whose superblock is the last.
    pub(super) fn replace_superblock(&self, change: impl FnOnce(&Superblock) -> Superblock) -> Result<(), Error> {
        let mut superblock = self.superblock.lock().unwrap();
        let next = change(&superblock);
        if self.is_closed.load(Relaxed) {
            return Ok(());
        }
        let block = next.encode();
        let bytes = block.len() as u64;
        device::write(&*self.device, 0, block)?;
        self.device.sync()?;
        *superblock = next;
        self.superblock_bytes.fetch_add(bytes, Relaxed);
        Ok(())
    }

    /// Submits the superblock; it is written once the device is served. Returns whether the device accepted the
    /// request.
    pub(super) fn submit_superblock(self: &Arc<Self>, superblock: &Superblock) -> bool {
        // The request may wait for as long as the device exists, and the tier holds the device: a strong reference
        // would be a cycle.
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

    /// Gives the calling thread a ring of its own: until the ring is dropped, the thread submits and completes the
    /// reads of its lookups itself. `None` if the device does not support this, or the thread already has a ring.
    pub fn thread_ring(&self) -> Option<ThreadRing> {
        Arc::clone(&self.device).thread_ring()
    }

    /// Whether the calling thread has a ring for the reads of its lookups.
    pub fn has_thread_ring(&self) -> bool {
        self.device.has_thread_ring()
    }

    /// Gives the calling thread a ring for the reads of its lookups until it waits for them. `None` if the device does
    /// not support this, or the thread already has a ring.
    pub fn blocking_ring(&self) -> Option<BlockingRing> {
        Arc::clone(&self.device).blocking_ring()
    }

    /// Reads the health logs of the drives; `None` if they provide none. Waits for the drives, at most for seconds.
    pub fn read_drive_logs(&self) -> Option<DriveLog> {
        self.device.read_drive_logs()
    }

    /// Ends [`Device::serve`] after the transfers in progress. A later lookup that needs the device is a miss.
    pub fn stop(&self) {
        self.device.stop();
    }

    /// Maintains both stores, admission and the device's health. Call it about every 10 ms, from a thread that may wait
    /// for the device. `now` is in seconds since 1970.
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

    /// As [`Tier::maintain`], and repeats it until the device has no transfer in progress: for callers whose clock does
    /// not advance by itself. Waits half a minute at most.
    pub fn settle(self: &Arc<Self>, now: u32) {
        let deadline = Instant::now() + MAX_SETTLE;
        self.maintain(now);
        while self.device.monitor().under_way() > 0 && Instant::now() < deadline {
            std::thread::sleep(SETTLE_STEP);
            self.maintain(now);
        }
    }

    /// Whether a lookup may find an object. No I/O.
    pub fn could_exist(&self, hash: FlashHash) -> bool {
        self.health() != Health::Failed && (self.large.could_exist(hash) || self.small.could_exist(hash))
    }

    /// Whether inserts can continue for a while even if the device completes nothing. A caller that delays inserts
    /// until this is true loses none. Always true for a tier that was closed or whose device has failed, since it drops
    /// every insert.
    pub fn has_space(&self) -> bool {
        let takes_nothing = self.is_closed.load(Relaxed) || self.health() == Health::Failed;
        takes_nothing || self.small.has_space() && self.large.has_space()
    }

    /// Writes that the device has completed since it was opened: while there is no space, an increase shows that the
    /// device works.
    pub fn completed_writes(&self) -> u64 {
        self.device.monitor().completed_writes()
    }

    /// How often the lock of the large log's index that guards a hash was taken: for tests.
    pub fn index_locks(&self, hash: FlashHash) -> u64 {
        self.large.index_locks(hash)
    }

    /// Removes an object: no lookup that starts later or is in progress finds it, and none after a crash. Returns
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

    /// Logs a removal. The caller reads `order` after the removal, as both stores require.
    pub(super) fn log(&self, store: StoreKind, hash: FlashHash, order: u64) {
        if let Some(deletion_log) = &self.deletion_log {
            deletion_log.log_deletion(store, hash, order);
        }
    }

    pub(super) fn next_order(&self, store: StoreKind) -> u64 {
        match store {
            StoreKind::Small => self.small.next_order(),
            StoreKind::Large => self.large.next_order(),
        }
    }

    /// Whether a lookup would still find the object with this token. A change to a neighbour may make this false, too.
    pub fn is_current(&self, hash: FlashHash, token: Token) -> bool {
        let is_there = match large_token(token) {
            Some(token) => self.large.is_current(hash, token),
            None => self.small.is_current(hash, token),
        };
        is_there && self.health() != Health::Failed
    }

    /// As [`Tier::is_current`], for the object that a read has found: a current one counts as hit, for reclaim.
    pub fn is_current_hit(&self, hash: FlashHash, token: Token) -> bool {
        let is_there = match large_token(token) {
            Some(token) => self.large.is_current_hit(hash, token),
            None => self.small.is_current(hash, token),
        };
        is_there && self.health() != Health::Failed
    }

    /// Records that a flush is planned. A start before the flush is carried out finds nothing, since its planned time
    /// is not recorded.
    pub fn announce_flush(&self) {
        self.record_pending_flush(true);
    }

    pub(super) fn record_pending_flush(&self, waits: bool) {
        if self.flush_is_pending.swap(waits, Relaxed) != waits
            && let Some(deletion_log) = &self.deletion_log
        {
            deletion_log.flush_is_pending(waits);
        }
    }

    /// Removes all objects, also for lookups in progress. Clears a pending flush.
    pub fn flush(&self) {
        self.small.flush();
        self.large.flush();
        self.pools.live.clear_small();
        if let Some(deletion_log) = &self.deletion_log {
            for store in [StoreKind::Small, StoreKind::Large] {
                deletion_log.log_flush(store, self.next_order(store));
            }
        }
        self.record_pending_flush(false);
    }

    /// Records a request for a key that is not in DRAM, for admission by history. Takes no lock.
    pub fn missed(&self, hash: FlashHash) {
        self.admission.missed(hash);
    }

    /// Bytes of RAM in use: indexes, filters, buffers, pending reads.
    pub fn memory_bytes(&self) -> u64 {
        (self.large.memory_bytes() + self.small.memory_bytes() + self.admission.memory_bytes()) as u64
    }

    /// Bytes that the indexes need soon: for an index that has less than `reserve` bytes left, or so little that it
    /// would evict objects while flash has space for them; or for a split of the capacity that waits for memory.
    pub fn wanted_memory(&self, reserve: u64) -> u64 {
        let of_indexes = self.small.wanted_memory(reserve as usize) + self.large.wanted_memory(reserve as usize);
        let awaited = self.awaited_beyond().map_or(0, |beyond| beyond - self.beyond_division.load(Relaxed));
        awaited.max(of_indexes as i64) as u64
    }

    /// The value of `beyond_division` that a waiting split needs; `None` if no split waits or none can be made.
    fn awaited_beyond(&self) -> Option<i64> {
        let takes_nothing = self.is_closed.load(Relaxed) || self.health() == Health::Failed;
        Some(self.awaited_beyond.load(Relaxed)).filter(|&beyond| beyond != NONE_AWAITED && !takes_nothing)
    }

    /// Increases the bounds of the indexes by this memory: bytes that were released before, or more than
    /// [`super::TierOptions::memory_bytes`]. While a split sets the bounds, returns false and changes nothing; the
    /// caller tries again.
    pub fn grow_memory(&self, bytes: u64, reserve: u64) -> bool {
        let Ok(_split) = self.capacity_split.split.try_lock() else { return false };
        let to_small = self.small.wanted_memory(reserve as usize).min(bytes as usize);
        self.small.grow_index(to_small);
        self.large.grow_index(bytes as usize - to_small);
        self.beyond_division.fetch_add(bytes as i64, Relaxed);
        true
    }

    /// Takes from the indexes the bytes that far exceed their use plus `reserve`, and returns their number. Only one
    /// thread at a time may move memory.
    pub fn release_memory(&self, reserve: u64) -> u64 {
        let Ok(_split) = self.capacity_split.split.try_lock() else { return 0 };
        // The bytes that a waiting split needs stay until the split is made.
        if self.awaited_beyond().is_some() {
            return 0;
        }
        let released = self.small.release_index(reserve as usize) + self.large.release_index(reserve as usize);
        self.beyond_division.fetch_sub(released as i64, Relaxed);
        released as u64
    }

    /// Bytes given to the indexes since the start, less the bytes they have released.
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

    /// Health of the device, as judged within the last second of work.
    pub fn health(&self) -> Health {
        self.device.monitor().health()
    }

    /// Asserts every invariant. No other method may run at the same time.
    pub fn verify(&self) {
        self.large.verify();
        self.small.verify();
    }

    /// Returns the latest time passed to any method, `now` included. The first thread to pass a new second logs it for
    /// a restart: an expired object stays expired when the clock goes back.
    pub(super) fn observe_time(&self, now: u32) -> u32 {
        if self.latest.load(Relaxed) >= now {
            return self.latest.load(Relaxed);
        }
        if self.latest.fetch_max(now, Relaxed) < now
            && let Some(deletion_log) = &self.deletion_log
        {
            deletion_log.record_time(now);
        }
        self.latest.load(Relaxed)
    }

    /// Whether the device has failed. The first caller in each second judges the device, because the maintenance thread
    /// may be waiting for a device that does nothing.
    pub fn has_failed(&self, now: u32) -> bool {
        if self.observed.load(Relaxed) != now && self.observed.swap(now, Relaxed) != now {
            let beside = self.deletion_log.as_ref().map_or(Duration::ZERO, DeletionLog::stalled_for);
            self.device.monitor().observe(Instant::now(), beside);
        }
        self.health() == Health::Failed
    }
}

/// The token of the large log in a token of the tier; `None` if the token is of a small object.
pub(super) fn large_token(token: Token) -> Option<Token> {
    (token.0 & LARGE != 0).then_some(Token(token.0 & !LARGE))
}

pub(super) fn token_of_large(token: Token) -> Token {
    assert_eq!(token.0 & LARGE, 0, "the sequences of regions have run out");
    Token(token.0 | LARGE)
}
