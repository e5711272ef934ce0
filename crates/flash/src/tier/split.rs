//! Splits the capacity between large and small objects, once enough objects have arrived.

use super::capacity_split::{MIN_SHARE_DIVISOR, NEARLY_ALL, SplitState, Unsplit};
use super::layout::TierLayout;
use super::state::NONE_AWAITED;
use super::superblock::{Partition, Superblock};
use super::{Tier, TierOptions};
use crate::small::{self, SmallStore};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Tier {
    /// Splits the capacity when enough objects have arrived. Waits for the device.
    pub(super) fn update_split(&self) {
        let mut state = self.capacity_split.split.lock().unwrap();
        // The first superblock must not be written after the superblock with the boundary.
        if self.superblock_bytes.load(Relaxed) == 0 || self.is_closed.load(Relaxed) {
            return;
        }
        if let SplitState::Unsplit(unsplit) = &mut *state
            && self.try_split(unsplit).is_some()
        {
            *state = SplitState::Split;
        }
    }

    fn try_split(&self, unsplit: &mut Unsplit) -> Option<()> {
        self.resolve_doubt(unsplit)?;
        self.awaited_beyond.store(NONE_AWAITED, Relaxed);
        let Unsplit { layout, share_before, is_in_doubt } = unsplit;
        let small_share = self.capacity_split.due_share(layout.capacity)?;
        let unused_bytes = self.large.unused_bytes();
        let wanted = self.wanted_split(layout, small_share);
        if let Some((wanted, _)) = &wanted
            && self.large.has_free_front()
            && !self.capacity_split.is_growing(layout.capacity, unused_bytes, *share_before)
        {
            let spare = wanted.index_bytes() - wanted.min_split_index_bytes(self.large.index_bytes());
            let beyond = -i64::try_from(spare).unwrap_or(i64::MAX);
            if self.beyond_division.load(Relaxed) < beyond {
                self.awaited_beyond.store(beyond, Relaxed);
                return None;
            }
        }
        let is_growing = self.capacity_split.begin_part(layout.capacity, unused_bytes, share_before);
        let (wanted, options) = wanted.filter(|_| !is_growing)?;
        let boundary = self.large.shrink_front(wanted.boundary);
        let is_split = self.split_at(layout, boundary, &options);
        if is_split.is_none() {
            *is_in_doubt = true;
            self.resolve_doubt(unsplit)?;
        }
        is_split
    }

    /// The layout with this share of small objects, and the options with which it fits the memory.
    fn wanted_split(&self, layout: &TierLayout, small_share: f64) -> Option<(TierLayout, TierOptions)> {
        let boundary = (layout.capacity as f64 * small_share) as u64;
        if boundary < layout.capacity / MIN_SHARE_DIVISOR {
            return None;
        }
        let memory_growth_bytes =
            if small_share >= NEARLY_ALL { self.capacity_split.options.memory_growth_bytes } else { 0 };
        let options = TierOptions { memory_growth_bytes, ..self.capacity_split.options.clone() };
        layout.split_up_to(boundary, &options).map(|wanted| (wanted, options))
    }

    /// Writes a superblock without a boundary if the device may hold one with it. None if the device refuses.
    fn resolve_doubt(&self, unsplit: &mut Unsplit) -> Option<()> {
        if unsplit.is_in_doubt {
            self.write_partition(&unsplit.layout)?;
            unsplit.is_in_doubt = false;
            self.large.grow_front(unsplit.layout.large_options.first_region);
        }
        Some(())
    }

    /// Opens the store of small objects in front of a boundary, or in front of an earlier one if the memory is too
    /// small.
    fn split_at(&self, layout: &TierLayout, boundary: u64, options: &TierOptions) -> Option<()> {
        let mut split = layout.split_up_to(boundary, options)?;
        split.leave_to_large(self.large.index_bytes() / 4 * 5);
        let beyond = self.beyond_division.load(Relaxed);
        if beyond < 0 {
            split.release_indexes(usize::try_from(-beyond).unwrap_or(usize::MAX), self.large.index_bytes());
        }
        let salt = self.superblock.lock().unwrap().incarnations.small;
        let pools = Arc::clone(&self.pools.live);
        let small_options = split.small_options.clone().map(|options| small::Options { salt, pools, ..options })?;
        let store = SmallStore::new(Arc::clone(&self.device), split.small_area(), small_options).ok()?;
        store.erase_marks().ok()?;
        self.write_partition(&split)?;
        let extra = usize::try_from(beyond).unwrap_or(0);
        self.large.limit_index(split.large_options.index_bytes.saturating_add(extra));
        self.small.set(store);
        Some(())
    }

    /// Makes a partition durable. None if the device refuses.
    fn write_partition(&self, layout: &TierLayout) -> Option<()> {
        let with_partition =
            |before: &Superblock| Superblock { shape: Partition::of(before.shape.identity, layout), ..*before };
        self.replace_superblock(with_partition).ok()
    }
}
