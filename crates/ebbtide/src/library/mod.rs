//! The interface for Rust programs: caches and pools with owned values.
//!
//! ```text
//! Cache --derefs to--> Pool --wraps--> memcached::Pool --> Access --> Engine
//!                        |
//!                        +--> Settings: what all handles of a cache share
//! ```
//! Every operation is one call of `memcached::Pool`, which has the engine's semantics. This interface adds owned
//! values, a default TTL, counts of hits and misses, and loading.

mod allocation;
mod builder;
mod cache;
mod codec;
mod compact;
mod curves;
mod entry_kind;
pub(crate) mod flash_options;
pub(crate) mod flash_stats;
mod insert_options;
mod iter;
mod load_options;
mod load_sync;
pub(crate) mod load_table;
mod load_wait;
mod loader;
pub(crate) mod lookup_counters;
mod lookups_async;
mod negative_cache;
mod pool;
mod remove_if;
mod stats;
mod typed;
mod typed_async;
mod value;
mod writes;
mod writes_async;
#[cfg(feature = "zerocopy")]
mod zero_copy;

pub use allocation::Allocation;
pub use builder::CacheBuilder;
pub use cache::{Cache, WeakCache};
#[cfg(feature = "serde")]
pub use codec::Postcard;
pub use codec::{Codec, EncodeKey, PlainBytes};
pub use compact::{CompactPool, CompactStats};
pub use insert_options::InsertOptions;
pub use iter::Iter;
pub use load_options::{LoadOptions, Loaded, TypedLoaded};
pub use loader::LoadError;
pub use negative_cache::NegativeCache;
pub use pool::Pool;
pub use stats::Stats;
pub use typed::{TypedCache, TypedIter};
pub use value::{Value, ValueRef};
#[cfg(feature = "zerocopy")]
pub use zero_copy::{PlainLength, TypedRef, ZeroCopy};

use ebbtide_store::Ttl;
use std::time::Duration;

/// Settings that all handles of a cache share.
#[derive(Clone, Debug)]
struct Settings {
    /// The TTL of writes that name none.
    default_ttl: Ttl,
    /// How long a caller waits for the loader of another one.
    load_timeout: Duration,
    /// How long entries without a TTL of their own live after their last use.
    time_to_idle: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            // As in other in-process caches: an entry lives until it is evicted.
            default_ttl: Ttl::Never,
            // Longer than the timeouts of most databases, so that their errors arrive first.
            load_timeout: Duration::from_secs(60),
            // Eviction removes idle entries anyway.
            time_to_idle: None,
        }
    }
}
