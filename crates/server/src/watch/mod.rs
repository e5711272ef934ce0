//! Watchers: the thread that causes an event formats it into the buffer of each watcher of its kind, and the worker of
//! the watcher's connection sends it.
//!
//! Without watchers an event costs one load of a word that rarely changes. A watcher with a full buffer loses lines,
//! and gets their number as soon as there is space: no thread waits for a watcher. A watcher with `sample=N` gets the
//! events of one key of N, chosen by a hash of the key; the lines of other keys are not formatted.

mod line;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use ebbtide::memcached::Removal;
use ebbtide_protocol::Watched;

use crate::connection_info::ConnectionInfo;
use crate::inbox::Inbox;
use crate::sync::lock;

pub use line::{CloseReason, DeleteCommand, FetchDetail, FetchResult, FetchVerb, StoreEvent, StoreStatus, StoreVerb};

/// Max watchers, as in memcached.
const MAX_WATCHERS: usize = 20;
/// Max bytes of pending lines of a watcher: memcached's `watcher_logbuf_size`.
const BUFFER_BYTES: usize = 256 << 10;

/// A kind of events, as a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WatchKind {
    Fetch = 1,
    Mutation = 2,
    Eviction = 4,
    Connection = 8,
    Deletion = 16,
}

/// All watchers of a server.
#[derive(Default)]
pub struct Watching {
    /// The kinds that any watcher wants.
    wanted: AtomicU8,
    /// The largest `max_hash` of the watchers.
    max_hash: AtomicU64,
    /// Whether a watcher wants details of lookups.
    wants_details: AtomicBool,
    /// Random, so that no client chooses keys that are always in the sample.
    hasher: RandomState,
    watchers: Mutex<Vec<Arc<Watcher>>>,
    lines: AtomicU64,
    sent: AtomicU64,
    skipped: AtomicU64,
}

/// Counts of watching.
pub struct WatchCounts {
    pub watchers: usize,
    /// Lines written, lines sent to watchers, and lines that slow watchers lost.
    pub lines: u64,
    pub sent: u64,
    pub skipped: u64,
}

/// A watcher, shared by the threads that write events and the connection that sends them.
pub struct Watcher {
    kinds: u8,
    /// Keys with a larger hash are not in its sample.
    max_hash: u64,
    /// Whether the watcher gets details of lookups, as with `sample=N`.
    has_details: bool,
    pending: Mutex<PendingLines>,
    /// Set once the worker has been woken for pending lines.
    announced: AtomicBool,
    worker: OnceLock<Arc<Inbox>>,
}

#[derive(Default)]
struct PendingLines {
    bytes: Vec<u8>,
    skipped: u64,
}

/// The subscription of a connection, which ends when it is dropped.
pub struct Watch {
    watching: Arc<Watching>,
    watcher: Arc<Watcher>,
}

impl Watching {
    #[inline]
    pub fn wants(&self, kind: WatchKind) -> bool {
        self.wanted.load(Ordering::Relaxed) & kind as u8 != 0
    }

    pub fn counts(&self) -> WatchCounts {
        WatchCounts {
            watchers: lock(&self.watchers).len(),
            lines: self.lines.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
        }
    }

    /// Adds a watcher; `None` at the maximum.
    pub fn subscribe(self: &Arc<Self>, watched: Watched) -> Option<Watch> {
        let kinds = [
            (watched.fetchers, WatchKind::Fetch),
            (watched.mutations, WatchKind::Mutation),
            (watched.evictions, WatchKind::Eviction),
            (watched.connections, WatchKind::Connection),
            (watched.deletions, WatchKind::Deletion),
        ];
        let kinds = kinds.iter().filter(|(asked, _)| *asked).fold(0, |kinds, (_, kind)| kinds | *kind as u8);
        let mut watchers = lock(&self.watchers);
        if watchers.len() >= MAX_WATCHERS {
            return None;
        }
        let watcher = Arc::new(Watcher {
            kinds,
            max_hash: watched.sample.map_or(u64::MAX, |one_of| u64::MAX / u64::from(one_of.get())),
            has_details: watched.sample.is_some(),
            pending: Mutex::default(),
            announced: AtomicBool::new(false),
            worker: OnceLock::new(),
        });
        watchers.push(Arc::clone(&watcher));
        self.note_kinds(&watchers);
        Some(Watch { watching: Arc::clone(self), watcher })
    }

