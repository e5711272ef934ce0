//! The thread that makes slices of dumps and key searches which read flash, and the slices of dumps.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ebbtide::memcached::{Entry, Pool, Scan};
use ebbtide_protocol::{DumpFormat, encoding, reply};

use crate::connection_wait::WakeOnDrop;
use crate::sync::lock;
use crate::unix_time::unix_now;

/// Max bytes of a slice, and max steps of its scan, which bounds a slice of a nearly empty cache.
const SLICE_BYTES: usize = 64 << 10;
pub const SLICE_STEPS: usize = 256;
/// Max steps of a slice on flash: a step is a read of 256 KiB, and other dumps wait for the thread.
pub const SLICE_READS: usize = 16;

/// A dump that is being answered.
pub struct DumpProgress {
    pub format: DumpFormat,
    pub scan: ScanOwner,
    /// The slab class of the pool that is scanned.
    pub class: u32,
    /// The pools that follow, in this order, with their slab classes.
    pub pools: VecDeque<(u32, Pool)>,
}

pub enum ScanOwner {
    Connection(Box<Scan>),
    /// The dump thread, which leaves the slice here.
    Thread(Arc<Mutex<Option<DumpSlice>>>),
}

pub struct DumpSlice {
    pub scan: Box<Scan>,
    pub lines: Vec<u8>,
    pub has_more: bool,
}

/// Format of the lines of a dump.
#[derive(Clone, Copy)]
pub struct DumpLine {
    pub format: DumpFormat,
    /// The slab class of the pool.
    pub class: u32,
}

/// A request for a slice.
pub struct SliceJob {
    pub scan: Box<Scan>,
    pub line: DumpLine,
    pub skipped: Duration,
    pub slice: Arc<Mutex<Option<DumpSlice>>>,
    /// Dropped last: it wakes the connection when the slice is there.
    pub _wake: WakeOnDrop,
}

/// Work that waits for flash.
type FlashJob = Box<dyn FnOnce() + Send>;

/// The thread for scans that read flash. It starts with the first request and ends with the server.
#[derive(Default)]
pub struct DumpThread {
    jobs: Mutex<Option<Sender<FlashJob>>>,
}

impl DumpThread {
    /// Requests a slice. If the thread cannot start, the job is dropped, which notifies its owner.
    pub fn send(&self, job: FlashJob) {
        let mut jobs = lock(&self.jobs);
        if jobs.is_none() {
            let (sender, receiver) = mpsc::channel::<FlashJob>();
            let run = move || receiver.iter().for_each(|job| job());
            *jobs = thread::Builder::new().name("dumps".to_string()).spawn(run).is_ok().then_some(sender);
        }
        if let Some(jobs) = &*jobs {
            drop(jobs.send(job));
        }
    }
}

impl SliceJob {
    pub fn run(self) {
        let Self { mut scan, line, skipped, slice, _wake } = self;
        let mut lines = Vec::new();
        let now = unix_now() + skipped;
        let has_more = fill(&mut lines, &mut scan, line, now, SLICE_READS);
        *lock(&slice) = Some(DumpSlice { scan, lines, has_more });
    }
}

/// Continues a scan until the slice is full, the steps are used up, or the scan reaches flash. False at the end of the
/// scan.
pub fn fill(out: &mut Vec<u8>, scan: &mut Scan, line: DumpLine, unix_now: Duration, steps: usize) -> bool {
    let now_ms = unix_now.as_millis() as u64;
    let waits = scan.waits();
    for _ in 0..steps {
        let has_more = scan.advance(|entry| match line.format {
            DumpFormat::Metadump => metadump_line(out, &entry, line.class, now_ms),
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

/// The line ends with a blank and without a carriage return, as in memcached. Fields that flash does not store are 0.
fn metadump_line(out: &mut Vec<u8>, entry: &Entry<'_>, class: u32, now_ms: u64) {
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
    out.extend_from_slice(b" cls=");
    reply::number(out, class.into());
    out.extend_from_slice(b" size=");
    reply::number(out, entry.stored_bytes());
    out.extend_from_slice(b" flags=");
    reply::number(out, entry.flags().into());
    out.extend_from_slice(b" \n");
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
