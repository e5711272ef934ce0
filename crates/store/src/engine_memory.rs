//! Address space and epochs that the stores of one engine share.

use crate::epoch::{Domain, Participant};
use crate::error::Error;
#[cfg(not(loom))]
use crate::frame_file::FrameFile;
use crate::frames::{FRAME_BYTES, Frames};
#[cfg(not(loom))]
use std::fs::File;
use std::sync::Arc;

/// Address space beyond the budgets, as a part of them, for segments whose memory is used otherwise.
const WITHHELD_SHARE: u64 = 2;

/// Address space in frames, and the epochs that protect readers. A thread that participates does so for all stores that
/// are built in it: one pin protects its reads in each of them.
///
/// Each store has its own memory budget. The caller bounds the sum of the budgets: to move memory, it makes the budget
/// of one store smaller, waits until `resize_done`, then makes that of the other one larger.
#[derive(Clone)]
pub struct EngineMemory {
    pub(crate) frames: Arc<Frames>,
    pub(crate) domain: Arc<Domain>,
}

impl EngineMemory {
    /// Address space for stores with budgets of `memory_bytes` together, up to `stores` of them at a time.
    ///
    /// # Errors
    /// `Mapping` if the system gives no address space.
    pub fn reserve(memory_bytes: u64, stores: u32) -> Result<Self, Error> {
        let bytes = Self::bytes_for(memory_bytes, stores);
        let frames = Frames::reserve(usize::try_from(bytes).expect("addresses are 64 bits"))?;
        Ok(Self { frames, domain: Domain::new() })
    }

    /// As `reserve`, with at least `frames_min` frames, in a file if there is one: frame `i` lies at the offset plus
    /// `i` times the bytes of a frame. The file stays unchanged until `use_file`.
    ///
    /// # Errors
    /// As `reserve`.
    #[cfg(not(loom))]
    pub fn reserve_frames(
        memory_bytes: u64,
        stores: u32,
        frames_min: u32,
        file: Option<(File, u64)>,
    ) -> Result<Self, Error> {
        let bytes = Self::bytes_for(memory_bytes, stores).max(u64::from(frames_min) * FRAME_BYTES as u64);
        let bytes = usize::try_from(bytes).expect("addresses are 64 bits");
        let frames = match file {
            Some((file, offset)) => Frames::reserve_in_file(bytes, file, offset)?,
            None => Frames::reserve(bytes)?,
        };
        Ok(Self { frames, domain: Domain::new() })
    }

    /// From here on the file belongs to the stores: memory that none of them has goes back to the file system.
    #[cfg(not(loom))]
    pub fn use_file(&self) {
        if let Some(file) = self.frames.file() {
            file.keep(false);
            self.frames.release_unlent();
        }
    }

    /// From here on the content of the file stays as it is, also when the stores end. The caller has refused changes.
    #[cfg(not(loom))]
    pub fn keep_file(&self) {
        if let Some(file) = self.frames.file() {
            file.keep(true);
        }
    }

    /// How often the file system of the file had no memory for a segment: the stores go on with what they have. 0
    /// without a file.
    #[cfg(not(loom))]
    pub fn refused_by_file(&self) -> u64 {
        self.frames.file().map_or(0, FrameFile::refused)
    }

    /// The number of the first frame that no store has had to do with.
    #[cfg(not(loom))]
    pub fn frames_end(&self) -> u32 {
        self.frames.lent_end()
    }

    fn bytes_for(memory_bytes: u64, stores: u32) -> u64 {
        // In the last frame of each store fewer segments than all may be in the budget. A segment whose memory the
        // index has keeps its address until it can leave.
        (memory_bytes + memory_bytes / WITHHELD_SHARE).saturating_add(u64::from(stores) * FRAME_BYTES as u64)
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
