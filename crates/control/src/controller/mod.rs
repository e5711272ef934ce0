//! Controller: which pool gives memory to which other one, and when.
//!
//! ```text
//! readings --> plan: the best division, and the moves towards it --> Move
//!                        ^                                            |
//!                        |                                        more moves, up to a bound
//!                        |                                            |
//!                  kept, or undone <-- judge <-- measure <-- fill <---+
//! ```
//! [`Controller::decide`] is called at a fixed interval and returns one [`Decision`]. Moves form a **trial**: some
//! moves in the same direction, then a pause in which the receivers fill, then a measurement. A trial whose gain is
//! clearly below a part of its prediction is undone, and its pools do not move in that direction for some time.
//!
//! Four rules keep a stationary load at rest. A plan must gain more than its uncertainty, and more than a share of all
//! misses. Each pair of pools must gain by itself. A trial ends before the next one starts. A failed direction waits,
//! and twice as long each time.
//!
//! A pool with a target hit ratio gets the memory for it before the others share the rest: `target.rs`.
//!
//! The controller is pure: time and counters are arguments.

mod decision;
mod machine;
mod plan;
mod situation;
mod target;
mod trial;

pub use decision::{Decision, GainUnit, KeepReason, Move, PoolInCliff};
pub use machine::Controller;
pub use situation::{ControllerOptions, InvalidController, PoolReading, Situation};
pub use target::{Target, TargetState};
