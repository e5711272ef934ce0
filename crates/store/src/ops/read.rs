//! get: one key or a batch.
//!
//! A get has two or three dependent cache misses: the bucket, the item, and the header of the segment. A batch overlaps
//! them: it hashes all keys and prefetches their buckets, then prefetches the items and headers that the tags select,
//! then answers.

use super::value_slices::ValueSlices;
use crate::access_samples::SampledAccess;
use crate::condition::SeenWord;
use crate::epoch::{Participant, Pin};
use crate::flags::Flags;
use crate::index::{Candidates, Control, Found, Slot};
use crate::item::{Extension, ItemAt, ItemHeader, Kind, NUMBER_TEXT_BYTES, print_number};
use crate::segment::Location;
use crate::stats::Counter;
use crate::store::Store;
use crate::structured::WordsContent;
use crate::sync::Ordering;
use crate::time::Moment;
use crate::ttl::TtlBucket;
use std::ops::ControlFlow;

/// Keys that are looked up together.
pub const BATCH: usize = 16;
/// Cache lines of each item that a batch prefetches.
const BATCH_LINES: usize = 4;

/// A borrowed hit. Its thread is pinned as long as it exists, and no retired segment is reused: keep it short.
#[derive(Clone)]
pub struct Item<'s> {
    store: &'s Store,
    header: ItemHeader,
    /// The slot before this use was counted.
    slot: Slot,
    /// The control word of the bucket, read before the slot.
    control: Control,
    /// Of a value that changes in place. Apart, because hits are moved.
    loaded: Option<Box<Loaded>>,
    _pin: Pin,
}

/// Hits are moved from their lookup to the caller: a larger one costs each get.
#[cfg(not(loom))]
const _: () = assert!(size_of::<Item<'_>>() == 48);

/// Words that a hit has loaded of a value that changes in place.
#[derive(Clone)]
enum Loaded {
    Number {
        number: u64,
        text: [u8; NUMBER_TEXT_BYTES],
        length: u8,
    },
    /// The published bytes of a log at the hit, which never change.
    Log {
        length: u32,
    },
    Words(WordsContent),
}

/// Whether a lookup counts as a use. `Internal`: it is no client's, and finding a dead item is not counted, either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupUse {
    Counted,
    Silent,
    Internal,
}

