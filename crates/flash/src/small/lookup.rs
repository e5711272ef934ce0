//! Lookups: what RAM knows says which page to read; what is read counts only if RAM still says the same.
//!
//! ```text
//! newest entry or page --> copy in RAM, or read --> still the newest, same version of the group? --> key there? --> answer
//!        ^                                                       | no                                    | no
//!        +-------------------------------------------------------+------ another key's: look on ---------+
//! ```
//! A version that changed means that entries ended or a page was written since: then all that is known is looked up anew. An
//! entry or a tombstone that came since is newer than what was read, and is found at the second look.

use super::group::Group;
use super::log::is_expected;
use super::page::{self, Header, PAGE, Record};
use super::stats::Counters;
use super::{Newest, Shared, page_token};
use crate::device::{Buffer, Direction, Outcome, Request};
use crate::object::{Done, Found, Key, KeyHash, Lookup, Token, is_past};
use std::io;
use std::sync::Arc;

/// A lookup that found something new so many times in a row is a miss.
const TRIES: u8 = 8;

/// A page, and what its header must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Log { page: u32, header: Header },
    Page { number: u32, generation: u8 },
}

impl Source {
    fn number(self) -> u32 {
        match self {
            Self::Log { header, .. } => header.number,
            Self::Page { number, .. } => number,
        }
    }

    fn approves(self, bytes: &[u8], salt: u64) -> bool {
        match self {
            Self::Log { header, .. } => is_expected(bytes, salt, Some(header)),
            Self::Page { number, generation } => {
                page::open(bytes, salt).is_some_and(|header| (header.number, header.generation) == (number, generation))
            }
        }
    }
}

enum Fetched {
    Whole(Buffer),
    Corrupt,
    Failed,
}

enum Step {
    Answer(Option<Found>),
    Read(Source),
}

struct Seek {
    shared: Arc<Shared>,
    key: Box<[u8]>,
    hash: KeyHash,
    now: u32,
    /// The group's, when what was looked at was chosen.
    version: u32,
    /// Pages of the log in which another key has the same tag, as of that version.
    foreign: Vec<u32>,
    tries: u8,
    read: bool,
}

pub(super) fn begin(shared: &Arc<Shared>, key: Key<'_>, now: u32, done: Done) -> Lookup {
    Counters::one(&shared.counters.lookups);
    let (group, set) = shared.locked(shared.division.shape.set(key.hash));
    if shared.newest(&group, set, key.hash, &[]) == Newest::Nothing {
        return Lookup::Absent;
    }
    let version = group.version;
    drop(group);
    let (shared, key, hash) = (Arc::clone(shared), key.bytes.into(), key.hash);
    let mut seek = Seek { shared, key, hash, now, version, foreign: Vec::new(), tries: 0, read: false };
    match seek.advance(None) {
        Step::Answer(Some(found)) => Lookup::Found(found),
        Step::Answer(None) => Lookup::Absent,
        Step::Read(source) => {
            let shared = Arc::clone(&seek.shared);
            match shared.device.submit_here(seek.request(source, done)) {
                Ok(()) => Lookup::Reading,
                Err(_) => {
                    Counters::one(&shared.counters.lookups_refused);
                    Lookup::Absent
                }
            }
        }
    }
}

impl Seek {
    fn request(mut self, source: Source, done: Done) -> Request {
        if !self.read {
            self.read = true;
            Counters::one(&self.shared.counters.lookups_read);
        }
        let offset = self.shared.offset(source.number());
        let done = Box::new(move |outcome: Outcome| self.arrived(source, outcome, done));
        Request { direction: Direction::Read, offset, buffer: Buffer::zeroed(PAGE), done }
    }

