//! Loading: one loader for each missing key, and no older value over a newer one.

use ebbtide::{ByteSize, Cache, CacheBuilder, Clock, Error, LoadError, Loaded, PoolOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

fn builder() -> CacheBuilder {
    Cache::builder().memory(ByteSize::mib(16)).clock(Clock::Manual)
}

fn cache() -> Cache {
    builder().build().unwrap()
}

fn wait_until(what: &str, is_done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_done() {
        assert!(Instant::now() < deadline, "{what}");
        thread::yield_now();
    }
}

#[test]
fn a_thousand_callers_load_once() {
    const CALLERS: usize = 1000;
    let cache = cache();
    let (called, loads) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                called.fetch_add(1, Ordering::SeqCst);
                let value = cache.get_or_insert_with("key", || {
                    loads.fetch_add(1, Ordering::SeqCst);
                    wait_until("all call", || called.load(Ordering::SeqCst) == CALLERS);
                    "loaded"
                });
                assert_eq!(value.unwrap(), "loaded");
            });
        }
    });
    assert_eq!(loads.load(Ordering::SeqCst), 1);
    assert_eq!((cache.stats().loads, cache.stats().failed_loads), (1, 0));
    assert_eq!(cache.get("key").unwrap(), "loaded");
}

/// When a loader ends without a value for any reason, a waiting caller runs its own.
#[test]
fn a_failing_or_panicking_loader_releases_waiters() {
    for panics in [false, true] {
        let cache = cache();
        let (started, has_started) = mpsc::channel();
        let (proceed, may_proceed) = mpsc::channel();
        thread::scope(|scope| {
            let cache = &cache;
            let leader = scope.spawn(move || {
                catch_unwind(AssertUnwindSafe(|| {
                    cache.try_get_or_insert_with("key", || {
                        started.send(()).unwrap();
                        may_proceed.recv_timeout(PATIENCE).unwrap();
                        assert!(!panics, "the loader panics");
                        Err::<&str, _>("no database")
                    })
                }))
            });
            has_started.recv_timeout(PATIENCE).unwrap();
            let waiter = scope.spawn(move || cache.get_or_insert_with("key", || "second"));
            wait_until("the waiter misses", || cache.stats().misses == 2);
            proceed.send(()).unwrap();
            let outcome = leader.join().unwrap();
            assert_eq!(outcome.is_err(), panics);
            assert!(outcome.is_err() || outcome.unwrap() == Err(LoadError::Loader("no database")));
            assert_eq!(waiter.join().unwrap().unwrap(), "second");
        });
        assert_eq!((cache.stats().loads, cache.stats().failed_loads), (1, 1));
        cache.verify();
    }
}

#[test]
fn loads_of_different_keys_do_not_wait() {
    let cache = cache();
    let both = Barrier::new(64);
    thread::scope(|scope| {
        for n in 0..64_u32 {
            let (cache, both) = (&cache, &both);
            // Each loader waits until all loaders run.
            scope.spawn(move || {
                cache.get_or_insert_with(n.to_be_bytes(), || {
                    both.wait();
                    n.to_string()
                })
            });
        }
    });
    assert_eq!(cache.entry_count(), 64);
}

/// A change of the key while its loader runs, by the loader itself: the change counts, and the caller gets its value.
#[test]
fn a_load_never_replaces_what_was_changed_meanwhile() {
    type Change = dyn Fn(&Cache);
    let changes: [(&Change, Option<&[u8]>); 6] = [
        (&|cache| cache.insert("key", "newer").unwrap(), Some(b"newer")),
        (&|cache| _ = cache.remove("key"), None),
        (&|cache| cache.invalidate_all(), None),
        (&|cache| _ = (cache.insert("key", "newer").unwrap(), cache.remove("key")), None),
        (&|cache| _ = cache.increment_or_insert("key", 1, 7, ebbtide::InsertOptions::new()).unwrap(), Some(b"7")),
        (&|cache| cache.insert("other", "newer").unwrap(), Some(b"loaded")),
    ];
    for (number, (change, expected)) in changes.into_iter().enumerate() {
        let cache = cache();
        let loaded = cache.get_or_insert_with("key", || {
            change(&cache);
            "loaded"
        });
        assert_eq!(loaded.unwrap(), "loaded", "change {number}");
        assert_eq!(cache.get("key").as_deref(), expected, "change {number}");
    }
}

