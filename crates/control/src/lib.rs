//! Hit-rate curves: hits gained by more memory, and lost by less.
//!
//! The crate is pure: accesses go in, curves come out. It knows no cache, no clock and no file; time is an argument.
//!
//! ```text
//! access (key, size, time) -> the newest objects: all of them, exactly
//!                          -> Sampler: is the key sampled, with which weight?
//!                          -> Stack: stack distance in bytes, holes where objects died
//!                          -> Histogram: gets by distance
//!                          -> Curve: miss ratio by memory, interval, hull, cliffs
//! ```
//! [`Profiler`] is all of it. The method is that of Dynacache (HotCloud'15, sections 3.1 and 3.2), with the sampling by
//! hash of SHARDS (FAST'15) in place of a sample of applications.
//!
//! [`controller`] moves memory between pools by their curves, [`division`] is the best division of them all.
//! [`divide`] is apart from that: the bytes of each pool from its minimum, maximum and weight.

#![forbid(unsafe_code)]

pub mod arbiter;
mod buckets;
pub mod controller;
mod curve;
pub mod division;
mod entropy;
mod fenwick;
mod histogram;
mod hit_ratio;
mod layer;
mod policy_choice;
pub mod pressure;
mod profiler;
mod rate;
mod sampler;
mod shares;
mod size_misses;
mod stack;

pub use buckets::BucketedStack;
pub use curve::{Cliff, Curve, Point, memory_sizes};
pub use entropy::miss_entropy;
pub use hit_ratio::{HitRatio, InvalidHitRatio};
pub use policy_choice::{PolicyChange, PolicyChoice, PolicyDecision, PolicyKeepReason, PolicyReading};
pub use profiler::{Options, Profiler};
pub use rate::Rate;
pub use shares::{NAME_CHARACTERS_MAX, POOLS_MAX, Share, SharesError, check_name, divide};
pub use size_misses::{MissEntropy, SizeClassMisses, SizeMisses};
pub use stack::Stack;
