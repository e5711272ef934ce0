//! Statistics of flash in the library's interface.

use ebbtide::flash::{AdmissionPolicy, FlashPromotion, FlashStats, FlashTotals, Health, Options, WriteBudget};
use ebbtide::{ByteSize, Cache, Clock, InsertOptions, Pool, PoolOptions};
use ebbtide_flash::device::{BLOCK, Delivery, Device, Direction, FaultyDevice};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const VALUE: [u8; 3000] = [7; 3000];
/// Of 3 KiB each: more than twice the memory.
const ENTRIES: u32 = 4000;
const USERS: &str = "users";

fn open(options: Options) -> (TempDir, Cache) {
    let folder = tempfile::tempdir().unwrap();
    let builder = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual).flash_options(options);
    let builder = builder.pool(PoolOptions::named(USERS).weight(3));
    let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(32)).build().unwrap();
    (folder, cache)
}

fn key(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

fn fill(pool: &Pool) {
    (0..ENTRIES).for_each(|number| pool.insert(key(number), VALUE).unwrap());
}

fn flash(pool: &Pool) -> FlashStats {
    pool.stats().flash.expect("there is flash")
}

#[test]
fn a_cache_without_flash_has_no_flash_statistics() {
    let cache = Cache::builder().memory(ByteSize::mib(6)).build().unwrap();
    assert_eq!((cache.stats().flash, cache.pool("default").unwrap().stats().flash), (None, None));
    assert!(!cache.stats().to_string().contains("flash"));
}

#[test]
fn statistics_of_flash_tell_pools_apart() {
    let (_folder, cache) = open(Options::new().promotion(FlashPromotion::Never));
    let users = cache.pool(USERS).unwrap();
    fill(&users);
    let found = (0..ENTRIES).filter(|number| users.get(key(*number)).is_some()).count() as u64;
    let (of_users, of_default, sum) = (flash(&users), flash(&cache), cache.stats().flash.unwrap());
    let engine = cache.memcached().flash_stats().unwrap();
    // `flash` of a cache derefs to its pool `default`.
    assert_eq!((of_default.hits, of_default.used_bytes, of_default.inserted_bytes), (0, 0, 0));
    assert!(of_users.hits > 1000 && of_users.hits < found, "{found} found: {of_users:?}");
    assert_eq!(of_users.hits, engine.tier.hits_large + engine.tier.hits_small);
    let entry_bytes = (key(0).len() + VALUE.len()) as u64;
    assert_eq!(of_users.inserted_bytes, sum.totals.inserts * entry_bytes);
    assert!(of_users.used_bytes >= of_users.inserted_bytes && of_users.used_bytes < 32 << 20, "{of_users:?}");
    assert!(of_users.index_bytes > 0 && sum.totals.entries > 2000, "{sum:?}");
    assert!(of_users.share_bytes > of_default.share_bytes && sum.share_bytes <= sum.totals.capacity_bytes, "{sum:?}");
    assert!(sum.totals.written_bytes > 2000 * entry_bytes && sum.totals.memory_used_bytes > 0, "{sum:?}");
    assert_eq!((sum.hits, sum.used_bytes), (of_users.hits, of_users.used_bytes));
    assert_eq!((of_users.totals, sum.totals.health), (sum.totals, Health::Healthy));
    let text = cache.stats().to_string();
    let expected = format!("; flash: {} hits, ", sum.hits);
    assert!(text.contains(&expected) && text.ends_with("0 refused, 0 dropped, device healthy"), "{text}");
}

#[test]
fn a_batch_counts_each_hit_of_flash() {
    let counted = |promotion| {
        let (_folder, cache) = open(Options::new().promotion(promotion));
        fill(&cache);
        let keys: Vec<[u8; 4]> = (0..50).map(key).collect();
        let memory = cache.memcached().without_waiting();
        let in_memory = keys.iter().filter(|key| memory.get(*key).is_hit()).count() as u64;
        let found = cache.get_many(&keys).into_iter().flatten().count() as u64;
        // A promotion may evict one that was in memory.
        let (flash, on_flash) = (flash(&cache), found - in_memory..=found);
        assert!(on_flash.contains(&flash.hits) && flash.hits > 30, "{on_flash:?}: {flash:?}");
        flash.totals.promotions
    };
    assert_eq!(counted(FlashPromotion::Never), 0);
    assert!(counted(FlashPromotion::Always) > 30);
}

#[test]
fn refusals_are_counted_by_their_option() {
    let refused = |options: Options| {
        let (_folder, cache) = open(options);
        let a_minute = InsertOptions::new().ttl(Duration::from_secs(60));
        for second in 0..6 {
            let keys = (0..ENTRIES).map(|number| key(second * ENTRIES + number));
            keys.for_each(|key| cache.insert_with(key, VALUE, a_minute).unwrap());
            cache.maintain(Duration::from_secs(10 * u64::from(second)));
        }
        let totals = flash(&cache).totals;
        let FlashTotals { refused_by_min_ttl, refused_by_min_value, refused_by_admission, .. } = totals;
        [refused_by_min_ttl, refused_by_min_value, refused_by_admission, totals.refused_by_budget]
            .map(|count| count > 0)
    };
    assert_eq!(refused(Options::new()), [false, false, false, false]);
    assert_eq!(refused(Options::new().min_ttl(Duration::from_secs(61))), [true, false, false, false]);
    assert_eq!(refused(Options::new().min_value(ByteSize::bytes(3001))), [false, true, false, false]);
    let half = AdmissionPolicy::Probability(0.5);
    assert_eq!(refused(Options::new().admission(half)), [false, false, true, false]);
    let little = WriteBudget::BytesPerSecond(1 << 18);
    assert_eq!(refused(Options::new().write_budget(little)), [false, false, false, true]);
}

#[test]
fn a_failing_device_shows_in_the_statistics() {
    let device = Arc::new(FaultyDevice::new(32 << 20, 1, Delivery::AtOnce));
    let builder = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual);
    let shared = Arc::clone(&device) as Arc<dyn Device>;
    let cache = builder.engine(|engine| engine.flash_device(shared)).build().unwrap();
    fill(&cache);
    assert_eq!((flash(&cache).totals.read_errors, flash(&cache).totals.health), (0, Health::Healthy));
    device.break_range(Direction::Read, BLOCK as u64..32 << 20);
    let found = (0..ENTRIES).filter(|number| cache.get(key(*number)).is_some()).count();
    assert!(found < ENTRIES as usize, "entries that the device cannot read are misses");
    cache.maintain(Duration::from_secs(60));
    let totals = flash(&cache).totals;
    assert!(totals.read_errors > 0 && totals.health > Health::Healthy, "{totals:?}");
}
