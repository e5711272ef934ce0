//! Splits the capacity between large and small objects, once enough objects have arrived.

use super::capacity_split::{MIN_SHARE_DIVISOR, NEARLY_ALL, SplitState, Unsplit};
use super::layout::TierLayout;
use super::superblock::{Partition, Superblock};
use super::{Tier, TierOptions};
use crate::device;
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
        let Unsplit { layout, share_before, is_in_doubt } = unsplit;
        let capacity = layout.capacity;
        let small_share = self.capacity_split.small_share(capacity, || self.large.unused_bytes(), share_before)?;
        let boundary = (capacity as f64 * small_share) as u64;
        if boundary < capacity / MIN_SHARE_DIVISOR {
            return None;
        }
        let memory_growth_bytes =
            if small_share >= NEARLY_ALL { self.capacity_split.options.memory_growth_bytes } else { 0 };
        let options = TierOptions { memory_growth_bytes, ..self.capacity_split.options.clone() };
        let wanted = layout.split_at_most(boundary, &options)?;
        let boundary = self.large.shrink_front(wanted.boundary);
        let is_split = self.split_at(layout, boundary, &options);
        if is_split.is_none() {
            *is_in_doubt = true;
            self.resolve_doubt(unsplit)?;
        }
        is_split
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

    /// Opens the store of small objects in front of a boundary, or in front of an earlier one if the memory is too small.
    fn split_at(&self, layout: &TierLayout, boundary: u64, options: &TierOptions) -> Option<()> {
        let mut split = layout.split_at_most(boundary, options)?;
        split.leave_to_large(self.large.index_bytes() / 4 * 5);
        let salt = self.superblock.lock().unwrap().incarnations.small;
        let pools = Arc::clone(&self.pools.live);
        let small_options = split.small_options.clone().map(|options| small::Options { salt, pools, ..options })?;
        let store = SmallStore::new(Arc::clone(&self.device), split.small_area(), small_options).ok()?;
        store.erase_marks().ok()?;
        self.write_partition(&split)?;
        let extra = self.extra_large_bytes.load(Relaxed);
        self.large.limit_index(split.large_options.index_bytes.saturating_add(extra));
        self.small.set(store);
        Some(())
    }

    /// Makes a partition durable. None if the device refuses.
    fn write_partition(&self, layout: &TierLayout) -> Option<()> {
        let mut superblock = self.superblock.lock().unwrap();
        let next = Superblock { shape: Partition::of(superblock.shape.identity, layout), ..*superblock };
        let block = next.encode();
        let bytes = block.len() as u64;
        device::write(&*self.device, 0, block).and_then(|_| self.device.sync()).ok()?;
        *superblock = next;
        self.superblock_bytes.fetch_add(bytes, Relaxed);
        Some(())
    }
}
