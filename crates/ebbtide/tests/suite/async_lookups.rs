//! Lookups and loads of tasks, under tokio and smol, which share no code.

use ebbtide::{ByteSize, Cache, Clock, Error, InsertOptions, LoadError, Lookup, NegativeCache, PoolOptions};
use std::collections::HashSet;
use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs tasks at the same time, on two threads, until all have ended.
type Executor = fn(Vec<Task>);

fn on_tokio(tasks: Vec<Task>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let tasks: Vec<_> = tasks.into_iter().map(|task| runtime.spawn(task)).collect();
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
}

fn on_smol(tasks: Vec<Task>) {
    let executor = Arc::new(smol::Executor::new());
    let tasks: Vec<_> = tasks.into_iter().map(|task| executor.spawn(task)).collect();
    let all = async {
        for task in tasks {
            task.await
        }
    };
    let (stop, stopped) = smol::channel::unbounded::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| smol::block_on(executor.run(async { _ = stopped.recv().await })));
        smol::block_on(executor.run(all));
        drop(stop);
    });
}

const EXECUTORS: [Executor; 2] = [on_tokio, on_smol];

fn poll_once<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn cache() -> Cache {
    Cache::builder().memory(ByteSize::mib(16)).load_timeout(Duration::from_secs(60)).build().unwrap()
}

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

fn value(n: u32) -> Vec<u8> {
    (0..5000).map(|i| (n + i) as u8).collect()
}

/// A cache with more values than its memory holds, the others on flash.
fn on_flash(folder: &tempfile::TempDir, keys: u32) -> Cache {
    let builder = Cache::builder().memory(ByteSize::mib(8)).clock(Clock::Manual);
    // No value is lost, however slow the device is.
    let builder = builder.engine(|engine| engine.flash_demotion_wait(Duration::from_secs(60)));
    let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
    (0..keys).for_each(|n| cache.insert(key(n), value(n)).unwrap());
    cache
}

#[test]
fn a_hit_in_memory_is_ready_at_once() {
    let cache = cache();
    cache.insert("key", "value").unwrap();
    let Poll::Ready(hit) = poll_once(pin!(cache.get_async("key"))) else { panic!("it waits") };
    assert_eq!(hit.unwrap(), "value");
    let Poll::Ready(many) = poll_once(pin!(cache.get_many_async(&["absent", "key"]))) else { panic!("it waits") };
    assert_eq!((many[0].is_none(), many[1].as_deref()), (true, Some(&b"value"[..])));
    let loads = cache.get_or_insert_with_async("new", async { "loaded" });
    assert!(matches!(poll_once(pin!(loads)), Poll::Ready(Ok(_))));
    assert_eq!((cache.stats().hits, cache.stats().misses), (2, 2));
}

#[test]
fn tasks_read_flash() {
    const KEYS: u32 = 3000;
    let folder = tempfile::tempdir().unwrap();
    let cache = on_flash(&folder, KEYS);
    for run in EXECUTORS {
        let answers = || cache.memcached().flash_stats().map_or(0, |stats| stats.served + stats.promoted);
        let before = answers();
        let task = |first: u32| -> Task {
            let cache = cache.clone();
            Box::pin(async move {
                for n in (first..KEYS).step_by(16) {
                    assert!(cache.get_async(key(n)).await.is_some_and(|found| *found == *value(n)), "key {n}");
                }
                let keys: Vec<_> = (first * 100..first * 100 + 50).map(key).collect();
                let many = cache.get_many_async(&keys).await;
                assert!((first * 100..).zip(&many).all(|(n, found)| found.as_deref() == Some(&value(n)[..])));
                assert!(cache.get_async("absent").await.is_none());
                let range = cache.get_range_async(key(first), 4990, 100).await;
                assert_eq!(range.as_deref(), Some(&value(first)[4990..]));
                assert_eq!(cache.get_range_async("absent", 0, 1).await, None);
            })
        };
        run((0..16).map(task).collect());
        assert!(answers() > before, "some keys are on flash only");
    }
    cache.verify();
}

#[test]
fn a_dropped_read_of_flash_harms_nothing() {
    const KEYS: u32 = 3000;
    let folder = tempfile::tempdir().unwrap();
    let cache = on_flash(&folder, KEYS);
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    for keys in keys.chunks(7) {
        // Pending if its read takes longer than this poll.
        let _ = poll_once(pin!(cache.get_many_async(keys)));
    }
    assert!((0..KEYS).all(|n| cache.get(key(n)).is_some_and(|found| *found == *value(n))));
    cache.verify();
}

