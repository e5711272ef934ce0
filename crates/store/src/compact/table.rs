//! The operations of a compact table.

use super::layout::{ENTRY_BYTES_MAX, Layout, SetControl};
use super::locked_set::{Entry, LockedSet};
use super::memory::Memory;
use super::shape::{Shape, View};
use super::stats::{CompactCounters, Event};
use super::types::{CompactLookup, CompactMode, CompactSizes, CompactWrite, MissTicket};
use super::words::{KeyWords, SetRef};
use crate::epoch::Participant;
use crate::error::Error;
use crate::frames::FrameId;
use crate::hash::KeyHash;
use crate::ops::Stored;
use crate::sync::{AtomicU64, Ordering, lock};
use crate::ttl::Ttl;

/// The expiry of an entry that does not expire.
const NEVER: u32 = u32::MAX;

/// A cache of small objects whose keys have one length and whose values have one length.
pub struct CompactTable {
    pub(super) layout: Layout,
    pub(super) seed: u64,
    pub(super) hash: KeyHash,
    pub(super) shape: Shape,
    pub(super) memory: Memory,
    pub(super) counters: CompactCounters,
    /// When a delayed flush takes effect; `u64::MAX` if none waits. Changes under the lock of resizes.
    pub(super) flush_at_ms: AtomicU64,
}

impl CompactTable {
    pub(super) fn with_memory(layout: Layout, seed: u64, memory: Memory, shape: Shape) -> Self {
        Self {
            layout,
            seed,
            hash: KeyHash::new(seed),
            shape,
            memory,
            counters: CompactCounters::default(),
            flush_at_ms: AtomicU64::new(u64::MAX),
        }
    }

    pub fn sizes(&self) -> CompactSizes {
        let Layout { key_bytes, value_bytes, has_ttl, .. } = self.layout;
        CompactSizes { key_bytes, value_bytes, has_ttl }
    }

    /// The seed of the hash of keys.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Looks a key up and calls `read` with its value. A key of another length is absent.
    #[inline]
    pub fn get<R>(
        &self,
        participant: &Participant,
        key: &[u8],
        now_ms: u64,
        read: impl FnOnce(&[u8]) -> R,
    ) -> CompactLookup<R> {
        let mut value = [0; ENTRY_BYTES_MAX];
        let value = &mut value[..self.layout.value_bytes];
        match self.look_up(participant, key, now_ms, value, true) {
            None => CompactLookup::Miss,
            Some(true) => CompactLookup::Negative,
            Some(false) => CompactLookup::Hit(read(value)),
        }
    }

    /// Whether the key has an entry. It does not count as a use.
    pub fn contains(&self, participant: &Participant, key: &[u8], now_ms: u64) -> bool {
        let mut value = [0; ENTRY_BYTES_MAX];
        self.look_up(participant, key, now_ms, &mut value[..self.layout.value_bytes], false).is_some()
    }

    /// Asks the processor for the sets of these keys.
    pub fn prefetch(&self, participant: &Participant, keys: &[&[u8]]) {
        let _pin = participant.pin();
        let view = self.shape.view();
        keys.iter().for_each(|key| self.set(view.locate(self.hash.hash(key))).prefetch());
    }

    /// Whether the entry of a key is negative; `None` without an entry. Copies its value.
    #[inline]
    fn look_up(
        &self,
        participant: &Participant,
        key: &[u8],
        now_ms: u64,
        value: &mut [u8],
        is_use: bool,
    ) -> Option<bool> {
        if key.len() != self.layout.key_bytes {
            return None;
        }
        if !self.flush_if_due(participant, now_ms) {
            return None;
        }
        let _pin = participant.pin();
        let (hash, words) = (self.hash.hash(key), KeyWords::of(key));
        // Ends: a miss is looked up again only when the walk of a resize has changed the set of the key.
        loop {
            let view = self.shape.view();
            let index = view.locate(hash);
            let set = self.set(index);
            let (control, found) = set.read_consistently(|control| {
                let position = set.find(&words, control.used())?;
                set.copy_entry(position, self.layout.key_bytes, value);
                Some((position, self.expiry_in(&set, position)))
            });
            let Some((position, expiry)) = found else {
                if self.is_current(view, hash, index) {
                    return None;
                }
                continue;
            };
            if is_expired(expiry, now_ms) {
                return None;
            }
            if is_use && position >= self.layout.ways.div_ceil(2) {
                self.promote(participant, set, control, position);
            }
            return Some(control.is_negative(position));
        }
    }

    /// Whether a key still belongs to this set.
    fn is_current(&self, view: View, hash: u64, index: u32) -> bool {
        let now = self.shape.view();
        now.version == view.version && now.locate(hash) == index
    }

