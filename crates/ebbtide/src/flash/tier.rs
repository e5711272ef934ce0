//! The flash tier of a cache: evicted items go to flash, and flash answers for keys that memory does not have.
//!
//! ```text
//! get     store ---miss---> tier (index in memory, then the device) ---hit---> promoted into the store
//!                                                                        +---> served as it was found
//! set     store; under the lock of the key's buckets the copy on flash is removed
//! evict   store --- under the lock of the key's buckets ---> tier, unless flash holds the item unchanged
//! ```
//! `docs/concurrency.md`, "The lower tier", has the protocol between the two. This file has the state that all pools
//! share; `pool_flash.rs` has that of one pool, the view of its store; `read.rs` and `resolve.rs` read from flash.

use crate::byte_size::ByteSize;
use crate::clock::{Clock, EngineClock};
use crate::flash::idle_demotion::IdleLimit;
use crate::flash::kept_tokens::TokenStores;
use crate::flash::memory_split::{MemorySplit, TOKENS_SHARE};
use crate::flash::pending_reads::PendingReads;
use crate::flash::promoted_keys::PromotedKeys;
use crate::flash::promotion::{self, FlashPromotion, PromotionSetting};
use crate::flash::range_uses::{self, RangeUses};
use crate::wakeup::{TICK, Waker};
use ebbtide_flash::{Tier, TierStats};
use ebbtide_store::{Item, Store};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;
use std::time::Duration;

/// Maintenance is due after this many demotions, or after this part of the flash memory was demoted: buffers are small.
const MAINTENANCE_DEMOTIONS: u64 = 32;
const MAINTENANCE_SHARE: u64 = 64;
/// How long evictions ahead of need wait for a place on flash at most.
const MAX_BACKGROUND_WAIT: Duration = Duration::from_secs(1);
/// The shortest time without a completed write after which a device counts as stalled.
const MIN_STALL: Duration = Duration::from_secs(2);
pub(super) const WAIT_STEP: Duration = Duration::from_micros(100);
/// The longest key on flash.
const MAX_KEY_BYTES: usize = 250;

/// Counters of the flash of a cache, since it was built.
#[derive(Clone, Debug)]
pub struct FlashStats {
    /// Objects that were promoted into memory.
    pub promoted: u64,
    /// Objects that were served from flash and stayed there.
    pub served: u64,
    /// Promotions that were refused, for want of memory or of space on flash for the items that they would evict. A get
    /// is then served from flash, and counts as served; an operation that needs the value in memory misses.
    pub promotions_refused: u64,
    /// Values that were demoted because they were idle (`FlashLimits::max_idle_seconds`).
    pub idle: u64,
    /// Evicted objects that flash held already.
    pub unchanged: u64,
    /// Writes and deletes that were refused for their CAS token although the value was promoted from flash and has not
    /// changed since: the token was that of an older value, or it was not kept.
    pub unknown_tokens: u64,
    /// The promotion policy.
    pub promotion: FlashPromotion,
    /// For the operator: in which ways the device works less well than it could, such as without direct I/O.
    pub notices: Vec<String>,
    /// Bytes of memory that flash has now: `tier.memory_bytes` of them are in use, and items have the rest of the
    /// memory.
    pub memory_limit_bytes: u64,
    pub tier: TierStats,
}

/// How long flash is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlashWaits {
    /// By a write, for its demotion.
    pub demotion: Duration,
    /// Time of a stop for demotions.
    pub drain: Duration,
}

impl Default for FlashWaits {
    fn default() -> Self {
        Self { demotion: Duration::from_millis(50), drain: Duration::from_secs(30) }
    }
}

