//! DRAM over flash: what evictions discard goes to flash, and what is asked for comes back.
//!
//! ```text
//! get     store ---miss---> tier (RAM index, then the device) ---found---> promoted into the store ---> the store's item
//!                                                                    +---> answered as it was found
//! set     store, and under the key's lock the copy on flash is forgotten
//! evict   store --- under the key's lock ---> tier, unless flash holds it unchanged
//! ```
//! The protocol between the two is in `docs/concurrency.md`, "The lower tier". A get that finds nothing in the store
//! waits for the device, on the thread of its caller (`raise.rs`). Operations that depend on a present value bring it up first.

use crate::cache::Cache;
use crate::clock::{Clock, Time};
use crate::flash::idle_demotion::IdleLimit;
use crate::flash::memory_split::MemorySplit;
use crate::flash::promoted_keys::PromotedKeys;
use crate::flash::promotion::{FlashPromotion, Promotions};
use crate::flash::read::PendingReads;
use crate::flash::threads::IoThreads;
use crate::maintenance::TICK;
use crate::wakeup::Waker;
use ebbtide_flash::device::DriveLog;
use ebbtide_flash::{Key, Object, Opening, Tier, TierStats, Token};
use ebbtide_store::{Item, LowerTier, Store};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The tier's upkeep is due after so many demotions, or such a part of its memory: its buffers are small.
const MAINTENANCE_DEMOTIONS: u64 = 32;
const MAINTENANCE_SHARE: u64 = 64;
/// How long evictions ahead of need wait for room on flash at most, and how often they look.
const MAX_BACKGROUND_WAIT: Duration = Duration::from_secs(1);
const WAIT_STEP: Duration = Duration::from_micros(100);
/// The longest key on flash.
const MAX_KEY_BYTES: usize = 250;

/// What the flash of a cache did since it was built.
#[derive(Clone, Debug)]
pub struct FlashStats {
    /// Objects that came back to DRAM.
    pub promoted: u64,
    /// Objects that were answered from flash and stayed there alone.
    pub served: u64,
    /// Objects that were found on flash and could not come back, for want of memory, or of room on flash for what would go for
    /// them. Gets are answered from flash then, and count as served; what needs the value in memory misses.
    pub promotions_refused: u64,
    /// Values that went to flash because nobody had read them for so long ([`crate::FlashLimits::max_idle_seconds`]).
    pub idle: u64,
    /// Evicted objects that flash held already.
    pub unchanged: u64,
    /// Writes and deletes that were refused for their CAS token though the value came from flash and has not changed since: the token was
    /// that of an older value, or it was not kept.
    pub unknown_tokens: u64,
    /// What is chosen between the two.
    pub promotion: FlashPromotion,
    /// In what lesser ways the device works than it could, for the operator: without direct I/O, say.
    pub notices: Vec<String>,
    pub tier: TierStats,
}

pub(crate) struct FlashTier {
    pub(crate) tier: Arc<Tier>,
    pub(crate) reads: PendingReads,
    pub(crate) promotions: Promotions,
    /// For scans.
    pub(crate) promoted_keys: PromotedKeys,
    notices: Vec<String>,
    pub(crate) memory_split: MemorySplit,
    /// The time in seconds since 1970 at which the store's time was zero. With a manual clock that is 0.
    pub(crate) epoch_seconds: u64,
    pub(crate) clock: Clock,
    /// How long a write waits until flash has room for what it evicts.
    pub(crate) demotion_wait: Duration,
    /// The store's time, as the background thread of the cache saw it last.
    now_ms: AtomicU64,
    /// Wakes the thread of the upkeep.
    waker: Waker,
    is_stopping: AtomicBool,
    is_flushing: AtomicBool,
    /// HeldValue by whoever does the upkeep.
    pub(crate) maintaining: Mutex<()>,
    /// Since the last upkeep that they asked for; objects, each with so much more as it has of the bytes.
    demoted: AtomicU64,
    pub(crate) promoted: AtomicU64,
    pub(crate) promotions_refused: AtomicU64,
    pub(crate) served: AtomicU64,
    unchanged: AtomicU64,
    /// Of values that handles hold. They may outlive the cache, and must not keep its device.
    pub(crate) pinned_bytes: Arc<AtomicU64>,
    /// Of the tokens that the store keeps.
    pub(crate) token_bytes: AtomicU64,
    pub(crate) idle: IdleLimit,
}

impl FlashTier {
    /// With what flash holds; waits for the device.
    pub fn start(
        opening: Opening,
        memory_split: MemorySplit,
        promotions: Promotions,
        (clock, time): (Clock, &Time),
        demotion_wait: Duration,
    ) -> Result<(Arc<Self>, IoThreads), ebbtide_flash::Error> {
        let io = IoThreads::start(opening.device())?;
        let started = opening.start(seconds_of_flash(time.epoch_seconds(), time.now_ms()))?;
        Ok((Self::new(started, memory_split, promotions, (clock, time), demotion_wait), io))
    }

