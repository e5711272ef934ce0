//! Lookups.
//!
//! ```text
//! locate -> in a buffer: copy ---------------------------+-> next part, or found
//!    ^   -> on the device: submit ... arrived -> check --+
//!    +------ moved meanwhile -----------------------+
//! ```
//! A read is used only if the object's address is still current afterwards: the lookup checks that, or its caller does
//! ([`FinalCheck`]).

use super::LargeLog;
use super::address::{Address, UNIT};
use super::format::{ObjectHeader, ObjectMismatch, part_hash};
use super::index::{IndexKey, LockedShard};
use super::regions::RegionState;
use crate::device::{BLOCK, Buffer, Direction, TransferOutcome, TransferRequest};
use crate::object::has_expired;
use crate::{FlashHash, FlashHit, FlashLookup, Key, OnLookup, Token};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// Maximum number of moves of an object that a lookup follows, before it is a miss.
pub(super) const MOVES: u32 = 8;

/// The key of a pending lookup. A value that a region's end cuts is stored in parts: the first has the key, a later
/// one the hash of its number and of the object's order in place of a key.
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

/// Which of the two checks that an object that was read is still current. A miss is always checked by the lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinalCheck {
    /// The lookup, which counts the hit when it starts.
    ByLookup,
    /// The caller, with [`LargeLog::is_current_hit`], which counts the hit.
    ByCaller,
}

/// A pending lookup.
struct Reading {
    key: LookupKey,
    final_check: FinalCheck,
    /// The parts of a multi-part object that have been read.
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

/// The address of an object, as the index had it a moment ago.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    pub address: Address,
    pub token: Token,
    pub region: u32,
    pub sequence: u64,
    pub position: u32,
    /// The object had no hit since it was written.
    is_first_hit: bool,
    /// The slot of the buffer that holds it.
    pub slot: Option<u16>,
}

impl Located {
    /// Offset of the object in its region.
    pub fn begin(&self) -> usize {
        self.position as usize * UNIT
    }

    /// The blocks that are sure to hold the object, as a range of the region.
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
    /// The part after those in `gathered`, or the first.
    NextPart,
}

/// Bytes of an object, borrowed or owned.
enum ReadBytes<'a> {
    Borrowed(&'a [u8]),
    /// A buffer and the offset of the object in it.
    Owned(Buffer, usize),
}

impl LargeLog {
    /// Looks for an object that is alive at `now`, in seconds since 1970. Answers at once if no I/O is needed;
    /// otherwise calls `done` with the result, possibly before this returns.
    pub fn lookup(self: &Arc<Self>, key: Key<'_>, now: u32, done: OnLookup) -> FlashLookup {
        match self.locate(key.hash, FinalCheck::ByLookup) {
            Some(located) => self.lookup_at(located, FinalCheck::ByLookup, key, now, done),
            None => FlashLookup::Absent,
        }
    }

    /// Lookups that ended as misses because the device's queue was full, or because the object moved repeatedly.
    pub fn undecided_lookups(&self) -> u64 {
        self.counters.misses_refused.get()
    }

    /// As [`LargeLog::lookup`], for a key whose index entry is known.
    pub(crate) fn lookup_at(
        self: &Arc<Self>,
        located: Located,
        final_check: FinalCheck,
        key: Key<'_>,
        now: u32,
        done: OnLookup,
    ) -> FlashLookup {
        self.observe_time(now);
        self.counters.lookups.one();
        let reading = Reading { key: LookupKey::new(key), final_check, gathered: None, moves: 0 };
        self.answer(self.advance(reading, Some(located), done))
    }

    /// The answer of a lookup that is pending, or did not need the device.
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

    /// Continues until there is an answer or a read is pending. The loop terminates: each round takes a part of the
    /// value, or is one of a bounded number of moves. `located` saves the first lookup in the index.
    fn advance(self: &Arc<Self>, mut reading: Reading, mut located: Option<Located>, done: OnLookup) -> ReadProgress {
        loop {
            let known = located.take().or_else(|| self.locate(reading.wanted(), reading.part_check()));
            let Some(located) = known else {
                // The part may be gone because another version was inserted since the first part was read.
                if reading.gathered.take_if(|first| !self.is_current(reading.key.hash, first.token)).is_some() {
                    reading.moves += 1;
                    continue;
                }
                if let Some(Gathered { header, token, .. }) = &reading.gathered {
                    self.remove_incomplete(reading.key.hash, *token, header.order);
                }
                self.counters.misses_gone.one();
                return ReadProgress::Finished(None, done);
            };
            if reading.moves > MOVES {
                self.counters.misses_refused.one();
                return ReadProgress::Finished(None, done);
            }
            let Some(slot) = located.slot else { return self.submit_read(reading, located, done) };
            match self.in_buffer(located, slot, |header, bytes| {
                self.step(&mut reading, located, header, ReadBytes::Borrowed(bytes))
            }) {
                // The address may be an old one, which the caller had.
                Some(ReadStep::Finished(None)) if !self.is_at(reading.wanted(), located) => reading.moves += 1,
                Some(ReadStep::Finished(found)) => return ReadProgress::Finished(found, done),
                Some(ReadStep::NextPart) => {}
                // The region has been written since and is on the device.
                None => reading.moves += 1,
            }
        }
    }

