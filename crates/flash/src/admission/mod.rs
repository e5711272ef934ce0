//! Which objects are worth a write to flash.
//!
//! ```text
//! offer -> too small, or about to expire? -> policy -> budget -> admit
//! ```
//! | policy | admits |
//! |---|---|
//! | all | everything |
//! | probability | by chance |
//! | reject first | objects whose key was offered a number of times before |
//! | history | objects that are likely to be read, by the misses of DRAM in the last six hours |
//!
//! A budget goes with any of them: it lowers the share that is admitted until the device writes no more than it is to.
//! With history it takes what promises the most reads per byte, with the others it takes by chance.
//!
//! Time comes in. [`Admission::missed`] is for workers and takes no lock; the others take short ones.

mod gate;
mod history;
mod rate_controller;
mod reject_first;
#[cfg(test)]
mod tests;
mod threshold;

pub use gate::{Admission, AdmissionOptions, AdmissionPolicy, AdmissionStats, Decision, Limits, Offer, Reason};
pub use rate_controller::WriteBudget;