    /// Over a tier, with what its operator should know of it.
    pub fn new(
        (tier, notices): (Arc<Tier>, Vec<String>),
        memory_split: MemorySplit,
        promotions: Promotions,
        (clock, time): (Clock, &Time),
        demotion_wait: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            tier,
            reads: PendingReads::new(memory_split.bytes()),
            promotions,
            promoted_keys: PromotedKeys::default(),
            notices,
            memory_split,
            epoch_seconds: time.epoch_seconds(),
            clock,
            demotion_wait,
            now_ms: AtomicU64::new(time.now_ms()),
            waker: Waker::default(),
            is_stopping: AtomicBool::new(false),
            is_flushing: AtomicBool::new(false),
            maintaining: Mutex::new(()),
            demoted: AtomicU64::new(0),
            promoted: AtomicU64::new(0),
            promotions_refused: AtomicU64::new(0),
            served: AtomicU64::new(0),
            unchanged: AtomicU64::new(0),
            pinned_bytes: Arc::default(),
            token_bytes: AtomicU64::new(0),
            idle: IdleLimit::default(),
        })
    }

    /// Does the upkeep until the end of the cache: for a thread of its own.
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
        // Release pairs with the Acquire there.
        self.is_stopping.store(true, Ordering::Release);
    }

    /// Leaves on flash what the next start must know; waits for the device.
    pub fn close_tier(&self) {
        // What the device refuses is found by the next start, which then is one after a crash.
        drop(self.tier.close(self.seconds(self.now_ms.load(Ordering::Relaxed))));
    }

    /// Tells the upkeep the time, and those who have fetched something from a device that has failed meanwhile that they have
    /// missed. Does not wait for the device, as the upkeep may.
    pub fn note_time(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
        if self.tier.has_failed(self.seconds(now_ms)) {
            self.cancel_reads();
        }
    }

    /// The upkeep of the tier; waits for the device.
    pub fn maintain(&self, now_ms: u64) {
        let _maintaining = self.maintaining.lock().expect("the maintenance of flash has panicked");
        self.tier.maintain(self.seconds(now_ms));
    }

    /// Whether flash can take what is evicted now; if not, the upkeep is woken. With a manual clock demotions wait for the device
    /// themselves.
    pub fn can_demote(&self) -> bool {
        let can = self.clock == Clock::Manual || self.tier.has_space();
        if !can {
            self.waker.wake();
        }
        can
    }

    /// How long evictions ahead of need wait for room on flash now: as long as a write does if writes or the index wait for them,
    /// and not at all if the memory is to get smaller. Then what flash has no room for is lost.
    pub fn max_demotion_wait(&self, store: &Store) -> Duration {
        match () {
            () if !store.resize_done() => Duration::ZERO,
            () if store.needs_shrink() || store.has_no_free_segment() => self.demotion_wait,
            () => self.demotion_wait.max(MAX_BACKGROUND_WAIT),
        }
    }

    /// Waits until flash has room for more, for as long as `max` says. Meanwhile the time goes on.
    pub fn wait_until_can_demote(&self, max: impl Fn() -> Duration, tick: impl Fn() -> u64) {
        thread::yield_now();
        let begun = Instant::now();
        while !self.tier.has_space() && begun.elapsed() < max() {
            self.waker.wake();
            thread::sleep(WAIT_STEP);
            tick();
        }
    }

    /// An object was demoted: sees to the upkeep. With a manual clock the device is waited for here, so that nothing is lost because it
    /// is slower than the clock.
    pub(crate) fn note_demotion(&self, bytes: u64, now_ms: u64) {
        let most = self.memory_split.bytes() / MAINTENANCE_SHARE;
        let weight = most / MAINTENANCE_DEMOTIONS + bytes;
        if self.demoted.fetch_add(weight, Ordering::Relaxed) + weight < most {
            return;
        }
        self.demoted.store(0, Ordering::Relaxed);
        match self.clock {
            Clock::System => self.waker.wake(),
            Clock::Manual => {
                let _maintaining = self.maintaining.lock().expect("the maintenance of flash has panicked");
                self.tier.settle(self.seconds(now_ms));
            }
        }
    }

    /// What of the cache's memory is for the tier: its limit, and what is in use. Values that were read come on top of the limit.
    pub fn memory(&self) -> (u64, u64) {
        (self.memory_split.bytes(), self.tier.memory_bytes() + self.overhead_bytes())
    }

    /// Memory in use that is not the tier's own.
    fn overhead_bytes(&self) -> u64 {
        let values = self.reads.held_bytes() + self.pinned_bytes.load(Ordering::Relaxed);
        let tokens = self.token_bytes.load(Ordering::Relaxed);
        self.promotions.memory_bytes() + self.promoted_keys.memory_bytes() + values + tokens
    }

    /// Whether flash may have a key that was requested and that memory has not.
    pub(crate) fn may_contain(&self, key: &[u8]) -> bool {
        let hash = Key::new(key).hash;
        self.tier.missed(hash);
        self.tier.could_exist(hash)
    }

    /// Asserts every invariant of the tier.
    pub fn verify(&self) {
        self.reads.verify();
        let _quiet = self.maintaining.lock().expect("the maintenance of flash has panicked");
        self.tier.verify();
    }

    fn stats(&self, unknown_tokens: u64) -> FlashStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut tier = self.tier.stats();
        tier.memory_bytes += self.overhead_bytes();
        FlashStats {
            promoted: read(&self.promoted),
            served: read(&self.served),
            promotions_refused: read(&self.promotions_refused),
            idle: self.idle.moved(),
            unchanged: read(&self.unchanged),
            unknown_tokens,
            promotion: self.promotions.policy(),
            notices: self.notices.clone(),
            tier,
        }
    }

    /// What is left of a life on flash at a time of the store; `None` if it never ends.
    pub(crate) fn remaining(&self, expiry: u32, store_ms: u64) -> Option<Duration> {
        let ends_ms = (u64::from(expiry) * 1000).saturating_sub(self.epoch_seconds * 1000);
        (expiry != 0).then(|| Duration::from_millis(ends_ms.saturating_sub(store_ms)))
    }

    /// When an item expires as flash writes it: 0 for never. None for what has no place there: marks, clients' own tokens, an expiry beyond 32
    /// bits of seconds.
    pub(crate) fn expiry_on_flash(&self, item: &Item<'_>) -> Option<u32> {
        let extension = item.extension();
        let has_marks = extension.stale || extension.won || extension.token.is_some();
        let expiry = item.expiry_seconds().map_or(Ok(0), |seconds| u32::try_from(self.epoch_seconds + seconds));
        expiry.ok().filter(|_| !has_marks && item.key().len() <= MAX_KEY_BYTES)
    }

    /// The store's time in the seconds of flash.
    pub(crate) fn seconds(&self, store_ms: u64) -> u32 {
        seconds_of_flash(self.epoch_seconds, store_ms)
    }
}