    /// Reads an object in a buffer. The object is complete and undamaged, since its address was published. `None` if
    /// the buffer no longer holds the region.
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

    /// Processes an object that was read for the lookup.
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
        // Another version with other parts may have been inserted since the first part was read; or the first part
        // moved.
        if reading.final_check == FinalCheck::ByLookup
            && self.find(reading.key.hash, |address| self.token(address)) != Some(token)
        {
            reading.moves += 1;
            return ReadStep::NextPart;
        }
        self.count_first_hit(located, header.order);
        ReadStep::Finished(Some(found(buffer, 0..filled, header, token)))
    }

    /// Whether an object answers a lookup, given whether its key matches. Counts a miss.
    pub(super) fn is_hit(&self, header: &ObjectHeader, is_key: bool) -> bool {
        let has_expired = has_expired(header.expiry, self.now.load(Relaxed));
        self.counters.misses_collision.add(u64::from(!is_key));
        self.counters.misses_expired.add(u64::from(is_key && has_expired));
        is_key && !has_expired
    }

    /// Counts the first hit of an object. A multi-part object is counted with its last part.
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
        // Size classes are rounded up, possibly over the region's end.
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
        // This check comes last: an address that is current now was current during the whole read, with its region in
        // the same life.
        let is_part = matches!(step, Ok(ReadStep::NextPart | ReadStep::Finished(Some(_))));
        let is_left = is_part && reading.final_check == FinalCheck::ByCaller;
        if !is_left && !self.is_at(wanted, located) {
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

    /// Counts a read that is not the expected object. The region is in the same life, so the object must be there,
    /// unless the region was marked dead meanwhile; otherwise its write was lost or misplaced.
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

    /// Calls the completion of a lookup that read the device, if it is finished.
    pub(super) fn finish(&self, progress: ReadProgress) {
        if let ReadProgress::Finished(found, done) = progress {
            self.counters.hits_device.add(u64::from(found.is_some()));
            done(found);
        }
    }

    /// Looks an object up in the index. The hit is counted here unless the caller's check counts it.
    pub(crate) fn locate(&self, hash: FlashHash, final_check: FinalCheck) -> Option<Located> {
        let identity = IndexKey::of(hash);
        let mut shard = self.index.lock(identity.shard);
        let address = shard.get(identity.tag)?;
        let located = self.located(address)?;
        if final_check == FinalCheck::ByLookup {
            self.count_hit(&mut shard, identity.tag, address);
        }
        Some(located)
    }

    /// Whether a lookup would find the object that the token names. If so, that counts as a hit.
    pub fn is_current_hit(&self, hash: FlashHash, token: Token) -> bool {
        let identity = IndexKey::of(hash);
        let mut shard = self.index.lock(identity.shard);
        let current = shard.get(identity.tag).filter(|&address| self.is_alive(address) && self.token(address) == token);
        if let Some(address) = current {
            self.count_hit(&mut shard, identity.tag, address);
        }
        current.is_some()
    }

    /// A hit of the object at an address, under the lock of its shard.
    fn count_hit(&self, shard: &mut LockedShard<'_>, tag: u32, address: Address) {
        if address.hit() != address {
            shard.insert(tag, address.hit());
        }
        self.region_of(address).hit(self.tick.fetch_add(1, Relaxed) + 1);
    }

    /// Where an object is, under the lock of its shard; `None` if its region holds nothing.
    fn located(&self, address: Address) -> Option<Located> {
        let (region, position) = self.geometry.split(address.unit());
        let entry = &self.regions[region as usize];
        let slot = matches!(entry.state(), RegionState::Open | RegionState::Writing).then(|| entry.slot());
        if !self.is_alive(address) {
            return None;
        }
        let sequence = entry.sequence();
        let (token, is_first_hit) = (self.token(address), address.hits() == 0);
        Some(Located { address: address.without_hits(), token, region, sequence, position, is_first_hit, slot })
    }

    /// Whether an object still has this address, in the same life of the region.
    pub(super) fn is_at(&self, hash: FlashHash, located: Located) -> bool {
        let is_same =
            |address: Address| address.without_hits() == located.address && self.token(address) == located.token;
        self.find(hash, is_same) == Some(true)
    }

    /// Marks a region as failed after a failed transfer: its objects are lost.
    pub(super) fn fail(&self, region: u32, sequence: u64) {
        let _books = self.free_lists();
        let region = &self.regions[region as usize];
        if region.sequence() == sequence && matches!(region.state(), RegionState::Sealed | RegionState::Dying) {
            region.set_state(RegionState::Failed);
        }
    }
}

impl Reading {
    /// The next part; `None` for the first.
    fn next_part(&self) -> Option<LaterPart> {
        self.gathered.as_ref().map(|it| (it.header.order, it.parts))
    }

    /// The hash of that part.
    fn wanted(&self) -> FlashHash {
        self.key.hash_of(self.next_part())
    }

    /// The caller checks the first part only: hits of later parts are counted by the lookup.
    fn part_check(&self) -> FinalCheck {
        if self.next_part().is_some() { FinalCheck::ByLookup } else { self.final_check }
    }
}

impl ReadBytes<'_> {
    fn slice(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(buffer, begin) => &buffer[*begin..],
        }
    }

    /// The hit for a complete value.
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
