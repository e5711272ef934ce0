//! The log before the sets: a ring of segments, filled page by page in RAM and written whole.
//!
//! ```text
//!          append               full            written            reclaimed: all its entries have ended
//! Free -----------> Open -----------> Sealed -----------> Written -----------> Free
//!                                       |                                       ^
//!                                       +--- the write failed, or nothing is ---+
//!                                            written: reclaimed out of RAM
//! ```
//! The log's clock advances with each page that is opened; its value is the page's moment. Page k of a segment has the
//! moment of its first page plus k. So RAM knows the moment that any page on flash must have, and the bytes of a lost
//! or misplaced write are refused.

use super::page::{self, PAGE, PageHeader, PageWriter};
use crate::device::Buffer;
use crate::object::Object;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Minimum number of free segments that maintenance provides: one for readmitted objects, the others for inserts. Those
/// have at least `SPARE_BYTES`, and enough for all buffers.
const SPARE_SEGMENTS: usize = 3;
const SPARE_BYTES: usize = 64 << 10;
/// The spare segments are at most one part in this many of the log.
const SPARE_SHARE: usize = 8;

/// The position of the log and its division.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLayout {
    pub segments: u32,
    pub pages_per_segment: u32,
    /// The number of the first page in the area; `None` if segments stay in RAM until they are reclaimed.
    pub first_block: Option<u32>,
    /// Maximum number of sealed segments in RAM, if they are written.
    pub buffers: usize,
    pub salt: u64,
}

pub(crate) struct PageLog {
    pub log_layout: LogLayout,
    /// The moment of the first page of each segment; 0 if it is free.
    first: Box<[AtomicU64]>,
    /// The moment of the last page that was opened.
    log_clock: AtomicU64,
    /// Counts flushes.
    epoch: AtomicU32,
    state: Mutex<State>,
}

struct State {
    open: Option<OpenSegment>,
    free: VecDeque<u32>,
    /// Sealed and written segments, oldest first.
    filled: VecDeque<u32>,
    sealed: Vec<SealedSegment>,
    /// Segments that are never used again.
    retired: usize,
}

struct OpenSegment {
    segment: u32,
    buffer: Buffer,
    page: u32,
    end: usize,
    objects: usize,
    /// The set and tag of each object in the page.
    names: Vec<(u32, u64)>,
}

struct SealedSegment {
    segment: u32,
    buffer: Arc<Buffer>,
    phase: SegmentPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentPhase {
    Waiting,
    Writing,
    Failed,
    /// Not to be written.
    Kept,
}

/// An append to the log.
pub(crate) enum LogAppend<'a> {
    New(&'a Object<'a>, usize),
    /// A readmitted record from the log's end, unless a flush happened since. It may use the segment that is kept for
    /// readmission.
    Again(&'a [u8], u32),
}

/// An object's place in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogPosition {
    pub page: u32,
    pub log_clock: u64,
    /// Whether its page already had an object of the same set and tag, with or without an entry.
    pub repeats: bool,
    /// Number of flushes before it.
    pub epoch: u32,
}

/// A segment to be reclaimed.
pub(crate) struct Tail {
    pub segment: u32,
    /// The pages of the segment, if they are in RAM.
    pub buffer: Option<Arc<Buffer>>,
    pub failed: bool,
}

