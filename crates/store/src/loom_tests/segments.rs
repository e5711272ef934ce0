//! The free stack, and the list of dead segments.

use super::{Client, model, store};
use crate::chains::Seal;
use crate::epoch::Domain;
use crate::frames::{FRAME_BYTES, Frames};
use crate::mapping::Pages;
use crate::segment::{Location, Purpose, Segments, State};
use crate::sync::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

/// A writer takes the topmost segment while it is to leave the budget: one of the two gets it.
#[test]
fn a_taken_segment_is_not_dismissed() {
    model(3, || {
        let segments = Segments::new(3, 3, 64, 1, Domain::new()).expect("a model needs no mapping");
        let all: Vec<_> = (0..3).map(|_| segments.take(Purpose::Merge).expect("three are free")).collect();
        for &segment in &all {
            segments.retire(segment);
        }
        assert_eq!(segments.reclaim().freed, 3, "the topmost is on top of the stack now");
        let segments = Arc::new(segments);
        let taker = {
            let segments = Arc::clone(&segments);
            thread::spawn(move || segments.take(Purpose::Write))
        };
        let dismissed = segments.dismiss_top();
        let taken = taker.join().unwrap().expect("two are free for writers");
        assert_eq!(segments.header(taken).state(), State::Open);
        assert_eq!(dismissed, taken != all[2], "the topmost was free, or it was taken");
        assert_eq!(segments.free_list().len(), if dismissed { 1 } else { 2 });
    });
}

/// The last item of a segment goes while the segment is sealed: one of the two lists it.
#[test]
fn a_segment_dying_while_sealed_is_listed() {
    model(3, || {
        let store = store(3, 0);
        let client = Client::new(&store);
        client.set(b"k", 1);
        let deleter = {
            let store = Arc::clone(&store);
            thread::spawn(move || assert!(Client::new(&store).delete(b"k")))
        };
        assert_eq!(store.seal_open(Seal::All), 1);
        deleter.join().unwrap();
        let dead = store.segments.take_dead().expect("nothing lives in it");
        assert_eq!((store.segments.header(dead).state(), store.segments.header(dead).live_items()), (State::Sealed, 0));
        assert_eq!(store.segments.take_dead(), None, "it is listed once");
        client.verify();
    });
}

/// A segment listed while others are taken is taken. A segment that is taken while it is listed again is examined after
/// that.
#[test]
fn a_listed_dead_segment_is_taken() {
    model(3, || {
        let segments = Arc::new(Segments::new(3, 3, 64, 1, Domain::new()).expect("a model needs no mapping"));
        let [one, other] = [(); 2].map(|()| segments.take(Purpose::Merge).expect("three are free"));
        segments.header(one).add_live(8, 0);
        segments.note_dead(one);
        let lister = {
            let segments = Arc::clone(&segments);
            thread::spawn(move || {
                segments.header(one).remove_live(8, 0);
                segments.note_dead(one);
                segments.note_dead(other);
            })
        };
        let look = || segments.take_dead().map(|segment| (segment, segments.header(segment).live_items()));
        let mut found: Vec<_> = std::iter::from_fn(look).collect();
        lister.join().unwrap();
        found.extend(std::iter::from_fn(look));
        assert!(found.contains(&(one, 0)) && found.contains(&(other, 0)), "{found:?}");
    });
}

/// Two threads count the expired items of a segment, one with an earlier time: items that the other counted beyond that
/// are counted again, or stay counted.
#[test]
fn concurrent_counts_miss_no_expired_item() {
    model(3, || {
        let segments = Arc::new(Segments::new(3, 3, 64, 1, Domain::new()).expect("a model needs no mapping"));
        let segment = segments.take(Purpose::Merge).expect("three are free");
        // Items of 8 bytes, which expire at 10, 20 and 30.
        (1..=3).for_each(|item| segments.header(segment).append(8 * item, Some(u64::from(10 * item))));
        let later = {
            let segments = Arc::clone(&segments);
            thread::spawn(move || segments.header(segment).note_expired(16, 30))
        };
        segments.header(segment).note_expired(8, 20);
        later.join().unwrap();
        let header = segments.header(segment);
        let (counted, next) = (header.expired_written_bytes(), header.next_expiry_seconds());
        let before_next = [10, 20, 30].into_iter().filter(|expiry| *expiry < next).count() as u64;
        assert!(counted >= 8 * before_next, "{counted} bytes before {next}");
    });
}

/// A frame goes from one store to another while a reader of the first one may still access it. The reader reads only
/// bytes of the first store, and the second one writes afterwards. Loom reports a read and a write that nothing orders.
#[test]
fn frames_change_owner_after_their_readers() {
    model(3, || {
        let frames = Frames::reserve(2 * FRAME_BYTES).expect("a model needs no mapping");
        let domain = Domain::new();
        let segments = |limit| {
            let frames = Arc::clone(&frames);
            let domain = Arc::clone(&domain);
            let segments = Segments::in_frames(frames, 4, limit, 64, 1, domain, Pages::Huge);
            Arc::new(segments.expect("a model needs no mapping"))
        };
        let (giver, taker) = (segments(3), segments(0));
        // The third one is alone in its frame, and written.
        let all: Vec<_> = (0..3).map(|_| giver.take(Purpose::Merge).expect("three are free")).collect();
        all[..2].iter().for_each(|segment| giver.retire(*segment));
        assert_eq!(giver.reclaim().freed, 2);
        let at = Location::new(all[2], 0);
        // SAFETY: no other thread knows the segment.
        unsafe { giver.arena.write(at, &[7]) };
        let slot = Arc::new(AtomicU64::new(at.bits()));
        let reader = {
            let (domain, giver, slot) = (Arc::clone(&domain), Arc::clone(&giver), Arc::clone(&slot));
            thread::spawn(move || {
                let participant = domain.participate();
                let _pin = participant.pin();
                let bits = slot.load(Ordering::Acquire);
                if bits != 0 {
                    // SAFETY: the slot was seen under the pin.
                    assert_eq!(unsafe { giver.arena.slice(Location::from_bits(bits), 1) }, [7]);
                }
            })
        };
        let writer = {
            let taker = Arc::clone(&taker);
            thread::spawn(move || {
                if taker.admit(1) == 1 {
                    let segment = taker.take(Purpose::Merge).expect("it is free");
                    // SAFETY: the segment is this thread's.
                    unsafe { taker.arena.write(Location::new(segment, 0), &[9]) };
                }
                taker.limit()
            })
        };
        slot.store(0, Ordering::Release);
        giver.retire(all[2]);
        giver.reclaim();
        let has_left = giver.dismiss_top();
        let taken = writer.join().unwrap();
        reader.join().unwrap();
        assert!(has_left || taken == 0, "the frame was free, or nobody took it");
        giver.verify_frames();
        taker.verify_frames();
    });
}
