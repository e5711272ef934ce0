//! A cache on slab storage with payload, for one thread: the systems of the Segcache paper (section 4.2.2) that are not
//! Segcache, on one store, so that only what they do differently is measured.
//!
//! ```text
//! page (1 MiB):   | chunk | chunk | chunk | ... | rest |      all chunks of a page have the size of its class
//! chunk:          | header | key | value | trailer | rest |   item, at the start of a chunk
//! ```
//! Chunk sizes grow by 1.25. A chained hash table leads to the items; each item's header has the next one of its chain,
//! as in memcached and Pelikan. The hash table is not part of the memory.
//!
//! | eviction | header, trailer in bytes | file |
//! |---|---|---|
//! | segmented LRU of memcached 1.6, automove, optional crawler | 56, 3 | `segmented_lru.rs`, `automove.rs` |
//! | whole slabs, as Pelikan and Twemcache | 38, 0 | `slab_eviction.rs` |
//! | Hyperbolic, sampled | 38, 0 | `sampled.rs`, `hyperbolic.rs` |
//! | LHD, sampled | 38, 0 | `sampled.rs`, `lhd.rs` |
//!
//! Times are seconds and given by the caller. Background threads of the originals are work of the caller's thread
//! here.
#![forbid(unsafe_code)]

mod automove;
mod hyperbolic;
mod lhd;
mod memory;
mod random;
mod sampled;
mod segmented_lru;
mod slab_eviction;
mod slabs;
mod space;
mod store;
mod table;

pub use hyperbolic::Hyperbolic;
pub use lhd::Lhd;
pub use sampled::{Ranking, Sampled};
pub use segmented_lru::SegmentedLru;
pub use slab_eviction::{SlabEviction, VictimSlab};
pub use space::{Eviction, NEVER, Space};
pub use store::SlabStore;

#[cfg(test)]
mod tests;
