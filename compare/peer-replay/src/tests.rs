//! Properties of every system, on small generated traces.

use std::sync::{Mutex, PoisonError};

use clap::ValueEnum;

use crate::System;
use crate::trace::{Action, Object, Request, Trace};

const VALUE_BYTES: u32 = 500;

/// A trace of 500-byte values: (second, key) of each get.
fn gets(keys: u32, ttl: u32, gets: impl IntoIterator<Item = (u32, u32)>) -> Trace {
    let object = Object { key_bytes: 16, value_bytes: VALUE_BYTES };
    let get = |(now, key)| Request { action: Action::Get, key, object, now, ttl };
    Trace { requests: gets.into_iter().map(get).collect(), objects: vec![object; keys as usize] }
}

/// The process has one clock: a test that sets it runs alone.
pub static CLOCK: Mutex<()> = Mutex::new(());

fn each(memory: u64, trace: &Trace, check: impl Fn(System, f64)) {
    let _alone = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    for &system in System::value_variants() {
        check(system, system.miss_ratio(memory, trace).unwrap());
    }
}

#[test]
fn what_fits_is_missed_once() {
    let trace = gets(100, 0, (0..10).flat_map(|round| (0..100).map(move |key| (round, key))));
    // A bucket of the crate's index may be full before the cache is.
    let max_ratio = |system| if system == System::Segcache { 0.12 } else { 0.1 };
    each(1 << 20, &trace, |system, ratio| assert!(ratio >= 0.1 && ratio <= max_ratio(system), "{system:?} {ratio}"));
}

#[test]
fn what_does_not_fit_is_evicted() {
    let rounds = (0..50).flat_map(|round| (0..4000).map(move |key| (round, key)));
    let trace = gets(4000, 0, rounds);
    let fitting = (1 << 20) as f64 / (4000 * (VALUE_BYTES + 16)) as f64;
    // Scans: no system hits more than the share of objects that fits, and every system uses its memory.
    each(1 << 20, &trace, |system, ratio| assert!(ratio > 1.0 - fitting, "{system:?} {ratio}"));
}

#[test]
fn popular_objects_stay() {
    // Every other get is of one of 100 keys; the others never come again.
    let mixed = (0..40_000).map(|n| (n / 1000, if n % 2 == 0 { n / 2 % 100 } else { 100 + n / 2 }));
    let trace = gets(20_100, 0, mixed);
    each(1 << 20, &trace, |system, ratio| assert!(ratio < 0.62, "{system:?} {ratio}"));
}

#[test]
fn expired_objects_are_missed() {
    let trace = gets(1, 100, (0..10).flat_map(|n| [(n * 100, 0), (n * 100 + 50, 0)]));
    each(1 << 20, &trace, |system, ratio| assert_eq!(ratio, 0.5, "{system:?}"));
}

#[test]
fn only_gets_count_and_deleted_objects_miss() {
    let mut trace = gets(1, 0, [(0, 0), (0, 0), (0, 0), (0, 0)]);
    trace.requests[0].action = Action::Set;
    trace.requests[2].action = Action::Delete;
    each(1 << 20, &trace, |system, ratio| assert_eq!(ratio, 0.5, "{system:?}"));
}

#[test]
fn the_crawler_and_proactive_expiry_make_space() {
    // Lasting objects that nearly fill the memory, each requested every 800 seconds, and objects requested once.
    let object = Object { key_bytes: 16, value_bytes: VALUE_BYTES };
    let mut trace = Trace { requests: Vec::new(), objects: vec![object; 21_600] };
    for now in 0..20_000 {
        let mut get = |key, ttl| trace.requests.push(Request { action: Action::Get, key, object, now, ttl });
        get(1600 + now, 10);
        get(now * 2 % 1600, 0);
        get((now * 2 + 1) % 1600, 0);
    }
    let ratio = |system: System| system.miss_ratio(1 << 20, &trace).unwrap();
    let (proactive, crawler, none) =
        (ratio(System::Proactive), ratio(System::MemcachedCrawler), ratio(System::Memcached));
    assert!(proactive < 0.361 && proactive <= crawler && crawler < none, "{proactive} {crawler} {none}");
}
