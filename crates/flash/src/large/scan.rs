//! A walk over all objects of the log.
//!
//! ```text
//! next region: complete ones by their sequence, then open ones --> piece --> objects in it --> current? --> visit
//! ```
//! Regions are read in pieces, one object after another. Only the index decides which objects are current, and it is
//! checked right before each visit. A copy that reclaim makes keeps its order, and its region has a later sequence,
//! which the walk has not reached: so an object that moves during the walk is visited there. In regions that were
//! opened after the walk's start only such copies are visited. No lock is held during a read or a visit.

use super::LargeLog;
use super::address::UNIT;
use super::format::{OBJECT_HEADER_BYTES, ObjectHeader, REGION_HEADER_BYTES, RegionHeader, part_hash};
use super::regions::RegionState;
use crate::device::{self, BLOCK, Buffer};
use crate::object::{ScanContent, ScannedObject, Unread, has_expired};
use crate::{FlashHash, Key};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Bytes that are read at once; a longer object is read whole.
const PIECE: usize = 256 << 10;
/// Attempts to find a part of an object that moves meanwhile.
const MOVES: u32 = 8;
/// A walk visits at most this multiple of the number of regions, however many copies reclaim makes meanwhile.
const DECAY_TURNS: usize = 2;

/// The progress of a walk.
pub(crate) struct LargeScan {
    /// Regions up to this sequence were visited,
    passed: u64,
    /// but for these, which were open then.
    late: Vec<u64>,
    /// Regions from this sequence on were opened after the walk's start. Only their copies with orders lower than
    /// `began_order` are visited.
    began: u64,
    began_order: u64,
    /// Set when all complete regions are visited: the walk ends before this sequence,
    last: Option<u64>,
    /// unless copies were made since: the number of copies at that time.
    copies: u64,
    /// Regions that were open when they were visited: copies may have been appended since.
    open: Vec<u64>,
    visited: usize,
    region: Option<RegionScan>,
}

struct RegionScan {
    region: u32,
    sequence: u64,
    /// Offset of the walk in the region. `end`: end of its objects, or of the region if that is not known yet.
    at: usize,
    end: usize,
    /// Only copies are visited.
    is_later: bool,
}

/// The request of the caller of a walk.
struct ScanVisitor<'a> {
    wanted: ScanContent,
    unread: Unread,
    now: u32,
    visit: &'a mut dyn FnMut(ScannedObject<'_>),
}

/// Region, sequence and position of an object.
type ScanPosition = (u32, u64, u32);

/// An object in a piece.
struct WholeObject<'a> {
    header: ObjectHeader,
    key: Key<'a>,
    value: Option<&'a [u8]>,
}

impl LargeLog {
    pub(crate) fn scan(&self) -> LargeScan {
        let began = self.free_lists().next_sequence;
        let began_order = self.next_order();
        LargeScan {
            passed: 0,
            late: Vec::new(),
            began,
            began_order,
            last: None,
            copies: 0,
            open: Vec::new(),
            visited: 0,
            region: None,
        }
    }

