//! Deletes the entries whose keys belong to another pool since a reload, or since a start with other prefixes.
//!
//! Such an entry is never read. It must be removed before another reload can give its key back to its pool: clients
//! have written newer values to the other pool meanwhile. A memory file and flash keep whether that has been done. What
//! flash cannot read is given up.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ebbtide::flash::Health;
use ebbtide::memcached::{Pool, Scan};

use super::{PoolRule, PoolSet};
use crate::Error;
use crate::shared::Shared;

/// Interval of attempts to scan a pool that clients scan as often as they can.
const INTERVAL: Duration = Duration::from_millis(100);
/// Longest pause before a pool is swept again of which flash was not walked as a whole.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Attempts to end the change of the prefixes on flash, with pauses that double.
const END_TRIES: u32 = 6;

/// How the sweep of a pool has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SweepEnd {
    /// Without an entry that is not the pool's.
    Clean,
    /// Flash was not walked as a whole, and may have such entries.
    Incomplete,
    /// The server stops.
    Stopped,
}

/// A sweep under way. When it is dropped, also by a panic, the next reload is accepted.
struct SweepGuard(Arc<Shared>);

impl Drop for SweepGuard {
    fn drop(&mut self) {
        self.0.pools.is_sweeping.store(false, Ordering::Relaxed);
    }
}

/// Starts to delete, in the background.
pub fn start(shared: &Arc<Shared>) -> Result<(), Error> {
    start_with(shared, sweep_all).map(drop)
}

/// If the sweep panics, or cannot start, all pools are emptied instead: the next reload may give keys back.
fn start_with(
    shared: &Arc<Shared>,
    sweep: impl FnOnce(&Shared) -> Option<Arc<PoolSet>> + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    shared.pools.is_sweeping.store(true, Ordering::Relaxed);
    let for_thread = Arc::clone(shared);
    let run = move || {
        let guard = SweepGuard(for_thread);
        let shared = &*guard.0;
        match panic::catch_unwind(AssertUnwindSafe(|| sweep(shared))) {
            Ok(Some(set)) => end_rerouting(shared, &set),
            Ok(None) => {}
            Err(_) => empty_all(shared),
        }
    };
    let spawned = thread::Builder::new().name("pool-sweep".to_owned()).spawn(run);
    spawned.map_err(|error| {
        empty_all(&SweepGuard(Arc::clone(shared)).0);
        Error::Thread(error)
    })
}

/// Removes all entries, which leaves none whose key belongs to another pool.
fn empty_all(shared: &Shared) {
    let set = shared.pools.current();
    set.entries.iter().for_each(|entry| entry.pool.flush(Duration::ZERO));
    set.flush_compact();
    if shared.pools.remove_leaving(&shared.cache).is_ok() {
        end_rerouting(shared, &set);
    }
}

/// Notes that the change of the prefixes is over. Maintenance marks what a sweep has given up on flash: until then a
/// start could find it.
fn end_rerouting(shared: &Shared, set: &PoolSet) {
    let rules = PoolRule::routing(set.rules());
    let mut pause = INTERVAL;
    for _ in 0..END_TRIES {
        shared.cache.end_rerouting(&rules);
        if !shared.cache.is_rerouting() || shared.is_stopping() {
            return;
        }
        pause_for(pause, &|| shared.is_stopping());
        pause *= 2;
    }
}

/// Sweeps all pools of the present set. Returns it if each is clean. Where flash has failed no pool is: nothing is
/// served from there, and the next start must not use it if the prefixes change again. Memory of all pools is swept.
fn sweep_all(shared: &Shared) -> Option<Arc<PoolSet>> {
    if !shared.pools.is_taken_over() {
        while !shared.pools.is_taken_over() {
            if shared.is_stopping() {
                return None;
            }
            thread::sleep(INTERVAL);
        }
        // The threads that were late may have written to compact pools.
        shared.pools.current().flush_compact();
    }
    // A failed reload keeps pools whose rules are gone: a start with the old rules would find their entries.
    shared.pools.remove_leaving(&shared.cache).ok()?;
    let set = shared.pools.current();
    let is_stopping = || shared.is_stopping();
    let mut is_clean = true;
    for number in 0..set.entries.len() {
        is_clean &= sweep_until_clean(shared, &set, number, &is_stopping) == SweepEnd::Clean;
    }
    is_clean.then_some(set)
}

