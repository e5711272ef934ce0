//! Caches that end while a thread closes their flash, or promotes a read value; and reads for callers while others hold
//! the memory.

use super::*;
use ebbtide_store::{Mode, Stored, Ttl};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::sync::Barrier;

#[test]
fn the_last_drop_waits_for_a_close() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache_in(&folder).unwrap();
    put_on_flash(&cache, b"a");
    drop(cache);
    for round in 0..10 {
        let cache = cache_in(&folder).unwrap();
        assert_eq!(is_warm(&cache), round > 0 || cache.flash_stats().unwrap().tier.objects > 0);
        let (sender, result) = channel();
        let clone = cache.clone();
        let on_read = move |_: FlashRead| {
            clone.close_flash();
            drop(clone);
            sender.send(()).unwrap();
        };
        assert_eq!(read_cache(&cache, b"a", WhenBusy::Queue, Box::new(on_read)), Start::Reading);
        result.recv_timeout(PATIENCE).unwrap();
        drop(cache);
        // The last handle is dropped: the process may end here. A start would wait for the file.
        let file = File::open(folder.path().join("flash")).unwrap();
        flock(file, FlockOperation::NonBlockingLockExclusive).expect("flash is closed");
        assert!(is_warm(&cache_in(&folder).unwrap()), "round {round}");
    }
}

#[test]
fn two_caches_end_in_each_others_callbacks() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let caches = folders.each_ref().map(|folder| {
        let cache = cache_in(folder).unwrap();
        put_on_flash(&cache, b"a");
        drop(cache);
        cache_in(folder).unwrap()
    });
    let barrier = Arc::new(Barrier::new(2));
    for (cache, other) in [(&caches[0], &caches[1]), (&caches[1], &caches[0])] {
        let (barrier, other) = (Arc::clone(&barrier), other.clone());
        let on_read = move |_: FlashRead| {
            barrier.wait();
            drop(other);
        };
        assert_eq!(read_cache(cache, b"a", WhenBusy::Queue, Box::new(on_read)), Start::Reading);
    }
    drop(caches);
    let began = Instant::now();
    for folder in &folders {
        let again = loop {
            match cache_in(folder) {
                Ok(cache) => break cache,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
            }
        };
        assert!(is_warm(&again), "{:?}", again.flash_stats().unwrap().notices);
    }
}

/// Uploads hold all memory for long values meanwhile.
#[test]
fn a_long_value_on_flash_waits_for_uploads() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Cache::builder().memory(ByteSize::mib(64)).max_value(ByteSize::mib(27)).clock(Clock::Manual);
    let builder = builder.flash_promotion(FlashPromotion::Never);
    let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(512)).build().unwrap();
    let value = vec![7; 3 << 20];
    for key in [b"a", b"b", b"c", b"d"] {
        let object = Object { key: Key::new(key), value: &[&value], client_flags: 0, is_annotated: false, expiry: 0 };
        let tier = &cache.engine().flash().unwrap().tier;
        tier.insert(&object, NOW).unwrap();
        tier.settle(NOW);
    }
    let under_way = cache.clone().upload(b"other", 26 << 20, 0, Ttl::Never, Mode::Set).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            drop(under_way);
        });
        assert_eq!(cache.insert(b"a", b"more").mode(Mode::Append).apply(), Ok(Stored::Stored));
        assert_eq!(cache.insert(b"b", b"new").mode(Mode::Add).apply(), Ok(Stored::NotStored));
        assert_eq!(cache.insert(b"c", b"new").mode(Mode::Replace).apply(), Ok(Stored::Stored));
        assert_eq!(cache.touch(b"d", Ttl::Never), Ok(true));
    });
    assert_eq!(cache.get(b"a").hit().unwrap().len(), value.len() + 4);
}
