//! The store: the state that all operations share, and the questions that they ask of it.

use crate::access_samples::{AccessSample, AccessSamples};
use crate::budget::{Budget, MemoryLayout, PageRule, open_limit};
use crate::chains::{Chains, Reservation, ReserveRequest};
use crate::engine_memory::EngineMemory;
use crate::epoch::{Domain, Participant};
use crate::error::Error;
use crate::evict::{HISTORY_SHARE, History, MaintenanceState, PolicyState, RemovalListeners};
use crate::flags::Flags;
use crate::hash::KeyHash;
use crate::index::{BUCKET_SLOTS, Index, Items, Slot};
use crate::item::{EXTENSION_BYTES_MAX, Extension, ITEM_HEADER_BYTES, ItemAt, ItemHeader, Kind, VALUE_PART_BYTES_MAX};
use crate::load_tickets::LoadTickets;
use crate::lower_tier::LowerTier;
use crate::options::Options;
use crate::pause_point::{PausePoint, pause_point};
use crate::segment::{ExactExpiry, Location, Segments};
use crate::stats::Counters;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use crate::time::{Clock, Moment};
use crate::token_table::TokenTable;
use crate::ttl::{Lifetime, Ttl};
use std::sync::{Arc, OnceLock};

/// A cache of TTL-indexed segments in memory.
///
/// All operations may be called from any thread. The caller passes the `Participant` of its thread, the key's hash by
/// [`Store::hash`], and the time in milliseconds since an origin that does not change.
///
/// The fields come in three groups: state that all operations share; the state of the eviction policy, which is the
/// only one that differs between policies; and hooks that the owner of the store may set once.
pub struct Store {
    pub(crate) options: Options,
    pub(crate) hash: KeyHash,
    pub(crate) clock: Clock,
    /// Counts flushes; items of an older generation were flushed. 64 bits do not wrap: no generation returns.
    pub(crate) generation: AtomicU64,
    flushing: Mutex<()>,
    /// A CAS token is this plus the sequence of a bucket, so that a number made up by a client is no token. Less than
    /// 2^31: memcached's tokens start small, and some clients lose numbers over 32 bits. Not 0, which means no token.
    /// Follows from the seed, unless tokens of an earlier store were adopted (`kept_tokens`).
    pub(crate) token_base: u64,
    /// See `keep_limit`.
    pub(crate) earlier_limit: u64,
    pub(crate) index: Index,
    pub(crate) segments: Segments,
    pub(crate) chains: Chains,
    pub(crate) counters: Counters,
    pub(crate) access_samples: AccessSamples,
    pub(crate) domain: Arc<Domain>,
    pub(crate) budget: Budget,
    /// Memory that uploads hold, and the number of uploads that have returned theirs.
    pub(crate) upload_bytes: AtomicU64,
    pub(crate) uploads_ended: AtomicU64,
    /// Jobs, plans and searches, the same for every policy.
    pub(crate) maintenance: MaintenanceState,

    /// State of the eviction policy: survivors, and histories of evicted keys.
    pub(crate) policy_state: PolicyState,

    pub(crate) removal_listeners: RemovalListeners,
    /// Loads of absent keys.
    pub(crate) load_tickets: LoadTickets,
    pub(crate) lower_tier: OnceLock<Box<dyn LowerTier>>,
    /// CAS tokens that outlive the sequence of their bucket, for a store above a lower tier.
    pub(crate) issued_tokens: OnceLock<TokenTable>,
}

/// With which segments a store begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Empty,
    /// With none: it gets those of an image, which has this memory, and at least 2^level buckets.
    FromImage {
        memory_bytes: u64,
        level: u32,
    },
}

/// Bits of the token of sequence 0.
pub(crate) const TOKEN_BASE_BITS: u32 = 31;

#[cfg(not(loom))]
const _: () = assert!(size_of::<Store>() as u64 <= crate::budget::STORE_BYTES);