pub(crate) struct FlashTier {
    pub tier: Arc<Tier>,
    pub reads: Arc<PendingReads>,
    /// Of the pools that use it.
    promoted_keys: Mutex<Vec<Weak<PromotedKeys>>>,
    pub promotion: PromotionSetting,
    notices: Vec<String>,
    /// The notice of pools that the last run had on flash and the options do not name.
    dropped_pools: OnceLock<String>,
    pub memory_split: MemorySplit,
    /// The time in seconds since 1970 at which the store's time was zero. With a manual clock that is 0.
    pub epoch_seconds: u64,
    pub clock: Clock,
    /// How long a write waits until flash has space for the evicted items.
    pub demotion_wait: Duration,
    /// How long a stop demotes entries.
    pub drain_limit: Duration,
    /// The store's time at the first look that found flash full, since the device completed a write; 0 after a look
    /// that found space. It only bounds waits, so it is Relaxed: a stale value makes one wait too long or too short.
    full_since_ms: AtomicU64,
    /// The device's completed writes at the last look that found flash full; Relaxed as above.
    full_writes: AtomicU64,
    /// The store's time, as the maintenance thread of the cache saw it last.
    now_ms: AtomicU64,
    /// Wakes the maintenance thread of flash.
    pub(super) waker: Waker,
    is_stopping: AtomicBool,
    /// Held by the thread that does the maintenance.
    pub maintaining: Mutex<()>,
    /// Since the last maintenance that demotions asked for: bytes, and a fixed weight for each object.
    demoted: AtomicU64,
    /// With a manual clock: that maintenance is due.
    is_settle_due: AtomicBool,
    pub promoted: AtomicU64,
    pub promotions_refused: AtomicU64,
    pub served: AtomicU64,
    pub unchanged: AtomicU64,
    /// Bytes of values that handles hold. Handles may outlive the cache, and must not keep its device.
    pub pinned_bytes: Arc<AtomicU64>,
    pub token_stores: TokenStores,
    /// Of the tokens that stores keep, and of the filters of promotions.
    pub token_bytes: AtomicU64,
    pub filter_bytes: AtomicU64,
    pub idle: IdleLimit,
    pub(super) range_uses: RangeUses,
}

impl FlashTier {
    /// Over a tier, with the notices of its start.
    pub fn new(
        (tier, notices): (Arc<Tier>, Vec<String>),
        memory_split: MemorySplit,
        promotion: FlashPromotion,
        (clock, time): (Clock, &EngineClock),
        waits: FlashWaits,
    ) -> Arc<Self> {
        Arc::new(Self {
            reads: Arc::new(PendingReads::new(Arc::clone(&tier), memory_split.planned_bytes())),
            tier,
            promoted_keys: Mutex::default(),
            promotion: PromotionSetting::new(promotion),
            notices,
            dropped_pools: OnceLock::new(),
            memory_split,
            epoch_seconds: time.epoch_seconds(),
            clock,
            demotion_wait: waits.demotion,
            drain_limit: waits.drain,
            full_since_ms: AtomicU64::new(0),
            full_writes: AtomicU64::new(0),
            now_ms: AtomicU64::new(time.now_ms()),
            waker: Waker::default(),
            is_stopping: AtomicBool::new(false),
            maintaining: Mutex::new(()),
            demoted: AtomicU64::new(0),
            is_settle_due: AtomicBool::new(false),
            promoted: AtomicU64::new(0),
            promotions_refused: AtomicU64::new(0),
            served: AtomicU64::new(0),
            unchanged: AtomicU64::new(0),
            pinned_bytes: Arc::default(),
            token_stores: TokenStores::default(),
            token_bytes: AtomicU64::new(0),
            filter_bytes: AtomicU64::new(0),
            idle: IdleLimit::default(),
            range_uses: RangeUses::default(),
        })
    }

    /// A pool uses it for as long as these live.
    pub fn register(&self, promoted_keys: &Arc<PromotedKeys>) {
        let mut all = self.promoted_keys.lock().expect("nothing panics under this lock");
        all.retain(|keys| keys.strong_count() > 0);
        all.push(Arc::downgrade(promoted_keys));
    }

    /// Does the maintenance until the cache is shut down: for a thread of its own.
    pub fn run_maintenance(&self) {
        self.waker.register_current_thread();
        while !self.is_stopping.load(Ordering::Acquire) {
            self.waker.reset();
            self.maintain(self.now_ms.load(Ordering::Relaxed));
            thread::park_timeout(TICK);
        }
    }

    /// Ends [`FlashTier::run_maintenance`].
    pub fn stop_maintenance(&self) {
        // Release pairs with the Acquire in `run_maintenance`.
        self.is_stopping.store(true, Ordering::Release);
    }

    /// Leaves on flash the state that the next start needs; waits for the device.
    pub fn close_tier(&self) {
        // After an error of the device the next start is one after a crash.
        let now = self.seconds(self.now_ms.load(Ordering::Relaxed));
        drop(self.tier.close_with_tokens(now, || self.token_stores.kept()));
    }

