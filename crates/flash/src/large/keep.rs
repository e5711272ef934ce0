//! What of the regions that go is written again.
//!
//! ```text
//! header, footer -> what is current and worth it -> windows that hold it, each read at once -> copies in open regions -> index
//! ```
//! Whoever reclaims may wait for the device, and waits for buffers before it takes those that inserts need.

use super::LargeLog;
use super::buffers::{Added, Draft, Full};
use super::choose::{Cause, is_kept};
use super::format::{
    FOOTER_ENTRY_BYTES, FooterEntry, OBJECT_HEADER_BYTES, ObjectHeader, REGION_HEADER_BYTES, object_bytes, part_hash,
};
use super::index::Identity;
use super::options::Reinsertion;
use super::place::{Place, UNIT};
use crate::KeyHash;
use crate::admission::bloom::mix;
use crate::device::{self, BLOCK, Buffer};
use crate::object::is_past;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

/// Objects of a region are read at once if no more lies between them, up to so many bytes and a quarter of the region.
const GAP_BYTES: usize = 64 << 10;
const WINDOW_BYTES: usize = 1 << 20;
const WINDOWS: usize = 4;
/// Of the log, so much is owed to new objects at most when a reclaim begins.
const SHARE_OWED: usize = 16;
/// How long a copy waits for a buffer: as long as a stall of the drive.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long all copies of a reclaim do, which frees nothing meanwhile.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(1);

/// An object that is to be kept.
struct Kept {
    hash: KeyHash,
    place: Place,
    /// Its bytes in the region.
    begin: usize,
    end: usize,
}

impl Kept {
    fn bytes(&self) -> usize {
        self.end - self.begin
    }
}

/// Why there is no copy.
enum Lost {
    /// It is not what it should be, or not current any more.
    This,
    /// Nor can there be one of another.
    Rest,
}

/// A region that goes.
#[derive(Clone, Copy)]
struct Going {
    number: u32,
    sequence: u64,
}

/// What the copies of one reclaim have in common.
#[derive(Clone, Copy)]
struct Terms {
    now: u32,
    copies_pay: bool,
    /// Bytes of all of them at most.
    room: usize,
    /// No object that is longer is copied.
    longest: usize,
    /// Turns of the log until now.
    turn: u64,
    /// Until then copies may wait for buffers.
    until: Instant,
}

impl LargeLog {
    /// Writes again what is worth it, at most half of what is reclaimed for its space: otherwise nothing would be won.
    pub(super) fn keep_some(self: &Arc<Self>, chosen: &[(u32, Cause)], now: u32) {
        let going = chosen.iter().filter(|choice| choice.1 == Cause::Space).map(|&(number, _)| number);
        let going: Vec<_> =
            going.map(|number| Going { number, sequence: self.regions[number as usize].sequence() }).collect();
        if self.options.reinsertion == Reinsertion::Never || going.is_empty() {
            return;
        }
        let mut room = going.len() * self.geometry.region_bytes / 2;
        let regions = self.own_regions().len();
        let most_owed = regions * self.geometry.region_bytes / SHARE_OWED;
        let copies_pay = self.worth.judge(going.len() as f64 / regions as f64, most_owed);
        let patience = if self.may_reclaim_for_inserts() { self.options.patience } else { PATIENCE_IN_ALL };
        let turn = self.books().next_sequence / regions as u64;
        let is_judged = self.options.reinsertion == Reinsertion::Auto;
        let longest = if is_judged { self.worth.longest() } else { usize::MAX };
        let until = Instant::now() + patience.min(PATIENCE_IN_ALL);
        let terms = Terms { now, copies_pay, room, longest, turn, until };
        for region in going {
            let mut kept = self.worth_keeping(region, terms);
            let wanted = kept.len();
            kept.sort_unstable_by_key(|object| object.begin);
            let (done, has_room) = self.keep_all(region, &kept, &mut room, terms);
            self.counters.reinsertions_dropped.add((wanted - done) as u64);
            if !has_room {
                return;
            }
        }
    }

