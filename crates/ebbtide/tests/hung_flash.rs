//! Flash that hangs under those who wait for it.

use ebbtide::{ByteSize, Cache, FlashPromotion};
use ebbtide_flash::device::Health;
use std::fs;
use std::mem;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
const VALUE: [u8; 9000] = [7; 9000];

/// The descriptor by which this process has a file open.
fn descriptor_of(path: &Path) -> RawFd {
    let open = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let ours = open.into_iter().find(|fd| fs::read_link(fd).is_ok_and(|file| file == path)).unwrap();
    ours.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

fn wait_until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not come to that");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_batch_is_let_go_at_once_when_the_device_has_failed() {
    const BATCH: usize = 12;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().canonicalize().unwrap().join("flash");
    let builder = Cache::builder().memory(ByteSize::mib(6)).flash_promotion(FlashPromotion::Never);
    let cache = builder.flash(&path, ByteSize::mib(64)).build().unwrap();
    let insert = |number: u32| drop(cache.insert(&number.to_le_bytes(), &VALUE).apply());
    let device = || cache.flash_stats().unwrap().tier.device;
    (0..2000).for_each(insert);
    let keys: Vec<[u8; 4]> = (0..1000_u32).map(u32::to_le_bytes).filter(|key| !cache.peek(key).is_hit()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).filter(|key| cache.get(key).is_hit()).take(BATCH).collect();
    assert_eq!(keys.len(), BATCH);
    wait_until(|| device().under_way == 0);

    // A read of it waits for ever, and a write fails.
    let (hung, _never_written) = std::io::pipe().unwrap();
    // SAFETY: the cache keeps it open until its end, and it is not closed here.
    let mut file = unsafe { OwnedFd::from_raw_fd(descriptor_of(&path)) };
    rustix::io::dup2(&hung, &mut file).unwrap();
    mem::forget(file);

    thread::scope(|scope| {
        let batch = scope.spawn(|| cache.get_batch(&keys, |_, lookup| assert!(!lookup.is_hit())));
        wait_until(|| device().under_way >= BATCH);
        let mut numbers = 10_000..;
        let deadline = Instant::now() + PATIENCE;
        while device().health != Health::Failed {
            assert!(Instant::now() < deadline, "{:?}", device());
            insert(numbers.next().unwrap());
        }
        let failed = Instant::now();
        wait_until(|| batch.is_finished());
        assert!(failed.elapsed() < Duration::from_secs(5), "{:?}", failed.elapsed());
    });
    assert_eq!(device().under_way, 0);
}
