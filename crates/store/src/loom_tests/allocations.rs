//! A value that is written in its segment, against maintenance.

use super::{Client, model, store};
use crate::Ttl;
use crate::chains::Seal;
use crate::segment::Location;
use loom::thread;
use std::sync::Arc;

const KEY: &[u8] = b"k";
const OTHER: &[u8] = b"o";

/// The segment is sealed, and maybe emptied and reused, while the value is written and published: it is found as it was
/// written, or was evicted after its publication.
fn against(preemptions: usize, evicts: bool, maintain: impl Fn(&Client<'_>) + Send + Sync + Clone + 'static) {
    model(preemptions, move || {
        let store = store(5, 0);
        let client = Client::new(&store);
        let target = (KEY, store.hash(KEY));
        let allocated = store.allocate(&client.participant, target, 1, Ttl::Never, client.now_ms);
        let mut allocation = allocated.expect("there is free memory").expect("nothing is held");
        client.set(OTHER, 1);
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let client = Client::new(&store);
                // SAFETY: the allocation owns its value; the cells check it.
                unsafe { store.segments.arena.write(allocation.value_at(), b"7") };
                allocation.publish(&client.participant, Ttl::Never, client.now_ms).expect("there is free memory");
                drop(allocation);
            })
        };
        maintain(&client);
        writer.join().unwrap();
        let found = client.get(KEY);
        assert!(found == Some(7) || evicts && found.is_none(), "{found:?}");
        store.segments.reclaim();
        assert_eq!(store.segments.pinned_bytes(), 0);
        client.verify();
    });
}

#[test]
fn a_publication_in_place_races_with_a_seal() {
    against(3, false, |client| {
        client.store.seal_open(Seal::All);
        assert_eq!(client.get(OTHER), Some(1));
    });
}

#[test]
fn an_evicted_segment_keeps_no_published_value() {
    against(2, true, |client| {
        client.store.seal_open(Seal::All);
        client.store.drop_one(&client.participant, client.store.moment(client.now_ms));
        client.store.segments.reclaim();
        client.set(OTHER, 2);
        assert_eq!(client.get(OTHER), Some(2));
    });
}

#[test]
fn concurrent_writes_of_one_key_are_ordered() {
    model(2, || {
        let store = store(5, 0);
        let client = Client::new(&store);
        let target = (KEY, store.hash(KEY));
        let allocated = store.allocate(&client.participant, target, 1, Ttl::Never, client.now_ms);
        let mut allocation = allocated.expect("there is free memory").expect("nothing is held");
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || Client::new(&store).set(KEY, 2))
        };
        // SAFETY: as above.
        unsafe { store.segments.arena.write(allocation.value_at(), b"7") };
        allocation.publish(&client.participant, Ttl::Never, client.now_ms).expect("there is free memory");
        writer.join().unwrap();
        drop(allocation);
        assert!(matches!(client.get(KEY), Some(2 | 7)));
        client.verify();
    });
}

impl crate::Allocation {
    fn value_at(&self) -> Location {
        self.item_at().value_at()
    }
}
