//! Pages are composed of what a set has in the log and of what its page held, and written.
//!
//! ```text
//! begin: entries and hit bits are noted      group's lock
//! read:  the old page, pages of the log      no lock
//! compose                                    no lock
//! install: the new page answers, from RAM    group's lock
//! write                                      no lock
//! end:   the noted entries end               group's lock
//! ```
//! Many sets are on their way at once, each as far as its transfers are.
//!
//! The order in which objects have a claim to room: those of the log, newest first; those of the page that were hit; the
//! others as they lie. So what was hit is kept once over what was not. What finds no room hides older versions as well.

use super::Shared;
use super::group::{Entry, Group, Move, SETS, next_generation};
use super::log::{Tail, is_expected};
use super::page::{self, Header, PAGE, Record, Writer};
use super::stats::Counters;
use crate::device::{Buffer, Direction, Outcome, Request};
use crate::object::{KeyHash, is_past};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

/// Pages on their way, each by itself: some are read while others are written.
struct Moves<'a> {
    shared: &'a Shared,
    tail: Option<&'a Tail>,
    now: u32,
    /// By their sets.
    jobs: HashMap<u32, Job>,
    sender: Sender<Arrival>,
}

/// A page on its way.
struct Job {
    number: u32,
    /// The log's clock when the entries were noted.
    moment: u64,
    generation: u8,
    /// That of the page it takes the place of.
    old_generation: u8,
    entries: Vec<Entry>,
    hits: Vec<u8>,
    has_page: bool,
    old: Option<Buffer>,
    /// Pages of the log that have the set's objects; none if one cannot be read.
    log: Vec<(u32, Option<Buffer>)>,
    /// Reads under way.
    reads: usize,
    /// What the page has that is being written.
    content: Content,
}

#[derive(Default)]
struct Content {
    hashes: Vec<KeyHash>,
    /// Where its records end.
    end: usize,
    /// Objects that came from the log.
    moved: usize,
}

/// What was transferred for a set.
struct Arrival {
    number: u32,
    part: Part,
    outcome: Outcome,
}

#[derive(Clone, Copy)]
enum Part {
    OldPage,
    /// One of the job's pages of the log.
    Log(usize),
    NewPage,
}

struct Composer<'a> {
    shared: &'a Shared,
    number: u32,
    now: u32,
    writer: Writer<'a>,
    hashes: Vec<KeyHash>,
    /// Objects that the page can have.
    room: usize,
    hidden: Vec<u64>,
    hidden_tags: Vec<u64>,
}

impl Moves<'_> {
    /// Notes what the set has, and begins to read it.
    fn begin(&mut self, number: u32) {
        let shared = self.shared;
        let Some(mut job) = shared.begin_move(number) else { return };
        let mut reads = Vec::new();
        if job.has_page {
            reads.push((Part::OldPage, shared.division.first_set + number));
        }
        for &entry in &job.entries {
            let Entry::Object { page, .. } = entry else { continue };
            if job.log.iter().any(|&(known, _)| known == page) {
                continue;
            }
            let copy = self.tail.and_then(|tail| shared.copy_of_tail(tail, page)).or_else(|| shared.log.copy(page));
            if copy.is_none() {
                let header = shared.log.header(page).expect("an entry's segment is in use");
                reads.push((Part::Log(job.log.len()), header.number));
            }
            job.log.push((page, copy));
        }
        Counters::add(&shared.counters.bytes_read_to_move, reads.len() * PAGE);
        job.reads = reads.len();
        self.jobs.insert(number, job);
        if reads.is_empty() {
            self.write(number);
        }
        for (part, page) in reads {
            self.submit(Direction::Read, number, part, page, Buffer::zeroed(PAGE));
        }
    }

    fn submit(&self, direction: Direction, number: u32, part: Part, page: u32, buffer: Buffer) {
        let sender = self.sender.clone();
        let done = move |outcome| sender.send(Arrival { number, part, outcome }).expect("the receiver waits");
        self.shared.submit(direction, page, buffer, done);
    }

    fn arrive(&mut self, Arrival { number, part, outcome }: Arrival) {
        let job = self.jobs.get_mut(&number).expect("it is on its way");
        let is_right = outcome.result.is_ok();
        let buffer = is_right.then_some(outcome.buffer);
        match part {
            Part::OldPage => job.old = buffer,
            Part::Log(at) => job.log[at].1 = buffer,
            Part::NewPage => {
                let job = self.jobs.remove(&number).expect("it is on its way");
                if !is_right {
                    Counters::one(&self.shared.counters.write_errors);
                }
                return self.shared.end_move(&job, is_right);
            }
        }
        if !is_right {
            Counters::one(&self.shared.counters.read_errors);
        }
        job.reads -= 1;
        if job.reads == 0 {
            self.write(number);
        }
    }

    /// With all that was read.
    fn write(&mut self, number: u32) {
        let job = self.jobs.get_mut(&number).expect("it is on its way");
        self.shared.drop_wrong_pages(job);
        let (page, content) = self.shared.compose(job, self.now);
        job.content = content;
        if self.shared.install(job, &page) {
            self.submit(Direction::Write, number, Part::NewPage, self.shared.division.first_set + number, page);
        } else {
            self.jobs.remove(&number);
        }
    }
}