impl PageLog {
    pub fn new(log_layout: LogLayout) -> Self {
        let count = log_layout.segments as usize;
        let (free, filled, sealed) = ((0..log_layout.segments).collect(), VecDeque::new(), Vec::new());
        let state = State { open: None, free, filled, sealed, retired: 0 };
        Self {
            log_layout,
            first: (0..count).map(|_| AtomicU64::new(0)).collect(),
            log_clock: AtomicU64::new(0),
            epoch: AtomicU32::new(0),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the log")
    }

    /// The log's clock.
    pub fn log_clock(&self) -> u64 {
        self.log_clock.load(Ordering::Relaxed)
    }

    /// Advances to a moment that no page has, and returns it.
    pub fn advance(&self) -> u64 {
        let _state = self.state();
        self.log_clock.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Counts a flush. Under the lock, so that earlier appends have moments up to the one read afterwards.
    pub fn flush(&self) {
        let _state = self.state();
        // Release: with `epoch`; a thread that sees an operation after the flush sees the flush.
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// The moment, and the flushes before it.
    pub fn log_clock_and_epoch(&self) -> (u64, u32) {
        let _state = self.state();
        (self.log_clock(), self.epoch())
    }

    /// The expected header of a page; `None` if its segment is not in use.
    pub fn header(&self, page: u32) -> Option<PageHeader> {
        let first = self.first[(page / self.log_layout.pages_per_segment) as usize].load(Ordering::Acquire);
        let log_clock = first + u64::from(page % self.log_layout.pages_per_segment);
        let number = self.log_layout.first_block.unwrap_or(0) + page;
        (first != 0).then_some(PageHeader { number, log_clock, generation: 0 })
    }

    /// Copies an object or a record into the open segment, under the lock of its group; `name` says its set and tag.
    /// None if segments are not written or reclaimed fast enough.
    pub fn append(&self, addition: &LogAppend<'_>, name: (u32, u64)) -> Option<LogPosition> {
        let mut state = self.state();
        let epoch = self.epoch();
        if matches!(addition, LogAppend::Again(_, expected) if *expected != epoch) {
            return None;
        }
        loop {
            if state.open.is_none() {
                state.open = Some(self.begin(&mut state, matches!(addition, LogAppend::Again(..)))?);
            }
            let open = state.open.as_mut().expect("it was opened");
            if open.push(addition) {
                let page = open.segment * self.log_layout.pages_per_segment + open.page;
                let repeats = open.names.contains(&name);
                open.names.push(name);
                return Some(LogPosition { page, log_clock: self.log_clock(), repeats, epoch });
            }
            open.seal_page(&self.log_layout, self.log_clock());
            if open.page + 1 < self.log_layout.pages_per_segment {
                open.begin_page();
                self.log_clock.fetch_add(1, Ordering::Relaxed);
            } else {
                let full = state.open.take().expect("it was full");
                self.seal(&mut state, full);
            }
        }
    }

    fn begin(&self, state: &mut State, again: bool) -> Option<OpenSegment> {
        let reserve = usize::from(self.log_layout.first_block.is_some() && !again);
        if state.free.len() <= reserve || state.sealed.len() >= self.log_layout.buffers {
            return None;
        }
        let segment = state.free.pop_front()?;
        let log_clock = self.log_clock.fetch_add(1, Ordering::Relaxed) + 1;
        self.first[segment as usize].store(log_clock, Ordering::Release);
        let buffer = Buffer::zeroed(self.segment_bytes());
        Some(OpenSegment { segment, buffer, page: 0, end: 0, objects: 0, names: Vec::new() })
    }

    fn seal(&self, state: &mut State, full: OpenSegment) {
        let phase = if self.log_layout.first_block.is_some() { SegmentPhase::Waiting } else { SegmentPhase::Kept };
        state.filled.push_back(full.segment);
        state.sealed.push(SealedSegment { segment: full.segment, buffer: Arc::new(full.buffer), phase });
    }

    /// Seals the open segment even if it is not full, so that its objects are written.
    pub fn seal_open(&self) {
        let mut state = self.state();
        let Some(mut open) = state.open.take() else {
            return;
        };
        open.seal_page(&self.log_layout, self.log_clock());
        while open.page + 1 < self.log_layout.pages_per_segment {
            open.begin_page();
            let log_clock = self.log_clock.fetch_add(1, Ordering::Relaxed) + 1;
            open.seal_page(&self.log_layout, log_clock);
        }
        self.seal(&mut state, open);
    }

    pub fn segment_bytes(&self) -> usize {
        self.log_layout.pages_per_segment as usize * PAGE
    }

    /// A copy of a page that is in RAM.
    pub fn copy(&self, page: u32) -> Option<Buffer> {
        let (segment, at) =
            (page / self.log_layout.pages_per_segment, (page % self.log_layout.pages_per_segment) as usize * PAGE);
        let mut copy = Buffer::zeroed(PAGE);
        let state = self.state();
        if let Some(open) = state.open.as_ref().filter(|open| open.segment == segment) {
            copy.copy_from_slice(&open.buffer[at..at + PAGE]);
            if open.page as usize * PAGE == at {
                let header = self.header(page).expect("the open segment is in use");
                PageWriter::resume(&mut copy, open.end, open.objects).seal(self.log_layout.salt, header);
            }
            return Some(copy);
        }
        let sealed = state.sealed.iter().find(|sealed| sealed.segment == segment)?;
        copy.copy_from_slice(&sealed.buffer[at..at + PAGE]);
        Some(copy)
    }

    /// Takes a segment that waits to be written; its phase becomes `Writing`.
    pub fn next_write(&self) -> Option<(u32, Arc<Buffer>)> {
        let mut state = self.state();
        let sealed = state.sealed.iter_mut().find(|sealed| sealed.phase == SegmentPhase::Waiting)?;
        sealed.phase = SegmentPhase::Writing;
        Some((sealed.segment, Arc::clone(&sealed.buffer)))
    }

    /// Records the result of the write of a segment; `None` if it was not started.
    pub fn written(&self, segment: u32, success: Option<bool>) {
        let mut state = self.state();
        let index = state.sealed.iter().position(|sealed| sealed.segment == segment).expect("it is being written");
        match success {
            Some(true) => drop(state.sealed.swap_remove(index)),
            Some(false) => state.sealed[index].phase = SegmentPhase::Failed,
            None => state.sealed[index].phase = SegmentPhase::Waiting,
        }
    }

    /// The segment to reclaim next, if fewer than `spare` are free: one whose write failed, else the oldest.
    pub fn tail(&self, spare: usize) -> Option<Tail> {
        let state = self.state();
        let failed =
            state.sealed.iter().find(|sealed| sealed.phase == SegmentPhase::Failed).map(|sealed| sealed.segment);
        let segment = match failed {
            Some(segment) => segment,
            None if state.free.len() < spare || self.log_layout.first_block.is_none() => *state.filled.front()?,
            None => return None,
        };
        let sealed = state.sealed.iter().find(|sealed| sealed.segment == segment);
        let pending =
            sealed.is_some_and(|sealed| matches!(sealed.phase, SegmentPhase::Waiting | SegmentPhase::Writing));
        if pending {
            return None;
        }
        Some(Tail { segment, buffer: sealed.map(|sealed| Arc::clone(&sealed.buffer)), failed: failed.is_some() })
    }

    /// The moment before which no written segment has objects, once the tail is reclaimed.
    pub fn oldest_after(&self, tail: u32) -> u64 {
        let state = self.state();
        let next =
            state.filled.iter().find(|&&segment| segment != tail).or(state.open.as_ref().map(|open| &open.segment));
        next.map_or(self.log_clock() + 1, |&segment| self.first[segment as usize].load(Ordering::Relaxed))
    }

    /// Frees a segment whose entries are all removed, or retires it.
    pub fn end(&self, segment: u32, retire: bool) {
        let mut state = self.state();
        state.filled.retain(|&filled| filled != segment);
        state.sealed.retain(|sealed| sealed.segment != segment);
        self.first[segment as usize].store(0, Ordering::Release);
        if retire {
            state.retired += 1;
        } else {
            state.free.push_back(segment);
        }
    }

    /// Number of segments that maintenance keeps free.
    pub fn spare(&self) -> usize {
        let wanted = 1 + self.log_layout.buffers.max(SPARE_BYTES / self.segment_bytes());
        wanted.min(self.log_layout.segments as usize / SPARE_SHARE).max(SPARE_SEGMENTS)
    }

    /// Whether half of the buffers are free, and segments for them, as far as maintenance keeps that number free. Also
    /// true if so much of the log is retired that waiting does not help.
    pub fn has_space(&self) -> bool {
        let state = self.state();
        let half = self.log_layout.buffers / 2;
        // One is open.
        let max = (self.log_layout.segments as usize - state.retired).saturating_sub(2);
        max == 0 || state.sealed.len() <= half && state.free.len() > half.min(self.spare() - 1).min(max)
    }

    /// Free segments, and bytes of RAM for buffers.
    pub fn space(&self) -> (usize, usize) {
        let state = self.state();
        let buffers = state.sealed.len() + usize::from(state.open.is_some());
        (state.free.len(), buffers * self.segment_bytes())
    }

    /// Restores a log on flash: its segments with the moments of their first pages, and the clock.
    pub fn restore(&self, segments: &[(u32, u64)], log_clock: u64) {
        let mut state = self.state();
        let mut segments = segments.to_vec();
        segments.sort_unstable_by_key(|&(_, first)| first);
        state.filled = segments.iter().map(|&(segment, _)| segment).collect();
        for &(segment, first) in &segments {
            self.first[segment as usize].store(first, Ordering::Release);
            state.free.retain(|&free| free != segment);
        }
        self.log_clock.store(log_clock, Ordering::Relaxed);
    }

    /// Whether all segments with objects are written.
    pub fn is_written(&self) -> bool {
        let state = self.state();
        state.open.is_none() && state.sealed.is_empty()
    }

    /// The moment of the first page of each segment, 0 for a free one.
    pub fn firsts(&self) -> impl Iterator<Item = u64> + '_ {
        self.first.iter().map(|first| first.load(Ordering::Relaxed))
    }

    /// Whether a page may have entries.
    pub fn is_used(&self, page: u32) -> bool {
        self.header(page).is_some()
    }

    pub fn verify(&self) {
        let state = self.state();
        let mut all: Vec<u32> = state.free.iter().chain(&state.filled).copied().collect();
        all.extend(state.open.as_ref().map(|open| open.segment));
        all.sort_unstable();
        assert!(all.is_sorted_by(|a, b| a < b), "a segment is in two states: {all:?}");
        assert!(state.sealed.iter().all(|sealed| state.filled.contains(&sealed.segment)));
        assert!(state.free.iter().all(|&free| self.first[free as usize].load(Ordering::Relaxed) == 0));
    }
}

impl OpenSegment {
    fn push(&mut self, addition: &LogAppend<'_>) -> bool {
        let mut writer = PageWriter::resume(page_of(&mut self.buffer, self.page), self.end, self.objects);
        let pushed = match addition {
            LogAppend::New(object, bytes) => writer.push(object, *bytes),
            LogAppend::Again(record, _) => writer.push_record(record),
        };
        (self.end, self.objects) = (writer.end(), writer.objects());
        pushed
    }

    fn seal_page(&mut self, log_layout: &LogLayout, log_clock: u64) {
        let number = log_layout.first_block.unwrap_or(0) + self.segment * log_layout.pages_per_segment + self.page;
        let writer = PageWriter::resume(page_of(&mut self.buffer, self.page), self.end, self.objects);
        writer.seal(log_layout.salt, PageHeader { number, log_clock, generation: 0 });
    }

    fn begin_page(&mut self) {
        (self.page, self.end, self.objects) = (self.page + 1, 0, 0);
        self.names.clear();
    }
}

fn page_of(buffer: &mut Buffer, page: u32) -> &mut [u8] {
    &mut buffer[page as usize * PAGE..][..PAGE]
}

/// Whether a page has the expected header and a valid checksum.
pub(crate) fn is_expected(bytes: &[u8], salt: u64, expected: Option<PageHeader>) -> bool {
    expected.is_some() && page::open(bytes, salt) == expected
}
