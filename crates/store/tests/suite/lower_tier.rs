//! The lower tier never answers with a value that was overwritten, deleted, expired or flushed.

use ebbtide_store::{
    Edit, IfAbsent, Item, LowerCopy, LowerTier, Mode, Options, Participant, Progress, Store, Ttl, Write,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Mutex, OnceLock, Weak};
use std::thread;
use std::time::Duration;

/// A copy's name and its value.
type Copy = (u64, Vec<u8>);

/// The lower tier of the tests: a map.
#[derive(Default)]
struct Copies {
    map: Mutex<HashMap<Vec<u8>, Copy>>,
    /// The names of the copies in the map.
    names: Mutex<HashSet<u64>>,
    next: AtomicU64,
    demoted: AtomicU64,
    is_flushing: AtomicBool,
}

impl Copies {
    fn insert(&self, key: &[u8], copy: Copy) {
        self.remove(key);
        self.names.lock().unwrap().insert(copy.0);
        self.map.lock().unwrap().insert(key.to_vec(), copy);
    }

    fn remove(&self, key: &[u8]) -> bool {
        let removed = self.map.lock().unwrap().remove(key);
        removed.is_some_and(|(name, _)| self.names.lock().unwrap().remove(&name))
    }
}

/// A copy as the store names it.
fn named(name: u64) -> LowerCopy {
    LowerCopy { hash: 0, token: name }
}

struct Shared(Arc<Copies>);

impl LowerTier for Shared {
    fn demote(&self, item: &Item<'_>, _now_ms: u64) -> bool {
        let mut value = Vec::new();
        item.copy_to(&mut value);
        let name = self.0.next.fetch_add(1, Ordering::Relaxed);
        self.0.demoted.fetch_add(1, Ordering::Relaxed);
        self.0.insert(item.key(), (name, value));
        true
    }

    fn settle(&self, _now_ms: u64) {}

    fn is_current(&self, copy: LowerCopy) -> bool {
        let is_flushing = self.0.is_flushing.load(Ordering::SeqCst);
        !is_flushing && self.0.names.lock().unwrap().contains(&copy.token)
    }

    fn remove(&self, key: &[u8]) -> bool {
        self.0.remove(key)
    }

    fn flush(&self, advance: &mut dyn FnMut()) {
        self.0.is_flushing.store(true, Ordering::SeqCst);
        advance();
        self.0.map.lock().unwrap().clear();
        self.0.names.lock().unwrap().clear();
        self.0.is_flushing.store(false, Ordering::SeqCst);
    }
}

struct Tiers {
    store: Store,
    copies: Arc<Copies>,
}

impl Tiers {
    fn new() -> Self {
        let options = Options {
            memory_bytes: 1 << 20,
            segment_size: Some(4 << 10),
            value_bytes_max: 1 << 18,
            ..Options::default()
        };
        let store = Store::new(options).unwrap();
        let copies = Arc::new(Copies::default());
        store.set_lower_tier(Box::new(Shared(Arc::clone(&copies))));
        Self { store, copies }
    }

    fn write(&self, participant: &Participant, key: &[u8], value: &[u8], ttl: Ttl, mode: Mode, now_ms: u64) {
        let write = Write { key, hash: self.store.hash(key), value, flags: 0.into(), ttl, mode, token: None };
        while self.store.write(participant, &write, now_ms).is_err() {
            // Other threads may hinder a write for a moment.
            if matches!(self.store.evict(participant, now_ms), Progress::Waiting(_) | Progress::Stuck) {
                std::thread::yield_now();
            }
        }
    }

    /// The value, from the store or from the lower tier; a copy is promoted, or for odd keys answered from the lower
    /// tier.
    fn get(&self, participant: &Participant, key: &[u8], now_ms: u64) -> Option<Vec<u8>> {
        let found = self.store.get(participant, key, self.store.hash(key), now_ms).map(|item| {
            let mut value = Vec::new();
            item.copy_to(&mut value);
            value
        });
        found.or_else(|| {
            let (name, value) = self.copies.map.lock().unwrap().get(key).cloned()?;
            if !key[0].is_multiple_of(2) {
                return self.store.is_current_copy(key, self.store.hash(key), named(name), now_ms).then_some(value);
            }
            self.write(participant, key, &value, Ttl::Never, Mode::Promote { copy: named(name), until: None }, now_ms);
            Some(value)
        })
    }
}

