//! The state of each region in RAM.
//!
//! ```text
//!         open          seal            written          chosen            buried            swept
//! Free ---------> Open ------> Writing ---------> Sealed -------> Dying -----------> Emptied ------> Free
//!                  |               |                |               |                   ^
//!                  |               | I/O error      +---- Failed ---+-- buried, swept --|---> Retired
//!                  |               +-------------->------/    \-- cannot be buried ---> Lost
//!                  +------------------------ flushed, all expired ----------------------+
//! ```
//! A region that was chosen for a pool's share becomes Sealed again if an object of another pool in it has no copy.
//! States change under the mutex of `free_lists`. They are read without it, under the lock of an index shard.

use super::reinsertion_value::CopiedShare;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionState {
    /// No entry of the index refers to it.
    Free,
    /// Objects are added to it, in a buffer.
    Open,
    /// Complete, in a buffer that is being written.
    Writing,
    /// On the device.
    Sealed,
    /// On the device, and chosen to be reclaimed.
    Dying,
    /// Its objects are removed and no restart finds them. The index may still refer to it, but no more objects are
    /// published in it.
    Emptied,
    /// A transfer failed. No lookup finds its objects, but the index keeps them: a restart could still find them.
    Failed,
    /// As `Failed`, and the death mark could not be written. Final.
    Lost,
    /// Failed, and the death mark was written. Final.
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

    /// Whether an object may be published that lies in a region in this state. True while a restart could find the
    /// object.
    pub fn takes_objects(self) -> bool {
        !matches!(self, Self::Free | Self::Emptied | Self::Retired)
    }
}

/// A region in RAM, of 40 bytes.
#[derive(Debug)]
pub struct Region {
    sequence: AtomicU64,
    lowest_order: AtomicU64,
    /// Twice the tick of the last hit; odd until the first hit of this life.
    last_hit: AtomicU64,
    latest_expiry: AtomicU32,
    state: AtomicU8,
    slot: AtomicU16,
    /// A restart could find objects in it that are not in the index.
    is_unclean: AtomicBool,
    /// The low bits of the next order when the region was opened: copies have lower orders.
    new_from: AtomicU32,
    copied: AtomicU16,
}

/// Maximum number of inserts that drew an order before another insert opened a region.
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

    /// Acquire, the partner of [`Region::set_state`]: a thread that reads a state also reads the sequence and the slot
    /// that were stored before it.
    pub fn state(&self) -> RegionState {
        RegionState::ALL[usize::from(self.state.load(Acquire))]
    }

    pub fn set_state(&self, state: RegionState) {
        self.state.store(state as u8, Release);
    }

    pub fn sequence(&self) -> u64 {
        self.sequence.load(Relaxed)
    }

    /// Whether an object that was appended in the life with this sequence may be published. The state is read first: if
    /// it is of a later life, so is the sequence.
    pub fn takes_objects_of(&self, sequence: u64) -> bool {
        self.state().takes_objects() && self.sequence() == sequence
    }

    /// Starts a life in a slot; new objects have this order or a higher one.
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

    /// Whether an object of this order in the region is a copy. Not known after a restart, when the share of copies is
    /// 0.
    pub fn is_copy(&self, order: u64) -> bool {
        self.new_from.load(Relaxed).wrapping_sub(order as u32) as i32 > EARLIER
    }

    /// Stores the summary of a region that is complete, or found after a restart.
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

    /// The slot of its buffer while it is open or being written.
    pub fn slot(&self) -> u16 {
        self.slot.load(Relaxed)
    }

    pub fn is_unclean(&self) -> bool {
        self.is_unclean.load(Relaxed)
    }

    /// Returns the old value.
    pub fn set_unclean(&self, is_unclean: bool) -> bool {
        self.is_unclean.swap(is_unclean, Relaxed)
    }

    pub fn hit(&self, tick: u64) {
        self.last_hit.store(tick << 1, Relaxed);
    }

    /// The tick of the last hit, or of the opening.
    pub fn last_hit(&self) -> u64 {
        self.last_hit.load(Relaxed) >> 1
    }

    /// Whether the region was hit in this life. Also true, because not known, of a region that a restart found.
    pub fn was_hit(&self) -> bool {
        self.last_hit.load(Relaxed) & 1 == 0
    }
}

/// The later one of two expiries, of which 0 (never) is the latest.
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
