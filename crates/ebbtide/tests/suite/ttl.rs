//! How long entries live, and how soon their memory is free afterwards.

use ebbtide::memcached::{ByteSize, Cache, Clock, Mode, Stored, Ttl};
use std::time::Duration;

fn cache() -> Cache {
    Cache::builder().memory(ByteSize::mib(4)).seed(1).clock(Clock::Manual).build().unwrap()
}

#[test]
fn an_entry_is_touched_within_its_segment() {
    let cache = cache();
    cache.insert(b"k", b"v").ttl(Ttl::seconds(100)).apply().unwrap();
    cache.maintain(Duration::from_secs(1));
    assert_eq!(cache.touch(b"k", Ttl::seconds(100)), Ok(true));
    cache.maintain(Duration::from_secs(100));
    assert_eq!(cache.get(b"k").hit().unwrap().to_vec(), b"v");
    cache.maintain(Duration::from_secs(101));
    assert!(!cache.contains(b"k"));
    cache.verify();
}

#[test]
fn expiry_of_the_last_entry_frees_memory() {
    for ttl in [1u32, 100, 130, 10_000, 100_000] {
        let cache = cache();
        cache.maintain(Duration::from_secs(1));
        cache.insert(b"k", b"v").ttl(Ttl::seconds(ttl)).apply().unwrap();
        let expired = (2..).find(|seconds| {
            cache.maintain(Duration::from_secs(*seconds));
            !cache.contains(b"k")
        });
        let stats = cache.stats();
        assert_eq!((stats.items, stats.segments_free), (0, stats.segments_total), "TTL {ttl}, gone after {expired:?}");
        cache.verify();
    }
}

#[test]
fn get_and_touch_returns_value_and_token() {
    let cache = cache();
    cache.maintain(Duration::from_secs(1));
    for ttl in [Ttl::Never, Ttl::seconds(1), Ttl::seconds(1001), Ttl::seconds(u32::MAX)] {
        cache.insert(b"k", b"v").ttl(Ttl::seconds(100)).apply().unwrap();
        let hit = cache.get_and_touch(b"k", ttl).unwrap().hit().unwrap();
        assert_eq!((hit.to_vec(), hit.ttl()), (b"v".to_vec(), cache.get(b"k").hit().unwrap().ttl()));
        let token = hit.cas();
        drop(hit);
        assert_eq!(cache.insert(b"k", b"w").mode(Mode::Cas(token)).apply(), Ok(Stored::Stored), "{ttl:?}");
    }
    for over in [Ttl::Expired, Ttl::Seconds(0)] {
        cache.insert(b"k", b"v").apply().unwrap();
        assert_eq!(cache.get_and_touch(b"k", over).unwrap().hit().unwrap().to_vec(), b"v");
        assert!(!cache.contains(b"k"));
    }
    assert!(!cache.get_and_touch(b"k", Ttl::Never).unwrap().is_hit());
    cache.verify();
}

#[test]
fn tests_of_programs_move_the_systems_clock() {
    let cache = Cache::builder().memory(ByteSize::mib(4)).build().unwrap();
    cache.insert(b"short", b"v").ttl(Ttl::seconds(1000)).apply().unwrap();
    cache.insert(b"long", b"v").ttl(Ttl::seconds(10_000)).apply().unwrap();
    cache.skip_time(Duration::from_secs(1000)).unwrap();
    assert!(!cache.contains(b"short"));
    let left = cache.get(b"long").hit().unwrap().ttl().unwrap();
    assert!(left <= Duration::from_secs(9000) && left > Duration::from_secs(8000), "{left:?}");
    assert_eq!(cache.skipped_time(), Duration::from_secs(1000));
    cache.skip_time(Duration::MAX).unwrap();
    assert!(!cache.contains(b"long"));
}

#[test]
fn a_manual_clock_is_moved_by_maintenance_only() {
    let cache = cache();
    let refusal = cache.skip_time(Duration::from_secs(1)).unwrap_err();
    assert!(refusal.to_string().contains("call maintain"), "{refusal}");
    assert_eq!(cache.skipped_time(), Duration::ZERO);
}
