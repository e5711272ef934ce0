//! Objects out.
//!
//! ```text
//! locate -> in a buffer: copy ---------------------------+-> next part, or found
//!    ^   -> on the device: submit ... arrived -> check --+
//!    +------ moved meanwhile -----------------------+
//! ```
//! What was read counts only if its place is still the current one afterwards.

use super::LargeLog;
use super::address::{Address, UNIT};
use super::format::{ObjectHeader, ObjectMismatch, part_hash};
use super::index::IndexKey;
use super::regions::RegionState;
use crate::device::{BLOCK, Buffer, Direction, TransferOutcome, TransferRequest};
use crate::object::has_expired;
use crate::{FlashHash, FlashHit, FlashLookup, Key, OnLookup, Token};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// So often a lookup follows an object that moves, before it is a miss.
const MOVES: u32 = 8;

/// A lookup under way.
struct Reading {
    key: Box<[u8]>,
    hash: FlashHash,
    pool: u16,
    /// What is there of an object of several parts.
    gathered: Option<Gathered>,
    moves: u32,
}

struct Gathered {
    header: ObjectHeader,
    token: Token,
    buffer: Buffer,
    filled: usize,
    parts: u16,
}

/// Where an object was a moment ago.
#[derive(Clone, Copy)]
struct Located {
    address: Address,
    token: Token,
    region: u32,
    sequence: u64,
    position: u32,
    /// Nobody had asked for it since it was written.
    is_first_hit: bool,
    /// The buffer it is in.
    slot: Option<u16>,
}

enum ReadProgress {
    Finished(Option<FlashHit>, OnLookup),
    Submitted,
}

enum ReadStep {
    Finished(Option<FlashHit>),
    /// What is gathered says which one; without any, the first.
    NextPart,
}

/// Bytes of an object, and what of them can be given away.
enum ReadBytes<'a> {
    Borrowed(&'a [u8]),
    /// An object that begins there.
    Owned(Buffer, usize),
}

impl LargeLog {
    /// Looks for an object that is alive at `now`, in seconds since 1970. Answers at once what needs no I/O; otherwise `done`
    /// is called with what was found, possibly before this returns.
    pub fn lookup(self: &Arc<Self>, key: Key<'_>, now: u32, done: OnLookup) -> FlashLookup {
        self.observe_time(now);
        if self.find(key.hash, |_| ()).is_none() {
            return FlashLookup::Absent;
        }
        self.counters.lookups.one();
        let reading = Reading { key: key.bytes.into(), hash: key.hash, pool: key.pool, gathered: None, moves: 0 };
        match self.advance(reading, done) {
            ReadProgress::Finished(None, _) => FlashLookup::Absent,
            ReadProgress::Finished(Some(found), _) => {
                self.counters.hits_memory.one();
                FlashLookup::Found(found)
            }
            ReadProgress::Submitted => FlashLookup::Reading,
        }
    }

    /// Goes on until there is an answer or a read is under way.
    fn advance(self: &Arc<Self>, mut reading: Reading, done: OnLookup) -> ReadProgress {
        loop {
            let Some(located) = self.locate(reading.wanted()).filter(|_| reading.moves <= MOVES) else {
                self.counters.misses_gone.one();
                return ReadProgress::Finished(None, done);
            };
            let Some(slot) = located.slot else { return self.submit_read(reading, located, done) };
            let step = {
                let staged = self.slots[usize::from(slot)].read().unwrap();
                let staged = staged.as_ref();
                let staged = staged.filter(|it| it.region == located.region && it.sequence == located.sequence);
                staged.map(|it| self.take(&mut reading, located, &it.buffer))
            };
            match step {
                Some(ReadStep::Finished(found)) => return ReadProgress::Finished(found, done),
                Some(ReadStep::NextPart) => {}
                // It has been written since, and is on the device.
                None => reading.moves += 1,
            }
        }
    }

    /// An object in a buffer: complete and unharmed, since its place was published.
    fn take(&self, reading: &mut Reading, located: Located, buffer: &[u8]) -> ReadStep {
        let bytes = &buffer[located.position as usize * UNIT..];
        let header = ObjectHeader::decode(bytes);
        self.step(reading, located, header, ReadBytes::Borrowed(&bytes[..header.object_bytes()]))
    }