#[test]
fn a_thousand_tasks_load_once() {
    const TASKS: usize = 1000;
    for run in EXECUTORS {
        let cache = cache();
        let (called, loads) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let task = |_| -> Task {
            let (cache, called, loads) = (cache.clone(), Arc::clone(&called), Arc::clone(&loads));
            Box::pin(async move {
                called.fetch_add(1, Ordering::SeqCst);
                let loader = async {
                    loads.fetch_add(1, Ordering::SeqCst);
                    while called.load(Ordering::SeqCst) < TASKS {
                        smol::future::yield_now().await;
                    }
                    "loaded"
                };
                assert_eq!(cache.get_or_insert_with_async("key", loader).await.unwrap(), "loaded");
            })
        };
        run((0..TASKS).map(task).collect());
        assert_eq!(loads.load(Ordering::SeqCst), 1);
    }
}

/// A leader that is cancelled, or fails, releases the tasks that wait: one of them loads.
#[test]
fn a_cancelled_loader_releases_the_waiters() {
    for fails in [false, true] {
        let cache = cache();
        let may_fail = AtomicUsize::new(0);
        let loader = async {
            while may_fail.load(Ordering::SeqCst) == 0 {
                smol::future::yield_now().await;
            }
            Err::<&str, _>("no database")
        };
        let mut leader = Box::pin(cache.try_get_or_insert_with_async("key", loader));
        assert!(poll_once(leader.as_mut()).is_pending());
        let mut waiter = pin!(cache.get_or_insert_with_async("key", async { "second" }));
        assert!(poll_once(waiter.as_mut()).is_pending());
        // A waiter that is dropped takes nothing along.
        assert!(poll_once(pin!(cache.get_or_insert_with_async("key", async { "third" }))).is_pending());
        if fails {
            may_fail.store(1, Ordering::SeqCst);
            assert_eq!(smol::block_on(leader), Err(LoadError::Loader("no database")));
        } else {
            drop(leader);
        }
        assert_eq!(smol::block_on(waiter).unwrap(), "second");
        assert_eq!((cache.stats().loads, cache.stats().failed_loads), (1, 1));
    }
}

#[test]
fn recursive_loads_of_tasks_are_errors() {
    let cache = cache();
    let inner = async { cache.get_or_insert_with_async("key", async { "never" }).await.unwrap_err() };
    let value = smol::block_on(cache.get_or_insert_with_async("key", async { inner.await.to_string() }));
    assert_eq!(value.unwrap(), "the loader of key \"key\" loads the same key: it would wait for itself");
}

/// No timer of a runtime is needed.
#[test]
fn waiting_tasks_fail_after_the_load_timeout() {
    let builder = Cache::builder().memory(ByteSize::mib(16)).load_timeout(Duration::from_millis(20));
    let cache = builder.build().unwrap();
    let mut endless = pin!(cache.get_or_insert_with_async("key", pending::<&str>()));
    assert!(poll_once(endless.as_mut()).is_pending());
    let waiter = cache.get_or_insert_with_async("key", async { "never" });
    assert_eq!(smol::block_on(waiter), Err(Error::LoadTimeout { milliseconds: 20 }));
}

/// A full cache: the tasks wait for memory without blocking their executor.
#[test]
fn tasks_write_and_remove_in_a_full_cache() {
    for executor in EXECUTORS {
        let cache = Cache::builder().memory(ByteSize::mib(4)).max_value(ByteSize::kib(64)).build().unwrap();
        let tasks = (0..8_u32).map(|task| -> Task {
            let cache = cache.clone();
            Box::pin(async move {
                for n in (task..24_000).step_by(8) {
                    cache.insert_async(key(n), [n as u8; 500]).await.unwrap();
                    assert!(cache.remove_async(key(n)).await || cache.stats().evictions > 0);
                    cache.insert_async(key(n), [n as u8; 500]).await.unwrap();
                }
            })
        });
        executor(tasks.collect());
        assert!(cache.stats().evictions > 1000);
        assert!((0..24_000).filter_map(|n| Some((n, cache.get(key(n))?))).all(|(n, value)| value == [n as u8; 500]));
        cache.verify();
    }
}

#[test]
fn a_task_waits_for_memory_or_is_refused() {
    let builder = Cache::builder().memory(ByteSize::mib(4)).max_value(ByteSize::kib(64));
    let cache = builder.engine(|engine| engine.evict(false)).build().unwrap();
    let count = (0..).take_while(|n| cache.insert(key(*n), [7; 900]).is_ok()).count() as u32;
    // It ends: a write that finds no memory within the bounds of waits is refused.
    let refused = smol::block_on(cache.insert_async(key(count + 1), [8; 900]));
    assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
    assert!(cache.get(key(count + 1)).is_none());
    (0..count).for_each(|n| assert!(cache.remove(key(n))));
    smol::block_on(cache.insert_async(key(count + 1), [9; 900])).expect("memory is free now");
    cache.verify();
}

