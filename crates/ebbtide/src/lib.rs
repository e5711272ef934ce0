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
//!
//! | for | start here |
//! |---|---|
//! | building a cache | [`Cache::builder`], [`options`] |
//! | reading and writing | [`Pool`], to which a [`Cache`] derefs |
//! | loading missing values | [`Pool::get_or_insert_with`], [`Pool::get_or_load`] |
//! | tasks | [`Pool::get_async`], [`Pool::insert_async`] |
//! | typed keys and values | [`Pool::typed_with`], [`codec`] |
//! | being told of what leaves | [`CacheBuilder::eviction_listener`] |
//! | what more memory would give | [`CacheBuilder::profile_accesses`], [`Pool::curve`], [`Pool::what_if`] |
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod access;
mod builder;
mod byte_size;
mod cache;
mod change;
mod clock;
mod close;
mod compact_pool;
mod compact_pools;
mod compact_state;
mod curve_joints;
mod debug;
mod delete;
mod edit;
mod engine;
mod error;
pub mod flash;
mod flash_shares;
mod insert;
#[cfg(test)]
mod job_wait_tests;
mod library;
mod live_models;
mod live_profiles;
mod lookup;
mod maintenance;
mod maintenance_queue;
#[doc(hidden)]
pub mod memcached;
mod memory_file;
mod memory_monitor;
mod memory_waiters;
mod message;
mod meta_flags;
mod policy_models;
mod pool;
mod pool_budgets;
mod pool_controller;
mod pool_options;
mod pool_plan;
mod pool_policies;
mod pool_refusals;
mod pool_state;
mod pool_stats;
mod pool_table;
mod pool_wishes;
mod pools;
mod profile;
mod profile_note;
mod profile_start;
mod profile_thread;
mod removal;
mod removal_events;
mod rerouting;
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
pub use error::Error;
pub use library::{Cache, CacheBuilder, InsertOptions, Pool, Stats, TypedCache, Value, ValueRef};

/// Options of a cache and its pools.
pub mod options {
    pub use crate::clock::Clock;
    pub use crate::memory_monitor::{InvalidPressure, PressureMode, PressureOptions};
    pub use crate::pool_options::PoolOptions;
    pub use ebbtide_control::{HitRatio, InvalidHitRatio};
    pub use ebbtide_store::{InsertionPoint, Objective, Policy, Ttl, UnknownObjective, UnknownPolicy};
}

/// The controller that moves memory between pools: see [`CacheBuilder::controller`].
pub mod controller {
    pub use crate::pool_controller::{ControllerMode, PoolDecision, PoolMove};
    pub use crate::pool_policies::PoolPolicyChange;
    pub use ebbtide_control::PolicyChange;
}

/// Results of loaders, and options of loads: see [`Pool::get_or_load`].
pub mod loading {
    pub use crate::library::{LoadError, LoadOptions, Loaded, TypedLoaded};
}

/// Curves of pools: see [`Pool::curve`].
pub mod curves {
    pub use crate::profile::{CacheCurve, CurvePoint, Verdict};
    pub use ebbtide_control::{MissEntropy, SizeClassMisses};
}

/// Codecs of typed caches: see [`Pool::typed_with`].
pub mod codec {
    #[cfg(feature = "serde")]
    pub use crate::library::Postcard;
    pub use crate::library::{Codec, EncodeKey, PlainBytes};
    #[cfg(feature = "zerocopy")]
    pub use crate::library::{PlainLength, ZeroCopy};
}

/// Pools of fixed-size entries without overhead for each entry, and of negative results.
pub mod compact {
    pub use crate::library::{CompactPool, CompactStats, NegativeCache};
    pub use ebbtide_store::{CompactLookup as Lookup, MissTicket};
}

/// Handles that calls of a cache return: values that are being written or borrowed, iterators, and weak handles.
pub mod handle {
    #[cfg(feature = "zerocopy")]
    pub use crate::library::TypedRef;
    pub use crate::library::{Allocation, Iter, TypedIter, WeakCache};
}

/// The cause that an eviction listener is told: see [`CacheBuilder::eviction_listener`].
pub mod removal_cause {
    pub use crate::removal_events::RemovalCause;
}

// Under short names, too; their pages are those of the modules.
#[doc(hidden)]
pub use codec::*;
#[doc(hidden)]
pub use compact::*;
#[doc(hidden)]
pub use curves::*;
#[doc(hidden)]
pub use handle::*;
#[doc(hidden)]
pub use loading::*;
#[doc(hidden)]
pub use options::*;
#[doc(hidden)]
pub use removal_cause::*;
