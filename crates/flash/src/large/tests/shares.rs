//! Regions that are reclaimed for a pool above its share: the objects of other pools stay.

use super::super::Reinsertion;
use super::eventful::Eventful;
use super::*;
use crate::pools::{FlashPool, LivePools};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const NOW: u32 = 1;
/// The pool above its share, and another one.
const LOUD: u16 = 1;
const QUIET: u16 = 2;

/// Options of a tier: inserts never wait, and there is one group.
fn without_patience() -> Options {
    Options { max_buffer_wait: Duration::ZERO, expiry_groups: 1, reinsertion: Reinsertion::Never, ..small() }
}

fn log_of_pools(device: Arc<dyn Device>, options: Options) -> Arc<LargeLog> {
    let pools = LivePools::new(7, [0, LOUD, QUIET].map(|number| (number, FlashPool::new(number))));
    let area = 0..device.capacity();
    LargeLog::of_pools(device, area, options, Arc::new(pools)).unwrap()
}

fn try_put(log: &Arc<LargeLog>, pool: u16, number: u64, bytes: usize) -> Result<Inserted, LargeDrop> {
    let (bytes_of_key, value) = (key(number), value(number, 1, bytes));
    let key = log.pools.key(pool, &bytes_of_key);
    log.insert(&Object { key, value: &[&value], client_flags: 5, is_annotated: false, expiry: 0 }, NOW)
}

fn put(log: &Arc<LargeLog>, pool: u16, number: u64, bytes: usize) {
    try_put(log, pool, number, bytes).unwrap();
}

fn has(log: &Arc<LargeLog>, pool: u16, number: u64) -> bool {
    let bytes = key(number);
    let (sender, receiver) = mpsc::channel();
    let done = Box::new(move |found: Option<FlashHit>| sender.send(found).unwrap());
    match log.lookup(log.pools.key(pool, &bytes), NOW, done) {
        FlashLookup::Absent => false,
        FlashLookup::Found(_) => true,
        FlashLookup::Reading => receiver.recv().unwrap().is_some(),
    }
}

/// Objects of both pools in turn, until the log is full. Returns their number.
fn fill_in_turn(log: &Arc<LargeLog>, bytes: usize) -> u64 {
    let is_taken = |number: &u64| try_put(log, [LOUD, QUIET][*number as usize % 2], *number, bytes).is_ok();
    (0..).take_while(is_taken).count() as u64
}

fn of_quiet(log: &Arc<LargeLog>, count: u64) -> usize {
    (0..count).filter(|number| number % 2 == 1 && has(log, QUIET, *number)).count()
}

#[test]
fn others_stay_where_no_region_is_free() {
    let log = log_of_pools(Arc::new(MemoryDevice::new(24 * REGION_BYTES)), without_patience());
    let count = fill_in_turn(&log, 6000);
    let before = of_quiet(&log, count);
    log.reclaim_of_pool(LOUD, NOW);
    assert_eq!(of_quiet(&log, count), before, "it has no copy, and stays where it was");
    log.verify();
}

#[test]
fn maintenance_keeps_regions_for_copies_of_others() {
    for regions in [16, 24, 40, 100] {
        let log = log_of_pools(Arc::new(MemoryDevice::new(regions * REGION_BYTES)), without_patience());
        let count = fill_in_turn(&log, 6000);
        log.maintain(NOW);
        let (before, reclaimed) = (of_quiet(&log, count), log.stats().regions_evicted);
        log.reclaim_of_pool(LOUD, NOW);
        assert_eq!(of_quiet(&log, count), before, "{regions} regions");
        assert_eq!(log.stats().regions_evicted, reclaimed + 1, "{regions} regions");
        log.verify();
    }
}

/// The device writes no region meanwhile, so that copies find no buffer.
#[test]
fn others_stay_where_no_buffer_is_free() {
    let device = Eventful::new(24 * REGION_BYTES);
    let log = log_of_pools(device.clone(), without_patience());
    let mut number = 0;
    while log.stats().regions_free > 8 {
        put(&log, [LOUD, QUIET][number as usize % 2], number, 6000);
        number += 1;
    }
    let before = of_quiet(&log, number);
    device.is_busy.store(true, Relaxed);
    while try_put(&log, LOUD, 1000, 6000).is_ok() {}
    log.reclaim_of_pool(LOUD, NOW);
    assert_eq!((of_quiet(&log, number), log.stats().regions_evicted), (before, 0));
    device.is_busy.store(false, Relaxed);
    log.maintain(NOW);
    log.reclaim_of_pool(LOUD, NOW);
    assert_eq!((of_quiet(&log, number), log.stats().regions_evicted), (before, 1), "once there are buffers");
    log.verify();
}

/// The open region has space for a copy of one object, and not for the next.
#[test]
fn a_region_with_some_copies_is_unclean() {
    let log = log_of_pools(Arc::new(MemoryDevice::new(24 * REGION_BYTES)), without_patience());
    for (pool, number, bytes) in [(LOUD, 0, 20_000), (QUIET, 1, 300), (QUIET, 2, 20_000)] {
        put(&log, pool, number, bytes);
    }
    let used = || log.expiry_groups[0].lock().unwrap().as_ref().map_or(0, |open| open.used);
    let is_full = || log.stats().regions_free == 0 && used() > REGION_BYTES - 6000;
    let last = (3..).find(|&number| (put(&log, QUIET, number, 6000), is_full()).1).unwrap();
    assert!(!log.is_unclean());
    log.reclaim_of_pool(LOUD, NOW);
    assert_eq!((log.stats().reinserted, log.stats().regions_evicted), (1, 0));
    assert!(log.is_unclean(), "a restart would find the original, too");
    assert!(has(&log, LOUD, 0) && (1..=last).all(|number| has(&log, QUIET, number)));
    log.verify();
}

/// Two regions have most of the pool, and parts of a long object of another one.
#[test]
fn long_objects_of_others_stay() {
    let log = log_of_pools(Arc::new(MemoryDevice::new(24 * REGION_BYTES)), without_patience());
    for (pool, number, bytes) in
        [(LOUD, 0, 30_000), (QUIET, 1, 120_000), (LOUD, 2, 30_000), (LOUD, 3, 20_000), (QUIET, 4, 40_000)]
    {
        put(&log, pool, number, bytes);
    }
    assert!(log.stats().later_parts >= 3);
    log.seal_all(NOW);
    for regions in 1..=2 {
        log.reclaim_of_pool(LOUD, NOW);
        assert_eq!(log.stats().regions_evicted, regions);
        assert_eq!([1, 4].map(|number| has(&log, QUIET, number)), [true; 2]);
        log.verify();
    }
}

#[test]
fn a_long_neighbour_costs_others_no_object() {
    let log = log_of_pools(Arc::new(MemoryDevice::new(24 * REGION_BYTES)), without_patience());
    let sizes = [(QUIET, 36_000), (QUIET, 5000), (QUIET, 5000), (LOUD, 12_000)];
    for (number, (pool, bytes)) in sizes.into_iter().enumerate() {
        put(&log, pool, number as u64, bytes);
    }
    put(&log, QUIET, 10, 30_000);
    (0..3).for_each(|_| log.maintain(NOW));
    log.reclaim_of_pool(LOUD, NOW);
    assert_eq!(log.stats().regions_evicted, 1);
    assert_eq!([0, 1, 2, 10].map(|number| has(&log, QUIET, number)), [true; 4]);
    assert!(!has(&log, LOUD, 3));
    log.verify();
}
