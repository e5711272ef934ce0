//! Pools behind one server: which keys belong to which pool, and counts by pool.
//!
//! ```text
//! PoolRule --PublishedPools::new, reload--> PoolSet --Router::refresh, once a round--> Router of each thread
//! ```
//! A [`PoolSet`] never changes. A reload publishes another one, and each thread takes it over between two rounds of its
//! event loop. So routing a key takes neither a lock nor an allocation. Entries whose keys belong to another pool since
//! a reload are deleted in the background (`sweep.rs`).

mod counts;
mod prefix_table;
mod reload;
mod router;
mod rule;
mod set;
pub mod sweep;
#[cfg(test)]
mod test_server;

pub use counts::PoolTotals;
pub use reload::{PoolChanges, Reload};
pub use router::Router;
pub use rule::PoolRule;
pub use set::{PoolEntry, PoolReading, PoolSet, PublishedPools};

/// The name of the pool that every cache has.
pub const DEFAULT_POOL: &str = "default";
