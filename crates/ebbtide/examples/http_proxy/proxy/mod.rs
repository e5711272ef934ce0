//! The proxy: from connections to answers.
//!
//! ```text
//! server.rs ----> handler.rs ----> origin.rs          requests that are not cached, and misses
//! connections     |    |
//!                 |    +---------> parts.rs           bodies, in parts of 256 KiB
//!                 +--------------> entry.rs           the value of a path: head and first part
//! freshness.rs, conditions.rs, range.rs               what HTTP says, as pure functions
//! ```
mod conditions;
mod entry;
mod freshness;
mod handler;
mod origin;
mod parts;
mod range;
mod server;

pub use server::{Proxy, Stop};
