//! Objects on flash are found after a restart of the cache, unless they were changed.

use ebbtide::memcached::{ByteSize, Cache, CacheBuilder, Clock, FlashOptions, Mode, Stored, Ttl};
use std::path::Path;
use std::time::Duration;

const OBJECTS: u32 = 20_000;

fn builder(folder: &Path) -> CacheBuilder {
    let options = FlashOptions { rewrite_threshold: 1, ..FlashOptions::default() };
    let builder = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual);
    builder.flash(folder.join("flash"), ByteSize::mib(64)).flash_options(options)
}

fn value(number: u32, version: u8) -> Vec<u8> {
    let mut value = vec![version; if number.is_multiple_of(20) { 5000 } else { 300 }];
    value[..4].copy_from_slice(&number.to_le_bytes());
    value
}

fn fill(cache: &Cache) {
    for number in 0..OBJECTS {
        let ttl = if number % 10 == 1 { Ttl::seconds(100) } else { Ttl::Never };
        cache.insert(&number.to_le_bytes(), &value(number, 1)).flags(number).ttl(ttl).apply().unwrap();
    }
}

fn get(cache: &Cache, number: u32) -> Option<Vec<u8>> {
    cache.get(&number.to_le_bytes()).hit().map(|item| item.to_vec())
}

fn notices(cache: &Cache) -> String {
    cache.flash_stats().unwrap().notices.join("\n")
}

#[test]
fn a_dropped_cache_restarts_warm() {
    let folder = tempfile::tempdir().unwrap();
    let cache = builder(folder.path()).build().unwrap();
    assert!(notices(&cache).contains("flash starts empty: it is new"), "{}", notices(&cache));
    fill(&cache);
    for number in (0..OBJECTS).step_by(7) {
        match number % 3 {
            0 => _ = cache.delete(&number.to_le_bytes()),
            1 => _ = cache.insert(&number.to_le_bytes(), &value(number, 2)).apply().unwrap(),
            _ => _ = cache.touch(&number.to_le_bytes(), Ttl::seconds(50)).unwrap(),
        }
    }
    let held = cache.flash_stats().unwrap().tier.objects;
    assert!(held > u64::from(OBJECTS / 4), "{held} on flash");
    drop(cache);
    let cache = builder(folder.path()).build().unwrap();
    assert!(notices(&cache).contains("flash is warm after a stop"), "{}", notices(&cache));
    let mut found = 0;
    let mut look = |cache: &Cache, number: u32| {
        let Some(got) = get(cache, number) else { return };
        let version = if number.is_multiple_of(7) && number % 3 == 1 { 2 } else { 1 };
        assert!(!number.is_multiple_of(7) || !number.is_multiple_of(3), "{number} was deleted");
        assert_eq!(got, value(number, version));
        found += 1;
    };
    (0..OBJECTS / 2).for_each(|number| look(&cache, number));
    cache.maintain(Duration::from_secs(60));
    let touched = |number: u32| number.is_multiple_of(7) && number % 3 == 2;
    (0..OBJECTS).filter(|&number| touched(number)).for_each(|number| assert_eq!(get(&cache, number), None));
    cache.maintain(Duration::from_secs(101));
    (0..OBJECTS).filter(|number| number % 10 == 1 && !number.is_multiple_of(7)).for_each(|number| {
        assert_eq!(get(&cache, number), None, "nothing outlives its time by a restart");
    });
    (OBJECTS / 2..OBJECTS).for_each(|number| look(&cache, number));
    // The others were deleted, overwritten or touched, or their time came.
    assert!(found > held / 4 * 3, "{found} found of {held}");
    cache.verify();
    cache.flush(Duration::ZERO);
    drop(cache);
    let cache = builder(folder.path()).build().unwrap();
    assert!((0..OBJECTS).all(|number| get(&cache, number).is_none()), "all was flushed");
}

/// A new memory file is the case in which a warm start has no tokens.
#[test]
fn tokens_that_no_start_resumed_are_refused() {
    const TOKENS: u32 = 500;
    let folder = tempfile::tempdir().unwrap();
    let cache = builder(folder.path()).build().unwrap();
    fill(&cache);
    let token = |cache: &Cache, number: u32| cache.get_with_token(&number.to_le_bytes()).hit().map(|item| item.cas());
    let handed: Vec<_> = (0..TOKENS).filter_map(|number| Some((number, token(&cache, number)?))).collect();
    for number in OBJECTS..2 * OBJECTS {
        cache.insert(&number.to_le_bytes(), &value(number, 1)).apply().unwrap();
    }
    drop(cache);
    let cache = builder(folder.path()).memory_file(folder.path().join("memory")).build().unwrap();
    let unknown = || cache.flash_stats().unwrap().unknown_tokens;
    let cas =
        |number: u32, token| cache.insert(&number.to_le_bytes(), &value(number, 2)).mode(Mode::Cas(token)).apply();
    let present: Vec<_> = handed.iter().filter(|(number, _)| get(&cache, *number).is_some()).collect();
    assert!(present.len() > TOKENS as usize / 2, "{} of {TOKENS} on flash", present.len());
    for (refusals, (number, token)) in (1..).zip(&present) {
        assert_eq!((cas(*number, *token), unknown()), (Ok(Stored::Exists), refusals), "{number}");
    }
    for (number, _) in &present {
        assert_eq!(get(&cache, *number), Some(value(*number, 1)));
        assert_eq!(cas(*number, token(&cache, *number).unwrap()), Ok(Stored::Stored), "a new token fits");
    }
    assert_eq!(unknown(), present.len() as u64);
    cache.verify();
}

