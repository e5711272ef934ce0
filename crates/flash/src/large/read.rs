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
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// So often a lookup follows an object that moves, before it is a miss.
pub(super) const MOVES: u32 = 8;

/// The key of a pending lookup. A value longer than a region is stored in parts: the first has the key, a later one the
/// hash of its number and of the object's order in place of a key.
pub(super) struct LookupKey {
    bytes: Box<[u8]>,
    pub hash: FlashHash,
    pool: u16,
}

/// A later part of an object: the object's order and the part's number.
pub(super) type LaterPart = (u64, u16);

impl LookupKey {
    pub fn new(key: Key<'_>) -> Self {
        Self { bytes: key.bytes.into(), hash: key.hash, pool: key.pool }
    }

    /// The hash of a part; without one, that of the first.
    pub fn hash_of(&self, part: Option<LaterPart>) -> FlashHash {
        part.map_or(self.hash, |(order, part)| part_hash(self.hash, order, part))
    }

    /// Whether an object has the key of a part.
    pub fn is_in(&self, header: &ObjectHeader, object: &[u8], part: Option<LaterPart>) -> bool {
        let key = &object[header.key()];
        header.pool == self.pool
            && if part.is_none() { *key == *self.bytes } else { *key == self.hash_of(part).0.to_le_bytes() }
    }

    /// Bytes of the key of a part.
    pub fn bytes_of(&self, part: Option<LaterPart>) -> usize {
        if part.is_none() { self.bytes.len() } else { size_of::<FlashHash>() }
    }
}

/// A lookup under way.
struct Reading {
    key: LookupKey,
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
pub struct Located {
    pub address: Address,
    pub token: Token,
    pub region: u32,
    pub sequence: u64,
    pub position: u32,
    /// Nobody had asked for it since it was written.
    is_first_hit: bool,
    /// The buffer it is in.
    pub slot: Option<u16>,
}

impl Located {
    /// Where the object begins in its region.
    pub fn begin(&self) -> usize {
        self.position as usize * UNIT
    }

    /// The block in which it begins, and those that hold the object for sure.
    pub fn blocks(&self) -> Range<usize> {
        let begin = self.begin() / BLOCK * BLOCK;
        begin..begin + self.address.blocks() * BLOCK
    }
}

pub(super) enum ReadProgress {
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
    /// Looks for an object that is alive at `now`, in seconds since 1970. Answers at once what needs no I/O; otherwise
    /// `done` is called with what was found, possibly before this returns.
    pub fn lookup(self: &Arc<Self>, key: Key<'_>, now: u32, done: OnLookup) -> FlashLookup {
        match self.locate(key.hash) {
            Some(located) => self.lookup_at(located, key, now, done),
            None => FlashLookup::Absent,
        }
    }

    /// As [`LargeLog::lookup`], of a key whose entry of the index is known.
    pub(crate) fn lookup_at(self: &Arc<Self>, located: Located, key: Key<'_>, now: u32, done: OnLookup) -> FlashLookup {
        self.observe_time(now);
        self.counters.lookups.one();
        let reading = Reading { key: LookupKey::new(key), gathered: None, moves: 0 };
        self.answer(self.advance(reading, Some(located), done))
    }

    /// The answer of a lookup that goes on, or did not need the device.
    pub(super) fn answer(&self, progress: ReadProgress) -> FlashLookup {
        match progress {
            ReadProgress::Finished(None, _) => FlashLookup::Absent,
            ReadProgress::Finished(Some(found), _) => {
                self.counters.hits_memory.one();
                FlashLookup::Found(found)
            }
            ReadProgress::Submitted => FlashLookup::Reading,
        }
    }

