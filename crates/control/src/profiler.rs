//! From accesses to a curve: sampling, stack distances, expiry, and the error of the sample.
//!
//! The model is a look-aside cache with LRU: a get that misses is followed by a set of the same object. A get of an
//! object in the stack finds it there in every cache that is large enough, with the expiry of the write; a set, append
//! or increment moves it to the top; a delete or an expiry frees its memory at once.
//!
//! Two stacks are kept. The **top** holds the newest objects, all of them: its distances are exact, and the keys that
//! are asked for most often are nearly always found there. Only gets that do not find their object there are left to
//! the **sample**, which reaches down to the last object but knows one of many. So the curve is exact for small caches,
//! where a sample would have a handful of objects, and hot keys, which no sample holds in the right number, do no harm.

use crate::curve::{Curve, Point};
use crate::histogram::{GROUPS, Histogram, Hits};
use crate::layer::Layer;
use crate::sampler::{Sampler, group};

/// The sampled share grows while the sample would be at most so full after it.
const FULL_AFTER_GROWTH: f64 = 0.7;
/// 97.5 % of a normal distribution lie below its mean plus this many standard deviations.
const NORMAL_975: f64 = 1.96;

/// How a workload is profiled. An object takes about 100 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Keys of the sample; where there are more, fewer are sampled. `None`: all are, and the curve is exact. 16,384
    /// keep the mean error of a curve near 0.005 (SHARDS, FAST'15, Fig. 6).
    pub max_sampled: Option<usize>,
    /// Newest objects that are kept without sampling. 0 where each access must cost next to nothing.
    pub max_top: usize,
    /// Keys are hashes of 64 bits, and the caller leaves out those whose share of 2^64 is not below
    /// [`Profiler::sample_rate`]. Then all objects are sampled alike, whatever their size, and ratios are those of the
    /// sampled gets, because the others are not counted.
    pub prefiltered: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_sampled: Some(16 << 10), max_top: 16 << 10, prefiltered: false }
    }
}

impl Options {
    /// For the accesses of a live cache, of which only sampled ones are seen; at most `max_sampled` keys are kept.
    pub fn live(max_sampled: usize) -> Self {
        Self { max_sampled: Some(max_sampled), max_top: 0, prefiltered: true }
    }

    /// All objects are kept.
    pub fn exact() -> Self {
        Self { max_sampled: None, max_top: 0, prefiltered: false }
    }
}

/// Profiles one stream of accesses.
#[derive(Clone, Debug)]
pub struct Profiler {
    options: Options,
    top: Layer,
    sampler: Sampler,
    sample: Layer,
    /// Keys that are not in the sample were not there before either if they are taken at this threshold: the lowest
    /// one that an object in the sample has lived through. Of the others nobody knows.
    known_below: f64,
    /// Whether there ever were more keys than the sample held.
    is_estimate: bool,
    /// Sampled gets that were counted, each as one.
    counted: f64,
    histogram: Histogram,
    gets: Sum,
    /// Gets that did not find their object in the top.
    deep: Sum,
    /// Estimate of `deep` from the sample, by the weights of its keys.
    sampled_deep: Sum,
    /// The sampled gets of each group of keys, and their bytes.
    of_group: [f64; GROUPS],
    bytes_of_group: [f64; GROUPS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: f64,
    bytes: f64,
}

impl Sum {
    fn add(&mut self, weight: f64, bytes: f64) {
        self.count += weight;
        self.bytes += weight * bytes;
    }
}

impl Default for Profiler {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl Profiler {
    /// A profiler that has seen nothing.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            top: Layer::default(),
            sampler: Sampler::new(options.prefiltered),
            sample: Layer::default(),
            known_below: 1.0,
            is_estimate: false,
            counted: 0.0,
            // A live cache does not tell the bytes of its misses.
            histogram: Histogram::new(!options.prefiltered),
            gets: Sum::default(),
            deep: Sum::default(),
            sampled_deep: Sum::default(),
            of_group: [0.0; GROUPS],
            bytes_of_group: [0.0; GROUPS],
        }
    }

    /// A get, and the set that follows where it misses, with these bytes and this life (0 is for ever). `now_seconds`
    /// must not fall.
    pub fn get(&mut self, key: u64, bytes: u64, ttl_seconds: u32, now_seconds: u64) {
        self.expire(now_seconds);
        if self.leaves_out(key) {
            return;
        }
        let (bytes, expires_at) = (bytes as f64, expiry(ttl_seconds, now_seconds));
        self.sampler.learn(bytes);
        let in_top = self.top.access(key, 1.0, 1.0).map(|found| found.distance);
        if !self.options.prefiltered {
            self.gets.add(1.0, bytes);
        }
        if let Some(distance) = in_top {
            self.histogram.add_exact(distance, bytes);
        } else if !self.options.prefiltered {
            self.deep.add(1.0, bytes);
        }
        self.get_sampled(key, bytes, expires_at, in_top.is_some());
        if in_top.is_none() {
            self.put_top(key, bytes, expires_at);
        }
    }

