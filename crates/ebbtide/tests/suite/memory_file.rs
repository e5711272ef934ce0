//! A cache with a memory file is warm after a clean stop, and only then.

use crate::common::folders;
use ebbtide::memcached::{
    ByteSize, Cache, CacheBuilder, Clock, CloseReport, Error, FlashOptions, MemoryFileMode, MemoryStart, Mode, Policy,
    Pool, PoolOptions, Stored, Ttl,
};
use ebbtide_flash::device::{Delivery, Faults, FaultyDevice};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

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
    for folder in folders() {
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
        // Time continues from the stop.
        cache.maintain(Duration::from_secs(1200));
        assert!(
            entries(&cache)
                .keys()
                .all(|key| key == b"long" || u32::from_le_bytes(key[..].try_into().unwrap()) % 3 == 0)
        );
        cache.verify();
    }
}

#[test]
fn pools_come_back_by_name() {
    for folder in folders() {
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
        assert!(start.to_string().ends_with("is configured: dropped, late"), "{start}");
        assert_eq!(*objects, before.iter().map(|entries| entries.len() as u64).sum::<u64>());
        cache.verify();
        let after = |name| entries(&pool(&cache, name));
        // Each had more memory than it has its part of now.
        for (name, before) in ["default", "kept"].iter().zip(&before) {
            let after = after(name);
            let is_same = |(key, (value, flags, life, _)): (&Vec<u8>, &Entry)| {
                let entry = &before[key];
                (&entry.0, &entry.1, &entry.2) == (value, flags, life)
            };
            assert!(after.iter().all(is_same) && after.len() > 5000, "{name}");
            // An entry that is evicted changes the tokens of those in its bucket, and so does the long value where it
            // is moved out of the way, with its own.
            let changed = after.iter().filter(|(key, entry)| before[*key].3 != entry.3).count();
            assert!(changed <= 6 * (before.len() - after.len()) + 7, "{changed} tokens of {name}");
            assert!(after.contains_key(&b"long"[..]), "there is space for it");
        }
        assert!(after("new").is_empty());
        fill(&pool(&cache, "new"), 0..20_000);
        cache.maintain(Duration::from_secs(1));
        let limits = ["default", "kept", "new"].map(|name| pool(&cache, name).stats().memory_limit_bytes);
        assert_eq!(limits.iter().sum::<u64>(), 32 << 20, "{limits:?}");
        assert!(limits.iter().all(|limit| *limit >= 10 << 20), "{limits:?}");
        cache.verify();
    }
}

#[test]
fn a_start_reuses_memory_of_dropped_histories() {
    for pools in [0, 2] {
        let folder = tempfile::tempdir().unwrap();
        let build = || {
            let named = |builder: CacheBuilder, pool| builder.pool(PoolOptions::named(format!("pool-{pool}")));
            (0..pools).fold(builder(&folder.path().join("memory")), named).build().unwrap()
        };
        let cache = build();
        let policy = cache.policy();
        // Each remembers evicted keys in a way of its own.
        for policy in [Policy::TwoQ, Policy::MergeSketch, Policy::S3Fifo, Policy::Lru] {
            cache.set_policy(policy).unwrap();
        }
        fill(&cache, 0..20_000);
        cache.close().unwrap();
        drop(cache);
        let cache = build();
        assert!(is_warm(&cache) && cache.policy() == policy);
        let segments = cache.stats().segments_total;
        cache.resize(ByteSize::mib(16)).unwrap();
        cache.maintain(Duration::from_secs(100));
        assert_eq!(segments, cache.stats().segments_total, "{pools} more pools");
        cache.verify();
    }
}

