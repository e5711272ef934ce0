//! Demotion of idle values: flash takes values that were not read for a time, before their memory is needed.
//!
//! Evictions demote when memory is needed. With `max_idle_seconds` the maintenance thread also scans memory and demotes
//! idle values, as long as flash has a place and admission takes them. A scan pauses while the write budget has nothing
//! left: no eviction requires its writes. A value that flash does not take stays in memory. A scan starts when a
//! quarter of the idle time has passed since the last one, a second at least.

use ebbtide_store::IdleDemotion;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A scan starts after this part of the idle time.
const SCANS_PER_IDLE_TIME: u64 = 4;
const MIN_SCAN_INTERVAL_MS: u64 = 1000;
/// No value is idle for this long.
const NEVER: u32 = u32::MAX;

/// The idle time after which values are demoted, and a count of these demotions.
pub(crate) struct IdleLimit {
    max_seconds: AtomicU32,
    demoted: AtomicU64,
}

impl Default for IdleLimit {
    fn default() -> Self {
        Self { max_seconds: AtomicU32::new(NEVER), demoted: AtomicU64::new(0) }
    }
}

impl IdleLimit {
    pub fn max_seconds(&self) -> Option<u32> {
        Some(self.max_seconds.load(Ordering::Relaxed)).filter(|seconds| *seconds != NEVER)
    }

    pub fn set(&self, max_seconds: Option<u32>) {
        self.max_seconds.store(max_seconds.unwrap_or(NEVER), Ordering::Relaxed);
    }

    pub fn note_demoted(&self) {
        self.demoted.fetch_add(1, Ordering::Relaxed);
    }

    pub fn demoted(&self) -> u64 {
        self.demoted.load(Ordering::Relaxed)
    }
}

/// The scans of a cache, one after the other.
#[derive(Default)]
pub(crate) struct IdleScan {
    pub scan: IdleDemotion,
    next_ms: u64,
    /// Counts scans: each is of the next pool.
    pub turn: usize,
}

impl IdleScan {
    /// Whether a scan is running, or is due and starts now. With a manual clock one is always due.
    pub fn is_due(&mut self, now_ms: u64, (idle_ms, pools): (u64, usize), is_manual: bool) -> bool {
        if !self.scan.is_running() {
            if now_ms < self.next_ms && !is_manual {
                return false;
            }
            let interval_ms = (idle_ms / SCANS_PER_IDLE_TIME).max(MIN_SCAN_INTERVAL_MS);
            self.next_ms = now_ms + interval_ms / pools.max(1) as u64;
            self.turn = self.turn.wrapping_add(1);
        }
        true
    }
}
