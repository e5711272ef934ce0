//! Epoch protection: memory that a pinned reader may read is not overwritten. A cell per byte detects it.

use super::{Client, model, store};
use crate::chains::Seal;
use crate::epoch::{Domain, Participant};
use crate::segment::{Location, Purpose, SegmentId, Segments};
use crate::sync::{AtomicU64, Ordering};
use loom::thread::{self, JoinHandle};
use std::sync::Arc;

/// Three segments and one slot, which points at a byte in the first.
pub(super) struct OneSlot {
    pub domain: Arc<Domain>,
    pub segments: Segments,
    pub slot: AtomicU64,
}

impl OneSlot {
    pub fn new() -> Arc<Self> {
        let domain = Domain::new();
        let segments = Segments::new(3, 3, 64, 1, Arc::clone(&domain)).expect("a model needs no mapping");
        let this = Self { domain, segments, slot: AtomicU64::new(0) };
        this.turn_to_new(1);
        Arc::new(this)
    }

    /// Runs `part` on a thread with its own participant.
    pub fn spawn(self: &Arc<Self>, part: impl FnOnce(&Self, &Participant) + 'static) -> JoinHandle<()> {
        let shared = Arc::clone(self);
        thread::spawn(move || part(&shared, &shared.domain.participate()))
    }

    /// Takes a segment, writes a byte, and points the slot at it. Returns the former location.
    pub fn turn_to_new(&self, byte: u8) -> Option<SegmentId> {
        let segment = self.segments.take(Purpose::Merge).expect("the model has free memory");
        let at = Location::new(segment, 0);
        // SAFETY: the segment was just taken.
        unsafe { self.segments.arena.write(at, &[byte]) };
        let before = self.slot.swap(at.bits(), Ordering::Release);
        (before != 0).then(|| Location::from_bits(before).segment())
    }

    /// Replaces the byte twice, each time in the first free segment.
    pub fn replace_and_reuse(&self) {
        for byte in [2, 3] {
            let old = self.turn_to_new(byte).expect("the slot is never empty");
            self.segments.retire(old);
            self.segments.reclaim();
        }
    }

    pub fn look(&self) -> (Location, u8) {
        let at = Location::from_bits(self.slot.load(Ordering::Acquire));
        // SAFETY: the caller is pinned; the cells check it.
        (at, unsafe { self.segments.arena.slice(at, 1) }[0])
    }
}

#[test]
fn a_pinned_segment_is_not_reused() {
    model(5, || {
        let shared = OneSlot::new();
        let reader = shared.spawn(|shared, participant| {
            let _pin = participant.pin();
            let (at, byte) = shared.look();
            // SAFETY: still pinned.
            let again = unsafe { shared.segments.arena.slice(at, 1) }[0];
            assert_eq!(byte, again);
        });
        shared.replace_and_reuse();
        reader.join().unwrap();
        assert_eq!(shared.look().1, 3);
    });
}

/// A pin also shows that the former pin of the thread has ended.
#[test]
fn a_second_pin_does_not_hide_the_first() {
    model(3, || {
        let shared = OneSlot::new();
        let reader = shared.spawn(|shared, participant| {
            for _ in 0..2 {
                let _pin = participant.pin();
                shared.look();
            }
        });
        shared.replace_and_reuse();
        reader.join().unwrap();
    });
}

/// One thread retires and another reclaims: a reader may come between the ticket and the read of the cells.
#[test]
fn a_reader_between_a_retirement_and_a_reclaim() {
    model(2, || {
        let shared = OneSlot::new();
        let reader = shared.spawn(|shared, participant| {
            let _pin = participant.pin();
            shared.look();
        });
        let reclaimer = shared.spawn(|shared, _| {
            shared.segments.reclaim();
        });
        let old = shared.turn_to_new(2).expect("the slot is never empty");
        shared.segments.retire(old);
        if let Some(segment) = shared.segments.take(Purpose::Write) {
            // SAFETY: the segment was just taken.
            unsafe { shared.segments.arena.write(Location::new(segment, 0), &[9]) };
        }
        reader.join().unwrap();
        reclaimer.join().unwrap();
        shared.segments.reclaim();
        assert_eq!(shared.segments.retired_count(), 0);
    });
}

