//! Changes beside threads that evict: a value that memory or flash has is never taken for absent.

use ebbtide::memcached::{
    ByteSize, Cache, Change, Changed, Clock, Count, FlashPromotion, Lookup, MetaFlags, MetaFlagsChange,
    MetaFlagsLookup, MetaFlagsOutcome, Mode, Policy, Stored, Ttl,
};
use ebbtide_testkit::{Random, seeds};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Keys that are never removed. Each is changed by one thread.
const KEYS: u32 = 4;
const VALUE: &[u8] = b"1000000000";

fn key(number: u32) -> Vec<u8> {
    format!("present-{number}").into_bytes()
}

/// One change that must find the key. False if it has taken it for absent.
fn change(cache: &Cache, key: &[u8], random: &mut Random) -> bool {
    let insert = |mode| cache.insert(key, VALUE).mode(mode).apply().unwrap();
    let lookup = |create| MetaFlagsLookup { create, counts: false };
    let mark = Some(MetaFlagsChange { ttl: Some(Ttl::seconds(5000)), flags: MetaFlags::Unchanged });
    match random.uniform(9) {
        0 => insert(Mode::Add) == Stored::NotStored,
        1 => insert(Mode::Replace) == Stored::Stored,
        2 => cache.touch(key, Ttl::seconds(1000 + random.uniform(1000) as u32)).unwrap(),
        3 => cache.increment(key, 1).unwrap().is_some(),
        4 => {
            let count = Count { initial: Some((7, Ttl::Never)), ..Count::plain(Change::Add(1)) };
            matches!(cache.count(key, &count).unwrap(), Changed::Done(number) if !number.is_new)
        }
        5 => {
            let Lookup::Hit(item) = cache.get_with_token(key) else { return false };
            let token = item.cas();
            drop(item);
            // Others change no value of this thread: only the bucket may have changed.
            cache.insert(key, VALUE).mode(Mode::Cas(token)).apply().unwrap() != Stored::NotFound
        }
        6 => cache.get_and_touch(key, Ttl::seconds(3000)).unwrap().is_hit(),
        7 => {
            let found = cache.update_meta_flags(key, lookup(Some(Ttl::Never.into())), |_| mark).unwrap();
            matches!(found, MetaFlagsOutcome::Found { .. })
        }
        _ => cache.delete_if(key, 1).unwrap() == Changed::Exists,
    }
}

#[test]
fn no_change_takes_an_evicted_value_for_absent() {
    for round in seeds(2, 40) {
        let folder = tempfile::tempdir().unwrap();
        let builder = Cache::builder().memory(ByteSize::mib(4)).clock(Clock::Manual);
        let builder = builder.flash_promotion(FlashPromotion::Never).policy(Policy::Fifo);
        let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(256)).build().unwrap();
        (0..KEYS).for_each(|number| _ = cache.insert(&key(number), VALUE).apply().unwrap());
        let (is_over, wrong, changes) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for number in 0..KEYS {
                let (cache, is_over, wrong, changes) = (&cache, &is_over, &wrong, &changes);
                scope.spawn(move || {
                    let mut random = Random::new(round * u64::from(KEYS) + u64::from(number));
                    let key = key(number);
                    while !is_over.load(Ordering::Relaxed) {
                        wrong.fetch_add(u32::from(!change(cache, &key, &mut random)), Ordering::Relaxed);
                        changes.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            // 120 MB: flash reclaims nothing.
            for number in 0..20_000_u32 {
                cache.insert(&number.to_le_bytes(), &[9; 6000]).apply().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let stats = cache.flash_stats().unwrap();
        assert_eq!(wrong.into_inner(), 0, "of {changes:?} changes; {stats:?}");
        assert!(stats.tier.drops.total() == 0, "{stats:?}");
        cache.verify();
    }
}
