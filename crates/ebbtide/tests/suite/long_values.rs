//! Values longer than a segment.

use ebbtide::memcached::{ByteSize, Cache, Clock, Mode, Stored, Ttl};
use std::time::Duration;

fn fill(cache: &Cache, count: u32, seconds: &mut u64) {
    for i in 0..count {
        if i % 100 == 0 {
            *seconds += 1;
            cache.maintain(Duration::from_secs(*seconds));
        }
        cache.insert(format!("fill{i}").as_bytes(), &[1; 500]).apply().unwrap();
    }
}

#[test]
fn a_long_value_grows_in_a_full_cache() {
    let cache = Cache::builder().memory(ByteSize::mib(4)).seed(1).clock(Clock::Manual).build().unwrap();
    let mut seconds = 0;
    for mode in [Mode::Append, Mode::Prepend] {
        fill(&cache, 20_000, &mut seconds);
        cache.insert(b"long", &vec![3; 200_000]).apply().unwrap();
        fill(&cache, 100, &mut seconds);
        let grown = cache.insert(b"long", b"more").mode(mode).apply();
        assert_eq!(grown, Ok(Stored::Stored), "{mode:?}");
        assert_eq!(cache.get(b"long").hit().unwrap().len(), 200_004);
        let kept = (0..20_000u32).filter(|i| cache.contains(format!("fill{i}").as_bytes())).count();
        assert!(kept > 5000, "{kept} others are left: no more is evicted than it takes");
    }
    cache.verify();
}

#[test]
fn long_values_that_lie_apart_are_evicted() {
    let cache = Cache::builder().memory(ByteSize::mib(4)).seed(1).clock(Clock::Manual).build().unwrap();
    for value in 0..60u32 {
        // Longer than a segment of this life stays open: each head is alone in its segment.
        cache.maintain(Duration::from_secs(70 * u64::from(value)));
        let stored = cache.insert(&value.to_le_bytes(), &vec![3; 50 * 4096]).ttl(Ttl::seconds(4000)).apply();
        assert_eq!(stored, Ok(Stored::Stored), "{value}");
    }
    let stats = cache.stats();
    assert!(stats.items >= 10 && stats.segments_compacted <= 120, "{stats:?}");
    cache.verify();
}

/// The heads of many long values lie in one segment.
#[test]
fn held_long_values_let_writers_evict_others() {
    for held in [1_u32, 4, 60] {
        let builder = ebbtide::Cache::builder().memory(ByteSize::mib(16)).clock(Clock::Manual);
        let cache = builder.build().unwrap();
        let value = |number: u32| vec![number as u8; 200_000];
        let values: Vec<_> = (0..held)
            .map(|number| {
                cache.insert(number.to_le_bytes(), value(number)).unwrap();
                cache.get(number.to_le_bytes()).unwrap()
            })
            .collect();
        for number in held..300 {
            assert_eq!(cache.insert(number.to_le_bytes(), value(number)), Ok(()), "{held} are held");
        }
        assert!((0..held).zip(&values).all(|(number, held)| held[..] == value(number)), "{held} are held");
        let present = (0..300_u32).filter(|number| cache.contains_key(number.to_le_bytes())).count();
        assert!(present > 40, "{held} are held, {present} are present");
        cache.verify();
        drop(values);
        cache.verify();
    }
}
