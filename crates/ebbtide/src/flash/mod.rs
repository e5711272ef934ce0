//! The flash tier of a cache: its options, its statistics, and how it is read, written and shut down.

pub(crate) mod absence;
pub(crate) mod drain;
pub(crate) mod idle_demotion;
pub(crate) mod memory_split;
pub(crate) mod options;
pub(crate) mod pending_reads;
pub(crate) mod pool_flash;
pub(crate) mod promoted_keys;
pub(crate) mod promotion;
mod range_uses;
pub(crate) mod read;
pub(crate) mod resolve;
pub(crate) mod threads;
pub(crate) mod tier;

pub use ebbtide_flash::admission::{AdmissionOptions, AdmissionPolicy, AdmissionStats, WriteBudget};
pub use ebbtide_flash::busy_poll;
#[cfg(feature = "test-devices")]
pub use ebbtide_flash::device::{Delivery, FaultyDevice};
pub use ebbtide_flash::device::{
    Device, DeviceStats, DiskOptions, DriveLog, Engine, Health, LaneStats, LatencyHistogram, MIN_SINGLE_PATH_BYTES,
    NoDriveLog, ThreadRing, drive_log_under, page_amplification,
};
pub use ebbtide_flash::large::{Reclaim, Reinsertion};
pub use ebbtide_flash::{Drops, Evictions, TierStats, WrittenBytes, remove_stale_wal_buffers};