    fn get_sampled(&mut self, key: u64, bytes: f64, expires_at: u64, in_top: bool) {
        let known = self.sample.bytes_of(key);
        // A sampled key stays sampled, with the size recorded in the sample.
        if known.is_none() && !self.sampler.takes(key, bytes) {
            return;
        }
        let size = known.unwrap_or(bytes);
        let found = self.sample.access(key, self.sampler.weight(size), self.sampler.rate());
        if !in_top {
            match found {
                Some(found) => {
                    let weight = self.sampler.weight_at(found.threshold, size);
                    self.count_sampled(key, weight, bytes);
                    // The object is below the top, whatever distance the sample gives.
                    let distance = found.distance.max(self.top.depth_bytes());
                    self.histogram.add_sampled(distance, weight, bytes, group(key));
                }
                None => self.count_unknown(key, bytes),
            }
        }
        if found.is_none() {
            self.put_sampled(key, bytes, expires_at);
        }
    }

    /// Counts a get of a key that is not in the sample, if it would be there in case it had been asked for before.
    fn count_unknown(&mut self, key: u64, bytes: f64) {
        if self.sampler.takes_at(self.known_below, key, bytes) {
            self.count_sampled(key, self.sampler.weight_at(self.known_below, bytes), bytes);
        }
    }

    fn count_sampled(&mut self, key: u64, weight: f64, bytes: f64) {
        self.counted += 1.0;
        self.sampled_deep.add(weight, bytes);
        self.of_group[group(key)] += weight;
        self.bytes_of_group[group(key)] += weight * bytes;
        // Of the gets that are left out only the sampled ones tell.
        if self.options.prefiltered {
            self.gets.add(weight, bytes);
            self.deep.add(weight, bytes);
        }
    }

    /// A get that a live cache missed, so that nobody knows the object's size; the write that follows, if one does,
    /// tells it. Caches that are larger may have had it.
    pub fn get_missed(&mut self, key: u64, now_seconds: u64) {
        self.expire(now_seconds);
        if let Some(bytes) = self.sample.bytes_of(key) {
            self.get(key, bytes as u64, 0, now_seconds);
        } else if self.sampler.takes(key, 0.0) {
            self.count_unknown(key, 0.0);
        }
    }

    /// Whether a key that the caller should have left out is none of the sample: the rate may just have fallen.
    fn leaves_out(&self, key: u64) -> bool {
        self.options.prefiltered && !self.sampler.takes(key, 0.0)
    }

    /// A write of the object, whatever was there.
    pub fn set(&mut self, key: u64, bytes: u64, ttl_seconds: u32, now_seconds: u64) {
        self.expire(now_seconds);
        if self.leaves_out(key) {
            return;
        }
        let (bytes, expires_at) = (bytes as f64, expiry(ttl_seconds, now_seconds));
        self.sampler.learn(bytes);
        self.put_top(key, bytes, expires_at);
        self.sample.remove(key);
        if self.sampler.takes(key, bytes) {
            self.put_sampled(key, bytes, expires_at);
        }
    }

    /// Removes the object.
    pub fn delete(&mut self, key: u64, now_seconds: u64) {
        self.expire(now_seconds);
        self.top.remove(key);
        self.sample.remove(key);
    }

    /// Removes all objects; the counts stay.
    pub fn clear(&mut self) {
        self.top = Layer::default();
        self.sample = Layer::default();
    }

    /// Samples this share of the keys at most from now on.
    pub fn limit_rate(&mut self, rate: f64) {
        while self.sampler.rate() > rate.max(f64::MIN_POSITIVE) {
            self.lower_rate();
        }
    }

    /// Sets the largest number of keys in the sample, and removes those above it.
    pub fn limit_sampled(&mut self, max: usize) {
        self.options.max_sampled = Some(max);
        self.keep_within_limit();
    }

    /// Lowers the threshold while there are too many; what falls out was never there, and the rest stands for more.
    fn keep_within_limit(&mut self) {
        while self.options.max_sampled.is_some_and(|max| self.sample.len() > max) {
            self.lower_rate();
        }
    }

