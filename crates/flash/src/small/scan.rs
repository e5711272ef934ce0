//! A walk over all sets, each visited once: a set's objects in its page and in the log are visited together.
//!
//! ```text
//! note what RAM has of some sets | group's lock, each
//! read their pages               | no lock, one read
//! of each set: read its log pages, tell what a lookup would find of each key; still as noted? --> visit
//! ```
//! A key never leaves its set. An object that moves, between the log and the page or in the log, changes the set's
//! state in RAM. This state is compared with the snapshot under the group's lock right before each visit. After a
//! change the snapshot and the pages are read again, and objects that were visited are not visited again.

use super::log::is_expected;
use super::page::{self, PAGE, PageHeader, PageRecord};
use super::set_group::{Entry, SetGroup};
use super::stats::Counters;
use super::{SmallShared, SmallStore, is_page_token, page_token};
use crate::device::{self, Buffer};
use crate::object::{FlashHash, Key, ScannedObject, Token, Unread, has_expired};
use std::ops::Range;
use std::sync::Arc;

/// Pages that are read at once: 256 KiB.
const SETS_AT_ONCE: u32 = 64;
/// Maximum number of snapshots of a set that changes repeatedly, before it is skipped.
const TRIES: u32 = 32;

/// The state in RAM of a set.
struct SetSnapshot {
    epoch: u32,
    repeats: u32,
    /// Token of the page.
    token: Token,
    objects: u8,
    image: Option<Arc<Buffer>>,
    entries: Vec<Entry>,
    /// The expected headers of the entries' pages.
    headers: Vec<Option<PageHeader>>,
}

/// The set's page, and that of each of its entries.
struct SetPages {
    /// `None` where it cannot be read.
    pages: Vec<Option<Buffer>>,
    /// How many have other bytes than expected.
    damaged: usize,
    /// How many the device has not read.
    failed: usize,
}

/// The request of the caller of a walk.
struct SetVisitor<'a> {
    unread: Unread,
    now: u32,
    visit: &'a mut dyn FnMut(ScannedObject<'_>),
}

/// An object in one of a set's pages.
struct ScanCandidate {
    hash: FlashHash,
    page: usize,
    record: PageRecord,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Liveness {
    Current,
    /// Overwritten or removed.
    Gone,
    /// Not known: the set has changed.
    Changed,
}

impl SmallStore {
    /// Number of sets of the walk.
    pub(crate) fn sets(&self) -> u32 {
        self.shared.area_layout.set_layout.sets
    }

    /// Visits the objects of some sets from this one on. Returns the set with which to continue, if there are more.
    /// Waits for the device.
    pub(crate) fn advance_scan(
        &self,
        from: u32,
        unread: Unread,
        now: u32,
        visit: &mut dyn FnMut(ScannedObject<'_>),
    ) -> Option<u32> {
        let end = self.sets().min(from.saturating_add(SETS_AT_ONCE));
        self.shared.visit_sets(from..end, &mut SetVisitor { unread, now, visit });
        (end < self.sets()).then_some(end)
    }
}

impl SmallShared {
    fn visit_sets(&self, sets: Range<u32>, visitor: &mut SetVisitor<'_>) {
        let mut noted: Vec<Option<SetSnapshot>> = sets.clone().map(|number| self.note(number)).collect();
        let is_read = |noted: &Option<SetSnapshot>| noted.as_ref().is_some_and(SetSnapshot::needs_page);
        let pages = noted.iter().position(is_read).zip(noted.iter().rposition(is_read));
        let first = pages.map_or(0, |(first, _)| first);
        let read = pages.and_then(|(first, last)| self.read_pages(sets.start + first as u32, last - first + 1));
        for (index, number) in sets.enumerate() {
            let Some(noted) = noted[index].take() else { continue };
            let page = match &read {
                _ if !noted.needs_page() => None,
                Some(read) => Some(copy_of(&read[(index - first) * PAGE..])),
                // Of the pages that were read at once only some may be unreadable.
                None if visitor.unread == Unread::GivenUp => self.read_pages(number, 1),
                None => None,
            };
            self.visit_set(number, noted, page, visitor);
        }
    }

