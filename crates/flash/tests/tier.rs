//! The tier on real files, by each way of moving transfers.

#[path = "../benches/terabyte/scenario.rs"]
mod scenario;

use ebbtide_flash::device::{Device, DiskOptions, Engine, MIN_STRIPED_PATH_BYTES, STRIPE};
use ebbtide_flash::{Error, FlashHash, FlashHit, FlashLookup, Key, Object, Opening, Tier, TierOptions};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SIZES: [usize; 5] = [1, 300, 1900, 5000, 200_000];
const SEAL_SECONDS: u32 = 30;

fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn paths(directory: &TempDir, sizes: &[u64]) -> Vec<(PathBuf, u64)> {
    sizes.iter().enumerate().map(|(i, &bytes)| (directory.path().join(format!("part{i}")), bytes)).collect()
}

fn options(engine: Engine) -> TierOptions {
    let disk = DiskOptions { engine: Some(engine), pool_threads: 2, ..DiskOptions::default() };
    TierOptions { disk, seal_seconds: SEAL_SECONDS, small_share: Some(0.5), ..TierOptions::default() }
}

/// Runs a test on a tier that is served and started, with its notices, and stops it however the test ends.
fn served(opening: Opening, test: impl FnOnce(&Arc<Tier>, Vec<String>)) {
    struct Stopping(Arc<dyn Device>);
    impl Drop for Stopping {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    thread::scope(|scope| {
        let device = opening.device();
        let stopping = Stopping(Arc::clone(&device));
        for _ in 0..device.threads() {
            let device = Arc::clone(&device);
            scope.spawn(move || device.serve());
        }
        let (tier, notices) = opening.start(1000).unwrap();
        test(&tier, notices);
        drop(stopping);
    });
}

/// `None` where this engine does not work, with a message.
fn open(paths: &[(PathBuf, u64)], engine: Engine) -> Option<Opening> {
    match Tier::open(paths, &options(engine)) {
        Ok(opening) => Some(opening),
        Err(Error::Engine { source }) => {
            eprintln!("no {engine:?} here: {source}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn get(tier: &Tier, key: &[u8]) -> Option<FlashHit> {
    let (sender, receiver) = mpsc::channel();
    match tier.lookup(Key::new(key), 1000, Box::new(move |found| sender.send(found).unwrap())) {
        FlashLookup::Absent => None,
        FlashLookup::Found(found) => Some(found),
        FlashLookup::Reading => receiver.recv().unwrap(),
    }
}

fn key_of(size: usize, copy: usize) -> Vec<u8> {
    format!("{size} {copy}").into_bytes()
}

#[test]
fn objects_in_files_survive_a_restart() {
    for engine in [Engine::Ring, Engine::Pool] {
        for parts in
            [&[MIN_STRIPED_PATH_BYTES][..], &[MIN_STRIPED_PATH_BYTES + STRIPE, MIN_STRIPED_PATH_BYTES + STRIPE]]
        {
            let directory = directory();
            let paths = paths(&directory, parts);
            let Some(opening) = open(&paths, engine) else { continue };
            served(opening, |tier, notices| {
                assert!(notices.iter().any(|notice| notice == "flash starts empty: it is new"), "{notices:?}");
                fill(tier);
                look(tier, 1.0);
                let stats = tier.stats();
                assert_eq!((stats.hits_large, stats.hits_small, stats.misses), (40, 60, 0));
                assert_eq!(stats.large.hits_device, 40, "the buffers were written");
                assert_eq!(stats.written.superblock, 4096);
                tier.verify();
                tier.close(1000).unwrap();
            });
            served(open(&paths, engine).expect("it could be opened before"), |tier, notices| {
                assert!(notices.iter().any(|notice| notice.contains("warm after a stop")), "{notices:?}");
                look(tier, 1.0);
                assert!(tier.remove(FlashHash::of(&key_of(5000, 3))) && tier.remove(FlashHash::of(&key_of(300, 3))));
                tier.verify();
            });
            // The tier before was not closed, as if the process had been killed.
            served(open(&paths, engine).expect("it could be opened before"), |tier, notices| {
                assert!(notices.iter().any(|notice| notice.contains("warm after a crash")), "{notices:?}");
                look(tier, 0.7);
                for size in [300, 5000] {
                    assert!(get(tier, &key_of(size, 3)).is_none(), "it was removed");
                }
                tier.verify();
            });
            let renamed: Vec<_> = paths.iter().rev().cloned().collect();
            if renamed != paths {
                served(open(&renamed, engine).expect("it could be opened before"), |tier, notices| {
                    assert!(notices.iter().any(|notice| notice.contains("starts empty")), "{notices:?}");
                    assert_eq!(tier.stats().objects, 0);
                });
            }
        }
    }
}

/// Inserts all, and has them written.
fn fill(tier: &Arc<Tier>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    for (size, copy) in SIZES.iter().flat_map(|&size| (0..20).map(move |copy| (size, copy))) {
        let (key, value) = (key_of(size, copy), vec![copy as u8; size]);
        let key = Key::new(&key);
        let object = Object { key, value: &[&value], client_flags: 7, is_annotated: false, expiry: 0 };
        // Inserts never wait, so a caller that has more than the device takes at once waits here.
        while tier.insert(&object, 1000).is_none() {
            tier.maintain(1000);
            assert!(Instant::now() < deadline, "{:?}", tier.stats());
        }
    }
    let is_written = || {
        tier.maintain(1000 + SEAL_SECONDS);
        let stats = tier.stats().large;
        stats.written_payload_bytes == stats.inserted_bytes
    };
    while !is_written() {
        assert!(Instant::now() < deadline, "{:?}", tier.stats());
    }
}

/// Reads all objects, of which this share must be there.
fn look(tier: &Tier, share: f64) {
    let mut found = 0;
    for (size, copy) in SIZES.iter().flat_map(|&size| (0..20).map(move |copy| (size, copy))) {
        if let Some(object) = get(tier, &key_of(size, copy)) {
            assert_eq!((object.value(), object.client_flags), (&vec![copy as u8; size][..], 7));
            found += 1;
        }
    }
    assert!(f64::from(found) >= 100.0 * share, "{found} of 100");
}

#[test]
fn what_the_tier_cannot_use_is_refused() {
    let directory = directory();
    let path = paths(&directory, &[MIN_STRIPED_PATH_BYTES]);
    let refused = |paths: &[(PathBuf, u64)], options: TierOptions, part: &str| {
        let open_error = Tier::open(paths, &options).err().expect(part).to_string();
        assert!(open_error.contains(part), "{open_error}");
    };
    let base = options(Engine::Pool);
    refused(&path, TierOptions { memory_bytes: 100_000, ..base.clone() }, "increase that to 1 MiB");
    refused(&path, TierOptions { small_share: Some(1.0), ..base.clone() }, "0.01 to 0.99");
    refused(&path, TierOptions { region_bytes: 5000, ..base.clone() }, "a power of two");
    refused(&path, TierOptions { log_percent: 51, ..base.clone() }, "at most 50");
    refused(&path, TierOptions { rewrite_threshold: 0, ..base.clone() }, "at least 1");
    refused(&paths(&directory, &[1 << 20]), base.clone(), "larger size");
    refused(&[(directory.path().to_owned(), MIN_STRIPED_PATH_BYTES)], base.clone(), "is a directory");
    drop(Tier::open(&path, &base).unwrap());
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "what is not started leaves nothing behind");
    let beside = TierOptions { deletion_log: Some(directory.path().join("./part0")), ..base.clone() };
    assert!(
        Tier::check(&paths(&directory, &[MIN_STRIPED_PATH_BYTES]), &beside)
            .unwrap_err()
            .to_string()
            .contains("is named twice")
    );
}

#[test]
fn the_size_that_would_do_does() {
    let directory = directory();
    for (sizes, share) in
        [(&[4 << 20][..], 0.99), (&[64 << 20], 0.99), (&[4 << 20], 0.01), (&[32 << 20, 32 << 20], 0.99)]
    {
        let options = TierOptions { small_share: Some(share), ..options(Engine::Pool) };
        let open_error = Tier::check(&paths(&directory, sizes), &options).unwrap_err().to_string();
        assert!(open_error.starts_with(&format!("flash of {} bytes", sizes.iter().sum::<u64>())), "{open_error}");
        let advised = open_error.split("increase its size to ").nth(1).and_then(|rest| rest.split(' ').next());
        let advised: u64 = advised.unwrap_or_else(|| panic!("{open_error}")).parse().unwrap();
        let larger = vec![advised / sizes.len() as u64; sizes.len()];
        assert!(Tier::check(&paths(&directory, &larger), &options).is_ok(), "{open_error}");
    }
}

/// `make terabyte` in small.
#[test]
fn simulated_flash_turns_over_and_survives_kills() {
    for (value_bytes, small_share) in [(4096, 0.01), (300, 0.5)] {
        let plan = scenario::Plan { capacity: 64 << 20, value_bytes, small_share, sample: 7 };
        let outcome = scenario::run(&plan, directory().path());
        assert_eq!(outcome.wrong, 0, "{outcome:?}");
        assert!(outcome.notices.iter().any(|notice| notice.contains("warm after a crash")), "{outcome:?}");
        let (found, newest) = outcome.newest;
        assert!(found * 2 > newest, "the newest quarter is there: {outcome:?}");
        assert!(outcome.found < outcome.looked_up, "the first turn was overwritten: {outcome:?}");
        assert!(outcome.compressed_bytes < plan.capacity / 2, "{outcome:?}");
    }
}
