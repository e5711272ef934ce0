//! Makes a store of an image.

use super::positions::Positions;
use super::words::Take;
use super::{MAGIC, VERSION, state_of_word};
use crate::engine_memory::EngineMemory;
use crate::error::Error;
use crate::index::{BUCKET_SLOTS, Bucket, Slot, Split};
use crate::item::{CHAINED_PREFIX_BYTES, ITEM_HEADER_BYTES, Kind};
use crate::options::Options;
use crate::segment::{HeaderWords, Location, SegmentId, State};
use crate::stats::Counters;
use crate::store::Store;
use crate::sync::Ordering;
use std::collections::HashSet;
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

/// What came of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    pub items: u64,
    /// The time of the store when it was saved, in milliseconds.
    pub now_ms: u64,
}

/// The first numbers of an image.
struct Head {
    segment_bytes: u32,
    seed: u64,
    created_bytes: u64,
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

/// Words of history that an image can hold: those of 64 TiB of memory.
const HISTORY_WORDS_MAX: u32 = 1 << 31;

/// Frames that an image can have: those of 64 TiB.
const FRAMES_MAX: u32 = 1 << 25;

fn damaged<T>(what: impl Into<String>) -> Result<T, ImageError> {
    Err(ImageError::Damaged(what.into()))
}

fn check(holds: bool, what: &str) -> Result<(), ImageError> {
    if holds { Ok(()) } else { damaged(what) }
}

impl Head {
    fn take(take: &mut Take<'_, impl Read>) -> Result<Self, ImageError> {
        if take.array::<8>()? != MAGIC {
            return Err(ImageError::Foreign("it is not the image of a store".to_owned()));
        }
        let version = take.u32()?;
        if version != VERSION {
            return Err(ImageError::Foreign(format!("it has format {version}, this version reads format {VERSION}")));
        }
        let (segment_bytes, seed, hash) = (take.u32()?, take.u64()?, take.u64()?);
        if crate::hash::KeyHash::new(seed).hash(&MAGIC) != hash {
            return Err(ImageError::Foreign("another hash function was used".to_owned()));
        }
        let (created_bytes, max_bytes, memory_bytes) = (take.u64()?, take.u64()?, take.u64()?);
        let (limit, withheld) = (take.u32()?, take.u32()?);
        let (split, paid_buckets) = (Split::from_word(take.u64()?), take.u64()?);
        let (now_ms, quantum) = (take.u64()?, (take.u32()?, take.u32()?));
        let (generation, flush_at_ms, last_stamp) = (take.u64()?, take.u64()?, take.u64()?);
        let mut counters = Vec::new();
        for _ in 0..Counters::count() {
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
            segment_bytes,
            seed,
            created_bytes,
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
        Ok(head)
    }
}

impl Store {
    /// The store of an image, with these options, but for what the image decides: segment size, seed, and its
    /// memory, which `resize` changes afterwards.
    ///
    /// # Errors
    /// `Foreign` and `Damaged` tell what is wrong with the image; `Store` that the machine has no such memory.
    pub fn load(options: &Options, source: &mut impl Read) -> Result<(Self, Loaded), ImageError> {
        Self::load_in(options, source, true, EngineMemory::for_one)
    }

