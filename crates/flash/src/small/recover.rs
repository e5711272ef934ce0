//! Recovery after a restart: the state in RAM, from all pages on flash.
//!
//! A recovery finds the objects that were in the store, without those that the caller reports as removed. No evicted
//! object is found again:
//! - a set's page has the objects of its rewrite, without those removed at its order or later;
//! - an object of the log is found if its page is newer than its set's page: otherwise it is in that page, or was
//!   evicted;
//! - objects of the log from before the newest mark are ignored, and all objects of the log if one of the marks is
//!   damaged.
//!
//! Before it answers, the caller logs each [`SmallStore::remove`] that returns true: the hash, with
//! [`SmallStore::next_order`] read afterwards. It keeps that order of the last flush without limit. An insert of
//! another value than the one on flash follows a removal. This holds for completed writes; after a power cut without a
//! sync the store starts empty.
//!
//! A page that cannot be read now might be readable after the next restart, when the removals of its objects are no
//! longer logged. So it is overwritten: a set's page by maintenance, and until then each removal from the set returns
//! true; a page of the log at once, and if that fails there is no recovery.

use super::options::MARKS;
use super::page::{self, PAGE, PageHeader};
use super::set_group::Entry;
use super::{Options, SmallShared, SmallStore};
use crate::Error;
use crate::device::{self, Buffer, Device, Direction};
use crate::object::{FlashHash, has_expired};
use crate::recovery::RecoveryInput;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Number of pages of a read. `READS`: number of concurrent reads.
const PAGES: u32 = 64;
const READS: usize = 8;

/// The result of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    pub objects: u64,
    /// Pages that could not be read, or were damaged.
    pub pages_damaged: u64,
    /// Objects on flash that were removed.
    pub objects_gone: u64,
}

/// The result of reading a page.
enum PageRead<'a> {
    Blank,
    Damaged,
    Whole(PageHeader, &'a [u8]),
}

/// An object of the log.
struct LoggedObject {
    log_clock: u64,
    page: u32,
    hash: FlashHash,
    expired: bool,
}

struct RecoveryScan<'a> {
    shared: &'a SmallShared,
    now: u32,
    flushed: u64,
    deletions: HashMap<(u32, u64), u64>,
    /// The moment of each set's page.
    log_clocks: Vec<u64>,
    latest: u64,
    recovered: Recovered,
}

impl SmallStore {
    /// Resumes the store from its checkpoint, in the same area, with the same options. `None` if there is no valid
    /// checkpoint. A checkpoint is valid for one start.
    ///
    /// # Errors
    ///
    /// As [`SmallStore::recover`].
    pub fn resume(
        device: Arc<dyn Device>,
        area: Range<u64>,
        options: Options,
        known: &RecoveryInput,
    ) -> Result<Option<Self>, Error> {
        let Some(checkpoint) = &known.checkpoint else { return Ok(None) };
        let store = Self::new(Arc::clone(&device), area, options)?;
        let loaded = store.shared.load(checkpoint);
        device::write(&*device, checkpoint.start, Buffer::zeroed(PAGE))?;
        device.sync()?;
        Ok(loaded.map(|log_clock| {
            store.forget_rewrite(known, log_clock);
            store
        }))
    }

    /// Recovers the store in the same area, with the same options. Reads the whole area.
    ///
    /// # Errors
    ///
    /// As [`SmallStore::new`]; and [`Error::Transfer`] when a page that must not be found again cannot be overwritten.
    /// Then only a start with another salt is safe.
    pub fn recover(
        device: Arc<dyn Device>,
        area: Range<u64>,
        options: Options,
        known: &RecoveryInput,
        now: u32,
    ) -> Result<(Self, Recovered), Error> {
        let store = Self::new(device, area, options)?;
        let set_layout = &store.shared.area_layout.set_layout;
        let mut deletions = HashMap::new();
        for removal in &known.deletions {
            let order: &mut u64 =
                deletions.entry((set_layout.set(removal.hash), set_layout.mark(removal.hash))).or_default();
            *order = removal.order.max(*order);
        }
        let latest = deletions.values().copied().max().unwrap_or(0).max(known.flushed);
        let log_clocks = vec![0; set_layout.sets as usize];
        let recovered = Recovered::default();
        let mut scan = RecoveryScan {
            shared: &store.shared,
            now,
            flushed: known.flushed,
            deletions,
            log_clocks,
            latest,
            recovered,
        };
        scan.sets();
        scan.log()?;
        let mut recovered = scan.recovered;
        recovered.objects = store.stats().objects();
        Ok((store, recovered))
    }