    fn expiry_in(&self, set: &SetRef<'_>, position: usize) -> u32 {
        if !self.layout.has_ttl {
            return NEVER;
        }
        let mut bytes = [0; 4];
        set.copy_entry(position, self.layout.key_bytes + self.layout.value_bytes, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// Moves a hit to the front, unless another thread changes the set, or changes are refused: an image of the table
    /// has the order as it was.
    #[inline(never)]
    fn promote(&self, participant: &Participant, set: SetRef<'_>, control: SetControl, position: usize) {
        let Some(_change) = participant.begin_change() else { return };
        if let Some(mut edit) = LockedSet::lock_if(set, control) {
            edit.promote(position);
            self.counters.add(participant.number(), Event::Promoted, 1);
        }
    }

    /// The set of this number. The caller is pinned since it got the number, or holds the lock of resizes.
    #[inline(always)]
    pub(super) fn set(&self, index: u32) -> SetRef<'_> {
        let per_frame = self.layout.sets_per_frame;
        let frame: FrameId = self.memory.frame(index / per_frame);
        SetRef::new(&self.layout, self.memory.frames(), frame, index % per_frame)
    }

    /// Locks the set of a hash. The caller is pinned.
    fn locked(&self, hash: u64) -> LockedSet<'_> {
        // Ends: the set of a key changes once in a resize.
        loop {
            let view = self.shape.view();
            let index = view.locate(hash);
            let edit = LockedSet::lock(self.set(index));
            if self.is_current(view, hash, index) {
                return edit;
            }
        }
    }

    fn check_key(&self, key: &[u8]) -> Result<(), Error> {
        let expected = self.layout.key_bytes;
        match key.len() {
            bytes if bytes == expected => Ok(()),
            bytes => Err(Error::CompactLength { part: "key", bytes, expected }),
        }
    }

    /// The expiry of an entry that is written now; `None` if it is expired already.
    fn expiry(&self, ttl: Ttl, now_ms: u64) -> Result<Option<u32>, Error> {
        let now = now_ms / 1000;
        let seconds = match ttl {
            Ttl::Never => return Ok(Some(NEVER)),
            Ttl::Expired | Ttl::Seconds(0) => return Ok(None),
            Ttl::Until(seconds) if seconds <= now => return Ok(None),
            _ if !self.layout.has_ttl => return Err(Error::CompactTtl),
            Ttl::Seconds(seconds) => now + u64::from(seconds),
            Ttl::Until(seconds) => seconds,
        };
        Ok(Some(u32::try_from(seconds).unwrap_or(NEVER).min(NEVER - 1)))
    }

    /// Writes an entry, which replaces that of its key, a negative one included.
    ///
    /// # Errors
    /// `CompactLength`: the key or the value has another length than those of the table. `CompactTtl`: the table keeps
    /// no TTLs.
    pub fn write(&self, participant: &Participant, write: &CompactWrite<'_>, now_ms: u64) -> Result<Stored, Error> {
        self.check_key(write.key)?;
        let expected = self.layout.value_bytes;
        if let Some(value) = write.value.filter(|value| value.len() != expected) {
            return Err(Error::CompactLength { part: "value", bytes: value.len(), expected });
        }
        let expiry = self.expiry(write.ttl, now_ms)?;
        self.flush_if_due(participant, now_ms);
        let _pin = participant.pin();
        let hash = self.hash.hash(write.key);
        let mut edit = self.locked(hash);
        let thread = participant.number();
        if let CompactMode::Since(ticket) = write.mode
            && ticket != self.ticket_of(hash, edit.before())
        {
            return Ok(Stored::NotStored);
        }
        let found = edit.find(&KeyWords::of(write.key));
        let is_live = found.is_some_and(|position| !self.is_expired_in(&edit, position, now_ms));
        match write.mode {
            CompactMode::Add if is_live => return Ok(Stored::NotStored),
            CompactMode::Replace if !is_live => return Ok(Stored::NotStored),
            _ => {}
        }
        if let Some(position) = found {
            self.remove_at(&mut edit, position, thread);
        }
        // A reader that saw this key as absent must not store that.
        edit.void_tickets();
        if let Some(expiry) = expiry {
            if edit.is_full() {
                self.make_space(&mut edit, now_ms, thread);
            }
            let mut bytes = [0; ENTRY_BYTES_MAX];
            let entry = self.entry_of(&mut bytes, write, expiry);
            edit.insert(0, entry);
            self.count_entered(thread, entry.is_negative);
        }
        let event = if write.value.is_some() { Event::StoredValue } else { Event::StoredNegative };
        self.counters.add(thread, event, 1);
        Ok(Stored::Stored)
    }

