//! Deletes the entries whose keys belong to another pool since a reload, or since a start with other prefixes.
//!
//! Such an entry is never read. It must be removed before another reload can give its key back to its pool: clients
//! have written newer values to the other pool meanwhile. A memory file and flash keep whether that has been done.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use ebbtide::flash::Health;
use ebbtide::memcached::{Pool, Scan};

use super::{PoolRule, PoolSet};
use crate::Error;
use crate::shared::Shared;

/// Interval of attempts to scan a pool that clients scan as often as they can.
const INTERVAL: Duration = Duration::from_millis(100);
/// Longest pause before a pool is swept again of which flash has not read everything.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// How the sweep of a pool has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SweepEnd {
    /// Without an entry that is not the pool's.
    Clean,
    /// Flash has not read everything, and may have such entries.
    Incomplete,
    /// The server stops.
    Stopped,
}

/// Starts to delete, in the background.
pub fn start(shared: &Arc<Shared>) -> Result<(), Error> {
    shared.pools.is_sweeping.store(true, Ordering::Relaxed);
    let for_thread = Arc::clone(shared);
    let run = move || {
        if let Some(set) = sweep_all(&for_thread) {
            for_thread.cache.end_rerouting(&PoolRule::routing(set.rules()));
        }
        for_thread.pools.is_sweeping.store(false, Ordering::Relaxed);
    };
    thread::Builder::new().name("pool-sweep".to_owned()).spawn(run).map(drop).map_err(Error::Thread)
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
            Ok(scan) => return Some(scan.without_long_values()),
            Err(_) => thread::sleep(INTERVAL),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use ebbtide::memcached::{ByteSize, Cache};

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
}
