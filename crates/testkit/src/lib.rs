//! What the tests of more than one crate use: a model of the cache's contract, random operations to hold a cache
//! against it, and values that betray a torn or foreign read.
//!
//! | where | what |
//! |---|---|
//! | `operation` | what can be asked of a cache, and what it may answer |
//! | `model` | a plain map with time, which judges answers |
//! | `generator` | random operations |
//! | `check` | a run of random operations against the model |
//! | `stamp` | values that carry their key, version and checksum |
//! | `random` | repeatable random numbers |
//! | `ftl` | what a drive writes for what it is given |
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

pub use check::{Subject, check};
pub use ftl::Ftl;
pub use generator::{Generator, GeneratorOptions, Lives, Step};
pub use model::Model;
pub use operation::{Answer, Hit, Life, Mode, Operation, Write};
pub use random::Random;
pub use soak::seeds;
pub use stalls::repeat_after_stalls;
pub use stamp::Stamp;
