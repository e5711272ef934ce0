//! Makes a store of an image.

use super::checked::{CheckedSegments, SegmentRecord};
use super::slot_counts::SlotCounts;
use super::words::Take;
use super::{MAGIC, VERSION, VERSION_WITHOUT_DEMOTED, state_of_word};
use crate::budget::PageRule;
use crate::engine_memory::EngineMemory;
use crate::error::Error;
use crate::evict::HISTORY_SHARE;
use crate::index::{BUCKET_SLOTS, Bucket, Slot, Split};
use crate::options::Options;
use crate::segment::{HeaderWords, Location, SegmentId, State};
use crate::stats::Counters;
use crate::store::{Start, Store};
use crate::sync::Ordering;
use std::io::{self, Read};
use std::num::NonZeroU32;

/// Why an image did not become a store. The caller begins with an empty one.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Another program, format or hash function wrote it.
    #[error("{0}")]
    Foreign(String),
    #[error("{0}")]
    Damaged(String),
    #[error(transparent)]
    Store(#[from] Error),
}

/// Content of a loaded image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    pub items: u64,
    /// The time of the store when it was saved, in milliseconds.
    pub now_ms: u64,
}

/// The first numbers of an image.
struct Head {
    segment_size: u32,
    seed: u64,
    layout_bytes: u64,
    max_bytes: u64,
    memory_bytes: u64,
    limit: u32,
    withheld: u32,
    split: Split,
    paid_buckets: u64,
    now_ms: u64,
    quantum: (u32, u32),
    generation: u64,
    flush_at_ms: u64,
    last_stamp: u64,
    counters: Vec<u64>,
    history_kind: u32,
    history: Vec<u64>,
    frames: Vec<u32>,
}

/// Maximum words of history in an image: those of 64 TiB of memory.
const HISTORY_WORDS_MAX: u32 = 1 << 31;

/// Maximum frames of an image: those of 64 TiB.
const FRAMES_MAX: u32 = 1 << 25;

/// Milliseconds and seconds of an image are below this: 35,000 years. Arithmetic with them does not overflow.
const TIME_END: u64 = 1 << 50;

pub(crate) fn damaged<T>(what: impl Into<String>) -> Result<T, ImageError> {
    Err(ImageError::Damaged(what.into()))
}

pub(crate) fn check(holds: bool, what: &str) -> Result<(), ImageError> {
    if holds { Ok(()) } else { damaged(what) }
}

impl Head {
    fn take(take: &mut Take<'_, impl Read>) -> Result<Self, ImageError> {
        if take.array::<8>()? != MAGIC {
            return Err(ImageError::Foreign("it is not the image of a store".to_owned()));
        }
        let version = take.u32()?;
        if ![VERSION, VERSION_WITHOUT_DEMOTED].contains(&version) {
            return Err(ImageError::Foreign(format!("it has format {version}, this version reads format {VERSION}")));
        }
        let (segment_size, seed, hash) = (take.u32()?, take.u64()?, take.u64()?);
        if crate::hash::KeyHash::new(seed).hash(&MAGIC) != hash {
            return Err(ImageError::Foreign("another hash function was used".to_owned()));
        }
        let (layout_bytes, max_bytes, memory_bytes) = (take.u64()?, take.u64()?, take.u64()?);
        let (limit, withheld) = (take.u32()?, take.u32()?);
        let (split, paid_buckets) = (Split::from_word(take.u64()?), take.u64()?);
        let (now_ms, quantum) = (take.u64()?, (take.u32()?, take.u32()?));
        let (generation, flush_at_ms, last_stamp) = (take.u64()?, take.u64()?, take.u64()?);
        let mut counters = Vec::new();
        for _ in 0..Counters::count() - usize::from(version == VERSION_WITHOUT_DEMOTED) {
            counters.push(take.u64()?);
        }
        let (history_kind, words) = (take.u32()?, take.u32()?);
        check(words <= HISTORY_WORDS_MAX, "its history is longer than any")?;
        let mut history = Vec::new();
        for _ in 0..words {
            history.push(take.u64()?);
        }
        let count = take.u32()?;
        check(count <= FRAMES_MAX, "it has more frames than any")?;
        let mut frames = Vec::new();
        for _ in 0..count {
            frames.push(take.u32()?);
        }
        let head = Self {
            frames,
            segment_size,
            seed,
            layout_bytes,
            max_bytes,
            memory_bytes,
            limit,
            withheld,
            split,
            paid_buckets,
            now_ms,
            quantum,
            generation,
            flush_at_ms,
            last_stamp,
            counters,
            history_kind,
            history,
        };
        check(head.withheld < head.limit && head.quantum.1 > 0 && head.split.is_possible(), "its numbers contradict")?;
        let is_possible = head.now_ms < TIME_END && head.last_stamp < u64::MAX / 2 && head.generation < u64::MAX / 2;
        check(is_possible, "its time is no possible one")?;
        Ok(head)
    }
}