    /// What of a region is current, and to be written again.
    fn worth_keeping(&self, region: Going, terms: Terms) -> Vec<Kept> {
        let reinsertion = self.options.reinsertion;
        let was_hit = self.regions[region.number as usize].was_hit();
        if !was_hit && !matches!(reinsertion, Reinsertion::Percent(_)) {
            return Vec::new();
        }
        let kept = |entry: FooterEntry| {
            let identity = Identity::of(entry.hash);
            let place = self.index.lock(identity.shard).get(identity.tag)?;
            let is_current = self.geometry.split(place.unit()) == (region.number, entry.position);
            // One number for all parts of an object that go in one turn of the log, and another one in the next.
            let drawn = mix(entry.order.wrapping_add(terms.turn << 48)) >> 32;
            let is_worth = is_kept(reinsertion, terms.copies_pay, place.hits(), drawn)
                && entry.bytes as usize <= object_bytes(0, terms.longest);
            let begin = entry.position as usize * UNIT;
            let end = begin + entry.bytes as usize;
            let kept = Kept { hash: entry.hash, place, begin, end };
            (is_current && is_worth && !is_past(entry.expiry, terms.now)).then_some(kept)
        };
        let listed = self.listed(region.number, |blocks| self.read(region, blocks));
        listed.unwrap_or_default().into_iter().filter_map(kept).collect()
    }

    fn read(&self, region: Going, blocks: Range<usize>) -> Option<Buffer> {
        let offset = self.geometry.offset(region.number) + blocks.start as u64;
        let read = device::read(&*self.device, offset, Buffer::zeroed(blocks.len())).ok();
        if read.is_some() {
            self.counters.read_bytes.add(blocks.len() as u64);
        } else {
            self.counters.read_errors.one();
            self.fail(region.number, region.sequence);
        }
        read
    }

    /// Adds these anew, as far as there is room. How many, and whether buffers and regions were had.
    fn keep_all(
        self: &Arc<Self>,
        region: Going,
        mut objects: &[Kept],
        room: &mut usize,
        terms: Terms,
    ) -> (usize, bool) {
        let most = WINDOW_BYTES.min(self.geometry.region_bytes / WINDOWS);
        let mut done = 0;
        while !objects.is_empty() {
            let (window, behind) = objects.split_at(window(objects, most));
            objects = behind;
            if window.iter().all(|object| in_region(object.bytes()) > *room) {
                continue;
            }
            let begin = window[0].begin / BLOCK * BLOCK;
            let bytes = window[window.len() - 1].end.next_multiple_of(BLOCK) - begin;
            self.reading_bytes.fetch_add(bytes, Relaxed);
            let read = self.read(region, begin..begin + bytes);
            let is_read = read.is_some();
            let has_room = read.is_none_or(|buffer| {
                window.iter().all(|object| {
                    let kept = self.keep(region, object, &buffer[object.begin - begin..], *room, terms);
                    if let Ok(taken) = kept {
                        *room -= taken;
                        done += 1;
                    }
                    !matches!(kept, Err(Lost::Rest))
                })
            });
            self.reading_bytes.fetch_sub(bytes, Relaxed);
            if !is_read || !has_room {
                return (done, has_room);
            }
        }
        (done, true)
    }

