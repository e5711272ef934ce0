//! Ten tasks that a program does with moka, each as `docs/library.md` and `docs/library-migration.md` say.

use ebbtide::{
    ByteSize, Cache, Clock, Error, InsertOptions, LoadError, Loaded, Policy, PoolOptions, TypedCache, Value,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// `Cache::builder().max_capacity(...).time_to_live(...).build()`.
fn cache() -> Result<Cache, Error> {
    Cache::builder()
        .memory(ByteSize::mib(16))
        .default_ttl(Duration::from_secs(600))
        .policy(Policy::MergeSketch)
        .clock(Clock::Manual)
        .build()
}

#[test]
fn insert_get_and_remove() -> Result<(), Error> {
    let cache = cache()?;
    cache.insert("key", "value")?;
    cache.insert(42_u64.to_be_bytes(), vec![1, 2, 3])?;
    assert_eq!(cache.get("key").as_deref(), Some(&b"value"[..]));
    assert!(cache.contains_key(42_u64.to_be_bytes()));
    assert!(cache.remove("key"));
    assert!(!cache.remove("key"));
    assert_eq!(cache.get("key"), None);
    Ok(())
}

#[test]
fn lives_differ_by_entry() -> Result<(), Error> {
    let cache = cache()?;
    cache.insert("default", "600 s")?;
    cache.insert_with("short", "10 s", InsertOptions::new().ttl(Duration::from_secs(10)))?;
    cache.maintain(Duration::from_secs(11));
    assert!(cache.get("short").is_none() && cache.get("default").is_some());
    // Time to idle: a use gives the entry its life again.
    cache.touch("default", Duration::from_secs(600))?;
    cache.maintain(Duration::from_secs(580));
    assert!(cache.get("default").is_some());
    cache.maintain(Duration::from_secs(620));
    assert!(cache.get("default").is_none());
    Ok(())
}

#[test]
fn threads_share_a_load() -> Result<(), Error> {
    let (cache, loads) = (cache()?, Arc::new(AtomicU32::new(0)));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (cache, loads) = (cache.clone(), Arc::clone(&loads));
            thread::spawn(move || {
                cache.get_or_insert_with("user:42", || {
                    loads.fetch_add(1, Ordering::SeqCst);
                    format!("user {}", 42)
                })
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().expect("no thread panics")?, "user 42");
    }
    assert_eq!(loads.load(Ordering::SeqCst), 1);
    Ok(())
}

#[test]
fn a_failed_load_is_returned() -> Result<(), LoadError<std::num::ParseIntError>> {
    let cache = cache()?;
    let parse = |text: &'static str| cache.try_get_or_insert_with(text, || text.parse::<u32>().map(u32::to_be_bytes));
    assert!(matches!(parse("x"), Err(LoadError::Loader(_))));
    assert_eq!(cache.get("x"), None);
    assert_eq!(parse("7")?, 7_u32.to_be_bytes());
    Ok(())
}

#[test]
fn tasks_load_with_a_ttl() -> Result<(), Error> {
    let cache = cache()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let load = async { Loaded::new("from the network").ttl(Duration::from_secs(5)) };
        let value: Value = cache.get_or_insert_with_async("page", load).await?;
        assert_eq!(value, "from the network");
        let found = cache.get_many_async(&["page", "other"]).await;
        assert!(found[0].is_some() && found[1].is_none());
        // A value may be sent to another task.
        let task = tokio::spawn(async move { value.len() });
        assert_eq!(task.await.expect("the task ends"), 16);
        Ok(())
    })
}

#[test]
fn entries_are_iterated_and_cleared() -> Result<(), Error> {
    let cache = cache()?;
    for n in 0..100 {
        cache.insert(format!("key{n}"), [n])?;
    }
    let all: BTreeMap<Vec<u8>, u8> = cache.iter()?.map(|(key, value)| (key.to_vec(), value[0])).collect();
    assert_eq!((all.len(), all[&b"key7"[..]], cache.entry_count()), (100, 7, 100));
    // `invalidate_entries_if`.
    for (key, _) in cache.iter()?.filter(|(_, value)| value[0] < 50) {
        cache.remove(key);
    }
    assert_eq!(cache.iter()?.count(), 50);
    cache.invalidate_all();
    assert_eq!(cache.iter()?.count(), 0);
    Ok(())
}

#[test]
fn entries_are_changed_atomically() -> Result<(), Error> {
    let cache = cache()?;
    assert!(cache.insert_if_absent("leader", "a", InsertOptions::new())?);
    assert!(!cache.insert_if_absent("leader", "b", InsertOptions::new())?);
    // `entry(key).and_upsert_with(...)` of a counter.
    assert_eq!(cache.increment_or_insert("hits", 1, 1, InsertOptions::new())?, 1);
    assert_eq!(cache.increment("hits", 5)?, Some(6));
    // `and_compute_with`: again until no other thread has changed the value in between.
    loop {
        let old = cache.get("leader").expect("it was inserted");
        let new = [&old[..], b"!"].concat();
        if cache.compare_and_swap("leader", &old, &new, InsertOptions::new())? {
            break;
        }
    }
    assert_eq!(cache.get("leader").as_deref(), Some(&b"a!"[..]));
    Ok(())
}

#[test]
fn typed_values_are_kept() -> Result<(), Error> {
    #[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
    struct User {
        name: String,
        roles: Vec<String>,
    }
    let ada = User { name: "Ada".to_owned(), roles: vec!["admin".to_owned()] };
    let cache = cache()?;
    let users: TypedCache<u64, User, _> = cache.typed();
    users.insert(&42, &ada)?;
    assert_eq!(users.get(&42)?, Some(ada.clone()));
    assert_eq!(users.get_or_insert_with(&7, || User { name: "Grace".to_owned(), ..ada.clone() })?.name, "Grace");
    assert!(users.remove(&42)?);
    Ok(())
}

#[test]
fn tenants_have_memory_of_their_own() -> Result<(), Error> {
    let cache = Cache::builder()
        .memory(ByteSize::mib(64))
        .pool(PoolOptions::named("users").min(ByteSize::mib(16)))
        .pool(PoolOptions::named("pages").weight(2))
        .build()?;
    let (users, pages) = (cache.pool("users")?, cache.pool("pages")?);
    users.insert("1", "Ada")?;
    assert!(pages.get("1").is_none());
    assert_eq!(users.entry_count(), 1);
    Ok(())
}

#[test]
fn statistics_are_read() -> Result<(), Error> {
    let cache = cache()?;
    cache.insert("a", "1")?;
    let (hit, miss) = (cache.get("a"), cache.get("b"));
    assert!(hit.is_some() && miss.is_none());
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.inserts), (1, 1, 1));
    assert!((stats.hit_ratio() - 0.5).abs() < f64::EPSILON);
    assert!(stats.memory_used_bytes <= stats.memory_limit_bytes);
    assert!(!stats.to_string().is_empty());
    Ok(())
}
