//! Synthetic load: which key comes next, how large it is, and whether it is read or written. Everything follows from
//! a seed, so that a run can be repeated.

mod popularity;
mod random;
mod sizes;
mod zipf;

pub use popularity::{Popularity, Ranks};
pub use random::{Random, mix};
pub use sizes::SizeDistribution;
pub use zipf::Zipf;
