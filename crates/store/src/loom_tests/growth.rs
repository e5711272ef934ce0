//! Turns at splitting: a writer splits or waits once, and keys are counted until a bucket was split for them.

use super::index::{Keys, contractible, full_until_split};
use super::{Client, model, store};
use crate::index::{ContractOutcome, SplitOutcome};
use loom::thread;
use std::sync::Arc;

/// As `Store::grow_if_crowded` in a crowded index, with a split for each key.
fn split_or_wait(keys: &Keys) {
    keys.index.turns.count_key();
    let Some(turn) = keys.index.turns.try_take() else {
        keys.index.turns.wait_for_taken();
        return;
    };
    let mut turn = Some(turn);
    while turn.as_ref().is_some_and(|turn| turn.has_keys()) {
        let grown = keys.index.split_one(keys, || {
            turn = turn.take().filter(|turn| {
                turn.discount(1);
                turn.has_keys()
            });
        });
        assert_ne!(grown, SplitOutcome::Unpaid);
    }
}

/// The number of keys for which no bucket was split.
fn counted(keys: &Keys) -> usize {
    let turn = keys.index.turns.try_take().expect("no thread has a turn");
    let mut counted = 0;
    while turn.has_keys() {
        turn.discount(1);
        counted += 1;
    }
    counted
}

#[test]
fn a_wait_ends_after_the_turns_steps() {
    model(4, || {
        let keys = Arc::new(full_until_split());
        let grow = |keys: &Keys| {
            split_or_wait(keys);
            assert!(keys.index.length() > 4, "the step of this turn, or of the one before, is seen");
        };
        let other = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || grow(&keys))
        };
        grow(&keys);
        other.join().unwrap();
        assert_eq!(keys.index.length() - 4 + counted(&keys), 2, "a split for each key");
        assert!(keys.index.turns.waits() <= 2);
        keys.verify(&[0, 1, 2, 3]);
    });
}

/// A key without a slot holds its turn until it has one. Another writer waits for that, or the key for the other one.
#[test]
fn a_queued_key_gets_its_slot() {
    model(3, || {
        let keys = Arc::new(full_until_split());
        let other = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || keys.insert(4))
        };
        split_or_wait(&keys);
        keys.insert(5);
        other.join().unwrap();
        keys.verify(&[0, 1, 2, 3, 4, 5]);
        assert!(!keys.index.turns.are_taken() && keys.index.turns.waits() <= 3);
    });
}

#[test]
fn a_turn_beside_a_contraction_ends() {
    model(2, || {
        let keys = Arc::new(contractible());
        let contractor = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || keys.contract())
        };
        let other = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || split_or_wait(&keys))
        };
        split_or_wait(&keys);
        other.join().unwrap();
        let back = usize::from(contractor.join().unwrap() == ContractOutcome::Contracted);
        assert_eq!(keys.index.length() + back + counted(&keys), 7);
        keys.verify(&[0, 1]);
    });
}

/// Inserts into a full index that has memory to grow: nobody loses an item, each waits once at most.
#[test]
fn inserts_into_a_full_index_wait_once() {
    model(3, || {
        let store = store(4, 1);
        store.index.pay_for(2);
        let client = Client::new(&store);
        [b"a", b"b", b"c"].iter().zip(0..).for_each(|(key, value)| client.set(*key, value));
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || Client::new(&store).set(b"d", 3))
        };
        client.set(b"e", 4);
        other.join().unwrap();
        let values = [b"a", b"b", b"c", b"d", b"e"].map(|key| client.get(key));
        assert_eq!(values, [0, 1, 2, 3, 4].map(Some));
        assert!(store.index.length() > 2 && !store.index.turns.are_taken());
        assert!(store.index.turns.waits() <= 2);
        client.verify();
    });
}
