//! Sealing of open segments: those of writers (`chains`) and those that jobs fill (`open_destinations`).

use super::open_destinations::OpenDestinations;
use crate::chains::Seal;
use crate::segment::{Header, SegmentId};
use crate::store::Store;

impl Store {
    /// Both lists of open destinations.
    pub(super) fn open_destinations(&self) -> impl Iterator<Item = &OpenDestinations> {
        [&self.policy_state.survivors, &self.maintenance.compacted].into_iter()
    }

    /// Seals open segments of writers and of jobs. Returns the number.
    pub(crate) fn seal_open(&self, which: Seal) -> u32 {
        self.chains.seal_open(&self.segments, which) + self.seal_destinations(which)
    }

    fn seal_destinations(&self, which: Seal) -> u32 {
        self.open_destinations().map(|list| list.seal(&self.segments, which)).sum()
    }

    /// Seals an open destination if `wanted` holds.
    pub(super) fn seal_destination_if(&self, segment: SegmentId, wanted: impl Fn(&Header) -> bool) {
        self.open_destinations().for_each(|list| list.seal_if(&self.segments, segment, &wanted));
    }

    /// Calls `visit` with each open destination and the end of its items.
    pub(crate) fn each_open_destination(&self, mut visit: impl FnMut(SegmentId, u32)) {
        self.open_destinations().for_each(|list| list.each(&mut visit));
    }

    /// The number of open destinations.
    pub(crate) fn open_destination_count(&self) -> u32 {
        self.open_destinations().map(OpenDestinations::count).sum()
    }
}