impl Store {
    /// Looks a key up.
    #[inline]
    pub fn get(&self, participant: &Participant, key: &[u8], hash: u64, now_ms: u64) -> Option<Item<'_>> {
        self.get_alive(participant, (key, hash), now_ms, |_| false, |item| item)
    }

    /// Looks a key up by a clock that is ahead of `now_ms`: `has_ended` says of an expiry in seconds of the store's
    /// time whether it has come. Answers what `answer` makes of the item: there, since a hit that is moved first costs
    /// more than its lookup.
    #[inline(always)]
    pub fn get_alive<'s, R>(
        &'s self,
        participant: &Participant,
        target: (&[u8], u64),
        now_ms: u64,
        has_ended: impl Fn(Option<u64>) -> bool,
        answer: impl FnOnce(Option<Item<'s>>) -> R,
    ) -> R {
        let (moment, pin) = (self.moment(now_ms), participant.pin());
        self.look_up_alive(participant, pin, target, moment, has_ended, answer)
    }

    #[inline(always)]
    fn look_up_alive<'s, R>(
        &'s self,
        participant: &Participant,
        pin: Pin,
        (key, hash): (&[u8], u64),
        moment: Moment,
        has_ended: impl Fn(Option<u64>) -> bool,
        answer: impl FnOnce(Option<Item<'s>>) -> R,
    ) -> R {
        // The sampled path is apart, so that the other one moves no item.
        if self.access_samples.takes(hash) {
            return answer(self.look_up_sampled(participant, pin, (key, hash), moment, has_ended));
        }
        let found = self.index.find_with(hash, |slot| {
            // Beside the item: in a cache of many stores both are cache misses.
            self.segments.prefetch_header(slot.segment());
            self.item_of(slot, key)
        });
        if let Some((found, item)) = found
            && self.is_answer(participant, item, moment, has_ended)
        {
            self.index.count_access(found, moment.quantum, || participant.random());
            return answer(Some(self.hit(item, &found, pin)));
        }
        answer(None)
    }

    /// Whether an item is alive, also by the clock of the caller. A dead one is counted.
    #[inline(always)]
    fn is_answer(
        &self,
        participant: &Participant,
        item: ItemAt,
        moment: Moment,
        has_ended: impl Fn(Option<u64>) -> bool,
    ) -> bool {
        if !self.is_live(&item, moment) {
            self.count_dead(participant, item);
            return false;
        }
        // Most items live on by the earliest time of their expiry.
        let earliest = self.segments.header(item.at.segment()).earliest_expiry_seconds(item.header.expiry());
        if has_ended(earliest) && has_ended(self.expiry_seconds(&item)) {
            self.count_expired(participant);
            return false;
        }
        true
    }

    /// Looks a key up without counting anything.
    pub fn peek(&self, participant: &Participant, key: &[u8], hash: u64, now_ms: u64) -> Option<Item<'_>> {
        let (moment, pin) = (self.moment(now_ms), participant.pin());
        let found = self.index.find_with(hash, |slot| self.item_of(slot, key))?;
        self.answer(participant, pin, found, moment, LookupUse::Internal)
    }

    #[cold]
    fn look_up_sampled(
        &self,
        participant: &Participant,
        pin: Pin,
        (key, hash): (&[u8], u64),
        moment: Moment,
        has_ended: impl Fn(Option<u64>) -> bool,
    ) -> Option<Item<'_>> {
        let found = self.index.find_with(hash, |slot| self.item_of(slot, key));
        let found = found.filter(|(_, item)| self.is_answer(participant, *item, moment, has_ended));
        let item = found.map(|(found, item)| {
            self.index.count_access(found, moment.quantum, || participant.random());
            self.hit(item, &found, pin)
        });
        self.sample_lookup(participant, hash, item.as_ref());
        item
    }

    /// Notes a lookup of a sampled key.
    #[cold]
    pub(super) fn sample_lookup(&self, participant: &Participant, hash: u64, item: Option<&Item<'_>>) {
        let access = item.map_or(SampledAccess::Miss, |hit| {
            let (bytes, expiry_seconds) = self.sampled_size(&hit.item_at());
            SampledAccess::Hit { bytes, expiry_seconds }
        });
        self.access_samples.note(participant.number(), hash, access);
    }

    /// Looks up an item with a token that is no older than its value, for a caller that compares it.
    pub(super) fn look_up_exact(
        &self,
        participant: &Participant,
        (key, hash): (&[u8], u64),
        moment: Moment,
        access: LookupUse,
    ) -> Option<Item<'_>> {
        let pin = participant.pin();
        let found = self.index.find_exact(hash, |slot| self.is_key(slot, key))?;
        self.answer(participant, pin, (found, self.item(found.slot)), moment, access)
    }

    #[inline(always)]
    fn answer(
        &self,
        participant: &Participant,
        pin: Pin,
        (found, item): (Found, ItemAt),
        moment: Moment,
        access: LookupUse,
    ) -> Option<Item<'_>> {
        if !self.is_live(&item, moment) {
            if access != LookupUse::Internal {
                self.count_dead(participant, item);
            }
            return None;
        }
        if access == LookupUse::Counted {
            self.index.count_access(found, moment.quantum, || participant.random());
        }
        Some(self.hit(item, &found, pin))
    }

    #[cold]
    fn count_dead(&self, participant: &Participant, item: ItemAt) {
        let counter = if self.was_flushed(&item) { Counter::FlushedFound } else { Counter::ExpiredFound };
        self.counters.add(participant.number(), counter, 1);
    }

    /// Counts a lookup that found a live item which, by a later clock of the caller, has expired.
    #[cold]
    fn count_expired(&self, participant: &Participant) {
        self.counters.add(participant.number(), Counter::ExpiredFound, 1);
    }

    #[inline(always)]
    pub(crate) fn hit(&self, item: ItemAt, found: &Found, pin: Pin) -> Item<'_> {
        let loaded = if item.header.changes_in_place() { Some(self.load_changing(item)) } else { None };
        Item { store: self, header: item.header, slot: found.slot, control: found.control, loaded, _pin: pin }
    }

    /// The value, at this moment, of a pinned item that changes in place.
    #[cold]
    fn load_changing(&self, item: ItemAt) -> Box<Loaded> {
        let arena = &self.segments.arena;
        // SAFETY: the pin protects the item.
        Box::new(unsafe {
            match item.header.kind() {
                Kind::Structured if item.has_words(arena) => Loaded::Words(item.words(arena)),
                Kind::Structured => Loaded::Log { length: item.log_length(arena) },
                _ => {
                    let (number, width) = item.number(arena);
                    let mut text = [0; NUMBER_TEXT_BYTES];
                    let length = print_number(number, width, &mut text) as u8;
                    Loaded::Number { number, text, length }
                }
            }
        })
    }

    #[inline(always)]
    pub(super) fn prefetch_item(&self, slot: Slot) {
        self.segments.arena.prefetch(slot.location());
        self.segments.prefetch_header(slot.segment());
    }

    /// Prefetches the items that may have a key.
    #[inline(always)]
    fn prefetch_matches(&self, candidates: Candidates, hash: u64) {
        self.index.each_match(candidates, hash, |slot| {
            // The size is not known yet: most items, or the first part that is copied, end here.
            self.segments.arena.prefetch_lines(slot.location(), BATCH_LINES);
            self.segments.prefetch_header(slot.segment());
        });
    }

    /// Has what the next writes will change fetched from memory: first the buckets of their keys, then the items that
    /// may be theirs. So the cache misses of these writes overlap. Nothing depends on it, and nothing is read through a
    /// slot, so no pin is needed. At most [`BATCH`] keys, each with its store.
    #[inline]
    pub fn prefetch_writes<'s, 'k>(keys: impl IntoIterator<Item = (&'s Self, &'k [u8])>) {
        let mut fetched = [None; BATCH];
        for (fetched, (store, key)) in fetched.iter_mut().zip(keys) {
            let hash = store.hash(key);
            *fetched = Some((store, hash, store.index.prefetch(hash)));
        }
        for (store, hash, candidates) in fetched.into_iter().flatten() {
            store.index.each_match(candidates, hash, |slot| store.prefetch_item(slot));
        }
    }

    /// Looks up a run of keys and calls `answer` once for each, in order, until it breaks. Keys after the break are not
    /// looked up. `has_ended` is that of [`Self::get_alive`].
    pub fn get_batch<'s>(
        &'s self,
        participant: &Participant,
        keys: &[&[u8]],
        now_ms: u64,
        has_ended: impl Fn(Option<u64>) -> bool,
        mut answer: impl FnMut(usize, Option<Item<'s>>) -> ControlFlow<()>,
    ) {
        let moment = self.moment(now_ms);
        let mut first = 0;
        for run in keys.chunks(BATCH) {
            let pin = participant.pin();
            let mut hashes = [0; BATCH];
            let mut candidates = [Candidates { first: 0, second: 0 }; BATCH];
            for (i, key) in run.iter().enumerate() {
                hashes[i] = self.hash(key);
                candidates[i] = self.index.prefetch(hashes[i]);
            }
            for i in 0..run.len() {
                self.prefetch_matches(candidates[i], hashes[i]);
            }
            for (i, key) in run.iter().enumerate() {
                let (pin, target) = (pin.clone(), (*key, hashes[i]));
                let answer = |item| answer(first + i, item);
                if self.look_up_alive(participant, pin, target, moment, &has_ended, answer).is_break() {
                    return;
                }
            }
            first += run.len();
        }
    }

    /// As `get_batch`, of `count` keys of several stores in one memory, each with its store. `participant` is of that
    /// memory; `has_ended` gets the place of a key, too.
    #[inline]
    pub fn get_batch_of_stores<'s, 'k>(
        participant: &Participant,
        count: usize,
        key_of: impl Fn(usize) -> (&'s Self, &'k [u8]),
        now_ms: u64,
        has_ended: impl Fn(usize, Option<u64>) -> bool,
        mut answer: impl FnMut(usize, Option<Item<'s>>) -> ControlFlow<()>,
    ) {
        for first in (0..count).step_by(BATCH) {
            let run = first..count.min(first + BATCH);
            let pin = participant.pin();
            let mut hashes = [0; BATCH];
            let mut candidates = [Candidates { first: 0, second: 0 }; BATCH];
            for i in run.clone() {
                let (store, key) = key_of(i);
                hashes[i - first] = store.hash(key);
                candidates[i - first] = store.index.prefetch(hashes[i - first]);
            }
            for i in run.clone() {
                key_of(i).0.prefetch_matches(candidates[i - first], hashes[i - first]);
            }
            for i in run {
                let (store, key) = key_of(i);
                let (pin, target, moment) = (pin.clone(), (key, hashes[i - first]), store.moment(now_ms));
                let (has_ended, answer) = (|expiry| has_ended(i, expiry), |item| answer(i, item));
                if store.look_up_alive(participant, pin, target, moment, has_ended, answer).is_break() {
                    return;
                }
            }
        }
    }
}

