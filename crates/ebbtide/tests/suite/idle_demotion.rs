//! Demotion of idle values: limits that change while the cache runs, and values that are not read.

use ebbtide::flash::{AdmissionOptions, WriteBudget};
use ebbtide::memcached::{ByteSize, Cache, CacheBuilder, Clock, FlashLimits, FlashOptions, FlashPromotion, Ttl};
use std::time::Duration;

const VALUE: [u8; 3000] = [7; 3000];
const KEYS: u32 = 1000;

fn builder(folder: &tempfile::TempDir) -> CacheBuilder {
    let builder = Cache::builder().memory(ByteSize::mib(32)).clock(Clock::Manual);
    builder.flash(folder.path().join("flash"), ByteSize::mib(64)).flash_promotion(FlashPromotion::Never)
}

fn insert(cache: &Cache, first: u32, value: &[u8], ttl: Ttl) {
    (first..first + KEYS).for_each(|number| _ = cache.insert(&number.to_le_bytes(), value).ttl(ttl).apply().unwrap());
}

/// How many of them are in memory, and how many are there at all; none of these looks counts as a use in memory.
fn there(cache: &Cache, first: u32) -> (usize, usize) {
    let numbers = || (first..first + KEYS).map(u32::to_le_bytes);
    let in_memory = numbers().filter(|key| cache.peek(key).is_hit()).count();
    let on_flash = numbers().filter(|key| !cache.peek(key).is_hit() && cache.get(key).is_hit()).count();
    (in_memory, in_memory + on_flash)
}

const ALL: usize = KEYS as usize;

/// Bound for the few that are in segments still being filled.
const HARDLY: usize = ALL / 10;

fn pass_time(cache: &Cache, from: u64, to: u64) {
    (from..=to).step_by(10).for_each(|second| cache.maintain(Duration::from_secs(second)));
}

#[test]
fn idle_values_are_demoted_before_memory_fills() {
    let folder = tempfile::tempdir().unwrap();
    let cache = builder(&folder).flash_max_idle(Some(100)).build().unwrap();
    for first in [0, KEYS] {
        insert(&cache, first, &VALUE, Ttl::Never);
    }
    pass_time(&cache, 0, 90);
    assert_eq!([there(&cache, 0), there(&cache, KEYS)], [(ALL, ALL); 2], "not before their time");
    // The first keys are read, each a few times in the loop.
    for second in (100..400_u64).step_by(10) {
        (0..KEYS).for_each(|number| assert!(cache.get(&number.to_le_bytes()).is_hit()));
        cache.maintain(Duration::from_secs(second));
    }
    let stats = cache.flash_stats().unwrap();
    let ((read, all_read), (idle, all_idle)) = (there(&cache, 0), there(&cache, KEYS));
    assert_eq!((all_read, all_idle), (ALL, ALL), "nothing is lost");
    assert!(read == ALL && idle < HARDLY, "{read} that were read and {idle} others are in memory: {stats:?}");
    assert_eq!(stats.idle as usize, ALL - idle);
    assert!(cache.stats().memory_used_bytes < 20 << 20, "memory was needed for none of that");
    cache.verify();
    // Demoted values are overwritten and deleted like all others.
    insert(&cache, KEYS, b"new", Ttl::Never);
    (KEYS..2 * KEYS).for_each(|number| assert_eq!(cache.get(&number.to_le_bytes()).hit().unwrap().to_vec(), b"new"));
    (0..2 * KEYS).for_each(|number| assert!(cache.delete(&number.to_le_bytes())));
    assert_eq!([there(&cache, 0), there(&cache, KEYS)], [(0, 0); 2]);
    cache.verify();
}

