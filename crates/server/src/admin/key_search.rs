//! A search for keys that hold a text, in memory and then on flash: a scan as `lru_crawler metadump` makes it, in
//! slices.
//!
//! A slice examines a bounded number of objects, so the admin thread is never busy for longer than some 10 ms. Slices
//! on flash wait for reads, so the thread of dumps makes them. Between two slices the position is kept, and no object.
//! One search is kept at a time: a new search replaces it, and a minute without a request ends it, because a cache
//! limits the number of concurrent scans.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ebbtide::memcached::{Entry, Pool, Scan};
use ebbtide_protocol::encoding::uri_encode;
use serde_json::{Value, json};

use crate::dump_thread::SLICE_READS;
use crate::observe::printable;
use crate::pools::PoolSet;

/// Entries of an answer: from this number on the slice ends. A step of the scan adds at most 112.
const MAX_ENTRIES: usize = 100;
/// Steps of the scan in memory for one answer, with up to 112 objects each.
const MAX_STEPS: usize = 1024;
/// Time without a request after which the position is dropped.
const MAX_IDLE: Duration = Duration::from_secs(60);

/// The current search.
#[derive(Default)]
pub struct KeySearches {
    kept: Option<KeySearch>,
    /// Of the last search.
    token: u64,
}

/// The position of a search.
pub struct KeySearch {
    token: u64,
    filter: Vec<u8>,
    scan: Scan,
    pool: String,
    /// The pools that follow.
    pools: VecDeque<(String, Pool)>,
    looked_at: u64,
    used: Instant,
}

/// The result of one step of a search.
pub struct SearchSlice {
    pub entries: Vec<Value>,
    /// Objects since the start of the search.
    pub looked_at: u64,
    /// Position at which the search continues; `None` at its end.
    pub next: Option<u64>,
}

impl KeySearches {
    pub fn forget_idle(&mut self) {
        if self.kept.as_ref().is_some_and(|search| search.used.elapsed() > MAX_IDLE) {
            self.kept = None;
        }
    }

    /// The search of this token, if it is kept.
    pub fn take(&mut self, token: u64) -> Option<KeySearch> {
        self.kept.take_if(|search| search.token == token)
    }

    /// `None` if too many scans are running.
    pub fn start(&mut self, set: &PoolSet, filter: &[u8]) -> Option<KeySearch> {
        // The scan of the search before ends first.
        self.kept = None;
        self.token += 1;
        let mut pools: VecDeque<_> =
            set.entries.iter().map(|entry| (entry.rule.name.clone(), entry.pool.clone())).collect();
        let (pool, first) = pools.pop_front()?;
        let scan = first.scan().ok()?.without_long_values();
        let (token, filter) = (self.token, filter.to_vec());
        Some(KeySearch { token, filter, scan, pool, pools, looked_at: 0, used: Instant::now() })
    }

    /// Keeps a search whose slice is made, unless another one was started meanwhile.
    pub fn keep(&mut self, search: Option<KeySearch>) {
        if let Some(search) = search.filter(|search| search.token == self.token) {
            self.kept = Some(search);
        }
    }
}

impl KeySearch {
    /// Whether the next slice reads flash.
    pub fn waits(&self) -> bool {
        self.scan.waits()
    }

    /// The next slice, and the search if more follow.
    pub fn advance(mut self) -> (SearchSlice, Option<Self>) {
        let mut entries = Vec::new();
        let has_more = self.look_at_next(&mut entries);
        self.used = Instant::now();
        let slice = SearchSlice { entries, looked_at: self.looked_at, next: has_more.then_some(self.token) };
        (slice, has_more.then_some(self))
    }

    /// Examines the next objects, all in memory or all on flash; false at the end of the last pool.
    fn look_at_next(&mut self, found: &mut Vec<Value>) -> bool {
        let waits = self.scan.waits();
        let steps = if waits { SLICE_READS } else { MAX_STEPS };
        for _ in 0..steps {
            let (filter, pool, looked_at) = (&self.filter, &self.pool, &mut self.looked_at);
            let has_more = self.scan.advance(|entry| {
                *looked_at += 1;
                if holds(entry.key(), filter) {
                    found.push(row(&entry, pool));
                }
            });
            if !has_more {
                match self.next_pool() {
                    Some(scan) => self.scan = scan,
                    None => return false,
                }
            }
            if found.len() >= MAX_ENTRIES || self.scan.waits() != waits {
                break;
            }
        }
        true
    }

    /// The scan of the next pool; a pool that cannot be scanned now is left out.
    fn next_pool(&mut self) -> Option<Scan> {
        // Ends: each round removes a pool.
        while let Some((name, pool)) = self.pools.pop_front() {
            if let Ok(scan) = pool.scan() {
                self.pool = name;
                return Some(scan.without_long_values());
            }
        }
        None
    }
}

fn holds(key: &[u8], filter: &[u8]) -> bool {
    filter.is_empty() || key.windows(filter.len()).any(|part| part == filter)
}

/// Flash remembers neither uses nor when they were: both are null there.
fn row(entry: &Entry<'_>, pool: &str) -> Value {
    let mut id = Vec::new();
    uri_encode(&mut id, entry.key());
    json!({
        "key": printable(entry.key()),
        "id": String::from_utf8_lossy(&id),
        "pool": pool,
        "bytes": entry.stored_bytes(),
        "ttl_seconds": entry.ttl().map(|ttl| ttl.as_secs()),
        "idle_seconds": entry.idle().map(|idle| idle.as_secs()),
        "unread": entry.item().map(|item| !item.was_used()),
        "on_flash": entry.item().is_none(),
    })
}
