//! The start from the memory file.

use ebbtide::memcached::MemoryStart;

use super::Metric::Gauge;
use super::{Row, row};

#[rustfmt::skip]
pub const MEMORY_FILE: &[Row<MemoryStart>] = &[
    row("memory_file_restored_objects", Gauge("ebbtide_memory_file_restored_objects", "Objects that the memory file gave back at the start."), "", |start| restored(start).into()),
];

fn restored(start: &MemoryStart) -> u64 {
    match start {
        MemoryStart::Warm { objects, .. } => *objects,
        MemoryStart::Cold { .. } => 0,
    }
}
