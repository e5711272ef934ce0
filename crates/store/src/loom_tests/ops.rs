//! Operations of the store against each other.

use super::{Client, Did, OperationLog, model, store};
use crate::chains::Seal;
use crate::sync::{AtomicBool, Ordering};
use crate::{Mode, Stored};
use loom::thread;
use std::sync::Arc;

const KEY: &[u8] = b"k";

/// A set that overwrites, against a get: the old value or the new one, and the new one after its completion.
#[test]
fn an_overwritten_key_is_never_missed() {
    model(2, || {
        let store = store(3, 0);
        Client::new(&store).set(KEY, 1);
        let done = Arc::new(AtomicBool::new(false));
        let writer = {
            let (store, done) = (Arc::clone(&store), Arc::clone(&done));
            thread::spawn(move || {
                Client::new(&store).set(KEY, 2);
                done.store(true, Ordering::Release);
            })
        };
        let client = Client::new(&store);
        let is_done = done.load(Ordering::Acquire);
        let seen = client.get(KEY).expect("the key is always there");
        assert!(seen == 2 || seen == 1 && !is_done, "{seen} after completion: {is_done}");
        writer.join().unwrap();
        assert_eq!(client.get(KEY), Some(2));
        client.verify();
    });
}

/// Delete, get and a new set: no hit after the delete, no resurrection of the deleted value.
#[test]
fn a_deleted_key_is_absent_until_set() {
    model(2, || {
        let store = store(3, 0);
        let log = OperationLog::default();
        Client::new(&store).set(KEY, 1);
        let deleter = {
            let (store, log) = (Arc::clone(&store), log.clone());
            thread::spawn(move || {
                let client = Client::new(&store);
                log.note(0, Did::Delete(client.delete(KEY)));
                log.note(0, Did::Get(client.get(KEY)));
            })
        };
        let client = Client::new(&store);
        client.set(KEY, 2);
        log.note(1, Did::Set(2));
        deleter.join().unwrap();
        log.explain(Some(1), client.get(KEY));
        client.verify();
    });
}

/// Two adds of an absent key: one stores.
#[test]
fn one_of_two_adds_stores() {
    model(1, || {
        let store = store(3, 0);
        let log = OperationLog::default();
        let adder = |thread, value| {
            let (store, log) = (Arc::clone(&store), log.clone());
            thread::spawn(move || {
                let stored = Client::new(&store).write(KEY, value, Mode::Add) == Stored::Stored;
                log.note(thread, Did::Insert(value, stored));
            })
        };
        let other = adder(0, 1);
        let client = Client::new(&store);
        log.note(1, Did::Insert(2, client.write(KEY, 2, Mode::Add) == Stored::Stored));
        other.join().unwrap();
        log.explain(None, client.get(KEY));
        client.verify();
    });
}

/// Two sets of different keys share a stripe: their items do not overlap.
#[test]
fn two_writers_share_a_stripe() {
    model(2, || {
        let store = store(3, 1);
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || Client::new(&store).set(b"other", 7))
        };
        let client = Client::new(&store);
        client.set(KEY, 1);
        writer.join().unwrap();
        assert_eq!((client.get(KEY), client.get(b"other")), (Some(1), Some(7)));
        client.verify();
    });
}

/// Maintenance seals the open segment while a writer appends to it.
#[test]
fn a_segment_is_sealed_between_two_writes() {
    model(2, || {
        let store = store(4, 1);
        let client = Client::new(&store);
        client.set(b"other", 7);
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || Client::new(&store).set(KEY, 1))
        };
        store.seal_open(Seal::All);
        writer.join().unwrap();
        assert_eq!((client.get(KEY), client.get(b"other")), (Some(1), Some(7)));
        client.verify();
    });
}