/// Where the bytes of the segments of an image are.
pub enum SegmentBytes<'a> {
    /// At their place already: the memory of the engine is the file that kept them. They are read once and checked.
    InPlace,
    /// At their place, as the save left them: the caller knows that the file was not written to since. Bytes of
    /// segments are not read.
    Unchanged,
    /// Elsewhere: the function reads those at an offset in the memory of the engine.
    Read(&'a mut dyn FnMut(u64, &mut [u8]) -> io::Result<()>),
}

/// Calls the function that it gets on as many threads at once as the caller of `load` has, at least once, and answers
/// when all calls have ended.
pub type OnThreads<'a> = &'a dyn Fn(&(dyn Fn() + Sync));

impl Store {
    /// The store of an image, with these options, except those that the image decides: segment size, seed, and its
    /// memory, which `resize` changes afterwards.
    ///
    /// # Errors
    /// `Foreign` and `Damaged` tell what is wrong with the image; `Store` that the machine has no such memory.
    pub fn load(
        options: &Options,
        source: &mut impl Read,
        bytes: SegmentBytes<'_>,
    ) -> Result<(Self, Loaded), ImageError> {
        let reserve = |memory_bytes| EngineMemory::reserve(memory_bytes, 1);
        Self::load_in(options, source, true, (bytes, &|work| work()), reserve)
    }

    /// As `load`, in memory that `reserve` returns for a store that may have this many bytes: alone, or beside others,
    /// which have none of the frames of the image. The segments are checked on the caller's threads.
    ///
    /// # Errors
    /// As `load`, and those of `reserve`.
    pub fn load_in(
        options: &Options,
        source: &mut impl Read,
        is_alone: bool,
        (bytes, on_threads): (SegmentBytes<'_>, OnThreads<'_>),
        reserve: impl FnOnce(u64) -> Result<EngineMemory, Error>,
    ) -> Result<(Self, Loaded), ImageError> {
        let mut take = Take(source);
        let head = Head::take(&mut take)?;
        let max_bytes = options.memory_bytes_max.unwrap_or(0).max(head.max_bytes).max(options.memory_bytes);
        // As large as the memory that the caller gives it next allows.
        let value_bytes_max = options.value_bytes_max.min(head.layout_bytes.max(options.memory_bytes) / 2);
        let options = Options {
            memory_bytes: head.layout_bytes,
            memory_bytes_max: Some(max_bytes),
            layout_bytes: None,
            segment_size: Some(head.segment_size),
            seed: head.seed,
            value_bytes_max: value_bytes_max.min(head.layout_bytes / 2),
            ..options.clone()
        };
        options.validate()?;
        let rule = if is_alone { PageRule::Huge } else { PageRule::BySize };
        let start = Start::FromImage { memory_bytes: head.memory_bytes, level: head.split.level() };
        let mut store = Self::with_memory(options, &reserve(max_bytes)?, rule, start)?;
        store.options.value_bytes_max = value_bytes_max;
        store.take_over(&head)?;
        let (is_in_place, are_unchanged) =
            (matches!(bytes, SegmentBytes::InPlace), matches!(bytes, SegmentBytes::Unchanged));
        let records = store.load_segments(&mut take, bytes)?;
        let mut slots = SlotCounts::new(&records);
        let items = store.load_buckets(&head, &mut take, &mut slots)?;
        check(slots.are_live(&store.segments, &records), "a segment has other slots than live items")?;
        if !are_unchanged {
            let checked = CheckedSegments::new(&store.segments, (&store.hash, &store.index), &records, is_in_place);
            on_threads(&|| checked.work());
            checked.result().map_err(|damage| ImageError::Damaged(damage.to_owned()))?;
        }
        let sealed = records.iter().filter(|record| record.state == State::Sealed);
        sealed.for_each(|record| store.segments.seal(record.segment));
        store.counters.restore(&head.counters, items);
        for _ in 0..head.withheld {
            check(store.segments.withhold_free(), "it withholds more segments than are free")?;
        }
        Ok((store, Loaded { items, now_ms: head.now_ms }))
    }

    /// Skips an image.
    ///
    /// # Errors
    /// As `load`.
    pub fn skip_image(source: &mut impl Read) -> Result<(), ImageError> {
        let mut take = Take(source);
        let head = Head::take(&mut take)?;
        while take.u32()? != 0 {
            take.u8()?;
            take_header(&mut take)?;
            take.u64()?;
        }
        Ok(take.skip(head.split.buckets() as u64 * size_of::<Bucket>() as u64)?)
    }

