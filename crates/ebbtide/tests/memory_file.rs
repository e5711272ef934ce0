//! A cache with a memory file comes back after a clean stop, and after nothing else.

use ebbtide::memcached::{
    ByteSize, Cache, CacheBuilder, Clock, CloseReport, Error, FlashOptions, MemoryStart, Mode, Pool, PoolOptions,
    Stored, Ttl,
};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

fn builder(path: &Path) -> CacheBuilder {
    Cache::builder().memory(ByteSize::mib(16)).clock(Clock::Manual).memory_file(path)
}

fn fill(cache: &Pool, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let value = vec![number as u8; number as usize % 700];
        let ttl = if number % 3 == 0 { Ttl::Never } else { Ttl::seconds(100 + number % 1000) };
        cache.insert(&number.to_le_bytes(), &value).flags(number).ttl(ttl).apply().unwrap();
    }
}

/// Value, flags, life, token.
type Entry = (Vec<u8>, u32, Option<Duration>, u64);

fn entries(cache: &Pool) -> BTreeMap<Vec<u8>, Entry> {
    let (mut found, mut scan) = (BTreeMap::new(), cache.scan().unwrap());
    while scan.advance(|entry| {
        let item = entry.item().expect("there is no flash");
        found.insert(entry.key().to_vec(), (item.to_vec(), item.flags(), item.ttl(), item.cas()));
    }) {}
    found
}

fn cold_reason(cache: &Cache) -> String {
    match cache.memory_start() {
        Some(MemoryStart::Cold { reason }) => reason.clone(),
        other => panic!("{other:?}"),
    }
}

fn is_warm(cache: &Cache) -> bool {
    matches!(cache.memory_start(), Some(MemoryStart::Warm { .. }))
}

#[test]
fn everything_is_back_after_a_clean_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory");
    let cache = builder(&path).build().unwrap();
    assert!(cold_reason(&cache).contains("new"), "{}", cold_reason(&cache));
    fill(&cache, 0..20_000);
    cache.insert(b"long", &vec![9; 700_000]).apply().unwrap();
    cache.maintain(Duration::from_secs(50));
    let before = entries(&cache);
    let saved = cache.close().unwrap().saved.expect("there is a file");
    assert_eq!(saved.objects, before.len() as u64);
    assert_eq!(cache.close(), Ok(CloseReport::default()), "it is closed already");
    drop(cache);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let cache = builder(&path).build().unwrap();
    assert!(is_warm(&cache));
    assert!(entries(&cache) == before);
    cache.verify();
    // Tokens of clients are valid still.
    let token = before[&b"long"[..]].3;
    assert_eq!(cache.insert(b"long", b"short").mode(Mode::Cas(token)).apply(), Ok(Stored::Stored));
    // Time goes on where it stopped.
    cache.maintain(Duration::from_secs(1200));
    assert!(
        entries(&cache).keys().all(|key| key == b"long" || u32::from_le_bytes(key[..].try_into().unwrap()) % 3 == 0)
    );
    cache.verify();
}

