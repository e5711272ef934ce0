//! The image of a store: all state that a new store needs to continue from it, as a stream of bytes.
//!
//! ```text
//! image     head | segment, segment, ... | end | buckets
//! head      magic 8 B | version u32 | segment size u32 | seed u64 | hash of the magic u64 | memory of the layout u64 |
//!           its maximum u64 | memory u64 | limit u32 | withheld u32 | split word u64 | paid buckets u64 | now ms u64 |
//!           quantum u32 | quantum ms u32 | generation u64 | flush at ms u64 | last stamp u64 | 14 counters u64 |
//!           kind of history u32 | words of history u32, and those u64 | frames u32, and the number of each u32
//! segment   number u32 | state u8 | shift u8 | rounds u8 | 0 u8 | TTL bucket u32 | link u32 | origin s u64 |
//!           generation u64 | opened ms u64 | stamp u64 | owner hash u64 | write offset u32 | written items u32 |
//!           latest expiry s u64 | next expiry s u64 | expired bytes u64 | live items u32 | live bytes u32 |
//!           body bytes u64 |
//!           checksum of the bytes in use u64: those up to the write offset, of a body all
//! end       segment number 0 u32
//! buckets   as they lie in memory, 64 B each, as many as the split word says
//! ```
//! Numbers are little-endian. Segments that are chained come chain by chain, the oldest first: their order is that of
//! the chains. Free and retired segments are not in it. The bytes of segments are not in it either: each has its place
//! in the address space of the engine (see `frames`), and is kept there, or in a file at the same offset. A loaded
//! store has the same frames in the same order, so that all numbers stay what they were.
//!
//! The image has no checksum of its own: the caller that keeps it adds one. A loader checks every number that it goes
//! by, and each slot against the bytes in use of its segment (`slot_counts`). Then it checks the bytes of segments
//! (`checked`), so that a damaged image is an error and never undefined behaviour. Bytes without a write since the save
//! are not read (`SegmentBytes::Unchanged`): a load takes time by the size of the index then.

mod checked;
mod load;
mod save;
mod slot_counts;
mod words;

pub use load::{ImageError, Loaded, OnThreads, SegmentBytes};
pub(crate) use load::{check, damaged};
pub use save::Saved;
pub(crate) use words::{Put, Take};

use crate::segment::{SegmentId, State};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};

const MAGIC: [u8; 8] = *b"EBBSTORE";
const VERSION: u32 = 9;
/// A format that is read, too: it has no count of demoted objects, which is the last of the counters.
const VERSION_WITHOUT_DEMOTED: u32 = 8;

/// The states that an image can tell of.
fn state_of_word(word: u8) -> Option<State> {
    match word {
        3 => Some(State::Sealed),
        6 => Some(State::Body),
        _ => None,
    }
}

/// The checksum of the bytes of a segment that are in use.
fn checksum(segment: SegmentId, bytes: &[u8]) -> u64 {
    let secrets = RapidSecrets::seed(segment.number().into());
    rapidhash_v3_inline::<true, false, false>(bytes, &secrets)
}