    /// What an object that was read means for the lookup.
    fn step(&self, reading: &mut Reading, located: Located, header: ObjectHeader, bytes: ReadBytes<'_>) -> ReadStep {
        let key_end = super::format::OBJECT_HEADER_BYTES + usize::from(header.key_bytes);
        let value = header.value();
        if header.pool != reading.pool || bytes.key(key_end) != &*reading.expected_key() {
            self.counters.misses_collision.one();
            return ReadStep::Finished(None);
        }
        if has_expired(header.expiry, self.now.load(Relaxed)) {
            self.counters.misses_expired.one();
            return ReadStep::Finished(None);
        }
        let total = header.total_bytes as usize;
        let gathered = match &mut reading.gathered {
            None if value.len() == total => {
                self.count_first_hit(located, header.order);
                return ReadStep::Finished(Some(bytes.found(value, header, located.token)));
            }
            None => reading.gathered.insert(Gathered {
                header,
                token: located.token,
                buffer: Buffer::zeroed(total),
                filled: 0,
                parts: 0,
            }),
            Some(gathered) => gathered,
        };
        let is_next = header.order == gathered.header.order && header.part == gathered.parts;
        if !is_next || gathered.filled + value.len() > total {
            self.counters.misses_corrupt.one();
            return ReadStep::Finished(None);
        }
        gathered.buffer[gathered.filled..][..value.len()].copy_from_slice(&bytes.slice()[value.clone()]);
        gathered.filled += value.len();
        gathered.parts += 1;
        if gathered.filled < total {
            return ReadStep::NextPart;
        }
        let Gathered { header, token, buffer, filled, .. } = reading.gathered.take().expect("it was filled");
        // Another version may have come since the first part was read, whose parts are others; or the first part moved.
        if self.find(reading.hash, |address| self.token(address)) != Some(token) {
            reading.moves += 1;
            return ReadStep::NextPart;
        }
        self.count_first_hit(located, header.order);
        ReadStep::Finished(Some(found(buffer, 0..filled, header, token)))
    }

    /// That somebody found an object for the first time; one of several parts is told of by its last.
    fn count_first_hit(&self, located: Located, order: u64) {
        if located.is_first_hit {
            let region = &self.regions[located.region as usize];
            self.reinsertion_value.first_hit(region.is_copy(order), region.copied());
        }
    }

    fn submit_read(self: &Arc<Self>, reading: Reading, located: Located, done: OnLookup) -> ReadProgress {
        let begin = located.position as usize * UNIT / BLOCK * BLOCK;
        let bytes = (located.address.blocks() * BLOCK).min(self.geometry.region_bytes - begin);
        let offset = self.geometry.offset(located.region) + begin as u64;
        let pending = Arc::new(Mutex::new(Some((reading, done))));
        let (log, theirs) = (Arc::clone(self), Arc::clone(&pending));
        let read_completed = Box::new(move |outcome| {
            log.reading_bytes.fetch_sub(bytes, Relaxed);
            let (reading, done) = theirs.lock().unwrap().take().expect("a read is completed once");
            log.read_completed(reading, located, done, outcome);
        });
        self.reading_bytes.fetch_add(bytes, Relaxed);
        let request =
            TransferRequest { direction: Direction::Read, offset, buffer: Buffer::zeroed(bytes), done: read_completed };
        if self.device.submit_local(request).is_ok() {
            return ReadProgress::Submitted;
        }
        self.reading_bytes.fetch_sub(bytes, Relaxed);
        self.counters.misses_refused.one();
        let (_, done) = pending.lock().unwrap().take().expect("a refused read is not completed");
        ReadProgress::Finished(None, done)
    }