fn seconds_of_flash(epoch_seconds: u64, store_ms: u64) -> u32 {
    u32::try_from(epoch_seconds + store_ms / 1000).unwrap_or(u32::MAX)
}

/// What the store knows of flash.
pub(crate) struct Flash(pub Arc<FlashTier>);

impl LowerTier for Flash {
    fn demote(&self, item: &Item<'_>, now_ms: u64) {
        let flash = &*self.0;
        flash.promotions.note_evicted(item.stored_bytes());
        let key = Key::new(item.key());
        let Some(expiry) = flash.expiry_on_flash(item) else {
            flash.tier.remove(key.hash);
            return;
        };
        if item.extension().copied && flash.tier.could_exist(key.hash) {
            flash.unchanged.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let value: Vec<&[u8]> = item.slices().collect();
        let object = Object { key, value: &value, client_flags: item.flags(), attributes: 0, expiry };
        flash.tier.insert(&object, flash.seconds(now_ms));
        flash.note_demotion(object.value_bytes() as u64, now_ms);
    }

    fn is_current(&self, key: &[u8], copy: u64) -> bool {
        // The flush first: one that begins after this look makes the promoted item worthless, too.
        !self.0.is_flushing.load(Ordering::SeqCst) && self.0.tier.is_current(Key::new(key).hash, Token(copy))
    }

    fn remove(&self, key: &[u8]) -> bool {
        self.0.tier.remove(Key::new(key).hash)
    }

    fn flush(&self, raise: &mut dyn FnMut()) {
        self.0.is_flushing.store(true, Ordering::SeqCst);
        raise();
        self.0.tier.flush();
        self.0.is_flushing.store(false, Ordering::SeqCst);
    }
}

impl Cache {
    pub fn has_flash(&self) -> bool {
        self.shared.flash.is_some()
    }

    /// Leaves on flash what the next start must know, and lets go of it: what only flash has is absent from then on, and what is evicted is
    /// lost. The end of a cache does this, too; it is for those whose clones live until the process ends and change nothing more: of a
    /// change that comes later only the log of removals knows, if there is one. Waits for the device, half a minute at most.
    pub fn close_flash(&self) {
        self.shared.flash_shutdown.close(false);
    }

    /// What the flash of this cache did; `None` without flash.
    pub fn flash_stats(&self) -> Option<FlashStats> {
        self.shared.flash.as_ref().map(|flash| flash.stats(self.shared.store.unknown_tokens()))
    }

    /// Asks the drives below flash how worn they are and what they write; `None` where they do not tell: without flash, on anything
    /// but NVMe drives, and where this process may not ask (which takes `CAP_SYS_ADMIN`). Waits for them, for seconds at most.
    pub fn ask_flash_drives(&self) -> Option<DriveLog> {
        self.shared.flash.as_ref()?.tier.read_drive_logs()
    }
}
