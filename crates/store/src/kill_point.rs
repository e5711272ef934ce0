//! Points at which a test ends the process, as `kill -9` between two stores does. Only the feature `kill-points`, which
//! tests of this workspace set, makes a point more than nothing.

/// The step after which the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KillPoint {
    /// A split: its word is stored, and no slot has moved.
    SplitWord = 1,
    /// A split: a slot is in the old bucket and in the new one.
    SplitSlot,
    /// A contraction: its word is stored, and no slot has moved.
    ContractionWord,
    /// A contraction: a slot is in the child and in the parent.
    ContractionSlot,
    /// A displacement: the slot of a neighbour is in both of its candidates.
    Displacement,
    /// A write: the slot of the new item is stored, and its buckets are locked.
    Publication,
    /// A write: the item is published, and the write offset of its segment is in front of it.
    Commit,
    /// A relocation: an item is copied, and its slot names the original.
    RelocationCopy,
    /// A relocation: the slot names the copy, and its buckets are locked.
    RelocationSlot,
    /// A removal by a job, a delete or a drop of a long value: the slot is empty, and its buckets are locked.
    Removal,
    /// A shrink: the topmost segment has left the budget.
    Shrink,
    /// A change of the memory limit: the segments have changed, and the limit has not.
    Resize,
    /// The start of a memory file beside flash: the file names the run of flash that begins, and flash does not.
    StartAnnounced,
    /// The start of a memory file: its image is loaded, its superblock is that of the stop, and flash is in use.
    StartLoaded,
    /// The start of a memory file: its superblock says that it is in use.
    StartInUse,
    /// The stop of a memory file: its superblock says that it is being written.
    StopBegin,
    /// The stop of a memory file: its image is written, and its superblock is not that of a clean stop.
    StopImage,
    /// The stop of a memory file: its superblock is that of a clean stop.
    StopClean,
    /// An edit in place: the copy in the lower tier is invalid, and nothing is written.
    EditInvalidation,
    /// An edit in place: it is written and published, and its buckets are locked.
    EditPublication,
    /// A demotion: the lower tier has taken the item or refused it, and its slot is in place.
    Demotion,
}

#[cfg(not(feature = "kill-points"))]
#[inline(always)]
pub const fn kill_point(_: KillPoint) {}

#[cfg(feature = "kill-points")]
pub use with_kills::{arm_kill, kill_point};

#[cfg(feature = "kill-points")]
mod with_kills {
    use super::KillPoint;
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// The point of `arm_kill`; 0: none.
    static ARMED: AtomicU32 = AtomicU32::new(0);
    /// Times that it is passed before the process ends.
    static PASSES: AtomicU64 = AtomicU64::new(0);

    /// Ends the process at this point, once it has passed it `passes` times.
    pub fn arm_kill(point: KillPoint, passes: u64) {
        PASSES.store(passes, Ordering::Relaxed);
        // Release pairs with the Acquire in `kill_point`: the number of passes.
        ARMED.store(point as u32, Ordering::Release);
    }

    /// Ends the process if this point is armed and due.
    pub fn kill_point(point: KillPoint) {
        let is_due = || PASSES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err();
        if ARMED.load(Ordering::Acquire) == point as u32 && is_due() {
            // SAFETY: the call reads no memory of ours.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            // Ends: the signal ends the process.
            loop {
                std::thread::park();
            }
        }
    }
}
