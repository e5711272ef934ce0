//! The store itself: what its operations share.

use crate::below::Below;
use crate::chains::{Chains, Need, Reservation};
use crate::epoch::{Domain, Participant};
use crate::error::Error;
use crate::evict::{Cause, Maintenance, Past, Sinks};
use crate::hash::KeyHash;
use crate::index::{Grown, Index, Items, LockedPair, Placed, Slot, Tag};
use crate::item::{EXTENSION_BYTES_MAX, Extension, ITEM_HEADER_BYTES, ItemAt, ItemHeader, Kind};
use crate::memory::{Budget, Layout};
use crate::options::Options;
use crate::segment::{Location, SegmentId, Segments, State};
use crate::stats::{Counter, Counters};
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, lock};
use crate::time::{Clock, Moment};
use crate::tokens::Tokens;
use crate::ttl::{Ttl, TtlBucket};
use std::sync::{Arc, OnceLock};

/// A cache of TTL-indexed segments in memory. All operations may be called from any thread, with that thread's own
/// `Participant`, the hash of the key by this store's `hash`, and the time in milliseconds since an origin that the caller
/// keeps to.
pub struct Store {
    pub(crate) options: Options,
    pub(crate) hash: KeyHash,
    pub(crate) clock: Clock,
    /// Objects of another generation were flushed.
    pub(crate) generation: AtomicU32,
    flushing: Mutex<()>,
    /// Added to a bucket's sequence to make a token: a number that a client made up is no token. Below 2^31, because
    /// memcached's tokens begin small, and there are clients that lose what does not fit 32 bits. Not 0, which asks for nothing.
    token_base: u64,
    pub(crate) index: Index,
    pub(crate) segments: Segments,
    pub(crate) chains: Chains,
    pub(crate) counters: Counters,
    pub(crate) domain: Arc<Domain>,
    pub(crate) budget: Budget,
    pub(crate) maintenance: Maintenance,
    pub(crate) upload_bytes: AtomicU64,
    /// Uploads that gave theirs back.
    pub(crate) uploads_ended: AtomicU64,
    pub(crate) sinks: Sinks,
    pub(crate) below: OnceLock<Box<dyn Below>>,
    /// CAS tokens that outlive their bucket's sequence, where values leave memory and come back.
    pub(crate) tokens: OnceLock<Tokens>,
}

/// The load above which the index grows when a key finds no free slot.
const GROWTH_LOAD: f64 = 0.88;
/// The load from which on it is given memory to grow into.
const PREPARE_LOAD: f64 = 0.85;
/// How much: this part of its length.
const PREPARE_SHARE: u64 = 32;

/// The share of the memory that takes what is remembered of evicted keys, in policies that do.
const PAST_SHARE: u64 = 256;

/// Where the key of most items has ended.
const SHORT_KEY_END: u32 = 32;

/// The TTL bucket of a life, and when it ends.
pub(crate) type Life = (TtlBucket, Option<u64>);

/// What a write must find under the locks of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Always,
    Absent,
    Present,
    Token(u64),
    /// The index has no slot for the key, and this copy below is current.
    Copy(u64),
    /// Of a removal: the key is live, or the copy below that was found is current, or none was found.
    Found(Option<u64>),
    /// The very item that was read, unchanged since.
    Unchanged {
        at: Location,
        sequence: u64,
    },
}

/// How a condition was met or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done {
        /// What a `gets` would answer from here on.
        token: u64,
    },
    /// Nothing alive is there.
    Absent,
    /// Something alive is there, or another version than the condition names.
    Present,
    /// A flush since the reservation has made the new item worthless: reserve and write it again.
    Flushed,
}

impl Outcome {
    pub fn is_done(self) -> bool {
        matches!(self, Self::Done { .. })
    }
}

/// An item that is written and about to be published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewItem {
    pub at: Location,
    pub size: u32,
    pub body_bytes: u64,
    /// The CAS token that its extension holds.
    pub token: Option<u64>,
    /// Whether it takes over the bodies of the item that it replaces.
    pub inherits_body: bool,
}

/// An item that has left the index, with what it leaves behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unlinked {
    pub segment: SegmentId,
    pub size: u32,
    pub body_bytes: u64,
    /// The first of the body segments that go with it.
    pub body: Option<SegmentId>,
}