/// A caller that asks after a removal gets no value from before it.
#[test]
fn callers_after_a_removal_join_no_load() {
    let cache = cache();
    let value = cache.get_or_insert_with("key", || {
        cache.remove("key");
        let later = thread::scope(|scope| scope.spawn(|| cache.get_or_insert_with("key", || "after")).join().unwrap());
        assert_eq!(later.unwrap(), "after");
        "before"
    });
    assert_eq!(value.unwrap(), "before");
    assert_eq!(cache.get("key").unwrap(), "after");
}

#[test]
fn a_recursive_load_is_an_error() {
    let cache = cache();
    let value = cache.get_or_insert_with("a", || {
        let inner = cache.get_or_insert_with("a", || "never");
        assert_eq!(inner, Err(Error::RecursiveLoad { key: "\"a\"".to_owned() }));
        let through_another =
            cache.get_or_insert_with("b", || cache.get_or_insert_with("a", || "").unwrap_err().to_string());
        through_another.unwrap()
    });
    assert_eq!(value.unwrap(), "the loader of key \"a\" loads the same key: it would wait for itself");
}

#[test]
fn a_waiter_gives_up_after_the_load_timeout() {
    let cache = builder().load_timeout(Duration::from_millis(20)).build().unwrap();
    let value = cache.get_or_insert_with("key", || {
        let other = thread::scope(|scope| scope.spawn(|| cache.get_or_insert_with("key", || "never")).join().unwrap());
        assert_eq!(other, Err(Error::LoadTimeout { milliseconds: 20 }));
        "loaded"
    });
    assert_eq!(value.unwrap(), "loaded");
}

/// The timeout bounds waits for other callers, never a caller's loader.
#[test]
fn leading_callers_load_despite_a_zero_timeout() {
    let cache = builder().load_timeout(Duration::ZERO).build().unwrap();
    assert_eq!(cache.get_or_insert_with("key", || "loaded").unwrap(), "loaded");
    let value = cache.get_or_insert_with("other", || {
        thread::scope(|scope| {
            let waiter = scope.spawn(|| cache.get_or_insert_with("other", || "never"));
            assert_eq!(waiter.join().unwrap(), Err(Error::LoadTimeout { milliseconds: 0 }));
            let waiter = scope.spawn(|| smol::block_on(cache.get_or_insert_with_async("other", async { "never" })));
            assert_eq!(waiter.join().unwrap(), Err(Error::LoadTimeout { milliseconds: 0 }));
        });
        "loaded"
    });
    assert_eq!(value.unwrap(), "loaded");
    assert_eq!(smol::block_on(cache.get_or_insert_with_async("task", async { "loaded" })).unwrap(), "loaded");
}

#[test]
fn a_loader_chooses_the_ttl() {
    let cache = builder().default_ttl(Duration::from_secs(100)).build().unwrap();
    cache.get_or_insert_with("default", || "v").unwrap();
    cache.get_or_insert_with("short", || Loaded::new("v").ttl(Duration::from_secs(5))).unwrap();
    let ttl = |key| cache.get_ref(key).unwrap().ttl();
    assert_eq!((ttl("default"), ttl("short")), (Some(Duration::from_secs(100)), Some(Duration::from_secs(5))));
}

#[test]
fn a_value_that_cannot_be_stored_is_returned() {
    let cache = cache();
    let value = cache.get_or_insert_with("key", || vec![7; 2 << 20]).unwrap();
    assert_eq!(value.len(), 2 << 20);
    assert!(!cache.contains_key("key"));
    assert_eq!(cache.get_or_insert_with("", || "v"), Err(Error::KeyLength { length: 0, limit: 255 }));
    cache.add_pool(&PoolOptions::named("gone")).unwrap();
    let gone = cache.pool("gone").unwrap();
    cache.remove_pool("gone").unwrap();
    assert_eq!(gone.get_or_insert_with("key", || "v"), Err(Error::PoolRemoved { name: "gone".to_owned() }));
}