#[test]
fn a_task_removes_what_only_flash_has() {
    let folder = tempfile::tempdir().unwrap();
    let keys = 4000;
    let cache = Arc::new(on_flash(&folder, keys));
    for (executor, first) in EXECUTORS.into_iter().zip([100, 2000]) {
        let removed = Arc::clone(&cache);
        executor(vec![Box::pin(async move {
            for n in 0..20 {
                removed.insert_async(key(n), value(n)).await.unwrap();
                assert!(removed.remove_async(key(n)).await, "key {n}");
                assert!(!removed.remove_async(key(n)).await, "key {n}");
                assert!(removed.get_async(key(n)).await.is_none());
            }
            let on_flash = (first..keys).filter(|n| !removed.memcached().peek(&key(*n)).is_hit());
            let on_flash: Vec<u32> = on_flash.take(50).collect();
            assert!(on_flash.len() > 10);
            for n in on_flash {
                let was_there = removed.remove_async(key(n)).await;
                assert!(was_there && removed.get_async(key(n)).await.is_none(), "key {n}");
            }
        })]);
    }
    cache.verify();
}

/// The first keys of a cache over flash that memory does not have, each once for each executor.
fn only_on_flash(cache: &Cache, keys: impl Iterator<Item = u32>, count: usize) -> Vec<u32> {
    let keys: Vec<u32> = keys.filter(|n| !cache.memcached().peek(&key(*n)).is_hit()).take(count).collect();
    assert_eq!(keys.len(), count);
    keys
}

#[test]
fn tasks_change_what_only_flash_has() {
    let folder = tempfile::tempdir().unwrap();
    let cache = on_flash(&folder, 4000);
    for (run, first) in EXECUTORS.into_iter().zip([0, 1000]) {
        let keys = only_on_flash(&cache, first..first + 1000, 64);
        let task = |keys: &[u32]| -> Task {
            let (cache, keys) = (cache.clone(), keys.to_vec());
            Box::pin(async move {
                let options = InsertOptions::new();
                assert!(cache.contains_key_async(key(keys[0])).await);
                assert_eq!(cache.with_async(key(keys[1]), <[u8]>::len).await, Some(5000));
                assert!(!cache.insert_if_absent_async(key(keys[2]), "new", options).await.unwrap());
                let old = value(keys[3]);
                assert!(cache.compare_and_swap_async(key(keys[3]), old, "7", options).await.unwrap());
                assert!(cache.touch_async(key(keys[4]), Duration::from_secs(600)).await.unwrap());
                assert_eq!(cache.increment_async(key(keys[5]), 1).await, Err(Error::NotNumeric));
                assert_eq!(cache.increment_async(key(keys[3]), 3).await, Ok(Some(10)));
                assert_eq!(cache.decrement_async(key(keys[3]), 1).await, Ok(Some(9)));
                assert_eq!(cache.increment_or_insert_async(key(keys[3]), 1, 0, options).await, Ok(10));
                assert_eq!(cache.take_async(key(keys[6])).await.unwrap().unwrap(), value(keys[6]));
                assert!(cache.take_async(key(keys[6])).await.unwrap().is_none());
            })
        };
        run(keys.chunks(8).map(task).collect());
        for n in keys.chunks(8).flat_map(|keys| keys[4..5].iter()) {
            assert!(cache.get_ref(key(*n)).unwrap().ttl().is_some());
        }
    }
    cache.verify();
}

/// A change that was dropped before it was ready has not happened.
#[test]
fn a_dropped_change_of_flash_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cache = on_flash(&folder, 4000);
    let keys = only_on_flash(&cache, 0..4000, 50);
    for n in keys {
        let old = value(n);
        let swapped = poll_once(pin!(cache.compare_and_swap_async(key(n), &old, "new", InsertOptions::new())));
        let expected = if swapped.is_ready() { b"new".to_vec() } else { old };
        assert_eq!(cache.get(key(n)).as_deref(), Some(&expected[..]));
    }
    cache.verify();
}

