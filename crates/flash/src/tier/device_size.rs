//! What flash has in bytes: as somebody gave it, and as it is there to be divided, after labels and the ends of
//! stripes.

use crate::device::Disk;
use std::path::PathBuf;

#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceSize {
    /// In all.
    pub given: u64,
    pub capacity: u64,
    /// None for a device that is no paths.
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

    /// What is to be said behind a size that would do.
    pub fn how(&self) -> &'static str {
        if self.paths.is_some_and(|paths| paths > 1) { " in all, as much for each path" } else { "" }
    }

    /// The capacity if so many bytes were given: of several paths, to each as many.
    pub fn capacity_of(&self, given: u64) -> u64 {
        match self.paths {
            None => given,
            Some(paths) => Disk::capacity_of(&vec![given / paths as u64; paths]),
        }
    }
}

/// All of a device.
impl From<u64> for DeviceSize {
    fn from(capacity: u64) -> Self {
        Self { given: capacity, capacity, paths: None }
    }
}