    /// The state in RAM of a set; `None` if it has no objects.
    fn note(&self, number: u32) -> Option<SetSnapshot> {
        let set_layout = &self.area_layout.set_layout;
        let (group, set) = self.locked(number);
        let (objects, image) = (group.objects(set), group.image(set));
        if objects == 0 && group.len(set) == 0 {
            return None;
        }
        let entries: Vec<Entry> = group.entries(set_layout, set).map(without_hit).collect();
        let header = |entry: &Entry| match *entry {
            Entry::Object { page, .. } => self.log.header(page),
            Entry::Tombstone { .. } => None,
        };
        let headers = entries.iter().map(header).collect();
        let token = page_token(&group, set);
        Some(SetSnapshot { epoch: group.epoch, repeats: group.repeats, token, objects, image, entries, headers })
    }

    fn read_pages(&self, number: u32, count: usize) -> Option<Buffer> {
        self.read(self.area_layout.first_set + number, count)
    }

    /// Reads pages, by the number of the first one.
    fn read(&self, number: u32, count: usize) -> Option<Buffer> {
        let read = device::read(&*self.device, self.offset(number), Buffer::zeroed(count * PAGE));
        if read.is_err() {
            Counters::one(&self.counters.read_errors);
        }
        read.ok()
    }

    fn visit_set(&self, number: u32, mut noted: SetSnapshot, mut page: Option<Buffer>, visitor: &mut SetVisitor<'_>) {
        let mut visited: Vec<FlashHash> = Vec::new();
        for _ in 0..TRIES {
            let SetPages { pages, damaged, failed } = self.pages_of(number, &noted, page);
            let mut changed = false;
            for ScanCandidate { hash, page, record } in self.candidates_of(number, &noted, &pages) {
                if visited.contains(&hash) || has_expired(record.expiry, visitor.now) {
                    continue;
                }
                match self.still(number, &noted, hash, page == 0) {
                    Liveness::Current => {}
                    Liveness::Gone => continue,
                    Liveness::Changed => {
                        changed = true;
                        break;
                    }
                }
                visited.push(hash);
                let bytes = pages[page].as_ref().expect("a candidate lies in it");
                let key = Key { bytes: &bytes[record.key.clone()], hash, pool: record.pool };
                let PageRecord { value, client_flags, is_annotated, expiry, .. } = record;
                let (value, value_bytes) = (&bytes[value.clone()], value.len() as u64);
                let value = Some(value);
                (visitor.visit)(ScannedObject { key, value, value_bytes, client_flags, is_annotated, expiry });
            }
            // A page that was being written may be torn.
            changed |= damaged > 0 && !self.is_as(number, &noted);
            let is_left = damaged + failed > 0 && visitor.unread == Unread::GivenUp;
            if !changed && (!is_left || self.give_up(number, &noted)) {
                Counters::add(&self.counters.corrupt_pages, damaged);
                return;
            }
            let Some(again) = self.note(number) else { return };
            noted = again;
            page = if noted.needs_page() { self.read_pages(number, 1) } else { None };
        }
        Counters::one(&self.counters.scans_contended);
    }

    /// Empties a set as it was noted. False if it has changed.
    fn give_up(&self, number: u32, noted: &SetSnapshot) -> bool {
        let (mut group, set) = self.locked(number);
        let is_same = self.fits(&group, set, noted);
        if is_same {
            self.invalidate_failed(&mut group, set, number);
        }
        is_same
    }

    fn pages_of(&self, number: u32, noted: &SetSnapshot, page: Option<Buffer>) -> SetPages {
        let (salt, mut damaged) = (self.options.salt, 0);
        let mut failed = usize::from(noted.needs_page() && page.is_none());
        let page = match &noted.image {
            Some(image) => Some(copy_of(image)),
            None => page.filter(|page| {
                let expected = (self.area_layout.first_set + number, (noted.token.0 >> 32) as u8);
                let header = page::open(page, salt);
                let fits = header.is_some_and(|header| (header.number, header.generation) == expected);
                damaged += usize::from(!fits);
                fits
            }),
        };
        let mut pages = vec![page.filter(|_| noted.objects > 0)];
        for (entry, &header) in noted.entries.iter().zip(&noted.headers) {
            let (&Entry::Object { page, .. }, Some(expected)) = (entry, header) else {
                pages.push(None);
                continue;
            };
            let copy = self.log.copy(page).or_else(|| self.read(expected.number, 1));
            failed += usize::from(copy.is_none());
            let copy = copy.filter(|copy| {
                let fits = is_expected(copy, salt, header);
                damaged += usize::from(!fits);
                fits
            });
            pages.push(copy);
        }
        SetPages { pages, damaged, failed }
    }