/// Most keys end within this many bytes of their item's start.
const SHORT_KEY_END: u32 = 32;

impl Store {
    /// An empty store with memory of its own.
    ///
    /// # Errors
    /// `Options` names what cannot work; `Mapping` if the system gives no address space.
    pub fn new(options: Options) -> Result<Self, Error> {
        options.validate()?;
        let max = options.effective_memory_bytes_max();
        let options = Options { memory_bytes_max: Some(max), ..options };
        Self::with_memory(options, &EngineMemory::for_one(max)?, PageRule::Huge, Start::Empty)
    }

    /// An empty store that shares address space and epochs with others.
    ///
    /// # Errors
    /// As `new`, and `Options` if the address space that is left is smaller than the memory of the store.
    pub fn build(options: Options, memory: &EngineMemory) -> Result<Self, Error> {
        Self::with_memory(options, memory, PageRule::BySize, Start::Empty)
    }

    /// An empty store that is alone in its memory, until `share_memory`.
    ///
    /// # Errors
    /// As `build`.
    pub fn build_alone(options: Options, memory: &EngineMemory) -> Result<Self, Error> {
        Self::with_memory(options, memory, PageRule::Huge, Start::Empty)
    }

    pub(crate) fn with_memory(
        mut options: Options,
        memory: &EngineMemory,
        rule: PageRule,
        start: Start,
    ) -> Result<Self, Error> {
        let max = options.memory_bytes_max.unwrap_or(u64::MAX).min(memory.address_bytes());
        options.memory_bytes_max = Some(max);
        let first_bytes = match start {
            Start::Empty => options.memory_bytes,
            Start::FromImage { memory_bytes, .. } => memory_bytes.min(max),
        };
        let history_bytes = first_bytes / HISTORY_SHARE;
        let mut layout = MemoryLayout::plan(&options, History::bytes(options.policy, history_bytes))?;
        if rule.is_shared() {
            layout = layout.with_shared_index();
        }
        if let Start::FromImage { level, .. } = start {
            layout.index_level = layout.index_level.min(level);
            layout.segments = 0;
        }
        let history = History::new(options.policy, history_bytes, max / HISTORY_SHARE)?;
        Self::with_layout(options, layout, history, memory, rule)
    }

    pub(crate) fn with_layout(
        options: Options,
        layout: MemoryLayout,
        history: History,
        memory: &EngineMemory,
        rule: PageRule,
    ) -> Result<Self, Error> {
        let domain = Arc::clone(&memory.domain);
        let history_bytes = history.present_bytes();
        let pages = rule.pages(options.memory_bytes);
        let segments = Segments::in_frames(
            Arc::clone(&memory.frames),
            layout.segments_max,
            layout.segments,
            layout.segment_bytes,
            options.writers,
            Arc::clone(&domain),
            pages,
        )?;
        if segments.limit() < layout.segments {
            let reason = format!(
                "the address space that other stores leave holds {} segments of {} bytes, and {} are needed",
                segments.limit(),
                layout.segment_bytes,
                layout.segments
            );
            return Err(Error::Options { option: "memory", value: options.memory_bytes.to_string(), reason });
        }
        Ok(Self {
            hash: KeyHash::new(options.seed),
            clock: Clock::new(),
            generation: AtomicU64::new(0),
            flushing: Mutex::new(()),
            token_base: token_base(options.seed),
            earlier_limit: 0,
            index: Index::new(layout.index_level, layout.index_buckets_max, pages)?,
            segments,
            chains: Chains::new(layout.scale, options.writers, open_limit(options.memory_bytes, layout.segment_bytes)),
            counters: Counters::new(options.writers, (BUCKET_SLOTS as u64) << layout.index_level),
            access_samples: AccessSamples::new(options.writers),
            domain,
            maintenance: MaintenanceState::default(),
            policy_state: PolicyState::new(options.policy, history),
            upload_bytes: AtomicU64::new(0),
            uploads_ended: AtomicU64::new(0),
            removal_listeners: RemovalListeners::default(),
            load_tickets: LoadTickets::new(),
            lower_tier: OnceLock::new(),
            issued_tokens: OnceLock::new(),
            budget: Budget::new(layout, options.memory_bytes, history_bytes, rule),
            options,
        })
    }

