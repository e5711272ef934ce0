//! Options of the store, and the division of an area by them.

use super::filter::FilterWidth;
use super::log::LogLayout;
use super::page::PAGE;
use super::set_group::{SETS, SetGroup, SetLayout};
use crate::Error;
use crate::checkpoint_header::MAX_CHECKPOINT_WAIT;
use crate::pools::LivePools;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Number of pages before the log that mark its start.
pub(crate) const MARKS: u32 = 2;
/// Minimum number of segments of a log: one open, one for readmitted objects, two being written or reclaimed, and four
/// that rest.
const MIN_SEGMENTS: u32 = 8;
/// Buffers of a log that is never written.
const MEMORY_SEGMENTS: u32 = 4;

/// Options of the small-object store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Share of the area for the log before the sets, percent, at most 50. With 0 each object is written to its set's
    /// page alone. A larger log needs fewer page writes, and costs four bytes of RAM for each object in it.
    pub log_percent: u8,
    /// Minimum number of a set's objects in the log, or of 300-byte units, for which its page is rewritten. One object
    /// is enough if it fits beside the objects of the page. An object at the log's end with fewer others of its set is
    /// evicted, or readmitted to the log's front if it was hit. With 1 no object is evicted there.
    pub rewrite_threshold: u8,
    /// Quarters of a bit that a set's filter has per object, 4 to 64. 21 let one in twelve absent keys pass.
    pub filter_quarter_bits: u16,
    /// Bytes of a segment of the log, the unit of its writes and reclaims; whole pages. Smaller in small areas.
    pub segment_bytes: usize,
    /// Maximum number of full segments in RAM, so that inserts continue while the device or maintenance is busy.
    pub buffers: usize,
    /// Maximum number of tombstones of each [`SETS`] neighbouring sets. From half of it on, pages are rewritten to
    /// apply them. For each tombstone beyond it, one set is emptied.
    pub tombstones_per_group: u16,
    /// Maximum bytes of RAM for filters, log index and tombstones. From fifteen sixteenths of it on, the log gets
    /// shorter and each rewritten page keeps fewer objects. At the bound inserts are dropped.
    pub index_bytes: usize,
    /// Maximum number of concurrent page rewrites, each from its first read to the end of its write.
    pub max_concurrent_rewrites: usize,
    /// Whether pages are written with zeros once, in order, before most of them have objects, if the device knows which
    /// were never written: the filesystem then finds them faster. By default they are not: in a small area that saves
    /// nothing, and it writes the whole area once.
    pub zeros_ahead: bool,
    /// Maximum wait of a checkpoint for the device, for each kind of pending work. 10 s: a drive that stalls for longer
    /// would delay the stop, and the next start recovers by a scan.
    pub max_checkpoint_wait: Duration,
    /// Seed of all checksums: pages written with another one are invalid. Each new area needs another one.
    pub salt: u64,
    /// The live incarnations of pools.
    pub pools: Arc<LivePools>,
}

impl Default for Options {
    /// For objects of 300 B: 1.4 B of RAM per object, and two fifths of the bytes that plain set pages write.
    fn default() -> Self {
        Self {
            log_percent: 10,
            rewrite_threshold: 2,
            filter_quarter_bits: 21,
            segment_bytes: 256 << 10,
            buffers: 8,
            tombstones_per_group: SETS as u16,
            index_bytes: usize::MAX,
            max_concurrent_rewrites: 32,
            zeros_ahead: false,
            max_checkpoint_wait: MAX_CHECKPOINT_WAIT,
            salt: 0,
            pools: Arc::default(),
        }
    }
}

/// The division of an area.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AreaLayout {
    pub set_layout: SetLayout,
    pub log: LogLayout,
    /// The number of the first set's page in the area.
    pub first_set: u32,
}

impl Options {
    /// Bytes of RAM of an empty store in this area, and maximum bytes of its buffers.
    pub(crate) fn fixed_bytes(&self, area: &Range<u64>) -> Result<(usize, usize), Error> {
        let AreaLayout { set_layout, log, .. } = self.divide(area)?;
        let index = set_layout.groups() * size_of::<Mutex<SetGroup>>() + log.segments as usize * size_of::<AtomicU64>();
        // The sealed segments, and the open one.
        let buffers = (log.buffers + 1) * log.pages_per_segment as usize * PAGE;
        Ok((index, buffers))
    }

