//! What a policy remembers of keys that are not in the store.

use super::ghosts::Ghosts;
use super::policy::{HistoryKind, Policy};
use super::returns::{Evicted, ReturnRates};
use super::sketch::FrequencySketch;

/// The sample of return rates takes this part of the bytes of the ghosts, in addition.
const RETURNS_PART: u64 = 8;

/// The history of a policy.
pub enum History {
    None,
    Ghosts(Ghosts, ReturnRates),
    Sketch(FrequencySketch),
}

impl History {
    /// The history that the policy needs, in at most about `bytes` bytes.
    pub fn new(policy: Policy, bytes: u64) -> Self {
        match policy.history_kind() {
            HistoryKind::None => Self::None,
            HistoryKind::Ghosts => Self::Ghosts(Ghosts::new(bytes), ReturnRates::new(bytes / RETURNS_PART)),
            HistoryKind::Sketch => Self::Sketch(FrequencySketch::new(bytes)),
        }
    }

    /// Bytes that `new` takes for the same arguments.
    pub fn bytes(policy: Policy, bytes: u64) -> u64 {
        match policy.history_kind() {
            HistoryKind::None => 0,
            HistoryKind::Ghosts => Ghosts::bytes(bytes) + ReturnRates::bytes(bytes / RETURNS_PART),
            HistoryKind::Sketch => FrequencySketch::bytes(bytes),
        }
    }

    /// The initial frequency of a new key: as many uses as a returning key needs to leave the young segments.
    pub fn first_frequency(&self, hash: u64, now_ms: u64) -> u8 {
        match self {
            Self::None => 0,
            Self::Ghosts(ghosts, returns) => {
                if returns.is_probe(hash) {
                    returns.note_inserted(hash, now_ms);
                }
                if ghosts.take(hash) { 1 + u8::from(returns.needs_two_uses()) } else { 0 }
            }
            Self::Sketch(sketch) => {
                sketch.add(hash);
                0
            }
        }
    }

    /// Whether the first use of a young item does not count.
    pub fn needs_two_uses(&self) -> bool {
        matches!(self, Self::Ghosts(_, returns) if returns.needs_two_uses())
    }

    /// Records what an eviction finds of an item. `is_marginal`: a young item that is kept, and would not be if its
    /// first use did not count.
    pub fn note_scored(&self, hash: u64, is_marginal: bool, is_used_old: bool) {
        if let Self::Ghosts(_, returns) = self
            && (is_marginal || is_used_old)
            && returns.is_probe(hash)
        {
            match is_marginal {
                true => returns.note_kept(hash),
                false => returns.note_used(hash),
            }
        }
    }

    /// The frequency of a key in the history, in addition to that of its slot.
    pub fn frequency(&self, hash: u64) -> u8 {
        match self {
            Self::Sketch(sketch) => sketch.estimate(hash),
            Self::None | Self::Ghosts(..) => 0,
        }
    }

    /// Records an eviction.
    pub fn note_evicted(&self, hash: u64, evicted: Evicted, now_ms: u64) {
        if let Self::Ghosts(ghosts, returns) = self {
            if matches!(evicted, Evicted::Young { .. }) {
                ghosts.add(hash);
            }
            if returns.is_probe(hash) {
                returns.note_evicted(hash, evicted, now_ms);
            }
        }
    }

    /// What it remembers, as an image keeps it: a number for the kind, and words.
    pub fn words(&self) -> (u32, Vec<u64>) {
        match self {
            Self::None => (0, Vec::new()),
            Self::Ghosts(ghosts, _) => (1, ghosts.words()),
            Self::Sketch(sketch) => (2, sketch.words()),
        }
    }

    /// Goes on with what another one of the same kind and size remembered; with anything else it begins anew.
    pub fn restore(&self, kind: u32, words: &[u64]) {
        match (self, kind) {
            (Self::Ghosts(ghosts, _), 1) => ghosts.restore(words),
            (Self::Sketch(sketch), 2) => sketch.restore(words),
            _ => {}
        }
    }

    /// Adapts to the number of objects.
    pub fn fit(&self, objects: u64) {
        if let Self::Ghosts(ghosts, returns) = self {
            ghosts.fit(objects);
            returns.fit(objects);
        }
    }
}
