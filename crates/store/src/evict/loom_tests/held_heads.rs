//! Models of the eviction of a segment that holds the head of a long value, with a handle that is there or is made
//! meanwhile: the bytes of the handle stay, each segment returns once, and changes of the key are kept.

use super::{KEY, OTHER};
use crate::item::ItemAt;
use crate::loom_tests::{Client, model, store};
use crate::segment::{Location, SegmentId};
use crate::store::Store;
use loom::thread;
use std::sync::Arc;

const THIRD: &[u8] = b"t";

/// A handle of a long value: it pins the segments of the head and of the body. Bytes of the arena of a model cannot be
/// lent.
struct Held<'s> {
    store: &'s Store,
    head: ItemAt,
    body: SegmentId,
}

impl<'s> Held<'s> {
    fn new(client: &Client<'s>, key: &[u8]) -> Option<Self> {
        let store = client.store;
        let item = store.get(&client.participant, key, store.hash(key), client.now_ms)?;
        let head = item.item_at();
        // SAFETY: the pin of the hit protects the item.
        let body = unsafe { head.chained(&store.segments.arena) }.first_body;
        [head.at.segment(), body].into_iter().for_each(|segment| {
            store.segments.pin(segment, 64, u64::MAX).expect("no limit");
        });
        Some(Self { store, head, body })
    }

    fn is_whole(&self, digit: u8) -> bool {
        let (tail_at, tail) = self.head.tail();
        // SAFETY: the counts keep both segments; the cells check it.
        let pieces = unsafe {
            let arena = &self.store.segments.arena;
            [arena.slice(Location::new(self.body, 0), 64).to_vec(), arena.slice(tail_at, tail as usize).to_vec()]
        };
        pieces.concat() == [digit; 70]
    }

    fn release(self) {
        [self.head.at.segment(), self.body].into_iter().for_each(|segment| self.store.segments.unpin(segment, 64));
    }
}

/// Evicts the segment of a long value, which a handle may hold, beside `other`. Then all memory is used again.
fn against_an_eviction_of_a_head(is_held: bool, other: impl Fn(&Client<'_>) + Send + Sync + Clone + 'static) {
    model(1, move || {
        let store = store(8, 0);
        let client = Client::new(&store);
        client.set_long(KEY, b'1');
        client.seal();
        let held = is_held.then(|| Held::new(&client, KEY).expect("it is there"));
        let thread = {
            let (store, other) = (Arc::clone(&store), other.clone());
            thread::spawn(move || other(&Client::new(&store)))
        };
        // Nothing if the other thread has made and dropped a handle between two looks.
        store.drop_one(&client.participant, client.moment());
        store.segments.reclaim();
        // In the segments that were freed last.
        client.set_long(OTHER, b'2');
        thread.join().unwrap();
        if let Some(held) = held {
            // The index of a model holds two keys for certain.
            client.delete(KEY);
            store.segments.reclaim();
            client.set_long(THIRD, b'3');
            assert!(held.is_whole(b'1'));
            held.release();
        }
        store.segments.reclaim();
        assert_eq!((store.segments.pinned_bytes(), store.segments.retired_count()), (0, 0));
        assert_eq!(client.get_long(OTHER).as_deref(), Some(&[b'2'; 70][..]));
        client.verify();
    });
}

#[test]
fn a_handle_keeps_an_evicted_long_value() {
    against_an_eviction_of_a_head(false, |client| {
        let Some(held) = Held::new(client, KEY) else { return };
        client.store.segments.reclaim();
        assert!(held.is_whole(b'1'));
        held.release();
    });
}

#[test]
fn an_eviction_of_a_held_head_keeps_writes() {
    against_an_eviction_of_a_head(true, |client| {
        client.set(KEY, 2);
        // It may be evicted in its turn.
        assert!(client.get(KEY).is_none_or(|value| value == 2));
    });
}

#[test]
fn an_eviction_of_a_held_head_keeps_deletes() {
    against_an_eviction_of_a_head(true, |client| {
        client.delete(KEY);
        assert_eq!(client.get_long(KEY), None);
    });
}

#[test]
fn a_held_head_is_read_whole_or_missed() {
    against_an_eviction_of_a_head(true, |client| {
        assert!(client.get_long(KEY).is_none_or(|value| value == [b'1'; 70]));
        client.store.segments.reclaim();
    });
}
