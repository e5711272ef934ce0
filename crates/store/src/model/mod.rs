//! A model of the store without payload: which objects a store of some memory would hold, and so its hits.
//!
//! ```text
//! accesses of sampled keys -> SegmentModel (memory 1) -> hits
//!                          -> SegmentModel (memory 2) -> hits      one model for each memory and policy
//! ```
//! A curve of LRU misleads about a cache that is not LRU. The model keeps, for each object, its size, expiry and
//! frequency, and for each segment the list of its objects. It has no bytes of values, no index and no threads. It runs
//! the functions of the store that decide: the policy's choice among segments, scores and threshold of a run, aging,
//! the history of evicted keys, TTL buckets, quanta of time, compaction, and how the memory is divided between fixed
//! tables, index and segments.
//!
//! Of a sampled load the model sees one key of several. It has as many segments as the store, with a capacity scaled by
//! the sampling rate. With fewer than [`MIN_OBJECTS_PER_SEGMENT`] objects in a segment or [`MIN_OBJECTS`] in all a
//! sample predicts little; a model of all keys is not bound by that. Dropped against the store: pins of readers, flash,
//! the rounding of expiries, the sharing of open segments between TTL buckets beyond the first that fits.

mod expiry;
mod plan;
mod run;
mod segments;

use crate::budget::{MemoryLayout, buckets_per_segment, open_limit};
use crate::error::Error;
use crate::evict::decisions::{FREE_TARGET_SHARE, PlannedEviction};
use crate::evict::{HISTORY_SHARE, History};
use crate::index::{BUCKET_SLOTS, Slot, Tag};
use crate::item::{CHAINED_PREFIX_BYTES, EXTENSION_BYTES_MAX, ITEM_HEADER_BYTES, VALUE_PART_BYTES_MAX};
use crate::options::Options;
use crate::segment::{Location, SHORT_SHARE, SegmentId, reserve, reserve_max};
use crate::time::{Clock, Moment};
use crate::ttl::{Ttl, TtlBucket};
use segments::{ItemShape, Life, SegmentTable};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Sampled objects in a segment, and in all, from which on a sample predicts.
pub const MIN_OBJECTS_PER_SEGMENT: u64 = 8;
pub const MIN_OBJECTS: u64 = 4000;

/// The load at which the index grows: it is kept between this and a fiftieth more.
const INDEX_LOAD: f64 = 0.87;
/// Milliseconds between two looks at segments that have been open for long, as in the store.
const SEAL_INTERVAL_MS: u64 = 100;

/// An object that is in the cache.
struct Object {
    hash: u64,
    /// Its segment, its place in the segment's list, and its frequency.
    slot: Slot,
    shape: ItemShape,
    /// The quantum of its last access.
    quantum: u16,
}

/// A store of segments that hold no bytes.
pub struct SegmentModel {
    options: Options,
    sample_rate: f64,
    layout: MemoryLayout,
    /// Buckets of the index that the memory pays for.
    paid_buckets: u64,
    objects: Vec<Object>,
    unused_objects: Vec<u32>,
    numbers: HashMap<u64, u32, BuildHasherDefault<HashedAlready>>,
    segments: SegmentTable,
    /// The open segment of each TTL bucket.
    open: Vec<Option<SegmentId>>,
    open_count: u32,
    survivors: Vec<SegmentId>,
    compacted: Vec<SegmentId>,
    history: History,
    clock: Clock,
    cursor: u32,
    planned: Vec<PlannedEviction>,
    sparse: Vec<SegmentId>,
    evictions_without_gain: u32,
    compactions_without_gain: u32,
    body_bytes: u64,
    evictions: u64,
    sealed_ms: u64,
    random: u64,
}

/// Hashes of keys are hashes already.
#[derive(Default)]
struct HashedAlready(u64);