    /// Removes all objects that were removed after a checkpoint of this moment.
    fn forget_rewrite(&self, known: &RecoveryInput, log_clock: u64) {
        if known.flushed > log_clock {
            self.flush();
        }
        known
            .deletions
            .iter()
            .filter(|removal| removal.order > log_clock)
            .for_each(|removal| _ = self.remove(removal.hash));
    }

    /// Erases the marks of an earlier life, for a new store that a recovery must find. Waits for the device.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`]: the error of the device.
    pub fn erase_marks(&self) -> Result<(), Error> {
        let shared = &self.shared;
        let marks = shared.log.log_layout.first_block.map_or(0, |_| MARKS);
        (0..marks)
            .try_for_each(|mark| device::write(&*shared.device, shared.offset(mark), Buffer::zeroed(PAGE)).map(drop))
    }

    /// An order higher than that of every object on flash, for the record of a removal; read after the removal.
    pub fn next_order(&self) -> u64 {
        self.shared.log.log_clock() + 1
    }
}

impl RecoveryScan<'_> {
    /// Calls `each` with pages, by their number.
    fn pages(&mut self, numbers: Range<u32>, mut each: impl FnMut(&mut Self, u32, PageRead<'_>)) {
        let starts: Vec<u32> = numbers.clone().step_by(PAGES as usize).collect();
        for window in starts.chunks(READS) {
            let bytes = |&start: &u32| (numbers.end - start).min(PAGES) as usize * PAGE;
            let reads = window.iter().map(|start| (Direction::Read, *start, Buffer::zeroed(bytes(start))));
            let read = self.shared.transfer(reads.collect());
            for (&start, buffer) in window.iter().zip(read) {
                match buffer {
                    Some(buffer) => {
                        let pages = buffer.chunks_exact(PAGE).zip(start..);
                        pages.for_each(|(bytes, number)| self.see(number, Some(bytes), &mut each));
                    }
                    None => (start..numbers.end.min(start + PAGES)).for_each(|number| {
                        let one = self.shared.transfer(vec![(Direction::Read, number, Buffer::zeroed(PAGE))]).remove(0);
                        self.see(number, one.as_deref(), &mut each);
                    }),
                }
            }
        }
    }

    fn see(&mut self, number: u32, bytes: Option<&[u8]>, each: &mut impl FnMut(&mut Self, u32, PageRead<'_>)) {
        let seen = match bytes {
            Some(bytes) => match page::open(bytes, self.shared.options.salt) {
                Some(header) if header.number == number => PageRead::Whole(header, bytes),
                _ if bytes.iter().all(|&byte| byte == 0) => PageRead::Blank,
                _ => PageRead::Damaged,
            },
            None => PageRead::Damaged,
        };
        match seen {
            PageRead::Damaged => self.recovered.pages_damaged += 1,
            PageRead::Whole(header, _) => self.latest = self.latest.max(header.log_clock),
            PageRead::Blank => {}
        }
        each(self, number, seen);
    }

    fn sets(&mut self) {
        let first = self.shared.area_layout.first_set;
        let sets = self.shared.area_layout.set_layout.sets;
        self.pages(first..first + sets, |scan, number, seen| scan.set(number - first, seen));
    }

    fn set(&mut self, number: u32, seen: PageRead<'_>) {
        let (shared, set_layout) = (self.shared, &self.shared.area_layout.set_layout);
        let (mut group, set) = shared.locked(number);
        match seen {
            PageRead::Blank => {}
            PageRead::Damaged => {
                // The page may have newer versions of the set's objects in the log, so these are ignored.
                self.log_clocks[number as usize] = u64::MAX;
                group.set_unclean(set, true);
                shared.enqueue(&mut group, number);
            }
            PageRead::Whole(header, _) if header.log_clock < self.flushed => {
                group.set_generation(set, header.generation)
            }
            PageRead::Whole(header, bytes) => {
                self.log_clocks[number as usize] = header.log_clock;
                let pools = &shared.options.pools;
                let hashes: Vec<FlashHash> = page::records(bytes).map(|record| record.hash(bytes, pools)).collect();
                shared.occupy(&page::pool_bytes(bytes));
                let end = page::records(bytes).map(|record| record.range.end).last().unwrap_or(0);
                group.set_page(set_layout, set, header.generation, &hashes, end);
                for hash in hashes {
                    if self.is_deleted(number, hash, header.log_clock) {
                        self.recovered.objects_gone += 1;
                        shared.remove(&mut group, set, hash);
                    }
                }
            }
        }
    }

    fn is_deleted(&self, number: u32, hash: FlashHash, log_clock: u64) -> bool {
        let removed = self.deletions.get(&(number, self.shared.area_layout.set_layout.mark(hash)));
        log_clock < self.flushed || removed.is_some_and(|&order| log_clock < order)
    }

    fn log(&mut self) -> Result<(), Error> {
        let log_layout = self.shared.log.log_layout;
        let skipped = u64::from(log_layout.pages_per_segment) * (log_layout.buffers as u64 + 2);
        let Some(first) = log_layout.first_block else {
            self.shared.log.restore(&[], self.latest + skipped);
            return Ok(());
        };
        let (mut oldest, mut newest_mark, mut is_certain) = (0, 0, true);
        self.pages(0..first, |_, number, seen| match seen {
            PageRead::Whole(header, _) if header.log_clock > oldest => {
                (oldest, newest_mark) = (header.log_clock, number)
            }
            PageRead::Damaged => is_certain = false,
            _ => {}
        });
        // The damaged mark may have been the newer one.
        let oldest = if is_certain { oldest } else { u64::MAX };
        self.shared.maintenance.lock().expect("nobody else has the store").mark = (newest_mark + 1) % MARKS;
        let mut firsts = vec![0; log_layout.segments as usize];
        let (mut objects, mut damaged) = (Vec::new(), Vec::new());
        let pages = log_layout.pages_per_segment;
        self.pages(first..first + log_layout.segments * pages, |scan, number, seen| match seen {
            PageRead::Blank => {}
            PageRead::Damaged => damaged.push(number),
            PageRead::Whole(header, bytes) => {
                let page = number - first;
                let started = header.log_clock.saturating_sub(u64::from(page % pages));
                if started >= oldest.max(1) {
                    let segment = &mut firsts[(page / pages) as usize];
                    *segment = started.max(*segment);
                    scan.logged(page, header.log_clock, bytes, &mut objects);
                }
            }
        });
        for number in damaged {
            device::write(&*self.shared.device, self.shared.offset(number), Buffer::zeroed(PAGE))?;
        }
        let segments: Vec<(u32, u64)> =
            (0..).zip(firsts.iter().copied()).filter(|&(_, started)| started != 0).collect();
        self.shared.log.restore(&segments, self.latest + skipped);
        if !is_certain {
            for mark in 0..MARKS {
                let page = self.shared.mark(mark, self.shared.log.log_clock() + 1);
                device::write(&*self.shared.device, self.shared.offset(mark), page)?;
            }
        }
        // Objects in pages of an earlier life of a segment were evicted or moved.
        objects.retain(|object| {
            self.shared.log.header(object.page).is_some_and(|header| header.log_clock == object.log_clock)
        });
        objects.sort_by_key(|object| object.log_clock);
        objects.iter().for_each(|object| self.restore(object));
        Ok(())
    }

    fn logged(&self, page: u32, log_clock: u64, bytes: &[u8], objects: &mut Vec<LoggedObject>) {
        let set_layout = &self.shared.area_layout.set_layout;
        self.shared.occupy(&page::pool_bytes(bytes));
        for record in page::records(bytes) {
            let hash = record.hash(bytes, &self.shared.options.pools);
            let number = set_layout.set(hash);
            let last = self.shared.tagged(number, set_layout.tag(hash), bytes);
            if log_clock > self.log_clocks[number as usize] && last.is_some_and(|(_, last)| last == record) {
                objects.push(LoggedObject { log_clock, page, hash, expired: has_expired(record.expiry, self.now) });
            }
        }
    }

    fn restore(&mut self, object: &LoggedObject) {
        let (shared, set_layout) = (self.shared, &self.shared.area_layout.set_layout);
        let number = set_layout.set(object.hash);
        let (mut group, set) = shared.locked(number);
        let deletions = self.is_deleted(number, object.hash, object.log_clock);
        self.recovered.objects_gone += u64::from(deletions);
        if object.log_clock < self.flushed {
            return;
        }
        // A tombstone is added even if it hides no entry in RAM: it lets the caller drop its record of the removal.
        let entry = if deletions || object.expired {
            Entry::Tombstone { mark: set_layout.mark(object.hash) }
        } else {
            Entry::Object { page: object.page, hit: false, tag: set_layout.tag(object.hash) }
        };
        let space = entry.is_object() || group.tombstones() < usize::from(shared.options.tombstones_per_group);
        if !space || !group.push(set_layout, set, entry) {
            shared.invalidate_failed(&mut group, set, number);
        }
    }
}
