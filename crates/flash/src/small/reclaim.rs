//! Maintenance: writes full segments, empties the log's oldest segment in advance, rewrites sets. One thread at a time.

use super::log::{LogAppend, Tail, is_expected};
use super::maintenance_state::MaintenanceState;
use super::page::{self, PAGE, PageHeader, PageWriter};
use super::rewrite_choice::{RewriteDecision, SetBatch, decision};
use super::set_group::Entry;
use super::stats::Counters;
use super::{Newest, SmallShared};
use crate::device::{Buffer, Direction, TransferOutcome, TransferRequest};
use crate::object::{FlashHash, has_expired};
use crate::pools::Occupied;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};

/// Number of segments that maintenance empties at once when the index has too little memory.
const SEGMENTS_FOR_MEMORY: usize = 4;

/// An object at the log's end that still has its entry.
struct TailObject {
    set: u32,
    hash: FlashHash,
    page: u32,
    record: Range<usize>,
    pool: u16,
    expired: bool,
    decision: RewriteDecision,
}

impl SmallShared {
    /// Runs all of maintenance except writing zeros. Returns the guard for that; `None` if another thread holds it.
    pub(super) fn maintain(self: &Arc<Self>, now: u32) -> Option<MutexGuard<'_, MaintenanceState>> {
        let mut maintenance = self.maintenance.try_lock().ok()?;
        self.write_segments();
        while let Some(tail) = self.log.tail(self.log.spare()) {
            self.reclaim(&mut maintenance, tail, now);
            self.write_segments();
        }
        for _ in 0..SEGMENTS_FOR_MEMORY {
            let Some(tail) = self.log.tail(usize::MAX).filter(|_| self.is_short_of_memory()) else { break };
            self.reclaim(&mut maintenance, tail, now);
        }
        let waiting = self.queue.lock().expect("no thread panics with the queue").len();
        for _ in 0..waiting {
            let next = self.queue.lock().expect("no thread panics with the queue").pop_front();
            let Some(index) = next else { break };
            let sets = self.sets_to_clean(index);
            self.rewrite_sets(&sets, None, now);
        }
        Some(maintenance)
    }

    /// Submits the writes of full segments, as far as the device's queue has space.
    fn write_segments(self: &Arc<Self>) {
        while let Some((segment, pages)) = self.log.next_write() {
            let buffer = pages.share(pages.len());
            let first = self.log.log_layout.first_block.expect("a log that is written has a place");
            let offset = self.offset(first + segment * self.log.log_layout.pages_per_segment);
            let shared = Arc::clone(self);
            let done = Box::new(move |outcome: TransferOutcome| shared.segment_written(segment, outcome));
            if self.device.submit(TransferRequest { direction: Direction::Write, offset, buffer, done }).is_err() {
                self.log.written(segment, None);
                return;
            }
        }
    }

    fn segment_written(&self, segment: u32, outcome: TransferOutcome) {
        match &outcome.result {
            Ok(()) => Counters::add(&self.counters.log_bytes_written, outcome.buffer.len()),
            Err(_) => Counters::one(&self.counters.write_errors),
        }
        self.log.written(segment, Some(outcome.result.is_ok()));
    }

    /// Removes all entries of a segment: their objects are moved to pages, readmitted, or evicted.
    fn reclaim(&self, maintenance: &mut MaintenanceState, mut tail: Tail, now: u32) {
        let damaged = self.read_tail(&mut tail);
        let mut candidates = self.candidates(&tail, now);
        let is_on_flash = !tail.failed && self.log.log_layout.first_block.is_some();
        let threshold = if is_on_flash { self.options.rewrite_threshold } else { 1 };
        let mut sets: Vec<u32> = Vec::new();
        for of_set in candidates.chunk_by_mut(|a, b| a.set == b.set) {
            self.decide(of_set, threshold);
            sets.extend(
                of_set
                    .iter()
                    .find(|candidate| candidate.decision == RewriteDecision::Rewrite)
                    .map(|candidate| candidate.set),
            );
        }
        self.rewrite_sets(&sets, Some(&tail), now);
        let mut ends = Vec::new();
        for candidate in &candidates {
            if candidate.decision == RewriteDecision::Readmit && self.readmit(&tail, candidate) {
                continue;
            }
            if candidate.decision != RewriteDecision::Rewrite {
                ends.push(candidate);
            }
        }
        let safe = ends.iter().all(|candidate| candidate.expired)
            || self.write_mark(maintenance, self.log.oldest_after(tail.segment));
        for candidate in ends {
            let counters = &self.counters;
            Counters::one(match (candidate.expired, candidate.decision) {
                (true, _) => &counters.ended_expired,
                (false, RewriteDecision::Readmit) => &counters.ended_unreadmitted,
                (false, _) => &counters.ended_below_threshold,
            });
            self.remove_entry(candidate.hash, candidate.page);
            if !safe {
                let (mut group, set) = self.locked(candidate.set);
                group.set_unclean(set, true);
                self.enqueue(&mut group, candidate.set);
            }
        }
        self.reclaim_segment_bytes(&tail);
        if damaged {
            self.invalidate_segment_sets(tail.segment);
        }
        if tail.failed {
            Counters::one(&self.counters.segments_retired);
        }
        self.log.end(tail.segment, tail.failed);
    }

    /// Reads a segment into RAM. Returns whether some of its pages are invalid.
    fn read_tail(&self, tail: &mut Tail) -> bool {
        let pages = self.log.log_layout.pages_per_segment;
        let first = tail.segment * pages;
        if tail.buffer.is_none() {
            let number = self.log.header(first).expect("the tail is in use").number;
            let read = self.transfer(vec![(Direction::Read, number, Buffer::zeroed(self.log.segment_bytes()))]);
            Counters::add(&self.counters.bytes_read_to_move, self.log.segment_bytes());
            tail.buffer = read.into_iter().next().flatten().map(Arc::new);
        }
        let Some(buffer) = &tail.buffer else {
            return true;
        };
        let right =
            (0..pages).filter(|&i| is_expected(page_of(buffer, i), self.options.salt, self.log.header(first + i)));
        let wrong = pages as usize - right.count();
        Counters::add(&self.counters.corrupt_pages, wrong);
        wrong != 0
    }

    /// Subtracts the records of a segment from the bytes of their pools.
    fn reclaim_segment_bytes(&self, tail: &Tail) {
        let (pages, Some(buffer)) = (self.log.log_layout.pages_per_segment, &tail.buffer) else { return };
        for index in 0..pages {
            let page = page_of(buffer, index);
            if is_expected(page, self.options.salt, self.log.header(tail.segment * pages + index)) {
                self.reclaim_bytes(page);
            }
        }
    }

    /// The objects of a segment that still have entries, by set, oldest first.
    fn candidates(&self, tail: &Tail, now: u32) -> Vec<TailObject> {
        let Some(buffer) = &tail.buffer else {
            return Vec::new();
        };
        let (set_layout, first) = (&self.area_layout.set_layout, tail.segment * self.log.log_layout.pages_per_segment);
        let mut candidates = Vec::new();
        for index in 0..self.log.log_layout.pages_per_segment {
            let (bytes, page) = (page_of(buffer, index), first + index);
            if !is_expected(bytes, self.options.salt, self.log.header(page)) {
                continue;
            }
            for record in page::records(bytes) {
                let hash = record.hash(bytes, &self.options.pools);
                let number = set_layout.set(hash);
                let (group, set) = self.locked(number);
                let alive = self.entry_at(&group, set, hash, page).is_some();
                drop(group);
                // An entry refers to the last record of its tag.
                if alive && self.tagged(number, set_layout.tag(hash), bytes).is_some_and(|(_, last)| last == record) {
                    let expired = has_expired(record.expiry, now) || !self.options.pools.is_live(record.pool);
                    candidates.push(TailObject {
                        set: number,
                        hash,
                        page,
                        record: record.range,
                        pool: record.pool,
                        expired,
                        decision: RewriteDecision::End,
                    });
                }
            }
        }
        candidates.sort_by_key(|candidate| candidate.set);
        candidates
    }

    /// Decides for the candidates of one set.
    fn decide(&self, candidates: &mut [TailObject], threshold: u8) {
        let set_layout = &self.area_layout.set_layout;
        let (group, set) = self.locked(candidates[0].set);
        let objects = group.entries(set_layout, set).filter(|entry| entry.is_object()).count();
        let bytes = candidates.iter().map(|candidate| candidate.record.len()).sum();
        let together = SetBatch { objects, bytes, fit: bytes <= group.space(set) };
        let alone = candidates.iter().all(|candidate| candidate.expired);
        for candidate in candidates {
            let index = self.entry_at(&group, set, candidate.hash, candidate.page);
            let entry = index.and_then(|index| group.entries(set_layout, set).nth(index));
            let hit = matches!(entry, Some(Entry::Object { hit: true, .. }));
            candidate.decision = match decision(together, threshold, hit) {
                RewriteDecision::Rewrite if alone => RewriteDecision::End,
                RewriteDecision::Readmit if candidate.expired => RewriteDecision::End,
                decision => decision,
            };
        }
    }

    /// Readmits an object to the log.
    fn readmit(&self, tail: &Tail, candidate: &TailObject) -> bool {
        let buffer = tail.buffer.as_ref().expect("it was read");
        let page = page_of(buffer, candidate.page % self.log.log_layout.pages_per_segment);
        let (mut group, set) = self.locked(candidate.set);
        match self.newest(&group, set, candidate.hash, &[]) {
            Newest::Log { page, .. } if page == candidate.page => {}
            _ => return false,
        }
        let set_layout = &self.area_layout.set_layout;
        let again = LogAppend::Again(&page[candidate.record.clone()], group.epoch);
        let Some(position) = self.log.append(&again, (candidate.set, set_layout.tag(candidate.hash))) else {
            return false;
        };
        let old = self.entry_at(&group, set, candidate.hash, candidate.page).expect("it is the newest");
        group.remove(set_layout, set, old);
        self.publish(&mut group, set, candidate.hash, position);
        self.options.pools.occupy(Occupied::Small, candidate.pool, candidate.record.len() as u64);
        Counters::one(&self.counters.readmitted);
        true
    }

    /// Writes a mark that the log has no pages before a moment. This precedes the removal of entries whose objects are
    /// still on flash. Returns whether the mark was written.
    fn write_mark(&self, maintenance: &mut MaintenanceState, log_clock: u64) -> bool {
        if self.log.log_layout.first_block.is_none() {
            return true;
        }
        let number = maintenance.mark;
        maintenance.mark = (maintenance.mark + 1) % super::options::MARKS;
        let written = self.transfer(vec![(Direction::Write, number, self.mark(number, log_clock))])[0].is_some();
        if written {
            Counters::add(&self.counters.mark_bytes_written, PAGE);
        }
        written
    }

    /// The page that marks that the log has no pages before a moment.
    pub(super) fn mark(&self, number: u32, log_clock: u64) -> Buffer {
        let mut page = Buffer::zeroed(PAGE);
        PageWriter::resume(&mut page, 0, 0).seal(self.options.salt, PageHeader { number, log_clock, generation: 0 });
        page
    }

    /// Empties all sets with an entry in a segment, since the keys of these entries are not known.
    fn invalidate_segment_sets(&self, segment: u32) {
        let (set_layout, pages) = (&self.area_layout.set_layout, self.log.log_layout.pages_per_segment);
        for number in 0..set_layout.sets {
            let (mut group, set) = self.locked(number);
            let here = |entry| matches!(entry, Entry::Object { page, .. } if page / pages == segment);
            if group.entries(set_layout, set).any(here) {
                let lost = group.entries(set_layout, set).filter(|entry| matches!(entry, Entry::Object { .. })).count();
                Counters::add(&self.counters.ended_failed, lost + usize::from(group.objects(set)));
                self.invalidate_failed(&mut group, set, number);
            }
        }
    }
}

fn page_of(segment: &[u8], index: u32) -> &[u8] {
    &segment[index as usize * PAGE..][..PAGE]
}