/// Sweeps a pool until it is clean, the server stops, or flash has failed and memory is swept.
fn sweep_until_clean(shared: &Shared, set: &PoolSet, number: usize, is_stopping: &impl Fn() -> bool) -> SweepEnd {
    let mut pause = INTERVAL;
    loop {
        match sweep(set, number, is_stopping) {
            SweepEnd::Incomplete if shared.cache.flash_health() != Some(Health::Failed) => {
                pause_for(pause, is_stopping);
            }
            end => return end,
        }
        pause = (2 * pause).min(MAX_PAUSE);
    }
}

/// Sleeps, and wakes up when the server stops.
fn pause_for(pause: Duration, is_stopping: &impl Fn() -> bool) {
    for _ in 0..pause.as_millis() / INTERVAL.as_millis() {
        if is_stopping() {
            return;
        }
        thread::sleep(INTERVAL);
    }
}

/// Deletes the entries of one pool that are not its own.
fn sweep(set: &PoolSet, number: usize, is_stopping: &impl Fn() -> bool) -> SweepEnd {
    let pool = &set.entries[number].pool;
    let Some(mut scan) = begin(pool, is_stopping) else { return SweepEnd::Stopped };
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut has_more = true;
    while has_more && !is_stopping() {
        has_more = scan.advance(|entry| {
            if set.prefixes.find(entry.key()) != number {
                keys.push(entry.key().to_vec());
            }
        });
        for key in keys.drain(..) {
            pool.delete(&key);
        }
    }
    match () {
        // A cache that is closed deletes nothing: only a look after the last delete tells that each was done.
        () if is_stopping() => SweepEnd::Stopped,
        () if scan.is_complete() => SweepEnd::Clean,
        () => SweepEnd::Incomplete,
    }
}

/// A scan of the pool. `None` when the server stops.
fn begin(pool: &Pool, is_stopping: &impl Fn() -> bool) -> Option<Scan> {
    // The loop ends: a client's scan ends when its reader has read it or has disconnected.
    while !is_stopping() {
        match pool.scan() {
            Ok(scan) => return Some(scan.without_long_values().giving_up_unread()),
            Err(_) => thread::sleep(INTERVAL),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use ebbtide::memcached::{ByteSize, Cache};

    use super::super::test_server::server;
    use super::*;

    #[test]
    fn a_sweep_beside_a_stop_is_not_clean() {
        let cache = Cache::builder().memory(ByteSize::mib(8)).build().expect("a cache");
        let (set, number) = (PoolSet::new(&cache, &[PoolRule::named("default")], 1).expect("a set"), 0);
        assert_eq!(sweep(&set, number, &|| false), SweepEnd::Clean);
        let mut scan = set.entries[number].pool.scan().expect("a scan");
        // A look whether the server stops before the scan, and one before each step.
        let steps = 1 + (0..).take_while(|_| scan.advance(|_| ())).count();
        let looks = Cell::new(0);
        let look = || {
            if looks.get() == steps {
                // The last step and its deletes follow.
                cache.close().expect("a clean close");
            }
            looks.replace(looks.get() + 1) > steps
        };
        assert_eq!(sweep(&set, number, &look), SweepEnd::Stopped);
    }

    /// Its entries are in a pool that their keys have left, and the next reload may give the keys back.
    #[test]
    fn a_sweep_that_panics_leaves_nothing() {
        let (cache, server, _rules) = server();
        let shared = &server.acceptor.shared;
        cache.insert(b"a:1", b"old").apply().expect("stored");
        let sweep = start_with(shared, |_| panic!("in the middle")).expect("a thread");
        _ = sweep.join();
        assert!(!shared.pools.is_sweeping.load(Ordering::Relaxed), "reloads are refused");
        assert!(!cache.contains(b"a:1"), "an old value");
        cache.insert(b"a:1", b"old").apply().expect("stored");
        start_with(shared, sweep_all).expect("a thread").join().expect("no panic");
        assert!(!shared.pools.is_sweeping.load(Ordering::Relaxed) && !cache.contains(b"a:1"));
    }
}