    /// The same, in memory that `reserve` answers for a store that may have this many bytes: alone, or beside others.
    ///
    /// # Errors
    /// As `load`, and those of `reserve`.
    pub fn load_in(
        options: &Options,
        source: &mut impl Read,
        is_alone: bool,
        reserve: impl FnOnce(u64) -> Result<EngineMemory, Error>,
    ) -> Result<(Self, Loaded), ImageError> {
        let mut take = Take(source);
        let head = Head::take(&mut take)?;
        let max_bytes = options.memory_bytes_max.unwrap_or(0).max(head.max_bytes).max(options.memory_bytes);
        let options = Options {
            memory_bytes: head.created_bytes,
            memory_bytes_max: Some(max_bytes),
            segment_bytes: Some(head.segment_bytes),
            seed: head.seed,
            value_bytes_max: options.value_bytes_max.min(head.created_bytes / 2),
            ..options.clone()
        };
        options.validate()?;
        let build = if is_alone { Self::build_alone } else { Self::build };
        let store = build(options, &reserve(max_bytes)?)?;
        store.take_over(&head)?;
        let positions = Positions::new(&store.segments, &head.frames);
        let Some(positions) = positions else { return damaged("its frames are not those of its memory") };
        let items = store.load_buckets(&head, &positions, &mut take)?;
        store.load_segments(&positions, &mut take)?;
        store.check_slots(&positions)?;
        store.counters.restore(&head.counters, items);
        for _ in 0..head.withheld {
            check(store.segments.withhold_free(), "it withholds more segments than are free")?;
        }
        Ok((store, Loaded { items, now_ms: head.now_ms }))
    }

    /// Reads past an image that nobody wants.
    ///
    /// # Errors
    /// As `load`.
    pub fn skip_image(source: &mut impl Read) -> Result<(), ImageError> {
        let mut take = Take(source);
        let head = Head::take(&mut take)?;
        take.skip(head.split.buckets() as u64 * size_of::<Bucket>() as u64)?;
        while take.u32()? != 0 {
            let Some(state) = state_of_word(take.u8()?) else { return damaged("a segment is in no state") };
            let words = take_header(&mut take)?;
            let length = if state == State::Body { head.segment_bytes } else { words.write_offset };
            take.skip(length.into())?;
        }
        Ok(())
    }

    /// Budget, time and generation.
    fn take_over(&self, head: &Head) -> Result<(), ImageError> {
        let fits = head.limit <= self.segments.max_segments() && head.split.buckets() as u64 <= head.paid_buckets;
        check(fits && head.paid_buckets <= self.index.limit() as u64, "its index or memory has no such size")?;
        check(head.paid_buckets >= self.index.paid_buckets(), "its index is smaller than at the start")?;
        self.index.restore(head.split, head.paid_buckets);
        self.restore_budget(head.memory_bytes, head.limit, head.withheld);
        check(self.segments.limit() == head.limit, "its memory is smaller than its reserve")?;
        self.clock.restore(head.now_ms, head.quantum, head.flush_at_ms);
        self.generation.store(head.generation, Ordering::Relaxed);
        self.chains.restore_stamp(head.last_stamp);
        self.policy_state.history.restore(head.history_kind, &head.history);
        Ok(())
    }

    /// Answers how many slots are in use.
    fn load_buckets(
        &self,
        head: &Head,
        positions: &Positions<'_>,
        take: &mut Take<'_, impl Read>,
    ) -> Result<u64, ImageError> {
        let mut items = 0;
        for bucket in 0..head.split.buckets() {
            let mut words = [0; BUCKET_SLOTS + 1];
            for (word, bytes) in words.iter_mut().zip(take.array::<64>()?.chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().expect("chunks of eight bytes"));
            }
            for word in words[1..].iter_mut().filter(|word| !Slot::from_word(**word).is_empty()) {
                let slot = Slot::from_word(*word);
                let Some(location) = positions.location(slot.location()) else {
                    return damaged("a slot points at no segment");
                };
                *word = slot.relocated(location).word();
                items += 1;
            }
            check(self.index.restore_words(bucket, words), "a bucket is locked")?;
        }
        Ok(items)
    }

