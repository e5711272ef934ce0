//! The states of a segment.
//!
//! ```text
//!            take                seal              claim               unlinked             grace period over,
//!   Absent <------> Free ------> Open ------> Sealed ------> Draining ------> Retired ------> no handle  ----> Free
//!          give back             | |                                             ^
//!                                | +---------> Body --- value unlinked ----------+
//!                                +-------------------- dropped upload -----------+
//! ```
//! - **Absent**: outside the memory budget; its pages are returned to the system.
//! - **Free**: empty; nobody reads it.
//! - **Open**: written by exactly one owner: the holder of a stripe, a job, or an upload.
//! - **Sealed**: full or old enough; only unlinking changes its counters.
//! - **Body**: full of bytes of one value, its owner. A separate state, because it is left without a claim, while a
//!   sealed segment stays sealed until it is claimed.
//! - **Draining**: a job owns it and empties it; readers still read its items.
//! - **Retired**: no slot names it. Readers pinned before that, and handles, may still read it.

/// The state of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    Absent = 0,
    Free = 1,
    Open = 2,
    Sealed = 3,
    Draining = 4,
    Retired = 5,
    Body = 6,
}

impl State {
    pub fn from_word(word: u8) -> Self {
        match word {
            0 => Self::Absent,
            1 => Self::Free,
            2 => Self::Open,
            3 => Self::Sealed,
            4 => Self::Draining,
            5 => Self::Retired,
            6 => Self::Body,
            other => panic!("a segment in state {other}"),
        }
    }

    /// Whether a segment may pass from this state to `next`.
    pub fn may_become(self, next: Self) -> bool {
        use State::{Absent, Body, Draining, Free, Open, Retired, Sealed};
        matches!(
            (self, next),
            (Absent, Free)
                | (Free, Absent | Open)
                | (Open, Sealed | Body | Retired)
                | (Sealed, Draining)
                | (Draining | Body, Retired)
                | (Retired, Free)
        )
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::State;

    const ALL: [State; 7] =
        [State::Absent, State::Free, State::Open, State::Sealed, State::Draining, State::Retired, State::Body];

    #[test]
    fn words_and_states_correspond() {
        for state in ALL {
            assert_eq!(State::from_word(state as u8), state);
        }
    }

    #[test]
    fn a_visible_segment_is_reused_only_after_retiring() {
        for state in [State::Open, State::Sealed, State::Body, State::Draining] {
            assert!(!state.may_become(State::Free) && !state.may_become(State::Absent));
        }
        assert_eq!(ALL.into_iter().filter(|s| s.may_become(State::Free)).count(), 2);
    }
}