/// In a full cache: the tasks wait for memory without blocking their executor.
#[test]
fn tasks_count_and_publish_in_a_full_cache() {
    for run in EXECUTORS {
        let cache = Cache::builder().memory(ByteSize::mib(4)).max_value(ByteSize::kib(64)).build().unwrap();
        // Of a published key that was evicted meanwhile an insert is taken.
        let evicted = Arc::new(Mutex::new(HashSet::new()));
        let task = |task: u32| -> Task {
            let (cache, evicted) = (cache.clone(), Arc::clone(&evicted));
            Box::pin(async move {
                for n in (task..4000).step_by(8) {
                    let count = cache.increment_or_insert_async(key(n), 1, 1, InsertOptions::new()).await;
                    assert_eq!(count, Ok(1));
                    let mut filled = cache.allocate_async(key(n), 5000, Duration::from_secs(600)).await.unwrap();
                    filled.copy_from_slice(&value(n));
                    filled.publish_async().await.unwrap();
                    if cache.insert_if_absent_async(key(n), "new", InsertOptions::new()).await.unwrap() {
                        evicted.lock().unwrap().insert(n);
                    }
                }
            })
        };
        run((0..8).map(task).collect());
        assert!(cache.stats().evictions > 1000);
        let evicted = evicted.lock().unwrap();
        let expected = |n: u32| if evicted.contains(&n) { b"new".to_vec() } else { value(n) };
        assert!((0..4000).all(|n| cache.get(key(n)).is_none_or(|found| *found == *expected(n))));
        cache.verify();
    }
}

fn with_negatives() -> (Cache, NegativeCache) {
    let absent = PoolOptions::named("absent").compact(4, 0).max(ByteSize::mib(8));
    let cache = Cache::builder().memory(ByteSize::mib(32)).pool(absent).build().unwrap();
    let objects = cache.with_negatives(cache.compact_pool("absent").unwrap());
    (cache, objects)
}

#[test]
fn tasks_of_an_absent_object_load_once() {
    const TASKS: usize = 100;
    for run in EXECUTORS {
        let (cache, objects) = with_negatives();
        let (called, loads) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let task = |_| -> Task {
            let (objects, called, loads) = (objects.clone(), Arc::clone(&called), Arc::clone(&loads));
            Box::pin(async move {
                called.fetch_add(1, Ordering::SeqCst);
                let loader = async {
                    loads.fetch_add(1, Ordering::SeqCst);
                    while called.load(Ordering::SeqCst) < TASKS {
                        smol::future::yield_now().await;
                    }
                    Ok::<Option<&str>, ()>(None)
                };
                assert_eq!(objects.get_or_load_async(key(1), loader).await, Ok(Lookup::Negative));
                assert_eq!(objects.get_async(key(1)).await, Lookup::Negative);
            })
        };
        run((0..TASKS).map(task).collect());
        assert_eq!(loads.load(Ordering::SeqCst), 1);
        cache.verify();
    }
}

#[test]
fn a_task_replaces_a_negative_result() {
    let (cache, objects) = with_negatives();
    smol::block_on(async {
        let absent = || async { Ok::<Option<&str>, &str>(None) };
        assert_eq!(objects.get_or_load_async(key(1), absent()).await, Ok(Lookup::Negative));
        objects.insert_async(key(1), "Ada").await.unwrap();
        assert_eq!(objects.get_async(key(1)).await, Lookup::Hit("Ada".into()));
        assert!(objects.remove_async(key(1)).await.unwrap() && !objects.remove_async(key(1)).await.unwrap());
        assert_eq!(objects.get_async(key(1)).await, Lookup::Miss);
        let fails = async { Err::<Option<&str>, _>("no database") };
        assert_eq!(objects.get_or_load_async(key(1), fails).await, Err(LoadError::Loader("no database")));
        // An object that was inserted while the loader ran is not hidden.
        let late = async {
            objects.insert_async(key(2), "Bob").await.unwrap();
            absent().await
        };
        assert_eq!(objects.get_or_load_async(key(2), late).await, Ok(Lookup::Negative));
        assert_eq!(objects.get_async(key(2)).await, Lookup::Hit("Bob".into()));
        let refused = objects.insert_async("too long", "Ada").await;
        assert!(matches!(refused, Err(Error::CompactLength { .. })));
    });
    cache.verify();
}

#[test]
fn cancelling_an_objects_loader_releases_the_waiters() {
    let (cache, objects) = with_negatives();
    let mut leader = Box::pin(objects.get_or_load_async(key(1), pending::<Result<Option<&str>, ()>>()));
    assert!(poll_once(leader.as_mut()).is_pending());
    let mut waiter = pin!(objects.get_or_load_async(key(1), async { Ok::<_, ()>(Some("second")) }));
    assert!(poll_once(waiter.as_mut()).is_pending());
    drop(leader);
    assert_eq!(smol::block_on(waiter), Ok(Lookup::Hit("second".into())));
    assert_eq!(objects.get(key(1)), Lookup::Hit("second".into()));
    cache.verify();
}