    /// A participant for the calling thread.
    pub fn participate(&self) -> Participant {
        self.domain.participate()
    }

    /// Refuses changes by `Participant::begin_change` from now on: the store is about to end. `has_changes` tells when
    /// it is quiet.
    pub fn refuse_changes(&self) {
        self.domain.refuse_changes();
    }

    /// After `refuse_changes`: whether a change may be in progress.
    pub fn has_changes(&self) -> bool {
        self.domain.has_changes()
    }

    /// The hash of a key, which all operations take.
    #[inline(always)]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hash.hash(key)
    }

    /// Samples accesses to this share of all keys from now on, 0 to 1; at first to none.
    pub fn sample_accesses(&self, share: f64) {
        self.access_samples.set_share(share);
    }

    /// Takes the sampled accesses since the last call, those of each thread in their order. Returns how many were
    /// dropped because a buffer was full.
    pub fn take_access_samples(&self, each: impl FnMut(AccessSample)) -> u64 {
        self.access_samples.take(each)
    }

    /// How many flushes have taken effect.
    pub fn flushes(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The number of uploads that have returned their memory: a caller that waits for some sees progress.
    pub fn uploads_ended(&self) -> u64 {
        self.uploads_ended.load(Ordering::Relaxed)
    }

    /// The moment of an operation. Executes a delayed flush whose time has come.
    #[inline(always)]
    pub(crate) fn moment(&self, now_ms: u64) -> Moment {
        let moment = self.clock.observe(now_ms);
        // Acquire pairs with the Release in `advance_generation`.
        if moment.ms >= self.clock.flush_at_ms().load(Ordering::Acquire) {
            self.flush_due(moment.ms);
        }
        moment
    }

    #[cold]
    fn flush_due(&self, now_ms: u64) {
        let _flushing = lock(&self.flushing);
        if now_ms >= self.clock.flush_at_ms().load(Ordering::Relaxed) {
            self.advance_generation();
        }
    }

    /// Makes every stored item count as absent.
    fn advance_generation(&self) {
        // Release pairs with the Acquire in `is_live` and `reserve`.
        let mut advance = || {
            self.generation.fetch_add(1, Ordering::Release);
        };
        match self.lower_tier.get() {
            Some(tier) => tier.flush(&mut advance),
            None => advance(),
        }
        // Release pairs with the Acquire in `moment`: a thread that sees the flush done sees the new generation.
        self.clock.flush_at_ms().store(u64::MAX, Ordering::Release);
        self.maintenance.flushed.note();
    }

    /// Whether an item counts as present at `moment`.
    #[inline(always)]
    pub(crate) fn is_live(&self, item: &ItemAt, moment: Moment) -> bool {
        // Acquire pairs with the Release in `advance_generation`.
        self.is_live_in(self.generation.load(Ordering::Acquire), item, moment)
    }

    /// Whether an item counts as present at `moment` in a generation.
    #[inline(always)]
    pub(crate) fn is_live_in(&self, generation: u64, item: &ItemAt, moment: Moment) -> bool {
        let header = self.segments.header(item.at.segment());
        let is_before = |seconds: u64| moment.ms < seconds * 1000;
        header.generation.load(Ordering::Relaxed) == generation
            && (header.earliest_expiry_seconds(item.header.expiry()).is_none_or(is_before)
                || self.has_exact_life(*item, moment))
    }

    /// Whether an item that has expired by its expiry byte lives for a part of a unit more.
    #[cold]
    fn has_exact_life(&self, item: ItemAt, moment: Moment) -> bool {
        item.header.exact_bytes() > 0 && self.expiry_seconds(&item).is_none_or(|seconds| moment.ms < seconds * 1000)
    }

    /// The second in which an item expires; `None` for never. Protection as in `item`.
    pub(crate) fn expiry_seconds(&self, item: &ItemAt) -> Option<u64> {
        // SAFETY: as in `item`.
        unsafe { item.expiry_seconds(&self.segments.arena, self.segments.header(item.at.segment())) }
    }

    /// Whether a flush has ended the generation of an item.
    pub(crate) fn was_flushed(&self, item: &ItemAt) -> bool {
        self.segments.header(item.at.segment()).is_flushed(self.generation.load(Ordering::Acquire))
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
        self.item_of(slot, key).is_some()
    }

    /// The item that a slot names, if it has this key. Protection as in `item`.
    #[inline(always)]
    pub(crate) fn item_of(&self, slot: Slot, key: &[u8]) -> Option<ItemAt> {
        let item = self.item(slot);
        // SAFETY: as in `item`.
        unsafe { item.has_key(&self.segments.arena, key) }.then_some(item)
    }

    /// The life of an item stored now; `None` if it has expired already.
    pub(crate) fn lifetime(&self, ttl: Ttl, moment: Moment) -> Option<Lifetime> {
        match ttl {
            Ttl::Never => Some(Lifetime::NEVER),
            Ttl::Expired | Ttl::Seconds(0) => None,
            Ttl::Seconds(seconds) => {
                let expiry_seconds = Some(moment.seconds() + u64::from(seconds));
                Some(Lifetime { bucket: self.chains.scale.bucket(seconds), expiry_seconds, exact: None })
            }
            Ttl::Until(seconds) if seconds <= moment.seconds() => None,
            Ttl::Until(seconds) => {
                // The latest expiry that a TTL can express.
                let latest = moment.seconds() + u64::from(u32::MAX);
                Some(self.lifetime_until(Some(seconds.min(latest)), moment))
            }
        }
    }

    /// The life of an item that expires exactly in this second, or keeps this expiry.
    pub(crate) fn lifetime_until(&self, expiry_seconds: Option<u64>, moment: Moment) -> Lifetime {
        let until = |seconds| self.chains.scale.lifetime_until(seconds, moment.seconds());
        expiry_seconds.map_or(Lifetime::NEVER, until)
    }

    /// Space for an item; `None` if it needs a segment, and none is free.
    pub(crate) fn reserve(
        &self,
        participant: &Participant,
        size: u32,
        life: Lifetime,
        moment: Moment,
    ) -> Option<Reservation<'_>> {
        let need = ReserveRequest {
            life,
            size,
            writer: participant.number(),
            generation: self.generation.load(Ordering::Acquire),
        };
        let reserved = self.chains.reserve(&self.segments, &need, moment);
        pause_point(PausePoint::Stripe);
        reserved
    }

    /// Writes an item up to its value into space that was reserved for its life. Returns the location of the value.
    #[inline(always)]
    pub(crate) fn write_head(&self, reserved: &Reservation<'_>, head: &Head<'_>) -> Location {
        debug_assert_eq!(reserved.exact, head.exact, "the reservation is for this life");
        let at = Location::new(reserved.segment, reserved.offset);
        let key_length = u8::try_from(head.key.len()).expect("keys have at most 255 bytes");
        let extension_length = head.extension.length(head.flags, head.exact);
        let lengths = (key_length, head.value_length, extension_length);
        let header = ItemHeader::new(head.kind, lengths, head.flags.is_present(), reserved.expiry_byte);
        let metadata = (head.flags, head.extension, head.exact);
        // SAFETY: the reservation owns the range and no thread can reach it before its publication.
        unsafe { ItemAt { at, header }.write_head(&self.segments.arena, metadata, head.key) };
        at.plus(header.value_offset())
    }

    /// The CAS token for a bucket sequence.
    pub(crate) fn token(&self, sequence: u64) -> u64 {
        self.token_base.wrapping_add(sequence)
    }

    /// A CAS token that no item gets from the store: the sequence of a bucket that holds an item is not 0.
    pub fn invalid_token(&self) -> u64 {
        self.token(0)
    }

    /// The CAS token of an item, protected as in `item`, in a bucket with this sequence.
    #[inline(always)]
    pub(crate) fn token_of(&self, item: &ItemAt, sequence: u64) -> u64 {
        // SAFETY: as in `item`.
        let own = unsafe { item.extension(&self.segments.arena) }.token;
        own.unwrap_or_else(|| self.token(sequence))
    }

    /// Whether a CAS token is valid for an item, protected as in `item`, in a bucket with this sequence. A caller
    /// without the bucket locks must publish on the condition that the item is unchanged.
    pub(crate) fn token_fits(&self, item: &ItemAt, hash: u64, sequence: u64, token: u64) -> bool {
        let fits = self.token_of(item, sequence) == token || self.is_issued(hash, token);
        if !fits && let Some(tokens) = self.issued_tokens.get() {
            // SAFETY: as in `item`.
            let is_copied = unsafe { item.extension(&self.segments.arena) }.copied;
            is_copied.then(|| tokens.note_unknown());
        }
        fits
    }

    /// Makes items stored before `now_ms + delay_ms` count as absent from then on. A flush with a delay replaces one
    /// that waits.
    pub fn flush(&self, now_ms: u64, delay_ms: u64) {
        let moment = self.moment(now_ms);
        let _flushing = lock(&self.flushing);
        if delay_ms > 0 {
            self.clock.flush_at_ms().store(moment.ms.saturating_add(delay_ms), Ordering::Relaxed);
        } else {
            self.advance_generation();
        }
    }
}

