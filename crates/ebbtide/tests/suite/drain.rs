//! A clean stop without a memory file writes the objects in memory to flash.

use ebbtide::flash::{AdmissionOptions, AdmissionPolicy, WriteBudget};
use ebbtide::memcached::{
    ByteSize, Cache, CacheBuilder, Clock, DrainEnd, FlashDrained, FlashOptions, MetaFlags, MetaFlagsChange,
    MetaFlagsLookup, Pool, PoolOptions, Ttl,
};
use std::path::Path;
use std::time::Duration;

const OBJECTS: u32 = 6000;

fn builder(folder: &Path, admission: AdmissionOptions) -> CacheBuilder {
    let options = FlashOptions { admission, ..FlashOptions::default() };
    let builder = Cache::builder().memory(ByteSize::mib(16)).clock(Clock::Manual).flash_options(options);
    builder.flash(folder.join("flash"), ByteSize::mib(64))
}

fn set(cache: &Pool, number: u32) {
    cache.insert(&number.to_le_bytes(), &[number as u8; 4000]).apply().unwrap();
}

fn hits(cache: &Pool, numbers: impl IntoIterator<Item = u32>) -> u32 {
    let get = |number: u32| cache.get(&number.to_le_bytes()).hit().map(|item| item.to_vec());
    let found = numbers.into_iter().filter_map(|number| get(number).map(|value| (number, value)));
    found.inspect(|(number, value)| assert!(*value == [*number as u8; 4000], "{number}")).count() as u32
}

fn drained(cache: Cache) -> FlashDrained {
    let report = cache.close().unwrap();
    cache.verify();
    assert_eq!(report.saved, None);
    report.drained.expect("there is flash and no memory file")
}

#[test]
fn hot_objects_survive_a_stop_without_memory_file() {
    for drains in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let build = || {
            let builder = builder(folder.path(), AdmissionOptions::default());
            if drains { builder } else { builder.flash_drain(Duration::ZERO) }.build().unwrap()
        };
        let cache = build();
        (0..OBJECTS).for_each(|number| set(&cache, number));
        let hot = OBJECTS - 500..OBJECTS;
        assert_eq!(hits(&cache, hot.clone()), 500);
        if drains {
            let items = cache.stats().items;
            let drained = drained(cache);
            assert_eq!((drained.end, drained.left, drained.without_place), (DrainEnd::Complete, 0, 0), "{drained:?}");
            assert_eq!(drained.objects + drained.unchanged, items, "{drained:?}");
            assert_eq!(drained.bytes, drained.objects * 4004);
        } else {
            assert_eq!(cache.close().unwrap().drained, None);
            drop(cache);
        }
        let cache = build();
        assert_eq!(hits(&cache, hot), if drains { 500 } else { 0 });
        if drains {
            assert_eq!(hits(&cache, 0..OBJECTS), OBJECTS, "flash has the others, too");
        }
        cache.verify();
    }
}

#[test]
fn small_objects_survive_the_first_stop() {
    for (memory, flash, objects, length) in [(16, 64, 40_000, 300), (64, 1024, 150_000, 300), (16, 256, 100_000, 40)] {
        let folder = tempfile::tempdir().unwrap();
        let build = || {
            let builder = Cache::builder().memory(ByteSize::mib(memory));
            builder.flash(folder.path().join("flash"), ByteSize::mib(flash)).build().unwrap()
        };
        let cache = build();
        let sample = || (0..objects).step_by(20);
        let present = |cache: &Cache| {
            let is_hit = |number: &u32| cache.get(&number.to_le_bytes()).hit().is_some_and(|item| item.len() == length);
            sample().filter(is_hit).count()
        };
        (0..objects).for_each(|number| _ = cache.insert(&number.to_le_bytes(), &vec![7; length]).apply().unwrap());
        assert_eq!(present(&cache), sample().count(), "memory holds all");
        let drained = drained(cache);
        assert_eq!((drained.objects, drained.end), (u64::from(objects), DrainEnd::Complete), "{drained}");
        let cache = build();
        let found = present(&cache);
        let all = sample().count();
        // A set of small objects may be crowded while others have space.
        assert!(found >= all / 1000 * 998, "{memory} and {flash} MiB, {length} bytes: {found} of {all}, {drained}");
        cache.verify();
    }
}