    fn lower_rate(&mut self) {
        self.sampler.lower();
        self.is_estimate = true;
        self.known_below = self.known_below.min(self.sampler.rate());
        let Self { sampler, sample, .. } = self;
        sample.retain(
            sampler.rate(),
            |key, bytes| sampler.takes(key, bytes),
            |threshold, bytes| sampler.weight_at(threshold, bytes),
        );
    }

    /// Removes sampled objects deeper than `bytes`, which only larger caches would hold: at each size of the curve
    /// their next get misses.
    pub fn limit_depth(&mut self, bytes: u64) {
        self.sample.cut_below(bytes as f64);
    }

    /// Samples up to `factor` times as many keys from now on, if the sample has space for them.
    ///
    /// Keys that were left out until now may have been asked for before, nobody knows: the first get of one is not
    /// counted. The curve stays without bias. A get that finds its object has the weight of the lowest share since the
    /// get before it; one that does not is told by the keys that were sampled all the time, with their weight.
    pub fn grow_rate(&mut self, factor: f64) {
        let (lowest, objects) = self.sample.thresholds();
        self.known_below = lowest.min(self.sampler.rate());
        let max_rate = self.options.max_sampled.map_or(f64::INFINITY, |max| FULL_AFTER_GROWTH * max as f64 / objects);
        self.sampler.increase_to((self.sampler.rate() * factor).min(max_rate));
    }

    /// Objects in the sample.
    pub fn sampled(&self) -> usize {
        self.sample.len()
    }

    /// Multiplies the weight of all earlier gets by `factor`.
    pub fn age(&mut self, factor: f64) {
        self.histogram.age(factor);
        for sum in [&mut self.gets, &mut self.deep, &mut self.sampled_deep] {
            *sum = Sum { count: sum.count * factor, bytes: sum.bytes * factor };
        }
        let of_group = self.of_group.iter_mut().chain(&mut self.bytes_of_group);
        of_group.for_each(|sum| *sum *= factor);
        self.counted *= factor;
    }

    /// The share of keys of the usual size that is sampled; 1 if all are, and the curve is exact.
    pub fn sample_rate(&self) -> f64 {
        self.sampler.rate()
    }

    /// Gets of the sample that the curve is made of, each as one; aged ones count less.
    pub fn counted_gets(&self) -> f64 {
        self.counted
    }

    /// Gets seen.
    pub fn gets(&self) -> f64 {
        self.gets.count
    }

    /// Bytes of the object of a get, on average; `None` before any.
    pub fn mean_bytes(&self) -> Option<f64> {
        (self.gets.count > 0.0).then(|| self.gets.bytes / self.gets.count)
    }

    /// Bytes of all objects that are alive, by the sample.
    pub fn footprint_bytes(&self) -> f64 {
        self.sample.iter().map(|(_, weighted)| weighted).sum()
    }

    /// The curve at these sizes, which must ascend. Empty if there was no get.
    ///
    /// The interval joins two errors of the sample at 95 %: that of the hits, by how far the groups of keys differ, and
    /// that of the distances, by which the curve may lie to the left or to the right.
    pub fn curve(&self, sizes: &[u64]) -> Curve {
        if self.gets.count <= 0.0 {
            return Curve::default();
        }
        let spreads = self.distance_spreads(sizes);
        let at = |part: fn(f64, f64) -> f64| {
            let sizes = sizes.iter().zip(&spreads).map(move |(&size, &spread)| part(size as f64, spread));
            self.histogram.hits_at(ascending(sizes))
        };
        let (middle, fewer, more) =
            (at(|size, _| size), at(|size, spread| size * (1.0 - spread)), at(|size, spread| size * (1.0 + spread)));
        let points = sizes.iter().enumerate().map(|(index, &memory_bytes)| {
            let [middle, fewer, more] = [&middle, &fewer, &more].map(|hits| &hits[index]);
            let (error, byte_error) = self.errors(middle);
            let (miss_ratio, byte_miss_ratio) = (self.miss_ratio(middle), self.byte_miss_ratio(middle));
            Point {
                memory_bytes,
                miss_ratio,
                low: (self.miss_ratio(more) - error).clamp(0.0, miss_ratio),
                high: (self.miss_ratio(fewer) + error).clamp(miss_ratio, 1.0),
                byte_miss_ratio,
                byte_low: (self.byte_miss_ratio(more) - byte_error).clamp(0.0, byte_miss_ratio),
                byte_high: (self.byte_miss_ratio(fewer) + byte_error).clamp(byte_miss_ratio, 1.0),
            }
        });
        Curve::new(points.collect())
    }

    fn miss_ratio(&self, hits: &Hits) -> f64 {
        let deep = self.deep_hits(hits.sampled, self.deep.count, self.sampled_deep.count);
        (1.0 - (hits.exact + deep) / self.gets.count).clamp(0.0, 1.0)
    }

