//! The image of a store: all that a new store needs to go on where this one stopped, as a stream of bytes.
//!
//! ```text
//! image     head | buckets | segment, segment, ... | end
//! head      magic 8 B | version u32 | segment bytes u32 | seed u64 | hash of the magic u64 | memory at creation u64 |
//!           its maximum u64 | memory u64 | limit u32 | withheld u32 | split word u64 | paid buckets u64 | now ms u64 |
//!           quantum u32 | quantum ms u32 | generation u64 | flush at ms u64 | last stamp u64 | 13 counters u64 |
//!           kind of history u32 | words of history u32, and those u64 | frames u32, and the number of each u32
//! buckets   as they lie in memory, 64 B each, as many as the split word says
//! segment   number u32 | state u8 | shift u8 | rounds u8 | 0 u8 | TTL bucket u32 | link u32 | origin s u64 |
//!           generation u64 | opened ms u64 | stamp u64 | owner hash u64 | live bytes u32 | live items u32 |
//!           write offset u32 | written items u32 | latest expiry s u64 | body bytes u64 | next expiry s u64 |
//!           expired bytes u64 | the bytes up to the write offset; of a body, all
//! end       segment number 0 u32
//! ```
//! Numbers are little-endian. Segments that are chained come chain by chain, the oldest first: their order is that of
//! the chains. Free and retired segments are not in it. A segment has the number that it had in the address space of
//! its engine; the list of frames says which position that was (see `frames`). A loaded store has other frames, so
//! slots, links and the heads of chained values get the number of the segment that has the same position now. All else
//! stays bit for bit what it was.
//!
//! The image has no checksum of its own: who keeps it sees to that. A loader checks every number that it goes by, so
//! that a damaged image is an error and never undefined behaviour.

mod load;
mod positions;
mod save;
mod words;

pub use load::{ImageError, Loaded};
pub use save::Saved;

use crate::segment::State;

const MAGIC: [u8; 8] = *b"EBBSTORE";
const VERSION: u32 = 2;

/// The states that an image can tell of.
fn state_of_word(word: u8) -> Option<State> {
    match word {
        3 => Some(State::Sealed),
        6 => Some(State::Body),
        _ => None,
    }
}
