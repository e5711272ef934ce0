//! Lookups: the state in RAM decides which page to read. The read is used only if that state is unchanged afterwards.
//!
//! ```text
//! newest entry or page --> copy in RAM, or read --> still the newest, same version of the group? --> key? --> answer
//!        ^                                                       | no                              | no
//!        +-------------------------------------------------------+------ another key's: go on -----+
//! ```
//! A changed version means that entries were removed or a page was written since: then the lookup starts again. A new
//! entry or tombstone is newer than the page that was read, and the second check finds it.

use super::log::is_expected;
use super::page::{self, PAGE, PageHeader, PageRecord};
use super::set_group::SetGroup;
use super::stats::Counters;
use super::{Newest, SmallShared, SmallStore, page_token};
use crate::device::{Buffer, Direction, TransferOutcome, TransferRequest};
use crate::object::{FlashHash, FlashHit, FlashLookup, Key, OnLookup, Token, has_expired};
use std::io;
use std::sync::Arc;

/// Maximum number of times that a lookup starts again, before it is a miss.
const TRIES: u8 = 8;

/// A page, and its expected header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageSource {
    Log { page: u32, header: PageHeader },
    Page { number: u32, generation: u8 },
}

impl PageSource {
    fn number(self) -> u32 {
        match self {
            Self::Log { header, .. } => header.number,
            Self::Page { number, .. } => number,
        }
    }

    fn is_valid(self, bytes: &[u8], salt: u64) -> bool {
        match self {
            Self::Log { header, .. } => is_expected(bytes, salt, Some(header)),
            Self::Page { number, generation } => {
                page::open(bytes, salt).is_some_and(|header| (header.number, header.generation) == (number, generation))
            }
        }
    }
}

enum FetchedPage {
    Whole(Buffer),
    Corrupt,
    Failed,
}

enum LookupStep {
    Answer(Option<FlashHit>),
    Read(PageSource),
}

struct SmallLookup {
    shared: Arc<SmallShared>,
    key: Box<[u8]>,
    hash: FlashHash,
    pool: u16,
    now: u32,
    /// The group's version when the page to read was chosen.
    version: u32,
    /// Pages of the log in which another key has the same tag, as of that version.
    foreign: Vec<u32>,
    tries: u8,
    read: bool,
}

fn begin(shared: &Arc<SmallShared>, key: Key<'_>, now: u32, done: OnLookup) -> FlashLookup {
    Counters::one(&shared.counters.lookups);
    let (group, set) = shared.locked(shared.area_layout.set_layout.set(key.hash));
    if shared.newest(&group, set, key.hash, &[]) == Newest::Nothing {
        return FlashLookup::Absent;
    }
    let version = group.version;
    drop(group);
    let (shared, Key { bytes, hash, pool }) = (Arc::clone(shared), key);
    let key = bytes.into();
    let mut lookup = SmallLookup { shared, key, hash, pool, now, version, foreign: Vec::new(), tries: 0, read: false };
    match lookup.advance(None) {
        LookupStep::Answer(Some(found)) => FlashLookup::Found(found),
        LookupStep::Answer(None) => FlashLookup::Absent,
        LookupStep::Read(source) => {
            let shared = Arc::clone(&lookup.shared);
            match shared.device.submit_local(lookup.request(source, done)) {
                Ok(()) => FlashLookup::Reading,
                Err(_) => {
                    Counters::one(&shared.counters.lookups_refused);
                    FlashLookup::Absent
                }
            }
        }
    }
}

impl SmallStore {
    /// Looks a key up. If flash must be read, `done` is called when the read is complete, possibly before this returns;
    /// otherwise never.
    pub fn lookup(&self, key: Key<'_>, now: u32, done: OnLookup) -> FlashLookup {
        begin(&self.shared, key, now, done)
    }
}

impl SmallLookup {
    fn request(mut self, source: PageSource, done: OnLookup) -> TransferRequest {
        if !self.read {
            self.read = true;
            Counters::one(&self.shared.counters.lookups_read);
        }
        let offset = self.shared.offset(source.number());
        let done = Box::new(move |outcome: TransferOutcome| self.arrived(source, outcome, done));
        TransferRequest { direction: Direction::Read, offset, buffer: Buffer::zeroed(PAGE), done }
    }

