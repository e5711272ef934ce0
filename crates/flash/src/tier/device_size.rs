//! The size of flash in bytes: the given one, and the capacity that is left after labels and the ends of stripes.

use crate::device::Disk;
use std::path::PathBuf;

#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceSize {
    /// Bytes of all paths together.
    pub given: u64,
    pub capacity: u64,
    /// Number of paths; `None` for a device without paths.
    paths: Option<usize>,
}

impl DeviceSize {
    pub fn of_paths(paths: &[(PathBuf, u64)], capacity: u64) -> Self {
        Self {
            given: paths.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes)),
            capacity,
            paths: Some(paths.len()),
        }
    }

    /// Text after a suggested size.
    pub fn how(&self) -> &'static str {
        if self.paths.is_some_and(|paths| paths > 1) { " in all, as much for each path" } else { "" }
    }

    /// The capacity if `given` bytes were given, equally divided between the paths.
    pub fn capacity_of(&self, given: u64) -> u64 {
        match self.paths {
            None => given,
            Some(paths) => Disk::capacity_of(&vec![given / paths as u64; paths]),
        }
    }
}

/// The size of a device without paths.
impl From<u64> for DeviceSize {
    fn from(capacity: u64) -> Self {
        Self { given: capacity, capacity, paths: None }
    }
}
