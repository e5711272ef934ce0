//! Small objects on flash: set pages, with a log before them.
//!
//! ```text
//! insert -> open segment (RAM) -> log (flash) -- a set's objects together --> the set's page (4 KiB)
//! ```
//! A key belongs to one set, and a set has one page. Objects are first written to a log, whose index in RAM finds all
//! objects of a set. When an object reaches the log's end, its set's page is rewritten with all of them, or the object
//! is evicted. Each get costs at most one read, except for collisions of tags. Removed keys have a tombstone in RAM
//! until their page is rewritten.
//!
//! | where | what |
//! |---|---|
//! | `page` | the format of pages |
//! | `set_group`, `filter` | the state of the sets in RAM: log index, tombstones, filters |
//! | `store` | the store: its parts, inserts, removals, tokens |
//! | `log` | segments, from the open one in RAM to the oldest on flash |
//! | `lookup` | lookups, with their reads |
//! | `rewrite_choice` | pure decisions: which objects move to their page, return to the log, or are evicted |
//! | `reclaim`, `maintenance_state` | maintenance: the oldest segment, sets to clean up |
//! | `rewrite` | pages are composed and written |
//! | `zero_fill` | pages are written with zeros before they get objects |
//! | `scan` | a walk over all objects |
//! | `recover`, `checkpoint` | the state in RAM, read from flash |
//!
//! Threads: [`SmallStore::lookup`], `remove`, `is_current`, `could_exist` never wait for the device; `insert` neither.
//! Only [`SmallStore::maintain`] waits. The protocol is in `docs/concurrency.md`.

mod checkpoint;
mod filter;
mod log;
mod lookup;
mod maintenance_state;
mod options;
mod page;
mod reclaim;
mod recover;
mod rewrite;
mod rewrite_choice;
mod scan;
mod set_group;
mod stats;
mod store;
#[cfg(test)]
mod tests;
mod zero_fill;

pub use options::Options;
pub use page::{MAX_RECORD_BYTES, PAGE, record_bytes};
pub use recover::Recovered;
pub use stats::{Counts, Stats};
pub use store::{SmallDrop, SmallStore};

use store::{Newest, SmallShared, is_page_token, page_token};