    fn read_completed(
        self: &Arc<Self>,
        mut reading: Reading,
        located: Located,
        done: OnLookup,
        outcome: TransferOutcome,
    ) {
        if outcome.result.is_err() {
            self.counters.read_errors.one();
            self.counters.misses_error.one();
            self.fail(located.region, located.sequence);
            return done(None);
        }
        self.counters.read_bytes.add(outcome.buffer.len() as u64);
        let begin = located.position as usize * UNIT % BLOCK;
        let wanted = reading.wanted();
        let checked =
            ObjectHeader::check(&outcome.buffer[begin..], self.options.identity, located.sequence, located.position);
        let step =
            checked.map(|header| self.step(&mut reading, located, header, ReadBytes::Owned(outcome.buffer, begin)));
        // The last look: what is current now was so during the whole read, and its region in the same life.
        if !self.is_at(wanted, located) {
            reading.moves += 1;
            return self.resume(reading, done);
        }
        match step {
            Ok(ReadStep::NextPart) => self.resume(reading, done),
            Ok(ReadStep::Finished(found)) => {
                self.counters.hits_device.add(u64::from(found.is_some()));
                done(found);
            }
            // The region is in the same life, so it must be there, unless it was marked dead meanwhile: it was not written, or not here.
            Err(ObjectMismatch::Foreign | ObjectMismatch::Corrupt) => {
                match self.regions[located.region as usize].state() {
                    RegionState::Dying | RegionState::Emptied => self.counters.misses_gone.one(),
                    _ => self.counters.misses_corrupt.one(),
                }
                done(None);
            }
        }
    }

    fn resume(self: &Arc<Self>, reading: Reading, done: OnLookup) {
        if let ReadProgress::Finished(found, done) = self.advance(reading, done) {
            self.counters.hits_device.add(u64::from(found.is_some()));
            done(found);
        }
    }

    /// Looks an object up in the index and counts the hit.
    fn locate(&self, hash: FlashHash) -> Option<Located> {
        let identity = IndexKey::of(hash);
        let mut shard = self.index.lock(identity.shard);
        let address = shard.get(identity.tag)?;
        let (region, position) = self.geometry.split(address.unit());
        let entry = &self.regions[region as usize];
        let slot = matches!(entry.state(), RegionState::Open | RegionState::Writing).then(|| entry.slot());
        if !self.is_alive(address) {
            return None;
        }
        if address.hit() != address {
            shard.insert(identity.tag, address.hit());
        }
        entry.hit(self.tick.fetch_add(1, Relaxed) + 1);
        let sequence = entry.sequence();
        let (token, is_first_hit) = (self.token(address), address.hits() == 0);
        Some(Located { address: address.without_hits(), token, region, sequence, position, is_first_hit, slot })
    }

    /// Whether an object is still where it was, in the same life of the region.
    fn is_at(&self, hash: FlashHash, located: Located) -> bool {
        let is_same =
            |address: Address| address.without_hits() == located.address && self.token(address) == located.token;
        self.find(hash, is_same) == Some(true)
    }

    /// A transfer of a region failed: what it holds is lost.
    pub(super) fn fail(&self, region: u32, sequence: u64) {
        let _books = self.free_lists();
        let region = &self.regions[region as usize];
        if region.sequence() == sequence && matches!(region.state(), RegionState::Sealed | RegionState::Dying) {
            region.set_state(RegionState::Failed);
        }
    }
}

impl Reading {
    /// The hash of the part that comes next.
    fn wanted(&self) -> FlashHash {
        self.gathered.as_ref().map_or(self.hash, |it| part_hash(self.hash, it.header.order, it.parts))
    }

    /// What the next part has for a key.
    fn expected_key(&self) -> std::borrow::Cow<'_, [u8]> {
        match &self.gathered {
            None => (&*self.key).into(),
            Some(_) => self.wanted().0.to_le_bytes().to_vec().into(),
        }
    }
}

impl ReadBytes<'_> {
    fn slice(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(buffer, begin) => &buffer[*begin..],
        }
    }

    fn key(&self, end: usize) -> &[u8] {
        &self.slice()[super::format::OBJECT_HEADER_BYTES..end]
    }

    /// A value that is complete.
    fn found(self, value: std::ops::Range<usize>, header: ObjectHeader, token: Token) -> FlashHit {
        match self {
            Self::Borrowed(bytes) => {
                let mut buffer = Buffer::zeroed(value.len());
                buffer[..value.len()].copy_from_slice(&bytes[value.clone()]);
                found(buffer, 0..value.len(), header, token)
            }
            Self::Owned(buffer, begin) => found(buffer, begin + value.start..begin + value.end, header, token),
        }
    }
}

fn found(buffer: Buffer, value: std::ops::Range<usize>, header: ObjectHeader, token: Token) -> FlashHit {
    let ObjectHeader { client_flags, expiry, .. } = header;
    FlashHit { buffer, value, client_flags, expiry, token }
}
