//! A cache that its own eviction listener closes or drops.

use ebbtide::{ByteSize, Cache, CacheBuilder, Clock, Error, InsertOptions, RemovalCause, Value};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Longer than any machine needs.
const PATIENCE: Duration = Duration::from_secs(120);
const KEYS: u32 = 100;

/// The handle that the listener takes at the first removal with its cause.
type Slot = Arc<Mutex<Option<Cache>>>;

/// A cache whose listener gives the handle in the slot to `end` at the first removal of this cause, and tells the
/// result and its thread.
fn ended_by_listener<T: Send + 'static>(
    builder: CacheBuilder,
    cause: RemovalCause,
    end: impl Fn(Cache) -> T + Send + Sync + 'static,
) -> (Cache, Slot, Receiver<(T, ThreadId)>) {
    let slot = Slot::default();
    let (sender, told) = channel();
    let (taken, sender) = (Arc::clone(&slot), Mutex::new(sender));
    let listener = move |_: &[u8], _: Value, told: RemovalCause| {
        let handle = taken.lock().unwrap().take_if(|_| told == cause);
        if let Some(cache) = handle {
            // The test may have failed, and not listen any more.
            let _ = sender.lock().unwrap().send((end(cache), thread::current().id()));
        }
    };
    (builder.eviction_listener(listener).build().unwrap(), slot, told)
}

fn builder() -> CacheBuilder {
    Cache::builder().memory(ByteSize::mib(16)).clock(Clock::Manual)
}

fn over_flash(folder: &Path) -> CacheBuilder {
    Cache::builder().memory(ByteSize::mib(16)).flash(folder.join("flash"), ByteSize::mib(64))
}

/// Writes the keys, and one that expires soon: a maintenance thread tells its removal.
fn write(cache: &Cache) {
    for key in 0..KEYS {
        cache.insert(key.to_le_bytes(), [7; 1000]).unwrap();
    }
    cache.insert_with("expires", "soon", InsertOptions::new().ttl(Duration::from_secs(1))).unwrap();
}

fn reopen(mut open: impl FnMut() -> Result<Cache, Error>) -> Cache {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match open() {
            Ok(cache) => return cache,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        thread::yield_now();
    }
}

#[test]
fn a_listener_closes_its_cache() {
    let folder = tempfile::tempdir().unwrap();
    let open = || builder().memory_file(folder.path().join("memory"));
    let (cache, slot, told) = ended_by_listener(open(), RemovalCause::Replaced, |cache| cache.close());
    cache.insert("k", "1").unwrap();
    *slot.lock().unwrap() = Some(cache.clone());
    assert_eq!(cache.insert("k", "2"), Ok(()), "it was written before the listener was called");
    assert_eq!(told.recv_timeout(PATIENCE), Ok((Ok(()), thread::current().id())));
    assert_eq!(cache.insert("k", "3"), Err(Error::Closed));
    assert!(!cache.remove("k"));
    assert_eq!((cache.get("k").unwrap(), cache.close()), ("2".into(), Ok(())));
    assert_eq!(cache.stats().listener_panics, 0);
    drop(cache);
    assert_eq!(open().build().unwrap().get("k").unwrap(), "2");
}

#[test]
fn a_listener_drops_one_of_several_handles() {
    let (cache, slot, told) = ended_by_listener(builder(), RemovalCause::Removed, drop);
    cache.insert("k", "1").unwrap();
    *slot.lock().unwrap() = Some(cache.clone());
    assert!(cache.remove("k"));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(((), thread::current().id())));
    cache.insert("k", "2").unwrap();
    assert_eq!((cache.get("k").unwrap(), cache.stats().listener_panics), ("2".into(), 0));
    cache.verify();
    let weak = cache.downgrade();
    drop(cache);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_maintenance_thread_closes_for_the_listener() {
    let folder = tempfile::tempdir().unwrap();
    let open = || over_flash(folder.path()).memory_file(folder.path().join("memory"));
    let (cache, slot, told) = ended_by_listener(open(), RemovalCause::Expired, |cache| cache.close());
    write(&cache);
    *slot.lock().unwrap() = Some(cache.clone());
    let (closed, thread) = told.recv_timeout(PATIENCE).expect("the expired entry is told");
    assert_eq!(closed, Ok(()));
    assert_ne!(thread, thread::current().id());
    assert_eq!((cache.insert("k", "v"), cache.close()), (Err(Error::Closed), Ok(())));
    assert_eq!(cache.stats().listener_panics, 0);
    drop(cache);
    let cache = reopen(|| open().build());
    assert!((0..KEYS).all(|key| cache.get(key.to_le_bytes()).unwrap() == [7; 1000]), "the start is warm");
}

#[test]
fn a_maintenance_thread_drops_the_last_handle() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, slot, told) = ended_by_listener(over_flash(folder.path()), RemovalCause::Expired, drop);
    write(&cache);
    let weak = cache.downgrade();
    *slot.lock().unwrap() = Some(cache);
    let ((), thread) = told.recv_timeout(PATIENCE).expect("the expired entry is told");
    assert_ne!(thread, thread::current().id());
    assert!(weak.upgrade().is_none());
    // The files are free when the threads of the cache have ended.
    let cache = reopen(|| over_flash(folder.path()).build());
    cache.insert("k", "v").unwrap();
    assert_eq!(cache.get("k").unwrap(), "v");
    cache.close().unwrap();
}