    fn load_segments(&self, positions: &Positions<'_>, take: &mut Take<'_, impl Read>) -> Result<(), ImageError> {
        let size = self.segments.segment_bytes();
        let mut bytes = vec![0; size as usize];
        let mut bodies = Vec::new();
        while let Some(number) = NonZeroU32::new(take.u32()?) {
            let segment = positions.segment(number.get());
            let Some(segment) = segment else { return damaged("a segment is outside the memory") };
            let Some(state) = state_of_word(take.u8()?) else { return damaged("a segment is in no state") };
            let words = take_header(take)?;
            check(words.write_offset <= size, "a segment is longer than segments are")?;
            check(self.segments.take_this(segment), "a segment is there twice")?;
            let header = self.segments.header(segment);
            let length = if state == State::Body { size } else { words.write_offset } as usize;
            take.0.read_exact(&mut bytes[..length])?;
            // SAFETY: the segment was free a moment ago and is this function's own.
            unsafe { self.segments.arena.write(Location::new(segment, 0), &bytes[..length]) };
            header.restore(&words);
            match state {
                State::Body => {
                    header.is_body.store(1, Ordering::Relaxed);
                    let next = (words.next != 0).then(|| positions.segment(words.next));
                    let Some(next) = next.map_or(Some(0), |next| next.map(SegmentId::number)) else {
                        return damaged("a value goes on outside the memory");
                    };
                    header.next.store(next, Ordering::Relaxed);
                    header.pass_to(State::Body);
                    bodies.push(segment);
                }
                _ => {
                    check(self.chains.restore(&self.segments, segment), "a segment is of no TTL bucket")?;
                    self.segments.seal(segment);
                }
            }
        }
        self.check_bodies(&bodies)
    }

    /// The bodies of each value are a list that ends.
    fn check_bodies(&self, bodies: &[SegmentId]) -> Result<(), ImageError> {
        let next =
            |segment: &SegmentId| SegmentId::from_link(self.segments.header(*segment).next.load(Ordering::Relaxed));
        let is_body = |segment: &SegmentId| self.segments.header(*segment).state() == State::Body;
        let followers: HashSet<SegmentId> = bodies.iter().filter_map(next).collect();
        check(followers.iter().all(is_body), "a value goes on in no segment of a value")?;
        check(followers.len() == bodies.iter().filter_map(next).count(), "two values share a segment")?;
        // Where no two have the same follower, each body is behind one first one, or in a circle.
        let firsts = bodies.iter().filter(|segment| !followers.contains(segment));
        let reached: usize = firsts.map(|first| std::iter::successors(Some(*first), next).count()).sum();
        check(reached == bodies.len(), "a value has no end")
    }

    /// Every slot points into a sealed segment, so that a reader stays within what was loaded. Heads of chained values
    /// get the number that their first body has now.
    fn check_slots(&self, positions: &Positions<'_>) -> Result<(), ImageError> {
        let mut fits = true;
        self.index.each_slot(|_, slot| fits &= self.check_slot(slot, positions).is_some());
        check(fits, "a slot points at no item")
    }

    fn check_slot(&self, slot: Slot, positions: &Positions<'_>) -> Option<()> {
        let arena = &self.segments.arena;
        let header = self.segments.header(slot.checked_segment()?);
        let end = slot.location().offset() + ITEM_HEADER_BYTES;
        if header.state() != State::Sealed || end > header.write_offset() {
            return None;
        }
        let item = self.item(slot);
        if item.header.kind == Kind::Structured {
            // SAFETY: nobody else knows the store, and the item lies in the bytes that were loaded.
            let is_sound =
                || item.at.offset() + item.header.size() <= header.write_offset() && unsafe { item.is_sound(arena) };
            return is_sound().then_some(());
        }
        if item.header.kind != Kind::Chained {
            return Some(());
        }
        if item.value_at().offset() + CHAINED_PREFIX_BYTES > header.write_offset() {
            return None;
        }
        // SAFETY: nobody else knows the store, and the prefix lies in the bytes that were loaded.
        unsafe {
            let first = positions.segment(item.first_body_number(&self.segments.arena))?;
            item.set_first_body(&self.segments.arena, first);
            (self.segments.header(first).state() == State::Body).then_some(())
        }
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
        live_bytes: take.u32()?,
        live_items: take.u32()?,
        write_offset: take.u32()?,
        written_items: take.u32()?,
        latest_expiry_seconds: take.u64()?,
        body_bytes: take.u64()?,
        next_expiry_seconds: take.u64()?,
        expired_bytes: take.u64()?,
    })
}
