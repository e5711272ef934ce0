//! Rewrites of pages: a new page is composed of a set's objects in the log and in its old page, and written.
//!
//! ```text
//! begin: entries and hit bits are noted      group's lock
//! read:  the old page, pages of the log      no lock
//! compose                                    no lock
//! install: the new page answers, from RAM    group's lock
//! write                                      no lock
//! end:   the noted entries end               group's lock
//! ```
//! Many sets are rewritten at once, each at the pace of its transfers.
//!
//! Objects get space in this order: those of the log, newest first; the hit ones of the page; the others of the page in
//! their order. So a hit keeps an object for one rewrite before those without a hit. An object without space also hides
//! its older versions.

use super::SmallShared;
use super::log::{Tail, is_expected};
use super::page::{self, PAGE, PageHeader, PageRecord, PageWriter};
use super::set_group::{Entry, PendingRewrite, SETS, SetGroup, next_generation};
use super::stats::Counters;
use crate::device::{Buffer, Direction, TransferOutcome, TransferRequest};
use crate::object::{FlashHash, has_expired};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

/// Concurrent rewrites, independent of each other: some pages are read while others are written.
struct PageRewrites<'a> {
    shared: &'a SmallShared,
    tail: Option<&'a Tail>,
    now: u32,
    /// Rewrites by set.
    jobs: HashMap<u32, RewriteJob>,
    sender: Sender<TransferDone>,
}

/// The rewrite of one page.
struct RewriteJob {
    number: u32,
    /// The log's clock when the entries were noted.
    log_clock: u64,
    generation: u8,
    /// Generation of the page that it replaces.
    old_generation: u8,
    entries: Vec<Entry>,
    hits: Vec<u8>,
    has_page: bool,
    /// The set was emptied: its page is read for the bytes of its pools alone.
    is_emptied: bool,
    old: Option<Buffer>,
    /// Pages of the log with the set's objects; `None` for one that cannot be read.
    log: Vec<(u32, Option<Buffer>)>,
    /// Number of pending reads.
    reads: usize,
    /// The content of the page that is being written.
    content: PageContent,
}

#[derive(Default)]
struct PageContent {
    hashes: Vec<FlashHash>,
    /// End of its records.
    end: usize,
    /// Objects that came from the log.
    moved: usize,
    /// Bytes of each pool.
    pools: Vec<(u16, u64)>,
}

/// A completed transfer for a set.
struct TransferDone {
    number: u32,
    part: JobPart,
    outcome: TransferOutcome,
}

#[derive(Clone, Copy)]
enum JobPart {
    OldPage,
    /// One of the job's pages of the log.
    Log(usize),
    NewPage,
}

struct PageComposer<'a> {
    shared: &'a SmallShared,
    number: u32,
    now: u32,
    writer: PageWriter<'a>,
    hashes: Vec<FlashHash>,
    /// Maximum number of objects in the page.
    space: usize,
    hidden: Vec<u64>,
    hidden_tags: Vec<u64>,
    /// Pools with more than their shares. `is_above`: their objects are added in this pass, not those of the others.
    above_share: &'a [u16],
    is_above: bool,
}

