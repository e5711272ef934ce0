//! Statistics of a cache while others write to it.

use ebbtide::memcached::{ByteSize, Cache, Clock, Stats, Ttl};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// All that only grows.
fn counters(stats: &Stats) -> [u64; 12] {
    [
        stats.stored_total,
        stats.evictions,
        stats.index_replaced,
        stats.demotions,
        stats.expired,
        stats.flushed,
        stats.expired_found,
        stats.flushed_found,
        stats.survived,
        stats.segments_expired,
        stats.segments_evicted,
        stats.segments_compacted,
    ]
}

/// Short values and long ones, lives of all lengths, deletions, flushes and changes of the limit.
fn write(cache: &Cache, seed: u32, done: &AtomicBool) {
    let long = vec![1; 40_000];
    let mut random = seed;
    while !done.load(Ordering::Relaxed) {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let key = (random >> 14).to_be_bytes();
        let ttl = if random & 64 == 0 { Ttl::Never } else { Ttl::seconds(1 + (random >> 8) % 3) };
        let value = if random & 31 == 0 { &long[..] } else { &long[..(random >> 9 & 255) as usize] };
        match random & 7 {
            0 => _ = cache.delete(&key),
            1 => _ = cache.get(&key),
            // A limit that sinks may leave no space for a moment.
            _ => _ = cache.insert(&key, value).ttl(ttl).apply(),
        }
        match random >> 7 & 0xffff {
            1 | 2 => cache.flush(Duration::ZERO),
            3 | 4 => _ = cache.resize(ByteSize::mib(4 + u64::from(random >> 23 & 3))),
            _ => {}
        }
    }
}

/// Ends the writers, also when an assertion fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn counters_never_decrease_and_gauges_stay_bounded() {
    let builder = Cache::builder().memory(ByteSize::mib(6)).max_value(ByteSize::mib(1));
    let cache = builder.clock(Clock::Manual).build().unwrap();
    let done = AtomicBool::new(false);
    let limit = ByteSize::mib(64).as_bytes();
    thread::scope(|scope| {
        (1..=3).for_each(|seed| {
            _ = scope.spawn({
                let (cache, done) = (&cache, &done);
                move || write(cache, seed, done)
            })
        });
        let _done = Done(&done);
        let mut before = counters(&cache.stats());
        let mut scan = cache.scan().unwrap();
        let mut looks = 0;
        // Until much has happened.
        while looks < 3000 || before[1] < 2000 || before[4] == 0 {
            let stats = cache.stats();
            let now = counters(&stats);
            assert!(before.iter().zip(now).all(|(before, now)| *before <= now), "{before:?} {now:?}");
            before = now;
            let segments = cache.segment_snapshot();
            for bytes in [stats.live_bytes, segments.live_bytes, segments.expired_bytes, segments.dead_bytes] {
                assert!(bytes <= limit, "{stats:?} {segments:?}");
            }
            assert!(stats.items < 1 << 20 && (0.0..=1.5).contains(&stats.index_load), "{stats:?}");
            if !scan.advance(|entry| assert!(entry.stored_bytes() < 2 << 20 && entry.len() <= 40_000)) {
                drop(scan);
                scan = cache.scan().unwrap();
            }
            looks += 1;
            cache.maintain(Duration::from_millis(10 * looks));
        }
    });
    cache.verify();
}

/// Counters by reason agree with their sum at any moment: here nothing has expired, all was flushed.
#[test]
fn flushed_entries_never_look_expired() {
    let cache = Cache::builder().memory(ByteSize::mib(4)).clock(Clock::Manual).build().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _done = Done(&done);
            for round in 1..=100u64 {
                (0..5000u32).for_each(|n| _ = cache.insert(&n.to_be_bytes(), b"").apply().unwrap());
                cache.flush(Duration::ZERO);
                cache.maintain(Duration::from_secs(round));
            }
        });
        while !done.load(Ordering::Relaxed) {
            let (stats, pulse) = (cache.stats(), cache.counter_snapshot());
            assert_eq!((stats.expired, pulse.expired), (stats.flushed, pulse.flushed));
        }
    });
    assert!(cache.stats().flushed > 10_000, "{:?}", cache.stats());
}
