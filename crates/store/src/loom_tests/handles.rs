//! A hit becomes a handle that outlives its pin.

use super::model;
use super::readers::OneSlot;

/// `Handle` borrows bytes, which loom's arena cannot lend. The models change the segments as a handle does.
#[test]
fn a_segment_with_a_handle_is_not_reused() {
    model(5, || {
        let shared = OneSlot::new();
        let reader = shared.spawn(|shared, participant| {
            let pin = participant.pin();
            let (at, byte) = shared.look();
            shared.segments.pin(at.segment(), 64, u64::MAX).expect("no limit");
            drop(pin);
            // SAFETY: the handle protects the segment; the cells check it.
            let again = unsafe { shared.segments.arena.slice(at, 1) }[0];
            assert_eq!(byte, again);
            shared.segments.unpin(at.segment(), 64);
        });
        shared.replace_and_reuse();
        reader.join().unwrap();
        shared.segments.reclaim();
        assert_eq!((shared.segments.pinned_bytes(), shared.segments.retired_count()), (0, 0));
    });
}

/// Two handles on a segment and a limit that one of them exceeds: the count ends at zero.
#[test]
fn pinned_bytes_end_at_zero() {
    model(3, || {
        let shared = OneSlot::new();
        let holder = |limit| {
            shared.spawn(move |shared, participant| {
                let pin = participant.pin();
                let (at, _) = shared.look();
                let held = shared.segments.pin(at.segment(), 64, limit).is_ok();
                drop(pin);
                if held {
                    shared.segments.unpin(at.segment(), 64);
                }
            })
        };
        let (one, two) = (holder(10), holder(100));
        one.join().unwrap();
        two.join().unwrap();
        assert_eq!(shared.segments.pinned_bytes(), 0);
    });
}