#[test]
fn evicted_items_return_from_the_lower_tier() {
    let tiers = Tiers::new();
    let participant = tiers.store.participate();
    for number in 0..20_000u32 {
        tiers.write(&participant, &number.to_le_bytes(), &[7; 200], Ttl::Never, Mode::Set, 1000);
    }
    let (demoted, stats) = (tiers.copies.demoted.load(Ordering::Relaxed), tiers.store.stats());
    assert!(demoted > 10_000);
    assert_eq!((stats.demotions, stats.evictions, stats.index_replaced), (demoted, 0, 0), "nothing is lost");
    assert_eq!((stats.items + stats.demotions, tiers.store.counter_snapshot().demotions), (20_000, demoted));
    for number in 0..20_000u32 {
        assert_eq!(tiers.get(&participant, &number.to_le_bytes(), 1000), Some(vec![7; 200]), "{number}");
    }
    let first = 0u32.to_le_bytes();
    assert!(
        tiers
            .store
            .get(&participant, &19_998u32.to_le_bytes(), tiers.store.hash(&19_998u32.to_le_bytes()), 1000)
            .is_some()
    );
    tiers.store.flush(1000, 0);
    assert_eq!(tiers.get(&participant, &first, 1000), None);
    tiers.store.verify(&participant, 1000);
}

#[test]
fn a_change_leaves_no_copy_behind() {
    let tiers = Tiers::new();
    let participant = tiers.store.participate();
    let hash = |key: &[u8]| tiers.store.hash(key);
    let mut number = 0u32;
    let mut demote = |key: &[u8], value: &[u8]| {
        tiers.write(&participant, key, value, Ttl::Never, Mode::Set, 1000);
        while tiers.store.peek(&participant, key, hash(key), 1000).is_some() {
            let other = number.to_le_bytes();
            tiers.write(&participant, &other, value, Ttl::Never, Mode::Set, 1000);
            if number.is_multiple_of(8) {
                // Survivors fill segments, one of which may hold the key: time, which would seal it, does not advance.
                drop(tiers.store.get(&participant, &other, hash(&other), 1000));
            }
            number += 1;
            assert!(number < 1_000_000, "{key:?} stays");
        }
        assert!(tiers.copies.map.lock().unwrap().contains_key(key));
    };
    let has_copy = |key: &[u8]| tiers.copies.map.lock().unwrap().contains_key(key);
    demote(b"deleted", b"1");
    assert!(tiers.store.delete(&participant, b"deleted", hash(b"deleted"), 1000), "there was a copy");
    assert!(!has_copy(b"deleted") && !tiers.store.delete(&participant, b"deleted", hash(b"deleted"), 1000));
    demote(b"set", b"1");
    tiers.write(&participant, b"set", b"2", Ttl::Never, Mode::Set, 1000);
    assert!(!has_copy(b"set"));
    demote(b"number", b"41");
    assert_eq!(tiers.get(&participant, b"number", 1000), Some(b"41".to_vec()));
    assert!(has_copy(b"number"), "a promoted value keeps its copy");
    for expected in [42, 43] {
        let count = ebbtide_store::Count::plain(ebbtide_store::Change::Add(1));
        let changed = tiers.store.change_number(&participant, (b"number", hash(b"number")), &count, 1000).unwrap();
        assert!(matches!(changed, ebbtide_store::Changed::Done(number) if number.value == expected));
        assert!(!has_copy(b"number"));
    }
    demote(b"late", b"1");
    let name = tiers.copies.map.lock().unwrap()[&b"late"[..]].0;
    tiers.store.delete(&participant, b"late", hash(b"late"), 1000);
    tiers.write(&participant, b"late", b"1", Ttl::Never, Mode::Promote { copy: named(name), until: None }, 1000);
    assert_eq!(
        tiers.get(&participant, b"late", 1000),
        None,
        "what was read before a deletion is not promoted after it"
    );
    assert!(!tiers.store.is_current_copy(b"late", hash(b"late"), named(name), 1000), "nor validated");
    demote(b"kept", b"1");
    let is_current_copy = |at_ms| {
        let name = tiers.copies.map.lock().unwrap().get(&b"kept"[..]).map_or(0, |copy| copy.0);
        tiers.store.is_current_copy(b"kept", hash(b"kept"), named(name), at_ms)
    };
    assert!(is_current_copy(1000));
    tiers.write(&participant, b"kept", b"2", Ttl::Never, Mode::Set, 1000);
    assert!(!is_current_copy(1000), "the store has another value");
    demote(b"kept", b"3");
    tiers.store.flush(1000, 500);
    assert!(is_current_copy(1400) && !is_current_copy(1500), "a delayed flush is done before");
    tiers.store.verify(&participant, 1000);
}

