//! Reloads of stale values: one caller loads, the others answer the stale value at once, and a change of the key since
//! the reload began wins. The table of loads is that of the library, with loom's locks; the steps of a caller are those
//! of `load_after` in the library's `loader.rs`.

use super::{Client, model, store};
use crate::Mode;
use crate::store::Store;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod load_sync {
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
    pub use loom::thread::{self, ThreadId};
}
#[allow(dead_code)]
#[path = "../../../ebbtide/src/library/load_table.rs"]
mod load_table;

use load_table::{Join, LoadTable, Outcome};

const KEY: &[u8] = b"k";
/// The value whose TTL is over.
const STALE: u64 = 1;

/// A cache, and the database behind it.
struct World {
    store: Arc<Store>,
    loads: LoadTable,
    database: AtomicU64,
    /// Loaders that ran.
    ran: AtomicU64,
}

/// The end of a loader. A loader that panics or is cancelled drops the same state as one that fails.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Answers,
    Fails,
}

/// The ticket of a reload, returned on drop.
struct Ticket<'w>(&'w World, u64);

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.0.store.end_load(self.0.store.hash(KEY), self.1);
    }
}

impl World {
    /// With a stale value in the cache, and 2 in the database.
    fn new() -> Arc<Self> {
        let world = Self {
            store: store(4, 0),
            loads: LoadTable::default(),
            database: AtomicU64::new(2),
            ran: AtomicU64::new(0),
        };
        Client::new(&world.store).set(KEY, STALE);
        Arc::new(world)
    }

    /// The value of the key, loaded if it is stale or absent. `None` if the loader of this caller has failed.
    fn load(&self, end: End) -> Option<u64> {
        let client = Client::new(&self.store);
        let hash = self.store.hash(KEY);
        // Ends: each further round another caller has ended its load.
        loop {
            let found = client.get(KEY);
            if let Some(value) = found.filter(|value| *value != STALE) {
                return Some(value);
            }
            let leader = match self.loads.join(KEY, hash, |ticket| self.store.is_load_valid(hash, ticket)) {
                Join::Recursive => unreachable!("no loader loads"),
                // The stale value: no key of these models is absent for two callers.
                Join::Wait(_) => return found,
                Join::Lead(leader) => leader,
            };
            let number = match found {
                Some(_) => Some(self.store.begin_reload(KEY, hash).expect("a key of one byte")),
                None => self.store.begin_load(KEY, hash, client.now_ms).expect("a key of one byte"),
            };
            let Some(number) = number else { continue };
            let ticket = Ticket(self, number);
            if found.is_some() && client.get(KEY).is_some_and(|value| value != STALE) {
                continue;
            }
            leader.set_ticket(ticket.1);
            let loaded = leader.run(|| {
                self.ran.fetch_add(1, Ordering::SeqCst);
                self.database.load(Ordering::SeqCst)
            });
            if end == End::Fails {
                return None;
            }
            client.write(KEY, loaded, if found.is_some() { Mode::Reload(number) } else { Mode::Load(number) });
            leader.finish(Outcome::Loaded(Arc::new([loaded as u8])));
            return Some(loaded);
        }
    }

    fn ran(&self) -> u64 {
        self.ran.load(Ordering::SeqCst)
    }

    /// No load and no ticket is left.
    fn verify(&self) {
        assert!(self.store.load_tickets.is_empty(), "a ticket was not given back");
        let join = self.loads.join(KEY, self.store.hash(KEY), |_| true);
        assert!(matches!(join, Join::Lead(_)), "a load was not ended");
        Client::new(&self.store).verify();
    }
}

/// Two callers beside each other; the first with a loader that ends so.
fn two_callers(world: &Arc<World>, end: End) -> (Option<u64>, Option<u64>) {
    let other = Arc::clone(world);
    let first = thread::spawn(move || other.load(end));
    let second = world.load(End::Answers);
    (first.join().unwrap(), second)
}

#[test]
fn one_of_two_callers_reloads() {
    model(2, || {
        let world = World::new();
        let (first, second) = two_callers(&world, End::Answers);
        assert!([first, second].iter().all(|value| matches!(value, Some(STALE | 2))), "{first:?}, {second:?}");
        assert_eq!((world.ran(), Client::new(&world.store).get(KEY)), (1, Some(2)));
        world.verify();
    });
}

/// After a loader that has failed the stale value stays, and the next caller loads.
#[test]
fn a_failed_reload_leaves_the_stale_value() {
    model(2, || {
        let world = World::new();
        let (first, second) = two_callers(&world, End::Fails);
        assert!(first != Some(0) && matches!(second, Some(STALE | 2)), "{first:?}, {second:?}");
        assert!(world.store.load_tickets.is_empty(), "a ticket was not given back");
        assert_eq!(world.load(End::Answers), Some(2));
        assert_eq!(Client::new(&world.store).get(KEY), Some(2));
        world.verify();
    });
}

/// Leads a load that ends so, or waits for that of another caller.
fn lead_or_wait(loads: &LoadTable, end: End) -> Option<u8> {
    // Ends: each further round another caller has failed.
    loop {
        match loads.join(KEY, 0, |_| true) {
            Join::Recursive => unreachable!("no loader loads"),
            Join::Lead(_) if end == End::Fails => return None,
            Join::Lead(leader) => {
                leader.finish(Outcome::Loaded(Arc::new([2])));
                return Some(2);
            }
            Join::Wait(load) => match load.wait(Instant::now() + Duration::from_secs(3600)).expect("the load ends") {
                Outcome::Loaded(value) => return Some(value[0]),
                Outcome::Absent | Outcome::Abandoned => {}
            },
        }
    }
}

/// Callers of an absent value are woken by every end of the load that they wait for.
#[test]
fn waiters_are_released_by_a_failed_load() {
    for end in [End::Answers, End::Fails] {
        model(3, move || {
            let loads = Arc::new(LoadTable::default());
            let other = Arc::clone(&loads);
            let first = thread::spawn(move || lead_or_wait(&other, end));
            assert_eq!(lead_or_wait(&loads, End::Answers), Some(2));
            let first = first.join().unwrap();
            assert!(first == Some(2) || first.is_none() && end == End::Fails);
            assert!(matches!(loads.join(KEY, 0, |_| true), Join::Lead(_)), "a load was not ended");
        });
    }
}

/// Reloads the key beside a thread that changes the database from 2 to 3, and then tells the cache by `change`.
fn reload_beside(change: impl Fn(&Client<'_>) + Copy + Send + Sync + 'static) {
    model(2, move || {
        let world = World::new();
        let other = Arc::clone(&world);
        let writer = thread::spawn(move || {
            other.database.store(3, Ordering::SeqCst);
            change(&Client::new(&other.store));
        });
        world.load(End::Answers);
        writer.join().unwrap();
        let value = Client::new(&world.store).get(KEY);
        assert!(matches!(value, None | Some(3)), "an older value stays: {value:?}");
        world.verify();
    });
}

#[test]
fn a_reload_never_outlives_a_set() {
    reload_beside(|client| client.set(KEY, 3));
}

#[test]
fn a_reload_never_outlives_a_delete() {
    reload_beside(|client| _ = client.delete(KEY));
}

#[test]
fn a_reload_never_outlives_a_flush() {
    reload_beside(|client| client.store.flush(client.now_ms, 0));
}