impl Store {
    /// An empty store.
    ///
    /// # Errors
    /// `Options` names what cannot work; `Mapping` if the system gives no address space.
    pub fn new(options: Options) -> Result<Self, Error> {
        let past_bytes = options.memory_bytes / PAST_SHARE;
        let layout = Layout::plan(&options, Past::bytes(options.policy, past_bytes))?;
        let past = Past::new(options.policy, past_bytes);
        Self::with_layout(options, layout, past)
    }

    pub(crate) fn with_layout(options: Options, layout: Layout, past: Past) -> Result<Self, Error> {
        let domain = Domain::new();
        let segments = Segments::new(
            layout.segments_most,
            layout.segments,
            layout.segment_bytes,
            options.writers,
            std::sync::Arc::clone(&domain),
        )?;
        Ok(Self {
            hash: KeyHash::new(options.seed),
            clock: Clock::new(),
            generation: AtomicU32::new(0),
            flushing: Mutex::new(()),
            token_base: (KeyHash::new(options.seed).hash(b"token") >> 33).max(1),
            index: Index::new(layout.index_level, layout.index_buckets_most)?,
            segments,
            chains: Chains::new(layout.scale, options.writers, layout.open_limit),
            counters: Counters::new(options.writers),
            domain,
            maintenance: Maintenance::new(past),
            upload_bytes: AtomicU64::new(0),
            uploads_ended: AtomicU64::new(0),
            sinks: Sinks::default(),
            below: OnceLock::new(),
            tokens: OnceLock::new(),
            budget: Budget::new(layout, options.memory_bytes),
            options,
        })
    }

    /// A participant for the calling thread.
    pub fn participate(&self) -> Participant {
        self.domain.participate()
    }

    /// The hash of a key, as all operations want it.
    #[inline(always)]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hash.hash(key)
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// How many uploads have given back what they held: whoever waits for some sees that they go on.
    pub fn uploads_ended(&self) -> u64 {
        self.uploads_ended.load(Ordering::Relaxed)
    }

    /// The moment of an operation; takes a delayed flush into effect whose time has come.
    #[inline(always)]
    pub(crate) fn moment(&self, now_ms: u64) -> Moment {
        let moment = self.clock.observe(now_ms);
        // Acquire pairs with the Release in `raise_generation`.
        if moment.ms >= self.clock.flush_at_ms().load(Ordering::Acquire) {
            self.flush_due(moment.ms);
        }
        moment
    }

    #[cold]
    fn flush_due(&self, now_ms: u64) {
        let _flushing = lock(&self.flushing);
        if now_ms >= self.clock.flush_at_ms().load(Ordering::Relaxed) {
            self.raise_generation();
        }
    }

    /// Everything that is stored now counts as absent from here on.
    fn raise_generation(&self) {
        let mut generation = 0;
        // Release pairs with the Acquire in `is_live` and `reserve`.
        let mut raise = || generation = self.generation.fetch_add(1, Ordering::Release) + 1;
        match self.below.get() {
            Some(below) => below.flush(&mut raise),
            None => raise(),
        }
        // Release pairs with the Acquire in `moment`: who sees the flush done sees the new generation.
        self.clock.flush_at_ms().store(u64::MAX, Ordering::Release);
        self.maintenance.note_flush(generation);
    }

    /// Whether an item counts as present at `moment`.
    #[inline(always)]
    pub(crate) fn is_live(&self, item: &ItemAt, moment: Moment) -> bool {
        // Acquire pairs with the Release in `raise_generation`.
        self.is_live_in(self.generation.load(Ordering::Acquire), item, moment)
    }

    /// Whether an item counts as present at `moment` in a generation.
    #[inline(always)]
    fn is_live_in(&self, generation: u32, item: &ItemAt, moment: Moment) -> bool {
        let header = self.segments.header(item.at.segment());
        header.generation.load(Ordering::Relaxed) == generation
            && header.expiry_seconds(item.header.expiry).is_none_or(|seconds| moment.ms < seconds * 1000)
    }

    /// Whether an item belongs to a generation that a flush has ended.
    pub(crate) fn was_flushed(&self, item: &ItemAt) -> bool {
        let generation = self.segments.header(item.at.segment()).generation.load(Ordering::Relaxed);
        generation != self.generation.load(Ordering::Acquire)
    }

    /// Reads the item that a slot names. The slot must be protected: seen under a pin, or under its bucket's lock.
    #[inline(always)]
    pub(crate) fn item(&self, slot: Slot) -> ItemAt {
        // SAFETY: slots name published items, which the protection keeps in place.
        unsafe { ItemAt::read(&self.segments.arena, slot.location()) }
    }