/// A flush, and after it perhaps a write by the same thread, against an operation of another one.
fn against_a_flush(later: Option<u64>, operation: impl Fn(&Client<'_>, &OperationLog) + Send + Sync + Clone + 'static) {
    model(2, move || {
        let store = store(5, 0);
        let log = OperationLog::default();
        let client = Client::new(&store);
        client.set(KEY, 1);
        let writer = {
            let (store, log, operation) = (Arc::clone(&store), log.clone(), operation.clone());
            thread::spawn(move || operation(&Client::new(&store), &log))
        };
        store.flush(client.now_ms, 0);
        log.note(1, Did::Flush);
        if let Some(value) = later {
            client.set(KEY, value);
            log.note(1, Did::Set(value));
        }
        writer.join().unwrap();
        log.explain(Some(1), client.get(KEY));
        client.verify();
    });
}

#[test]
fn a_flushed_set_hides_no_later_one() {
    against_a_flush(Some(5), |client, log| {
        client.set(KEY, 2);
        log.note(0, Did::Set(2));
    });
}

#[test]
fn an_add_beside_a_flush_is_linearizable() {
    against_a_flush(None, |client, log| {
        log.note(0, Did::Insert(2, client.write(KEY, 2, Mode::Add) == Stored::Stored));
    });
}

/// A long value is searched only after it is written.
#[test]
fn a_long_add_beside_a_flush_is_linearizable() {
    against_a_flush(None, |client, log| {
        let stored = client.write_wide(KEY, 2, 70, Mode::Add) == Stored::Stored;
        log.note(0, Did::Insert(2, stored));
    });
}

#[test]
fn a_get_sees_nothing_of_before_a_flush() {
    against_a_flush(None, |client, log| {
        log.note(0, Did::Get(client.get(KEY)));
        log.note(0, Did::Get(client.get(KEY)));
    });
}

#[test]
fn an_increment_does_not_outlive_a_flush() {
    against_a_flush(None, |client, log| log.note(0, Did::Add(3, client.add_to(KEY, 3))));
}

/// Two threads reach the time of a delayed flush: it is executed once, and later writes stay.
#[test]
fn a_delayed_flush_happens_once() {
    model(2, || {
        let store = store(4, 0);
        let mut client = Client::new(&store);
        client.set(KEY, 1);
        store.flush(client.now_ms, 500);
        assert_eq!(client.get(KEY), Some(1), "it is not due");
        client.now_ms = 2000;
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let client = Client { now_ms: 2000, ..Client::new(&store) };
                assert_eq!(client.get(KEY), None);
            })
        };
        client.set(b"other", 2);
        assert_eq!(client.get(b"other"), Some(2));
        other.join().unwrap();
        assert_eq!((client.get(KEY), client.get(b"other")), (None, Some(2)));
        assert_eq!(store.generation.load(Ordering::Relaxed), 1);
        client.verify();
    });
}

/// An increment that needs a wider item, against a decrement in place.
#[test]
fn a_number_that_grows_loses_no_decrement() {
    model(2, || {
        let store = store(4, 0);
        let log = OperationLog::default();
        let client = Client::new(&store);
        client.set(KEY, 8);
        assert_eq!(client.add_to(KEY, 1), Some(9), "the item is numeric now");
        let decrementer = {
            let (store, log) = (Arc::clone(&store), log.clone());
            thread::spawn(move || {
                let less = 5_u64.wrapping_neg();
                log.note(0, Did::Add(less, Client::new(&store).add_to(KEY, less)));
            })
        };
        log.note(1, Did::Add(1, client.add_to(KEY, 1)));
        decrementer.join().unwrap();
        log.explain(Some(9), client.get(KEY));
        client.verify();
    });
}

/// A store with free memory whose key is the numeric item 2.
fn store_with_two() -> Arc<crate::store::Store> {
    let store = store(5, 0);
    let client = Client::new(&store);
    client.set(KEY, 1);
    assert_eq!(client.add_to(KEY, 1), Some(2));
    store
}

/// The copy made by a touch has the present number when it replaces the item.
#[test]
fn a_touch_loses_no_increment() {
    model(2, || {
        let store = store_with_two();
        let adder = {
            let store = Arc::clone(&store);
            thread::spawn(move || Client::new(&store).add_to(KEY, 3))
        };
        let client = Client::new(&store);
        assert!(client.touch(KEY, 1));
        assert_eq!((adder.join().unwrap(), client.get(KEY)), (Some(5), Some(5)));
        client.verify();
    });
}

/// The result of an append to a number is made from the number that it replaces.
#[test]
fn an_append_overwrites_no_increment() {
    model(2, || {
        let store = store_with_two();
        let adder = {
            let store = Arc::clone(&store);
            thread::spawn(move || Client::new(&store).add_to(KEY, 3))
        };
        let client = Client::new(&store);
        assert_eq!(client.write(KEY, 0, Mode::Append), Stored::Stored);
        match adder.join().unwrap() {
            Some(5) => assert_eq!(client.get(KEY), Some(50), "the increment came first"),
            Some(23) => assert_eq!(client.get(KEY), Some(23), "the append came first"),
            number => panic!("{number:?}"),
        }
        client.verify();
    });
}