/// The token of sequence 0 of a store with this seed, unless it adopts tokens.
pub(crate) fn token_base(seed: u64) -> u64 {
    (KeyHash::new(seed).hash(b"token") >> (u64::BITS - TOKEN_BASE_BITS)).max(1)
}

impl Items for Store {
    /// Protection as in `item`.
    fn hash_at(&self, at: Location) -> u64 {
        // SAFETY: as in `item`.
        unsafe {
            let item = ItemAt::read(&self.segments.arena, at);
            let key = item.key(&self.segments.arena);
            self.hash.hash(key)
        }
    }

    fn prefetch(&self, at: Location) {
        self.segments.arena.prefetch(at);
        // Most keys end here.
        self.segments.arena.prefetch(at.plus(SHORT_KEY_END));
    }
}

/// The part of an item in front of its value.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    pub key: &'a [u8],
    pub flags: Flags,
    pub extension: Extension,
    /// Exact expiry of its life.
    pub exact: Option<ExactExpiry>,
    pub kind: Kind,
    /// Bytes of the value part.
    pub value_length: u32,
}

impl Head<'_> {
    /// Bytes of the whole item.
    pub fn size(&self) -> u64 {
        self.size_with(self.extension.length(self.flags, self.exact).into())
    }

    /// Whether a segment of `segment_bytes` holds the item in one piece, also with the longest extension.
    pub fn fits(&self, segment_bytes: u32) -> bool {
        self.value_length <= VALUE_PART_BYTES_MAX && self.size_max() <= segment_bytes.into()
    }

    /// Bytes of the whole item with the longest extension.
    pub fn size_max(&self) -> u64 {
        self.size_with(EXTENSION_BYTES_MAX.into())
    }

    fn size_with(&self, extension: u64) -> u64 {
        let flags = if self.flags.is_present() { 4 } else { 0 };
        u64::from(ITEM_HEADER_BYTES) + flags + extension + self.key.len() as u64 + u64::from(self.value_length)
    }
}
