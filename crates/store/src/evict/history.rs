//! What a policy remembers of keys that are not in the store.

use super::ghosts::Ghosts;
use super::policy::{HistoryKind, Policy};
use super::sketch::FrequencySketch;

/// The history of a policy.
pub enum History {
    None,
    Ghosts(Ghosts),
    Sketch(FrequencySketch),
}

impl History {
    /// The history that the policy needs, in at most about `bytes` bytes.
    pub fn new(policy: Policy, bytes: u64) -> Self {
        match policy.history_kind() {
            HistoryKind::None => Self::None,
            HistoryKind::Ghosts => Self::Ghosts(Ghosts::new(bytes)),
            HistoryKind::Sketch => Self::Sketch(FrequencySketch::new(bytes)),
        }
    }

    /// Bytes that `new` takes for the same arguments.
    pub fn bytes(policy: Policy, bytes: u64) -> u64 {
        match policy.history_kind() {
            HistoryKind::None => 0,
            HistoryKind::Ghosts => Ghosts::bytes(bytes),
            HistoryKind::Sketch => FrequencySketch::bytes(bytes),
        }
    }

    /// The initial frequency of a new key.
    pub fn first_frequency(&self, hash: u64) -> u8 {
        match self {
            Self::None => 0,
            Self::Ghosts(ghosts) => ghosts.take(hash).into(),
            Self::Sketch(sketch) => {
                sketch.add(hash);
                0
            }
        }
    }

    /// The frequency of a key in the history, in addition to that of its slot.
    pub fn frequency(&self, hash: u64) -> u8 {
        match self {
            Self::Sketch(sketch) => sketch.estimate(hash),
            Self::None | Self::Ghosts(_) => 0,
        }
    }

    /// Records an eviction. `young`: the key had not survived an eviction before.
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
            Self::Sketch(sketch) => (2, sketch.words()),
        }
    }

    /// Goes on with what another one of the same kind and size remembered; with anything else it begins anew.
    pub fn restore(&self, kind: u32, words: &[u64]) {
        match (self, kind) {
            (Self::Ghosts(ghosts), 1) => ghosts.restore(words),
            (Self::Sketch(sketch), 2) => sketch.restore(words),
            _ => {}
        }
    }

    /// Adapts to the number of objects.
    pub fn fit(&self, objects: u64) {
        if let Self::Ghosts(ghosts) = self {
            ghosts.fit(objects);
        }
    }
}