/// Through the store: a get while its key is overwritten, its segment emptied, freed and written again.
#[test]
fn a_hit_outlives_the_reuse_of_its_segment() {
    model(2, || {
        let store = store(3, 0);
        let client = Client::new(&store);
        client.set(b"k", 1);
        let moment = store.moment(client.now_ms);
        store.seal_open(Seal::All);
        let reader = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let seen = Client::new(&store).get(b"k");
                assert!(matches!(seen, Some(1 | 2)), "{seen:?}");
            })
        };
        client.set(b"k", 2);
        store.drop_one(&client.participant, moment);
        store.segments.reclaim();
        client.set(b"other", 3);
        store.seal_open(Seal::All);
        if store.segments.free_for_writers() > 0 {
            client.set(b"other", 4);
        }
        reader.join().unwrap();
        client.verify();
    });
}

/// Two threads reclaim: one shares the fence of the other, and each uses the segments that it gets.
#[test]
fn a_shared_fence_covers_earlier_retirements() {
    model(3, || {
        let shared = OneSlot::new();
        let reader = shared.spawn(|shared, participant| {
            let _pin = participant.pin();
            shared.look();
        });
        let reclaim_and_use = |shared: &OneSlot| {
            shared.segments.reclaim();
            if let Some(segment) = shared.segments.take(Purpose::Write) {
                // SAFETY: the segment was just taken.
                unsafe { shared.segments.arena.write(Location::new(segment, 0), &[9]) };
            }
        };
        let reclaimer = shared.spawn(move |shared, _| reclaim_and_use(shared));
        let old = shared.turn_to_new(2).expect("the slot is never empty");
        shared.segments.retire(old);
        reclaim_and_use(&shared);
        reader.join().unwrap();
        reclaimer.join().unwrap();
        shared.segments.reclaim();
        assert_eq!(shared.segments.retired_count(), 0);
    });
}

/// Two threads retire and reclaim while a reader reads.
#[test]
fn two_who_retire_at_once_under_a_reader() {
    model(2, || {
        let shared = OneSlot::new();
        let reader = shared.spawn(|shared, participant| {
            let _pin = participant.pin();
            let (at, byte) = shared.look();
            // SAFETY: still pinned.
            assert_eq!(unsafe { shared.segments.arena.slice(at, 1) }[0], byte);
        });
        let replace = |shared: &OneSlot, byte| {
            if let Some(segment) = shared.segments.take(Purpose::Merge) {
                let at = Location::new(segment, 0);
                // SAFETY: the segment was just taken.
                unsafe { shared.segments.arena.write(at, &[byte]) };
                let before = shared.slot.swap(at.bits(), Ordering::AcqRel);
                shared.segments.retire(Location::from_bits(before).segment());
            }
            shared.segments.reclaim();
        };
        let other = shared.spawn(move |shared, _| {
            replace(shared, 4);
            replace(shared, 5);
        });
        replace(&shared, 6);
        replace(&shared, 7);
        reader.join().unwrap();
        other.join().unwrap();
        shared.segments.reclaim();
        assert_eq!(shared.segments.retired_count(), 0);
    });
}

/// A segment retired after the fence waits for the next fence, though a reader has pinned since.
#[test]
fn a_later_pin_is_no_fence() {
    model(2, || {
        let shared = OneSlot::new();
        let unseen = shared.segments.take(Purpose::Merge).expect("three are free");
        shared.segments.retire(unseen);
        let reader = shared.spawn(|shared, participant| {
            let _pin = participant.pin();
            shared.look();
        });
        let retirer = shared.spawn(|shared, participant| {
            if let Some(segment) = shared.segments.take(Purpose::Merge) {
                let at = Location::new(segment, 0);
                // SAFETY: the segment was just taken.
                unsafe { shared.segments.arena.write(at, &[2]) };
                let before = shared.slot.swap(at.bits(), Ordering::Release);
                shared.segments.retire(Location::from_bits(before).segment());
            }
            std::mem::forget(participant.pin());
        });
        shared.segments.reclaim();
        while let Some(segment) = shared.segments.take(Purpose::Merge) {
            // SAFETY: the segment was just taken.
            unsafe { shared.segments.arena.write(Location::new(segment, 0), &[9]) };
        }
        reader.join().unwrap();
        retirer.join().unwrap();
    });
}
