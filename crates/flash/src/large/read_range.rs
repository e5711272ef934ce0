//! Lookups of ranges of values.
//!
//! ```text
//! locate -> in a buffer: copy --------------------------------------------------------------------+-> next part
//!    ^   -> on the device, short: read it whole -> check ------------------------------------------+
//!    |                     long:  read the front -> check -> read the blocks of the range -> check-+
//!    +------ moved meanwhile ------------------------------------------------------------------------+
//! ```
//! The front of an object holds its header, its key and the checksums of its blocks. So a damaged block invalidates
//! only ranges that overlap it. As in `read.rs`, a read is used only if the object's address is still current
//! afterwards; the front and the blocks are read at the same address.
//!
//! Of a value in parts, the fronts of the parts before the range are read, too: they say how long each part is.

use super::LargeLog;
use super::format::{ObjectHeader, are_blocks, front_bytes};
use super::read::{FinalCheck, LaterPart, Located, LookupKey, MOVES, ReadProgress, found};
use crate::device::{BLOCK, Buffer};
use crate::{ByteRange, FlashHash, FlashHit, FlashLookup, Key, OnLookup, Token};
use std::ops::Range;
use std::sync::Arc;

/// An object of at most this number of blocks is read whole. This includes every object without checksums of its
/// blocks.
const MAX_WHOLE_BLOCKS: usize = 6;
const _: () = assert!(super::format::UNDIVIDED_VALUE_BYTES + 512 + BLOCK <= MAX_WHOLE_BLOCKS * BLOCK);

/// A pending lookup of a range.
struct RangeReading {
    key: LookupKey,
    final_check: FinalCheck,
    range: ByteRange,
    /// Set with the first part.
    gathered: Option<Gathered>,
    moves: u32,
}

/// A range as far as it is read: its place in the value, and its bytes so far.
struct Gathered {
    header: ObjectHeader,
    token: Token,
    /// A range of the whole value.
    range: Range<usize>,
    buffer: Buffer,
    filled: usize,
    /// Parts that were read or skipped, and the bytes of their values.
    parts: u16,
    skipped: usize,
}

enum RangeStep {
    Finished(Option<FlashHit>),
    NextPart,
}

impl LargeLog {
    /// As [`LargeLog::lookup`], for a range of the value: the hit has only the bytes of the range.
    pub fn lookup_range(self: &Arc<Self>, key: Key<'_>, range: ByteRange, now: u32, done: OnLookup) -> FlashLookup {
        match self.locate(key.hash, FinalCheck::ByLookup) {
            Some(located) => self.lookup_range_at(located, FinalCheck::ByLookup, key, range, now, done),
            None => FlashLookup::Absent,
        }
    }

    /// As [`LargeLog::lookup_range`], for a key whose index entry is known.
    pub(crate) fn lookup_range_at(
        self: &Arc<Self>,
        located: Located,
        final_check: FinalCheck,
        key: Key<'_>,
        range: ByteRange,
        now: u32,
        done: OnLookup,
    ) -> FlashLookup {
        self.observe_time(now);
        self.counters.lookups.one();
        let reading = RangeReading { key: LookupKey::new(key), final_check, range, gathered: None, moves: 0 };
        self.answer(self.advance_range(reading, Some(located), done))
    }

