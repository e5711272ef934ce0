//! The header of a segment: two cache lines in a table of their own.
//!
//! ```text
//! line 0, read by every get    origin seconds u64 | expiry shift, state, body, rounds u8 | TTL bucket u16 |
//!                              generation u64 | previous, next u32 | opened ms u64 | age stamp u64 | owner hash u64
//! line 1, dirtied by writes    live bytes u32 | live items u32 | write offset u32 | pins u32 | latest expiry u64 |
//!                              body bytes u64 | written items u32 | dead link u32 | next expiry u64 |
//!                              expired bytes u64 | is listed u8 | has memory u8
//! ```
//! The expiry of an item is `origin + (byte << shift)` seconds, and less than a unit later with an exact expiry. The
//! shift is that of the TTL bucket, and origins are multiples of the unit `1 << shift`. So a relocation to another
//! segment of the bucket, or to a finer one, changes no expiry.

use super::exact_expiry::ExactExpiry;
use super::state::State;
use crate::mapping::Zeroed;
use crate::sync::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// The expiry shift of segments whose items do not expire.
pub const NO_EXPIRY: u8 = u8::MAX;

/// A stamp is a time in milliseconds followed by this many bits, which order the segments opened in one millisecond.
pub const STAMP_SHIFT: u32 = 10;

/// See the drawing above. Fields are written by the owner of the segment (see `State`), except where a field says
/// otherwise.
#[cfg_attr(not(loom), repr(C, align(128)))]
pub struct Header {
    /// Expiry bytes count from here.
    pub origin_seconds: AtomicU64,
    /// log2 of the expiry unit in seconds, or `NO_EXPIRY`.
    pub shift: AtomicU8,
    state: AtomicU8,
    /// 1 in a body segment of a chained value, 0 in a segment of items.
    pub is_body: AtomicU8,
    /// Evictions that its items have survived.
    pub rounds: AtomicU8,
    /// The TTL bucket whose chain holds it.
    pub ttl_bucket: AtomicU16,
    /// The flush generation in which it was opened.
    pub generation: AtomicU64,
    /// Chain links, guarded by the TTL bucket's chain lock; both also link the free stack,
    /// `next` the bodies of a value.
    pub previous: AtomicU32,
    pub next: AtomicU32,
    /// When it was opened. For a destination of a job: when the oldest of its sources was. Chains are sorted by it.
    pub opened_ms: AtomicU64,
    /// The age by which evictions choose: when it was opened for writing, or for survivors. Of two openings the later
    /// one has the higher stamp (see `STAMP_SHIFT`).
    pub stamp: AtomicU64,
    /// For a body: the hash of the key of its value.
    pub owner_hash: AtomicU64,

    counters: Counters,
}

#[cfg_attr(not(loom), repr(C, align(64)))]
struct Counters {
    live_bytes: AtomicU32,
    live_items: AtomicU32,
    write_offset: AtomicU32,
    pins: AtomicU32,
    latest_expiry_seconds: AtomicU64,
    body_bytes: AtomicU64,
    written_items: AtomicU32,
    dead_link: AtomicU32,
    next_expiry_seconds: AtomicU64,
    expired_bytes: AtomicU64,
    is_listed: AtomicBool,
    has_memory: AtomicBool,
}

// SAFETY: atomics of zero are all-zero bytes and need no drop; state 0 is Absent.
unsafe impl Zeroed for Header {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self {
            origin_seconds: AtomicU64::new(0),
            shift: AtomicU8::new(0),
            state: AtomicU8::new(State::Absent as u8),
            is_body: AtomicU8::new(0),
            rounds: AtomicU8::new(0),
            ttl_bucket: AtomicU16::new(0),
            generation: AtomicU64::new(0),
            previous: AtomicU32::new(0),
            next: AtomicU32::new(0),
            opened_ms: AtomicU64::new(0),
            stamp: AtomicU64::new(0),
            owner_hash: AtomicU64::new(0),
            counters: Counters {
                live_bytes: AtomicU32::new(0),
                live_items: AtomicU32::new(0),
                write_offset: AtomicU32::new(0),
                pins: AtomicU32::new(0),
                latest_expiry_seconds: AtomicU64::new(0),
                body_bytes: AtomicU64::new(0),
                written_items: AtomicU32::new(0),
                dead_link: AtomicU32::new(0),
                next_expiry_seconds: AtomicU64::new(0),
                expired_bytes: AtomicU64::new(0),
                is_listed: AtomicBool::new(false),
                has_memory: AtomicBool::new(false),
            },
        }
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Header>() == 128 && std::mem::offset_of!(Header, counters) == 64);

