//! Allocations: values that their writers fill where they will stay.
//!
//! ```text
//! reserve -> write header, key, zeros -> commit: an item without a slot -> unlock the stripe
//!     -> the writer fills the value, for as long as it likes
//!     -> is the segment still its stripe's open one?   yes: lock the stripe -> new expiry -> publish -> unlock
//!                                                      no:  write the value as any other: one copy
//! ```
//! Between both the item is dead, as an overwritten one is. So the segment is sealed, evicted, expired, compacted and
//! flushed as if the allocation did not exist, and no thread waits for its writer. A count in the segment's header, the
//! same as that of a `Handle`, keeps only its bytes from reuse, until the allocation is dropped. Maintenance reads
//! headers and keys of dead items, never their values.
//!
//! Only an open segment can get a live item: a job that empties a segment would miss an item that became live behind
//! it. The stripe's lock decides, because a segment is sealed under it.

use super::write::{Mode, Write, Written, check_key};
use crate::condition::{Condition, Outcome};
use crate::epoch::Participant;
use crate::error::Error;
use crate::flags::Flags;
use crate::item::{Extension, ItemAt, Kind};
use crate::publish::NewItem;
use crate::segment::{ExactExpiry, Location};
use crate::store::{Head, Store};
use crate::ttl::Ttl;
use std::sync::Arc;

/// A value that is being written in a segment. Lookups do not see it before [`Allocation::publish`].
pub struct Allocation {
    store: Arc<Store>,
    item: ItemAt,
    hash: u64,
}

impl Store {
    /// Space for a value of `length` bytes, all zero, which may be written for as long as it takes. `None` if the value
    /// does not fit a segment, has expired, or handles and allocations hold as many segments as they may: then it is
    /// to be written as any other.
    ///
    /// # Errors
    /// `NeedSegment`: run `evict` and try again. `KeyLength`.
    pub fn allocate(
        self: &Arc<Self>,
        participant: &Participant,
        (key, hash): (&[u8], u64),
        length: usize,
        ttl: Ttl,
        now_ms: u64,
    ) -> Result<Option<Allocation>, Error> {
        check_key(key)?;
        let segment_bytes = u64::from(self.segments.segment_bytes());
        let moment = self.moment(now_ms);
        let Some(life) = self.lifetime(ttl, moment).filter(|_| length as u64 <= segment_bytes) else { return Ok(None) };
        let (flags, extension, value_length) = (Flags::default(), Extension::default(), length as u32);
        let head = Head { key, flags, extension, exact: life.exact, kind: Kind::Plain, value_length };
        if !head.fits(self.segments.segment_bytes()) {
            return Ok(None);
        }
        let Some(reserved) = self.reserve(participant, head.size() as u32, life, moment) else {
            return Err(Error::NeedSegment);
        };
        // The stripe's lock protects the open segment, as an epoch pin protects that of a hit.
        if self.segments.pin(reserved.segment, segment_bytes, self.pinned_limit()).is_err() {
            return Ok(None);
        }
        let value_at = self.write_head(&reserved, &head);
        // SAFETY: the reservation owns the range.
        unsafe { self.segments.arena.write_zeros(value_at, length) };
        let at = Location::new(reserved.segment, reserved.offset);
        // SAFETY: the head was written above.
        let item = unsafe { ItemAt::read(&self.segments.arena, at) };
        reserved.commit(&self.segments);
        Ok(Some(Allocation { store: Arc::clone(self), item, hash }))
    }

    /// Bytes of segments that handles and allocations may hold. One value of any size can always be held.
    pub(super) fn pinned_limit(&self) -> u64 {
        let one = self.options.value_bytes_max + 2 * u64::from(self.segments.segment_bytes());
        one.max(self.budget.memory_bytes() / PINNED_SHARE)
    }
}

/// The share of the memory that handles and allocations may hold, unless the largest value needs more.
const PINNED_SHARE: u64 = 4;

impl Allocation {
    #[cfg(loom)]
    pub(crate) fn item_at(&self) -> ItemAt {
        self.item
    }

    fn key(&self) -> &[u8] {
        let item = &self.item;
        // SAFETY: the count in the header keeps the segment; no thread writes the key.
        unsafe { item.key(&self.store.segments.arena) }
    }

    /// The value so far.
    pub fn bytes(&self) -> &[u8] {
        let item = &self.item;
        // SAFETY: the count in the header keeps the segment; only `bytes_mut` writes the value, by an exclusive borrow.
        unsafe { item.value(&self.store.segments.arena) }
    }

