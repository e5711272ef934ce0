//! Shared tools of the crates' tests: a model of the cache's contract, random operations that check a cache against
//! the model, and values that reveal a torn read or a read of another key.
//!
//! | where | what |
//! |---|---|
//! | `operation` | operations of a cache, and their possible answers |
//! | `model` | a plain map with time, which judges answers |
//! | `generator` | random operations |
//! | `check` | a run of random operations against the model |
//! | `stopped_threads` | threads that stop at a point until they are released |
//! | `stamp` | values that carry their key, version and checksum |
//! | `random` | repeatable random numbers |
//! | `ftl` | pages that a drive writes for the pages that it receives |
//! | `soak` | how many seeds a test takes |
//! | `stalls` | bounds in real time on machines that stall |
#![forbid(unsafe_code)]

mod check;
mod ftl;
mod generator;
mod model;
mod operation;
mod random;
mod soak;
mod stalls;
mod stamp;
mod stopped_threads;

pub use check::{Subject, check};
pub use ftl::Ftl;
pub use generator::{Generator, GeneratorOptions, Lives, Step};
pub use model::Model;
pub use operation::{Answer, Hit, Life, Mode, Operation, Write};
pub use random::Random;
pub use soak::seeds;
pub use stalls::repeat_after_stalls;
pub use stamp::Stamp;
pub use stopped_threads::StoppedThreads;
