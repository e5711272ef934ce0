//! lru_crawler metadump and mgdump: every key, in slices.
//!
//! A dump is a scan of the cache whose place the connection keeps. It is asked for a slice when the last one is sent, so it
//! goes at the pace of its reader and holds no more than that slice; between slices other connections have their turn.

use std::time::Duration;

use ebbtide::{Entry, Scan};
use ebbtide_protocol::{Dump, DumpFormat, encoding, reply};

use super::{Executor, Next};
use crate::output::Output;

/// Bytes of a slice, and the most steps of the scan that one may take where the cache is nearly empty.
const SLICE_BYTES: usize = 64 << 10;
const SLICE_STEPS: usize = 256;

/// A dump under way.
pub struct Dumping {
    format: DumpFormat,
    scan: Scan,
}

impl Executor {
    pub(super) fn dump(&self, dump: Dump, output: &mut Output) -> Next {
        let refusal = match (self.shared.options.allow_dump, dump.everything) {
            (false, _) => reply::DUMP_NOT_ALLOWED,
            (true, false) => end(dump.format),
            (true, true) => match self.cache.scan() {
                Ok(scan) => return Next::Dump(Dumping { format: dump.format, scan }),
                Err(_) => reply::BUSY,
            },
        };
        output.bytes().extend_from_slice(refusal);
        Next::Continue
    }
}

impl Dumping {
    /// Appends the next slice. False if that was the last.
    pub fn slice(&mut self, unix_now: Duration, output: &mut Output) -> bool {
        let now_ms = unix_now.as_millis() as u64;
        let out = output.bytes();
        for _ in 0..SLICE_STEPS {
            let goes_on = self.scan.advance(|entry| match self.format {
                DumpFormat::Metadump => metadump_line(out, &entry, now_ms),
                DumpFormat::Mgdump => mgdump_line(out, entry.item().key()),
            });
            if !goes_on {
                out.extend_from_slice(end(self.format));
                return false;
            }
            if out.len() >= SLICE_BYTES {
                break;
            }
        }
        true
    }
}

fn end(format: DumpFormat) -> &'static [u8] {
    match format {
        DumpFormat::Metadump => reply::END,
        DumpFormat::Mgdump => reply::META_END,
    }
}

/// The line ends without a carriage return, as memcached's do.
fn metadump_line(out: &mut Vec<u8>, entry: &Entry<'_>, now_ms: u64) {
    let item = entry.item();
    out.extend_from_slice(b"key=");
    encoding::uri_encode(out, item.key());
    match item.ttl() {
        Some(ttl) => {
            out.extend_from_slice(b" exp=");
            reply::number(out, (now_ms + ttl.as_millis() as u64 + 500) / 1000);
        }
        None => out.extend_from_slice(b" exp=-1"),
    }
    out.extend_from_slice(b" la=");
    reply::number(out, now_ms.saturating_sub(entry.idle().as_millis() as u64) / 1000);
    out.extend_from_slice(b" cas=");
    reply::number(out, item.cas());
    let fetched: &[u8] = if entry.frequency() > 0 { b" fetch=yes" } else { b" fetch=no" };
    out.extend_from_slice(fetched);
    out.extend_from_slice(b" cls=1 size=");
    reply::number(out, entry.memory_bytes());
    out.push(b'\n');
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
