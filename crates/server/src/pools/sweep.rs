//! Deletes the entries whose keys belong to another pool since a reload, or since a start with other prefixes.
//!
//! Such an entry is never read. It must be removed before another reload can give its key back to its pool: clients
//! have written newer values to the other pool meanwhile. A memory file and flash keep whether that has been done.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use ebbtide::memcached::{Pool, Scan};

use super::PoolSet;
use crate::Error;
use crate::shared::Shared;

/// Interval of attempts to scan a pool that clients scan as often as they can.
const INTERVAL: Duration = Duration::from_millis(100);

/// Starts to delete, in the background.
pub fn start(shared: &Arc<Shared>) -> Result<(), Error> {
    shared.pools.is_sweeping.store(true, Ordering::Relaxed);
    let for_thread = Arc::clone(shared);
    let run = move || {
        let set = for_thread.pools.current();
        if (0..set.entries.len()).all(|number| sweep(&for_thread, &set, number)) {
            for_thread.cache.end_rerouting();
        }
        for_thread.pools.is_sweeping.store(false, Ordering::Relaxed);
    };
    thread::Builder::new().name("pool-sweep".to_owned()).spawn(run).map(drop).map_err(Error::Thread)
}

/// Deletes the entries of one pool that are not its own. False if the server stops before the end.
fn sweep(shared: &Shared, set: &PoolSet, number: usize) -> bool {
    let pool = &set.entries[number].pool;
    let Some(mut scan) = begin(shared, pool) else { return false };
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut has_more = true;
    while has_more && !shared.is_stopping() {
        has_more = scan.advance(|entry| {
            if set.prefixes.find(entry.key()) != number {
                keys.push(entry.key().to_vec());
            }
        });
        for key in keys.drain(..) {
            pool.delete(&key);
        }
    }
    !has_more
}

/// A scan of the pool. `None` when the server stops.
fn begin(shared: &Shared, pool: &Pool) -> Option<Scan> {
    // The loop ends: a client's scan ends when its reader has read it or has disconnected.
    while !shared.is_stopping() {
        match pool.scan() {
            Ok(scan) => return Some(scan),
            Err(_) => thread::sleep(INTERVAL),
        }
    }
    None
}
