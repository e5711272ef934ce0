//! lru_crawler metadump and mgdump: every key, in slices.
//!
//! A dump is a scan of the cache whose position the connection keeps. The next slice is made when the last one is sent,
//! so a dump goes at the pace of its reader and holds one slice; between slices other connections have their turn.
//!
//! ```text
//! memory: slice by the worker -> sent -> slice ...
//! flash:  scan to the dump thread -> slice, the worker is woken -> sent -> ...
//! ```
//! A worker waits for no device: the part of a scan that reads flash goes to a thread that all dumps share, and the
//! connection is parked until its slice is there.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ebbtide::{Entry, Scan};
use ebbtide_protocol::{CacheDump, Dump, DumpFormat, Rejection, encoding, reply};

use super::flash_reads::WakeOnDrop;
use super::{Executor, Next, unix_now};
use crate::output::Output;
use crate::shared::lock;

/// Bytes of a slice, and the most steps of the scan that one may take where the cache is nearly empty.
const SLICE_BYTES: usize = 64 << 10;
const SLICE_STEPS: usize = 256;
/// Bytes of the answer to stats cachedump, as in memcached, and steps of its scan: it is answered at once.
const CACHE_DUMP_BYTES: usize = 2 << 20;
const CACHE_DUMP_STEPS: usize = 4096;
/// The only slab class with items.
const CLASS: u32 = 1;
/// On flash a step is a read of 256 KiB, and other dumps wait.
const SLICE_READS: usize = 16;

/// A dump under way.
pub struct DumpProgress {
    format: DumpFormat,
    scan: ScanOwner,
}

enum ScanOwner {
    Connection(Box<Scan>),
    /// With the thread of dumps, which leaves it there.
    Thread(Arc<Mutex<Option<DumpSlice>>>),
}

/// What a dump does after a slice.
pub enum SliceEnd {
    /// There is more, after others had their turn.
    More,
    /// The connection is parked until flash was read.
    Parked,
    Finished,
}

struct DumpSlice {
    scan: Box<Scan>,
    lines: Vec<u8>,
    has_more: bool,
}

/// A slice that is to be made.
struct SliceJob {
    scan: Box<Scan>,
    format: DumpFormat,
    skipped: Duration,
    slice: Arc<Mutex<Option<DumpSlice>>>,
    /// Ends last: then the slice is there.
    _wake: WakeOnDrop,
}

/// The thread of dumps that have come to flash. It begins with the first one and ends with the server.
#[derive(Default)]
pub struct DumpThread {
    jobs: Mutex<Option<Sender<SliceJob>>>,
}

impl DumpThread {
    /// Has a slice made. The job is dropped if that is not possible, which wakes the connection.
    fn send(&self, job: SliceJob) {
        let mut jobs = lock(&self.jobs);
        if jobs.is_none() {
            let (sender, receiver) = mpsc::channel::<SliceJob>();
            let run = move || receiver.iter().for_each(SliceJob::run);
            *jobs = thread::Builder::new().name("dumps".to_string()).spawn(run).is_ok().then_some(sender);
        }
        if let Some(jobs) = &*jobs {
            drop(jobs.send(job));
        }
    }
}

impl SliceJob {
    fn run(self) {
        let Self { mut scan, format, skipped, slice, _wake } = self;
        let mut lines = Vec::new();
        let now = unix_now() + skipped;
        let has_more = fill(&mut lines, &mut scan, format, now, SLICE_READS);
        *lock(&slice) = Some(DumpSlice { scan, lines, has_more });
    }
}

impl Executor {
    pub(super) fn dump(&self, dump: Dump, output: &mut Output) -> Next {
        let refusal = match (self.shared.options.allow_dump, dump.everything) {
            (false, _) => match dump.format {
                DumpFormat::Metadump => reply::DUMP_NOT_ALLOWED,
                DumpFormat::Mgdump => reply::KEY_DUMP_NOT_ALLOWED,
            },
            (true, false) => {
                output.bytes().extend_from_slice(reply::OK);
                end(dump.format)
            }
            (true, true) => match self.cache.scan() {
                Ok(scan) => {
                    output.bytes().extend_from_slice(reply::OK);
                    let scan = ScanOwner::Connection(Box::new(scan.without_long_values()));
                    return Next::Dump(DumpProgress { format: dump.format, scan });
                }
                Err(_) => reply::BUSY,
            },
        };
        output.bytes().extend_from_slice(refusal);
        Next::Continue
    }

    /// stats cachedump: items of memory, in no order. Keys that cannot stand in a line are left out.
    pub(super) fn cache_dump(&self, dump: Result<CacheDump, Rejection>, out: &mut Vec<u8>) {
        if !self.shared.options.allow_dump {
            return out.extend_from_slice(reply::CACHEDUMP_NOT_ALLOWED);
        }
        let CacheDump { class, limit } = match dump {
            Ok(dump) => dump,
            Err(rejection) => return out.extend_from_slice(rejection.line()),
        };
        if class == CLASS {
            let Ok(scan) = self.cache.scan() else { return out.extend_from_slice(reply::BUSY) };
            self.list_items(scan, limit, out);
        }
        out.extend_from_slice(reply::END);
    }