impl Item<'_> {
    /// Bytes of the value.
    #[inline]
    pub fn len(&self) -> usize {
        if self.header.is_plain() { self.header.value_length() as usize } else { self.length_of_others() }
    }

    #[cold]
    fn length_of_others(&self) -> usize {
        match self.loaded.as_deref() {
            // SAFETY: the pin protects the item.
            None => unsafe { self.item_at().chained(&self.store.segments.arena) }.total as usize,
            Some(Loaded::Log { length }) => *length as usize,
            Some(Loaded::Number { length, .. }) => (*length).into(),
            Some(Loaded::Words(words)) => words.content.len(),
        }
    }

    /// The published bytes of a value in one piece, and where they begin; `None` if it is chained, or made of words
    /// that change.
    pub(super) fn content(&self) -> Option<(Location, u32)> {
        match self.loaded.as_deref() {
            None if self.header.is_plain() => Some((self.item_at().value_at(), self.header.value_length())),
            Some(Loaded::Log { length }) => Some((self.item_at().content_at(), *length)),
            None | Some(Loaded::Number { .. } | Loaded::Words(_)) => None,
        }
    }

    /// The value, if it is in one piece.
    #[inline(always)]
    pub fn contiguous(&self) -> Option<&[u8]> {
        if self.header.is_plain() {
            // SAFETY: the pin protects the item as long as the borrow of self.
            return Some(unsafe { self.item_at().value(&self.store.segments.arena) });
        }
        self.contiguous_other()
    }

    #[cold]
    fn contiguous_other(&self) -> Option<&[u8]> {
        match self.content() {
            // SAFETY: the pin protects the item as long as the borrow of self.
            Some((at, length)) => Some(unsafe { self.store.segments.arena.slice(at, length as usize) }),
            None => self.made(),
        }
    }

    /// Bytes that a log may have without a new item.
    pub(super) fn log_capacity(&self) -> Option<u32> {
        matches!(self.loaded.as_deref(), Some(Loaded::Log { .. })).then(|| self.item_at().content_capacity())
    }

    /// The content of words.
    pub(super) fn words(&self) -> Option<&[u8]> {
        match self.loaded.as_deref() {
            Some(Loaded::Words(words)) => Some(&words.content),
            _ => None,
        }
    }

    /// The bytes that this hit has made of words that change.
    fn made(&self) -> Option<&[u8]> {
        match self.loaded.as_deref()? {
            Loaded::Log { .. } => None,
            Loaded::Number { text, length, .. } => Some(&text[..usize::from(*length)]),
            Loaded::Words(words) => Some(&words.content),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Flags of a client, or an annotation.
    #[inline]
    pub fn flags(&self) -> Flags {
        // SAFETY: the pin protects the item.
        unsafe { self.item_at().flags(&self.store.segments.arena) }
    }

    /// The CAS token: a `cas` with it fails after the value has changed.
    pub fn token(&self) -> u64 {
        self.store.token_of(&self.item_at(), self.sequence())
    }

    /// The stale and won flags, and the token that a client gave.
    #[inline(always)]
    pub fn extension(&self) -> Extension {
        // SAFETY: the pin protects the item.
        unsafe { self.item_at().extension(&self.store.segments.arena) }
    }

    /// Whether uses of the key were counted before this one. Uses of earlier values count, and a survived eviction may
    /// reset them.
    pub fn was_used(&self) -> bool {
        self.slot.frequency() > 0
    }

    /// Whether an eviction has kept the item: it may have been used before, although `was_used` is false.
    pub fn has_survived(&self) -> bool {
        self.store.segments.header(self.at().segment()).rounds.load(Ordering::Relaxed) > 0
    }

    /// The approximate time of the write, in milliseconds of the store's time: that of the segment's first write.
    /// `None` after a survived eviction, which keeps no such time.
    pub fn written_ms(&self) -> Option<u64> {
        let header = self.store.segments.header(self.at().segment());
        (header.rounds.load(Ordering::Relaxed) == 0).then(|| header.stamp_ms())
    }

    /// The range of TTLs of the item's segment, as in `TtlBucketSnapshot`.
    pub fn ttl_range_seconds(&self) -> Option<(u32, u32)> {
        let header = self.store.segments.header(self.at().segment());
        let bucket = TtlBucket::from_index(header.ttl_bucket.load(Ordering::Relaxed).into());
        self.store.chains.scale.range_seconds(bucket)
    }

    /// The approximate time of the last use before this one, or of the write if there was none, in milliseconds of the
    /// store's time. Entries share the words that it is computed from, so it may be too late, by the age of the segment
    /// at most.
    pub(super) fn active_ms(&self, moment: Moment) -> u64 {
        let store = self.store;
        let written_ms = store.segments.header(self.at().segment()).opened_ms.load(Ordering::Relaxed);
        match self.was_used() {
            false => written_ms,
            true => written_ms.max(store.clock.quantum_began_ms(self.control.last_access(), moment)),
        }
    }

    /// The approximate time since the last use before this one.
    pub fn idle_ms(&self) -> u64 {
        let moment = self.store.clock.observe(0);
        moment.ms.saturating_sub(self.active_ms(moment))
    }

    /// Bytes of the item in the segments, with its metadata.
    pub fn stored_bytes(&self) -> u64 {
        let metadata = self.header.value_offset();
        u64::from(metadata) + u64::from(self.header.value_length()).max(self.len() as u64)
    }

    /// The remaining lifetime, by the newest time that the store knows: with an older time it could exceed the TTL.
    /// `None` if the item never expires.
    pub fn remaining_ms(&self) -> Option<u64> {
        let now_ms = self.store.clock.observe(0).ms;
        self.expiry_seconds().map(|seconds| (seconds * 1000).saturating_sub(now_ms))
    }

    /// The expiry in seconds of the store's time; `None` for never.
    pub fn expiry_seconds(&self) -> Option<u64> {
        self.store.expiry_seconds(&self.item_at())
    }

    /// The sequence of the bucket, from which the token is made.
    pub(crate) fn sequence(&self) -> u64 {
        self.control.sequence()
    }

    /// The word that was read, if the item changes in place, as a condition of a write.
    pub(super) fn seen_word(&self) -> SeenWord {
        match self.loaded.as_deref() {
            None => SeenWord::Any,
            Some(Loaded::Number { number, .. }) => SeenWord::Equal(*number),
            Some(Loaded::Log { length }) => SeenWord::Equal(u64::from(*length)),
            Some(Loaded::Words(words)) => SeenWord::Equal(words.edits),
        }
    }

    #[inline(always)]
    pub(super) fn at(&self) -> Location {
        self.slot.location()
    }

    #[inline(always)]
    pub(crate) fn item_at(&self) -> ItemAt {
        ItemAt { at: self.at(), header: self.header }
    }

    pub(crate) fn store(&self) -> &Store {
        self.store
    }

    /// Calls `visit` with the value, piece by piece.
    pub fn each_slice(&self, visit: impl FnMut(&[u8])) {
        self.slices().for_each(visit);
    }

    /// Appends the value to `out`.
    #[inline]
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        match self.contiguous() {
            Some(value) => out.extend_from_slice(value),
            None => self.each_slice(|slice| out.extend_from_slice(slice)),
        }
    }

    /// The value in pieces: one for all but values longer than a segment.
    #[inline]
    pub fn slices(&self) -> ValueSlices<'_> {
        match self.contiguous() {
            Some(value) => ValueSlices { segments: &self.store.segments, body: None, left: 0, last: Some(value) },
            None => self.slices_of_chain(),
        }
    }

    #[cold]
    fn slices_of_chain(&self) -> ValueSlices<'_> {
        let arena = &self.store.segments.arena;
        let (tail_at, tail) = self.item_at().tail();
        // SAFETY: the pin protects the item as long as the borrow of self.
        let (chained, last) = unsafe { (self.item_at().chained(arena), arena.slice(tail_at, tail as usize)) };
        ValueSlices {
            segments: &self.store.segments,
            body: Some(chained.first_body),
            left: chained.total - tail,
            last: Some(last),
        }
    }
}

#[cfg(not(loom))]
impl Item<'_> {
    pub fn key(&self) -> &[u8] {
        // SAFETY: the pin protects the item as long as the borrow of self.
        unsafe { self.item_at().key(&self.store.segments.arena) }
    }
}