    /// Goes on until there is an answer or a read is under way. It ends: each round takes a part of the value, or is
    /// one of a bounded number of moves. `located` spares the first look into the index.
    fn advance(self: &Arc<Self>, mut reading: Reading, mut located: Option<Located>, done: OnLookup) -> ReadProgress {
        loop {
            let known = located.take().or_else(|| self.locate(reading.wanted()));
            let Some(located) = known.filter(|_| reading.moves <= MOVES) else {
                self.counters.misses_gone.one();
                return ReadProgress::Finished(None, done);
            };
            let Some(slot) = located.slot else { return self.submit_read(reading, located, done) };
            match self.in_buffer(located, slot, |header, bytes| {
                self.step(&mut reading, located, header, ReadBytes::Borrowed(bytes))
            }) {
                Some(ReadStep::Finished(found)) => return ReadProgress::Finished(found, done),
                Some(ReadStep::NextPart) => {}
                // It has been written since, and is on the device.
                None => reading.moves += 1,
            }
        }
    }

    /// Reads an object in a buffer: complete and unharmed, since its place was published. `None` if the region has left
    /// it.
    pub(super) fn in_buffer<T>(
        &self,
        located: Located,
        slot: u16,
        read: impl FnOnce(ObjectHeader, &[u8]) -> T,
    ) -> Option<T> {
        let staged = self.slots[usize::from(slot)].read().unwrap();
        let staged = staged.as_ref();
        let staged = staged.filter(|it| it.region == located.region && it.sequence == located.sequence)?;
        let bytes = &staged.buffer[located.begin()..];
        let header = ObjectHeader::decode(bytes);
        Some(read(header, &bytes[..header.object_bytes()]))
    }

