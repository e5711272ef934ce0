//! The upkeep: full segments are written, the log's oldest is emptied ahead of need, sets are mended. One thread at a time.

use super::choose::{Fate, Together, fate, waits};
use super::group::{Entry, SETS};
use super::log::{Addition, Tail, is_expected};
use super::page::{self, Header, PAGE, Writer};
use super::stats::Counters;
use super::zeros::Zeros;
use super::{Newest, Shared};
use crate::device::{Buffer, Direction, Outcome, Request};
use crate::object::{KeyHash, is_past};
use std::ops::Range;
use std::sync::{Arc, MutexGuard};

/// How many segments the upkeep empties at once when the index has too little memory.
const SEGMENTS_FOR_MEMORY: usize = 4;
/// Of a segment, so much at most waits in the log for room in its pages while these are empty, and less the fuller they are: more would make the log
/// short.
const SHARE_WAITING: usize = 4;

/// What the upkeep remembers.
#[derive(Default)]
pub(super) struct Upkeep {
    /// Which of the two marks is written next: never the newest, of which a torn write would leave nothing.
    pub mark: u32,
    pub zeros: Zeros,
    /// Nothing is written any more.
    pub has_ended: bool,
}

/// An object at the log's end whose entry has not ended.
struct Candidate {
    set: u32,
    hash: KeyHash,
    page: u32,
    record: Range<usize>,
    expired: bool,
    fate: Fate,
}