    fn byte_miss_ratio(&self, hits: &Hits) -> f64 {
        if self.gets.bytes <= 0.0 {
            return 0.0;
        }
        let deep = self.deep_hits(hits.sampled_bytes, self.deep.bytes, self.sampled_deep.bytes);
        (1.0 - (hits.exact_bytes + deep) / self.gets.bytes).clamp(0.0, 1.0)
    }

    /// Hits below the top. The sample stands for more or fewer gets than there were. Without a top that is because a
    /// hot key is in it or is not, so what is over or missing counts as hits (SHARDS-adj, FAST'15, section 3.4). Below
    /// a top there are no hot keys, and all gets are like the sampled ones.
    fn deep_hits(&self, sampled: f64, deep: f64, sampled_deep: f64) -> f64 {
        if self.options.max_top == 0 && !self.options.prefiltered {
            return sampled + deep - sampled_deep;
        }
        if sampled_deep > 0.0 { sampled * deep / sampled_deep } else { 0.0 }
    }

    /// Half of the 95 % intervals of both miss ratios, of objects and of bytes.
    fn errors(&self, hits: &Hits) -> (f64, f64) {
        let of_objects = self.standard_error(
            (hits.sampled, &hits.of_group),
            (self.sampled_deep.count, &self.of_group),
            self.gets.count,
        );
        let of_bytes = self.standard_error(
            (hits.sampled_bytes, &hits.bytes_of_group),
            (self.sampled_deep.bytes, &self.bytes_of_group),
            self.gets.bytes,
        );
        (NORMAL_975 * of_objects, NORMAL_975 * of_bytes)
    }

    /// Of a miss ratio, by the groups: each is a sample of its own. Hits and gets: the sampled ones, and of each group;
    /// `all`: all gets.
    fn standard_error(&self, hits: (f64, &[f64; GROUPS]), gets: (f64, &[f64; GROUPS]), all: f64) -> f64 {
        if !self.is_estimate || gets.0 <= 0.0 || all <= 0.0 {
            return 0.0;
        }
        let ratio = match self.options.max_top {
            0 if !self.options.prefiltered => 0.0,
            _ => 1.0 - hits.0 / gets.0,
        };
        let misses = gets.1.iter().zip(hits.1).map(|(gets, hits)| gets - hits - ratio * gets);
        let mean = misses.clone().sum::<f64>() / GROUPS as f64;
        let variance = misses.map(|misses| (misses - mean).powi(2)).sum::<f64>() / (GROUPS - 1) as f64;
        (variance * GROUPS as f64).sqrt() / all
    }

    /// How far the bytes of the sample may be from those that it stands for, as a part of each size.
    fn distance_spreads(&self, sizes: &[u64]) -> Vec<f64> {
        let mut objects = self.sample.iter();
        let (mut bytes, mut variance) = (0.0, 0.0);
        let spread = |&size: &u64| {
            if !self.is_estimate || (size as f64) < self.top.depth_bytes() {
                return 0.0;
            }
            while bytes < size as f64
                && let Some((true_bytes, weighted)) = objects.next()
            {
                bytes += weighted;
                // Its weight is `weighted / true_bytes`.
                variance += weighted * (weighted - true_bytes);
            }
            if bytes > 0.0 { (NORMAL_975 * f64::sqrt(variance) / bytes).min(1.0) } else { 0.0 }
        };
        sizes.iter().map(spread).collect()
    }

    fn put_top(&mut self, key: u64, bytes: f64, expires_at: u64) {
        if self.options.max_top > 0 {
            self.top.put(key, bytes, (1.0, 1.0), expires_at);
            self.top.cut_to(self.options.max_top);
        }
    }

    fn put_sampled(&mut self, key: u64, bytes: f64, expires_at: u64) {
        self.sample.put(key, bytes, (self.sampler.weight(bytes), self.sampler.rate()), expires_at);
        self.keep_within_limit();
    }

    fn expire(&mut self, now_seconds: u64) {
        self.top.expire(now_seconds);
        self.sample.expire(now_seconds);
    }
}

/// The second in which an object expires; 0 is never.
fn expiry(ttl_seconds: u32, now_seconds: u64) -> u64 {
    if ttl_seconds == 0 { 0 } else { now_seconds.saturating_add(u64::from(ttl_seconds)) }
}

/// Each at least as large as the one before it.
fn ascending(sizes: impl Iterator<Item = f64>) -> impl Iterator<Item = f64> {
    sizes.scan(0.0f64, |before, size| {
        *before = before.max(size);
        Some(*before)
    })
}
