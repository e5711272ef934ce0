//! The memory file: what it gave back at the start, and what its file system refuses.

use ebbtide::memcached::{Cache, MemoryStart};

use super::Metric::{Counter, Gauge};
use super::{Row, row};

/// Source of [`MEMORY_FILE`].
pub struct MemoryFileReading {
    restored: u64,
    refused: u64,
}

impl MemoryFileReading {
    /// `None` of a cache without a memory file.
    pub fn of(cache: &Cache) -> Option<Self> {
        let restored = match cache.memory_start()? {
            MemoryStart::Warm { objects, .. } => *objects,
            MemoryStart::Cold { .. } => 0,
        };
        Some(Self { restored, refused: cache.refused_by_memory_file() })
    }
}

#[rustfmt::skip]
pub const MEMORY_FILE: &[Row<MemoryFileReading>] = &[
    row("memory_file_restored_objects", Gauge("ebbtide_memory_file_restored_objects", "Objects that the memory file gave back at the start."), "", |file| file.restored.into()),
    row("memory_file_refusals", Counter("ebbtide_memory_file_refusals_total", "Segments for which the file system of the memory file had no memory."), "", |file| file.refused.into()),
];