impl Shared {
    /// All of the upkeep but the zeros. Gives back the right to these, unless another thread has it.
    pub(super) fn maintain(self: &Arc<Self>, now: u32) -> Option<MutexGuard<'_, Upkeep>> {
        let mut upkeep = self.upkeep.try_lock().ok().filter(|upkeep| !upkeep.has_ended)?;
        self.write_segments();
        while let Some(tail) = self.log.tail(self.log.spare()) {
            self.reclaim(&mut upkeep, tail, now);
            self.write_segments();
        }
        for _ in 0..SEGMENTS_FOR_MEMORY {
            let Some(tail) = self.log.tail(usize::MAX).filter(|_| self.is_short_of_memory()) else { break };
            self.reclaim(&mut upkeep, tail, now);
        }
        let waiting = self.queue.lock().expect("no thread panics with the queue").len();
        for _ in 0..waiting {
            let next = self.queue.lock().expect("no thread panics with the queue").pop_front();
            let Some(index) = next else { break };
            let sets = self.sets_to_mend(index);
            self.move_sets(&sets, None, now);
        }
        Some(upkeep)
    }

    /// Begins the writes of full segments, as many as the device takes.
    fn write_segments(self: &Arc<Self>) {
        while let Some((segment, pages)) = self.log.next_write() {
            let buffer = pages.share(pages.len());
            let first = self.log.layout.first_block.expect("a log that is written has a place");
            let offset = self.offset(first + segment * self.log.layout.pages_per_segment);
            let shared = Arc::clone(self);
            let done = Box::new(move |outcome: Outcome| shared.segment_written(segment, outcome));
            if self.device.submit(Request { direction: Direction::Write, offset, buffer, done }).is_err() {
                self.log.written(segment, None);
                return;
            }
        }
    }

    fn segment_written(&self, segment: u32, outcome: Outcome) {
        match &outcome.result {
            Ok(()) => Counters::add(&self.counters.log_bytes_written, outcome.buffer.len()),
            Err(_) => Counters::one(&self.counters.write_errors),
        }
        self.log.written(segment, Some(outcome.result.is_ok()));
    }

    /// Ends all entries of a segment: their objects move, get another life, or end.
    fn reclaim(&self, upkeep: &mut Upkeep, mut tail: Tail, now: u32) {
        let damaged = self.read_tail(&mut tail);
        let mut candidates = self.candidates(&tail, now);
        let is_on_flash = !tail.failed && self.log.layout.first_block.is_some();
        if is_on_flash && !self.is_short_of_memory() {
            self.let_wait(&tail, &mut candidates);
        }
        let threshold = if is_on_flash { self.options.move_threshold } else { 1 };
        let mut sets: Vec<u32> = Vec::new();
        for of_set in candidates.chunk_by_mut(|a, b| a.set == b.set) {
            self.decide(of_set, threshold);
            sets.extend(of_set.iter().find(|candidate| candidate.fate == Fate::Move).map(|candidate| candidate.set));
        }
        self.move_sets(&sets, Some(&tail), now);
        let mut ends = Vec::new();
        for candidate in &candidates {
            if candidate.fate == Fate::Readmit && self.readmit(&tail, candidate) {
                continue;
            }
            if candidate.fate != Fate::Move {
                ends.push(candidate);
            }
        }
        let safe = ends.iter().all(|candidate| candidate.expired)
            || self.write_mark(upkeep, self.log.oldest_after(tail.segment));
        for candidate in ends {
            let counters = &self.counters;
            Counters::one(match (candidate.expired, candidate.fate) {
                (true, _) => &counters.ended_expired,
                (false, Fate::Readmit) => &counters.ended_unreadmitted,
                (false, _) => &counters.ended_below_threshold,
            });
            self.end_entry(candidate.hash, candidate.page);
            if !safe {
                let (mut group, set) = self.locked(candidate.set);
                group.set_unclean(set, true);
                self.enqueue(&mut group, candidate.set);
            }
        }
        if damaged {
            self.void_all_of(tail.segment);
        }
        if tail.failed {
            Counters::one(&self.counters.segments_retired);
        }
        self.log.end(tail.segment, tail.failed);
    }

    /// Brings a segment into RAM. Says whether some of its pages cannot be used.
    fn read_tail(&self, tail: &mut Tail) -> bool {
        let pages = self.log.layout.pages_per_segment;
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

    /// The objects of a segment whose entries have not ended, by set, oldest first.
    fn candidates(&self, tail: &Tail, now: u32) -> Vec<Candidate> {
        let Some(buffer) = &tail.buffer else {
            return Vec::new();
        };
        let (shape, first) = (&self.division.shape, tail.segment * self.log.layout.pages_per_segment);
        let mut candidates = Vec::new();
        for index in 0..self.log.layout.pages_per_segment {
            let (bytes, page) = (page_of(buffer, index), first + index);
            if !is_expected(bytes, self.options.salt, self.log.header(page)) {
                continue;
            }
            for record in page::records(bytes) {
                let hash = record.hash(bytes);
                let number = shape.set(hash);
                let (group, set) = self.locked(number);
                let alive = self.entry_at(&group, set, hash, page).is_some();
                drop(group);
                // An entry means the last record of its tag.
                if alive && self.tagged(number, shape.tag(hash), bytes).is_some_and(|(_, last)| last == record) {
                    let expired = is_past(record.expiry, now);
                    candidates.push(Candidate {
                        set: number,
                        hash,
                        page,
                        record: record.range,
                        expired,
                        fate: Fate::End,
                    });
                }
            }
        }
        candidates.sort_by_key(|candidate| candidate.set);
        candidates
    }

    /// Sends to the log's front, out of the candidates, what would push others out of its page while most pages have room.
    fn let_wait(&self, tail: &Tail, candidates: &mut Vec<Candidate>) {
        let mut left = self.log.segment_bytes() / SHARE_WAITING;
        let mut gone = Vec::with_capacity(candidates.len());
        for of_set in candidates.chunk_by(|a, b| a.set == b.set) {
            let may_wait = self.may_wait(of_set, &mut left);
            gone.extend(of_set.iter().map(|candidate| may_wait && !candidate.expired && self.readmit(tail, candidate)));
        }
        let mut gone = gone.into_iter();
        candidates.retain(|_| !gone.next().expect("there is one for each"));
    }

    /// Whether the candidates of one set may wait, while so many bytes of all still may.
    fn may_wait(&self, candidates: &[Candidate], left: &mut usize) -> bool {
        let shape = &self.division.shape;
        let (group, set) = self.locked(candidates[0].set);
        let objects = group.entries(shape, set).filter(|entry| entry.is_object()).count();
        let bytes: usize = candidates.iter().map(|candidate| candidate.record.len()).sum();
        let sets = SETS.min(shape.sets as usize - candidates[0].set as usize / SETS * SETS);
        let mean_room = group.mean_room(sets);
        // What takes the place of an older version in the page pushes nothing out.
        let replaces = candidates.iter().any(|candidate| group.may_hold(shape, set, candidate.hash));
        // What the set has besides is about as long.
        let wants = !replaces && waits(objects, bytes / candidates.len(), group.room(set), mean_room);
        let rest = left.checked_sub(bytes * PAGE / mean_room.max(1)).filter(|_| wants);
        *left = rest.unwrap_or(*left);
        rest.is_some()
    }

    /// Decides what becomes of the candidates of one set.
    fn decide(&self, candidates: &mut [Candidate], threshold: u8) {
        let shape = &self.division.shape;
        let (group, set) = self.locked(candidates[0].set);
        let objects = group.entries(shape, set).filter(|entry| entry.is_object()).count();
        let bytes = candidates.iter().map(|candidate| candidate.record.len()).sum();
        let together = Together { objects, bytes, fit: bytes <= group.room(set) };
        let alone = candidates.iter().all(|candidate| candidate.expired);
        for candidate in candidates {
            let index = self.entry_at(&group, set, candidate.hash, candidate.page);
            let entry = index.and_then(|index| group.entries(shape, set).nth(index));
            let hit = matches!(entry, Some(Entry::Object { hit: true, .. }));
            candidate.fate = match fate(together, threshold, hit) {
                Fate::Move if alone => Fate::End,
                Fate::Readmit if candidate.expired => Fate::End,
                fate => fate,
            };
        }
    }

    /// Gives an object another life in the log.
    fn readmit(&self, tail: &Tail, candidate: &Candidate) -> bool {
        let buffer = tail.buffer.as_ref().expect("it was read");
        let page = page_of(buffer, candidate.page % self.log.layout.pages_per_segment);
        let (mut group, set) = self.locked(candidate.set);
        match self.newest(&group, set, candidate.hash, &[]) {
            Newest::Log { page, .. } if page == candidate.page => {}
            _ => return false,
        }
        let shape = &self.division.shape;
        let again = Addition::Again(&page[candidate.record.clone()], group.epoch);
        let Some(place) = self.log.append(&again, (candidate.set, shape.tag(candidate.hash))) else {
            return false;
        };
        let old = self.entry_at(&group, set, candidate.hash, candidate.page).expect("it is the newest");
        group.remove(shape, set, old);
        self.publish(&mut group, set, candidate.hash, place);
        Counters::one(&self.counters.readmitted);
        true
    }

    /// Notes on flash that nothing before a moment is in the log, before entries end whose objects still lie there. Says
    /// whether it is noted.
    fn write_mark(&self, upkeep: &mut Upkeep, moment: u64) -> bool {
        if self.log.layout.first_block.is_none() {
            return true;
        }
        let number = upkeep.mark;
        upkeep.mark = (upkeep.mark + 1) % super::options::MARKS;
        let written = self.transfer(vec![(Direction::Write, number, self.mark(number, moment))])[0].is_some();
        if written {
            Counters::add(&self.counters.mark_bytes_written, PAGE);
        }
        written
    }

    /// The page that says that nothing before a moment is in the log.
    pub(super) fn mark(&self, number: u32, moment: u64) -> Buffer {
        let mut page = Buffer::zeroed(PAGE);
        Writer::resume(&mut page, 0, 0).seal(self.options.salt, Header { number, moment, generation: 0 });
        page
    }

    /// Empties all sets with an entry in a segment, since it cannot be told whose they are.
    fn void_all_of(&self, segment: u32) {
        let (shape, pages) = (&self.division.shape, self.log.layout.pages_per_segment);
        for number in 0..shape.sets {
            let (mut group, set) = self.locked(number);
            let here = |entry| matches!(entry, Entry::Object { page, .. } if page / pages == segment);
            if group.entries(shape, set).any(here) {
                let lost = group.entries(shape, set).filter(|entry| matches!(entry, Entry::Object { .. })).count();
                Counters::add(&self.counters.ended_failed, lost + usize::from(group.objects(set)));
                self.void_failed(&mut group, set, number);
            }
        }
    }
}

fn page_of(segment: &[u8], index: u32) -> &[u8] {
    &segment[index as usize * PAGE..][..PAGE]
}