#[test]
fn pools_are_drained_by_what_they_hold() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..20).map(|number| format!("pool{number}")).collect();
    let build = |budget| {
        let options = AdmissionOptions { budget, ..AdmissionOptions::default() };
        let builder = builder(folder.path(), options).memory(ByteSize::mib(64)).max_value(ByteSize::kib(16));
        let builder = builder.flash_drain(Duration::from_secs(16));
        let builder = builder.pool(PoolOptions::named("default").min(ByteSize::mib(24)));
        let pool = |name: &String| PoolOptions::named(name).min(ByteSize::mib(if name == "pool7" { 4 } else { 0 }));
        names.iter().fold(builder, |builder, name| builder.pool(pool(name))).build().unwrap()
    };
    let fill = |cache: &Cache| {
        (0..4000).for_each(|number| set(cache, number));
        (0..400).for_each(|number| set(&cache.pool("pool7").unwrap(), number));
    };
    let found = |cache: &Cache| [hits(cache, 0..4000), hits(&cache.pool("pool7").unwrap(), 0..400)];
    let cache = build(None);
    fill(&cache);
    assert_eq!(found(&cache), [4000, 400], "memory holds all");
    let report = drained(cache);
    assert_eq!((report.objects, report.left, report.end), (4400, 0, DrainEnd::Complete), "{report}");
    // 8 MiB of 17 MiB.
    let cache = build(Some(WriteBudget::BytesPerSecond(512 << 10)));
    assert_eq!(found(&cache), [4000, 400]);
    fill(&cache);
    let report = drained(cache);
    assert_eq!((report.end, report.objects + report.left), (DrainEnd::WriteBudget, 4400), "{report}");
    let cache = build(None);
    let [large, small] = found(&cache).map(f64::from);
    let (large, small) = (large / 4000.0, small / 400.0);
    assert!((0.3..0.7).contains(&large) && (large - small).abs() < 0.15, "{large} and {small} of the pools");
}

#[test]
fn admission_does_not_hold_objects_back() {
    let folder = tempfile::tempdir().unwrap();
    let admission = AdmissionOptions { policy: AdmissionPolicy::Probability(0.0), ..AdmissionOptions::default() };
    let cache = builder(folder.path(), admission).build().unwrap();
    (0..1000).for_each(|number| set(&cache, number));
    assert_eq!(drained(cache).objects, 1000);
    let cache = builder(folder.path(), admission).build().unwrap();
    assert_eq!(hits(&cache, 0..1000), 1000);
}

#[test]
fn the_write_budget_keeps_the_most_frequent_objects() {
    let folder = tempfile::tempdir().unwrap();
    let budget = Some(WriteBudget::BytesPerSecond(256 << 10));
    let admission = AdmissionOptions { budget, ..AdmissionOptions::default() };
    // 4 MiB of 12 MiB.
    let build = || builder(folder.path(), admission).flash_drain(Duration::from_secs(16)).build().unwrap();
    let cache = build();
    let count = 3000;
    (0..count).for_each(|number| set(&cache, number));
    let is_hot = |number: &u32| number.is_multiple_of(5);
    for round in 1..6 {
        cache.maintain(Duration::from_secs(round * 60));
        assert_eq!(hits(&cache, (0..count).filter(is_hot)), count / 5);
    }
    let drained = drained(cache);
    assert_eq!(drained.end, DrainEnd::WriteBudget, "{drained:?}");
    assert!(drained.bytes < 5 << 20 && drained.left > 1500, "{drained:?}");
    assert_eq!(drained.left + drained.objects, u64::from(count));
    assert!(drained.to_string().ends_with("are lost: the write budget was used up"), "{drained}");
    let cache = build();
    assert_eq!(hits(&cache, (0..count).filter(is_hot)), count / 5, "the most frequent are there");
    assert!(hits(&cache, (0..count).filter(|number| !is_hot(number))) < 700);
}

#[test]
fn objects_that_flash_cannot_hold_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let build = || builder(folder.path(), AdmissionOptions::default()).build().unwrap();
    let cache = build();
    cache.insert(b"plain", b"value").flags(7).ttl(Ttl::seconds(1000)).apply().unwrap();
    cache.insert(b"number", b"41").apply().unwrap();
    assert_eq!(cache.increment(b"number", 1), Ok(Some(42)));
    cache.insert(b"token", b"value").token(Some(77)).apply().unwrap();
    cache.insert(b"stale", b"value").apply().unwrap();
    let stale = MetaFlagsChange { flags: MetaFlags::Stale { token: None }, ..MetaFlagsChange::default() };
    let lookup = MetaFlagsLookup { create: None, counts: false };
    cache.update_meta_flags(b"stale", lookup, |_| Some(stale)).unwrap();
    cache.insert(b"short", b"value").ttl(Ttl::seconds(5)).apply().unwrap();
    cache.insert(b"long", &vec![3; 700_000]).apply().unwrap();
    let drained = drained(cache);
    let counts = (drained.objects, drained.unsupported, drained.refused, drained.without_place, drained.left);
    assert_eq!(counts, (3, 2, 1, 0, 0), "{drained:?}");
    let cache = build();
    let get = |key: &[u8]| cache.get(key).hit().map(|item| (item.to_vec(), item.flags(), item.ttl().is_some()));
    assert_eq!(get(b"plain"), Some((b"value".to_vec(), 7, true)));
    assert_eq!(get(b"number"), Some((b"42".to_vec(), 0, false)));
    assert_eq!(get(b"long"), Some((vec![3; 700_000], 0, false)));
    for key in [&b"token"[..], b"stale", b"short"] {
        assert_eq!(get(key), None);
    }
}