    /// Whether a slot names the item of this key. Protection as in `item`.
    #[inline(always)]
    pub(crate) fn is_key(&self, slot: Slot, key: &[u8]) -> bool {
        // SAFETY: as in `item`.
        unsafe { self.item(slot).has_key(&self.segments.arena, key) }
    }

    /// The bucket and expiry of a life that begins now; `None` if it is over already.
    pub(crate) fn life(&self, ttl: Ttl, moment: Moment) -> Option<Life> {
        match ttl {
            Ttl::Never => Some((TtlBucket::NEVER, None)),
            Ttl::Past | Ttl::Seconds(0) => None,
            Ttl::Seconds(seconds) => {
                Some((self.chains.scale.bucket(seconds), Some(moment.seconds() + u64::from(seconds))))
            }
        }
    }

    /// The bucket for an item that keeps its expiry: that of the life that it has left.
    pub(crate) fn bucket_until(&self, expiry_seconds: Option<u64>, moment: Moment) -> TtlBucket {
        expiry_seconds.map_or(TtlBucket::NEVER, |seconds| {
            let left = seconds.saturating_sub(moment.seconds()).clamp(1, u32::MAX.into());
            self.chains.scale.bucket(left as u32)
        })
    }

    pub(crate) fn reserve(
        &self,
        participant: &Participant,
        size: u32,
        life: Life,
        moment: Moment,
    ) -> Result<Reservation<'_>, Error> {
        let need = Need {
            bucket: life.0,
            size,
            expiry_seconds: life.1,
            writer: participant.number(),
            generation: self.generation.load(Ordering::Acquire),
        };
        self.chains.reserve(&self.segments, &need, moment)
    }

    /// Writes an item up to its value part into reserved space. Answers where that begins.
    #[inline(always)]
    pub(crate) fn write_head(&self, reserved: &Reservation<'_>, head: &Head<'_>) -> Location {
        let at = Location::new(reserved.segment, reserved.offset);
        let header = ItemHeader {
            key_length: u8::try_from(head.key.len()).expect("keys have at most 255 bytes"),
            value_length: head.value_length,
            has_flags: head.flags != 0,
            kind: head.kind,
            expiry: reserved.expiry_byte,
            extension_length: head.extension.length(),
        };
        // SAFETY: the reservation owns the range and nobody can reach it before its publication.
        unsafe { ItemAt { at, header }.write_head(&self.segments.arena, head.flags, head.extension, head.key) };
        at.plus(header.value_offset())
    }

    /// The token that stands for a bucket's sequence.
    pub(crate) fn token(&self, sequence: u64) -> u64 {
        self.token_base.wrapping_add(sequence)
    }

    /// A CAS token that no item gets from the store: a bucket that holds one has changed, so its sequence is not 0.
    pub fn token_of_none(&self) -> u64 {
        self.token(0)
    }

    /// The CAS token of an item, protected as in `item`, in a bucket with this sequence.
    #[inline(always)]
    pub(crate) fn token_of(&self, item: &ItemAt, sequence: u64) -> u64 {
        // SAFETY: as in `item`.
        let own = unsafe { item.extension(&self.segments.arena) }.token;
        own.unwrap_or_else(|| self.token(sequence))
    }

    /// Whether a CAS token stands for an item, protected as in `item`, in a bucket with this sequence. Without the lock of the key's
    /// buckets the caller publishes only if the item is still there, unchanged.
    pub(crate) fn fits(&self, item: &ItemAt, hash: u64, sequence: u64, token: u64) -> bool {
        let fits = self.token_of(item, sequence) == token || self.is_kept(hash, token);
        if !fits && let Some(tokens) = self.tokens.get() {
            // SAFETY: as in `item`.
            let is_copied = unsafe { item.extension(&self.segments.arena) }.copied;
            is_copied.then(|| tokens.note_unknown());
        }
        fits
    }

    /// Makes `new` the item of the key if the condition holds, or removes the key if `new` is none.
    pub(crate) fn publish(
        &self,
        participant: &Participant,
        (key, hash): (&[u8], u64),
        condition: Condition,
        new: Option<NewItem>,
        moment: Moment,
    ) -> Outcome {
        let mut pair = self.index.lock_pair(hash);
        // One look for all that follows. An item of an older generation would take the place of what was written after the
        // flush; if the flush comes after this look, what is written after it waits for the locks.
        let generation = self.generation.load(Ordering::Acquire);
        let is_current =
            |new: NewItem| self.segments.header(new.at.segment()).generation.load(Ordering::Relaxed) == generation;
        if !new.is_none_or(is_current) {
            return Outcome::Flushed;
        }
        let place = pair.find(|slot| self.is_key(slot, key));
        let live = place.filter(|place| self.is_live_in(generation, &self.item(place.slot), moment));
        let is_newest = |copy| self.below.get().is_some_and(|below| below.is_current(key, copy));
        let refused = match (condition, &live) {
            (Condition::Always, _) | (Condition::Found(_), Some(_)) | (Condition::Found(None), None) => None,
            (Condition::Absent, None) | (Condition::Present, Some(_)) => None,
            (Condition::Absent | Condition::Copy(_), Some(_)) => Some(Outcome::Present),
            (Condition::Copy(copy), None) => (place.is_some() || !is_newest(copy)).then_some(Outcome::Present),
            // A dead item in memory means that the key is absent, whatever lies below.
            (Condition::Found(Some(copy)), None) => (place.is_none() && !is_newest(copy)).then_some(Outcome::Present),
            (Condition::Present | Condition::Token(_) | Condition::Unchanged { .. }, None) => Some(Outcome::Absent),
            (Condition::Token(token), Some(place)) => {
                let fits = self.fits(&self.item(place.slot), hash, pair.sequence(place), token);
                (!fits).then_some(Outcome::Present)
            }
            (Condition::Unchanged { at, sequence }, Some(place)) => {
                let same = place.slot.location() == at && pair.sequence(place) == sequence;
                (!same).then_some(Outcome::Present)
            }
        };
        if let Some(outcome) = refused {
            return outcome;
        }
        let had_copy = self.forget_below((key, hash), condition, place.is_some());
        let mut old = place.map(|place| self.describe(place.slot));
        if let (Some(old), Some(NewItem { inherits_body: true, .. })) = (&mut old, new) {
            old.body = None;
        }
        let placed = match (&place, new) {
            (Some(place), Some(new)) => {
                let frequency = pair.reread(place).frequency();
                pair.replace(place, place.slot.moved(new.at, frequency));
                Placed::Free
            }
            (Some(place), None) => {
                pair.remove(place);
                Placed::Free
            }
            (None, Some(new)) => {
                let first = self.maintenance.past.first_frequency(hash);
                // What comes up from below has to be used in memory to stay there: it was used before in any case.
                let frequency = if matches!(condition, Condition::Copy(_)) { 0 } else { first };
                pair.place(Slot::new(Tag::of(hash), frequency, new.at), self)
            }
            (None, None) => Placed::Free,
        };
        let token = new.and_then(|new| new.token).unwrap_or_else(|| self.token(pair.next_sequence()));
        self.settle(participant, pair, placed, old, new, moment);
        if live.is_none() && new.is_none() && !had_copy { Outcome::Absent } else { Outcome::Done { token } }
    }

    /// Accounts what a publication changed, and unlocks. What has left the index is accounted before: once its bucket is
    /// free, its segment may be emptied, retired and taken for something else.
    fn settle(
        &self,
        participant: &Participant,
        pair: LockedPair<'_>,
        placed: Placed,
        old: Option<Unlinked>,
        new: Option<NewItem>,
        moment: Moment,
    ) {
        let replaced_slot = match placed {
            Placed::Replaced(slot) => Some(slot),
            Placed::Free | Placed::Displaced => None,
        };
        let replaced = replaced_slot.map(|slot| self.describe(slot));
        if let Some(slot) = replaced_slot {
            self.hand_down(participant, slot, pair.control(None), moment);
        }
        let farewell = replaced_slot.and_then(|slot| self.prepare_farewell(participant, slot, pair.control(None)));
        for unlinked in old.iter().chain(&replaced) {
            self.account_unlinked(unlinked);
        }
        drop(pair);
        let thread = participant.number();
        if let Some(new) = new {
            // Its segment is open and stays so: the caller holds the stripe.
            self.segments.header(new.at.segment()).add_live(new.size, new.body_bytes);
        }
        match (old, new) {
            (None, Some(_)) => self.counters.add(thread, Counter::Linked, 1),
            (Some(_), None) => self.counters.add(thread, Counter::Unlinked, 1),
            _ => {}
        }
        for unlinked in old.iter().chain(&replaced) {
            self.retire_body(unlinked);
        }
        if replaced.is_some() {
            for counter in [Counter::Unlinked, Counter::IndexReplaced] {
                self.counters.add(thread, counter, 1);
            }
        }
        if let Some(farewell) = farewell {
            self.bid_farewell(farewell, Cause::IndexFull, moment);
        }
        let hindered = replaced.is_some() && self.index.is_walked();
        if hindered || placed != Placed::Free && self.index_load() >= GROWTH_LOAD {
            self.grow_index();
        }
    }

    /// What an item leaves behind when it goes; to be read before its slot is unlocked.
    pub(crate) fn describe(&self, slot: Slot) -> Unlinked {
        let item = self.item(slot);
        let mut unlinked = Unlinked { segment: slot.segment(), size: item.header.size(), body_bytes: 0, body: None };
        if item.header.kind == Kind::Chained {
            // SAFETY: as in `item`.
            let chained = unsafe { item.chained(&self.segments.arena) };
            unlinked.body_bytes = self.body_bytes(chained.total - item.tail().1);
            unlinked.body = Some(chained.first_body);
        }
        unlinked
    }

    /// Bytes of the body segments that hold `bytes` of a value.
    pub(crate) fn body_bytes(&self, bytes: u32) -> u64 {
        u64::from(bytes).next_multiple_of(self.segments.segment_bytes().into())
    }

    /// Accounts an item that has left the index. To be called before its bucket is unlocked, or by the owner of its
    /// segment.
    pub(crate) fn account_unlinked(&self, unlinked: &Unlinked) {
        let header = self.segments.header(unlinked.segment);
        if header.remove_live(unlinked.size, unlinked.body_bytes) && header.state() == State::Sealed {
            self.maintenance.has_died.store(true, Ordering::Relaxed);
        }
    }

    /// Lets go of the bodies of an item that has left the index.
    pub(crate) fn retire_body(&self, unlinked: &Unlinked) {
        if let Some(first) = unlinked.body {
            self.segments.retire(first);
        }
    }

    /// Slots in use over slots.
    pub(crate) fn index_load(&self) -> f64 {
        self.counters.items() as f64 / self.index.capacity() as f64
    }

    /// Sees to it that an index that will soon grow has memory to grow into.
    pub(crate) fn prepare_index(&self) {
        let length = self.index.length() as u64;
        let has_room = self.index.paid_buckets() > length + length / PREPARE_SHARE;
        if !has_room && self.index_load() >= PREPARE_LOAD {
            self.pay_for_index();
        }
    }

    /// Splits one bucket, if the budget has the memory; else asks the next eviction for it.
    pub(crate) fn grow_index(&self) {
        for _ in 0..2 {
            match self.index.split_one(self) {
                Grown::Split | Grown::Busy => return,
                Grown::Unpaid => {
                    if !self.pay_for_index() {
                        return;
                    }
                }
            }
        }
    }

    /// Has everything stored before `now_ms + delay_ms` gone from then on. A flush with a delay replaces one that waits.
    pub fn flush(&self, now_ms: u64, delay_ms: u64) {
        let moment = self.moment(now_ms);
        let _flushing = lock(&self.flushing);
        if delay_ms > 0 {
            self.clock.flush_at_ms().store(moment.ms.saturating_add(delay_ms), Ordering::Relaxed);
        } else {
            self.raise_generation();
        }
    }
}