    /// Budget, time and generation.
    fn take_over(&self, head: &Head) -> Result<(), ImageError> {
        check(head.split.buckets() as u64 <= head.paid_buckets, "its index is larger than its budget")?;
        check(head.paid_buckets <= self.index.limit() as u64, "its index or memory has no such size")?;
        check(head.paid_buckets >= self.index.paid_buckets(), "its index is smaller than at the start")?;
        self.index.restore(head.split, head.paid_buckets);
        let history_bytes = head.memory_bytes / HISTORY_SHARE;
        self.policy_state.history().restore(head.history_kind, &head.history, history_bytes);
        let is_restored = self.restore_budget(head.memory_bytes, (&head.frames, head.limit), head.withheld);
        check(is_restored, "its frames are not those of its memory")?;
        self.clock.restore(head.now_ms, head.quantum, head.flush_at_ms);
        self.generation.store(head.generation, Ordering::Relaxed);
        self.chains.restore_stamp(head.last_stamp);
        Ok(())
    }

    /// Fills the index, and counts the slots of each segment. Returns how many slots are in use.
    fn load_buckets(
        &self,
        head: &Head,
        take: &mut Take<'_, impl Read>,
        slots: &mut SlotCounts,
    ) -> Result<u64, ImageError> {
        let mut items = 0;
        for bucket in 0..head.split.buckets() {
            let mut words = [0; BUCKET_SLOTS + 1];
            for (word, bytes) in words.iter_mut().zip(take.array::<{ size_of::<Bucket>() }>()?.chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().expect("chunks of eight bytes"));
            }
            for slot in words[1..].iter().map(|word| Slot::from_word(*word)).filter(|slot| !slot.is_empty()) {
                check(slots.count(slot), "a slot points at no item")?;
                items += 1;
            }
            check(self.index.restore_words(bucket, words), "a bucket is locked")?;
        }
        Ok(items)
    }

    /// Takes the segments of an image, with their bytes if these are elsewhere.
    fn load_segments(
        &self,
        take: &mut Take<'_, impl Read>,
        mut bytes: SegmentBytes<'_>,
    ) -> Result<Vec<SegmentRecord>, ImageError> {
        let mut records = Vec::new();
        let mut buffer = vec![0; self.segments.segment_bytes() as usize];
        while let Some(number) = NonZeroU32::new(take.u32()?) {
            let record = self.load_segment(number.get(), take)?;
            if let SegmentBytes::Read(read) = &mut bytes {
                let buffer = &mut buffer[..record.length as usize];
                read(record.segment.index() as u64 * u64::from(self.segments.segment_bytes()), buffer)?;
                // SAFETY: the segment was free a moment ago and is this function's own.
                unsafe { self.segments.arena.write(Location::new(record.segment, 0), buffer) };
            }
            records.push(record);
        }
        Ok(records)
    }

    /// Takes a segment with the header that an image has of it.
    fn load_segment(&self, number: u32, take: &mut Take<'_, impl Read>) -> Result<SegmentRecord, ImageError> {
        let size = self.segments.segment_bytes();
        let segment = self.segments.checked(number);
        let Some(segment) = segment else { return damaged("a segment is outside the memory") };
        let Some(state) = state_of_word(take.u8()?) else { return damaged("a segment is in no state") };
        let words = take_header(take)?;
        let checksum = take.u64()?;
        check(words.write_offset <= size, "a segment is longer than segments are")?;
        let is_possible = words.origin_seconds < TIME_END && words.opened_ms < TIME_END && words.stamp < u64::MAX / 2;
        check(is_possible, "a segment is of no possible time")?;
        check(self.segments.take_this(segment), "a segment is there twice, or outside the memory")?;
        let header = self.segments.header(segment);
        header.restore(&words);
        let mut record = SegmentRecord {
            segment,
            state,
            length: if state == State::Body { size } else { words.write_offset },
            checksum,
            next: None,
            owner_hash: words.owner_hash,
        };
        if state == State::Body {
            check((words.live_bytes, words.body_bytes) == (0, 0), "a body counts live items")?;
            header.is_body.store(1, Ordering::Relaxed);
            header.next.store(words.next, Ordering::Relaxed);
            header.pass_to(State::Body);
            record.next = SegmentId::from_link(words.next);
        } else {
            check(self.chains.restore(&self.segments, segment), "a segment is of no TTL bucket")?;
        }
        Ok(record)
    }
}

fn take_header(take: &mut Take<'_, impl Read>) -> Result<HeaderWords, ImageError> {
    let (shift, rounds, _) = (take.u8()?, take.u8()?, take.u8()?);
    let (bucket, next) = (take.u32()?, take.u32()?);
    let Ok(ttl_bucket) = u16::try_from(bucket) else { return damaged("a segment is of no TTL bucket") };
    Ok(HeaderWords {
        shift,
        rounds,
        ttl_bucket,
        next,
        origin_seconds: take.u64()?,
        generation: take.u64()?,
        opened_ms: take.u64()?,
        stamp: take.u64()?,
        owner_hash: take.u64()?,
        write_offset: take.u32()?,
        written_items: take.u32()?,
        latest_expiry_seconds: take.u64()?,
        next_expiry_seconds: take.u64()?,
        expired_bytes: take.u64()?,
        live_items: take.u32()?,
        live_bytes: take.u32()?,
        body_bytes: take.u64()?,
    })
}