#[test]
fn concurrent_changes_never_show_an_old_value() {
    const KEYS: u32 = 12_000;
    let tiers = Tiers::new();
    // The version of each key that its writer has stored last; 0 is none.
    let versions: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for owner in 0..2u32 {
            let (tiers, versions) = (&tiers, &versions);
            scope.spawn(move || {
                let participant = tiers.store.participate();
                let mut random = u64::from(owner) + 1;
                for step in 1..60_000u64 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let number = (random >> 33) as u32 % (KEYS / 2) * 2 + owner;
                    let key = number.to_le_bytes();
                    match random >> 60 {
                        0..8 => {
                            let mut value = vec![number as u8; 200];
                            value[..8].copy_from_slice(&step.to_le_bytes());
                            tiers.write(&participant, &key, &value, Ttl::Never, Mode::Set, 1000);
                            versions[number as usize].store(step, Ordering::SeqCst);
                        }
                        8 => {
                            tiers.store.delete(&participant, &key, tiers.store.hash(&key), 1000);
                            versions[number as usize].store(step, Ordering::SeqCst);
                        }
                        9 if step % 500 == 0 => tiers.store.flush(1000, 0),
                        _ => {
                            let known = versions[number as usize].load(Ordering::SeqCst);
                            if let Some(value) = tiers.get(&participant, &key, 1000) {
                                let version = u64::from_le_bytes(value[..8].try_into().unwrap());
                                assert_eq!(version, known, "key {number} of {owner}");
                            }
                        }
                    }
                }
            });
        }
        let (tiers, versions) = (&tiers, &versions);
        scope.spawn(move || {
            let participant = tiers.store.participate();
            for round in 0..40_000u32 {
                let number = round.wrapping_mul(2_654_435_761) % KEYS;
                let known = versions[number as usize].load(Ordering::SeqCst);
                if let Some(value) = tiers.get(&participant, &number.to_le_bytes(), 1000) {
                    let version = u64::from_le_bytes(value[..8].try_into().unwrap());
                    assert!(version >= known, "key {number}: {version} after {known}");
                }
            }
        });
    });
    assert!(tiers.copies.demoted.load(Ordering::Relaxed) > 1000);
    let participant = tiers.store.participate();
    tiers.store.verify(&participant, 1000);
}

#[test]
fn an_edit_in_place_removes_the_copy_first() {
    let tiers = Tiers::new();
    let participant = tiers.store.participate();
    let target = (&b"key"[..], tiers.store.hash(b"key"));
    let content = [&[0xEB, 0x7D, 5, 1][..], b"head"].concat();
    let edit = |with: Edit| {
        let edited =
            tiers.store.edit(&participant, target, IfAbsent::Create(Ttl::Never.into()), 1000, |_| with.clone());
        assert_eq!(edited, Ok(true));
    };
    edit(Edit::Store { content: content.clone(), spare: 100 });
    tiers.copies.insert(b"key", (7, content.clone()));
    edit(Edit::Append(b"tail".to_vec()));
    assert!(tiers.copies.map.lock().unwrap().is_empty(), "the copy is older than the value");
    assert_eq!(tiers.get(&participant, b"key", 1000), Some([&content[..], b"tail"].concat()));
    tiers.store.verify(&participant, 1000);
}

/// A tier whose settling has another thread lock the buckets of the key that was demoted last.
#[derive(Default)]
struct Settling {
    store: OnceLock<Weak<Store>>,
    demoted: Mutex<Option<Vec<u8>>>,
    settled: AtomicU64,
}

struct SharedSettling(Arc<Settling>);

impl LowerTier for SharedSettling {
    fn demote(&self, item: &Item<'_>, _now_ms: u64) -> bool {
        *self.0.demoted.lock().unwrap() = Some(item.key().to_vec());
        true
    }

    fn settle(&self, now_ms: u64) {
        let Some(key) = self.0.demoted.lock().unwrap().take() else { return };
        if self.0.settled.fetch_add(1, Ordering::Relaxed) > 2 {
            return;
        }
        let store = self.0.store.get().and_then(Weak::upgrade).expect("its store calls it");
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(store.is_current_copy(&key, store.hash(&key), named(1), now_ms)));
        let answer = receiver.recv_timeout(Duration::from_secs(60));
        assert_eq!(answer, Ok(false), "the buckets of a demoted key are locked");
    }

    fn is_current(&self, _copy: LowerCopy) -> bool {
        false
    }

    fn remove(&self, _key: &[u8]) -> bool {
        false
    }

    fn flush(&self, advance: &mut dyn FnMut()) {
        advance();
    }
}

#[test]
fn no_bucket_is_locked_while_the_tier_settles() {
    let options =
        Options { memory_bytes: 1 << 20, segment_size: Some(4 << 10), value_bytes_max: 1 << 18, ..Options::default() };
    let (store, tier) = (Arc::new(Store::new(options).unwrap()), Arc::new(Settling::default()));
    tier.store.set(Arc::downgrade(&store)).unwrap();
    store.set_lower_tier(Box::new(SharedSettling(Arc::clone(&tier))));
    let participant = store.participate();
    for number in 0..10_000_u32 {
        let key = &number.to_le_bytes();
        let (hash, flags) = (store.hash(key), 0.into());
        let write = Write { key, hash, value: &[7; 200], flags, ttl: Ttl::Never, mode: Mode::Set, token: None };
        while store.write(&participant, &write, 1000).is_err() {
            store.evict(&participant, 1000);
        }
    }
    assert!(tier.settled.load(Ordering::Relaxed) > 2);
    store.verify(&participant, 1000);
}