    /// Visits the current objects in the next piece. False at the end. Waits for the device.
    pub(crate) fn advance_scan(
        self: &Arc<Self>,
        scan: &mut LargeScan,
        (wanted, unread): (ScanContent, Unread),
        now: u32,
        visit: &mut dyn FnMut(ScannedObject<'_>),
    ) -> bool {
        let now = self.observe_time(now);
        let Some(mut visiting) = scan.region.take().or_else(|| self.next_region(scan)) else { return false };
        self.visit_piece(&mut visiting, scan.began_order, &mut ScanVisitor { wanted, unread, now, visit });
        scan.region = (visiting.at < visiting.end).then_some(visiting);
        true
    }

    /// The share of the log that was visited.
    pub(crate) fn scan_progress(&self, scan: &LargeScan) -> f64 {
        let contents = self.log_regions().iter().filter(|region| holds_objects(region.state())).count();
        (scan.visited as f64 / contents.max(1) as f64).min(1.0)
    }

    fn next_region(&self, scan: &mut LargeScan) -> Option<RegionScan> {
        if scan.visited > DECAY_TURNS * self.log_regions().len() {
            return None;
        }
        let next = self.choose_region(scan).or_else(|| {
            // A copy is counted before the walk can see that its original is no longer current.
            let copies = self.counters.reinserted.get();
            if scan.last.is_none() || scan.copies != copies {
                (scan.last, scan.copies) = (Some(self.free_lists().next_sequence), copies);
                scan.late.append(&mut scan.open);
            }
            self.choose_region(scan)
        })?;
        scan.visited += 1;
        Some(next)
    }

    /// The complete region with the lowest sequence of those to be visited; at the end of the walk the open ones.
    fn choose_region(&self, scan: &mut LargeScan) -> Option<RegionScan> {
        // A region with a lower sequence was opened before `free_lists` was locked here, so the loop sees it.
        let end = scan.last.unwrap_or_else(|| self.free_lists().next_sequence);
        let floor = self.floor.load(Acquire);
        let (mut chosen, mut later) = (None, Vec::new());
        for (number, region) in (0..).zip(&self.regions) {
            let (state, sequence) = (region.state(), region.sequence());
            let is_left = sequence > scan.passed || scan.late.contains(&sequence);
            if !holds_objects(state) || !is_left || sequence < floor || sequence >= end {
                continue;
            }
            let is_open = state == RegionState::Open;
            if is_open || sequence <= scan.passed {
                later.push(sequence);
            }
            let has_copies = sequence < scan.began || is_open || region.summary().lowest_order < scan.began_order;
            if has_copies && (!is_open || scan.last.is_some()) {
                chosen = chosen.into_iter().chain([(is_open, sequence, number)]).min();
            }
        }
        let (is_open, sequence, region) = chosen?;
        // The address of a copy in it may be published later.
        let is_copied_to = self.regions[region as usize].copied() > 0 && self.reclaiming.try_lock().is_err();
        scan.open.extend((is_open || is_copied_to).then_some(sequence));
        scan.passed = scan.passed.max(sequence);
        later.retain(|&other| other <= scan.passed && other != sequence);
        scan.late = later;
        let (end, is_later) = (self.geometry.region_bytes, sequence >= scan.began);
        Some(RegionScan { region, sequence, at: 0, end, is_later })
    }

    fn visit_piece(&self, visiting: &mut RegionScan, began_order: u64, visitor: &mut ScanVisitor<'_>) {
        let begin = visiting.at / BLOCK * BLOCK;
        let bytes = (visiting.end - begin).next_multiple_of(BLOCK).min(PIECE);
        let Some(buffer) = self.piece(visiting.region, visiting.sequence, begin..begin + bytes, visitor.unread) else {
            visiting.at = begin + bytes;
            return;
        };
        if begin == 0 {
            // An open region has no header yet.
            let header = RegionHeader::decode(&buffer[..REGION_HEADER_BYTES], self.options.identity, visiting.region);
            let header = header.filter(|header| header.sequence == visiting.sequence);
            visiting.end = header.map_or(visiting.end, |header| visiting.end.min(header.footer_offset as usize));
            visiting.at = visiting.at.max(REGION_HEADER_BYTES);
        }
        let mut at = visiting.at - begin;
        while at < buffer.len() && begin + at < visiting.end {
            let position = ((begin + at) / UNIT) as u32;
            let header = ObjectHeader::decode(&buffer[at..]);
            let bytes = header.object_bytes();
            let is_one = header.sequence == visiting.sequence && header.position == position;
            if !is_one || begin + at + bytes > self.geometry.region_bytes {
                at += UNIT;
                continue;
            }
            let continues = at + bytes > buffer.len();
            if continues && at >= BLOCK {
                break;
            }
            let is_ours = header.part == 0 && self.pools.is_live(header.pool);
            let counts = is_ours && (!visiting.is_later || header.order < began_order);
            let address = (visiting.region, visiting.sequence, position);
            let is_whole = if continues {
                !counts || self.visit_long((&buffer[at..], begin), address, visitor)
            } else {
                self.visit_one(&buffer[at..at + bytes], address, visitor, counts)
            };
            at = if is_whole { (at + bytes).next_multiple_of(UNIT) } else { at + UNIT };
        }
        visiting.at = begin + at;
    }

    /// Visits an object that is whole in a piece. False if it is damaged.
    fn visit_one(&self, bytes: &[u8], at: ScanPosition, visitor: &mut ScanVisitor<'_>, counts: bool) -> bool {
        let (region, sequence, position) = at;
        let Ok(header) = ObjectHeader::check(bytes, self.options.identity, sequence, position) else {
            // An object that is still being copied into an open region is not in the index.
            let key = self.key_of(&ObjectHeader::decode(bytes), bytes);
            if self.is_at_address(key.hash, region, sequence, position) {
                self.count_damaged(at, visitor.unread);
            }
            return false;
        };
        if counts {
            let key = self.key_of(&header, bytes);
            self.visit_current(&WholeObject { header, key, value: Some(&bytes[header.value()]) }, at, visitor);
        }
        true
    }

    /// Visits an object that is longer than a piece. `front` starts at the object, and the piece starts at `begin` in
    /// the region. False if the bytes are not an object.
    fn visit_long(&self, (front, begin): (&[u8], usize), at: ScanPosition, visitor: &mut ScanVisitor<'_>) -> bool {
        let (region, sequence, position) = at;
        let header = ObjectHeader::decode(front);
        if front.len() < OBJECT_HEADER_BYTES + usize::from(header.key_bytes) {
            return false;
        }
        let key = self.key_of(&header, front);
        // If the index has this address for this key, both are valid.
        if !self.is_at_address(key.hash, region, sequence, position) {
            return true;
        }
        if visitor.wanted == ScanContent::Keys {
            if ObjectHeader::check_front(front, self.options.identity, sequence, position).is_err() {
                self.count_damaged(at, visitor.unread);
                return false;
            }
            self.visit_current(&WholeObject { header, key, value: None }, at, visitor);
            return true;
        }
        let from = position as usize * UNIT - begin;
        let whole = self.piece(region, sequence, begin..begin + from + header.object_bytes(), visitor.unread);
        let Some(whole) = whole else { return true };
        self.visit_one(&whole[from..from + header.object_bytes()], at, visitor, true)
    }

    /// The key of the object at the start of `object`.
    fn key_of<'a>(&self, header: &ObjectHeader, object: &'a [u8]) -> Key<'a> {
        self.pools.key(header.pool, &object[OBJECT_HEADER_BYTES..][..usize::from(header.key_bytes)])
    }

    /// Visits an object if it is current. Reads all parts of its value if it has several.
    fn visit_current(&self, object: &WholeObject<'_>, at: ScanPosition, visitor: &mut ScanVisitor<'_>) {
        let (region, sequence, position) = at;
        let WholeObject { header, key, value } = *object;
        let is_current = || self.is_at_address(key.hash, region, sequence, position);
        if has_expired(header.expiry, visitor.now) || !is_current() {
            return;
        }
        let is_in_parts = header.total_bytes > header.value_bytes;
        let gathered = match (visitor.wanted, value) {
            (ScanContent::Values, Some(first)) if is_in_parts => match self.gather(key.hash, &header, first) {
                Some(gathered) if is_current() => Some(gathered),
                _ => return,
            },
            _ => None,
        };
        let value = if is_in_parts { gathered.as_deref() } else { value };
        let ObjectHeader { total_bytes, client_flags, is_annotated, expiry, .. } = header;
        let value_bytes = u64::from(total_bytes);
        (visitor.visit)(ScannedObject { key, value, value_bytes, client_flags, is_annotated, expiry });
    }

    /// The value of an object whose first part has been read.
    fn gather(&self, hash: FlashHash, first: &ObjectHeader, value: &[u8]) -> Option<Vec<u8>> {
        let total = first.total_bytes as usize;
        let mut all = Vec::with_capacity(total);
        all.extend_from_slice(value);
        for part in 1.. {
            if all.len() >= total {
                break;
            }
            let wanted = part_hash(hash, first.order, part);
            let (header, bytes) = (0..MOVES).find_map(|_| self.part(wanted))?;
            let value = bytes.get(header.value())?;
            if (header.order, header.part) != (first.order, part) || all.len() + value.len() > total {
                return None;
            }
            all.extend_from_slice(value);
        }
        Some(all)
    }

    /// A part other than the first; also `None` if it moved meanwhile.
    fn part(&self, hash: FlashHash) -> Option<(ObjectHeader, Vec<u8>)> {
        let (address, sequence) = self.find(hash, |address| (address, self.region_of(address).sequence()))?;
        let (region, position) = self.geometry.split(address.unit());
        let begin = position as usize * UNIT / BLOCK * BLOCK;
        let bytes = (address.blocks() * BLOCK).min(self.geometry.region_bytes - begin);
        let buffer = self.piece(region, sequence, begin..begin + bytes, Unread::Kept)?;
        let object = &buffer[position as usize * UNIT - begin..];
        let header = ObjectHeader::check(object, self.options.identity, sequence, position).ok()?;
        let key = object.get(OBJECT_HEADER_BYTES..OBJECT_HEADER_BYTES + usize::from(header.key_bytes))?;
        (key == hash.0.to_le_bytes()).then(|| (header, object[..header.object_bytes()].to_vec()))
    }

    /// Counts an object in the index that is damaged. Another read may find it right.
    fn count_damaged(&self, (region, sequence, _): ScanPosition, unread: Unread) {
        self.counters.scans_corrupt.one();
        if unread == Unread::GivenUp {
            self.fail(region, sequence);
        }
    }

    /// Bytes of a region in this life; `None` if the life is over, or the device fails: then the region fails, too, if
    /// it is to be given up.
    fn piece(&self, number: u32, sequence: u64, range: Range<usize>, unread: Unread) -> Option<Buffer> {
        let region = &self.regions[number as usize];
        let (begin, bytes) = (range.start, range.len());
        if matches!(region.state(), RegionState::Open | RegionState::Writing) {
            let staged = self.slots[usize::from(region.slot())].read().unwrap();
            if let Some(staged) = staged.as_ref().filter(|it| it.region == number && it.sequence == sequence) {
                let mut copy = Buffer::zeroed(bytes);
                copy[..bytes].copy_from_slice(&staged.buffer[begin..begin + bytes]);
                return Some(copy);
            }
        }
        // An open region that is not in its slot has no buffer yet, and the device has another life of it.
        if !matches!(region.state(), RegionState::Sealed | RegionState::Dying) || region.sequence() != sequence {
            return None;
        }
        self.reading_bytes.fetch_add(bytes, Relaxed);
        let read = device::read(&*self.device, self.geometry.offset(number) + begin as u64, Buffer::zeroed(bytes));
        self.reading_bytes.fetch_sub(bytes, Relaxed);
        match read {
            Ok(buffer) => {
                self.counters.read_bytes.add(buffer.len() as u64);
                Some(buffer)
            }
            Err(_) => {
                self.counters.read_errors.one();
                if unread == Unread::GivenUp {
                    self.fail(number, sequence);
                }
                None
            }
        }
    }

    /// Whether a lookup would read this position.
    fn is_at_address(&self, hash: FlashHash, region: u32, sequence: u64, position: u32) -> bool {
        let unit = self.geometry.unit(region, position);
        self.find(hash, |address| address.unit() == unit && self.region_of(address).sequence() == sequence)
            == Some(true)
    }
}

fn holds_objects(state: RegionState) -> bool {
    matches!(state, RegionState::Open | RegionState::Writing | RegionState::Sealed | RegionState::Dying)
}
