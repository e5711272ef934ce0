//! Writes zeros to sets' pages that were never written, in order, before they get objects.
//!
//! ```text
//! reserved    |....P..P......P...|   pages are written in no order: the file's map has an extent for each
//! with zeros  |0000P00P00....P...|   what is written lies in few extents, and stays so
//!                        ^ next
//! ```
//! A filesystem looks up the extent for each read, and adds one with the first write to a page whose space was only
//! reserved. With hundreds of thousands of them that is a tenth of what a read of a small object costs. A block device
//! has no such map.
//!
//! Only the thread that runs maintenance calls this, while no page of a set is being written.

use super::SmallShared;
use super::maintenance_state::ZeroFill;
use super::page::PAGE;
use super::stats::Counters;
use crate::device::{Buffer, Direction};
use std::ops::Range;
use std::time::Instant;

/// Number of pages that are written at once: few enough that reads do not wait for long behind them.
const PAGES_AT_ONCE: u64 = (1 << 20) / PAGE as u64;
/// Number of pages for which the device is queried at once.
const PAGES_ASKED: u64 = (64 << 20) / PAGE as u64;
impl SmallShared {
    /// Finds the next unwritten pages and writes zeros to them, unless it did so a moment ago. Waits for the device.
    pub(super) fn fill_zeros(&self, zero_fill: &mut ZeroFill) {
        let sets = u64::from(self.area_layout.set_layout.sets);
        if !self.options.zeros_ahead || zero_fill.next == sets || zero_fill.is_resting() {
            return;
        }
        let began = Instant::now();
        let Some((mut runs, end)) = self.reserved(zero_fill.next..sets.min(zero_fill.next + PAGES_ASKED)) else {
            zero_fill.next = sets;
            return;
        };
        // The state in RAM is checked as well: a filesystem may report a write later than it completes.
        runs.retain(|run| !run.is_empty() && run.clone().all(|set| self.has_no_page(set as u32)));
        let pages: u64 = runs.iter().map(|run| run.end - run.start).sum();
        let writes = runs.into_iter().map(|run| {
            let zero_fill = Buffer::zeroed((run.end - run.start) as usize * PAGE);
            (Direction::Write, self.area_layout.first_set + run.start as u32, zero_fill)
        });
        let written = self.transfer(writes.collect());
        let is_written = written.iter().all(Option::is_some);
        let bytes = written.iter().flatten().map(|zero_fill| zero_fill.len()).sum();
        Counters::add(&self.counters.zero_bytes_written, bytes);
        // A device that refuses a write has more important work, so no more zeros are written.
        zero_fill.next = if is_written { end } else { sets };
        if pages > 0 {
            zero_fill.rest(began.elapsed());
        }
    }

    /// The sets whose pages were never written, as many as are written at once, and the set with which to continue.
    fn reserved(&self, sets: Range<u64>) -> Option<(Vec<Range<u64>>, u64)> {
        let begin = self.offset(self.area_layout.first_set);
        let offset = |set: u64| begin + set * PAGE as u64;
        let reserved = self.device.reserved(offset(sets.start)..offset(sets.end))?;
        let set = |offset: u64| (offset - begin) / PAGE as u64;
        let runs = reserved.bytes.into_iter().map(|bytes| set(bytes.start)..set(bytes.end));
        Some(first_pages(runs.collect(), set(reserved.end)))
    }

    /// Whether a set has no page. A page without objects counts as one: a restart finds by it which objects of the log
    /// were evicted.
    fn has_no_page(&self, set: u32) -> bool {
        let (group, index) = self.locked(set);
        group.generation(index) == 0 && !group.is_unclean(index)
    }
}

/// The first of these runs of pages, as many pages as are written at once, and the page with which to continue.
fn first_pages(mut runs: Vec<Range<u64>>, end: u64) -> (Vec<Range<u64>>, u64) {
    let mut left = PAGES_AT_ONCE;
    for at in 0..runs.len() {
        let run = &mut runs[at];
        if run.end - run.start >= left {
            run.end = run.start + left;
            let end = run.end;
            runs.truncate(at + 1);
            return (runs, end);
        }
        left -= run.end - run.start;
    }
    (runs, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_batch_writes_up_to_its_page_limit() {
        let runs = || vec![0..100, 200..300, 400..500, 600..700];
        assert_eq!(first_pages(runs(), 1000), (vec![0..100, 200..300, 400..456], 456));
        assert_eq!(first_pages(vec![0..100, 200..356, 400..500], 1000), (vec![0..100, 200..356], 356));
        assert_eq!(first_pages(vec![0..100, 200..300], 1000), (vec![0..100, 200..300], 1000));
        assert_eq!(first_pages(vec![], 1000), (vec![], 1000));
    }
}