impl Shared {
    /// Rewrites the pages of these sets, each of them once, with all they have in the log. Waits for the device.
    pub(super) fn move_sets(&self, sets: &[u32], tail: Option<&Tail>, now: u32) {
        let (sender, receiver) = mpsc::channel();
        let mut moves = Moves { shared: self, tail, now, jobs: HashMap::new(), sender };
        let mut sets = sets.iter();
        loop {
            while moves.jobs.len() < self.options.moves_at_once
                && let Some(&set) = sets.next()
            {
                moves.begin(set);
            }
            if moves.jobs.is_empty() {
                return;
            }
            moves.arrive(receiver.recv().expect("a sender is here"));
        }
    }

    fn begin_move(&self, number: u32) -> Option<Job> {
        let (mut group, set) = self.locked(number);
        // Read under the lock: what is removed later has this moment or a later one. What was flushed is in no page that is
        // newer than the flush.
        let (moment, epoch) = self.log.moment_and_epoch();
        if group.epoch != epoch {
            group.clear(epoch);
        }
        let nothing = group.len(set) == 0 && !group.is_unclean(set);
        if nothing || group.move_of(set).is_some() {
            return None;
        }
        let shape = &self.division.shape;
        let entries: Vec<Entry> = group.entries(shape, set).collect();
        let taken = entries.len() as u8;
        group.moves.push(Move { set: set as u8, taken, image: None, void: false });
        let has_page = group.objects(set) != 0;
        let hits = group.hits(shape, set).to_vec();
        let old_generation = group.generation(set);
        let generation = next_generation(old_generation);
        let (old, log, reads, content) = (None, Vec::new(), 0, Content::default());
        Some(Job { number, moment, generation, old_generation, entries, hits, has_page, old, log, reads, content })
    }

    /// What was read and is not what it should be counts as not read.
    fn drop_wrong_pages(&self, job: &mut Job) {
        job.old.take_if(|page| !self.is_old_page(job.number, job.old_generation, page));
        for (page, copy) in &mut job.log {
            if copy.take_if(|copy| !is_expected(copy, self.options.salt, self.log.header(*page))).is_some() {
                Counters::one(&self.counters.corrupt_pages);
            }
        }
    }

    fn is_old_page(&self, number: u32, generation: u8, page: &[u8]) -> bool {
        let expected = (self.division.first_set + number, generation);
        let right =
            page::open(page, self.options.salt).is_some_and(|header| (header.number, header.generation) == expected);
        if !right {
            Counters::one(&self.counters.corrupt_pages);
        }
        right
    }

    fn copy_of_tail(&self, tail: &Tail, page: u32) -> Option<Buffer> {
        let pages = self.log.layout.pages_per_segment;
        let bytes = tail.buffer.as_ref().filter(|_| page / pages == tail.segment)?;
        let mut copy = Buffer::zeroed(PAGE);
        copy.copy_from_slice(&bytes[(page % pages) as usize * PAGE..][..PAGE]);
        Some(copy)
    }

