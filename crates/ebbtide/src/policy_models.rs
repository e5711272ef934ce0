//! The hit ratio of a pool with other memories, and under other policies, by models of segments without payload.
//!
//! ```text
//! sampled access -> SegmentModel of (memory, policy) -> hits, of which older ones count less
//!                -> SegmentModel of (memory, policy) -> hits      all see the same accesses
//! ```
//! A curve of LRU misleads about a pool that is not LRU. Far from the present memory, where no model is affordable, it
//! is all there is: `curve_joints` joins both.

use ebbtide_store::{AccessSample, Options, Policy, SampledAccess, SegmentModel, Ttl};
use std::collections::HashMap;
use std::fmt;

/// Bytes of a sampled item that are neither key nor value.
const ITEM_HEADER_BYTES: u64 = 5;
/// Segments of a model: with more the hit ratio stays the same, and a sample needs objects in each of them.
pub(crate) const MAX_SEGMENTS: u32 = 256;
/// Keys whose fill is awaited, at most.
const MAX_AWAITED: usize = 4096;

/// A pool with one memory and one policy.
struct ModelCell {
    memory_bytes: u64,
    policy: Policy,
    model: SegmentModel,
    hits: f64,
    /// Hits since [`PolicyModels::forget_counts`], none of which counts less.
    all_hits: u64,
}

impl ModelCell {
    fn count_hit(&mut self) {
        self.hits += 1.0;
        self.all_hits += 1;
    }
}

/// Models of one pool.
pub struct PolicyModels {
    /// The share of the keys that the models see.
    rate: f64,
    cells: Vec<ModelCell>,
    gets: f64,
    all_gets: u64,
    /// Keys that the pool missed, with the places of the cells that had them: the write that fills the pool is none
    /// there.
    awaited: HashMap<u64, u64>,
}

impl PolicyModels {
    /// Models of empty pools, with these memories and policies, 64 at most. Those in which no store works are left out.
    /// `options` are those of the pool; `rate` is the share of the keys that the models will see, by their hash.
    pub fn new(options: &Options, rate: f64, cells: impl IntoIterator<Item = (u64, Policy)>) -> Self {
        let segment_size = Some(options.effective_segment_size());
        let cell = |(memory_bytes, policy): (u64, Policy)| {
            let options = Options { memory_bytes, memory_bytes_max: None, policy, ..options.clone() };
            let options = Options { segment_size, ..options };
            let model = scaled_model(options, rate)?;
            Some(ModelCell { memory_bytes, policy, model, hits: 0.0, all_hits: 0 })
        };
        let cells = cells.into_iter().filter_map(cell).take(u64::BITS as usize).collect();
        Self { rate, cells, gets: 0.0, all_gets: 0, awaited: HashMap::new() }
    }

    /// Gets that the ratios are made of; older ones count less.
    pub fn gets(&self) -> f64 {
        self.gets
    }

    /// The policy of the first model.
    pub(crate) fn policy(&self) -> Option<Policy> {
        self.cells.first().map(|cell| cell.policy)
    }

    /// Whether each model of at most this memory has evicted all that it holds, twice over: then its hits are not those
    /// of a cache that has just started.
    pub fn has_turned_over(&self, memory_bytes: u64) -> bool {
        let smaller = self.cells.iter().filter(|cell| cell.memory_bytes <= memory_bytes);
        smaller.into_iter().all(|cell| cell.model.evictions() > 2 * cell.model.objects())
    }

    /// Counts anew, of the objects that the models hold.
    pub fn forget_counts(&mut self) {
        (self.gets, self.all_gets) = (0.0, 0);
        self.cells.iter_mut().for_each(|cell| (cell.hits, cell.all_hits) = (0.0, 0));
    }

    /// Gets, and the hits of each model with its policy, in the order of the cells; `None` where a model holds too few
    /// objects to predict.
    pub fn counts(&self) -> Option<(u64, Vec<(Policy, u64)>)> {
        let is_told = |cell: &ModelCell| cell.model.evictions() == 0 || cell.model.predicts();
        let hits = self.cells.iter().map(|cell| (cell.policy, cell.all_hits)).collect();
        self.cells.iter().all(is_told).then_some((self.all_gets, hits))
    }

    fn count_get(&mut self) {
        self.gets += 1.0;
        self.all_gets += 1;
    }

