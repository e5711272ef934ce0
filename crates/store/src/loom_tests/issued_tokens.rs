//! CAS tokens: no write with a token succeeds on a value that has changed since the token was issued.

use super::index::{Keys, full_pair, splitting_hashes};
use super::{Client, model, store};
use crate::index::{Placement, SplitOutcome};
use crate::store::Store;
use crate::{Mode, Stored};
use loom::thread::{self, JoinHandle};
use std::sync::Arc;

const KEY: &[u8] = b"k";

/// Runs `part` on a thread that shares `shared`.
fn spawn<S: 'static, T: 'static>(shared: &Arc<S>, part: impl FnOnce(&S) -> T + 'static) -> JoinHandle<T> {
    let shared = Arc::clone(shared);
    thread::spawn(move || part(&shared))
}

/// A store whose key has the value 1.
fn store_with_one() -> Arc<Store> {
    let store = store(3, 0);
    Client::new(&store).set(KEY, 1);
    store
}

/// The comparison of a cas under the locks with the token of a `gets`. Equal tokens mean the same item.
fn assert_token_holds(keys: &Keys, number: usize) {
    let (_, offset, token) = keys.find(number).expect("the key is always there");
    let (now, token_now) = keys.held(number);
    assert!(token != token_now || offset == now, "token {token} of item {offset} fits item {now}");
}

/// The key is changed, then displaced to a bucket whose sequence is one behind the token.
#[test]
fn a_token_does_not_fit_after_a_displacement() {
    model(2, || {
        let keys = full_pair((0, 2));
        // The token is one more than the sequence of bucket 2 now: incrementing only that sequence would repeat it.
        keys.put(0, 0);
        let keys = Arc::new(keys);
        let writer = spawn(&keys, move |keys| {
            keys.put(0, 8);
            assert_eq!(keys.put(4, 0), Placement::Displaced);
        });
        assert_token_holds(&keys, 0);
        writer.join().unwrap();
    });
}

/// The key is changed, then moved by a split to a bucket that never had a sequence.
#[test]
fn a_token_does_not_fit_after_a_split() {
    model(2, || {
        let keys = Keys::with_hashes(splitting_hashes(1));
        keys.put(0, 0);
        let keys = Arc::new(keys);
        let writer = spawn(&keys, move |keys| {
            keys.put(0, 8);
            assert_eq!(keys.grow(), SplitOutcome::Split);
        });
        assert_token_holds(&keys, 0);
        writer.join().unwrap();
    });
}

/// The key is deleted and stored again, into its other bucket.
#[test]
fn a_token_is_invalid_after_a_second_set() {
    model(2, || {
        let keys = Keys::new(&[(0, 1), (0, 0), (1, 1)]);
        keys.put(0, 0);
        let (_, offset, token) = keys.find(0).expect("it was put");
        let keys = Arc::new(keys);
        let writer = spawn(&keys, move |keys| {
            keys.remove(0);
            keys.put(1, 0);
            keys.put(0, 8);
        });
        if let Some((now, token_now)) = keys.held_if_there(0) {
            assert!(token != token_now || offset == now, "token {token} of item {offset} fits item {now}");
        }
        writer.join().unwrap();
    });
}

/// One of two writes with one token succeeds.
#[test]
fn a_token_is_good_for_one_write() {
    model(2, || {
        let store = store_with_one();
        let client = Client::new(&store);
        let (_, token) = client.gets(KEY).expect("it was set");
        let other = spawn(&store, move |store| Client::new(store).write(KEY, 2, Mode::Cas(token)));
        let mine = client.write(KEY, 3, Mode::Cas(token));
        let theirs = other.join().unwrap();
        match client.get(KEY) {
            Some(3) => assert_eq!((mine, theirs), (Stored::Stored, Stored::Exists)),
            Some(2) => assert_eq!((mine, theirs), (Stored::Exists, Stored::Stored)),
            value => panic!("{value:?} after {mine:?} and {theirs:?}"),
        }
        client.verify();
    });
}

/// gets and cas against a set: a success on the old value comes before the set.
#[test]
fn a_cas_overwrites_no_set() {
    model(2, || {
        let store = store_with_one();
        let client = Client::new(&store);
        let setter = spawn(&store, move |store| Client::new(store).set(KEY, 10));
        let (seen, token) = client.gets(KEY).expect("the key is always there");
        let stored = client.write(KEY, seen + 1, Mode::Cas(token));
        setter.join().unwrap();
        let expected = if stored == Stored::Stored && seen == 10 { 11 } else { 10 };
        assert_eq!(client.get(KEY), Some(expected), "{seen} was seen, the cas was {stored:?}");
        client.verify();
    });
}

/// gets and cas against an incr in place.
#[test]
fn a_cas_overwrites_no_increment() {
    model(2, || {
        let store = store_with_one();
        let client = Client::new(&store);
        assert_eq!(client.add_to(KEY, 1), Some(2), "the item is numeric now");
        let adder = spawn(&store, move |store| Client::new(store).add_to(KEY, 3));
        let (seen, token) = client.gets(KEY).expect("the key is always there");
        let stored = client.write(KEY, seen + 100, Mode::Cas(token)) == Stored::Stored;
        assert_eq!(adder.join().unwrap(), Some(if stored && seen == 2 { 105 } else { 5 }));
        assert_eq!(client.get(KEY), Some(if stored { 105 } else { 5 }), "{seen} was seen");
        client.verify();
    });
}
