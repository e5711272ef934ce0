//! A policy's memory of keys that are not in the store.

use super::ghosts::Ghosts;
use super::policy::{HistoryKind, Policy};
use super::return_rates::{Evicted, ReturnRates};
use super::sketch::FrequencySketch;
use crate::error::Error;
use crate::sync::{AtomicU64, Ordering};

/// The sample of return rates takes this part of the bytes of the ghosts, in addition.
const RETURNS_PART: u64 = 8;

/// The first frequency of a key that returns, for policies that keep returned keys only. Uses do not lead there: over
/// 16 they count ever more rarely, so that 64 stand for about 2000.
pub const RETURNED_FREQUENCY: u8 = 64;
/// S3-FIFO remembers this percentage of as many evictions as the cache has items. The paper has nine tenths; a key that
/// comes back later than that many young evictions would not have been kept by the old segments, either.
const GHOSTS_PERCENT: u64 = 70;
/// 2Q remembers half as many keys as the cache has items (Johnson and Shasha, section 3.2).
const RETURNED_GHOSTS_PART: u64 = 2;

/// Kinds of histories in an image. 1 was a table of ghosts in other sets.
const GHOSTS_WORD: u32 = 3;
const SKETCH_WORD: u32 = 2;

/// The history of a policy. Its tables follow the memory of the store (see `resizable`).
pub struct History {
    tables: Tables,
    /// The memory that it was last sized for.
    sized_for_bytes: AtomicU64,
}

enum Tables {
    None,
    Ghosts(Ghosts, ReturnRates),
    /// A returning key gets the frequency `RETURNED_FREQUENCY`.
    Returned(Ghosts),
    Sketch(FrequencySketch),
}

impl History {
    /// For policies that remember nothing.
    pub fn none() -> Self {
        Self { tables: Tables::None, sized_for_bytes: AtomicU64::new(0) }
    }

    /// The history that the policy needs, in at most about `bytes` bytes, which `resize` changes to up to `max_bytes`.
    pub fn new(policy: Policy, bytes: u64, max_bytes: u64) -> Result<Self, Error> {
        let tables = match policy.history_kind() {
            HistoryKind::None => Tables::None,
            HistoryKind::Ghosts => {
                let returns = ReturnRates::new(bytes / RETURNS_PART, max_bytes / RETURNS_PART)?;
                Tables::Ghosts(Ghosts::new(bytes, max_bytes)?, returns)
            }
            HistoryKind::Returned => Tables::Returned(Ghosts::new(bytes, max_bytes)?),
            HistoryKind::Sketch => Tables::Sketch(FrequencySketch::new(bytes, max_bytes)?),
        };
        Ok(Self { tables, sized_for_bytes: AtomicU64::new(bytes) })
    }

    /// Bytes that `new` takes for the same arguments.
    pub fn bytes(policy: Policy, bytes: u64) -> u64 {
        Self::bytes_of(policy.history_kind(), bytes)
    }

    fn bytes_of(kind: HistoryKind, bytes: u64) -> u64 {
        match kind {
            HistoryKind::None => 0,
            HistoryKind::Ghosts => Ghosts::bytes(bytes) + ReturnRates::bytes(bytes / RETURNS_PART),
            HistoryKind::Returned => Ghosts::bytes(bytes),
            HistoryKind::Sketch => FrequencySketch::bytes(bytes),
        }
    }

    fn kind(&self) -> HistoryKind {
        match self.tables {
            Tables::None => HistoryKind::None,
            Tables::Ghosts(..) => HistoryKind::Ghosts,
            Tables::Returned(_) => HistoryKind::Returned,
            Tables::Sketch(_) => HistoryKind::Sketch,
        }
    }

    /// The size for a store in which it may take `bytes` bytes: that, or the present one if its tables would not be
    /// longer, nor shorter by more than a half. So a budget that moves a little changes no table.
    fn size_for(&self, bytes: u64) -> u64 {
        let present = self.sized_for_bytes.load(Ordering::Relaxed);
        let power = |bytes: u64| bytes.max(1).ilog2();
        if power(bytes) > power(present) || power(bytes) + 1 < power(present) { bytes } else { present }
    }

    /// Bytes of its tables now.
    pub fn present_bytes(&self) -> u64 {
        Self::bytes_of(self.kind(), self.sized_for_bytes.load(Ordering::Relaxed))
    }

    /// Bytes of its tables after `resize`.
    pub fn bytes_for(&self, bytes: u64) -> u64 {
        Self::bytes_of(self.kind(), self.size_for(bytes))
    }