    fn note_kinds(&self, watchers: &[Arc<Watcher>]) {
        let wanted = watchers.iter().fold(0, |kinds, watcher| kinds | watcher.kinds);
        self.wanted.store(wanted, Ordering::Relaxed);
        let max_hash = watchers.iter().map(|watcher| watcher.max_hash).max().unwrap_or(0);
        self.max_hash.store(max_hash, Ordering::Relaxed);
        self.wants_details.store(watchers.iter().any(|watcher| watcher.has_details), Ordering::Relaxed);
    }

    /// Whether any watcher needs the details of a lookup of this key.
    pub fn wants_details(&self, key: &[u8]) -> bool {
        self.wants_details.load(Ordering::Relaxed) && self.sample_hash(key).is_some()
    }

    /// The hash of a key that is in the sample of a watcher; zero if every key is in every sample.
    fn sample_hash(&self, key: &[u8]) -> Option<u64> {
        if !self.wants_details.load(Ordering::Relaxed) {
            return Some(0);
        }
        let hash = self.hasher.hash_one(key);
        (hash <= self.max_hash.load(Ordering::Relaxed)).then_some(hash)
    }

    /// Appends a line about a key to the buffers of the watchers of its kind that sample the key, with details for
    /// watchers that get them. Lines without a key use an empty key, which is in every sample.
    #[cold]
    fn append_line(
        &self,
        kind: WatchKind,
        key: &[u8],
        write: impl FnOnce(&mut Vec<u8>),
        write_details: impl FnOnce(&mut Vec<u8>),
    ) {
        let hash = if key.is_empty() { Some(0) } else { self.sample_hash(key) };
        let Some(hash) = hash else { return };
        let mut line = Vec::with_capacity(256);
        line::begin(&mut line, self.lines.fetch_add(1, Ordering::Relaxed) + 1);
        write(&mut line);
        let mut detailed = line.clone();
        write_details(&mut detailed);
        line.push(b'\n');
        detailed.push(b'\n');
        let wants = |watcher: &&Arc<Watcher>| watcher.kinds & kind as u8 != 0 && hash <= watcher.max_hash;
        for watcher in lock(&self.watchers).iter().filter(wants) {
            if !watcher.append(if watcher.has_details { &detailed } else { &line }) {
                self.skipped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// `detail` is called only if a watcher gets the details.
    pub fn fetch(
        &self,
        key: &[u8],
        connection: usize,
        fetched: FetchResult,
        detail: impl FnOnce() -> Option<FetchDetail>,
    ) {
        self.append_line(
            WatchKind::Fetch,
            key,
            |line| line::item_get(line, key, connection, fetched),
            |line| detail().iter().for_each(|detail| line::fetch_detail(line, detail)),
        );
    }

    pub fn store(&self, key: &[u8], connection: usize, store: &StoreEvent) {
        self.append_line(WatchKind::Mutation, key, |line| line::item_store(line, key, connection, store), |_| {});
    }

    pub fn delete(&self, key: &[u8], command: DeleteCommand, length: usize) {
        self.append_line(WatchKind::Deletion, key, |line| line::deleted(line, key, command, length), |_| {});
    }

    pub fn evict(&self, removal: &Removal<'_>) {
        self.append_line(WatchKind::Eviction, removal.key(), |line| line::eviction(line, removal), |_| {});
    }

    pub fn open(&self, info: &ConnectionInfo, connection: usize) {
        let write = |line: &mut Vec<u8>| line::connection(line, &info.peer, connection, None);
        self.append_line(WatchKind::Connection, b"", write, |_| {});
    }

    pub fn close(&self, info: &ConnectionInfo, connection: usize, reason: CloseReason) {
        let write = |line: &mut Vec<u8>| line::connection(line, &info.peer, connection, Some(reason));
        self.append_line(WatchKind::Connection, b"", write, |_| {});
    }
}

impl Watcher {
    /// False when the buffer is full.
    fn append(&self, line: &[u8]) -> bool {
        let mut pending = lock(&self.pending);
        let has_space = pending.bytes.len() + line.len() <= BUFFER_BYTES;
        if has_space {
            if pending.skipped > 0 {
                let skipped = std::mem::take(&mut pending.skipped);
                pending.bytes.extend_from_slice(format!("skipped={skipped}\n").as_bytes());
            }
            pending.bytes.extend_from_slice(line);
        } else {
            pending.skipped += 1;
        }
        drop(pending);
        if !self.announced.swap(true, Ordering::AcqRel)
            && let Some(worker) = self.worker.get()
        {
            worker.waker.wake().expect("an event counter takes one more event");
        }
        has_space
    }
}

impl Watch {
    /// Has events wake the worker of the watcher's connection.
    pub fn attach(&self, worker: &Arc<Inbox>) {
        self.watcher.worker.get_or_init(|| Arc::clone(worker));
    }

    /// Moves pending lines to `out`.
    pub fn take(&self, out: &mut Vec<u8>) {
        // Before the buffer is taken, so that a later event wakes the worker again.
        self.watcher.announced.store(false, Ordering::Release);
        let mut pending = lock(&self.watcher.pending);
        let lines = pending.bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        out.append(&mut pending.bytes);
        drop(pending);
        self.watching.sent.fetch_add(lines, Ordering::Relaxed);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watchers = lock(&self.watching.watchers);
        watchers.retain(|watcher| !Arc::ptr_eq(watcher, &self.watcher));
        self.watching.note_kinds(&watchers);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn watch(watching: &Arc<Watching>) -> Watch {
        watching.subscribe(Watched { fetchers: true, ..Watched::default() }).expect("space for a watcher")
    }

    fn fetch(watching: &Watching, key: &[u8], fetched: FetchResult) {
        watching.fetch(key, 7, fetched, || Some(FetchDetail { verb: FetchVerb::Get, ttl_seconds: 9 }));
    }

    fn taken(watch: &Watch) -> String {
        let mut out = Vec::new();
        watch.take(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn only_what_is_wanted_is_told() {
        let watching = Arc::new(Watching::default());
        assert!(!watching.wants(WatchKind::Fetch));
        let one = watch(&watching);
        assert!(watching.wants(WatchKind::Fetch) && !watching.wants(WatchKind::Eviction));
        watching.delete(b"k", DeleteCommand::Delete, 1);
        assert_eq!(taken(&one), "");
        fetch(&watching, b"k", FetchResult::Miss);
        assert!(taken(&one).ends_with("gid=2 type=item_get key=k status=not_found clsid=0 cfd=7 size=0\n"));
        drop(one);
        assert!(!watching.wants(WatchKind::Fetch));
    }

    #[test]
    fn a_full_buffer_skips_and_counts_lines() {
        let watching = Arc::new(Watching::default());
        let slow = watch(&watching);
        let key = [b'k'; 250];
        let mut told = 0;
        while watching.skipped.load(Ordering::Relaxed) < 3 {
            fetch(&watching, &key, FetchResult::Hit(5));
            told += 1;
        }
        let text = taken(&slow);
        assert!(text.len() <= BUFFER_BYTES && text.len() > BUFFER_BYTES - 400);
        assert_eq!(text.lines().count(), told - 3);
        fetch(&watching, b"k", FetchResult::Miss);
        let text = taken(&slow);
        assert!(text.starts_with("skipped=3\nts=") && text.lines().count() == 2, "{text}");
    }

    #[test]
    fn sample_n_gives_one_key_in_n_detailed() {
        let watching = Arc::new(Watching::default());
        let sample = |one_of| {
            let watched = Watched { fetchers: true, sample: NonZeroU32::new(one_of), ..Watched::default() };
            watching.subscribe(watched).expect("space for a watcher")
        };
        let (all, tenth) = (sample(1), sample(10));
        let keys: Vec<Vec<u8>> = (0..2000).map(|number| format!("key{number}").into_bytes()).collect();
        keys.iter().for_each(|key| fetch(&watching, key, FetchResult::Miss));
        let (all_lines, tenth_lines) = (taken(&all), taken(&tenth));
        assert_eq!(all_lines.lines().count(), 2000);
        assert!(all_lines.lines().all(|line| line.ends_with(" size=0 ttl=9 cmd=get")));
        let sampled = tenth_lines.lines().count();
        assert!((120..280).contains(&sampled), "{sampled} of 2000");
        assert!(keys.iter().filter(|key| watching.wants_details(key)).count() == 2000);
        drop(all);
        assert_eq!(keys.iter().filter(|key| watching.wants_details(key)).count(), sampled);
        let plain = watch(&watching);
        keys.iter().for_each(|key| fetch(&watching, key, FetchResult::Miss));
        assert_eq!((taken(&plain).lines().count(), taken(&tenth).lines().count()), (2000, sampled));
    }

    #[test]
    fn watchers_are_bounded() {
        let watching = Arc::new(Watching::default());
        let mut all: Vec<Watch> = (0..MAX_WATCHERS).map(|_| watch(&watching)).collect();
        assert!(watching.subscribe(Watched::default()).is_none());
        all.pop();
        assert!(watching.subscribe(Watched::default()).is_some());
    }
}
