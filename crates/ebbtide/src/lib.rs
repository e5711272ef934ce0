//! Ebbtide is a cache that keeps objects in TTL-indexed segments: objects that will expire together are written
//! together, expire together and are evicted together.
//!
//! ```
//! use ebbtide::{ByteSize, Cache, Lookup, Ttl};
//!
//! let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
//! cache.insert(b"k", b"v").ttl(Ttl::seconds(60)).apply()?;
//! match cache.get(b"k") {
//!     Lookup::Hit(item) => assert_eq!(item.to_vec(), b"v"),
//!     Lookup::Miss => unreachable!("nothing has removed it"),
//! }
//! # Ok::<(), ebbtide::Error>(())
//! ```
//!
//! A [`Cache`] is a cheap clone and may be used from any thread. A hit borrows the value where it lies; keep it short, or
//! make a [`Handle`] of it. The one memory number of the builder holds everything: items, index, headers and spares.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod admission;
mod aging;
mod background;
mod builder;
mod byte_size;
mod cache;
mod debug;
mod delete;
mod error;
mod fetch;
mod flash_threads;
mod hybrid;
mod item;
mod promotion;
mod raise;
mod reclaim;
mod removal;
mod retry;
mod risen;
mod scan;
mod share;
mod time;
mod upload;
mod visit;

/// What can be chosen about flash, and what it tells.
pub mod flash {
    pub use ebbtide_flash::admission::{AdmissionOptions, AdmissionStats, Policy, WriteBudget};
    pub use ebbtide_flash::busy_poll;
    pub use ebbtide_flash::device::{
        Device, DeviceStats, DiskOptions, DriveLog, Engine, Health, LaneStats, Latencies, ThreadRing,
    };
    pub use ebbtide_flash::large::{Reclaim, Reinsertion};
    pub use ebbtide_flash::{Drops, Ended, TierStats, Written, remove_left_fronts};
}

pub use admission::{FlashAdmission, NotAnAdmission};
pub use aging::FlashLimits;
pub use builder::CacheBuilder;
pub use byte_size::ByteSize;
pub use cache::{Cache, Insert};
pub use ebbtide_flash::TierOptions as FlashOptions;
pub use ebbtide_store::{
    Change, Changed, Count, CounterSnapshot, MetaFlags, MetaFlagsChange, MetaFlagsLookup, Mode, Number, Policy,
    SegmentSnapshot, Stats, Stored, Ttl, TtlBucketSnapshot, UnknownPolicy, Written,
};
pub use error::Error;
pub use fetch::{Fetch, Fetched, Landing, WhenBusy};
pub use hybrid::FlashStats;
pub use item::{Handle, Item, Lookup};
pub use promotion::{FlashPromotion, NotAPromotion};
pub use raise::Raised;
pub use reclaim::{FlashReclaim, FlashReinsertion, NotAReclaim};
pub use removal::{Cause, Removal};
pub use retry::{Patience, WaitReason};
pub use scan::{Entry, Scan};
pub use time::Clock;
pub use upload::Upload;
pub use visit::Visited;
