//! The controller of pools in the library's interface, and the largest memory.

use ebbtide::controller::{ControllerMode, PoolDecision};
use ebbtide::{ByteSize, Cache, Clock, Error, Policy, Pool, PoolOptions};
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn build(change: impl FnOnce(ebbtide::CacheBuilder) -> ebbtide::CacheBuilder) -> Cache {
    let pools = [PoolOptions::named("again"), PoolOptions::named("once"), PoolOptions::named("default").weight(0)];
    let builder = Cache::builder().memory(ByteSize::mib(9)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
    change(pools.into_iter().fold(builder, |builder, pool| builder.pool(pool))).build().unwrap()
}

/// Loads keys of a loop in `again`, and new keys in `once`. Returns the memory of `again`, and the decisions.
fn run(cache: &Cache) -> (u64, Vec<PoolDecision>) {
    let [again, once] = ["again", "once"].map(|name| cache.pool(name).unwrap());
    let load = |pool: &Pool, key: u64| _ = pool.get_or_insert_with(key.to_le_bytes(), || [7; 1000]).unwrap();
    let mut number = 0_u64;
    for second in 1..=600 {
        for _ in 0..200 {
            number += 1;
            load(&again, number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) % 5000);
            load(&once, number);
        }
        cache.maintain(Duration::from_secs(second));
    }
    cache.verify();
    (again.stats().memory_limit_bytes, cache.controller_decisions())
}

#[test]
fn the_controller_moves_memory_in_auto_alone() {
    let (without, none) = run(&build(|builder| builder));
    let (off, of_off) = run(&build(|builder| builder.controller(ControllerMode::Off)));
    assert!(none.is_empty() && of_off.is_empty() && without == off && off < 9 * MIB / 2, "{without} {off}");
    let (dry, advised) = run(&build(|builder| builder.controller(ControllerMode::DryRun)));
    assert!(dry == off && advised.iter().all(|decision| !decision.is_applied), "{dry} {advised:?}");
    assert!(!advised.is_empty() && advised[0].reason.starts_with("again +"), "{advised:?}");
    let (auto, applied) = run(&build(|builder| builder.controller(ControllerMode::Auto)));
    assert!(auto > 5 * MIB && applied.iter().all(|decision| decision.is_applied), "{auto} {applied:?}");
}

#[test]
fn a_cache_with_a_controller_has_curves() {
    let cache = build(|builder| builder.controller(ControllerMode::DryRun));
    run(&cache);
    assert!(cache.pool("again").unwrap().what_if(ByteSize::mib(9)).is_some());
}

/// A loop over more keys than the cache holds: LRU misses each of them, and a random eviction does not.
#[test]
fn the_controller_changes_policies_that_it_may() {
    const KEYS: u64 = 55_000;
    let builder = Cache::builder().memory(ByteSize::mib(40)).policy(Policy::Lru).clock(Clock::Manual);
    let builder = builder.controller(ControllerMode::Auto).controller_policies(&[Policy::Random]);
    let cache = builder.build().unwrap();
    let (mut number, mut second) = (0_u64, 0);
    while second < 300 && cache.controller_decisions().is_empty() {
        second += 1;
        for _ in 0..KEYS / 10 {
            number += 1;
            cache.get_or_insert_with((number % KEYS).to_le_bytes(), || [7; 1000]).unwrap();
        }
        cache.maintain(Duration::from_secs(second));
    }
    let decisions = cache.controller_decisions();
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    let change = decisions[0].policy.as_ref().expect("it is of a policy");
    assert_eq!((change.pool.as_str(), change.change.to.as_str()), ("default", "random"));
}

#[test]
fn memory_grows_to_its_ceiling() {
    let cache = Cache::builder().memory(ByteSize::mib(9)).memory_ceiling(ByteSize::mib(16)).build().unwrap();
    cache.resize(ByteSize::mib(16)).unwrap();
    assert!(matches!(cache.resize(ByteSize::mib(17)), Err(Error::Configuration { .. })));
}