#[test]
fn without_a_clean_stop_the_start_is_cold() {
    for folder in folders() {
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
}

#[test]
fn other_options_are_warm() {
    for folder in folders() {
        let path = folder.path().join("memory");
        let cache = builder(&path).build().unwrap();
        fill(&cache, 0..20_000);
        let before = entries(&cache);
        cache.close().unwrap();
        drop(cache);
        let other =
            builder(&path).memory(ByteSize::mib(40)).policy(ebbtide::Policy::Merge).segment_size(ByteSize::kib(4));
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
}

#[test]
fn segments_of_all_sizes_are_warm() {
    for (size, mib) in [(ByteSize::kib(4), 16), (ByteSize::mib(1), 64)] {
        for folder in folders() {
            let path = folder.path().join("memory");
            let build = || builder(&path).memory(ByteSize::mib(mib)).segment_size(size).build().unwrap();
            let cache = build();
            fill(&cache, 0..20_000);
            cache.insert(b"long", &vec![7; 900_000]).apply().unwrap();
            let (before, segment_bytes) = (entries(&cache), cache.stats().segment_bytes);
            assert!(segment_bytes >= size.as_bytes() && segment_bytes < 2 * size.as_bytes());
            cache.close().unwrap();
            drop(cache);
            let cache = build();
            assert!(is_warm(&cache) && entries(&cache) == before, "{:?}", cache.memory_start());
            assert_eq!(cache.stats().segment_bytes, segment_bytes);
            cache.verify();
        }
    }
}

#[test]
fn a_smaller_memory_that_holds_everything_drops_nothing() {
    for folder in folders() {
        let path = folder.path().join("memory");
        let cache = builder(&path).build().unwrap();
        fill(&cache, 0..10_000);
        let before = entries(&cache);
        assert!(cache.stats().live_bytes < 5 << 20, "{:?}", cache.stats());
        cache.close().unwrap();
        drop(cache);
        let cache = builder(&path).memory(ByteSize::mib(8)).build().unwrap();
        cache.maintain(Duration::from_secs(1));
        assert_eq!(cache.stats().memory_limit_bytes, 8 << 20);
        assert!(is_warm(&cache) && entries(&cache).keys().eq(before.keys()), "{:?}", cache.stats());
        cache.verify();
    }
}

#[test]
fn files_of_other_owners_are_refused_unchanged() {
    for folder in folders() {
        let path = folder.path().join("memory");
        fs::write(&path, "").unwrap();
        if let Err(error) = std::os::unix::fs::chown(&path, Some(65_534), None) {
            println!("skipped: only root gives files away: {error}");
            return;
        }
        match builder(&path).build() {
            Err(Error::Configuration { option: "memory_file", reason, .. }) => {
                assert!(reason.contains("belongs to user 65534"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(fs::metadata(&path).unwrap().uid(), 65_534);
    }
}

#[test]
fn memory_below_the_index_is_reached_gradually() {
    for folder in folders() {
        let path = folder.path().join("memory");
        let cache = builder(&path).memory(ByteSize::mib(32)).build().unwrap();
        for number in 0..500_000u32 {
            cache.insert(&number.to_le_bytes(), b"ab").apply().unwrap();
        }
        let index_bytes = cache.stats().index_bytes;
        assert!(index_bytes > 5 << 20, "{index_bytes}");
        cache.close().unwrap();
        drop(cache);
        let cache = builder(&path).memory(ByteSize::mib(5)).build().unwrap();
        assert!(is_warm(&cache), "{:?}", cache.memory_start());
        // Ends: each second evicts, the index contracts, and the budget follows it.
        let mut second = 0;
        while cache.stats().memory_limit_bytes > 5 << 20 || cache.stats().memory_used_bytes > 5 << 20 {
            second += 1;
            cache.maintain(Duration::from_secs(second));
            assert!(second < 1000, "{:?}", cache.stats());
        }
        let stats = cache.stats();
        assert!(stats.memory_limit_bytes == 5 << 20 && stats.items > 20_000, "{stats:?}");
        cache.verify();
    }
}

#[test]
fn foreign_files_are_refused_unchanged() {
    for folder in folders() {
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
}

/// A generator of positions.
fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |limit| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    }
}

/// `EBBTIDE_FILE_CHANGES` is the number of changes to a file in each mode (default 75), `EBBTIDE_FILE_CHANGES_SEED`
/// their seed.
#[test]
fn a_changed_file_is_cold_or_right() {
    let setting = |name: &str, default: u64| {
        std::env::var(name)
            .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
    };
    let (rounds, seed) = (setting("EBBTIDE_FILE_CHANGES", 75), setting("EBBTIDE_FILE_CHANGES_SEED", 1));
    println!("seed {seed}");
    for folder in folders() {
        let path = folder.path().join("memory");
        let builder = || builder(&path).memory(ByteSize::mib(6)).max_value(ByteSize::mib(1));
        let cache = builder().build().unwrap();
        fill(&cache, 0..5000);
        cache.insert(b"long", &vec![9; 700_000]).apply().unwrap();
        cache.insert(b"number", b"41").apply().unwrap();
        assert_eq!(cache.increment(b"number", 1).unwrap(), Some(42));
        let before = entries(&cache);
        cache.close().unwrap();
        drop(cache);
        let whole = fs::read(&path).unwrap();
        let frames = u32::from_le_bytes(whole[12..16].try_into().unwrap()) as usize;
        let image = (2 << 20) + (2080 << 10) * frames;
        let mut random = random(seed);
        let mut cold = 0;
        for number in 0..rounds {
            fs::write(&path, &whole).unwrap();
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            let flip = |at: usize, bit: usize| file.write_all_at(&[whole[at] ^ (1 << bit)], at as u64).unwrap();
            match number % 5 {
                0 => file.set_len(random(whole.len()) as u64).unwrap(),
                1 => flip(random(120), random(8)),
                2 => flip(image + random(whole.len() - image), random(8)),
                // A part that was never written, or that another write has overwritten.
                3 => {
                    let (from, to) =
                        (image + random(whole.len() - image - 600), image + random(whole.len() - image - 600));
                    file.write_all_at(&whole[from..from + 600], to as u64).unwrap();
                }
                // A byte of an item.
                _ => loop {
                    let at = (2 << 20) + random(image - (2 << 20));
                    if whole[at] != 0 {
                        break flip(at, random(8));
                    }
                },
            }
            drop(file);
            let cache = match builder().build() {
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
                // A byte without meaning.
                MemoryStart::Warm { .. } => assert!(entries(&cache) == before, "change {number}"),
            }
        }
        assert!(cold > rounds * 3 / 4, "{cold} of {rounds}");
    }
}

#[test]
fn the_mode_follows_the_file_system() {
    let modes: Vec<_> = folders()
        .iter()
        .map(|folder| {
            let path = folder.path().join("memory");
            let expected = MemoryFileMode::of_path(&path).unwrap();
            let cache = builder(&path).build().unwrap();
            assert_eq!(cache.memory_file_mode(), Some(expected));
            assert_eq!(MemoryFileMode::of_path(&path).unwrap(), expected, "the same of a file that is there");
            expected
        })
        .collect();
    assert!(modes.len() < 2 || modes[1] != MemoryFileMode::Saved, "/dev/shm is a tmpfs: {modes:?}");
}

#[test]
fn a_sparse_copy_elsewhere_is_warm() {
    let folders = folders();
    let [disk, tmpfs] = &folders[..] else {
        return println!("skipped: there is no /dev/shm");
    };
    let path = |folder: &TempDir| folder.path().join("memory");
    let cache = builder(&path(tmpfs)).build().unwrap();
    fill(&cache, 0..20_000);
    cache.insert(b"long", &vec![9; 700_000]).apply().unwrap();
    let mut before = entries(&cache);
    cache.close().unwrap();
    drop(cache);
    // To the disk and back: of each mode the other one is read.
    for (from, to) in [(tmpfs, disk), (disk, tmpfs)].map(|(from, to)| (path(from), path(to))) {
        let copied = Command::new("cp").arg("--sparse=always").args([&from, &to]).status().unwrap();
        assert!(copied.success());
        fs::remove_file(&from).unwrap();
        let cache = builder(&to).build().unwrap();
        assert_eq!(cache.memory_file_mode(), Some(MemoryFileMode::of_path(&to).unwrap()));
        assert!(is_warm(&cache) && entries(&cache) == before, "{:?}", cache.memory_start());
        cache.verify();
        fill(&cache, 20_000..21_000);
        before = entries(&cache);
        cache.close().unwrap();
    }
    assert!(builder(&path(tmpfs)).build().is_ok_and(|cache| is_warm(&cache) && entries(&cache) == before));
}

#[test]
fn a_mapped_file_takes_memory_on_demand() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    let path = folder.path().join("memory");
    let held = || fs::metadata(&path).unwrap().blocks() * 512;
    let build = |mib| builder(&path).memory(ByteSize::mib(mib)).memory_ceiling(ByteSize::mib(64)).build().unwrap();
    let cache = build(48);
    assert!(held() < 2 << 20, "an empty cache holds {} bytes", held());
    fill(&cache, 0..60_000);
    let full = held();
    assert!(full > 15 << 20 && full < 50 << 20, "{full} bytes");
    // Memory that leaves the budget goes back to the file system.
    cache.resize(ByteSize::mib(8)).unwrap();
    cache.maintain(Duration::from_secs(1));
    assert!(held() < 11 << 20, "{} bytes", held());
    cache.resize(ByteSize::mib(24)).unwrap();
    fill(&cache, 0..60_000);
    assert!(held() > 15 << 20 && held() < 27 << 20, "{} bytes", held());
    let before = entries(&cache);
    cache.verify();
    cache.close().unwrap();
    drop(cache);
    assert!(held() < 30 << 20, "{} bytes after the stop", held());
    let cache = build(24);
    assert!(is_warm(&cache) && entries(&cache) == before);
    assert!(held() < 27 << 20, "{} bytes: the image is gone", held());
    cache.verify();
}

#[test]
fn a_stop_keeps_entries_of_all_pools() {
    for folder in folders() {
        let path = folder.path().join("memory");
        let names: Vec<_> = (0..5).map(|number| format!("pool{number}")).collect();
        let build = |names: &[String]| {
            let builder = builder(&path).memory(ByteSize::mib(24)).max_value(ByteSize::kib(256));
            names.iter().fold(builder, |builder, name| builder.pool(PoolOptions::named(name))).build().unwrap()
        };
        let mut cache = build(&names);
        for round in 0..4_u32 {
            for (number, name) in (0..).zip(&names) {
                let pool = cache.pool(name).unwrap();
                fill(&pool, number * 1000 + round * 300..number * 1000 + round * 300 + 600);
                pool.insert(b"long", &vec![number as u8; 200_000]).apply().unwrap();
            }
            let before: Vec<_> = names.iter().map(|name| entries(&cache.pool(name).unwrap())).collect();
            cache.close().unwrap();
            // The stores end one by one, and each gives its frames back.
            drop(cache);
            cache = build(&names);
            assert!(is_warm(&cache), "{:?}", cache.memory_start());
            cache.verify();
            let after: Vec<_> = names.iter().map(|name| entries(&cache.pool(name).unwrap())).collect();
            assert!(after == before, "round {round}");
        }
        cache.close().unwrap();
        drop(cache);
        // Memory of pools that are not configured any more goes to the others.
        let cache = build(&[]);
        fill(&cache, 0..60_000);
        let held = fs::metadata(&path).unwrap().blocks() * 512;
        assert!(is_warm(&cache) && held < 27 << 20, "{held} bytes");
        cache.verify();
    }
}

#[test]
fn handles_keep_a_mapped_file_locked() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    let path = folder.path().join("memory");
    let first = builder(&path).build().unwrap();
    fill(&first, 0..2000);
    first.insert(b"long", &[7; 200_000]).apply().unwrap();
    let handle = first.get(b"long").hit().unwrap().to_handle().unwrap();
    first.close().unwrap();
    drop(first);
    let second = std::thread::spawn({
        let path = path.clone();
        move || {
            let cache = builder(&path).build().unwrap();
            let start = is_warm(&cache);
            fill(&cache, 0..20_000);
            (start, cache.get(b"long").hit().is_some_and(|item| item.to_vec() == [7; 200_000]))
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    assert!(!second.is_finished(), "it waits for the handle");
    let mut length = 0;
    while length < handle.len() {
        assert!(handle.slice_at(length).iter().all(|byte| *byte == 7));
        length += handle.slice_at(length).len();
    }
    drop(handle);
    assert_eq!(second.join().unwrap(), (true, true));
}

/// A file system of its own, unmounted at the end.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(kind: &str, options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", kind, "-o", options, "none"]).arg(folder.path());
        match mount.output() {
            Ok(output) if output.status.success() => Some(Self(folder)),
            refused => {
                println!("skipped, no {kind} can be mounted: {refused:?}");
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

#[test]
fn hugetlbfs_is_refused_without_creating_a_file() {
    let Some(hugetlbfs) = Mounted::new("hugetlbfs", "pagesize=2M") else { return };
    let path = hugetlbfs.0.path().join("memory");
    let look = || MemoryFileMode::of_path(&path).map_err(|error| error.kind());
    assert_eq!(look(), Err(std::io::ErrorKind::Unsupported));
    let Err(Error::Configuration { option: "memory_file", reason, .. }) = builder(&path).build() else {
        panic!("a file that cannot be written was taken");
    };
    assert!(reason.contains("a tmpfs with huge=always"), "{reason}");
    assert!(!path.exists(), "a refused start leaves no file");
    // A file that is there is neither used nor removed.
    fs::File::create(&path).unwrap();
    assert_eq!(look(), Err(std::io::ErrorKind::Unsupported));
    assert!(builder(&path).build().is_err() && path.exists());
}

#[test]
fn a_full_tmpfs_refuses_growth_and_ends_nothing() {
    let Some(tmpfs) = Mounted::new("tmpfs", "size=28m") else { return };
    let path = tmpfs.0.path().join("memory");
    let refusal = |result: Result<(), Error>| match result {
        Err(Error::Configuration { option: "memory_file", reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let too_large = builder(&path).memory(ByteSize::mib(64)).build().map(drop);
    assert!(refusal(too_large).contains("its file system has"), "the start tells the space");
    let cache = builder(&path).memory(ByteSize::mib(20)).memory_ceiling(ByteSize::mib(64)).build().unwrap();
    assert_eq!(cache.refused_by_memory_file(), 0);
    assert!(refusal(cache.resize(ByteSize::mib(40))).contains("its file system has"));
    // Another file takes the space that the cache has not reserved yet.
    let filler = tmpfs.0.path().join("filler");
    let taken = std::iter::repeat_n([1; 1 << 16], 16 * 18).flatten().collect::<Vec<u8>>();
    fs::write(&filler, &taken).unwrap();
    fill(&cache, 0..60_000);
    let stats = cache.stats();
    assert!(stats.items > 5000 && stats.evictions > 0, "it goes on with the memory that there is: {stats:?}");
    assert!(cache.refused_by_memory_file() > 0, "it is told");
    cache.verify();
    // A larger memory tries again.
    fs::remove_file(&filler).unwrap();
    cache.resize(ByteSize::mib(22)).unwrap();
    fill(&cache, 0..120_000);
    assert!(cache.stats().items > stats.items * 3 / 2, "{} of {}", cache.stats().items, stats.items);
    cache.verify();
    let before = entries(&cache);
    cache.close().unwrap();
    drop(cache);
    let cache = builder(&path).memory(ByteSize::mib(22)).build().unwrap();
    assert!(is_warm(&cache) && entries(&cache) == before);
    cache.verify();
    // A stop without space for the image is reported, and the next start is cold.
    let mut filler = fs::File::create(&filler).unwrap();
    while std::io::Write::write(&mut filler, &taken).is_ok_and(|bytes| bytes > 0) {}
    let refused = cache.close().unwrap_err().to_string();
    assert!(refused.contains("the next start is cold"), "{refused}");
    drop(cache);
    let cache = builder(&path).memory(ByteSize::mib(4)).build();
    let cache = cache.or_else(|_| {
        fs::remove_file(tmpfs.0.path().join("filler")).unwrap();
        builder(&path).memory(ByteSize::mib(4)).build()
    });
    assert!(cold_reason(&cache.unwrap()).contains("could not save memory"));
}

#[test]
fn one_file_serves_one_cache() {
    for folder in folders() {
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
}

/// A cache of 8 MiB with a memory file, flash or both in a folder.
fn build_in(folder: &Path, with_file: bool, with_flash: bool) -> Cache {
    build_beside(folder, with_file, with_flash.then_some("flash"))
}

/// With the flash file of this name.
fn build_beside(folder: &Path, with_file: bool, flash: Option<&str>) -> Cache {
    let mut builder = Cache::builder().memory(ByteSize::mib(8));
    if let Some(flash) = flash {
        let options = FlashOptions { rewrite_threshold: 1, ..FlashOptions::default() };
        builder = builder.flash(folder.join(flash), ByteSize::mib(64)).flash_options(options);
        // A slow device delays evictions, and loses none of their items.
        builder = builder.flash_demotion_wait(Duration::from_secs(60));
    }
    if with_file { builder.memory_file(folder.join("memory")) } else { builder }.build().unwrap()
}

/// Writes one version of more values than the memory has space for.
fn set(cache: &Cache, version: u8) {
    for number in 0..30_000_u32 {
        cache.insert(&number.to_le_bytes(), &[version; 300]).apply().unwrap();
    }
}

#[test]
fn memory_and_flash_belong_together() {
    for folder in folders() {
        let path = folder.path().join("memory");
        let build = |with_file: bool| build_in(folder.path(), with_file, true);
        let newest = |cache: &Cache| {
            let get = |number: u32| cache.get(&number.to_le_bytes()).hit().map(|item| item.to_vec()[0]);
            let found: Vec<u8> = (0..30_000).filter_map(get).collect();
            let (oldest, latest) = (found.iter().min().copied(), found.iter().max().copied());
            (found.len(), oldest.unwrap_or(0), latest.unwrap_or(0))
        };
        let cache = build(true);
        set(&cache, 1);
        let in_memory = cache.close().unwrap().saved.expect("there is a file").objects;
        drop(cache);
        let cache = build(true);
        assert!(in_memory > 5000);
        assert!(matches!(cache.memory_start(), Some(MemoryStart::Warm { objects, .. }) if *objects == in_memory));
        let (found, oldest, _) = newest(&cache);
        // A busy disk may have lost some objects of flash.
        let notices = cache.flash_stats().unwrap().notices;
        assert!(found as u64 > in_memory + 2000 && oldest == 1, "{found} of {in_memory}: {notices:?}");
        cache.close().unwrap();
        drop(cache);
        // A run with flash alone writes newer values than those of the file.
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
}

/// The versions of values that a cache still has.
fn versions(cache: &Cache) -> BTreeSet<u8> {
    let get = |number: u32| cache.get(&number.to_le_bytes()).hit().map(|item| item.to_vec()[0]);
    (0..30_000).filter_map(get).collect()
}

fn tells_of_flash(cache: &Cache, reason: &str) -> bool {
    cache.flash_stats().unwrap().notices.iter().any(|notice| notice.contains(reason))
}

#[test]
fn flash_files_in_turns_serve_no_old_value() {
    let folder = folders().pop().expect("there is one");
    let run = |flash, version| {
        let cache = build_beside(folder.path(), true, Some(flash));
        let found = (is_warm(&cache), versions(&cache));
        let is_outdated = tells_of_flash(&cache, "the memory file was used with another flash since");
        set(&cache, version);
        cache.close().unwrap();
        (found.0, found.1, is_outdated)
    };
    assert!(!run("one", 1).0);
    // A new device has no older values.
    let (is_memory_warm, found, is_outdated) = run("two", 2);
    assert!(is_memory_warm && found == BTreeSet::from([1]) && !is_outdated);
    assert_eq!(run("one", 3), (false, BTreeSet::new(), true));
    assert_eq!(run("two", 4), (false, BTreeSet::new(), true));
    assert_eq!(run("two", 5), (true, BTreeSet::from([4]), false));
}

#[test]
fn an_unfinished_rerouting_is_continued_or_cold() {
    for (folder, with_file) in folders().into_iter().zip([true, true]).chain([(TempDir::new().unwrap(), false)]) {
        let build = |rules: &[u8]| {
            let options = FlashOptions { rewrite_threshold: 1, ..FlashOptions::default() };
            let builder = Cache::builder().memory(ByteSize::mib(8)).key_routing(rules);
            let builder = match with_file {
                true => builder.memory_file(folder.path().join("memory")),
                false => builder.flash(folder.path().join("flash"), ByteSize::mib(64)).flash_options(options),
            };
            builder.build().unwrap()
        };
        // Whether the entry is there, and whether a change of rules is under way; `ends`: it ends in this run.
        let run = |rules: &[u8], ends: bool| {
            let cache = build(rules);
            let found = (cache.get(b"key").hit().is_some(), cache.is_rerouting());
            if ends {
                cache.end_rerouting(rules);
                assert!(!cache.is_rerouting());
            }
            cache.insert(b"key", b"value").apply().unwrap();
            cache.close().unwrap();
            found
        };
        assert_eq!(run(b"", false), (false, false), "a new cache");
        assert_eq!(run(b"", false), (true, false));
        assert_eq!(run(b"a", true), (true, true));
        assert_eq!(run(b"a", false), (true, false));
        assert_eq!(run(b"b", false), (true, true));
        assert_eq!(run(b"b", false), (true, true), "the change goes on");
        assert_eq!(run(b"a", false), (false, false), "neither rules have been kept to");
        // A change while the cache runs.
        let cache = build(b"a");
        assert!(!cache.is_rerouting());
        cache.begin_rerouting(b"c").unwrap();
        assert!(cache.is_rerouting());
        cache.close().unwrap();
        drop(cache);
        assert_eq!(run(b"c", true), (true, true));
        assert_eq!(run(b"c", true), (true, false));
        // A second change over one that has not ended.
        let cache = build(b"c");
        cache.begin_rerouting(b"d").unwrap();
        cache.begin_rerouting(b"c").unwrap();
        cache.close().unwrap();
        drop(cache);
        assert_eq!(run(b"c", false), (false, false), "it has entries of which d had newer ones");
    }
}

/// A start could find entries that no scan meets now.
#[test]
fn a_rerouting_over_failed_flash_does_not_end() {
    let device = Arc::new(FaultyDevice::new(64 << 20, 1, Delivery::AtOnce));
    let builder = Cache::builder().memory(ByteSize::mib(8)).clock(Clock::Manual).flash_device(device.clone());
    let cache = builder.build().unwrap();
    (0..200_u32).for_each(|number| _ = cache.insert(&number.to_le_bytes(), &[1; 100_000]).apply().unwrap());
    cache.begin_rerouting(b"a").unwrap();
    device.set(Faults { read_errors: 1, ..Faults::default() });
    assert!((0..100_u32).any(|number| cache.get(&number.to_le_bytes()).hit().is_none()));
    device.set(Faults::default());
    assert!(cache.flash_stats().unwrap().tier.large.read_errors > 0);
    cache.end_rerouting(b"a");
    assert!(cache.is_rerouting());
    // The regions are marked dead.
    cache.maintain(Duration::from_secs(1));
    cache.end_rerouting(b"a");
    assert!(!cache.is_rerouting());
}

#[test]
fn flash_of_an_unknown_run_drops_memory() {
    for warm_restart in [true, false] {
        let folder = folders().pop().expect("there is one");
        let path = folder.path().join("flash");
        let build = || {
            let options = FlashOptions { rewrite_threshold: 1, warm_restart, ..FlashOptions::default() };
            let builder = Cache::builder().memory(ByteSize::mib(8)).flash_options(options);
            let builder = builder.flash(&path, ByteSize::mib(64)).flash_demotion_wait(Duration::from_secs(60));
            builder.memory_file(folder.path().join("memory")).build().unwrap()
        };
        let cache = build();
        set(&cache, 1);
        cache.close().unwrap();
        drop(cache);
        let cache = build();
        assert!(is_warm(&cache), "{}", cold_reason(&cache));
        cache.close().unwrap();
        drop(cache);
        // The superblock of flash, behind the first MiB of the device.
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(b"damage", (1 << 20) + 16).unwrap();
        let cache = build();
        let reason = cold_reason(&cache);
        assert!(reason.contains("flash does not tell whether it has run without the memory file"), "{reason}");
        assert!(versions(&cache).is_empty());
    }
}

#[test]
fn flash_is_empty_after_a_run_without_it() {
    // The record is the same in both modes of a file.
    let folder = folders().pop().expect("there is one");
    let build = |with_file, with_flash| build_in(folder.path(), with_file, with_flash);
    let has_empty_flash = |cache: &Cache| tells_of_flash(cache, "the memory file was used without flash");
    for (round, is_stopped) in [(0, true), (10, false)] {
        let cache = build(true, true);
        set(&cache, round + 1);
        cache.close().unwrap();
        drop(cache);
        // Flash keeps the first version of values of which memory evicts the second one, or loses it with the run.
        let cache = build(true, false);
        set(&cache, round + 2);
        if is_stopped {
            cache.close().unwrap();
        }
        drop(cache);
        let cache = build(true, true);
        let kept = if is_stopped { BTreeSet::from([round + 2]) } else { BTreeSet::new() };
        assert_eq!(versions(&cache), kept, "{}", cache.memory_start().unwrap());
        assert!(has_empty_flash(&cache), "{:?}", cache.flash_stats().unwrap().notices);
        set(&cache, round + 3);
        cache.close().unwrap();
        drop(cache);
        // The runs after that have both.
        let cache = build(true, true);
        assert!(is_warm(&cache) && !has_empty_flash(&cache));
        assert_eq!(versions(&cache), BTreeSet::from([round + 3]));
        cache.close().unwrap();
        drop(cache);
    }
    // Each has run without the other one: their ages cannot be compared.
    for (with_file, with_flash, version) in [(true, false, 21), (false, true, 22)] {
        let cache = build(with_file, with_flash);
        set(&cache, version);
        cache.close().unwrap();
        drop(cache);
    }
    let cache = build(true, true);
    assert!(cold_reason(&cache).contains("flash has run without the memory file"), "{}", cold_reason(&cache));
    assert!(has_empty_flash(&cache) && versions(&cache).is_empty());
}