#[test]
fn pools_come_back_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory");
    let builder = |pools: &[&str]| {
        let builder = builder(&path).memory(ByteSize::mib(32)).max_value(ByteSize::kib(512));
        pools.iter().fold(builder, |builder, name| builder.pool(PoolOptions::named(*name)))
    };
    let cache = builder(&["kept", "dropped"]).build().unwrap();
    cache.add_pool(&PoolOptions::named("late")).unwrap();
    let pool = |cache: &Cache, name: &str| cache.pool(name).unwrap();
    for (name, seed) in [("default", 1), ("kept", 2), ("dropped", 3), ("late", 4)] {
        fill(&pool(&cache, name), seed * 1000..seed * 10_000);
        pool(&cache, name).insert(b"long", &vec![seed as u8; 400_000]).apply().unwrap();
    }
    // Frames move: no pool has those that it began with.
    pool(&cache, "kept").resize(ByteSize::mib(2), ByteSize::mib(3)).unwrap();
    pool(&cache, "kept").resize(ByteSize::mib(12), ByteSize::mib(20)).unwrap();
    fill(&pool(&cache, "kept"), 50_000..70_000);
    pool(&cache, "kept").insert(b"long", &[5; 400_000]).apply().unwrap();
    let before = ["default", "kept"].map(|name| entries(&pool(&cache, name)));
    assert!(before.iter().all(|entries| entries.len() > 5000 && entries.contains_key(&b"long"[..])));
    cache.verify();
    assert!(cache.close().unwrap().saved.expect("there is a file").objects > 20_000);
    drop(cache);

    let cache = builder(&["new", "kept"]).build().unwrap();
    let Some(start @ MemoryStart::Warm { objects, dropped_pools, .. }) = cache.memory_start() else {
        panic!("{:?}", cache.memory_start());
    };
    assert_eq!(dropped_pools, &["dropped", "late"]);
    assert!(start.to_string().ends_with("not configured: dropped, late"), "{start}");
    assert_eq!(*objects, before.iter().map(|entries| entries.len() as u64).sum::<u64>());
    cache.verify();
    let after = |name| entries(&pool(&cache, name));
    // Each had more memory than it has its part of now.
    assert!(after("default").iter().all(|(key, entry)| before[0][key] == *entry) && after("default").len() > 5000);
    assert!(after("kept").iter().all(|(key, entry)| before[1][key] == *entry) && after("kept").len() > 5000);
    assert!(after("new").is_empty());
    fill(&pool(&cache, "new"), 0..20_000);
    cache.maintain(Duration::from_secs(1));
    let limits = ["default", "kept", "new"].map(|name| pool(&cache, name).stats().memory_limit_bytes);
    assert_eq!(limits.iter().sum::<u64>(), 32 << 20, "{limits:?}");
    assert!(limits.iter().all(|limit| *limit >= 10 << 20), "{limits:?}");
    cache.verify();
}

#[test]
fn without_a_clean_stop_the_start_is_cold() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory");
    let cache = builder(&path).build().unwrap();
    fill(&cache, 0..100);
    cache.close().unwrap();
    drop(cache);
    let cache = builder(&path).build().unwrap();
    assert!(is_warm(&cache));
    // No close.
    drop(cache);
    let cache = builder(&path).build().unwrap();
    assert!(cold_reason(&cache).contains("not stopped cleanly"));
    assert_eq!(entries(&cache).len(), 0, "what an earlier stop left is not used twice");
}

#[test]
fn other_options_are_warm() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory");
    let cache = builder(&path).build().unwrap();
    fill(&cache, 0..20_000);
    let before = entries(&cache);
    cache.close().unwrap();
    drop(cache);
    let other = builder(&path).memory(ByteSize::mib(40)).policy(ebbtide::Policy::Merge).segment_size(ByteSize::kib(4));
    let cache = other.build().unwrap();
    assert!(is_warm(&cache) && entries(&cache) == before);
    assert_eq!(cache.stats().memory_limit_bytes, 40 << 20);
    fill(&cache, 20_000..60_000);
    cache.close().unwrap();
    drop(cache);
    let cache = builder(&path).memory(ByteSize::mib(8)).build().unwrap();
    assert!(is_warm(&cache));
    cache.maintain(Duration::from_secs(1));
    let stats = cache.stats();
    assert!(stats.memory_used_bytes <= 8 << 20 && stats.items > 5000, "{stats:?}");
    cache.verify();
}

