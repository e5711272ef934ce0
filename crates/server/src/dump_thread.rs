//! The thread that makes slices of dumps which read flash, and what a slice consists of.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ebbtide::{Entry, Scan};
use ebbtide_protocol::{DumpFormat, encoding, reply};

use crate::connection_wait::WakeOnDrop;
use crate::sync::lock;
use crate::unix_time::unix_now;

/// Bytes of a slice, and the most steps of the scan that one may take where the cache is nearly empty.
const SLICE_BYTES: usize = 64 << 10;
pub const SLICE_STEPS: usize = 256;
/// On flash a step is a read of 256 KiB, and other dumps wait.
const SLICE_READS: usize = 16;

/// A dump under way.
pub struct DumpProgress {
    pub format: DumpFormat,
    pub scan: ScanOwner,
}

pub enum ScanOwner {
    Connection(Box<Scan>),
    /// With the thread of dumps, which leaves it there.
    Thread(Arc<Mutex<Option<DumpSlice>>>),
}

pub struct DumpSlice {
    pub scan: Box<Scan>,
    pub lines: Vec<u8>,
    pub has_more: bool,
}

/// A slice that is to be made.
pub struct SliceJob {
    pub scan: Box<Scan>,
    pub format: DumpFormat,
    pub skipped: Duration,
    pub slice: Arc<Mutex<Option<DumpSlice>>>,
    /// Ends last: then the slice is there.
    pub _wake: WakeOnDrop,
}

/// The thread of dumps that have come to flash. It begins with the first one and ends with the server.
#[derive(Default)]
pub struct DumpThread {
    jobs: Mutex<Option<Sender<SliceJob>>>,
}

impl DumpThread {
    /// Has a slice made. The job is dropped if that is not possible, which wakes the connection.
    pub fn send(&self, job: SliceJob) {
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

/// Goes on with a scan until there is enough for a slice, it has taken so many steps, or it comes to flash. False if it
/// has ended.
pub fn fill(out: &mut Vec<u8>, scan: &mut Scan, format: DumpFormat, unix_now: Duration, steps: usize) -> bool {
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