    fn entry_of<'b>(&self, bytes: &'b mut [u8], write: &CompactWrite<'_>, expiry: u32) -> Entry<'b> {
        let Layout { key_bytes, value_bytes, has_ttl, entry_bytes, .. } = self.layout;
        bytes[..key_bytes].copy_from_slice(write.key);
        if let Some(value) = write.value {
            bytes[key_bytes..][..value_bytes].copy_from_slice(value);
        }
        if has_ttl {
            bytes[key_bytes + value_bytes..entry_bytes].copy_from_slice(&expiry.to_le_bytes());
        }
        Entry { bytes: &bytes[..entry_bytes], is_negative: write.value.is_none() }
    }

    /// Removes an entry from a full set: an expired one, or the one that was not used for longest.
    pub(super) fn make_space(&self, edit: &mut LockedSet<'_>, now_ms: u64, thread: usize) {
        let expired = self.expired_in(edit, now_ms);
        let (position, event) = expired.map_or((edit.used() - 1, Event::Evicted), |at| (at, Event::Expired));
        self.remove_at(edit, position, thread);
        self.counters.add(thread, event, 1);
    }

    /// The last expired entry of a set.
    pub(super) fn expired_in(&self, edit: &LockedSet<'_>, now_ms: u64) -> Option<usize> {
        (0..edit.used()).rev().find(|position| self.is_expired_in(edit, *position, now_ms))
    }

    fn is_expired_in(&self, edit: &LockedSet<'_>, position: usize, now_ms: u64) -> bool {
        let Layout { key_bytes, value_bytes, has_ttl, .. } = self.layout;
        has_ttl && {
            let bytes = edit.entry(position)[key_bytes + value_bytes..].try_into().expect("an expiry has 4 bytes");
            is_expired(u32::from_le_bytes(bytes), now_ms)
        }
    }

    pub(super) fn count_entered(&self, thread: usize, is_negative: bool) {
        self.counters.add(thread, Event::Entered, 1);
        self.counters.add(thread, Event::EnteredNegative, is_negative.into());
    }

    pub(super) fn remove_at(&self, edit: &mut LockedSet<'_>, position: usize, thread: usize) {
        self.counters.add(thread, Event::Left, 1);
        self.counters.add(thread, Event::LeftNegative, edit.is_negative(position).into());
        edit.remove(position);
    }

    /// Removes a key, negative or not. False if it had no entry, or an expired one.
    ///
    /// # Errors
    /// `CompactLength`.
    pub fn remove(&self, participant: &Participant, key: &[u8], now_ms: u64) -> Result<bool, Error> {
        self.remove_if(participant, key, now_ms, |_| true)
    }

    /// Removes the negative result of a key, and voids the tickets of its set. False if there was none.
    ///
    /// # Errors
    /// `CompactLength`.
    pub fn remove_negative(&self, participant: &Participant, key: &[u8], now_ms: u64) -> Result<bool, Error> {
        self.remove_if(participant, key, now_ms, |is_negative| is_negative)
    }

    fn remove_if(
        &self,
        participant: &Participant,
        key: &[u8],
        now_ms: u64,
        is_wanted: impl Fn(bool) -> bool,
    ) -> Result<bool, Error> {
        self.check_key(key)?;
        self.flush_if_due(participant, now_ms);
        let _pin = participant.pin();
        let mut edit = self.locked(self.hash.hash(key));
        let found = edit.find(&KeyWords::of(key)).filter(|position| is_wanted(edit.is_negative(*position)));
        let is_live = found.is_some_and(|position| !self.is_expired_in(&edit, position, now_ms));
        if let Some(position) = found {
            self.remove_at(&mut edit, position, participant.number());
        }
        edit.void_tickets();
        Ok(is_live)
    }

    /// Gives an entry a new TTL. False if the key has none.
    ///
    /// # Errors
    /// `CompactLength`, `CompactTtl`.
    pub fn touch(&self, participant: &Participant, key: &[u8], ttl: Ttl, now_ms: u64) -> Result<bool, Error> {
        self.check_key(key)?;
        let expiry = self.expiry(ttl, now_ms)?;
        self.flush_if_due(participant, now_ms);
        let _pin = participant.pin();
        let mut edit = self.locked(self.hash.hash(key));
        let found = edit.find(&KeyWords::of(key));
        let Some(position) = found.filter(|position| !self.is_expired_in(&edit, *position, now_ms)) else {
            return Ok(false);
        };
        let (mut bytes, length) = ([0; ENTRY_BYTES_MAX], self.layout.entry_bytes);
        let (bytes, is_negative) = (&mut bytes[..length], edit.is_negative(position));
        bytes.copy_from_slice(edit.entry(position));
        self.remove_at(&mut edit, position, participant.number());
        if let Some(expiry) = expiry {
            if self.layout.has_ttl {
                bytes[length - size_of::<u32>()..].copy_from_slice(&expiry.to_le_bytes());
            }
            edit.insert(0, Entry { bytes, is_negative });
            self.count_entered(participant.number(), is_negative);
        }
        Ok(true)
    }

