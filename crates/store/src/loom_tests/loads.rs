//! Loads against changes of their key: an older value is never published.

use super::{Client, model, store};
use crate::store::Store;
use crate::{Mode, Stored};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

const KEY: &[u8] = b"k";

/// Loads the key from a database that another thread changes from 1 to 2, and then tells the cache by `change`.
fn load_beside(change: impl Fn(&Client<'_>) + Copy + Send + Sync + 'static) {
    model(1, move || {
        let shared: Arc<(Arc<Store>, AtomicU64)> = Arc::new((store(4, 0), AtomicU64::new(1)));
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            let (store, database) = &*other;
            database.store(2, Ordering::SeqCst);
            change(&Client::new(store));
        });
        let (store, database) = &*shared;
        let client = Client::new(store);
        let hash = store.hash(KEY);
        if let Some(ticket) = store.begin_load(KEY, hash, client.now_ms).expect("a key of one byte") {
            let loaded = database.load(Ordering::SeqCst);
            let stored = client.write(KEY, loaded, Mode::Load(ticket));
            store.end_load(hash, ticket);
            assert!(matches!(stored, Stored::Stored | Stored::NotStored));
        }
        writer.join().unwrap();
        assert_ne!(client.get(KEY), Some(1), "an older value stays");
        client.verify();
    });
}

#[test]
fn a_load_never_outlives_a_set() {
    load_beside(|client| client.set(KEY, 2));
}

#[test]
fn a_load_never_outlives_a_delete() {
    load_beside(|client| _ = client.delete(KEY));
}

#[test]
fn a_load_never_outlives_a_flush() {
    load_beside(|client| client.store.flush(client.now_ms, 0));
}