    fn arrived(mut self, source: Source, outcome: Outcome, done: Done) {
        let fetched = match outcome.result {
            Ok(()) if source.approves(&outcome.buffer, self.shared.options.salt) => Fetched::Whole(outcome.buffer),
            Ok(()) => Fetched::Corrupt,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Counters::one(&self.shared.counters.lookups_refused);
                return done(None);
            }
            Err(_) => Fetched::Failed,
        };
        match self.advance(Some((source, fetched))) {
            Step::Answer(answer) => {
                if answer.is_none() {
                    Counters::one(&self.shared.counters.lookups_read_for_nothing);
                }
                done(answer);
            }
            Step::Read(source) => {
                let shared = Arc::clone(&self.shared);
                if let Err(request) = shared.device.submit_here(self.request(source, done)) {
                    request.finish(Err(io::ErrorKind::WouldBlock.into()));
                }
            }
        }
    }

    fn advance(&mut self, mut fetched: Option<(Source, Fetched)>) -> Step {
        let shared = Arc::clone(&self.shared);
        let number = shared.division.shape.set(self.hash);
        loop {
            let (mut group, set) = shared.locked(number);
            if group.version != self.version {
                self.version = group.version;
                self.foreign.clear();
                fetched = None;
                self.tries += 1;
                if self.tries > TRIES {
                    Counters::one(&shared.counters.lookups_contended);
                    return Step::Answer(None);
                }
            }
            let newest = shared.newest(&group, set, self.hash, &self.foreign);
            let source = match newest {
                Newest::Nothing => return Step::Answer(None),
                Newest::Log { page, .. } => {
                    let header = shared.log.header(page).expect("an entry's segment is in use");
                    Source::Log { page, header }
                }
                Newest::Page => {
                    Source::Page { number: shared.division.first_set + number, generation: group.generation(set) }
                }
            };
            match fetched.take() {
                Some((from, bytes)) if from == source => match self.judge(&mut group, set, newest, bytes) {
                    Some(answer) => return Step::Answer(answer),
                    None => continue,
                },
                _ => {}
            }
            let image = group.image(set);
            drop(group);
            let copy = match source {
                Source::Log { page, .. } => shared.log.copy(page),
                Source::Page { .. } => image.map(|image| copy_of(&image)),
            };
            let Some(copy) = copy else {
                return Step::Read(source);
            };
            fetched = Some((source, Fetched::Whole(copy)));
        }
    }

    /// The answer, if the page decides; none if its object is another key's and older entries count.
    fn judge(&mut self, group: &mut Group, set: usize, newest: Newest, fetched: Fetched) -> Option<Option<Found>> {
        let shared = Arc::clone(&self.shared);
        let shape = &shared.division.shape;
        let buffer = match fetched {
            Fetched::Whole(buffer) => buffer,
            Fetched::Failed => {
                Counters::one(&shared.counters.read_errors);
                return Some(None);
            }
            Fetched::Corrupt => {
                Counters::one(&shared.counters.corrupt_pages);
                if newest == Newest::Page {
                    shared.void_failed(group, set, shape.set(self.hash));
                }
                return Some(None);
            }
        };
        match newest {
            Newest::Log { index, page } => {
                let (number, tag) = (shape.set(self.hash), shape.tag(self.hash));
                let last = shared.tagged(number, tag, &buffer);
                let Some((_, record)) = last.filter(|(_, record)| buffer[record.key.clone()] == *self.key) else {
                    self.foreign.push(page);
                    return None;
                };
                let token = shared.log_token(group, page).expect("an entry's segment is in use");
                let found = self.found(buffer, record, token);
                if found.is_some() {
                    group.note_hit(shape, set, index);
                    Counters::one(&shared.counters.log_hits);
                }
                Some(found)
            }
            _ => {
                let Some((position, record)) = page::find(&buffer, &self.key) else {
                    return Some(None);
                };
                let found = self.found(buffer, record, page_token(group, set));
                if found.is_some() {
                    group.hit(shape, set, position);
                    Counters::one(&shared.counters.set_hits);
                }
                Some(found)
            }
        }
    }

    fn found(&self, buffer: Buffer, record: Record, token: Token) -> Option<Found> {
        let Record { value, client_flags, attributes, expiry, .. } = record;
        (!is_past(expiry, self.now)).then_some(Found { buffer, value, client_flags, attributes, expiry, token })
    }
}

fn copy_of(page: &[u8]) -> Buffer {
    let mut copy = Buffer::zeroed(page.len());
    copy.copy_from_slice(page);
    copy
}