    /// Tells the maintenance the time. If the device has failed, pending reads are answered as misses. Does not wait
    /// for the device, as the maintenance may.
    pub fn note_time(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
        if self.tier.has_failed(self.seconds(now_ms)) {
            self.reads.cancel();
        }
    }

    /// The maintenance of the tier; waits for the device.
    pub fn maintain(&self, now_ms: u64) {
        let _maintaining = self.maintaining.lock().expect("the maintenance of flash has panicked");
        self.tier.maintain(self.seconds(now_ms));
    }

    /// How long the device has completed no write while flash has had no space for evicted items; `None` if it has
    /// space. Then the maintenance of flash is woken. Each eviction asks this before. With a manual clock demotions
    /// wait for the device themselves.
    pub fn full_for(&self, now_ms: u64) -> Option<Duration> {
        if self.clock == Clock::Manual || self.tier.has_space() {
            if self.full_since_ms.load(Ordering::Relaxed) != 0 {
                self.full_since_ms.store(0, Ordering::Relaxed);
            }
            return None;
        }
        self.waker.wake();
        let writes = self.tier.completed_writes();
        let has_progress = self.full_writes.swap(writes, Ordering::Relaxed) != writes;
        let since_ms = match self.full_since_ms.load(Ordering::Relaxed) {
            since_ms if since_ms != 0 && !has_progress => since_ms,
            _ => {
                self.full_since_ms.store(now_ms, Ordering::Relaxed);
                now_ms
            }
        };
        Some(Duration::from_millis(now_ms.saturating_sub(since_ms)))
    }

    /// The time without a completed write after which a device counts as stalled. Writes of a device that is behind
    /// may be further apart than one eviction waits.
    fn stall_limit(&self) -> Duration {
        self.demotion_wait.max(MIN_STALL)
    }

    /// Whether an eviction waits until flash has space for its items. A slow device delays each eviction; one that
    /// stalls costs the bound once, and not once for each eviction: later evictions lose their items at once.
    pub fn delays_evictions(&self, now_ms: u64) -> bool {
        self.full_for(now_ms).is_some_and(|full| full < self.stall_limit())
    }

    /// Whether evictions ahead of need, which have waited for `waited`, wait on for flash that has been full for
    /// `full`: as long as a write does if writes or an index wait for them. For a memory limit that was lowered they
    /// do not wait, unless the index of flash takes the memory. Objects that flash cannot take then are dropped.
    pub fn waits_ahead_of_need(&self, store: &Store, waited: Duration, full: Duration) -> bool {
        match () {
            () if !store.resize_done() && !self.memory_split.is_growing() => false,
            () if store.needs_shrink() || store.has_no_free_segment() => {
                waited < self.demotion_wait && full < self.stall_limit()
            }
            () => waited < self.demotion_wait.max(MAX_BACKGROUND_WAIT),
        }
    }

    /// An object was demoted: the maintenance is woken in time. With a manual clock it is left to
    /// [`FlashTier::settle`]: the caller may hold locks.
    pub(super) fn note_demotion(&self, bytes: u64) {
        let max = self.memory_split.planned_bytes() / MAINTENANCE_SHARE;
        let weight = max / MAINTENANCE_DEMOTIONS + bytes;
        if self.demoted.fetch_add(weight, Ordering::Relaxed) + weight < max {
            return;
        }
        self.demoted.store(0, Ordering::Relaxed);
        match self.clock {
            Clock::System => self.waker.wake(),
            // Relaxed: a thread that sees it too late leaves the wait to the next one.
            Clock::Manual => self.is_settle_due.store(true, Ordering::Relaxed),
        }
    }

    /// With a manual clock waits for the device once enough was demoted, so that no object is lost because the device
    /// is slower than the clock. No bucket is locked.
    pub(crate) fn settle(&self, now_ms: u64) {
        if self.is_settle_due.load(Ordering::Relaxed) && self.is_settle_due.swap(false, Ordering::Relaxed) {
            let _maintaining = self.maintaining.lock().expect("the maintenance of flash has panicked");
            self.tier.settle(self.seconds(now_ms));
        }
    }

    /// Moves memory between items and flash, by one step of `memory_split.rs`.
    pub fn rebalance_memory(&self) {
        self.memory_split.rebalance(&self.tier);
    }

    /// The limit of the flash memory, and the memory in use. Values that were read come on top of the limit.
    pub fn memory(&self) -> (u64, u64) {
        (self.limit_bytes(), self.tier.memory_bytes() + self.overhead_bytes())
    }

