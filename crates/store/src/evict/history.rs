//! What a policy remembers of keys that are not in the store.

use super::ghosts::Ghosts;
use super::policy::{HistoryKind, Policy};
use super::returns::{Evicted, ReturnRates};
use super::sketch::FrequencySketch;

/// The sample of return rates takes this part of the bytes of the ghosts, in addition.
const RETURNS_PART: u64 = 8;

/// The first frequency of a key that returns, for policies that keep returned keys only. Uses do not lead there: over
/// 16 they count ever more rarely, so that 64 stand for about 2000.
pub const RETURNED_FREQUENCY: u8 = 64;
/// 2Q remembers half as many keys as the cache has items (Johnson and Shasha, section 3.2).
const RETURNED_GHOSTS_PART: u64 = 2;

/// The history of a policy.
pub enum History {
    None,
    Ghosts(Ghosts, ReturnRates),
    /// A returning key gets the frequency `RETURNED_FREQUENCY`.
    Returned(Ghosts),
    Sketch(FrequencySketch),
}

impl History {
    /// The history that the policy needs, in at most about `bytes` bytes.
    pub fn new(policy: Policy, bytes: u64) -> Self {
        match policy.history_kind() {
            HistoryKind::None => Self::None,
            HistoryKind::Ghosts => Self::Ghosts(Ghosts::new(bytes), ReturnRates::new(bytes / RETURNS_PART)),
            HistoryKind::Returned => Self::Returned(Ghosts::new(bytes)),
            HistoryKind::Sketch => Self::Sketch(FrequencySketch::new(bytes)),
        }
    }

    /// Bytes that `new` takes for the same arguments.
    pub fn bytes(policy: Policy, bytes: u64) -> u64 {
        match policy.history_kind() {
            HistoryKind::None => 0,
            HistoryKind::Ghosts => Ghosts::bytes(bytes) + ReturnRates::bytes(bytes / RETURNS_PART),
            HistoryKind::Returned => Ghosts::bytes(bytes),
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
            Self::Returned(ghosts) => {
                if ghosts.take(hash) {
                    RETURNED_FREQUENCY
                } else {
                    0
                }
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
            Self::None | Self::Ghosts(..) | Self::Returned(_) => 0,
        }
    }

    /// Records an eviction.
    pub fn note_evicted(&self, hash: u64, evicted: Evicted, now_ms: u64) {
        let is_young = matches!(evicted, Evicted::Young { .. });
        match self {
            Self::Ghosts(ghosts, _) | Self::Returned(ghosts) if is_young => ghosts.add(hash),
            _ => {}
        }
        if let Self::Ghosts(_, returns) = self
            && returns.is_probe(hash)
        {
            returns.note_evicted(hash, evicted, now_ms);
        }
    }

    /// What it remembers, as an image keeps it: a number for the kind, and words.
    pub fn words(&self) -> (u32, Vec<u64>) {
        match self {
            Self::None => (0, Vec::new()),
            Self::Ghosts(ghosts, _) | Self::Returned(ghosts) => (1, ghosts.words()),
            Self::Sketch(sketch) => (2, sketch.words()),
        }
    }

    /// Goes on with what another one of the same kind and size remembered; with anything else it begins anew.
    pub fn restore(&self, kind: u32, words: &[u64]) {
        match (self, kind) {
            (Self::Ghosts(ghosts, _) | Self::Returned(ghosts), 1) => ghosts.restore(words),
            (Self::Sketch(sketch), 2) => sketch.restore(words),
            _ => {}
        }
    }

    /// Adapts to the number of objects.
    pub fn fit(&self, objects: u64) {
        match self {
            Self::Ghosts(ghosts, returns) => {
                ghosts.fit(objects);
                returns.fit(objects);
            }
            Self::Returned(ghosts) => ghosts.fit(objects / RETURNED_GHOSTS_PART),
            Self::None | Self::Sketch(_) => {}
        }
    }
}
