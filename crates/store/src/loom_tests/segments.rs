//! The free stack.

use super::model;
use crate::epoch::Domain;
use crate::segment::{Purpose, Segments, State};
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