    fn list_items(&self, mut scan: Scan, limit: u32, out: &mut Vec<u8>) {
        let now_ms = self.unix_now().as_millis() as u64;
        let end = out.len() + CACHE_DUMP_BYTES;
        let mut left = if limit == 0 { u32::MAX } else { limit };
        for _ in 0..CACHE_DUMP_STEPS {
            let has_more = scan.advance(|entry| {
                if left > 0 && !encoding::is_binary(entry.key()) && out.len() + ITEM_LINE_MAX <= end {
                    left -= 1;
                    item_line(out, &entry, now_ms);
                }
            });
            // What follows is on flash, and would be waited for.
            if !has_more || left == 0 || scan.waits() || out.len() + ITEM_LINE_MAX > end {
                break;
            }
        }
    }

    /// Appends the next slice of a dump, or begins to have it made.
    pub fn dump_slice(&self, dumping: DumpProgress, output: &mut Output) -> (SliceEnd, Option<DumpProgress>) {
        let DumpProgress { format, scan } = dumping;
        let out = output.bytes();
        let (has_more, scan) = match scan {
            ScanOwner::Connection(scan) if scan.waits() => {
                let slice = Arc::new(Mutex::new(None));
                let owner = ScanOwner::Thread(Arc::clone(&slice));
                let skipped = self.cache.skipped_time();
                self.shared.dump_thread.send(SliceJob {
                    scan,
                    format,
                    skipped,
                    slice,
                    _wake: self.park_until_dropped(),
                });
                return (SliceEnd::Parked, Some(DumpProgress { format, scan: owner }));
            }
            ScanOwner::Connection(mut scan) => (fill(out, &mut scan, format, self.unix_now(), SLICE_STEPS), scan),
            ScanOwner::Thread(slice) => match lock(&slice).take() {
                Some(DumpSlice { scan, lines, has_more }) => {
                    out.extend_from_slice(&lines);
                    (has_more, scan)
                }
                None => {
                    out.extend_from_slice(b"SERVER_ERROR the dump has broken off\r\n");
                    return (SliceEnd::Finished, None);
                }
            },
        };
        if has_more {
            return (SliceEnd::More, Some(DumpProgress { format, scan: ScanOwner::Connection(scan) }));
        }
        out.extend_from_slice(end(format));
        (SliceEnd::Finished, None)
    }
}

/// Goes on with a scan until there is enough for a slice, it has taken so many steps, or it comes to flash. False if it
/// has ended.
fn fill(out: &mut Vec<u8>, scan: &mut Scan, format: DumpFormat, unix_now: Duration, steps: usize) -> bool {
    let now_ms = unix_now.as_millis() as u64;
    let waits = scan.waits();
    for _ in 0..steps {
        let has_more = scan.advance(|entry| match format {
            DumpFormat::Metadump => metadump_line(out, &entry, now_ms),
            DumpFormat::Mgdump => mgdump_line(out, entry.key()),
        });
        if !has_more {
            return false;
        }
        if out.len() >= SLICE_BYTES || scan.waits() != waits {
            break;
        }
    }
    true
}

fn end(format: DumpFormat) -> &'static [u8] {
    match format {
        DumpFormat::Metadump => reply::END,
        DumpFormat::Mgdump => reply::META_END,
    }
}

/// The line ends with a blank and without a carriage return, as memcached's do. What flash does not know is 0.
fn metadump_line(out: &mut Vec<u8>, entry: &Entry<'_>, now_ms: u64) {
    out.extend_from_slice(b"key=");
    encoding::uri_encode(out, entry.key());
    match entry.ttl() {
        Some(ttl) => {
            out.extend_from_slice(b" exp=");
            reply::number(out, (now_ms + ttl.as_millis() as u64 + 500) / 1000);
        }
        None => out.extend_from_slice(b" exp=-1"),
    }
    out.extend_from_slice(b" la=");
    let active_ms = entry.idle().map_or(0, |idle| now_ms.saturating_sub(idle.as_millis() as u64));
    reply::number(out, active_ms / 1000);
    out.extend_from_slice(b" cas=");
    reply::number(out, entry.item().map_or(0, |item| item.passing_cas()));
    let fetched: &[u8] = if entry.frequency() > 0 { b" fetch=yes" } else { b" fetch=no" };
    out.extend_from_slice(fetched);
    out.extend_from_slice(b" cls=1 size=");
    reply::number(out, entry.stored_bytes());
    out.extend_from_slice(b" flags=");
    reply::number(out, entry.flags().into());
    out.extend_from_slice(b" \n");
}

/// Longer than a line of [`item_line`].
const ITEM_LINE_MAX: usize = 512;

fn item_line(out: &mut Vec<u8>, entry: &Entry<'_>, now_ms: u64) {
    out.extend_from_slice(b"ITEM ");
    out.extend_from_slice(entry.key());
    out.extend_from_slice(b" [");
    reply::number(out, entry.len());
    out.extend_from_slice(b" b; ");
    reply::number(out, entry.ttl().map_or(0, |ttl| (now_ms + ttl.as_millis() as u64 + 500) / 1000));
    out.extend_from_slice(b" s]\r\n");
}

fn mgdump_line(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(b"mg ");
    if encoding::is_binary(key) {
        encoding::base64_encode(out, key);
        out.extend_from_slice(b" b");
    } else {
        out.extend_from_slice(key);
    }
    out.extend_from_slice(reply::LINE_END);
}