impl Hasher for HashedAlready {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys of the map are numbers");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl SegmentModel {
    /// A model of an empty store with these options, for the keys that are sampled at this rate, above 0 and at most 1.
    ///
    /// # Errors
    /// `Options` as [`crate::Store::new`], and for a memory in which no segment is left.
    pub fn new(options: Options, sample_rate: f64) -> Result<Self, Error> {
        let refuse =
            |option, value: String, reason: &str| Err(Error::Options { option, value, reason: reason.to_owned() });
        if !(sample_rate > 0.0 && sample_rate <= 1.0) {
            return refuse("sample_rate", sample_rate.to_string(), "a share of all keys above 0, at most 1, is needed");
        }
        let history_bytes = options.memory_bytes / HISTORY_SHARE;
        let layout = MemoryLayout::plan(&options, History::bytes(options.policy, history_bytes))?;
        if layout.segments < 2 * options.merge_run {
            return refuse("memory", options.memory_bytes.to_string(), "too few segments fit beside the index");
        }
        let sampled_bytes = (history_bytes as f64 * sample_rate) as u64;
        Ok(Self {
            sample_rate,
            paid_buckets: 1 << layout.index_level,
            objects: Vec::new(),
            unused_objects: Vec::new(),
            numbers: HashMap::default(),
            segments: SegmentTable::new(layout.scale.buckets(), layout.segment_bytes, sample_rate),
            open: vec![None; layout.scale.buckets()],
            open_count: 0,
            survivors: Vec::new(),
            compacted: Vec::new(),
            history: History::new(options.policy, sampled_bytes, sampled_bytes)?,
            clock: Clock::new(),
            cursor: 0,
            planned: Vec::new(),
            sparse: Vec::new(),
            evictions_without_gain: 0,
            compactions_without_gain: 0,
            body_bytes: 0,
            evictions: 0,
            sealed_ms: 0,
            random: options.seed | 1,
            layout,
            options,
        })
    }

    /// The segments of a store with these options, and the bytes of each.
    ///
    /// # Errors
    /// As `new`.
    pub fn segments_of(options: &Options) -> Result<(u32, u32), Error> {
        let history = History::bytes(options.policy, options.memory_bytes / HISTORY_SHARE);
        let layout = MemoryLayout::plan(options, history)?;
        Ok((layout.segments, layout.segment_bytes))
    }

    /// Looks up a sampled key; true if it hits.
    pub fn get(&mut self, hash: u64, now_ms: u64) -> bool {
        let moment = self.clock.observe(now_ms);
        let Some(&number) = self.numbers.get(&hash) else { return false };
        if self.is_expired(number, moment) {
            return false;
        }
        let random = self.next_random();
        let object = &mut self.objects[number as usize];
        if object.quantum != moment.quantum || !object.slot.is_counted() {
            object.slot = object.slot.counted(|| random);
            object.quantum = moment.quantum;
        }
        true
    }

    /// Whether a sampled key is in the cache. Counts nothing.
    pub fn contains(&self, hash: u64, now_ms: u64) -> bool {
        let moment = self.clock.observe(now_ms);
        self.numbers.get(&hash).is_some_and(|&number| !self.is_expired(number, moment))
    }

    /// Stores an object of this key and value length under a sampled key. One that is too large for the store changes
    /// nothing.
    pub fn set(&mut self, hash: u64, key_bytes: u64, value_bytes: u64, ttl: Ttl, now_ms: u64) {
        let moment = self.clock.observe(now_ms);
        let expiry_seconds = match ttl {
            Ttl::Never => u64::MAX,
            Ttl::Seconds(seconds) => moment.seconds() + u64::from(seconds),
            Ttl::Until(seconds) => seconds,
            Ttl::Expired => 0,
        };
        if expiry_seconds <= moment.seconds() {
            return self.delete(hash);
        }
        if value_bytes > self.options.value_bytes_max {
            return;
        }
        let left = u32::try_from(expiry_seconds - moment.seconds()).unwrap_or(u32::MAX);
        let bucket = if expiry_seconds == u64::MAX { TtlBucket::NEVER } else { self.layout.scale.bucket(left) };
        let shape = self.shape_of(key_bytes + value_bytes, expiry_seconds);
        let segment = self.reserve(bucket, &shape, moment);
        let number = match self.numbers.get(&hash) {
            Some(&number) => {
                self.leave_segment(number);
                number
            }
            None => self.admit(hash, shape, moment),
        };
        self.place(number, segment, shape);
    }