impl Items for Store {
    /// Protection as in `item`.
    fn hash_at(&self, at: Location) -> u64 {
        // SAFETY: as in `item`.
        unsafe {
            let item = ItemAt::read(&self.segments.arena, at);
            let key = self.segments.arena.slice(item.key_at(), item.header.key_length.into());
            self.hash.hash(key)
        }
    }

    fn prefetch(&self, at: Location) {
        self.segments.arena.prefetch(at);
        // Where most keys end.
        self.segments.arena.prefetch(at.plus(SHORT_KEY_END));
    }
}

/// The first part of an item.
pub(crate) struct Head<'a> {
    pub key: &'a [u8],
    pub flags: u32,
    pub extension: Extension,
    pub kind: Kind,
    /// Bytes of the value part.
    pub value_length: u32,
}

impl Head<'_> {
    /// Bytes of the whole item.
    pub fn size(&self) -> u64 {
        self.size_with(self.extension.length().into())
    }

    /// Bytes of the whole item with the longest extension: what must fit a segment.
    pub fn size_max(&self) -> u64 {
        self.size_with(EXTENSION_BYTES_MAX.into())
    }

    fn size_with(&self, extension: u64) -> u64 {
        let flags = if self.flags == 0 { 0 } else { 4 };
        u64::from(ITEM_HEADER_BYTES) + flags + extension + self.key.len() as u64 + u64::from(self.value_length)
    }
}