#[test]
fn a_file_that_is_not_ours_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory");
    let refusal = |path: &Path| match builder(path).build() {
        Err(Error::Configuration { option: "memory_file", reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    fs::write(&path, "somebody's letters").unwrap();
    assert!(refusal(&path).contains("holds something else"));
    assert_eq!(fs::read(&path).unwrap(), b"somebody's letters");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
    assert!(refusal(&path).contains("others may write"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(&path, folder.path().join("second")).unwrap();
    assert!(refusal(&path).contains("2 names"));
    symlink(&path, folder.path().join("link")).unwrap();
    assert!(refusal(&folder.path().join("link")).contains("symbolic link"));
    assert!(refusal(folder.path()).contains("cannot be opened"));
    assert!(refusal(&folder.path().join("no/such/folder")).contains("cannot be opened"));
}

#[test]
fn a_damaged_file_is_a_cold_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory");
    let cache = builder(&path).build().unwrap();
    fill(&cache, 0..8000);
    cache.close().unwrap();
    drop(cache);
    let whole = fs::read(&path).unwrap();
    let mut seed = 1_u64;
    let mut random = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % limit
    };
    let mut cold = 0;
    for number in 0..60 {
        fs::write(&path, &whole).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        if number % 4 == 0 {
            file.set_len(random(whole.len()) as u64).unwrap();
        } else {
            let at = random(whole.len());
            file.write_all_at(&[whole[at] ^ (1 << random(8))], at as u64).unwrap();
        }
        drop(file);
        let cache = match builder(&path).build() {
            Ok(cache) => cache,
            Err(Error::Configuration { option: "memory_file", .. }) => continue,
            Err(other) => panic!("{other}"),
        };
        cache.verify();
        match cache.memory_start().unwrap() {
            MemoryStart::Cold { .. } => {
                cold += 1;
                assert_eq!(entries(&cache).len(), 0);
            }
            // A byte of the first block that nothing is told by.
            MemoryStart::Warm { objects, .. } => assert_eq!(*objects, 8000),
        }
    }
    assert!(cold > 50, "{cold} of 60");
}

#[test]
fn one_file_serves_one_cache() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory");
    let first = builder(&path).build().unwrap();
    fill(&first, 0..100);
    let second = std::thread::spawn({
        let path = path.clone();
        move || builder(&path).build().map(|cache| is_warm(&cache))
    });
    std::thread::sleep(Duration::from_millis(300));
    assert!(!second.is_finished(), "it waits for the first");
    first.close().unwrap();
    drop(first);
    assert_eq!(second.join().unwrap(), Ok(true));
}

#[test]
fn memory_and_flash_belong_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory");
    let build = |with_file: bool| {
        let options = FlashOptions { rewrite_threshold: 1, ..FlashOptions::default() };
        let builder = Cache::builder().memory(ByteSize::mib(8)).flash_options(options);
        // A slow device delays what is evicted, and loses none of it.
        let builder = builder.flash_demotion_wait(Duration::from_secs(60));
        let builder = builder.flash(folder.path().join("flash"), ByteSize::mib(64));
        if with_file { builder.memory_file(&path) } else { builder }.build().unwrap()
    };
    let set = |cache: &Cache, version: u8| {
        for number in 0..30_000_u32 {
            cache.insert(&number.to_le_bytes(), &[version; 300]).apply().unwrap();
        }
    };
    let newest = |cache: &Cache| {
        let get = |number: u32| cache.get(&number.to_le_bytes()).hit().map(|item| item.to_vec()[0]);
        let found: Vec<u8> = (0..30_000).filter_map(get).collect();
        let (least, most) = (found.iter().min().copied(), found.iter().max().copied());
        (found.len(), least.unwrap_or(0), most.unwrap_or(0))
    };
    let cache = build(true);
    set(&cache, 1);
    let in_memory = cache.close().unwrap().saved.expect("there is a file").objects;
    drop(cache);
    let cache = build(true);
    assert!(in_memory > 5000);
    assert!(matches!(cache.memory_start(), Some(MemoryStart::Warm { objects, .. }) if *objects == in_memory));
    let (found, least, _) = newest(&cache);
    // Of what flash has, a busy disk may have lost some.
    let notices = cache.flash_stats().unwrap().notices;
    assert!(found as u64 > in_memory + 2000 && least == 1, "{found} of {in_memory}: {notices:?}");
    cache.close().unwrap();
    drop(cache);
    // A run with flash alone writes newer values, and what the file has is older.
    let kept = fs::read(&path).unwrap();
    let cache = build(false);
    set(&cache, 2);
    cache.close().unwrap();
    drop(cache);
    assert_eq!(fs::read(&path).unwrap().len(), kept.len());
    let cache = build(true);
    assert!(cold_reason(&cache).contains("flash has run without the memory file"), "{}", cold_reason(&cache));
    assert_eq!(newest(&cache).1, 2, "no old value");
}