    /// Transfers of pages by their numbers, all at once; none for one that failed.
    pub(super) fn transfer(&self, transfers: Vec<(Direction, u32, Buffer)>) -> Vec<Option<Buffer>> {
        let (sender, receiver) = mpsc::channel();
        let mut results: Vec<Option<Buffer>> = Vec::new();
        results.resize_with(transfers.len(), || None);
        for (index, (direction, number, buffer)) in transfers.into_iter().enumerate() {
            let sender = sender.clone();
            let done = move |outcome| sender.send((index, direction, outcome)).expect("the receiver waits");
            self.submit(direction, number, buffer, done);
        }
        drop(sender);
        for (index, direction, outcome) in receiver {
            match (outcome.result, direction) {
                (Ok(()), _) => results[index] = Some(outcome.buffer),
                (Err(_), Direction::Read) => Counters::one(&self.counters.read_errors),
                (Err(_), Direction::Write) => Counters::one(&self.counters.write_errors),
            }
        }
        results
    }

    /// Begins a transfer from or to a page of this number, as soon as the device takes it.
    fn submit(&self, direction: Direction, number: u32, buffer: Buffer, done: impl FnOnce(Outcome) + Send + 'static) {
        let mut request = Request { direction, offset: self.offset(number), buffer, done: Box::new(done) };
        while let Err(refused) = self.device.submit(request) {
            self.device.wait_for_room();
            request = refused;
        }
    }

    fn compose(&self, job: &Job, now: u32) -> (Buffer, Content) {
        let mut page = Buffer::zeroed(PAGE);
        let writer = Writer::resume(&mut page, 0, 0);
        let (hashes, hidden, hidden_tags) = (Vec::new(), Vec::new(), Vec::new());
        let room = usize::MAX;
        let mut composer =
            Composer { shared: self, number: job.number, now, writer, hashes, room, hidden, hidden_tags };
        for &entry in job.entries.iter().rev() {
            match entry {
                Entry::Tombstone { mark } => composer.hidden.push(mark),
                Entry::Object { page, tag, .. } => {
                    let (_, bytes) = job.log.iter().find(|&&(known, _)| known == page).expect("it was asked for");
                    composer.add_from_log(bytes.as_deref(), tag);
                }
            }
        }
        let moved = composer.hashes.len();
        if let Some(old) = &job.old {
            if self.is_short_of_memory() {
                composer.room = page::records(old).count() * 3 / 4;
            }
            let is_hit =
                |position: usize| job.hits.get(position / 8).is_some_and(|byte| byte & 1 << (position % 8) != 0);
            for wanted in [true, false] {
                let chosen = page::records(old).enumerate().filter(|&(position, _)| is_hit(position) == wanted);
                chosen.for_each(|(_, record)| composer.add(old, &record));
            }
        }
        let Composer { writer, hashes, .. } = composer;
        let end = writer.end();
        let number = self.division.first_set + job.number;
        writer.seal(self.options.salt, Header { number, moment: job.moment, generation: job.generation });
        (page, Content { hashes, end, moved })
    }

    /// The record that an entry with this tag means: the last one of the page.
    pub(super) fn tagged(&self, number: u32, tag: u64, page: &[u8]) -> Option<(KeyHash, Record)> {
        let shape = &self.division.shape;
        let hashed = page::records(page).map(|record| (record.hash(page), record));
        hashed.filter(|&(hash, _)| shape.tag(hash) == tag && shape.set(hash) == number).last()
    }

    /// From now on the new page answers. Says whether it is to be written.
    fn install(&self, job: &Job, page: &Buffer) -> bool {
        let mut image = Buffer::zeroed(PAGE);
        image.copy_from_slice(page);
        let (mut group, set) = self.locked(job.number);
        let underway = group.move_of(set).expect("it is under way");
        if underway.void {
            forget(&mut group, set);
            return false;
        }
        underway.image = Some(Arc::new(image));
        group.version = group.version.wrapping_add(1);
        true
    }

    fn end_move(&self, job: &Job, written: bool) {
        let Content { hashes, end, moved } = &job.content;
        let shape = &self.division.shape;
        let (mut group, set) = self.locked(job.number);
        let (void, taken) = group.move_of(set).map(|m| (m.void, usize::from(m.taken))).expect("it is under way");
        forget(&mut group, set);
        if written {
            Counters::one(&self.counters.pages_written);
            Counters::add(&self.counters.set_bytes_written, PAGE);
        }
        if written && !void {
            group.remove_oldest(shape, set, taken);
            group.set_page(shape, set, job.generation, hashes, *end);
            group.set_unclean(set, false);
            Counters::add(&self.counters.moved, *moved);
            return;
        }
        if !void {
            Counters::add(&self.counters.ended_failed, hashes.len());
            self.void_failed(&mut group, set, job.number);
        }
        // Whatever lies there now, the next page must differ from it.
        group.set_generation(set, job.generation);
    }