/// The numbers of a header but for its state, as an image keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderWords {
    pub shift: u8,
    pub rounds: u8,
    pub ttl_bucket: u16,
    /// Of a body: the link to the next one.
    pub next: u32,
    pub origin_seconds: u64,
    pub generation: u64,
    pub opened_ms: u64,
    pub stamp: u64,
    pub owner_hash: u64,
    pub write_offset: u32,
    pub written_items: u32,
    pub latest_expiry_seconds: u64,
    pub next_expiry_seconds: u64,
    pub expired_bytes: u64,
    pub live_items: u32,
    pub live_bytes: u32,
    pub body_bytes: u64,
}

impl Header {
    /// The numbers of a segment that no thread changes.
    pub fn words(&self) -> HeaderWords {
        let counters = &self.counters;
        HeaderWords {
            shift: self.shift.load(Ordering::Relaxed),
            rounds: self.rounds.load(Ordering::Relaxed),
            ttl_bucket: self.ttl_bucket.load(Ordering::Relaxed),
            next: self.next.load(Ordering::Relaxed),
            origin_seconds: self.origin_seconds.load(Ordering::Relaxed),
            generation: self.generation.load(Ordering::Relaxed),
            opened_ms: self.opened_ms.load(Ordering::Relaxed),
            stamp: self.stamp.load(Ordering::Relaxed),
            owner_hash: self.owner_hash.load(Ordering::Relaxed),
            write_offset: self.write_offset(),
            written_items: self.written_items(),
            latest_expiry_seconds: self.latest_expiry_seconds(),
            next_expiry_seconds: self.next_expiry_seconds(),
            expired_bytes: counters.expired_bytes.load(Ordering::Relaxed),
            live_items: self.live_items(),
            live_bytes: self.live_bytes(),
            body_bytes: self.body_bytes(),
        }
    }