    /// Adds an object that was read anew, with its order; its new place counts only if the old one is still current then, also in a
    /// region that failed meanwhile: the copy is on its way to the device, and would be found by a restart.
    fn keep(
        self: &Arc<Self>,
        region: Going,
        kept: &Kept,
        object: &[u8],
        room: usize,
        terms: Terms,
    ) -> Result<usize, Lost> {
        let position = (kept.begin / UNIT) as u32;
        let header =
            ObjectHeader::check(object, self.options.identity, region.sequence, position).map_err(|_| Lost::This)?;
        // Of what lies in several regions the first part is of no use alone, nor is any where those that fill one find no room.
        let is_long = header.total_bytes as usize > self.geometry.object_bytes_limit();
        let finds_no_room = is_long && terms.room < self.geometry.region_bytes;
        let is_too_long = header.total_bytes as usize > terms.longest;
        if is_too_long || finds_no_room || header.part == 0 && !self.has_other_parts(kept.hash, &header) {
            return Err(Lost::This);
        }
        let (key, value) = (&object[OBJECT_HEADER_BYTES..][..header.key_bytes.into()], &object[header.value()]);
        let total = header.total_bytes as usize;
        let is_whole = header.value_bytes == header.total_bytes;
        let may_cut = is_whole && self.may_fill_up(header.object_bytes(), self.left_by_copies());
        let takes =
            if may_cut { in_region(kept.bytes()) } else { share_of_region(kept.bytes(), self.geometry.region_bytes) };
        if takes > room {
            return Err(Lost::This);
        }
        let draft = Draft { hash: kept.hash, header, key, value: &[value], from: 0, may_cut, is_copy: true };
        let added = self.add_copy(&draft, terms).ok_or(Lost::Rest)?;
        if may_cut && added.value_bytes < total {
            // No third part: of two copies that a crash left, cut at different places, no parts fit together then.
            let head = Draft { may_cut: false, ..draft };
            let add = |part: &Draft<'_>| self.add_copy(part, terms).ok_or(Lost::Rest);
            // The first part is on its way to the device, and the index will not know it; a crash may have left another rest to it.
            self.add_rest(&head, added.value_bytes, Lost::This, add)
                .inspect_err(|_| self.set_unclean(added.region, true))?;
        }
        if self.options.reinsertion == Reinsertion::Auto && terms.copies_pay {
            self.worth.owe(header.object_bytes());
        }
        let identity = Identity::of(kept.hash);
        let mut shard = self.index.lock(identity.shard);
        let is_flushed = region.sequence < self.floor.load(Acquire);
        let is_same = |current: Place| current.without_hits() == kept.place.without_hits() && !is_flushed;
        let Some(new) = self.publishable(added).filter(|_| shard.get(identity.tag).is_some_and(is_same)) else {
            // Of this object, maybe: what a later part took the place of is in the copy, too.
            if self.regions[region.number as usize].is_unclean() {
                self.set_unclean(added.region, true);
            }
            return Err(Lost::This);
        };
        shard.insert(identity.tag, new);
        self.counters.reinserted.one();
        Ok(takes)
    }

    /// Whether all that is missing of an object of which this is the first part may be there.
    fn has_other_parts(&self, hash: KeyHash, first: &ObjectHeader) -> bool {
        let missing = (first.total_bytes - first.value_bytes) as usize;
        let parts = missing.div_ceil(self.geometry.part_bytes_limit()) as u16;
        (1..=parts).all(|part| self.could_exist(part_hash(hash, first.order, part)))
    }

    /// Adds a copy, without reclaiming.
    fn add_copy(self: &Arc<Self>, draft: &Draft<'_>, terms: Terms) -> Option<Added> {
        let add = || {
            if self.fills_a_region(draft) {
                return self.add_alone(draft, terms.now);
            }
            self.add(self.group(draft.header.expiry, terms.now), draft, &mut Vec::new(), terms.now)
        };
        let most = || PATIENCE.min(terms.until.saturating_duration_since(Instant::now()));
        match add() {
            Err(Full::Buffers) if self.wait_for_buffer(self.left_by_copies(), most()) => add().ok(),
            added => added.ok(),
        }
    }
}

/// What an object takes of a region, its entry in the footer included.
fn in_region(object_bytes: usize) -> usize {
    object_bytes.next_multiple_of(UNIT) + FOOTER_ENTRY_BYTES
}

/// The same, and its share of what is left empty behind the last one of its length.
fn share_of_region(object_bytes: usize, region_bytes: usize) -> usize {
    region_bytes / ((region_bytes - REGION_HEADER_BYTES) / in_region(object_bytes)).max(1)
}

/// How many of these objects, the first ones, are read at once.
fn window(objects: &[Kept], most: usize) -> usize {
    let begin = objects[0].begin;
    let goes_on = |pair: &&[Kept]| pair[1].begin - pair[0].end <= GAP_BYTES && pair[1].end - begin <= most;
    1 + objects.windows(2).take_while(goes_on).count()
}