    pub(crate) fn divide(&self, area: &Range<u64>) -> Result<AreaLayout, Error> {
        self.check()?;
        let refuse = |message: String| Err(Error::Options(message));
        let bytes = area.end.saturating_sub(area.start);
        let aligned = area.start.is_multiple_of(PAGE as u64) && bytes.is_multiple_of(PAGE as u64);
        let blocks = u32::try_from(bytes / PAGE as u64).unwrap_or(0);
        if !aligned || blocks == 0 {
            return refuse(format!("an area of small objects has whole pages, below 16 TiB; this is {area:?}"));
        }
        let max = (self.segment_bytes / PAGE) as u32;
        let (log, first_set) = if self.log_percent == 0 {
            (
                LogLayout {
                    segments: MEMORY_SEGMENTS,
                    pages_per_segment: max,
                    first_block: None,
                    buffers: MEMORY_SEGMENTS as usize,
                    salt: self.salt,
                },
                0,
            )
        } else {
            let pages = (u64::from(blocks) * u64::from(self.log_percent) / 100) as u32;
            let pages_per_segment = max.min(pages / (2 * MIN_SEGMENTS)).max(1);
            let segments = pages / pages_per_segment;
            if segments < MIN_SEGMENTS {
                let percent = self.log_percent;
                return refuse(format!(
                    "{percent} % of {bytes} bytes are no log of {MIN_SEGMENTS} pages: increase the log's share or the size"
                ));
            }
            let log_layout = LogLayout {
                segments,
                pages_per_segment,
                first_block: Some(MARKS),
                buffers: self.buffers,
                salt: self.salt,
            };
            (log_layout, MARKS + segments * pages_per_segment)
        };
        if first_set >= blocks {
            return refuse(format!("{bytes} bytes have no space for sets beside the log: increase the size"));
        }
        let set_layout = SetLayout::new(
            blocks - first_set,
            log.segments * log.pages_per_segment,
            FilterWidth::of(self.filter_quarter_bits),
        );
        Ok(AreaLayout { set_layout, log, first_set })
    }

    fn check(&self) -> Result<(), Error> {
        let problem = if self.log_percent > 50 {
            format!("a log share of {} %: at most 50", self.log_percent)
        } else if self.rewrite_threshold == 0 {
            "a move threshold of 0 objects: at least 1".to_owned()
        } else if !(4..=64).contains(&self.filter_quarter_bits) {
            format!("{} quarters of a filter bit per object: 4 to 64", self.filter_quarter_bits)
        } else if self.segment_bytes < PAGE || !self.segment_bytes.is_multiple_of(PAGE) || self.segment_bytes > 1 << 30
        {
            format!("a log segment of {} bytes: whole pages of {PAGE}, at most 1 GiB", self.segment_bytes)
        } else if self.buffers == 0 || self.max_concurrent_rewrites == 0 {
            "no buffer for the log, or no page written at once: at least 1".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::Options(problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logs_share_divides_an_area() {
        let area = 4096..4096 + (1 << 30);
        for (percent, segments, first_set) in [(0, 4, 0), (5, 204, 2 + 204 * 64), (50, 2048, 2 + 2048 * 64)] {
            let options = Options { log_percent: percent, ..Options::default() };
            let area_layout = options.divide(&area).unwrap();
            assert_eq!((area_layout.log.segments, area_layout.first_set), (segments, first_set));
            assert_eq!(area_layout.set_layout.sets, (1 << 18) - first_set);
        }
        let small = Options::default().divide(&(0..1 << 20)).unwrap();
        assert_eq!((small.log.pages_per_segment, small.log.segments), (1, 25));
    }

    #[test]
    fn options_out_of_range_are_refused_with_limits() {
        let refused = |options: Options, area: Range<u64>, part: &str| {
            let message = options.divide(&area).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        };
        let area = 0..1 << 24;
        refused(Options { log_percent: 51, ..Options::default() }, area.clone(), "at most 50");
        refused(Options { rewrite_threshold: 0, ..Options::default() }, area.clone(), "at least 1");
        refused(Options { filter_quarter_bits: 65, ..Options::default() }, area.clone(), "4 to 64");
        refused(Options { segment_bytes: 5000, ..Options::default() }, area.clone(), "whole pages");
        refused(Options { buffers: 0, ..Options::default() }, area, "at least 1");
        refused(Options::default(), 0..5000, "whole pages");
        refused(Options::default(), 0..1 << 15, "increase the log's share");
    }
}