/// A database of one version for each key. Its only writer removes the key after each change, and from then on no
/// caller may get an older version.
#[test]
fn no_loader_brings_an_older_version_back() {
    const KEYS: usize = 4;
    const CHANGES: u64 = 2000;
    let cache = Cache::builder().memory(ByteSize::mib(8)).build().unwrap();
    let database: [AtomicU64; KEYS] = Default::default();
    let removed: [AtomicU64; KEYS] = Default::default();
    let running = AtomicUsize::new(KEYS);
    let check = |key: usize| {
        // A version removed before this call must not be returned by it.
        let floor = removed[key].load(Ordering::SeqCst);
        let load = || database[key].load(Ordering::SeqCst).to_be_bytes();
        let value = cache.get_or_insert_with([key as u8], load).unwrap();
        let version = u64::from_be_bytes(value[..].try_into().unwrap());
        assert!(version >= floor, "key {key}: version {version} after {floor} was removed");
    };
    thread::scope(|scope| {
        for (key, of_key) in database.iter().enumerate() {
            let (cache, removed, running, check) = (&cache, &removed, &running, &check);
            scope.spawn(move || {
                for version in 1..=CHANGES {
                    of_key.store(version, Ordering::SeqCst);
                    match version % 3 {
                        0 => cache.invalidate_all(),
                        1 => _ = cache.remove([key as u8]),
                        // After an error the key is absent.
                        _ => _ = cache.insert([key as u8], version.to_be_bytes()),
                    }
                    removed[key].store(version, Ordering::SeqCst);
                    check(key);
                }
                running.fetch_sub(1, Ordering::SeqCst);
            });
        }
        for reader in 0..3 {
            let (running, check) = (&running, &check);
            scope.spawn(move || {
                let mut key = reader;
                while running.load(Ordering::SeqCst) > 0 {
                    key = (key + 1) % KEYS;
                    check(key);
                }
            });
        }
    });
    cache.verify();
}

#[test]
fn the_error_of_a_loader_is_a_source() {
    let cache = Cache::builder().memory(ByteSize::mib(8)).build().unwrap();
    let load = || Err::<&str, _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
    let error: Box<dyn std::error::Error> = cache.try_get_or_insert_with("k", load).unwrap_err().into();
    let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    assert_eq!(source.map(std::io::Error::kind), Some(std::io::ErrorKind::ConnectionRefused));
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A waker that owns a task, as those of simple executors do.
struct Owner(#[expect(dead_code, reason = "dropped with the waker")] Mutex<Option<Task>>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

/// The replaced waker drops a task that waits for the same load, whose drop takes the lock of the load.
#[test]
fn a_replaced_waker_is_dropped_without_the_lock() {
    let cache = cache();
    let (started, has_started) = mpsc::channel();
    let (proceed, may_proceed) = mpsc::channel::<()>();
    let loading = {
        let cache = cache.clone();
        thread::spawn(move || {
            cache.get_or_insert_with("key", || {
                started.send(()).unwrap();
                may_proceed.recv().unwrap();
                "value"
            })
        })
    };
    has_started.recv_timeout(PATIENCE).unwrap();
    let wait = |cache: Cache| -> Task {
        Box::pin(async move { drop(cache.get_or_insert_with_async("key", async { "other" }).await) })
    };
    let (mut inner, mut outer) = (wait(cache.clone()), wait(cache.clone()));
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        assert!(inner.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let owner = Waker::from(Arc::new(Owner(Mutex::new(Some(inner)))));
        assert!(outer.as_mut().poll(&mut Context::from_waker(&owner)).is_pending());
        // From here on the load has the only reference.
        drop(owner);
        assert!(outer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        done.send(()).unwrap();
    });
    is_done.recv_timeout(PATIENCE).expect("the thread does not wait for a lock that it holds");
    proceed.send(()).unwrap();
    assert_eq!(loading.join().unwrap().unwrap(), "value");
}