    /// A ticket for [`CompactMode::Since`]: to be taken before the backend is asked for the key.
    ///
    /// # Errors
    /// `CompactLength`.
    pub fn ticket(&self, participant: &Participant, key: &[u8]) -> Result<MissTicket, Error> {
        self.check_key(key)?;
        let _pin = participant.pin();
        let hash = self.hash.hash(key);
        // Ends: as in `locked`.
        loop {
            let view = self.shape.view();
            let index = view.locate(hash);
            let (control, ()) = self.set(index).read_consistently(|_| ());
            if self.is_current(view, hash, index) {
                return Ok(MissTicket { version: view.version, set: index, sequence: control.sequence() });
            }
        }
    }

    /// The ticket of a hash whose set is locked.
    fn ticket_of(&self, hash: u64, control: SetControl) -> MissTicket {
        let view = self.shape.view();
        MissTicket { version: view.version, set: view.locate(hash), sequence: control.sequence() }
    }

    /// Removes all entries that were stored before this call, or, after a delay, before that time. A delayed flush
    /// replaces one that waits.
    pub fn flush(&self, participant: &Participant, now_ms: u64, delay_ms: u64) {
        // The lock orders a flush after one whose time has come and that is being executed.
        let _resizing = lock(&self.memory.resizing);
        if delay_ms > 0 {
            self.flush_at_ms.store(now_ms.saturating_add(delay_ms), Ordering::Relaxed);
            return;
        }
        self.flush_at_ms.store(u64::MAX, Ordering::Relaxed);
        self.clear_all(participant);
    }

    /// Executes a delayed flush whose time has come. False if changes are refused: the entries stay, and are absent.
    #[inline(always)]
    pub(super) fn flush_if_due(&self, participant: &Participant, now_ms: u64) -> bool {
        self.flush_at_ms.load(Ordering::Relaxed) > now_ms || self.flush_due(participant, now_ms)
    }

    #[cold]
    fn flush_due(&self, participant: &Participant, now_ms: u64) -> bool {
        let Some(_change) = participant.begin_change() else { return false };
        let _resizing = lock(&self.memory.resizing);
        // Another thread may have done it.
        if self.flush_at_ms.load(Ordering::Relaxed) <= now_ms {
            self.clear_all(participant);
            self.flush_at_ms.store(u64::MAX, Ordering::Relaxed);
        }
        true
    }

    /// Empties all sets. The caller holds the lock of resizes.
    fn clear_all(&self, participant: &Participant) {
        let (view, thread) = (self.shape.view(), participant.number());
        for index in 0..view.sets() {
            let mut edit = LockedSet::lock(self.set(index));
            let (used, negatives) = (edit.used() as u64, u64::from(edit.before().negatives().count_ones()));
            edit.clear();
            self.counters.add(thread, Event::Left, used);
            self.counters.add(thread, Event::LeftNegative, negatives);
            self.counters.add(thread, Event::Flushed, used);
        }
    }

    /// Asserts every invariant. No other thread may use the table meanwhile.
    pub fn verify(&self) {
        let _resizing = lock(&self.memory.resizing);
        let view = self.shape.view();
        let (mut items, mut negatives) = (0, 0);
        for index in 0..view.sets() {
            let edit = LockedSet::lock(self.set(index));
            assert!(edit.used() <= self.layout.ways, "set {index} has {} entries", edit.used());
            assert_eq!(u64::from(edit.before().negatives()) >> edit.used(), 0, "negative entries are entries");
            for position in 0..edit.used() {
                let key = &edit.entry(position)[..self.layout.key_bytes];
                assert_eq!(view.locate(self.hash.hash(key)), index, "a key is in its set");
                let is_same = |other: usize| edit.entry(other)[..self.layout.key_bytes] == *key;
                assert!(!(0..position).any(is_same), "a key has one entry");
            }
            items += edit.used() as u64;
            negatives += u64::from(edit.before().negatives().count_ones());
        }
        let stats = self.stats();
        assert_eq!((stats.items, stats.negatives), (items, negatives), "the counts are those of the sets");
        self.memory.verify();
    }
}

fn is_expired(expiry: u32, now_ms: u64) -> bool {
    expiry != NEVER && u64::from(expiry) <= now_ms / 1000
}