    /// A look-aside get of an object of this size: where it misses it is stored.
    pub fn get(&mut self, hash: u64, bytes: (u64, u64), ttl: Ttl, now_ms: u64) {
        self.count_get();
        for cell in &mut self.cells {
            if cell.model.get(hash, now_ms) {
                cell.count_hit();
            } else {
                cell.model.set(hash, bytes.0, bytes.1, ttl, now_ms);
            }
        }
    }

    /// A write of an object of this key and value length.
    pub fn set(&mut self, hash: u64, bytes: (u64, u64), ttl: Ttl, now_ms: u64) {
        self.cells.iter_mut().for_each(|cell| cell.model.set(hash, bytes.0, bytes.1, ttl, now_ms));
    }

    pub fn delete(&mut self, hash: u64) {
        self.cells.iter_mut().for_each(|cell| cell.model.delete(hash));
    }

    /// An access to the live pool. Keys that the models do not see are passed over.
    pub fn note(&mut self, sample: &AccessSample, now_ms: u64) {
        if sample.hash as f64 >= self.rate * 18_446_744_073_709_551_616.0 {
            return;
        }
        // The hashes of a sample are small numbers: the history of a policy needs all bits.
        let hash = mixed(sample.hash);
        let ttl = |expiry: Option<u64>| expiry.map_or(Ttl::Never, Ttl::Until);
        let size = |bytes: u64| (0, bytes.saturating_sub(ITEM_HEADER_BYTES));
        match sample.access {
            SampledAccess::Hit { bytes, expiry_seconds } => self.get(hash, size(bytes), ttl(expiry_seconds), now_ms),
            SampledAccess::Miss => self.miss(hash, now_ms),
            SampledAccess::Removal => {
                self.awaited.remove(&hash);
                self.delete(hash);
            }
            SampledAccess::Write { bytes, expiry_seconds } => {
                let has_it = self.awaited.remove(&hash).unwrap_or(0);
                let lacks_it = |(at, _): &(usize, &mut ModelCell)| (has_it >> at) & 1 == 0;
                for (_, cell) in self.cells.iter_mut().enumerate().filter(lacks_it) {
                    cell.model.set(hash, 0, size(bytes).1, ttl(expiry_seconds), now_ms);
                }
            }
        }
    }

    /// A get that the live pool missed.
    fn miss(&mut self, hash: u64, now_ms: u64) {
        self.count_get();
        let mut has_it = 0u64;
        for (at, cell) in self.cells.iter_mut().enumerate() {
            if cell.model.get(hash, now_ms) {
                cell.count_hit();
                has_it |= 1 << at;
            }
        }
        if has_it != 0 {
            if self.awaited.len() == MAX_AWAITED {
                self.awaited.clear();
            }
            self.awaited.insert(hash, has_it);
        }
    }

    /// Runs the maintenance of the modelled stores.
    pub fn maintain(&mut self, now_ms: u64) {
        self.cells.iter_mut().for_each(|cell| cell.model.maintain(now_ms));
    }

    /// Reduces the weight of all counts so far: 0.5 halves it.
    pub fn age(&mut self, factor: f64) {
        self.gets *= factor;
        self.cells.iter_mut().for_each(|cell| cell.hits *= factor);
    }

    /// Miss ratio by memory under a policy, by ascending memory, of the models that hold enough objects to predict.
    pub fn miss_ratios(&self, policy: Policy) -> Vec<(u64, f64)> {
        let is_told =
            |cell: &&ModelCell| cell.policy == policy && (cell.model.evictions() == 0 || cell.model.predicts());
        let ratio = |cell: &ModelCell| (cell.memory_bytes, 1.0 - cell.hits / self.gets.max(1.0));
        let mut ratios: Vec<(u64, f64)> = self.cells.iter().filter(is_told).map(ratio).collect();
        ratios.sort_unstable_by_key(|(memory_bytes, _)| *memory_bytes);
        ratios.dedup_by_key(|(memory_bytes, _)| *memory_bytes);
        ratios
    }
}

impl fmt::Debug for PolicyModels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells: Vec<_> = self.cells.iter().map(|cell| (cell.memory_bytes, cell.policy, cell.hits)).collect();
        f.debug_struct("PolicyModels").field("gets", &self.gets).field("cells", &cells).finish_non_exhaustive()
    }
}