    #[cfg(not(loom))]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let item = &self.item;
        // SAFETY: the count in the header keeps the segment. The item has no slot, so no other thread reads its value,
        // and the borrow of self ends before it gets one.
        unsafe { self.store.segments.arena.slice_mut(item.value_at(), item.header.value_length() as usize) }
    }

    /// Makes the allocation the value of its key, in place if its segment is still open. Its life begins now. After an
    /// error it is as before.
    ///
    /// # Errors
    /// As `Store::write` of a set.
    pub fn publish(&mut self, participant: &Participant, ttl: Ttl, now_ms: u64) -> Result<Written, Error> {
        if let Some(written) = self.publish_in_place(participant, ttl, now_ms)? {
            return Ok(written);
        }
        let (key, hash, value) = (self.key(), self.hash, self.bytes());
        let write = Write { key, hash, value, flags: Flags::default(), ttl, mode: Mode::Set, token: None };
        self.store.write(participant, &write, now_ms)
    }

    /// `None`, with nothing changed, if the segment takes no live item any more, or none of this life.
    fn publish_in_place(&mut self, participant: &Participant, ttl: Ttl, now_ms: u64) -> Result<Option<Written>, Error> {
        let store = &*self.store;
        let moment = store.moment(now_ms);
        let Some(life) = store.lifetime(ttl, moment) else { return Ok(None) };
        let ItemAt { at, header } = self.item;
        if life.exact.map_or(0, ExactExpiry::bytes) != header.exact_bytes() {
            // The item has no place for this expiry.
            return Ok(None);
        }
        let Some(open) = store.chains.hold_open(&store.segments, at.segment(), life, moment) else { return Ok(None) };
        // SAFETY: the segment is open and its stripe locked: no other thread reads the header of an item without a
        // slot.
        unsafe { self.item.write_expiry(&store.segments.arena, open.expiry_byte, life.exact) };
        let (size, is_copy, keeps_token) = (header.size(), false, false);
        let new = NewItem { at, size, body_bytes: 0, token: None, is_copy, keeps_token };
        let outcome = store.publish(participant, (self.key(), self.hash), Condition::Always, new, open, moment)?;
        Ok((outcome != Outcome::Flushed).then(|| store.written(participant, Mode::Set, outcome)))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let segments = &self.store.segments;
        segments.unpin(self.item.at.segment(), segments.segment_bytes().into());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::chains::Seal;
    use crate::options::Options;

    const KEY: &[u8] = b"key";
    const LENGTH: usize = 5000;

    struct Subject {
        store: Arc<Store>,
        participant: Participant,
        now_ms: u64,
    }

    impl Subject {
        fn new(mib: u64) -> Self {
            let options = Options { memory_bytes: mib << 20, value_bytes_max: 1 << 16, ..Options::default() };
            let store = Arc::new(Store::new(options).unwrap());
            Self { participant: store.participate(), store, now_ms: 1000 }
        }

        fn try_allocate(&self, ttl: Ttl) -> Option<Allocation> {
            let target = (KEY, self.store.hash(KEY));
            self.store.allocate(&self.participant, target, LENGTH, ttl, self.now_ms).unwrap()
        }

        fn allocate(&self) -> Allocation {
            let mut allocation = self.try_allocate(Ttl::seconds(100)).expect("nothing is held");
            assert!(allocation.bytes().iter().all(|byte| *byte == 0));
            allocation.bytes_mut().fill(7);
            assert_eq!(self.get(), None);
            allocation
        }

        fn publish(&self, allocation: &mut Allocation) {
            allocation.publish(&self.participant, Ttl::seconds(100), self.now_ms).unwrap();
        }

        /// The location of the item, and its remaining life.
        fn get(&self) -> Option<(Location, Option<u64>)> {
            let item = self.store.peek(&self.participant, KEY, self.store.hash(KEY), self.now_ms)?;
            assert!(item.contiguous() == Some(&[7; LENGTH][..]), "the value is torn");
            Some((item.item_at().at, item.expiry_seconds().map(|seconds| seconds - self.now_ms / 1000)))
        }

        fn fill(&self, count: u32) {
            for number in 0..count {
                let key = number.to_le_bytes();
                let (hash, ttl) = (self.store.hash(&key), Ttl::seconds(100));
                let write =
                    Write { key: &key, hash, value: &[9; 900], flags: 0.into(), ttl, mode: Mode::Set, token: None };
                while self.store.write(&self.participant, &write, self.now_ms).is_err() {
                    self.store.evict(&self.participant, self.now_ms);
                }
            }
        }

        fn verify(self) {
            assert_eq!(self.store.segments.pinned_bytes(), 0);
            self.store.verify(&self.participant, self.now_ms);
        }
    }

    #[test]
    fn a_value_is_published_where_it_was_written() {
        let mut subject = Subject::new(4);
        let mut allocation = subject.allocate();
        subject.now_ms += 500;
        subject.fill(3);
        subject.publish(&mut allocation);
        assert_eq!(subject.get(), Some((allocation.item.at, Some(100))));
        drop(allocation);
        subject.verify();
    }

    #[test]
    fn values_are_copied_from_sealed_segments() {
        let subject = Subject::new(4);
        let mut allocation = subject.allocate();
        subject.store.seal_open(Seal::All);
        subject.publish(&mut allocation);
        let (at, left) = subject.get().expect("it was published");
        assert!(at != allocation.item.at && left == Some(100));
        drop(allocation);
        subject.verify();
    }

    #[test]
    fn its_life_begins_with_its_publication() {
        let mut subject = Subject::new(4);
        let mut allocation = subject.allocate();
        subject.now_ms += 1500;
        subject.publish(&mut allocation);
        assert_eq!(subject.get(), Some((allocation.item.at, Some(100))), "of which a second is over for its segment");
        let mut late = subject.try_allocate(Ttl::seconds(100)).unwrap();
        late.bytes_mut().fill(7);
        subject.now_ms += 300_000;
        assert_eq!(subject.get(), None, "it has expired");
        subject.publish(&mut late);
        assert_eq!(subject.get().expect("it was published").1, Some(100));
        drop((allocation, late));
        subject.verify();
    }

    #[test]
    fn exact_expiries_have_a_place_from_allocation() {
        let subject = Subject::new(4);
        let until = Ttl::Until(subject.now_ms / 1000 + 3601);
        for (ttl, is_in_place) in [(until, true), (Ttl::seconds(3601), false)] {
            let mut allocation = subject.try_allocate(ttl).unwrap();
            allocation.bytes_mut().fill(7);
            allocation.publish(&subject.participant, until, subject.now_ms).unwrap();
            let (at, left) = subject.get().expect("it was published");
            assert_eq!((at == allocation.item.at, left), (is_in_place, Some(3601)), "{ttl:?}");
        }
        subject.verify();
    }

    #[test]
    fn evictions_and_expiry_do_not_wait_for_it() {
        let mut subject = Subject::new(4);
        let mut allocation = subject.allocate();
        subject.fill(20_000);
        assert!(subject.store.stats().evictions > 10_000);
        assert!(allocation.bytes() == [7; LENGTH]);
        subject.now_ms += 1_000_000;
        while subject.store.maintain(&subject.participant, subject.now_ms) == crate::Progress::Working {}
        assert_eq!(subject.store.stats().items, 0);
        let state = subject.store.segments.header(allocation.item.at.segment()).state();
        assert_eq!(state, crate::segment::State::Retired, "its segment is empty, and kept for it");
        subject.publish(&mut allocation);
        assert!(subject.get().is_some());
        drop(allocation);
        subject.verify();
    }

    #[test]
    fn a_flush_before_publication_keeps_the_value() {
        let subject = Subject::new(4);
        let mut allocation = subject.allocate();
        subject.store.flush(subject.now_ms, 0);
        subject.publish(&mut allocation);
        assert!(subject.get().is_some());
        drop(allocation);
        subject.verify();
    }

    #[test]
    fn dropped_allocations_leave_their_key_unchanged() {
        let subject = Subject::new(4);
        let mut allocation = subject.allocate();
        subject.publish(&mut allocation);
        drop(allocation);
        let before = subject.get();
        subject.try_allocate(Ttl::seconds(100)).unwrap().bytes_mut().fill(8);
        assert_eq!(subject.get(), before);
        subject.verify();
    }

    #[test]
    fn allocations_hold_a_part_of_the_memory() {
        let subject = Subject::new(4);
        let mut held = Vec::new();
        while let Some(allocation) = subject.try_allocate(Ttl::seconds(100)) {
            held.push(allocation);
            assert!(held.len() < 1000);
            subject.store.seal_open(Seal::All);
        }
        assert!(subject.store.segments.pinned_bytes() <= 1 << 20);
        subject.fill(20_000);
        drop(held);
        assert!(subject.try_allocate(Ttl::Expired).is_none());
        subject.verify();
    }
}