    /// Sets the numbers of an image, without the link, in an open segment that no other thread knows.
    pub fn restore(&self, words: &HeaderWords) {
        let counters = &self.counters;
        self.shift.store(words.shift, Ordering::Relaxed);
        self.rounds.store(words.rounds, Ordering::Relaxed);
        self.ttl_bucket.store(words.ttl_bucket, Ordering::Relaxed);
        self.origin_seconds.store(words.origin_seconds, Ordering::Relaxed);
        self.generation.store(words.generation, Ordering::Relaxed);
        self.opened_ms.store(words.opened_ms, Ordering::Relaxed);
        self.stamp.store(words.stamp, Ordering::Relaxed);
        self.owner_hash.store(words.owner_hash, Ordering::Relaxed);
        counters.write_offset.store(words.write_offset, Ordering::Relaxed);
        counters.written_items.store(words.written_items, Ordering::Relaxed);
        counters.latest_expiry_seconds.store(words.latest_expiry_seconds, Ordering::Relaxed);
        counters.next_expiry_seconds.store(words.next_expiry_seconds, Ordering::Relaxed);
        counters.expired_bytes.store(words.expired_bytes, Ordering::Relaxed);
        counters.live_items.store(words.live_items, Ordering::Relaxed);
        counters.live_bytes.store(words.live_bytes, Ordering::Relaxed);
        counters.body_bytes.store(words.body_bytes, Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn state(&self) -> State {
        // Pairs with the Release of `pass_to`: the writes of the previous owner.
        State::from_word(self.state.load(Ordering::Acquire))
    }

    /// The owner moves the segment to its next state.
    pub fn pass_to(&self, next: State) {
        // Release pairs with the Acquire in `state`. A swap, so that two threads that do this at once are detected.
        let state = State::from_word(self.state.swap(next as u8, Ordering::AcqRel));
        assert!(state.may_become(next), "a segment went from {state:?} to {next:?}");
    }

    /// Called by the owner after its last write. Returns whether no item is alive.
    pub fn seal(&self) -> bool {
        self.pass_to(State::Sealed);
        // A read-modify-write whose Release pairs with the Acquire in `remove_live`: a thread that unlinks an item
        // after this sees the segment sealed; an unlinking before this is seen here.
        self.counters.live_items.fetch_add(0, Ordering::Release) as i32 <= 0
    }

    /// The next segment in the list of dead segments (see `dead_stack`).
    pub fn dead_link(&self) -> &AtomicU32 {
        &self.counters.dead_link
    }

    /// Whether it is in the list of dead segments.
    pub fn is_listed(&self) -> &AtomicBool {
        &self.counters.is_listed
    }

    /// Whether a segment in a file has memory there. Guarded by the lock of the free stack.
    pub fn has_memory(&self) -> &AtomicBool {
        &self.counters.has_memory
    }

    /// Clears the header for use as an open segment. It stays in the list of dead segments.
    pub fn reset(&self) {
        self.previous.store(0, Ordering::Relaxed);
        self.next.store(0, Ordering::Relaxed);
        let counters = &self.counters;
        for word in [&counters.live_bytes, &counters.live_items, &counters.write_offset, &counters.written_items] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [
            &self.origin_seconds,
            &self.generation,
            &self.opened_ms,
            &self.stamp,
            &self.owner_hash,
            &counters.latest_expiry_seconds,
            &counters.body_bytes,
            &counters.expired_bytes,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        counters.next_expiry_seconds.store(u64::MAX, Ordering::Relaxed);
        self.is_body.store(0, Ordering::Relaxed);
        self.rounds.store(0, Ordering::Relaxed);
        self.shift.store(0, Ordering::Relaxed);
        self.ttl_bucket.store(0, Ordering::Relaxed);
    }

    /// Whether a flush has ended the generation of its items. `generation` is that of the store, possibly an earlier
    /// one, which ends fewer segments. A segment of a later one was opened after the caller loaded it.
    pub fn is_flushed(&self, generation: u64) -> bool {
        self.generation.load(Ordering::Relaxed) < generation
    }

    /// Whether its items have survived no eviction yet.
    pub fn is_young(&self) -> bool {
        self.rounds.load(Ordering::Relaxed) == 0
    }

    /// When an item with this expiry byte expires at the earliest, and without an exact expiry; `None` for never.
    #[inline(always)]
    pub fn earliest_expiry_seconds(&self, byte: u8) -> Option<u64> {
        let shift = self.shift.load(Ordering::Relaxed);
        (shift != NO_EXPIRY).then(|| self.origin_seconds.load(Ordering::Relaxed) + (u64::from(byte) << shift))
    }

    /// When an item with this expiry byte, and these bits if it has any, expires; `None` for never.
    #[inline(always)]
    pub fn expiry_seconds(&self, byte: u8, exact: Option<ExactExpiry>) -> Option<u64> {
        let earliest = self.earliest_expiry_seconds(byte)?;
        Some(exact.map_or(earliest, |exact| exact.seconds(earliest, self.shift.load(Ordering::Relaxed))))
    }

    /// The expiry byte for an expiry in seconds, rounded down; `None` if it is too far from the origin.
    pub fn expiry_byte(&self, expiry_seconds: Option<u64>) -> Option<u8> {
        let shift = self.shift.load(Ordering::Relaxed);
        match expiry_seconds {
            None => Some(0).filter(|_| shift == NO_EXPIRY),
            Some(_) if shift == NO_EXPIRY => None,
            Some(seconds) => {
                let units = seconds.checked_sub(self.origin_seconds.load(Ordering::Relaxed))? >> shift;
                u8::try_from(units).ok()
            }
        }
    }

    /// Accounts a published item. `body_bytes`: of its body segments, if it is chained.
    pub fn add_live(&self, bytes: u32, body_bytes: u64) {
        self.counters.live_items.fetch_add(1, Ordering::Relaxed);
        self.counters.live_bytes.fetch_add(bytes, Ordering::Relaxed);
        if body_bytes > 0 {
            self.counters.body_bytes.fetch_add(body_bytes, Ordering::Relaxed);
        }
    }

    /// Accounts an unlinked item. Returns whether it was the last one.
    pub fn remove_live(&self, bytes: u32, body_bytes: u64) -> bool {
        // Acquire pairs with the Release in `seal`.
        let was_last = self.counters.live_items.fetch_sub(1, Ordering::Acquire) == 1;
        self.counters.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if body_bytes > 0 {
            self.counters.body_bytes.fetch_sub(body_bytes, Ordering::Relaxed);
        }
        was_last
    }

    /// Bytes of the items in the index. They lag between publication and accounting and may wrap to less than zero
    /// then, which reads as zero.
    pub fn live_bytes(&self) -> u32 {
        (self.counters.live_bytes.load(Ordering::Relaxed) as i32).max(0) as u32
    }

    pub fn live_items(&self) -> u32 {
        (self.counters.live_items.load(Ordering::Relaxed) as i32).max(0) as u32
    }

    /// Bytes of the body segments of its live chained values.
    pub fn body_bytes(&self) -> u64 {
        (self.counters.body_bytes.load(Ordering::Relaxed) as i64).max(0) as u64
    }

    /// Items ever written into it, live or not.
    pub fn written_items(&self) -> u32 {
        self.counters.written_items.load(Ordering::Relaxed)
    }

    /// Bytes written: items occupy the segment up to here.
    pub fn write_offset(&self) -> u32 {
        // Pairs with the Release in `append`.
        self.counters.write_offset.load(Ordering::Acquire)
    }

    /// The time of the stamp in milliseconds.
    pub fn stamp_ms(&self) -> u64 {
        self.stamp.load(Ordering::Relaxed) >> STAMP_SHIFT
    }

    /// The owner has appended an item that ends at `end`.
    pub fn append(&self, end: u32, expiry_seconds: Option<u64>) {
        self.note_expiry(expiry_seconds);
        let items = &self.counters.written_items;
        items.store(items.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.counters.write_offset.store(end, Ordering::Release);
    }

    /// The owner appends an item of this expiry, or gives an item this expiry.
    #[inline(always)]
    pub fn note_expiry(&self, expiry_seconds: Option<u64>) {
        let expiry = expiry_seconds.unwrap_or(u64::MAX);
        // Most items expire together with the one before them.
        if expiry != self.counters.latest_expiry_seconds.load(Ordering::Relaxed) {
            self.note_other_expiry(expiry);
        }
    }

    fn note_other_expiry(&self, expiry_seconds: u64) {
        let Counters { latest_expiry_seconds: latest, next_expiry_seconds: next, .. } = &self.counters;
        if expiry_seconds > latest.load(Ordering::Relaxed) {
            latest.store(expiry_seconds, Ordering::Relaxed);
        }
        if expiry_seconds < next.load(Ordering::Relaxed) {
            next.store(expiry_seconds, Ordering::Relaxed);
        }
    }

    /// The earliest expiry of an item that is not counted in the expired bytes; `u64::MAX` if there is none.
    pub fn next_expiry_seconds(&self) -> u64 {
        self.counters.next_expiry_seconds.load(Ordering::Relaxed)
    }

    /// Bytes of expired items, as last counted, that may still be in the index, with their body segments. Overwritten
    /// and deleted items among them are not known: at most the live bytes.
    pub fn expired_bytes(&self) -> u64 {
        let expired = self.counters.expired_bytes.load(Ordering::Relaxed);
        expired.min(u64::from(self.live_bytes()) + self.body_bytes())
    }

    /// Bytes of all items that had expired at the last count.
    pub fn expired_written_bytes(&self) -> u64 {
        self.counters.expired_bytes.load(Ordering::Relaxed)
    }

    /// Stores a count of the expired items: their bytes, and the next expiry. Called while no thread appends, possibly
    /// by several threads with different times. Both words only increase then, so those of the latest time stay, in any
    /// order.
    pub fn note_expired(&self, bytes: u64, next_expiry_seconds: u64) {
        self.counters.expired_bytes.fetch_max(bytes, Ordering::Relaxed);
        self.counters.next_expiry_seconds.fetch_max(next_expiry_seconds, Ordering::Relaxed);
    }

    /// The time at which the last of its items has expired; 0 without items, `u64::MAX` if one never expires.
    pub fn latest_expiry_seconds(&self) -> u64 {
        self.counters.latest_expiry_seconds.load(Ordering::Relaxed)
    }

    pub fn pins(&self) -> u32 {
        // Pairs with the Release in `unpin`: the handle's last read is over.
        self.counters.pins.load(Ordering::Acquire)
    }

    /// A handle made under an epoch pin holds the segment. Returns the number of earlier handles.
    pub fn pin(&self) -> u32 {
        self.counters.pins.fetch_add(1, Ordering::Relaxed)
    }

    /// A handle is dropped. Returns the number of handles before.
    pub fn unpin(&self) -> u32 {
        let before = self.counters.pins.fetch_sub(1, Ordering::Release);
        assert!(before > 0, "a handle was dropped twice");
        before
    }
}
