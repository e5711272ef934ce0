//! Ebbtide is a cache that keeps objects in TTL-indexed segments: objects that will expire together are written
//! together, expire together and are evicted together.
//!
//! ```
//! use ebbtide::{ByteSize, Cache, InsertOptions};
//! use std::time::Duration;
//!
//! let cache = Cache::builder().memory(ByteSize::mib(64)).default_ttl(Duration::from_secs(3600)).build()?;
//! cache.insert("k", "v")?;
//! cache.insert_with("short", "lived", InsertOptions::new().ttl(Duration::from_secs(60)))?;
//! let value = cache.get("k").expect("nothing has removed it");
//! assert_eq!(&value[..], b"v");
//! assert_eq!(cache.stats().hits, 1);
//! # Ok::<(), ebbtide::Error>(())
//! ```
//!
//! A [`Cache`] is a cheap clone and may be used from any thread; so may a [`Value`], which is owned. The one memory
//! number of the builder holds everything: entries, index, headers and spares. The guide is `docs/library.md`.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod access;
mod builder;
mod byte_size;
mod cache;
mod clock;
mod close;
mod compact_pool;
mod compact_pools;
mod compact_state;
mod debug;
mod delete;
mod edit;
mod engine;
mod error;
pub mod flash;
mod insert;
mod library;
mod lookup;
mod maintenance;
mod maintenance_queue;
#[doc(hidden)]
pub mod memcached;
mod memory_file;
mod memory_monitor;
mod meta_flags;
mod pool;
mod pool_budgets;
mod pool_controller;
mod pool_options;
mod pool_plan;
mod pool_state;
mod pool_stats;
mod pool_wishes;
mod pools;
mod profile;
mod removal;
mod removal_events;
mod retry;
mod scan;
pub mod structured;
mod upload;
mod wakeup;

/// The code of the guide compiles.
#[cfg(all(doctest, feature = "serde"))]
#[doc = include_str!("../../../docs/library.md")]
struct Guide;

/// The code of the page on structured values compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/structured.md")]
struct StructuredGuide;

/// The code of the migration page compiles.
#[cfg(all(doctest, feature = "serde"))]
#[doc = include_str!("../../../docs/library-migration.md")]
struct Migration;

pub use byte_size::ByteSize;
pub use clock::Clock;
pub use ebbtide_store::{CompactLookup as Lookup, MissTicket, Policy, Ttl, UnknownPolicy};
pub use error::Error;
#[cfg(feature = "serde")]
pub use library::Postcard;
pub use library::{
    Cache, CacheBuilder, Codec, CompactPool, CompactStats, InsertOptions, Iter, LoadError, Loaded, NegativeCache,
    PlainBytes, Pool, Stats, TypedCache, Value, ValueRef, WeakCache,
};
pub use memory_monitor::{InvalidPressure, PressureMode, PressureOptions};
pub use pool_options::PoolOptions;
pub use removal_events::RemovalCause;