    /// Empties a set whose page cannot be read or written.
    pub(super) fn void_failed(&self, group: &mut Group, set: usize, number: u32) {
        Counters::one(&self.counters.voided_by_failure);
        group.void(&self.division.shape, set);
        self.enqueue(group, number);
    }

    /// The sets of a group that are to be mended.
    pub(super) fn sets_to_mend(&self, index: u32) -> Vec<u32> {
        let shape = &self.division.shape;
        let first = index * SETS as u32;
        let (mut group, _) = self.locked(first);
        group.queued = false;
        let present = SETS.min((shape.sets - first) as usize);
        let tombstones =
            |set| group.entries(shape, set).filter(|entry| matches!(entry, Entry::Tombstone { .. })).count();
        let keep = usize::from(self.options.tombstones_per_group) / 4;
        let keep = if group.tombstones() > 2 * keep { keep } else { usize::MAX };
        let sets = super::choose::mend((0..present).map(|set| (tombstones(set), group.is_unclean(set))), keep);
        sets.into_iter().map(|set| first + set as u32).collect()
    }

    /// Ends an entry of the log whose object ends. If the set's page may hold an older one, a tombstone hides that.
    pub(super) fn end_entry(&self, hash: KeyHash, page: u32) {
        let shape = &self.division.shape;
        let (mut group, set) = self.locked(shape.set(hash));
        let Some(index) = self.entry_at(&group, set, hash, page) else {
            return;
        };
        if !group.may_hold(shape, set, hash) {
            group.remove(shape, set, index);
        } else if group.tombstones() < usize::from(self.options.tombstones_per_group) {
            group.replace(shape, set, index, Entry::Tombstone { mark: shape.mark(hash) });
        } else {
            Counters::one(&self.counters.voided_by_tombstones);
            group.void(shape, set);
            self.enqueue(&mut group, shape.set(hash));
        }
    }

    /// The index of the entry of this page with this hash's tag.
    pub(super) fn entry_at(&self, group: &Group, set: usize, hash: KeyHash, page: u32) -> Option<usize> {
        let shape = &self.division.shape;
        let wanted = (page, shape.tag(hash));
        group
            .entries(shape, set)
            .position(|entry| matches!(entry, Entry::Object { page, tag, .. } if (page, tag) == wanted))
    }
}

fn forget(group: &mut Group, set: usize) {
    group.moves.retain(|m| usize::from(m.set) != set);
    if group.moves.is_empty() {
        group.moves = Vec::new();
    }
    group.version = group.version.wrapping_add(1);
}

impl Composer<'_> {
    fn add_from_log(&mut self, page: Option<&[u8]>, tag: u64) {
        let Some(bytes) = page else {
            self.hidden_tags.push(tag);
            Counters::one(&self.shared.counters.ended_failed);
            return;
        };
        if let Some((_, record)) = self.shared.tagged(self.number, tag, bytes) {
            self.add(bytes, &record);
        }
    }

    fn add(&mut self, bytes: &[u8], record: &Record) {
        let shape = &self.shared.division.shape;
        let hash = record.hash(bytes);
        let (mark, tag) = (shape.mark(hash), shape.tag(hash));
        if self.hashes.contains(&hash) || self.hidden.contains(&mark) || self.hidden_tags.contains(&tag) {
            return;
        }
        if is_past(record.expiry, self.now) {
            Counters::one(&self.shared.counters.ended_expired);
            self.hidden.push(mark);
        } else if self.hashes.len() >= self.room {
            Counters::one(&self.shared.counters.ended_for_memory);
            self.hidden.push(mark);
        } else if self.writer.push_record(&bytes[record.range.clone()]) {
            self.hashes.push(hash);
        } else {
            Counters::one(&self.shared.counters.ended_evicted);
            self.hidden.push(mark);
        }
    }
}