    /// Removes a sampled key.
    pub fn delete(&mut self, hash: u64) {
        if let Some(&number) = self.numbers.get(&hash) {
            self.unlink(number);
        }
    }

    /// Simulates maintenance of the store: seals, expires, and evicts ahead of need.
    pub fn maintain(&mut self, now_ms: u64) {
        let moment = self.clock.observe(now_ms);
        if moment.ms >= self.sealed_ms {
            self.sealed_ms = moment.ms + SEAL_INTERVAL_MS;
            self.seal_due(moment);
        }
        self.pay_for_index();
        self.expire_due(moment);
        let target = (self.limit() / FREE_TARGET_SHARE).max(2);
        self.free_segments(target, moment);
    }

    /// Objects in the cache, by the sample.
    pub fn objects(&self) -> u64 {
        self.numbers.len() as u64
    }

    /// Objects that were evicted, by the sample.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Whether the sample holds enough objects for a prediction. A model of all keys always does.
    pub fn predicts(&self) -> bool {
        let objects = self.objects();
        let per_segment = MIN_OBJECTS_PER_SEGMENT * u64::from(self.limit());
        self.sample_rate >= 1.0 || objects >= MIN_OBJECTS.max(per_segment)
    }

    /// Every count agrees with the objects.
    ///
    /// # Panics
    /// If one does not.
    pub fn verify(&self) {
        let mut items = vec![(0, 0); self.segments.count() as usize];
        for &number in self.numbers.values() {
            let object = &self.objects[number as usize];
            let counted = &mut items[object.slot.segment().index()];
            *counted = (counted.0 + 1, counted.1 + object.shape.size);
            let listed = &self.segments.at(object.slot.segment()).objects;
            assert_eq!(listed[object.slot.location().offset() as usize], number, "an object is where its slot says");
        }
        for segment in self.segments.ids() {
            let found = self.segments.at(segment);
            assert_eq!((found.live_items, found.live_bytes), items[segment.index()], "{segment:?} {:?}", found.life);
            assert_eq!(found.life == Life::Free, found.objects.is_empty(), "{segment:?}");
        }
        let bodies: u64 = self.numbers.values().map(|&number| self.objects[number as usize].shape.body_bytes).sum();
        assert_eq!(bodies, self.body_bytes);
    }

