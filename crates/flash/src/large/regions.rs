//! What RAM knows of each region.
//!
//! ```text
//!         open          seal            written          chosen            buried            swept
//! Free ---------> Open ------> Writing ---------> Sealed -------> Dying -----------> Emptied ------> Free
//!                  |               |                |               |                   ^
//!                  |               | I/O error      +---- Failed ---+-- buried, swept --|---> Retired
//!                  |               +-------------->------/    \-- cannot be buried ---> Lost
//!                  +------------------------ flushed, all expired ----------------------+
//! ```
//! States change under the mutex of the books. They are read without it, under the lock of an index shard.

use super::reinsertion_value::CopiedShare;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionState {
    /// Nothing refers to it.
    Free,
    /// Objects are added to it, in a buffer.
    Open,
    /// Complete, in a buffer, on its way to the device.
    Writing,
    /// On the device.
    Sealed,
    /// On the device, and chosen to be reclaimed.
    Dying,
    /// What it held is gone, and will not be found after a restart. The index may still refer to it, but nothing is
    /// published in it any more.
    Emptied,
    /// A transfer failed. What it held is not found, but not forgotten: a restart could still find it.
    Failed,
    /// As failed, and the device does not take that it is dead. Stays so.
    Lost,
    /// Failed once, and dead on the device too. Stays so.
    Retired,
}

impl RegionState {
    const ALL: [Self; 9] = [
        Self::Free,
        Self::Open,
        Self::Writing,
        Self::Sealed,
        Self::Dying,
        Self::Emptied,
        Self::Failed,
        Self::Lost,
        Self::Retired,
    ];

    /// The state of a region in a checkpoint; `None` if it cannot be one.
    pub fn saved(number: u8) -> Option<Self> {
        let lasts =
            |state: &Self| matches!(state, Self::Free | Self::Sealed | Self::Failed | Self::Lost | Self::Retired);
        Self::ALL.get(usize::from(number)).copied().filter(lasts)
    }

    /// Whether an object may be published that lies in a region in this state. It must be as long as a restart could
    /// find it.
    pub fn takes_objects(self) -> bool {
        !matches!(self, Self::Free | Self::Emptied | Self::Retired)
    }
}

/// 40 bytes each.
#[derive(Debug)]
pub struct Region {
    sequence: AtomicU64,
    lowest_order: AtomicU64,
    /// When it was hit last, doubled; odd while it was not hit in this life.
    last_hit: AtomicU64,
    latest_expiry: AtomicU32,
    state: AtomicU8,
    slot: AtomicU16,
    /// A restart could find objects in it that the index does not know.
    is_unclean: AtomicBool,
    /// The low bits of the order of what was new when it was opened: copies have lower orders.
    new_from: AtomicU32,
    copied: AtomicU16,
}

/// Inserts that had drawn their order when another one opened a region, at most.
const EARLIER: i32 = 64;

/// One life of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSummary {
    pub sequence: u64,
    pub lowest_order: u64,
    /// 0 for never.
    pub latest_expiry: u32,
}

impl Region {
    pub fn free() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            lowest_order: AtomicU64::new(0),
            last_hit: AtomicU64::new(0),
            latest_expiry: AtomicU32::new(0),
            state: AtomicU8::new(RegionState::Free as u8),
            slot: AtomicU16::new(0),
            is_unclean: AtomicBool::new(false),
            new_from: AtomicU32::new(0),
            copied: AtomicU16::new(0),
        }
    }

    /// The partner of [`Region::set_state`]: who sees a state sees the sequence and the slot that were stored before.
    pub fn state(&self) -> RegionState {
        RegionState::ALL[usize::from(self.state.load(Acquire))]
    }

    pub fn set_state(&self, state: RegionState) {
        self.state.store(state as u8, Release);
    }

    pub fn sequence(&self) -> u64 {
        self.sequence.load(Relaxed)
    }

    /// Whether an object may be published here that was added in the life of this number. The state is read first: if
    /// it is of a later life, so is the sequence.
    pub fn takes_objects_of(&self, sequence: u64) -> bool {
        self.state().takes_objects() && self.sequence() == sequence
    }

    /// Begins a life in a slot; what is new then has this order or a higher one.
    pub fn begin(&self, sequence: u64, slot: u16, last_hit: u64, order: u64) {
        self.sequence.store(sequence, Relaxed);
        self.slot.store(slot, Relaxed);
        self.last_hit.store(last_hit << 1 | 1, Relaxed);
        self.new_from.store(order as u32, Relaxed);
        self.copied.store(0, Relaxed);
        self.set_state(RegionState::Open);
    }

    /// The share of its bytes that are copies.
    pub fn copied(&self) -> CopiedShare {
        self.copied.load(Relaxed)
    }

    pub fn set_copied(&self, copied: CopiedShare) {
        self.copied.store(copied, Relaxed);
    }

    /// Whether an object of this order, which is in it, is a copy. Not known of regions that a restart found, of which
    /// no share is.
    pub fn is_copy(&self, order: u64) -> bool {
        self.new_from.load(Relaxed).wrapping_sub(order as u32) as i32 > EARLIER
    }

    /// What is known when a region is complete, or found after a restart.
    pub fn complete(&self, summary: RegionSummary) {
        self.sequence.store(summary.sequence, Relaxed);
        self.lowest_order.store(summary.lowest_order, Relaxed);
        self.latest_expiry.store(summary.latest_expiry, Relaxed);
    }

    pub fn summary(&self) -> RegionSummary {
        RegionSummary {
            sequence: self.sequence(),
            lowest_order: self.lowest_order.load(Relaxed),
            latest_expiry: self.latest_expiry.load(Relaxed),
        }
    }

    /// The buffer in which it is while it is open or being written.
    pub fn slot(&self) -> u16 {
        self.slot.load(Relaxed)
    }

    pub fn is_unclean(&self) -> bool {
        self.is_unclean.load(Relaxed)
    }

    /// What it was before.
    pub fn set_unclean(&self, is_unclean: bool) -> bool {
        self.is_unclean.swap(is_unclean, Relaxed)
    }

    pub fn hit(&self, tick: u64) {
        self.last_hit.store(tick << 1, Relaxed);
    }

    /// When it was hit last, or opened.
    pub fn last_hit(&self) -> u64 {
        self.last_hit.load(Relaxed) >> 1
    }

    /// True of a region that a restart found, of which it is not known.
    pub fn was_hit(&self) -> bool {
        self.last_hit.load(Relaxed) & 1 == 0
    }
}

/// The later one of two moments of expiry, of which 0 is the latest.
pub fn later(a: u32, b: u32) -> u32 {
    if a == 0 || b == 0 { 0 } else { a.max(b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_numbered() {
        let region = Region::free();
        for state in RegionState::ALL {
            region.set_state(state);
            assert_eq!(region.state(), state);
        }
        assert!(size_of::<Region>() <= 40);
    }

    #[test]
    fn never_is_the_latest() {
        assert_eq!([later(0, 5), later(5, 0), later(5, 7), later(7, 5)], [0, 0, 7, 7]);
    }
}