impl PageRewrites<'_> {
    /// Records the entries of the set, and starts the reads.
    fn begin(&mut self, number: u32) {
        let shared = self.shared;
        let Some(mut job) = shared.begin_rewrite(number) else { return };
        let mut reads = Vec::new();
        if job.has_page || job.is_emptied {
            reads.push((JobPart::OldPage, shared.area_layout.first_set + number));
        }
        for &entry in &job.entries {
            let Entry::Object { page, .. } = entry else { continue };
            if job.log.iter().any(|&(known, _)| known == page) {
                continue;
            }
            let copy = self.tail.and_then(|tail| shared.copy_of_tail(tail, page)).or_else(|| shared.log.copy(page));
            if copy.is_none() {
                let header = shared.log.header(page).expect("an entry's segment is in use");
                reads.push((JobPart::Log(job.log.len()), header.number));
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

    fn submit(&self, direction: Direction, number: u32, part: JobPart, page: u32, buffer: Buffer) {
        let sender = self.sender.clone();
        let done = move |outcome| sender.send(TransferDone { number, part, outcome }).expect("the receiver waits");
        self.shared.submit(direction, page, buffer, done);
    }

    fn transfer_done(&mut self, TransferDone { number, part, outcome }: TransferDone) {
        let job = self.jobs.get_mut(&number).expect("it is on its way");
        let is_right = outcome.result.is_ok();
        let buffer = is_right.then_some(outcome.buffer);
        match part {
            JobPart::OldPage => job.old = buffer,
            JobPart::Log(at) => job.log[at].1 = buffer,
            JobPart::NewPage => {
                let job = self.jobs.remove(&number).expect("it is on its way");
                if !is_right {
                    Counters::one(&self.shared.counters.write_errors);
                }
                return self.shared.end_rewrite(&job, is_right);
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

    /// Composes, installs and writes the page, once all reads are complete.
    fn write(&mut self, number: u32) {
        let job = self.jobs.get_mut(&number).expect("it is on its way");
        self.shared.drop_wrong_pages(job);
        let (page, content) = self.shared.compose(job, self.now);
        job.content = content;
        if self.shared.install(job, &page) {
            self.submit(Direction::Write, number, JobPart::NewPage, self.shared.area_layout.first_set + number, page);
        } else {
            self.jobs.remove(&number);
        }
    }
}

impl SmallShared {
    /// Rewrites the pages of these sets, each once, with all of their objects in the log. Waits for the device.
    pub(super) fn rewrite_sets(&self, sets: &[u32], tail: Option<&Tail>, now: u32) {
        let (sender, receiver) = mpsc::channel();
        let mut rewrites = PageRewrites { shared: self, tail, now, jobs: HashMap::new(), sender };
        let mut sets = sets.iter();
        loop {
            while rewrites.jobs.len() < self.options.max_concurrent_rewrites
                && let Some(&set) = sets.next()
            {
                rewrites.begin(set);
            }
            if rewrites.jobs.is_empty() {
                return;
            }
            rewrites.transfer_done(receiver.recv().expect("a sender is here"));
        }
    }

    fn begin_rewrite(&self, number: u32) -> Option<RewriteJob> {
        let (mut group, set) = self.locked(number);
        // Read under the lock: a later removal has this moment or a later one, and a page that is newer than a flush
        // has no flushed object.
        let (log_clock, epoch) = self.log.log_clock_and_epoch();
        if group.epoch != epoch {
            group.clear(epoch);
        }
        let nothing = group.len(set) == 0 && !group.is_unclean(set);
        if nothing || group.pending_rewrite(set).is_some() {
            return None;
        }
        let set_layout = &self.area_layout.set_layout;
        let entries: Vec<Entry> = group.entries(set_layout, set).collect();
        let taken = entries.len() as u8;
        group.rewrites.push(PendingRewrite { set: set as u8, taken, image: None, invalidate: false });
        let has_page = group.objects(set) != 0;
        let is_emptied = !has_page && group.is_unclean(set);
        let hits = group.hits(set_layout, set).to_vec();
        let old_generation = group.generation(set);
        let generation = next_generation(old_generation);
        let (old, log, reads, content) = (None, Vec::new(), 0, PageContent::default());
        Some(RewriteJob {
            number,
            log_clock,
            generation,
            old_generation,
            entries,
            hits,
            has_page,
            is_emptied,
            old,
            log,
            reads,
            content,
        })
    }

    /// Drops pages with wrong bytes, as if they had not been read.
    fn drop_wrong_pages(&self, job: &mut RewriteJob) {
        let is_wrong = job.old.as_ref().is_some_and(|page| !self.is_old_page(job.number, job.old_generation, page));
        if is_wrong {
            job.old = None;
            // The page of an emptied set may be a torn one, or none.
            Counters::add(&self.counters.corrupt_pages, usize::from(job.has_page));
        }
        for (page, copy) in &mut job.log {
            if copy.take_if(|copy| !is_expected(copy, self.options.salt, self.log.header(*page))).is_some() {
                Counters::one(&self.counters.corrupt_pages);
            }
        }
    }

    fn is_old_page(&self, number: u32, generation: u8, page: &[u8]) -> bool {
        let expected = (self.area_layout.first_set + number, generation);
        page::open(page, self.options.salt).is_some_and(|header| (header.number, header.generation) == expected)
    }

    fn copy_of_tail(&self, tail: &Tail, page: u32) -> Option<Buffer> {
        let pages = self.log.log_layout.pages_per_segment;
        let bytes = tail.buffer.as_ref().filter(|_| page / pages == tail.segment)?;
        let mut copy = Buffer::zeroed(PAGE);
        copy.copy_from_slice(&bytes[(page % pages) as usize * PAGE..][..PAGE]);
        Some(copy)
    }

    /// Transfers pages by their numbers, all at once; `None` for each that failed.
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

    /// Submits a transfer of the page with this number. Waits until the device's queue has space.
    fn submit(
        &self,
        direction: Direction,
        number: u32,
        buffer: Buffer,
        done: impl FnOnce(TransferOutcome) + Send + 'static,
    ) {
        let mut request = TransferRequest { direction, offset: self.offset(number), buffer, done: Box::new(done) };
        while let Err(refused) = self.device.submit(request) {
            self.device.wait_for_slot();
            request = refused;
        }
    }

    fn compose(&self, job: &RewriteJob, now: u32) -> (Buffer, PageContent) {
        let mut page = Buffer::zeroed(PAGE);
        let writer = PageWriter::resume(&mut page, 0, 0);
        let above_share = self.options.pools.above_share_of_small();
        let mut composer = PageComposer {
            shared: self,
            number: job.number,
            now,
            writer,
            hashes: Vec::new(),
            space: usize::MAX,
            hidden: Vec::new(),
            hidden_tags: Vec::new(),
            above_share: &above_share,
            is_above: false,
        };
        let mut moved = composer.add_all(job);
        if !above_share.is_empty() {
            // Objects of pools above their share that do not fit beside the others are evicted.
            composer.hidden.clear();
            composer.hidden_tags.clear();
            composer.is_above = true;
            moved += composer.add_all(job);
        }
        let PageComposer { writer, hashes, .. } = composer;
        let end = writer.end();
        let number = self.area_layout.first_set + job.number;
        writer.seal(self.options.salt, PageHeader { number, log_clock: job.log_clock, generation: job.generation });
        let pools = page::pool_bytes(&page);
        (page, PageContent { hashes, end, moved, pools })
    }

    /// The record to which an entry with this tag refers: the last one of that tag in the page.
    pub(super) fn tagged(&self, number: u32, tag: u64, page: &[u8]) -> Option<(FlashHash, PageRecord)> {
        let set_layout = &self.area_layout.set_layout;
        let hashed = page::records(page).map(|record| (record.hash(page, &self.options.pools), record));
        hashed.filter(|&(hash, _)| set_layout.tag(hash) == tag && set_layout.set(hash) == number).last()
    }

    /// Makes the new page answer lookups. Returns whether it must be written.
    fn install(&self, job: &RewriteJob, page: &Buffer) -> bool {
        let mut image = Buffer::zeroed(PAGE);
        image.copy_from_slice(page);
        let (mut group, set) = self.locked(job.number);
        let pending = group.pending_rewrite(set).expect("it is under way");
        if pending.invalidate {
            forget_rewrite(&mut group, set);
            return false;
        }
        pending.image = Some(Arc::new(image));
        group.version = group.version.wrapping_add(1);
        true
    }

    fn end_rewrite(&self, job: &RewriteJob, written: bool) {
        let PageContent { hashes, end, moved, pools } = &job.content;
        let set_layout = &self.area_layout.set_layout;
        let (mut group, set) = self.locked(job.number);
        let (invalidate, taken) =
            group.pending_rewrite(set).map(|m| (m.invalidate, usize::from(m.taken))).expect("it is under way");
        forget_rewrite(&mut group, set);
        if written {
            Counters::one(&self.counters.pages_written);
            Counters::add(&self.counters.set_bytes_written, PAGE);
        }
        if written && !invalidate {
            group.remove_oldest(set_layout, set, taken);
            group.set_page(set_layout, set, job.generation, hashes, *end);
            group.set_unclean(set, false);
            Counters::add(&self.counters.moved, *moved);
            self.occupy(pools);
            job.old.iter().for_each(|old| self.reclaim_bytes(old));
            return;
        }
        if !invalidate {
            Counters::add(&self.counters.ended_failed, hashes.len());
            self.invalidate_failed(&mut group, set, job.number);
        }
        // The bytes on flash are not known, and the next page's generation must differ from theirs.
        group.set_generation(set, job.generation);
    }

    /// Empties a set whose page cannot be read or written.
    pub(super) fn invalidate_failed(&self, group: &mut SetGroup, set: usize, number: u32) {
        Counters::one(&self.counters.voided_by_failure);
        group.invalidate(&self.area_layout.set_layout, set);
        self.enqueue(group, number);
    }

    /// The sets of a group that must be rewritten.
    pub(super) fn sets_to_clean(&self, index: u32) -> Vec<u32> {
        let set_layout = &self.area_layout.set_layout;
        let first = index * SETS as u32;
        let (mut group, _) = self.locked(first);
        group.queued = false;
        let present = SETS.min((set_layout.sets - first) as usize);
        let tombstones =
            |set| group.entries(set_layout, set).filter(|entry| matches!(entry, Entry::Tombstone { .. })).count();
        let max_tombstones = usize::from(self.options.tombstones_per_group) / 4;
        let max_tombstones = if group.tombstones() > 2 * max_tombstones { max_tombstones } else { usize::MAX };
        let sets = super::rewrite_choice::choose_cleanup(
            (0..present).map(|set| (tombstones(set), group.is_unclean(set))),
            max_tombstones,
        );
        sets.into_iter().map(|set| first + set as u32).collect()
    }

    /// Removes the entry of an evicted object of the log. If the set's page may hold an older version, a tombstone
    /// hides it.
    pub(super) fn remove_entry(&self, hash: FlashHash, page: u32) {
        let set_layout = &self.area_layout.set_layout;
        let (mut group, set) = self.locked(set_layout.set(hash));
        let Some(index) = self.entry_at(&group, set, hash, page) else {
            return;
        };
        if !group.may_hold(set_layout, set, hash) {
            group.remove(set_layout, set, index);
        } else if group.tombstones() < usize::from(self.options.tombstones_per_group) {
            group.replace(set_layout, set, index, Entry::Tombstone { mark: set_layout.mark(hash) });
        } else {
            Counters::one(&self.counters.voided_by_tombstones);
            group.invalidate(set_layout, set);
            self.enqueue(&mut group, set_layout.set(hash));
        }
    }

    /// The index of the entry of this page with this hash's tag.
    pub(super) fn entry_at(&self, group: &SetGroup, set: usize, hash: FlashHash, page: u32) -> Option<usize> {
        let set_layout = &self.area_layout.set_layout;
        let wanted = (page, set_layout.tag(hash));
        group
            .entries(set_layout, set)
            .position(|entry| matches!(entry, Entry::Object { page, tag, .. } if (page, tag) == wanted))
    }
}

fn forget_rewrite(group: &mut SetGroup, set: usize) {
    group.rewrites.retain(|m| usize::from(m.set) != set);
    if group.rewrites.is_empty() {
        group.rewrites = Vec::new();
    }
    group.version = group.version.wrapping_add(1);
}

impl PageComposer<'_> {
    /// Adds the objects of the log and the old page, of pools within their share or of those above. Returns the number
    /// of objects from the log.
    fn add_all(&mut self, job: &RewriteJob) -> usize {
        let before = self.hashes.len();
        for &entry in job.entries.iter().rev() {
            match entry {
                Entry::Tombstone { mark } => self.hidden.push(mark),
                Entry::Object { page, tag, .. } => {
                    let (_, bytes) = job.log.iter().find(|&&(known, _)| known == page).expect("it was asked for");
                    self.add_from_log(bytes.as_deref(), tag);
                }
            }
        }
        let moved = self.hashes.len() - before;
        if let Some(old) = job.old.as_ref().filter(|_| job.has_page) {
            if self.shared.is_short_of_memory() {
                self.space = page::records(old).count() * 3 / 4;
            }
            let is_hit =
                |position: usize| job.hits.get(position / 8).is_some_and(|byte| byte & 1 << (position % 8) != 0);
            for wanted in [true, false] {
                let chosen = page::records(old).enumerate().filter(|&(position, _)| is_hit(position) == wanted);
                chosen.for_each(|(_, record)| self.add(old, &record));
            }
        }
        moved
    }

    fn add_from_log(&mut self, page: Option<&[u8]>, tag: u64) {
        let Some(bytes) = page else {
            self.hidden_tags.push(tag);
            if !self.is_above {
                Counters::one(&self.shared.counters.ended_failed);
            }
            return;
        };
        if let Some((_, record)) = self.shared.tagged(self.number, tag, bytes) {
            self.add(bytes, &record);
        }
    }

    fn add(&mut self, bytes: &[u8], record: &PageRecord) {
        // Lookups find no object of an ended incarnation.
        let is_live = self.shared.options.pools.is_live(record.pool);
        if !is_live || self.above_share.contains(&record.pool) != self.is_above {
            return;
        }
        let set_layout = &self.shared.area_layout.set_layout;
        let hash = record.hash(bytes, &self.shared.options.pools);
        let (mark, tag) = (set_layout.mark(hash), set_layout.tag(hash));
        if self.hashes.contains(&hash) || self.hidden.contains(&mark) || self.hidden_tags.contains(&tag) {
            return;
        }
        if has_expired(record.expiry, self.now) {
            Counters::one(&self.shared.counters.ended_expired);
            self.hidden.push(mark);
        } else if self.hashes.len() >= self.space {
            Counters::one(&self.shared.counters.ended_for_memory);
            self.hidden.push(mark);
        } else if self.writer.push_record(&bytes[record.range.clone()]) {
            self.hashes.push(hash);
        } else {
            Counters::one(&self.shared.counters.ended_evicted);
            self.hidden.push(mark);
            if self.is_above {
                self.shared.options.pools.note_left_page(record.pool);
            }
        }
    }
}