    fn arrived(mut self, source: PageSource, outcome: TransferOutcome, done: OnLookup) {
        let fetched = match outcome.result {
            Ok(()) if source.is_valid(&outcome.buffer, self.shared.options.salt) => FetchedPage::Whole(outcome.buffer),
            Ok(()) => FetchedPage::Corrupt,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Counters::one(&self.shared.counters.lookups_refused);
                return done(None);
            }
            Err(_) => FetchedPage::Failed,
        };
        match self.advance(Some((source, fetched))) {
            LookupStep::Answer(answer) => {
                if answer.is_none() {
                    Counters::one(&self.shared.counters.lookups_read_for_nothing);
                }
                done(answer);
            }
            LookupStep::Read(source) => {
                let shared = Arc::clone(&self.shared);
                if let Err(request) = shared.device.submit_local(self.request(source, done)) {
                    request.finish(Err(io::ErrorKind::WouldBlock.into()));
                }
            }
        }
    }

    fn advance(&mut self, mut fetched: Option<(PageSource, FetchedPage)>) -> LookupStep {
        let shared = Arc::clone(&self.shared);
        let number = shared.area_layout.set_layout.set(self.hash);
        loop {
            let (mut group, set) = shared.locked(number);
            if group.version != self.version {
                self.version = group.version;
                self.foreign.clear();
                fetched = None;
                self.tries += 1;
                if self.tries > TRIES {
                    Counters::one(&shared.counters.lookups_contended);
                    return LookupStep::Answer(None);
                }
            }
            let newest = shared.newest(&group, set, self.hash, &self.foreign);
            let source = match newest {
                Newest::Nothing => return LookupStep::Answer(None),
                Newest::Log { page, .. } => {
                    let header = shared.log.header(page).expect("an entry's segment is in use");
                    PageSource::Log { page, header }
                }
                Newest::Page => PageSource::Page {
                    number: shared.area_layout.first_set + number,
                    generation: group.generation(set),
                },
            };
            match fetched.take() {
                Some((from, bytes)) if from == source => match self.validate(&mut group, set, newest, bytes) {
                    Some(answer) => return LookupStep::Answer(answer),
                    None => continue,
                },
                _ => {}
            }
            let image = group.image(set);
            drop(group);
            let copy = match source {
                PageSource::Log { page, .. } => shared.log.copy(page),
                PageSource::Page { .. } => image.map(|image| copy_of(&image)),
            };
            let Some(copy) = copy else {
                return LookupStep::Read(source);
            };
            fetched = Some((source, FetchedPage::Whole(copy)));
        }
    }

    /// The answer, if the page decides; `None` if its object is of another key and older entries must be checked.
    fn validate(
        &mut self,
        group: &mut SetGroup,
        set: usize,
        newest: Newest,
        fetched: FetchedPage,
    ) -> Option<Option<FlashHit>> {
        let shared = Arc::clone(&self.shared);
        let set_layout = &shared.area_layout.set_layout;
        let buffer = match fetched {
            FetchedPage::Whole(buffer) => buffer,
            FetchedPage::Failed => {
                Counters::one(&shared.counters.read_errors);
                return Some(None);
            }
            FetchedPage::Corrupt => {
                Counters::one(&shared.counters.corrupt_pages);
                if newest == Newest::Page {
                    shared.invalidate_failed(group, set, set_layout.set(self.hash));
                }
                return Some(None);
            }
        };
        match newest {
            Newest::Log { index, page } => {
                let (number, tag) = (set_layout.set(self.hash), set_layout.tag(self.hash));
                let last = shared.tagged(number, tag, &buffer);
                let Some((_, record)) = last.filter(|(_, record)| record.is_of(&buffer, self.pool, &self.key)) else {
                    self.foreign.push(page);
                    return None;
                };
                let token = shared.log_token(group, page).expect("an entry's segment is in use");
                let found = self.found(buffer, record, token);
                if found.is_some() {
                    group.note_hit(set_layout, set, index);
                    Counters::one(&shared.counters.log_hits);
                }
                Some(found)
            }
            _ => {
                let Some((position, record)) = page::find(&buffer, self.pool, &self.key) else {
                    return Some(None);
                };
                let found = self.found(buffer, record, page_token(group, set));
                if found.is_some() {
                    group.hit(set_layout, set, position);
                    Counters::one(&shared.counters.set_hits);
                }
                Some(found)
            }
        }
    }

    fn found(&self, buffer: Buffer, record: PageRecord, token: Token) -> Option<FlashHit> {
        let PageRecord { value, client_flags, is_annotated, expiry, .. } = record;
        let value_bytes = value.len() as u64;
        let hit = FlashHit { buffer, value, value_bytes, client_flags, is_annotated, expiry, token };
        (!has_expired(expiry, self.now)).then_some(hit)
    }
}

fn copy_of(page: &[u8]) -> Buffer {
    let mut copy = Buffer::zeroed(page.len());
    copy.copy_from_slice(page);
    copy
}
