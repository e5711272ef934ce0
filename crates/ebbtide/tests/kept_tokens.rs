//! CAS tokens that are kept over flash never let two writers change one version: threads change values by token while these are evicted,
//! promoted, overwritten and deleted.

use ebbtide::{ByteSize, Cache, Clock, FlashOptions, FlashPromotion, Mode, Policy, Stored};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KEYS: u64 = 40;
const THREADS: u64 = 4;
const TIME: Duration = Duration::from_secs(4);

fn value(version: u64) -> Vec<u8> {
    let mut value = vec![7; 300];
    value[..8].copy_from_slice(&version.to_le_bytes());
    value
}

#[test]
fn a_version_is_changed_by_its_token_once() {
    let folder = tempfile::tempdir().unwrap();
    let flash = FlashOptions { rewrite_threshold: 1, ..FlashOptions::default() };
    let builder =
        Cache::builder().memory(ByteSize::mib(6)).flash_options(flash).flash_promotion(FlashPromotion::Always);
    // Evictions wait for the device then, and spare nothing.
    let builder = builder.clock(Clock::Manual).policy(Policy::Fifo);
    let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
    // Every version of every key is another number.
    let versions = AtomicU64::new(1);
    let fresh = || versions.fetch_add(1, Ordering::Relaxed);
    let changed = Mutex::new(HashSet::new());
    let end = Instant::now() + TIME;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (cache, fresh, changed) = (cache.clone(), &fresh, &changed);
            scope.spawn(move || {
                let mut held = Vec::new();
                let mut random = thread + 1;
                while Instant::now() < end {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let key = (random >> 33) % KEYS;
                    let name = key.to_le_bytes();
                    match random >> 60 {
                        0 => _ = cache.insert(&name, &value(fresh())).apply(),
                        1 => _ = cache.delete(&name),
                        2..5 => _ = cache.insert(&name, &value(fresh())).mode(Mode::Add).apply(),
                        5..10 => {
                            if let Some(item) = cache.get_with_token(&name).hit() {
                                let version = u64::from_le_bytes(item.to_vec()[..8].try_into().unwrap());
                                held.push((key, version, item.cas()));
                            }
                        }
                        10..13 if !held.is_empty() => {
                            let (key, version, token) = held.swap_remove(random as usize % held.len());
                            let write =
                                cache.insert(&key.to_le_bytes(), &value(fresh())).mode(Mode::Cas(token)).apply();
                            if write == Ok(Stored::Stored) {
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
    let (changed, stats) = (changed.into_inner().unwrap().len(), cache.flash_stats().unwrap());
    println!("{changed} changes by token, {} unknown tokens, {} promotions", stats.unknown_tokens, stats.promoted);
    assert!(changed > 50 && stats.promoted > 10, "{changed} changes; {stats:?}");
    cache.verify();
}