    /// Follows the memory of a store in which it may take `bytes` bytes, if it may grow or has to shrink for that. One
    /// thread at a time calls it.
    pub fn resize(&self, bytes: u64, may_grow: bool) {
        let (size, present) = (self.size_for(bytes), self.sized_for_bytes.load(Ordering::Relaxed));
        if size < present || size > present && may_grow {
            self.sized_for_bytes.store(size, Ordering::Relaxed);
            self.set_size(size);
        }
    }

    fn set_size(&self, bytes: u64) {
        match &self.tables {
            Tables::None => {}
            Tables::Ghosts(ghosts, returns) => {
                ghosts.resize(bytes);
                returns.resize(bytes / RETURNS_PART);
            }
            Tables::Returned(ghosts) => ghosts.resize(bytes),
            Tables::Sketch(sketch) => sketch.resize(bytes),
        }
    }

    /// The initial frequency of a new key: as many uses as a returning key needs to leave the young segments.
    pub fn first_frequency(&self, hash: u64, now_ms: u64) -> u8 {
        match &self.tables {
            Tables::None => 0,
            Tables::Ghosts(ghosts, returns) => {
                if returns.is_probe(hash) {
                    returns.note_inserted(hash, now_ms);
                }
                if ghosts.take_or_chance(hash) { 1 + u8::from(returns.needs_two_uses()) } else { 0 }
            }
            Tables::Returned(ghosts) => {
                if ghosts.take(hash) {
                    RETURNED_FREQUENCY
                } else {
                    0
                }
            }
            Tables::Sketch(sketch) => {
                sketch.add(hash);
                0
            }
        }
    }

    /// Whether the first use of a young item does not count.
    pub fn needs_two_uses(&self) -> bool {
        matches!(&self.tables, Tables::Ghosts(_, returns) if returns.needs_two_uses())
    }

    /// Records the score of an item in an eviction. `is_marginal`: a young item that is kept, and would not be if its
    /// first use did not count.
    pub fn note_scored(&self, hash: u64, is_marginal: bool, is_used_old: bool) {
        if let Tables::Ghosts(_, returns) = &self.tables
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
        match &self.tables {
            Tables::Sketch(sketch) => sketch.estimate(hash),
            Tables::None | Tables::Ghosts(..) | Tables::Returned(_) => 0,
        }
    }

    /// Records an eviction.
    pub fn note_evicted(&self, hash: u64, evicted: Evicted, now_ms: u64) {
        let is_young = matches!(evicted, Evicted::Young { .. });
        match &self.tables {
            Tables::Ghosts(ghosts, _) | Tables::Returned(ghosts) if is_young => ghosts.add(hash),
            _ => {}
        }
        if let Tables::Ghosts(_, returns) = &self.tables
            && returns.is_probe(hash)
        {
            returns.note_evicted(hash, evicted, now_ms);
        }
    }

    /// Content for an image: a number for the kind, and words.
    pub fn words(&self) -> (u32, Vec<u64>) {
        match &self.tables {
            Tables::None => (0, Vec::new()),
            Tables::Ghosts(ghosts, _) | Tables::Returned(ghosts) => (GHOSTS_WORD, ghosts.words()),
            Tables::Sketch(sketch) => (SKETCH_WORD, sketch.words()),
        }
    }

    /// Takes over the content of another history of the same kind, in tables of its size, if that is a size for a store
    /// in which a history may take `bytes` bytes. Stays empty with anything else.
    pub fn restore(&self, kind: u32, words: &[u64], bytes: u64) {
        let size = match (&self.tables, kind) {
            (Tables::Ghosts(..) | Tables::Returned(_), GHOSTS_WORD) => Ghosts::bytes_of(words),
            (Tables::Sketch(_), SKETCH_WORD) => FrequencySketch::bytes_of(words),
            _ => None,
        };
        let power = |bytes: u64| bytes.max(1).ilog2();
        let Some(size) = size.filter(|size| power(*size).abs_diff(power(bytes)) <= 1) else { return };
        self.sized_for_bytes.store(size, Ordering::Relaxed);
        self.set_size(size);
        match (&self.tables, kind) {
            (Tables::Ghosts(ghosts, _) | Tables::Returned(ghosts), GHOSTS_WORD) => ghosts.restore(words),
            (Tables::Sketch(sketch), SKETCH_WORD) => sketch.restore(words),
            _ => {}
        }
    }

    /// Adapts to the number of objects.
    pub fn fit(&self, objects: u64) {
        match &self.tables {
            Tables::Ghosts(ghosts, returns) => {
                ghosts.fit(objects * GHOSTS_PERCENT / 100);
                returns.fit(objects);
            }
            Tables::Returned(ghosts) => ghosts.fit(objects / RETURNED_GHOSTS_PART),
            Tables::None | Tables::Sketch(_) => {}
        }
    }
}
