//! What a store remembers of keys that are not in it.

use super::ghosts::Ghosts;
use super::history::History;
use super::policy::{HistoryUse, Policy};

/// The memory of a policy.
pub enum Past {
    None,
    Ghosts(Ghosts),
    Frequencies(History),
}

impl Past {
    /// What the policy wants to remember, in at most about `bytes` bytes.
    pub fn new(policy: Policy, bytes: u64) -> Self {
        match policy.history() {
            HistoryUse::None => Self::None,
            HistoryUse::Ghosts => Self::Ghosts(Ghosts::new(bytes)),
            HistoryUse::Frequencies => Self::Frequencies(History::new(bytes)),
        }
    }

    /// Bytes that `new` takes for the same arguments.
    pub fn bytes(policy: Policy, bytes: u64) -> u64 {
        match policy.history() {
            HistoryUse::None => 0,
            HistoryUse::Ghosts => Ghosts::bytes(bytes),
            HistoryUse::Frequencies => History::bytes(bytes),
        }
    }

    /// The frequency with which a new key begins.
    pub fn first_frequency(&self, hash: u64) -> u8 {
        match self {
            Self::None => 0,
            Self::Ghosts(ghosts) => ghosts.take(hash).into(),
            Self::Frequencies(history) => {
                history.add(hash);
                0
            }
        }
    }

    /// How often a key came, beside what its slot counts.
    pub fn frequency(&self, hash: u64) -> u8 {
        match self {
            Self::Frequencies(history) => history.estimate(hash),
            Self::None | Self::Ghosts(_) => 0,
        }
    }

    /// A key was evicted. `young`: it had not survived an eviction before.
    pub fn note_evicted(&self, hash: u64, young: bool) {
        if let (Self::Ghosts(ghosts), true) = (self, young) {
            ghosts.add(hash);
        }
    }

    /// What it remembers, as an image keeps it: a number for the kind, and words.
    pub fn words(&self) -> (u32, Vec<u64>) {
        match self {
            Self::None => (0, Vec::new()),
            Self::Ghosts(ghosts) => (1, ghosts.words()),
            Self::Frequencies(history) => (2, history.words()),
        }
    }

    /// Goes on with what another one of the same kind and size remembered; with anything else it begins anew.
    pub fn restore(&self, kind: u32, words: &[u64]) {
        match (self, kind) {
            (Self::Ghosts(ghosts), 1) => ghosts.restore(words),
            (Self::Frequencies(history), 2) => history.restore(words),
            _ => {}
        }
    }

    /// There are about this many objects.
    pub fn fit(&self, objects: u64) {
        if let Self::Ghosts(ghosts) = self {
            ghosts.fit(objects);
        }
    }
}