    fn next_random(&mut self) -> u32 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 32) as u32
    }

    fn is_expired(&self, number: u32, moment: Moment) -> bool {
        self.objects[number as usize].shape.expiry_seconds <= moment.seconds()
    }

    /// Bytes of an item. A long value fills bodies, and its last bytes are in the item.
    fn shape_of(&self, bytes: u64, expiry_seconds: u64) -> ItemShape {
        let segment_bytes = u64::from(self.layout.segment_bytes);
        let whole = bytes + u64::from(ITEM_HEADER_BYTES);
        if whole + u64::from(EXTENSION_BYTES_MAX) <= segment_bytes && bytes <= VALUE_PART_BYTES_MAX.into() {
            return ItemShape { size: whole, body_bytes: 0, expiry_seconds };
        }
        let size = bytes % segment_bytes + u64::from(ITEM_HEADER_BYTES + CHAINED_PREFIX_BYTES);
        ItemShape { size, body_bytes: bytes / segment_bytes * segment_bytes, expiry_seconds }
    }

    /// A number for an object that is not in the cache.
    fn admit(&mut self, hash: u64, shape: ItemShape, moment: Moment) -> u32 {
        let frequency = self.history.first_frequency(hash, moment.ms);
        // The location follows when the object is placed.
        let slot = Slot::new(Tag::of(hash), frequency, Location::new(SegmentId::new(1), 0));
        let object = Object { hash, slot, shape, quantum: moment.quantum };
        let number = match self.unused_objects.pop() {
            Some(number) => {
                self.objects[number as usize] = object;
                number
            }
            None => {
                self.objects.push(object);
                self.objects.len() as u32 - 1
            }
        };
        self.numbers.insert(hash, number);
        number
    }

    /// Puts an object that is in no segment at the end of one.
    fn place(&mut self, number: u32, segment: SegmentId, shape: ItemShape) {
        let at = self.segments.append(segment, number, &shape);
        let object = &mut self.objects[number as usize];
        object.slot = object.slot.moved(at, object.slot.frequency());
        object.shape = shape;
        self.body_bytes += shape.body_bytes;
    }

    /// Takes an object out of its segment. It keeps its number and frequency.
    fn leave_segment(&mut self, number: u32) {
        let Object { slot, shape, .. } = self.objects[number as usize];
        self.segments.remove_live(slot, &shape);
        self.body_bytes -= shape.body_bytes;
    }

    /// Removes an object from the cache.
    fn unlink(&mut self, number: u32) {
        self.leave_segment(number);
        let object = &mut self.objects[number as usize];
        object.slot = Slot::EMPTY;
        self.numbers.remove(&object.hash);
        self.unused_objects.push(number);
    }

    /// Whether the object is the item at this place of a segment.
    fn is_at(&self, number: u32, segment: SegmentId, place: usize) -> bool {
        self.objects[number as usize].slot.location() == Location::new(segment, place as u32)
    }

    /// Segments that the memory has beside the index.
    fn limit(&self) -> u32 {
        let grown = self.paid_buckets - (1 << self.layout.index_level);
        let taken = grown.div_ceil(buckets_per_segment(self.layout.segment_bytes));
        self.layout.segments.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX))
    }

    fn pay_for_index(&mut self) {
        let items = self.numbers.len() as f64 / self.sample_rate;
        self.paid_buckets = self.paid_buckets.max((items / (BUCKET_SLOTS as f64 * INDEX_LOAD)) as u64);
    }

    /// Segments that a writer may take: less than none while the index waits for memory.
    fn free_for_writers(&self) -> i64 {
        let bodies = self.body_bytes as f64 / self.sample_rate / f64::from(self.layout.segment_bytes);
        let reserve = reserve(self.limit(), reserve_max(self.options.writers));
        i64::from(self.limit()) - self.segments.in_use() as i64 - bodies.ceil() as i64 - i64::from(reserve)
    }

    /// An open segment in which an item fits: evicts if there is none. Ends: see `free_segments`.
    fn reserve(&mut self, bucket: TtlBucket, shape: &ItemShape, moment: Moment) -> SegmentId {
        if let Some(open) = self.fitting_open(bucket, shape, moment) {
            return open;
        }
        if let Some(open) = self.open[bucket.index()].take() {
            self.segments.seal(open);
            self.open_count -= 1;
        }
        if self.open_count >= open_limit(self.options.memory_bytes, self.layout.segment_bytes) {
            let first = self.layout.scale.first_that_holds(bucket).index();
            let shared = (first..bucket.index()).rev().map(TtlBucket::from_index);
            if let Some(open) = shared.into_iter().find_map(|other| self.fitting_open(other, shape, moment)) {
                return open;
            }
        }
        let bodies = shape.body_bytes as f64 / self.sample_rate / f64::from(self.layout.segment_bytes);
        self.free_segments(1 + bodies as u32, moment);
        let fills = self.free_for_writers() < i64::from(self.limit() / SHORT_SHARE);
        let seal_at_ms = moment.ms.saturating_add(self.layout.scale.open_ms(bucket, fills));
        let segment = self.segments.take(Life::Open, bucket, moment, seal_at_ms);
        self.segments.chain(segment, None);
        self.open[bucket.index()] = Some(segment);
        self.open_count += 1;
        segment
    }

    fn fitting_open(&self, bucket: TtlBucket, shape: &ItemShape, moment: Moment) -> Option<SegmentId> {
        let fits =
            |open: &SegmentId| self.segments.fits(*open, shape.size) && moment.ms < self.segments.at(*open).seal_at_ms;
        self.open[bucket.index()].filter(fits)
    }
}

#[cfg(test)]
mod tests;
