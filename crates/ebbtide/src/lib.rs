//! Ebbtide is a cache that keeps objects in TTL-indexed segments: objects that will expire together are written
//! together, expire together and are evicted together.
//!
//! ```
//! use ebbtide::memcached::{ByteSize, Cache, Lookup, Ttl};
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
//! A [`memcached::Cache`] is a cheap clone and may be used from any thread. A hit borrows the value where it lies; keep
//! it short, or make a [`memcached::Handle`] of it. The one memory number of the builder holds everything: items,
//! index, headers and spares.
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
#[doc(hidden)]
pub mod memcached;
mod memory_file;
mod memory_monitor;
mod meta_flags;
mod pool;
mod pool_options;
mod pool_state;
mod pools;
mod profile;
mod removal;
mod retry;
mod scan;
mod upload;
mod wakeup;

pub use byte_size::ByteSize;
pub use clock::Clock;
pub use ebbtide_store::{Policy, Ttl, UnknownPolicy};
pub use error::Error;
pub use memory_monitor::{InvalidPressure, PressureMode, PressureOptions};
pub use pool_options::PoolOptions;
