//! Threads that get into each other's way: afterwards every invariant holds.

use ebbtide::memcached::{ByteSize, Cache, Clock, Mode, Ttl};
use std::cell::RefCell;
use std::time::Duration;

/// More threads than cores, so that they are interrupted everywhere.
const THREADS: u32 = 16;

#[test]
fn overwrites_and_deletes_during_evictions_keep_the_accounts() {
    let cache = Cache::builder().memory(ByteSize::kib(256)).seed(1).clock(Clock::Manual).build().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let cache = &cache;
            scope.spawn(move || {
                let mut random = thread + 1;
                for _ in 0..60_000 {
                    random = random.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
                    let key = (random >> 20) % 600;
                    if random >> 13 & 3 == 0 {
                        cache.delete(&key.to_le_bytes());
                    } else {
                        cache.insert(&key.to_le_bytes(), &[7; 600]).apply().unwrap();
                    }
                }
            });
        }
    });
    cache.verify();
}

/// Uses its cache as late as it can.
struct Late(RefCell<Option<Cache>>);

impl Drop for Late {
    fn drop(&mut self) {
        let cache = self.0.take().expect("the thread has set it");
        let hit = cache.get(b"k").hit().expect("it is there");
        assert_eq!(hit.to_vec(), b"v");
        cache.insert(b"late", b"").apply().unwrap_or_else(|error| panic!("{error}"));
    }
}

thread_local! {
    static LATE: Late = const { Late(RefCell::new(None)) };
}

#[test]
fn a_thread_that_ends_may_use_the_cache() {
    let cache = Cache::builder().memory(ByteSize::mib(4)).clock(Clock::Manual).build().unwrap();
    cache.insert(b"k", b"v").apply().unwrap();
    let clone = cache.clone();
    let thread = std::thread::spawn(move || {
        LATE.with(|late| *late.0.borrow_mut() = Some(clone.clone()));
        assert!(clone.contains(b"k"), "the cache's own thread-local is made after, and dropped before");
    });
    thread.join().unwrap();
    assert!(cache.contains(b"late"));
    cache.verify();
}

#[test]
fn get_and_touch_results_have_the_new_ttl() {
    let cache = Cache::builder().memory(ByteSize::mib(4)).clock(Clock::Manual).build().unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for value in 0..200_000u32 {
                cache.insert(b"k", &value.to_le_bytes()).ttl(Ttl::seconds(10)).apply().unwrap();
            }
        });
        while !writer.is_finished() {
            let Some(touched) = cache.get_and_touch(b"k", Ttl::seconds(50)).unwrap().hit() else { continue };
            let now = cache.get(b"k").hit().unwrap();
            if now.to_vec() == touched.to_vec() {
                assert_eq!(now.ttl(), Some(Duration::from_secs(50)));
            }
        }
    });
    cache.verify();
}

/// Runs `threads` threads, each of which calls `each` with its own key, in a cache of 64 MiB.
fn at_once(threads: u8, each: impl Fn(&Cache, &[u8]) + Sync) {
    let cache = Cache::builder().memory(ByteSize::mib(64)).max_value(ByteSize::mib(32)).build().unwrap();
    std::thread::scope(|scope| {
        let (cache, each) = (&cache, &each);
        (0..threads).for_each(|thread| _ = scope.spawn(move || each(cache, &[thread])));
    });
    cache.verify();
}

#[test]
fn concurrent_long_values_wait_for_each_other() {
    for (threads, mib) in [(32, 6), (8, 15)] {
        let value = vec![7; mib << 20];
        at_once(threads, |cache, key| (0..10).for_each(|_| _ = cache.insert(key, &value).apply().unwrap()));
    }
}

#[test]
fn appends_to_long_values_wait_for_others() {
    let value = vec![7; 6 << 20];
    at_once(8, |cache, key| {
        for _ in 0..10 {
            cache.insert(key, &value).apply().unwrap();
            cache.insert(key, b"more").mode(Mode::Append).apply().unwrap();
        }
    });
}

#[test]
fn long_values_wait_for_uploads_under_way() {
    let cache = Cache::builder().memory(ByteSize::mib(64)).max_value(ByteSize::mib(32)).build().unwrap();
    let upload = |key: &[u8], mib: u64| cache.upload(key, mib << 20, 0, Ttl::Never, Mode::Set);
    // With this there is space for one of the others at a time.
    let first = upload(b"first", 20).unwrap();
    let value = vec![7; 2 << 20];
    std::thread::scope(|scope| {
        let inserting = scope.spawn(|| (0..500).for_each(|_| _ = cache.insert(b"k", &value).apply().unwrap()));
        while !inserting.is_finished() {
            drop(upload(b"second", 11));
        }
    });
    drop(first);
    cache.verify();
}
