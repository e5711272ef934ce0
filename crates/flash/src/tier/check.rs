//! Whether flash can be opened, without opening it.

use super::device_size::DeviceSize;
use super::layout::TierLayout;
use super::open::deletion_log_path;
use super::{Tier, TierOptions};
use crate::Error;
use crate::device::{self, Disk};
use std::path::PathBuf;

impl Tier {
    /// Checks whether [`Tier::open`] and [`super::Opening::start`] would succeed, as far as possible without changing
    /// anything, and returns the fixed bytes of RAM. Existing files are locked for a moment.
    ///
    /// # Errors
    ///
    /// As [`Tier::open`] and [`super::Opening::start`].
    pub fn check(paths: &[(PathBuf, u64)], options: &TierOptions) -> Result<u64, Error> {
        let capacity = Disk::check(paths, &options.disk)?;
        if let Some(deletion_log) = deletion_log_path(paths, options).filter(|_| options.warm_restart) {
            device::check_beside(&deletion_log, paths)?;
        }
        TierLayout::new(DeviceSize::of_paths(paths, capacity), options)?.fixed_bytes(options)
    }

    /// Whether a tier of this size can be opened, with the fixed bytes of RAM.
    ///
    /// # Errors
    ///
    /// [`Error::Options`] or [`Error::Memory`].
    pub fn check_size(bytes: u64, options: &TierOptions) -> Result<u64, Error> {
        TierLayout::new(bytes, options)?.fixed_bytes(options)
    }
}
