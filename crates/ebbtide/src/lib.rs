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
//! A [`Cache`] is a cheap clone and may be used from any thread. A hit borrows the value where it lies; keep it short,
//! or make a [`Handle`] of it. The one memory number of the builder holds everything: items, index, headers and spares.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod access;
mod builder;
mod byte_size;
mod cache;
mod clock;
mod close;
mod debug;
mod delete;
mod engine;
mod error;
pub mod flash;
mod insert;
mod lookup;
mod maintenance;
mod memory_file;
mod memory_monitor;
mod meta_flags;
mod pool;
mod pool_controller;
mod pool_options;
mod pool_state;
mod pool_wishes;
mod pools;
mod profile;
mod removal;
mod retry;
mod scan;
mod upload;
mod wakeup;

pub use builder::CacheBuilder;
pub use byte_size::ByteSize;
pub use cache::Cache;
pub use clock::Clock;
pub use ebbtide_flash::TierOptions as FlashOptions;
pub use ebbtide_store::{
    Change, Changed, Count, CounterSnapshot, Creation, MetaFlags, MetaFlagsChange, MetaFlagsLookup, Mode, Number,
    Policy, SegmentSnapshot, Stats, Stored, Ttl, TtlBucketSnapshot, UnknownPolicy, Written,
};
pub use error::{Error, WaitReason};
pub use flash::options::{FlashAdmission, FlashLimits, FlashReclaim, FlashReinsertion, NotAReclaim, NotAnAdmission};
pub use flash::promotion::{FlashPromotion, NotAPromotion};
pub use flash::read::{FlashProbe, FlashReads, ReadWake};
pub use flash::resolve::{ReadOutcome, ReadPurpose};
pub use flash::tier::FlashStats;
pub use insert::Insert;
pub use lookup::{Handle, Item, Lookup};
pub use memory_file::{MemorySaved, MemoryStart};
pub use memory_monitor::{InvalidPressure, MemoryMonitorStats, PressureMode, PressureOptions};
pub use meta_flags::MetaFlagsOutcome;
pub use pool::Pool;
pub use pool_controller::{ControllerMode, ControllerOptions, InvalidController, PoolController, PoolDecision, PoolMove};
pub use pool_options::PoolOptions;
pub use profile::{CacheCurve, CacheProfile, CurvePoint, Verdict};
pub use removal::{Cause, Removal};
pub use retry::Patience;
pub use scan::{Entry, Scan};
pub use upload::Upload;
