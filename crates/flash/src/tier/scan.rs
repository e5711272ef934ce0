//! A walk over all that flash holds: large objects, then small ones.

use super::Tier;
use crate::large::LargeScan;
use crate::object::{ScanContent, ScannedObject};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A walk over all objects, which goes on whenever [`TierScan::advance`] is called: at any pace, from any thread that
/// may wait for the device, beside everything else. In between it holds nothing of the tier, and no memory but a few
/// numbers.
///
/// An object that is there from the walk's beginning to its end is met at least once. A small one is met exactly once;
/// a large one is met again if reclaim gave it another life after it was met. What cannot be read is not met, and
/// counted. What was removed, overwritten, flushed or expired before a call of `advance` is not met by it, and of what
/// ends during the call nothing whose visit had not started then. What comes in during the walk may be met or not.
/// Visits note no hits.
pub struct TierScan {
    tier: Arc<Tier>,
    wanted: ScanContent,
    large: LargeScan,
    phase: Phase,
}

enum Phase {
    Large,
    /// From this set on.
    Small(u32),
    End,
}

impl Tier {
    /// Begins a walk over all objects.
    pub fn scan(self: &Arc<Self>, wanted: ScanContent) -> TierScan {
        TierScan { tier: Arc::clone(self), wanted, large: self.large.scan(), phase: Phase::Large }
    }
}

impl TierScan {
    /// Calls `visit` with the objects of the next piece, of 256 KiB, in no order; there may be none. False at the end
    /// of the walk, which comes early if the device has failed or the tier was closed. `now` is in seconds since 1970.
    /// Waits for the device, with one read at a time. Memory is that of the piece, or with values that of the longest
    /// value.
    pub fn advance(&mut self, now: u32, mut visit: impl FnMut(ScannedObject<'_>)) -> bool {
        let Self { tier, wanted, large, phase } = self;
        let now = tier.observe_time(now);
        if tier.has_failed(now) || tier.is_closed.load(Relaxed) {
            *phase = Phase::End;
        }
        *phase = match *phase {
            Phase::Large if tier.large.advance_scan(large, *wanted, now, &mut visit) => Phase::Large,
            Phase::Large => Phase::Small(0),
            Phase::Small(from) => tier.small.advance_scan(from, now, &mut visit).map_or(Phase::End, Phase::Small),
            Phase::End => Phase::End,
        };
        !matches!(phase, Phase::End)
    }

    /// How far the walk has come, from 0 to 1. It may go back a little when flash fills up.
    pub fn progress(&self) -> f64 {
        let small = f64::from(self.tier.small.sets()) * crate::small::PAGE as f64;
        let share = small / self.tier.capacity_bytes() as f64;
        match self.phase {
            Phase::Large => self.tier.large.scan_progress(&self.large) * (1.0 - share),
            Phase::Small(from) => 1.0 - share + share * f64::from(from) / f64::from(self.tier.small.sets().max(1)),
            Phase::End => 1.0,
        }
    }
}