#[test]
fn dropping_a_busy_cache_leaves_flash_warm() {
    let folder = tempfile::tempdir().unwrap();
    let build = || builder(folder.path()).clock(Clock::System).build().unwrap();
    drop(build());
    for _ in 0..5 {
        let cache = build();
        assert!(notices(&cache).contains("flash is warm after a stop"), "{}", notices(&cache));
        (0..10_000_u32).for_each(|number| _ = cache.insert(&number.to_le_bytes(), &[7; 3000]).apply().unwrap());
    }
}

#[test]
fn changed_options_start_cold_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let fill_and_drop = |builder: CacheBuilder| fill(&builder.build().unwrap());
    let starts = |builder: CacheBuilder, why: &str| {
        let cache = builder.build().unwrap();
        assert!(notices(&cache).contains(why), "{}", notices(&cache));
        assert!((0..OBJECTS).all(|number| get(&cache, number).is_none()));
    };
    fill_and_drop(builder(folder.path()));
    let options = FlashOptions { small_share: Some(0.3), ..FlashOptions::default() };
    starts(builder(folder.path()).flash_options(options), "the share of small objects is");
    fill_and_drop(builder(folder.path()));
    let options = FlashOptions { warm_restart: false, ..FlashOptions::default() };
    starts(builder(folder.path()).flash_options(options), "");
    fill_and_drop(builder(folder.path()));
    let larger = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual);
    starts(larger.flash(folder.path().join("flash"), ByteSize::mib(96)), "its size is");
}

/// Keys that change: the next start does not find their earlier values.
const CHANGED: std::ops::Range<u32> = 0..100;

#[test]
fn late_uploads_leave_nothing_stale_on_flash() {
    let folder = tempfile::tempdir().unwrap();
    let cache = builder(folder.path()).build().unwrap();
    fill(&cache);
    let upload = |number: u32| cache.upload(&number.to_le_bytes(), 3, 0, Ttl::Never, Mode::Set).unwrap();
    let uploads: Vec<_> = CHANGED.map(upload).collect();
    drop(cache);
    for mut upload in uploads {
        upload.write(b"new").unwrap();
        upload.finish().unwrap();
    }
    let cache = builder(folder.path()).build().unwrap();
    assert!(notices(&cache).contains("flash is warm after a stop"), "{}", notices(&cache));
    assert!(CHANGED.filter_map(|number| get(&cache, number)).all(|found| found == b"new"));
    assert!((CHANGED.end..OBJECTS).any(|number| get(&cache, number).is_some()));
}

#[test]
fn changes_after_closing_flash_invalidate_copies() {
    let folder = tempfile::tempdir().unwrap();
    let cache = builder(folder.path()).build().unwrap();
    fill(&cache);
    cache.close_flash();
    for number in CHANGED {
        match number % 2 {
            0 => _ = cache.delete(&number.to_le_bytes()),
            _ => _ = cache.insert(&number.to_le_bytes(), b"new").apply().unwrap(),
        }
    }
    drop(cache);
    let cache = builder(folder.path()).build().unwrap();
    assert!(notices(&cache).contains("flash is warm after a stop"), "{}", notices(&cache));
    assert!({ CHANGED }.all(|number| get(&cache, number).is_none()));
    assert!((CHANGED.end..OBJECTS).any(|number| get(&cache, number).is_some()));
}

#[test]
fn a_scan_outliving_the_cache_visits_flash() {
    let folder = tempfile::tempdir().unwrap();
    let cache = builder(folder.path()).build().unwrap();
    fill(&cache);
    let met = |cache: Cache, outlives: bool| {
        let (mut scan, mut met) = (cache.scan().unwrap(), 0);
        let cache = (!outlives).then_some(cache);
        while scan.advance(|_| met += 1) {}
        drop(cache);
        met
    };
    let within = met(cache.clone(), false);
    assert!(met(cache, true) == within && within > OBJECTS / 4, "{within}");
}

#[test]
fn equal_options_or_less_memory_start_warm() {
    for (objects, bytes, memory_mib, flash_mib, next_mib) in [(60_000_u32, 1200, 4, 64, 4), (200_000, 60, 4, 40, 3)] {
        let folder = tempfile::tempdir().unwrap();
        let build = |mib| {
            let builder = Cache::builder().memory(ByteSize::mib(mib)).max_value(ByteSize::kib(64));
            builder.clock(Clock::Manual).flash(folder.path().join("flash"), ByteSize::mib(flash_mib)).build().unwrap()
        };
        let cache = build(memory_mib);
        (0..objects).for_each(|number| _ = cache.insert(&number.to_le_bytes(), &vec![7; bytes]).apply().unwrap());
        let held = cache.flash_stats().unwrap().tier.objects;
        drop(cache);
        let cache = build(next_mib);
        assert!(notices(&cache).contains("flash is warm after a stop"), "{bytes}: {}", notices(&cache));
        assert!(cache.flash_stats().unwrap().tier.objects > held / 10 * 9);
    }
}
