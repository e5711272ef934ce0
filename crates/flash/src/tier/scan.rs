//! A walk over all objects on flash: large ones, then small ones.

use super::Tier;
use crate::large::LargeScan;
use crate::object::{ScanContent, ScannedObject, Unread};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A walk over all objects, in steps of [`TierScan::advance`]: at any pace, from any thread that may wait for the
/// device, concurrently with all other operations. Between steps it holds no lock of the tier, and no memory but a few
/// numbers.
///
/// An object that is on flash from the walk's start to its end is visited at least once. A small one is visited exactly
/// once; a large one is visited again if reclaim reinserts it after its visit. Objects that cannot be read are counted,
/// not visited. A call of `advance` visits no object that was removed, overwritten, flushed or expired before the call.
/// If that happens during the call, only a visit that has already started completes. An object that is inserted during
/// the walk may be visited or not. Visits do not count as hits.
pub struct TierScan {
    tier: Arc<Tier>,
    wanted: ScanContent,
    unread: Unread,
    large: LargeScan,
    phase: Phase,
    /// [`Tier::unvisited`] at the start.
    unvisited_before: u64,
    /// Whether it ended before it had visited all of flash.
    is_cut: bool,
}

enum Phase {
    Large,
    /// The next set to visit.
    Small(u32),
    End,
}

impl Tier {
    /// Starts a walk over all objects.
    pub fn scan(self: &Arc<Self>, wanted: ScanContent) -> TierScan {
        let (unread, phase) = (Unread::Kept, Phase::Large);
        let (large, unvisited_before) = (self.large.scan(), self.unvisited(unread));
        TierScan { tier: Arc::clone(self), wanted, unread, large, phase, unvisited_before, is_cut: false }
    }

    /// Whether a start could find objects that no lookup and no walk finds now: what could not be read, and is not yet
    /// marked dead, or what the indexes do not name.
    pub fn hides_objects(&self) -> bool {
        self.large.has_failed_region() || self.large.is_unclean() || self.small.is_unclean()
    }

    /// Objects, or pieces with objects, that could not be read, by walks and by others, unless they are given up.
    fn unvisited(&self, unread: Unread) -> u64 {
        let (large, small) = (self.large.stats(), self.small.stats().counts);
        let read_errors = if unread == Unread::Kept { large.read_errors + small.read_errors } else { 0 };
        read_errors + small.scans_contended
    }
}

impl TierScan {
    /// Removes what it cannot read: a region of large objects, or all objects of a set. For a caller that removes the
    /// objects it visits, and after which none may be found. Until maintenance has marked the removal, the next start
    /// may find such an object: see [`Tier::hides_objects`].
    pub fn giving_up_unread(mut self) -> Self {
        self.unread = Unread::GivenUp;
        self.unvisited_before = self.tier.unvisited(self.unread);
        self
    }

    /// Calls `visit` for each object of the next piece of 256 KiB, in no order; a piece may have none. False at the end
    /// of the walk, or if the device has failed or the tier was closed. `now` is in seconds since 1970. Waits for the
    /// device, with one read at a time. Takes memory for the piece, or for the longest value if values are wanted.
    pub fn advance(&mut self, now: u32, mut visit: impl FnMut(ScannedObject<'_>)) -> bool {
        let Self { tier, wanted, unread, large, phase, is_cut, .. } = self;
        let reading = (*wanted, *unread);
        let now = tier.observe_time(now);
        if !matches!(phase, Phase::End) && (tier.has_failed(now) || tier.is_closed.load(Relaxed)) {
            (*phase, *is_cut) = (Phase::End, true);
        }
        *phase = match *phase {
            Phase::Large if tier.large.advance_scan(large, reading, now, &mut visit) => Phase::Large,
            Phase::Large => Phase::Small(0),
            Phase::Small(from) => {
                tier.small.advance_scan(from, *unread, now, &mut visit).map_or(Phase::End, Phase::Small)
            }
            Phase::End => Phase::End,
        };
        !matches!(phase, Phase::End)
    }

    /// Whether it has visited all that can be found on flash: it is at its end, was not cut short, and all could be
    /// read meanwhile, or was given up. Damaged objects do not count, since no lookup finds them. Those of a failed
    /// region do, unless they are given up, until the region is marked dead, which maintenance tries next.
    pub fn is_complete(&self) -> bool {
        let is_given_up = self.unread == Unread::GivenUp || !self.tier.large.has_failed_region();
        let is_read = self.tier.unvisited(self.unread) == self.unvisited_before && is_given_up;
        matches!(self.phase, Phase::End) && !self.is_cut && is_read
    }

    /// Progress of the walk, from 0 to 1. It may decrease slightly while flash fills up.
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