    /// Continues until there is an answer or a read is pending. The loop terminates: each round takes a part of the
    /// value, or is one of a bounded number of moves. `located` saves the first lookup in the index.
    fn advance_range(
        self: &Arc<Self>,
        mut reading: RangeReading,
        mut located: Option<Located>,
        done: OnLookup,
    ) -> ReadProgress {
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
            let Some(slot) = located.slot else { return self.submit_front(reading, located, None, done) };
            match self.in_buffer(located, slot, |header, object| self.take(&mut reading, located, header, object)) {
                // The address may be an old one, which the caller had.
                Some(RangeStep::Finished(None)) if !self.is_at(reading.wanted(), located) => reading.moves += 1,
                Some(RangeStep::Finished(found)) => return ReadProgress::Finished(found, done),
                Some(RangeStep::NextPart) => {}
                // The region has been written since and is on the device.
                None => reading.moves += 1,
            }
        }
    }

    /// Processes a part whose bytes are all present.
    fn take(&self, reading: &mut RangeReading, located: Located, header: ObjectHeader, object: &[u8]) -> RangeStep {
        match self.begin_part(reading, located, &header, object) {
            Some(range) => self.end_part(reading, located, &header, &object[header.value()][range]),
            None => RangeStep::Finished(None),
        }
    }

    /// The bytes of a part's value that belong to the range, by the part's front. `None` if the lookup is a miss, which
    /// is counted.
    fn begin_part(
        &self,
        reading: &mut RangeReading,
        located: Located,
        header: &ObjectHeader,
        front: &[u8],
    ) -> Option<Range<usize>> {
        let is_key = reading.key.is_in(header, front, reading.next_part());
        if !self.is_hit(header, is_key) {
            return None;
        }
        let range = reading.range.within(header.total_bytes as usize);
        let gathered = reading.gathered.get_or_insert_with(|| Gathered {
            header: *header,
            token: located.token,
            buffer: Buffer::zeroed(range.len()),
            range,
            filled: 0,
            parts: 0,
            skipped: 0,
        });
        let end = gathered.skipped + header.value_bytes as usize;
        let is_next = header.order == gathered.header.order && header.part == gathered.parts;
        if !is_next || end > gathered.header.total_bytes as usize {
            self.counters.misses_corrupt.one();
            return None;
        }
        let within = |at: usize| at.clamp(gathered.skipped, end) - gathered.skipped;
        Some(within(gathered.range.start)..within(gathered.range.end))
    }

    /// Adds a part's bytes of the range.
    fn end_part(&self, reading: &mut RangeReading, located: Located, header: &ObjectHeader, bytes: &[u8]) -> RangeStep {
        let mut gathered = reading.gathered.take().expect("the part was opened");
        gathered.buffer[gathered.filled..][..bytes.len()].copy_from_slice(bytes);
        gathered.filled += bytes.len();
        gathered.parts += 1;
        gathered.skipped += header.value_bytes as usize;
        if gathered.filled < gathered.range.len() {
            reading.gathered = Some(gathered);
            return RangeStep::NextPart;
        }
        let Gathered { header: first, token, buffer, filled, .. } = gathered;
        // Another version may have been inserted since the first part was read; or the first part moved.
        if reading.final_check == FinalCheck::ByLookup
            && self.find(reading.key.hash, |address| self.token(address)) != Some(token)
        {
            reading.moves += 1;
            return RangeStep::NextPart;
        }
        self.count_first_hit(located, header.order);
        RangeStep::Finished(Some(found(buffer, 0..filled, first, token)))
    }

    /// Reads the front of a part, or a short part whole. The header gives the length of the front; until it has been
    /// read, the shortest front that the address allows is read.
    fn submit_front(
        self: &Arc<Self>,
        reading: RangeReading,
        located: Located,
        known_bytes: Option<usize>,
        done: OnLookup,
    ) -> ReadProgress {
        let mut blocks = located.blocks();
        let is_whole = blocks.len() <= MAX_WHOLE_BLOCKS * BLOCK;
        if !is_whole {
            let key_bytes = reading.key.bytes_of(reading.next_part());
            let shortest = || front_bytes(key_bytes, min_value_bytes(located.address.blocks()));
            let front = known_bytes.unwrap_or_else(shortest);
            blocks.end = blocks.end.min((located.begin() + front).next_multiple_of(BLOCK));
        }
        let is_known = is_whole || known_bytes.is_some();
        self.submit_blocks(located, blocks, done, move |log, done, buffer| {
            log.front_completed(reading, located, (is_whole, is_known), done, &buffer);
        })
    }

    fn front_completed(
        self: &Arc<Self>,
        mut reading: RangeReading,
        located: Located,
        (is_whole, is_known): (bool, bool),
        done: OnLookup,
        buffer: &[u8],
    ) {
        let front = &buffer[located.begin() % BLOCK..];
        let front_bytes = ObjectHeader::decode(front).value().start;
        let check = if is_whole { ObjectHeader::check } else { ObjectHeader::check_front };
        let checked = check(front, self.options.identity, located.sequence, located.position);
        let is_left = reading.final_check == FinalCheck::ByCaller && checked.is_ok();
        if !is_left && !self.is_at(reading.wanted(), located) {
            return self.resume_range(reading, true, done);
        }
        if !is_known && front_bytes > front.len() {
            let progress = self.submit_front(reading, located, Some(front_bytes), done);
            return self.finish(progress);
        }
        let Ok(header) = checked else {
            self.count_mismatch(located);
            return done(None);
        };
        if is_whole {
            let step = self.take(&mut reading, located, header, front);
            return self.go_on(step, reading, located, done);
        }
        let Some(range) = self.begin_part(&mut reading, located, &header, front) else {
            return self.go_on(RangeStep::Finished(None), reading, located, done);
        };
        if range.is_empty() {
            let step = self.end_part(&mut reading, located, &header, &[]);
            return self.go_on(step, reading, located, done);
        }
        let blocks = header.blocks_of(&range);
        let sums = header.sums_of(front, &blocks).to_vec();
        // Offset in the region.
        let begin = located.begin() + header.value().start + blocks.start;
        let read = begin / BLOCK * BLOCK..(begin + blocks.len()).next_multiple_of(BLOCK);
        let progress = self.submit_blocks(located, read, done, move |log, done, buffer| {
            let bytes = &buffer[begin % BLOCK..][..blocks.len()];
            let is_unharmed = are_blocks(log.options.identity, bytes, &sums);
            // This check comes last: an address that is current now was current during both reads, with its region in
            // the same life.
            let is_left = reading.final_check == FinalCheck::ByCaller && is_unharmed;
            if !is_left && !log.is_at(reading.wanted(), located) {
                return log.resume_range(reading, true, done);
            }
            if !is_unharmed {
                log.count_mismatch(located);
                return done(None);
            }
            let bytes = &bytes[range.start - blocks.start..][..range.len()];
            let step = log.end_part(&mut reading, located, &header, bytes);
            log.go_on(step, reading, located, done);
        });
        self.finish(progress);
    }

    fn go_on(self: &Arc<Self>, step: RangeStep, reading: RangeReading, located: Located, done: OnLookup) {
        match step {
            // The caller cannot check a miss.
            RangeStep::Finished(None) if !self.is_at(reading.wanted(), located) => {
                self.resume_range(reading, true, done);
            }
            RangeStep::Finished(found) => self.finish(ReadProgress::Finished(found, done)),
            RangeStep::NextPart => self.resume_range(reading, false, done),
        }
    }

    fn resume_range(self: &Arc<Self>, mut reading: RangeReading, has_moved: bool, done: OnLookup) {
        if has_moved {
            reading.moves += 1;
            // The front that was read may be of another version.
            reading.gathered.take_if(|gathered| gathered.parts == 0);
        }
        let progress = self.advance_range(reading, None, done);
        self.finish(progress);
    }
}

/// The shortest value of an object in `blocks` blocks, which an address may have rounded up by an eighth.
fn min_value_bytes(blocks: usize) -> usize {
    // The first and the last block may hold almost nothing of the value.
    blocks.saturating_sub(blocks.div_ceil(8) + 2) * BLOCK
}

impl RangeReading {
    /// The next part; `None` for the first, also when its front has been read but its blocks have not.
    fn next_part(&self) -> Option<LaterPart> {
        self.gathered.as_ref().filter(|it| it.parts > 0).map(|it| (it.header.order, it.parts))
    }

    /// The hash of that part.
    fn wanted(&self) -> FlashHash {
        self.key.hash_of(self.next_part())
    }

    /// As for a whole value: the caller checks the first part only.
    fn part_check(&self) -> FinalCheck {
        if self.next_part().is_some() { FinalCheck::ByLookup } else { self.final_check }
    }
}
