//! CAS tokens that are kept over flash never let two writers change one version: threads change values by token while
//! these are evicted, promoted, overwritten and deleted.

use ebbtide::memcached::{
    ByteSize, Cache, Clock, FlashOptions, FlashPromotion, MetaFlags, MetaFlagsChange, MetaFlagsLookup, Mode, Policy,
    Stored, Ttl,
};
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KEYS: u64 = 40;
const THREADS: u64 = 4;
const TIME: Duration = Duration::from_secs(4);
/// Changes by token and promotions that are wanted; a slow machine has longer for them.
const CHANGES: usize = 100;
const PROMOTIONS: u64 = 20;
const PATIENCE: Duration = Duration::from_secs(120);

fn value(version: u64) -> Vec<u8> {
    let mut value = vec![7; 300];
    value[..8].copy_from_slice(&version.to_le_bytes());
    value
}

#[test]
fn only_stale_marks_change_a_kept_token() {
    const EACH: u32 = 100;
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual).policy(Policy::Fifo);
    let flash = FlashOptions { rewrite_threshold: 1, ..FlashOptions::default() };
    let cache = cache.flash_options(flash).flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
    let look = MetaFlagsLookup { create: None, counts: false };
    let mark = |key: &[u8], flags| {
        cache.update_meta_flags(key, look, |_| Some(MetaFlagsChange { ttl: None, flags })).map(drop).unwrap()
    };
    /// A change of a key.
    type Change<'c> = &'c dyn Fn(&[u8]);
    let changes: [(&str, Change<'_>, Stored); 4] = [
        ("touched", &|key| assert!(cache.touch(key, Ttl::seconds(5000)).unwrap()), Stored::Stored),
        (
            "touched and got",
            &|key| assert!(cache.get_and_touch(key, Ttl::seconds(5000)).unwrap().is_hit()),
            Stored::Stored,
        ),
        ("won", &|key| mark(key, MetaFlags::Won), Stored::Stored),
        ("stale", &|key| mark(key, MetaFlags::Stale { token: None }), Stored::Exists),
    ];
    for (name, change, answer) in changes {
        let keys: Vec<String> = (0..EACH).map(|number| format!("{name}{number}")).collect();
        keys.iter().for_each(|key| _ = cache.insert(key.as_bytes(), &value(1)).apply().unwrap());
        let token = |key: &String| cache.get_with_token(key.as_bytes()).hit().unwrap().cas();
        let tokens: Vec<u64> = keys.iter().map(token).collect();
        keys.iter().for_each(|key| change(key.as_bytes()));
        // Their buckets change.
        (0..10_000_u64).for_each(|number| _ = cache.insert(&number.to_be_bytes(), &[1; 100]).apply().unwrap());
        for (key, token) in keys.iter().zip(tokens) {
            let write = cache.insert(key.as_bytes(), &value(2)).mode(Mode::Cas(token)).apply();
            assert_eq!(write, Ok(answer), "{key}");
        }
    }
    cache.verify();
}

#[test]
fn a_version_is_changed_by_its_token_once() {
    change_by_tokens(FlashPromotion::Always);
}

/// Values that flash has answered have the token that is kept for them.
#[test]
fn a_served_version_is_changed_once() {
    change_by_tokens(FlashPromotion::Never);
}

fn change_by_tokens(promotion: FlashPromotion) {
    let folder = tempfile::tempdir().unwrap();
    let flash = FlashOptions { rewrite_threshold: 1, ..FlashOptions::default() };
    let builder = Cache::builder().memory(ByteSize::mib(6)).flash_options(flash).flash_promotion(promotion);
    // Evictions wait for the device then, and spare nothing.
    let builder = builder.clock(Clock::Manual).policy(Policy::Fifo);
    let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
    // Every version of every key is another number.
    let versions = AtomicU64::new(1);
    let fresh = || versions.fetch_add(1, Ordering::Relaxed);
    let changed = Mutex::new(HashSet::new());
    // The versions with which a token was read, and whether a write with it was done.
    let seen = Mutex::new(HashMap::<(u64, u64), (HashSet<u64>, bool)>::new());
    let started = Instant::now();
    let is_enough = || changed.lock().unwrap().len() >= CHANGES && cache.flash_stats().unwrap().promoted >= PROMOTIONS;
    let goes_on = || started.elapsed() < TIME || started.elapsed() < PATIENCE && !is_enough();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (cache, fresh, changed, seen, goes_on) = (cache.clone(), &fresh, &changed, &seen, &goes_on);
            scope.spawn(move || {
                let mut held = Vec::new();
                let mut random = thread + 1;
                while goes_on() {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let key = (random >> 33) % KEYS;
                    let name = key.to_le_bytes();
                    match random >> 60 {
                        0 => _ = cache.insert(&name, &value(fresh())).apply(),
                        1 => _ = cache.delete(&name),
                        2..5 => _ = cache.insert(&name, &value(fresh())).mode(Mode::Add).apply(),
                        5..10 => {
                            let is_plain = random >> 59 & 1 == 1;
                            let found = if is_plain { cache.get(&name) } else { cache.get_with_token(&name) };
                            if let Some(item) = found.hit() {
                                let version = u64::from_le_bytes(item.to_vec()[..8].try_into().unwrap());
                                let token = item.cas();
                                seen.lock().unwrap().entry((key, token)).or_default().0.insert(version);
                                held.push((key, version, token));
                            }
                        }
                        10..13 if !held.is_empty() => {
                            let (key, version, token) = held.swap_remove(random as usize % held.len());
                            let write =
                                cache.insert(&key.to_le_bytes(), &value(fresh())).mode(Mode::Cas(token)).apply();
                            if write == Ok(Stored::Stored) {
                                seen.lock().unwrap().entry((key, token)).or_default().1 = true;
                                assert!(changed.lock().unwrap().insert((key, version)), "{key} twice from {version}");
                            }
                        }
                        // Neighbours come and memory goes.
                        _ => (0..20).for_each(|_| _ = cache.insert(&fresh().to_be_bytes(), &[1; 2000]).apply()),
                    }
                }
            });
        }
    });
    for ((key, token), (versions, is_valid)) in seen.into_inner().unwrap() {
        assert!(!is_valid || versions.len() == 1, "token {token} of key {key} was read with {versions:?}");
    }
    let (changed, stats) = (changed.into_inner().unwrap().len(), cache.flash_stats().unwrap());
    let (unknown, promoted, served) = (stats.unknown_tokens, stats.promoted, stats.served);
    println!("{changed} changes by token, {unknown} unknown tokens, {promoted} promotions, {served} served");
    assert!(changed >= CHANGES && stats.promoted >= PROMOTIONS, "{changed} changes; {stats:?}");
    cache.verify();
}
