//! `--segments`: a line for each segment of the cache, for the figures about segments.
//!
//! ```text
//! look at every batch --- seen for the first time ---> record (opened, objects, bytes)
//!                     --- sealed since the last look -> age at the seal, live bytes then
//!                     --- not seen any more ----------> line in the file, with its age now
//! end of the trace    --- still there --------------> line with an empty age at the end
//! ```
//! A look is as exact as a batch: 1024 requests, or a second of the trace.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use ebbtide::memcached::{Cache, SegmentView};

use crate::Error;
use crate::trace::NewFile;

/// The columns. Bytes of objects are with key and metadata; `left_age_s` and `live_*` of a segment that left are those
/// of the last look at it.
const HEADER: &str = "stamp,ttl_min_s,ttl_max_s,opened_s,rounds,objects,bytes,sealed_age_s,live_objects_at_seal,\
live_bytes_at_seal,left_age_s,live_objects,live_bytes";

/// Segments by place and stamp, and the file.
pub(super) struct SegmentLog {
    out: BufWriter<NewFile>,
    seen: HashMap<(u32, u64), Seen>,
    looks: u64,
}

struct Seen {
    view: SegmentView,
    /// Milliseconds from the opening to the seal, live objects and bytes then.
    sealed: Option<(u64, u32, u32)>,
    /// Number of the last look at which the segment was in use.
    look: u64,
}

impl SegmentLog {
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, Error> {
        let mut out = BufWriter::new(NewFile::create(path, overwrite)?);
        writeln!(out, "{HEADER}")?;
        Ok(Self { out, seen: HashMap::new(), looks: 0 })
    }

    /// Records all segments.
    pub fn look(&mut self, cache: &Cache, now: Duration) -> Result<(), Error> {
        self.looks += 1;
        let (look, now_ms) = (self.looks, now.as_millis() as u64);
        cache.view_segments(|view| {
            let seen = self.seen.entry((view.place, view.stamp)).or_insert(Seen { view, sealed: None, look });
            (seen.view, seen.look) = (view, look);
            if view.is_sealed && seen.sealed.is_none() {
                seen.sealed = Some((now_ms.saturating_sub(view.opened_ms), view.live_items, view.live_bytes));
            }
        });
        let mut outcome = Ok(());
        self.seen.retain(|_, seen| {
            let is_here = seen.look == look;
            if !is_here && outcome.is_ok() {
                outcome = line(&mut self.out, seen, Some(now_ms.saturating_sub(seen.view.opened_ms)));
            }
            is_here
        });
        Ok(outcome?)
    }

    /// Looks for the last time, and writes those that are still there, in the order of their opening.
    pub fn finish(mut self, cache: &Cache, now: Duration) -> Result<(), Error> {
        self.look(cache, now)?;
        let mut left: Vec<Seen> = self.seen.into_values().collect();
        left.sort_by_key(|seen| seen.view.stamp);
        for seen in &left {
            line(&mut self.out, seen, None)?;
        }
        Ok(self.out.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?)
    }
}

fn line(out: &mut impl Write, seen: &Seen, left_age_ms: Option<u64>) -> io::Result<()> {
    let Seen { view, sealed, .. } = seen;
    let or_empty = |number: Option<String>| number.unwrap_or_default();
    let seconds = |ms: u64| format!("{:.3}", ms as f64 / 1000.0);
    let (shortest, longest) = (view.ttl_seconds.map(|range| range.0), view.ttl_seconds.map(|range| range.1));
    writeln!(
        out,
        "{},{},{},{},{},{},{},{},{},{},{},{},{}",
        view.stamp,
        or_empty(shortest.map(|ttl| ttl.to_string())),
        or_empty(longest.map(|ttl| ttl.to_string())),
        seconds(view.opened_ms),
        view.rounds,
        view.written_items,
        view.written_bytes,
        or_empty(sealed.map(|(age, _, _)| seconds(age))),
        or_empty(sealed.map(|(_, items, _)| items.to_string())),
        or_empty(sealed.map(|(_, _, bytes)| bytes.to_string())),
        or_empty(left_age_ms.map(seconds)),
        view.live_items,
        view.live_bytes,
    )
}
