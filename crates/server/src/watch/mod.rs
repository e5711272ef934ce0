//! Watchers: the thread that causes an event formats it into the buffer of each watcher of its kind, and the worker of
//! the watcher's connection sends it.
//!
//! Without watchers an event costs one load of a word that rarely changes. A watcher with a full buffer loses lines,
//! and is told their number as soon as there is space: no thread waits for a watcher.

mod line;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use ebbtide::memcached::{Cause, Error, Pool, Removal};
use ebbtide_protocol::Watched;

use crate::connection_info::ConnectionInfo;
use crate::inbox::Inbox;
use crate::sync::lock;

pub use line::{CloseReason, DeleteCommand, FetchResult, StoreEvent, StoreStatus, StoreVerb};

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
    /// Tells watchers of evictions of a pool.
    pub fn watch_evictions(self: &Arc<Self>, pool: &Pool) -> Result<(), Error> {
        let told = Arc::clone(self);
        pool.on_removal(move |removal: Removal<'_>| {
            if told.wants(WatchKind::Eviction) && matches!(removal.cause(), Cause::Memory | Cause::IndexFull) {
                told.evict(&removal);
            }
        })
    }

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
    }

    /// Appends a line to the buffers of the watchers of its kind.
    #[cold]
    fn append_line(&self, kind: WatchKind, write: impl FnOnce(&mut Vec<u8>)) {
        let mut line = Vec::with_capacity(256);
        line::begin(&mut line, self.lines.fetch_add(1, Ordering::Relaxed) + 1);
        write(&mut line);
        line.push(b'\n');
        for watcher in lock(&self.watchers).iter().filter(|watcher| watcher.kinds & kind as u8 != 0) {
            if !watcher.append(&line) {
                self.skipped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub fn fetch(&self, key: &[u8], connection: usize, fetched: FetchResult) {
        self.append_line(WatchKind::Fetch, |line| line::item_get(line, key, connection, fetched));
    }

    pub fn store(&self, key: &[u8], connection: usize, store: &StoreEvent) {
        self.append_line(WatchKind::Mutation, |line| line::item_store(line, key, connection, store));
    }

    pub fn delete(&self, key: &[u8], command: DeleteCommand, length: usize) {
        self.append_line(WatchKind::Deletion, |line| line::deleted(line, key, command, length));
    }

    pub fn evict(&self, removal: &Removal<'_>) {
        self.append_line(WatchKind::Eviction, |line| line::eviction(line, removal));
    }

    pub fn open(&self, info: &ConnectionInfo, connection: usize) {
        self.append_line(WatchKind::Connection, |line| line::connection(line, &info.peer, connection, None));
    }

    pub fn close(&self, info: &ConnectionInfo, connection: usize, reason: CloseReason) {
        self.append_line(WatchKind::Connection, |line| line::connection(line, &info.peer, connection, Some(reason)));
    }
}

impl Watcher {
    /// False when the buffer is full.
    fn append(&self, line: &[u8]) -> bool {
        let mut pending = lock(&self.pending);
        let has_room = pending.bytes.len() + line.len() <= BUFFER_BYTES;
        if has_room {
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
        has_room
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
    use super::*;

    fn watch(watching: &Arc<Watching>) -> Watch {
        watching.subscribe(Watched { fetchers: true, ..Watched::default() }).expect("room for a watcher")
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
        watching.fetch(b"k", 7, FetchResult::Miss);
        assert!(taken(&one).ends_with("gid=2 type=item_get key=k status=not_found clsid=0 cfd=7 size=0\n"));
        drop(one);
        assert!(!watching.wants(WatchKind::Fetch));
    }

    #[test]
    fn a_full_buffer_skips_lines_and_says_how_many() {
        let watching = Arc::new(Watching::default());
        let slow = watch(&watching);
        let key = [b'k'; 250];
        let mut told = 0;
        while watching.skipped.load(Ordering::Relaxed) < 3 {
            watching.fetch(&key, 1, FetchResult::Hit(5));
            told += 1;
        }
        let text = taken(&slow);
        assert!(text.len() <= BUFFER_BYTES && text.len() > BUFFER_BYTES - 400);
        assert_eq!(text.lines().count(), told - 3);
        watching.fetch(b"k", 1, FetchResult::Miss);
        let text = taken(&slow);
        assert!(text.starts_with("skipped=3\nts=") && text.lines().count() == 2, "{text}");
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
