//! Options of the flash tier of a cache, and its statistics: see [`Options`], [`FlashStats`].
//!
//! | what | how |
//! |---|---|
//! | which evicted entries are written | [`Options::admission`], [`Options::min_ttl`], [`Options::min_value`] |
//! | how many bytes are written | [`Options::write_budget`], [`Options::write_budget_for_life`] |
//! | which hits are copied back to memory | [`Options::promotion`] |
//! | what leaves flash when it is full | [`Options::reclaim`], [`Options::reinsertion`] |
//! | what flash has and did | [`crate::Stats::flash`] |

pub(crate) mod absence_ticket;
pub(crate) mod drain;
pub(crate) mod idle_demotion;
pub(crate) mod kept_tokens;
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

pub use self::promotion::FlashPromotion;
pub use crate::library::flash_options::Options;
pub use crate::library::flash_stats::{FlashStats, FlashTotals};
pub use ebbtide_flash::admission::{AdmissionPolicy, WriteBudget};
pub use ebbtide_flash::device::Health;
pub use ebbtide_flash::large::{Reclaim, Reinsertion};

// Names that the server and the lab use.
#[doc(hidden)]
pub use ebbtide_flash::admission::{AdmissionOptions, AdmissionStats};
#[doc(hidden)]
pub use ebbtide_flash::busy_poll;
#[cfg(feature = "test-devices")]
#[doc(hidden)]
pub use ebbtide_flash::device::{Delivery, Direction, FaultyDevice};
#[doc(hidden)]
pub use ebbtide_flash::device::{
    DeviceStats, DiskOptions, DriveLog, Engine, LaneStats, LatencyHistogram, MIN_SINGLE_PATH_BYTES, NoDriveLog,
    ThreadRing, drive_log_under, page_amplification,
};
#[doc(hidden)]
pub use ebbtide_flash::{Drops, Evictions, TierStats, WrittenBytes, remove_stale_wal_buffers};