/// A tier whose copy is current, and which has another thread write the key while it says so.
struct Overtaken(Mutex<mpsc::Sender<()>>);

impl LowerTier for Overtaken {
    fn demote(&self, _item: &Item<'_>, _now_ms: u64) -> bool {
        false
    }

    fn settle(&self, _now_ms: u64) {}

    fn is_current(&self, _copy: LowerCopy) -> bool {
        self.0.lock().unwrap().send(()).unwrap();
        thread::sleep(Duration::from_millis(20));
        true
    }

    fn remove(&self, _key: &[u8]) -> bool {
        true
    }

    fn flush(&self, advance: &mut dyn FnMut()) {
        advance();
    }
}

#[test]
fn a_copy_has_no_token_of_later_values() {
    let store = Store::new(Options { memory_bytes: 8 << 20, ..Options::default() }).unwrap();
    let (sender, receiver) = mpsc::channel();
    store.retain_tokens(1 << 12);
    store.set_lower_tier(Box::new(Overtaken(Mutex::new(sender))));
    let (store, key, hash) = (&store, b"key", store.hash(b"key"));
    thread::scope(|scope| {
        let later = scope.spawn(move || {
            receiver.recv().unwrap();
            let participant = store.participate();
            let write =
                Write { key, hash, value: b"v", flags: 0.into(), ttl: Ttl::Never, mode: Mode::Set, token: None };
            store.write(&participant, &write, 1000).unwrap();
            store.get(&participant, key, hash, 1000).unwrap().issue_token()
        });
        assert_eq!(store.token_of_copy(key, hash, named(1), 1000), Some(store.invalid_token()));
        assert_ne!(later.join().unwrap(), store.invalid_token());
    });
    assert_eq!(store.token_of_copy(key, hash, named(1), 1000), None, "the store has a value");
}

/// A tier that takes every other item, and counts those that it declines.
#[derive(Default)]
struct Choosy {
    offered: AtomicU64,
    declined: AtomicU64,
}

struct SharedChoosy(Arc<Choosy>);

impl LowerTier for SharedChoosy {
    fn demote(&self, _item: &Item<'_>, _now_ms: u64) -> bool {
        let is_taken = self.0.offered.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        self.0.declined.fetch_add(u64::from(!is_taken), Ordering::Relaxed);
        is_taken
    }

    fn settle(&self, _now_ms: u64) {}

    fn is_current(&self, _copy: LowerCopy) -> bool {
        false
    }

    fn remove(&self, _key: &[u8]) -> bool {
        false
    }

    fn flush(&self, advance: &mut dyn FnMut()) {
        advance();
    }
}

#[test]
fn declined_items_alone_count_as_evicted() {
    let store = Store::new(Options { memory_bytes: 1 << 20, value_bytes_max: 1 << 10, ..Options::default() }).unwrap();
    let tier = Arc::new(Choosy::default());
    store.set_lower_tier(Box::new(SharedChoosy(Arc::clone(&tier))));
    let told: Arc<[AtomicU64; 2]> = Arc::default();
    let counts = Arc::clone(&told);
    assert!(
        store.on_removal(move |removed| _ = counts[usize::from(removed.is_demoted)].fetch_add(1, Ordering::Relaxed))
    );
    let participant = store.participate();
    // The index is small when the short items arrive, and must grow in a full memory: some are replaced there.
    for number in 0..40_000u32 {
        let (key, value) = (number.to_le_bytes(), if number < 2000 { &[7; 1000][..] } else { &[7] });
        let write = Write {
            key: &key,
            hash: store.hash(&key),
            value,
            flags: 0.into(),
            ttl: Ttl::Never,
            mode: Mode::Set,
            token: None,
        };
        while store.write(&participant, &write, 1000).is_err() {
            store.evict(&participant, 1000);
        }
    }
    let (offered, declined) = (tier.offered.load(Ordering::Relaxed), tier.declined.load(Ordering::Relaxed));
    let stats = store.stats();
    assert!(declined > 500, "{stats:?}");
    assert_eq!((stats.evictions, stats.demotions, stats.displaced()), (declined, offered - declined, offered));
    assert_eq!(told.each_ref().map(|count| count.load(Ordering::Relaxed)), [declined, offered - declined]);
    let snapshot = store.counter_snapshot();
    assert_eq!((snapshot.evictions, snapshot.demotions, snapshot.displaced()), (declined, offered - declined, offered));
}
