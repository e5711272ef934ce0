//! A look-aside cache before a database: reads load what is missing, writes remove what has changed.
//!
//! `cargo run --example look_aside`

use ebbtide::{ByteSize, Cache, Error};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Stands for the database of the program.
#[derive(Default)]
struct Database {
    names: Mutex<HashMap<u64, String>>,
    queries: AtomicU64,
}

impl Database {
    fn name(&self, user: u64) -> String {
        self.queries.fetch_add(1, Ordering::Relaxed);
        self.names.lock().unwrap().get(&user).cloned().unwrap_or_default()
    }

    fn rename(&self, user: u64, name: &str) {
        self.names.lock().unwrap().insert(user, name.to_owned());
    }
}

fn read(cache: &Cache, database: &Database, user: u64) -> Result<String, Error> {
    // Of several threads that miss a user, one asks the database.
    let name = cache.get_or_insert_with(user.to_be_bytes(), || database.name(user))?;
    Ok(String::from_utf8_lossy(&name).into_owned())
}

fn write(cache: &Cache, database: &Database, user: u64, name: &str) {
    // The database first: a load that has started before the removal is not published after it.
    database.rename(user, name);
    cache.remove(user.to_be_bytes());
}

pub fn main() -> Result<(), Error> {
    let cache = Cache::builder().memory(ByteSize::mib(64)).default_ttl(Duration::from_secs(600)).build()?;
    let database = Database::default();
    write(&cache, &database, 42, "Ada");
    for _ in 0..1000 {
        assert_eq!(read(&cache, &database, 42)?, "Ada");
    }
    write(&cache, &database, 42, "Grace");
    assert_eq!(read(&cache, &database, 42)?, "Grace");
    assert_eq!(database.queries.load(Ordering::Relaxed), 2);
    println!("{}", cache.stats());
    Ok(())
}
