//! Flash that hangs while threads wait for it.

use ebbtide::memcached::{ByteSize, Cache, FlashPromotion};
use ebbtide_flash::device::Health;
use std::fs;
use std::io::PipeWriter;
use std::mem;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
const VALUE: [u8; 9000] = [7; 9000];

/// The descriptor by which this process has a file open.
fn descriptor_of(path: &Path) -> RawFd {
    let open = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let ours = open.into_iter().find(|fd| fs::read_link(fd).is_ok_and(|file| file == path)).unwrap();
    ours.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not come to that");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A cache whose flash is at a path, and keys that only flash has.
fn build(path: &Path, keys: usize) -> (Cache, Vec<[u8; 4]>) {
    let builder = Cache::builder().memory(ByteSize::mib(6)).flash_promotion(FlashPromotion::Never);
    let cache = builder.flash(path, ByteSize::mib(64)).build().unwrap();
    let is_below = |key: &[u8; 4]| !cache.peek(key).is_hit() && cache.get(key).is_hit();
    let (wanted, mut keys) = (keys, Vec::new());
    // Repeats inserts that the device was too slow for.
    wait_until(|| {
        (0..2000_u32).for_each(|number| drop(cache.insert(&number.to_le_bytes(), &VALUE).apply()));
        keys = (0..1000_u32).map(u32::to_le_bytes).filter(is_below).take(wanted).collect();
        keys.len() == wanted
    });
    wait_until(|| under_way(&cache) == 0);
    (cache, keys)
}

fn under_way(cache: &Cache) -> usize {
    cache.flash_stats().unwrap().tier.device.under_way
}

/// Makes reads of a cache's file hang until the returned pipe is dropped, and writes fail.
fn hang(path: &Path) -> PipeWriter {
    let (hung, never_written) = std::io::pipe().unwrap();
    // SAFETY: the cache keeps it open until its end, and it is not closed here.
    let mut file = unsafe { OwnedFd::from_raw_fd(descriptor_of(path)) };
    rustix::io::dup2(&hung, &mut file).unwrap();
    mem::forget(file);
    never_written
}

/// Has the device judged to have failed.
fn fail(cache: &Cache) {
    let mut numbers = 10_000_u32..;
    wait_until(|| {
        drop(cache.insert(&numbers.next().unwrap().to_le_bytes(), &VALUE).apply());
        cache.flash_stats().unwrap().tier.device.health == Health::Failed
    });
}

#[test]
fn a_device_failure_ends_a_waiting_batch() {
    const BATCH: usize = 12;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().canonicalize().unwrap().join("flash");
    let (cache, keys) = build(&path, BATCH);
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    assert_eq!(keys.len(), BATCH);
    let _hung = hang(&path);
    thread::scope(|scope| {
        let batch = scope.spawn(|| cache.get_batch(&keys, |_, lookup| assert!(!lookup.is_hit())));
        wait_until(|| under_way(&cache) >= BATCH);
        fail(&cache);
        // Its reads hang for longer than this test lives.
        wait_until(|| batch.is_finished());
    });
    assert_eq!(under_way(&cache), 0);
}

#[test]
fn threads_joining_a_read_need_no_ring() {
    let rings = || {
        let open = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
        open.filter(|fd| fs::read_link(fd).is_ok_and(|file| file.as_os_str() == "anon_inode:[io_uring]")).count()
    };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().canonicalize().unwrap().join("flash");
    let (cache, keys) = build(&path, 1);
    let _hung = hang(&path);
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| assert!(!cache.get(&keys[0]).is_hit()));
            wait_until(|| under_way(&cache) == 1);
            thread::sleep(Duration::from_millis(10));
        }
        let rings = rings();
        fail(&cache);
        assert!(rings < 15, "{rings}");
    });
}
