//! Which values go to flash and when: the limits that can be changed at any time, and the values that go there because nobody reads them.
//!
//! What memory needs room for goes to flash by evictions. With `max_idle_seconds` the background thread also walks through memory and moves
//! what was idle for so long, as long as flash has room and admission, its write budget included, takes it; what flash does not
//! take stays in memory. A pass begins when a quarter of that time has gone by since the last one, a second at least.

use crate::cache::{Cache, Shared};
use crate::clock::Clock;
use crate::flash::tier::FlashTier;
use ebbtide_flash::admission::{Limits, Offer};
use ebbtide_flash::{Key, Object};
use ebbtide_store::{IdleDemotion, Item, Participant};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Few entries at a time, so many times for each wake-up of the background thread.
const STEPS: u32 = 64;
/// A pass begins when this part of the idle time is over.
const PASSES: u64 = 4;
const PASS_MIN_MS: u64 = 1000;
/// No value is idle for so long.
const NEVER: u32 = u32::MAX;

/// What goes to flash, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashLimits {
    /// Shorter values are never written to flash: evicted from memory they are lost. 0 at first, or what [`crate::FlashOptions`] say.
    pub min_value_bytes: u32,
    /// Values that expire sooner are never written to flash. 10 at first, or what [`crate::FlashOptions`] say.
    pub min_ttl_seconds: u32,
    /// Values that nobody has read for so long go to flash before their memory is needed; with `None`, as at first, when it is.
    pub max_idle_seconds: Option<u32>,
}

/// The idle time after which values go to flash, and what came of it.
pub(crate) struct IdleLimit {
    max_seconds: AtomicU32,
    moved: AtomicU64,
}

impl Default for IdleLimit {
    fn default() -> Self {
        Self { max_seconds: AtomicU32::new(NEVER), moved: AtomicU64::new(0) }
    }
}

impl IdleLimit {
    fn max_seconds(&self) -> Option<u32> {
        Some(self.max_seconds.load(Ordering::Relaxed)).filter(|seconds| *seconds != NEVER)
    }

    fn set(&self, max_seconds: Option<u32>) {
        self.max_seconds.store(max_seconds.unwrap_or(NEVER), Ordering::Relaxed);
    }

    /// Values that went to flash because they were idle.
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }
}

/// The passes over the memory of a cache, one after the other.
#[derive(Default)]
pub(crate) struct IdleScan {
    aging: IdleDemotion,
    next_ms: u64,
}

impl FlashTier {
    /// Takes a value that was idle, if its key is not on flash already and it may be written. The lock of the key's buckets is held.
    fn take_idle(&self, item: &Item<'_>, now_ms: u64) -> bool {
        let Some(expiry) = self.expiry_on_flash(item) else { return false };
        let key = Key::new(item.key());
        if item.extension().copied && self.tier.could_exist(key.hash) {
            return true;
        }
        let (value_bytes, now) = (item.len(), self.seconds(now_ms));
        let offer = Offer { key: key.hash, bytes: item.key().len() + value_bytes, value_bytes, expiry };
        // What would be refused is not offered again and again.
        if self.tier.limits().refuse(&offer, now).is_some() || !self.tier.has_space() {
            return false;
        }
        let value: Vec<&[u8]> = item.slices().collect();
        let object = Object { key, value: &value, client_flags: item.flags(), attributes: 0, expiry };
        let is_taken = self.tier.insert(&object, now).is_some();
        if is_taken {
            self.idle.moved.fetch_add(1, Ordering::Relaxed);
            self.promotions.note_evicted(item.stored_bytes());
            self.note_demotion(value_bytes as u64, now_ms);
        }
        is_taken
    }
}

impl Shared {
    /// Moves idle values to flash: some of them, or with a manual clock all there are.
    pub(crate) fn move_idle(&self, participant: &Participant, now_ms: u64) {
        let Some(flash) = &self.flash else { return };
        let idle_scan = &mut *self.idle_scan.lock().expect("a pass has panicked");
        let Some(max_seconds) = flash.idle.max_seconds() else { return idle_scan.aging.stop() };
        let is_manual = self.clock == Clock::Manual;
        let idle_ms = u64::from(max_seconds) * 1000;
        if !idle_scan.aging.is_running() {
            if now_ms < idle_scan.next_ms && !is_manual {
                return;
            }
            idle_scan.next_ms = now_ms + (idle_ms / PASSES).max(PASS_MIN_MS);
        }
        for _ in 0..if is_manual { u32::MAX } else { STEPS } {
            let may_go_on = flash.tier.has_space() && !self.store.is_low() || is_manual;
            let take = |item: &Item<'_>| flash.take_idle(item, now_ms);
            // With too many scans it is tried again later.
            if !may_go_on || idle_scan.aging.advance(&self.store, participant, (now_ms, idle_ms), take) != Ok(true) {
                return;
            }
        }
    }
}

impl Cache {
    /// What goes to flash, and when; `None` without flash.
    pub fn flash_limits(&self) -> Option<FlashLimits> {
        self.shared.flash.as_ref().map(|flash| {
            let Limits { min_ttl_seconds, min_value_bytes } = flash.tier.limits();
            FlashLimits { min_value_bytes, min_ttl_seconds, max_idle_seconds: flash.idle.max_seconds() }
        })
    }

    /// Changes what goes to flash, from now on. Without flash it changes nothing.
    pub fn set_flash_limits(&self, limits: FlashLimits) {
        let FlashLimits { min_value_bytes, min_ttl_seconds, max_idle_seconds } = limits;
        if let Some(flash) = &self.shared.flash {
            flash.tier.set_limits(Limits { min_ttl_seconds, min_value_bytes });
            flash.idle.set(max_idle_seconds);
        }
    }
}
