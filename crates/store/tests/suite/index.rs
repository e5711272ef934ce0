//! The index grows with the number of objects, within the memory, and tokens stay correct.

use crate::common::StoreSubject;
use ebbtide_store::{Change, Changed, Count, Mode, Options, Progress, Stored, Ttl, Write};
use ebbtide_testkit::Random;
use std::collections::HashMap;

const NOW_MS: u64 = 5000;

fn set(subject: &StoreSubject, key: &[u8], value: &[u8], now_ms: u64) {
    let (store, participant) = (&subject.store, &subject.participant);
    let write =
        Write { key, hash: store.hash(key), value, flags: 0.into(), ttl: Ttl::Never, mode: Mode::Set, token: None };
    subject.retry_with_eviction(now_ms, || store.write(participant, &write, now_ms)).unwrap();
}

#[test]
fn the_index_grows_when_objects_become_tiny() {
    let options = Options { memory_bytes: 16 << 20, seed: 3, ..Options::default() };
    let subject = StoreSubject::new(options);
    for number in 0..5000_u64 {
        set(&subject, &number.to_le_bytes(), &[1; 5000], NOW_MS);
    }
    let long = subject.store.stats();
    let mut min_load: f64 = 1.0;
    let mut grown = long.clone();
    for number in 0..1_200_000_u64 {
        let now_ms = NOW_MS + number / 100;
        set(&subject, &(number | 1 << 40).to_le_bytes(), b"12", now_ms);
        // The index takes a segment of 800 slots at a time, from maintenance.
        if number % 200 == 0 {
            while subject.store.maintain(&subject.participant, now_ms) == Progress::Working {}
        }
        if number == 900_000 {
            grown = subject.store.stats();
        }
        if number % 10_000 == 0 && number > 900_000 {
            min_load = min_load.min(subject.store.stats().index_load);
        }
    }
    let stats = subject.store.stats();
    assert!(stats.index_bytes > 10 * long.index_bytes, "{} -> {stats:?}", long.index_bytes);
    assert!(min_load >= 0.85, "load fell to {min_load}: {stats:?}");
    assert!(stats.index_replaced - grown.index_replaced < 500, "{grown:?} -> {stats:?}");
    assert!(stats.index_replaced * 200 < stats.stored_total, "{stats:?}");
    let overhead = stats.memory_limit_bytes as f64 / stats.items as f64 - 10.0;
    assert!(overhead <= 18.0, "{overhead} bytes of overhead per object: {stats:?}");
    subject.store.verify(&subject.participant, NOW_MS + 15_000);
}

#[test]
fn a_growing_index_loses_nothing() {
    let subject = StoreSubject::new(Options { memory_bytes: 16 << 20, seed: 4, ..Options::default() });
    for number in 0..300_000_u64 {
        set(&subject, &number.to_le_bytes(), b"0", NOW_MS);
    }
    let stats = subject.store.stats();
    assert_eq!(stats.index_replaced, 0, "{stats:?}");
    let missing = (0..300_000_u64).filter(|number| subject.get(&number.to_le_bytes(), NOW_MS).is_none()).count();
    assert_eq!(missing, 0);
    subject.store.verify(&subject.participant, NOW_MS);
}

#[test]
fn a_token_never_passes_for_a_changed_value() {
    let options = Options { memory_bytes: 1 << 20, seed: 5, value_bytes_max: 50_000, ..Options::default() };
    let subject = StoreSubject::new(options);
    let (store, participant) = (&subject.store, &subject.participant);
    let mut random = Random::new(5);
    let mut tokens: HashMap<u64, Vec<(u64, Vec<u8>)>> = HashMap::new();
    let mut passed = 0;
    for step in 0..60_000_u64 {
        let now_ms = NOW_MS + step;
        let number = random.uniform(300);
        let key = number.to_le_bytes();
        let hash = store.hash(&key);
        match random.uniform(10) {
            0..3 => {
                if let Some(hit) = subject.get(&key, now_ms) {
                    tokens.entry(number).or_default().push((hit.token, hit.value));
                }
            }
            3 => drop(store.delete(participant, &key, hash, now_ms)),
            4 => drop(
                subject.retry_with_eviction(now_ms, || store.touch(participant, &key, hash, Ttl::Seconds(9), now_ms)),
            ),
            // Other keys are added and removed: buckets split, items are displaced and relocated.
            5 => (0..20).for_each(|_| set(&subject, &random.number().to_le_bytes(), &[1; 60], now_ms)),
            6 => set(&subject, &key, &random.number().to_le_bytes(), now_ms),
            _ => {
                let Some(seen) = tokens.get_mut(&number) else { continue };
                let (token, value) = seen.swap_remove(random.uniform(seen.len() as u64) as usize);
                if seen.is_empty() {
                    tokens.remove(&number);
                }
                let before = subject.get(&key, now_ms).map(|hit| hit.value);
                let new = random.number().to_le_bytes();
                let write = Write {
                    key: &key,
                    hash,
                    value: &new,
                    flags: 0.into(),
                    ttl: Ttl::Never,
                    mode: Mode::Cas(token),
                    token: None,
                };
                let stored = subject.retry_with_eviction(now_ms, || store.write(participant, &write, now_ms)).unwrap();
                match stored.stored {
                    Stored::Stored => {
                        assert_eq!(before, Some(value), "step {step}: a cas passed on another value");
                        passed += 1;
                    }
                    Stored::Exists | Stored::NotFound => {}
                    Stored::NotStored => panic!("this is no answer to a cas"),
                }
            }
        }
    }
    assert!(passed > 500, "{passed} of many passed");
    store.verify(participant, NOW_MS + 60_000);
}

#[test]
fn numbers_survive_merges_in_place() {
    let options = Options { memory_bytes: 512 << 10, seed: 6, value_bytes_max: 1 << 10, ..Options::default() };
    let subject = StoreSubject::new(options);
    let (store, participant) = (&subject.store, &subject.participant);
    let mut counts: HashMap<u64, u64> = HashMap::new();
    let mut random = Random::new(6);
    let mut grown = 0;
    for step in 0..80_000_u64 {
        let now_ms = NOW_MS + step * 10;
        let number = random.uniform(200);
        // Keys of several lengths, so that the words have every alignment.
        let key = vec![b'a' + (number % 26) as u8; 1 + number as usize];
        let count = Count::plain(Change::Add(number + 1));
        let hash = store.hash(&key);
        let changed = || store.change_number(participant, (&key, hash), &count, now_ms);
        match subject.retry_with_eviction(now_ms, changed).unwrap() {
            Changed::Done(number_after) => {
                let counted = counts.get_mut(&number).expect("it was set");
                *counted += number + 1;
                assert_eq!(number_after.value, *counted, "step {step}");
                grown += 1;
            }
            Changed::Absent | Changed::Exists => {
                set(&subject, &key, b"0", now_ms);
                counts.insert(number, 0);
            }
        }
        set(&subject, &random.number().to_le_bytes(), &[2; 100], now_ms);
    }
    assert!(grown > 70_000 && store.stats().survived > 1000, "{grown} {:?}", store.stats());
    store.verify(participant, NOW_MS + 800_000);
}