#[test]
fn nothing_is_demoted_early_without_an_idle_limit() {
    let folder = tempfile::tempdir().unwrap();
    let cache = builder(&folder).build().unwrap();
    insert(&cache, 0, &VALUE, Ttl::Never);
    pass_time(&cache, 0, 5000);
    assert_eq!(there(&cache, 0), (ALL, ALL));
    assert_eq!(cache.flash_limits().unwrap().max_idle_seconds, None);
    // It begins when it is said to, and ends as well.
    let limits = FlashLimits { max_idle_seconds: Some(60), ..cache.flash_limits().unwrap() };
    cache.set_flash_limits(limits);
    assert_eq!(cache.flash_limits(), Some(limits));
    pass_time(&cache, 5010, 5100);
    let (in_memory, all) = there(&cache, 0);
    assert!(in_memory < HARDLY && all == ALL, "{in_memory} are in memory, {all} there");
    cache.set_flash_limits(FlashLimits { max_idle_seconds: None, ..limits });
    insert(&cache, KEYS, &VALUE, Ttl::Never);
    pass_time(&cache, 5110, 9000);
    assert_eq!(there(&cache, KEYS), (ALL, ALL));
    cache.verify();
}

/// A pass finds all values idle at once: it must not write them at once.
#[test]
fn idle_demotion_keeps_the_write_budget() {
    let folder = tempfile::tempdir().unwrap();
    const RATE: u64 = 2000;
    const BUFFERED: u64 = 1 << 20;
    let budget = Some(WriteBudget::BytesPerSecond(RATE));
    let admission = AdmissionOptions { budget, ..AdmissionOptions::default() };
    let options = FlashOptions { admission, ..FlashOptions::default() };
    let cache = builder(&folder).flash_options(options).flash_max_idle(Some(20)).build().unwrap();
    for first in [0, KEYS] {
        insert(&cache, first, &VALUE, Ttl::Never);
    }
    for second in (0..=4000).step_by(10) {
        cache.maintain(Duration::from_secs(second));
        let written = cache.flash_stats().unwrap().tier.written.total();
        assert!(written <= second * RATE + BUFFERED, "{written} bytes in {second} seconds");
    }
    let stats = cache.flash_stats().unwrap();
    assert!(stats.tier.written.total() > 4000 * RATE / 2 && stats.idle > 500, "it writes what it may: {stats:?}");
    assert_eq!([there(&cache, 0).1, there(&cache, KEYS).1], [ALL; 2], "nothing is lost");
    cache.verify();
}

#[test]
fn idle_values_refused_by_admission_stay_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let admission = AdmissionOptions { min_value_bytes: 3001, ..AdmissionOptions::default() };
    let options = FlashOptions { admission, ..FlashOptions::default() };
    let cache = builder(&folder).flash_options(options).flash_max_idle(Some(20)).build().unwrap();
    insert(&cache, 0, &VALUE, Ttl::Never);
    insert(&cache, KEYS, &VALUE, Ttl::seconds(1000));
    pass_time(&cache, 0, 200);
    assert_eq!([there(&cache, 0), there(&cache, KEYS)], [(ALL, ALL); 2], "too small");
    let limits = cache.flash_limits().unwrap();
    assert_eq!((limits.min_value_bytes, limits.min_ttl_seconds), (3001, 10));
    cache.set_flash_limits(FlashLimits { min_value_bytes: 3000, min_ttl_seconds: 900, ..limits });
    pass_time(&cache, 210, 300);
    assert!(there(&cache, 0).0 < HARDLY, "they may be written now");
    assert_eq!(there(&cache, KEYS), (ALL, ALL), "these expire too soon");
    // Evicted, they are lost, and counted.
    for round in 2..30 {
        insert(&cache, round * KEYS, &[1; 2999], Ttl::Never);
    }
    assert_eq!(there(&cache, KEYS).1, there(&cache, KEYS).0);
    let stats = cache.flash_stats().unwrap().tier.admission;
    assert!(stats.refused_too_small > 1000 && stats.refused_expires_soon > 0, "{stats:?}");
    cache.verify();
}