    /// The memory of flash now, that of tokens and filters beyond their plan included.
    pub fn limit_bytes(&self) -> u64 {
        self.memory_split.bytes() + self.unplanned_bytes()
    }

    /// As [`MemorySplit::reserved_bytes`], with the same.
    pub fn reserved_bytes(&self) -> u64 {
        self.memory_split.reserved_bytes() + self.unplanned_bytes()
    }

    /// Bytes of tokens and filters beyond their part of the planned memory: of pools that were added, or of many small
    /// ones.
    fn unplanned_bytes(&self) -> u64 {
        let planned = self.memory_split.planned_bytes();
        let planned = promotion::filters_within(planned) + planned / TOKENS_SHARE;
        let used = self.token_bytes.load(Ordering::Relaxed) + self.filter_bytes.load(Ordering::Relaxed);
        used.saturating_sub(planned)
    }

    /// Memory in use outside of the tier.
    fn overhead_bytes(&self) -> u64 {
        let values = self.reads.held_bytes() + self.pinned_bytes.load(Ordering::Relaxed);
        let tokens = self.token_bytes.load(Ordering::Relaxed);
        let filters = self.filter_bytes.load(Ordering::Relaxed);
        let promoted_keys = self.promoted_keys.lock().expect("nothing panics under this lock");
        let of_scans = promoted_keys.iter().filter_map(Weak::upgrade).map(|keys| keys.memory_bytes());
        of_scans.sum::<u64>() + filters + values + tokens + range_uses::BYTES
    }

    /// Has the start tell of this number of pools with these bytes on flash that the start does not name.
    pub fn note_dropped_pools(&self, (pools, bytes): (usize, u64)) {
        if pools > 0 {
            let bytes = ByteSize::bytes(bytes);
            let told = format!(
                "dropped, as no pool of their names is configured: {bytes} of pools of the last run, {pools} in number"
            );
            self.dropped_pools.get_or_init(|| told);
        }
    }

    /// Asserts every invariant of the tier.
    pub fn verify(&self) {
        self.reads.verify();
        let _quiet = self.maintaining.lock().expect("the maintenance of flash has panicked");
        self.tier.verify();
        self.memory_split.verify(&self.tier);
    }

    pub fn stats(&self, unknown_tokens: u64) -> FlashStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut tier = self.tier.stats();
        tier.memory_bytes += self.overhead_bytes();
        FlashStats {
            promoted: read(&self.promoted),
            served: read(&self.served),
            promotions_refused: read(&self.promotions_refused),
            idle: self.idle.demoted(),
            unchanged: read(&self.unchanged),
            unknown_tokens,
            promotion: self.promotion.get(),
            notices: self.notices.iter().chain(self.dropped_pools.get()).cloned().collect(),
            memory_limit_bytes: self.limit_bytes(),
            tier,
        }
    }

    /// The remaining life of an expiry on flash at a time of the store; `None` if it never expires.
    pub fn remaining(&self, expiry: u32, store_ms: u64) -> Option<Duration> {
        let expiry_ms = (u64::from(expiry) * 1000).saturating_sub(self.epoch_seconds * 1000);
        (expiry != 0).then(|| Duration::from_millis(expiry_ms.saturating_sub(store_ms)))
    }

    /// The expiry of an item in the format of flash: 0 for never. `None` for items that flash cannot hold: with meta
    /// flags, with a client's CAS token, or with an expiry beyond 32 bits of seconds.
    pub(super) fn expiry_on_flash(&self, item: &Item<'_>) -> Option<u32> {
        let extension = item.extension();
        let has_flags = extension.stale || extension.won || extension.token.is_some();
        let expiry = item.expiry_seconds().map_or(Ok(0), |seconds| u32::try_from(self.epoch_seconds + seconds));
        expiry.ok().filter(|_| !has_flags && item.key().len() <= MAX_KEY_BYTES)
    }

    /// The store's time in the seconds of flash.
    pub fn seconds(&self, store_ms: u64) -> u32 {
        seconds_of_flash(self.epoch_seconds, store_ms)
    }
}

pub(crate) fn seconds_of_flash(epoch_seconds: u64, store_ms: u64) -> u32 {
    u32::try_from(epoch_seconds + store_ms / 1000).unwrap_or(u32::MAX)
}
