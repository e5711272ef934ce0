//! What the stores of one engine share.

use crate::epoch::{Domain, Participant};
use crate::error::Error;
use crate::frames::{FRAME_BYTES, Frames};
use std::sync::Arc;

/// Address space beyond the budgets, as a part of them, for segments whose memory is used otherwise.
const WITHHELD_SHARE: u64 = 2;

/// Address space in frames, and the epochs that protect readers. A thread that participates does so for all stores that
/// are built in it: one pin protects what the thread reads in each of them.
///
/// How much memory a store uses is the budget of that store. The sum of the budgets is the caller's to keep: to move
/// memory, make the budget of one store smaller, wait until `resize_done`, then make that of the other one larger.
#[derive(Clone)]
pub struct EngineMemory {
    pub(crate) frames: Arc<Frames>,
    pub(crate) domain: Arc<Domain>,
}

impl EngineMemory {
    /// Address space for stores with budgets of `memory_bytes` together, up to so many of them at a time.
    ///
    /// # Errors
    /// `Mapping` if the system gives no address space.
    pub fn reserve(memory_bytes: u64, stores: u32) -> Result<Self, Error> {
        // In the last frame of each store fewer segments than all may be in the budget. A segment whose memory the
        // index has keeps its address until it can leave.
        let bytes =
            (memory_bytes + memory_bytes / WITHHELD_SHARE).saturating_add(u64::from(stores) * FRAME_BYTES as u64);
        let frames = Frames::reserve(usize::try_from(bytes).expect("addresses are 64 bits"))?;
        Ok(Self { frames, domain: Domain::new() })
    }

    /// Address space for one store that never has more memory than this.
    pub(crate) fn for_one(memory_bytes: u64) -> Result<Self, Error> {
        let frames = Frames::reserve(usize::try_from(memory_bytes).expect("addresses are 64 bits"))?;
        Ok(Self { frames, domain: Domain::new() })
    }

    /// A participant for the calling thread, for all stores.
    pub fn participate(&self) -> Participant {
        self.domain.participate()
    }

    /// Bytes of all frames.
    pub(crate) fn address_bytes(&self) -> u64 {
        u64::from(self.frames.count()) * FRAME_BYTES as u64
    }

    /// Bytes of the frames that stores have at the moment.
    pub fn lent_bytes(&self) -> u64 {
        u64::from(self.frames.lent_count()) * FRAME_BYTES as u64
    }
}
