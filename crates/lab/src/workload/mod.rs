//! Synthetic load: which key comes next, how large it is, and whether it is read or written. Everything follows from
//! a seed, so that a run can be repeated.

mod choice;
mod popularity;
mod random;
mod sizes;
mod variates;
mod zipf;

pub use choice::WeightedChoice;
pub use popularity::{Popularity, Ranks};
pub use random::{Random, mix};
pub use sizes::SizeDistribution;
pub use zipf::Zipf;

pub(crate) use popularity::coprime_near_golden_section;
pub(crate) use random::unit;
pub(crate) use variates::normal;
