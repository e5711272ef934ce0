//! Changes beside a closer: one in progress is waited for, a later one is refused.

use super::model;
use crate::epoch::Domain;
use crate::sync::{AtomicU64, Ordering, yield_now};
use loom::thread;
use std::sync::Arc;

#[test]
fn changes_are_seen_at_close_or_refused() {
    model(3, || {
        let (domain, word) = (Domain::new(), Arc::new(AtomicU64::new(0)));
        let writer = thread::spawn({
            let (domain, word) = (Arc::clone(&domain), Arc::clone(&word));
            move || {
                let participant = domain.participate();
                let change = participant.begin_change();
                change.iter().for_each(|_| word.store(1, Ordering::Relaxed));
                change.is_some()
            }
        });
        domain.refuse_changes();
        while domain.has_changes() {
            yield_now();
        }
        let saved = word.load(Ordering::Relaxed) == 1;
        assert_eq!(writer.join().unwrap(), saved);
    });
}