    /// What an object that was read means for the lookup.
    fn step(&self, reading: &mut Reading, located: Located, header: ObjectHeader, bytes: ReadBytes<'_>) -> ReadStep {
        let value = header.value();
        let is_key = reading.key.is_in(&header, bytes.slice(), reading.next_part());
        if !self.is_hit(&header, is_key) {
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
        if self.find(reading.key.hash, |address| self.token(address)) != Some(token) {
            reading.moves += 1;
            return ReadStep::NextPart;
        }
        self.count_first_hit(located, header.order);
        ReadStep::Finished(Some(found(buffer, 0..filled, header, token)))
    }

    /// Whether an object answers a lookup, if its key does; a miss is counted.
    pub(super) fn is_hit(&self, header: &ObjectHeader, is_key: bool) -> bool {
        let has_expired = has_expired(header.expiry, self.now.load(Relaxed));
        self.counters.misses_collision.add(u64::from(!is_key));
        self.counters.misses_expired.add(u64::from(is_key && has_expired));
        is_key && !has_expired
    }

    /// That somebody found an object for the first time; one of several parts is told of by its last.
    pub(super) fn count_first_hit(&self, located: Located, order: u64) {
        if located.is_first_hit {
            let region = &self.regions[located.region as usize];
            self.reinsertion_value.first_hit(region.is_copy(order), region.copied());
        }
    }

    fn submit_read(self: &Arc<Self>, reading: Reading, located: Located, done: OnLookup) -> ReadProgress {
        self.submit_blocks(located, located.blocks(), done, move |log, done, buffer| {
            log.read_completed(reading, located, done, buffer);
        })
    }

    /// Reads blocks of the region of an object. A failed read ends the lookup, and is counted.
    pub(super) fn submit_blocks(
        self: &Arc<Self>,
        located: Located,
        blocks: Range<usize>,
        done: OnLookup,
        completed: impl FnOnce(&Arc<Self>, OnLookup, Buffer) + Send + 'static,
    ) -> ReadProgress {
        // Classes of sizes are rounded up.
        let bytes = blocks.end.min(self.geometry.region_bytes) - blocks.start;
        let offset = self.geometry.offset(located.region) + blocks.start as u64;
        let pending = Arc::new(Mutex::new(Some(done)));
        let (log, theirs) = (Arc::clone(self), Arc::clone(&pending));
        let read = Box::new(move |outcome: TransferOutcome| {
            log.reading_bytes.fetch_sub(bytes, Relaxed);
            let done = theirs.lock().unwrap().take().expect("a read is completed once");
            if outcome.result.is_err() {
                log.counters.read_errors.one();
                log.counters.misses_error.one();
                log.fail(located.region, located.sequence);
                return done(None);
            }
            log.counters.read_bytes.add(outcome.buffer.len() as u64);
            completed(&log, done, outcome.buffer);
        });
        self.reading_bytes.fetch_add(bytes, Relaxed);
        let request = TransferRequest { direction: Direction::Read, offset, buffer: Buffer::zeroed(bytes), done: read };
        if self.device.submit_local(request).is_ok() {
            return ReadProgress::Submitted;
        }
        self.reading_bytes.fetch_sub(bytes, Relaxed);
        self.counters.misses_refused.one();
        let done = pending.lock().unwrap().take().expect("a refused read is not completed");
        ReadProgress::Finished(None, done)
    }

    fn read_completed(self: &Arc<Self>, mut reading: Reading, located: Located, done: OnLookup, buffer: Buffer) {
        let begin = located.begin() % BLOCK;
        let wanted = reading.wanted();
        let checked = ObjectHeader::check(&buffer[begin..], self.options.identity, located.sequence, located.position);
        let step = checked.map(|header| self.step(&mut reading, located, header, ReadBytes::Owned(buffer, begin)));
        // The last look: what is current now was so during the whole read, and its region in the same life.
        if !self.is_at(wanted, located) {
            reading.moves += 1;
            return self.resume(reading, done);
        }
        match step {
            Ok(ReadStep::NextPart) => self.resume(reading, done),
            Ok(ReadStep::Finished(found)) => self.finish(ReadProgress::Finished(found, done)),
            Err(ObjectMismatch::Foreign | ObjectMismatch::Corrupt) => {
                self.count_mismatch(located);
                done(None);
            }
        }
    }

    /// The region is in the same life, so the object must be there, unless it was marked dead meanwhile: it was not
    /// written, or not here.
    pub(super) fn count_mismatch(&self, located: Located) {
        match self.regions[located.region as usize].state() {
            RegionState::Dying | RegionState::Emptied => self.counters.misses_gone.one(),
            _ => self.counters.misses_corrupt.one(),
        }
    }

    fn resume(self: &Arc<Self>, reading: Reading, done: OnLookup) {
        let progress = self.advance(reading, None, done);
        self.finish(progress);
    }

    /// Calls the completion of a lookup that was read from the device, if that is over.
    pub(super) fn finish(&self, progress: ReadProgress) {
        if let ReadProgress::Finished(found, done) = progress {
            self.counters.hits_device.add(u64::from(found.is_some()));
            done(found);
        }
    }

    /// Looks an object up in the index and counts the hit.
    pub(crate) fn locate(&self, hash: FlashHash) -> Option<Located> {
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
    pub(super) fn is_at(&self, hash: FlashHash, located: Located) -> bool {
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
    /// The part that comes next; `None` for the first.
    fn next_part(&self) -> Option<LaterPart> {
        self.gathered.as_ref().map(|it| (it.header.order, it.parts))
    }

    /// The hash of that part.
    fn wanted(&self) -> FlashHash {
        self.key.hash_of(self.next_part())
    }
}

impl ReadBytes<'_> {
    fn slice(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(buffer, begin) => &buffer[*begin..],
        }
    }

    /// A value that is complete.
    fn found(self, value: Range<usize>, header: ObjectHeader, token: Token) -> FlashHit {
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

pub(super) fn found(buffer: Buffer, value: Range<usize>, header: ObjectHeader, token: Token) -> FlashHit {
    let ObjectHeader { total_bytes, client_flags, is_annotated, expiry, .. } = header;
    FlashHit { buffer, value, value_bytes: total_bytes.into(), client_flags, is_annotated, expiry, token }
}