    /// The record that a lookup would find for each key of a set. Page 0 is the set's, the others are those of the
    /// entries.
    fn candidates_of(&self, number: u32, noted: &SetSnapshot, pages: &[Option<Buffer>]) -> Vec<ScanCandidate> {
        let set_layout = &self.area_layout.set_layout;
        let (mut found, mut marks, mut tags): (Vec<ScanCandidate>, Vec<u64>, Vec<u64>) = Default::default();
        for (index, entry) in noted.entries.iter().enumerate().rev() {
            let tag = match *entry {
                Entry::Tombstone { mark } => {
                    marks.push(mark);
                    continue;
                }
                Entry::Object { tag, .. } => tag,
            };
            let Some(bytes) = &pages[index + 1] else {
                // It may be the newest of any key with this tag.
                tags.push(tag);
                continue;
            };
            let Some((hash, record)) = self.tagged(number, tag, bytes) else { continue };
            let is_hidden = tags.contains(&tag) || marks.contains(&set_layout.mark(hash));
            if !is_hidden && found.iter().all(|other| other.hash != hash) {
                found.push(ScanCandidate { hash, page: index + 1, record });
            }
        }
        let Some(bytes) = &pages[0] else { return found };
        let logged = found.len();
        for record in page::records(bytes) {
            let hash = record.hash(bytes, &self.options.pools);
            let is_hidden = tags.contains(&set_layout.tag(hash)) || marks.contains(&set_layout.mark(hash));
            if !is_hidden && found[..logged].iter().all(|other| other.hash != hash) {
                found.push(ScanCandidate { hash, page: 0, record });
            }
        }
        found
    }

    /// Whether the state of a set equals the snapshot, except for new entries.
    fn is_as(&self, number: u32, noted: &SetSnapshot) -> bool {
        let (group, set) = self.locked(number);
        self.fits(&group, set, noted)
    }

    fn fits(&self, group: &SetGroup, set: usize, noted: &SetSnapshot) -> bool {
        let set_layout = &self.area_layout.set_layout;
        let image = group.image(set);
        let is_same_page = match (&image, &noted.image) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (None, None) => is_page_token(group, set, noted.token) && group.objects(set) == noted.objects,
            _ => false,
        };
        let is_same_log = noted.entries.iter().zip(&noted.headers).all(|(entry, header)| match *entry {
            Entry::Object { page, .. } => self.log.header(page) == *header,
            Entry::Tombstone { .. } => true,
        });
        let is_prefix = group.len(set) >= noted.entries.len()
            && group.entries(set_layout, set).map(without_hit).zip(&noted.entries).all(|(now, then)| now == *then);
        (group.epoch, group.repeats) == (noted.epoch, noted.repeats) && is_same_page && is_same_log && is_prefix
    }

    /// Whether a lookup would now find the object that was found with the snapshot.
    fn still(&self, number: u32, noted: &SetSnapshot, hash: FlashHash, is_in_page: bool) -> Liveness {
        let set_layout = &self.area_layout.set_layout;
        let (group, set) = self.locked(number);
        if !self.fits(&group, set, noted) {
            return Liveness::Changed;
        }
        if is_in_page && noted.image.is_none() && !group.may_hold(set_layout, set, hash) {
            return Liveness::Gone;
        }
        for entry in group.entries(set_layout, set).skip(noted.entries.len()) {
            match entry {
                Entry::Tombstone { mark } if mark == set_layout.mark(hash) => return Liveness::Gone,
                // Maybe a newer version, maybe another key.
                Entry::Object { tag, .. } if tag == set_layout.tag(hash) => return Liveness::Changed,
                _ => {}
            }
        }
        Liveness::Current
    }
}

impl SetSnapshot {
    /// Whether the set's page must be read.
    fn needs_page(&self) -> bool {
        self.objects > 0 && self.image.is_none()
    }
}

fn without_hit(entry: Entry) -> Entry {
    match entry {
        Entry::Object { page, tag, .. } => Entry::Object { page, hit: false, tag },
        tombstone @ Entry::Tombstone { .. } => tombstone,
    }
}

/// The first page of these bytes.
fn copy_of(bytes: &[u8]) -> Buffer {
    let mut copy = Buffer::zeroed(PAGE);
    copy.copy_from_slice(&bytes[..PAGE]);
    copy
}