/// A model of at most `MAX_SEGMENTS` segments: a larger pool is modelled as a smaller one of fewer keys. `None`
/// where no store works.
fn scaled_model(options: Options, rate: f64) -> Option<SegmentModel> {
    let (segments, _) = SegmentModel::segments_of(&options).ok()?;
    let scale = (f64::from(MAX_SEGMENTS) / f64::from(segments)).min(1.0).max(rate);
    let memory_bytes = (options.memory_bytes as f64 * scale) as u64;
    let value_bytes_max = options.value_bytes_max.min(memory_bytes / 2);
    let layout_bytes = options.layout_bytes.map(|bytes| (bytes as f64 * scale) as u64);
    SegmentModel::new(Options { memory_bytes, layout_bytes, value_bytes_max, ..options }, rate / scale).ok()
}

/// Another hash of a hash.
fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn models(policy: Policy) -> PolicyModels {
        let options = Options { memory_bytes: MIB, value_bytes_max: 4000, writers: 1, ..Options::default() };
        PolicyModels::new(&options, 1.0, [MIB, 4 * MIB].map(|memory_bytes| (memory_bytes, policy)))
    }

    /// Keys of which low numbers are asked for more often.
    fn keys() -> impl Iterator<Item = (u64, u64)> {
        (0..60_000u64).map(|number| {
            let part = mixed(number + 1) % 1000;
            (part * part * (mixed(number + (1 << 40)) % 20) / 1000, number)
        })
    }

    #[test]
    fn fills_after_model_hits_are_no_writes() {
        // FIFO evicts by the time of the write: a fill that counted as a write would keep used keys.
        let (mut asked, mut sampled) = (models(Policy::Fifo), models(Policy::Fifo));
        for (key, now_ms) in keys() {
            let hash = mixed(key + 1) >> 1;
            asked.get(mixed(hash), (0, 400), Ttl::Never, now_ms);
            // A pool that holds nothing: each get misses, and fills it.
            let bytes = 400 + ITEM_HEADER_BYTES;
            let write = SampledAccess::Write { bytes, expiry_seconds: None };
            for access in [SampledAccess::Miss, write] {
                sampled.note(&AccessSample { hash, access }, now_ms);
            }
        }
        let (asked, sampled) = (asked.miss_ratios(Policy::Fifo), sampled.miss_ratios(Policy::Fifo));
        assert_eq!(asked, sampled);
        assert!(asked.len() == 2 && asked[0].1 > asked[1].1 + 0.05 && asked[1].1 > 0.05, "{asked:?}");
    }

    /// The models of a share of the keys of a pool that holds nothing, and fills after each miss.
    fn sampled(policy: Policy, rate: f64, ttl_seconds: Option<u64>, is_deleted: bool) -> PolicyModels {
        let options = Options { memory_bytes: MIB, value_bytes_max: 4000, writers: 1, ..Options::default() };
        let mut models = PolicyModels::new(&options, rate, [(MIB, policy)]);
        for (key, now_ms) in keys() {
            // The sampled hashes of a rate are the small ones.
            let hash = (mixed(key + 1) as f64 * 2.0 * rate) as u64;
            let expiry_seconds = ttl_seconds.map(|ttl| now_ms / 1000 + ttl);
            let write = SampledAccess::Write { bytes: 400, expiry_seconds };
            for access in [SampledAccess::Miss, write].into_iter().chain(is_deleted.then_some(SampledAccess::Removal)) {
                models.note(&AccessSample { hash, access }, now_ms);
            }
        }
        models
    }

    #[test]
    fn models_sample_keys_with_expiry_and_removal() {
        let all = sampled(Policy::Lru, 1.0, None, false).counts().unwrap();
        assert!(all.1[0].1 > all.0 / 2, "{all:?}");
        let half = sampled(Policy::Lru, 0.5, None, false);
        // Hashes are drawn from twice the share.
        assert!(half.all_gets > 25_000 && half.all_gets < 35_000, "{half:?}");
        let expired = sampled(Policy::Lru, 1.0, Some(1), false);
        let forever = sampled(Policy::Lru, 1.0, Some(1000), false);
        assert!(expired.cells[0].all_hits + 1000 < forever.cells[0].all_hits, "{expired:?} {forever:?}");
        assert_eq!(sampled(Policy::Lru, 1.0, None, true).cells[0].all_hits, 0);
    }
}
