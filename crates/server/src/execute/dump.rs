//! lru_crawler metadump and mgdump: every key, in slices.
//!
//! A dump scans one pool after the other, and the connection keeps the position. The next slice is made when the last
//! one is sent, so a dump goes at the pace of its reader and holds one slice; between slices other connections have
//! their turn.
//!
//! ```text
//! memory: slice by the worker -> sent -> slice ...
//! flash:  scan to the dump thread -> slice, the worker is woken -> sent -> ...
//! ```
//! A worker waits for no device: the part of a scan that reads flash goes to a thread that all dumps share, and the
//! connection is parked until its slice is there.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use ebbtide::memcached::{Entry, Pool, Scan};
use ebbtide_protocol::{CacheDump, Dump, DumpFormat, Rejection, encoding, reply};

use super::{Executor, Next};
use crate::dump_thread::{DumpLine, DumpProgress, DumpSlice, SLICE_STEPS, ScanOwner, SliceJob, fill};
use crate::output::Output;
use crate::sync::lock;

/// Max bytes of the answer to stats cachedump, as in memcached, and max steps of its scan: it is answered at once.
const CACHE_DUMP_BYTES: usize = 2 << 20;
const CACHE_DUMP_STEPS: usize = 4096;
/// memcached's largest slab class.
const CLASS_LIMIT: u32 = 63;

/// Next action of a dump after a slice.
pub enum SliceEnd {
    /// More slices follow, after other connections had their turn.
    More,
    /// The connection is parked until flash has been read.
    Parked,
    Finished,
}

impl Executor {
    pub(super) fn dump(&self, dump: Dump, output: &mut Output) -> Next {
        let Dump { format, classes } = dump;
        let out = output.bytes();
        if !self.shared.options.allow_dump {
            out.extend_from_slice(match format {
                DumpFormat::Metadump => reply::DUMP_NOT_ALLOWED,
                DumpFormat::Mgdump => reply::KEY_DUMP_NOT_ALLOWED,
            });
            return Next::Continue;
        }
        let entries = self.router.set().entries.iter().filter(|entry| classes.contain(entry.class));
        let pools: VecDeque<_> = entries.map(|entry| (entry.class, entry.pool.clone())).collect();
        if pools.is_empty() {
            out.extend_from_slice(reply::OK);
            out.extend_from_slice(end(format));
            return Next::Continue;
        }
        match next_scan(format, pools) {
            Some(progress) => {
                out.extend_from_slice(reply::OK);
                Next::Dump(progress)
            }
            None => {
                out.extend_from_slice(reply::BUSY);
                Next::Continue
            }
        }
    }

    /// stats cachedump: items of memory, unordered. Keys with control bytes are left out.
    pub(super) fn cache_dump(&self, dump: Result<CacheDump, Rejection>, out: &mut Vec<u8>) {
        if !self.shared.options.allow_dump {
            return out.extend_from_slice(reply::CACHEDUMP_NOT_ALLOWED);
        }
        let CacheDump { class, limit } = match dump {
            Ok(dump) => dump,
            Err(rejection) => return out.extend_from_slice(rejection.line()),
        };
        match self.router.set().entries.iter().find(|entry| entry.class == class) {
            Some(entry) => {
                let Ok(scan) = entry.pool.scan() else { return out.extend_from_slice(reply::BUSY) };
                self.list_items(scan, limit, out);
            }
            None if class > CLASS_LIMIT => return out.extend_from_slice(Rejection::IllegalClass.line()),
            None => {}
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
            // The rest of the scan reads flash and would wait.
            if !has_more || left == 0 || scan.waits() || out.len() + ITEM_LINE_MAX > end {
                break;
            }
        }
    }

    /// Appends the next slice of a dump, or requests it from the dump thread.
    pub fn dump_slice(&self, dumping: DumpProgress, output: &mut Output) -> (SliceEnd, Option<DumpProgress>) {
        let DumpProgress { format, scan, class, pools } = dumping;
        let line = DumpLine { format, class };
        let out = output.bytes();
        let (has_more, scan) = match scan {
            ScanOwner::Connection(scan) if scan.waits() => {
                let slice = Arc::new(Mutex::new(None));
                let owner = ScanOwner::Thread(Arc::clone(&slice));
                let skipped = self.cache.skipped_time();
                let job = SliceJob { scan, line, skipped, slice, _wake: self.park_until_dropped() };
                self.shared.dump_thread.send(Box::new(move || job.run()));
                return (SliceEnd::Parked, Some(DumpProgress { format, scan: owner, class, pools }));
            }
            ScanOwner::Connection(mut scan) => (fill(out, &mut scan, line, self.unix_now(), SLICE_STEPS), scan),
            ScanOwner::Thread(slice) => match lock(&slice).take() {
                Some(DumpSlice { scan, lines, has_more }) => {
                    out.extend_from_slice(&lines);
                    (has_more, scan)
                }
                None => return broken_off(out),
            },
        };
        if has_more {
            let scan = ScanOwner::Connection(scan);
            return (SliceEnd::More, Some(DumpProgress { format, scan, class, pools }));
        }
        if !pools.is_empty() {
            return match next_scan(format, pools) {
                Some(progress) => (SliceEnd::More, Some(progress)),
                None => broken_off(out),
            };
        }
        out.extend_from_slice(end(format));
        (SliceEnd::Finished, None)
    }
}

/// The scan of the first of these pools; `None` if too many scans are under way.
fn next_scan(format: DumpFormat, mut pools: VecDeque<(u32, Pool)>) -> Option<DumpProgress> {
    let (class, pool) = pools.pop_front()?;
    let scan = ScanOwner::Connection(Box::new(pool.scan().ok()?.without_long_values()));
    Some(DumpProgress { format, scan, class, pools })
}

fn broken_off(out: &mut Vec<u8>) -> (SliceEnd, Option<DumpProgress>) {
    out.extend_from_slice(b"SERVER_ERROR the dump has broken off\r\n");
    (SliceEnd::Finished, None)
}

fn end(format: DumpFormat) -> &'static [u8] {
    match format {
        DumpFormat::Metadump => reply::END,
        DumpFormat::Mgdump => reply::META_END,
    }
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
