//! Moving a long value out of the way of a shrink: it is copied as a whole to free segments, and its slot gets the
//! copy. The protocol, and why it loses nothing, is in `docs/concurrency.md`, Claims.

use super::maintenance::Progress;
use super::relocate::Departure;
use super::state::MoveSteps;
use crate::epoch::Participant;
use crate::item::{FIRST_BODY_OFFSET, ItemAt, Kind};
use crate::kill_point::{KillPoint, kill_point};
use crate::segment::{Location, SegmentId, State};
use crate::store::{Head, Store};
use crate::sync::{Ordering, try_lock};
use crate::time::Moment;

/// Result of an attempt to move a value.
enum Move {
    /// It was moved, or has changed meanwhile.
    Done,
    /// The segment is a body of no value now.
    NoOwner,
    /// The value is dead: nothing of it is to be kept.
    Dead,
    /// Too few segments are free.
    NeedsSegments,
}

impl Store {
    /// One step of emptying the topmost segment, a body: its value is moved, or space for that is made. If there is no
    /// space the value is dropped, in a store that evicts. False if nothing can be done now.
    pub(super) fn empty_body(
        &self,
        participant: &Participant,
        body: SegmentId,
        moment: Moment,
        may_evict: bool,
    ) -> bool {
        let Some(mut made) = try_lock(&self.maintenance.value_move) else { return false };
        if made.body != body.number() {
            *made = MoveSteps { body: body.number(), steps: 0 };
        }
        let hash = self.segments.header(body).owner_hash.load(Ordering::Relaxed);
        match self.move_value(participant, body, hash, moment) {
            Move::Done => true,
            Move::NoOwner => false,
            Move::Dead => self.drop_value_of_body(participant, body, hash, moment),
            // Retired segments are freed when a reader unpins: until then more evictions would free nothing.
            Move::NeedsSegments if self.segments.reclaim().waiting >= self.retired_limit() => false,
            Move::NeedsSegments => {
                // Ends: writers may take the freed segments, but only a bounded number of times.
                made.steps += 1;
                made.steps <= self.segments.limit() && self.make_space(participant, moment, may_evict)
                    || may_evict && self.drop_value_of_body(participant, body, hash, moment)
            }
        }
    }

    /// One slice of a job that frees segments, without evictions as long as that is possible. Paused evictions are not
    /// resumed for a caller that may not evict.
    fn make_space(&self, participant: &Participant, moment: Moment, may_evict: bool) -> bool {
        if !may_evict {
            return self.resume_relocation(participant, moment)
                || self.plan_job(participant, moment, false).is_some_and(|job| {
                    self.run_job_slice(participant, moment, job);
                    true
                });
        }
        self.run_or_choose_job(participant, moment, false) == Progress::Working
            || self.options.evicts && self.run_or_choose_job(participant, moment, true) == Progress::Working
    }

    fn move_value(&self, participant: &Participant, body: SegmentId, hash: u64, moment: Moment) -> Move {
        let _pin = participant.pin();
        let owner = {
            let pair = self.index.lock_pair(hash);
            pair.find(|slot| self.owns_body(&self.item(slot), body)).map(|place| self.item(place.slot))
        };
        let Some(item) = owner else { return Move::NoOwner };
        if !self.is_live(&item, moment) {
            return Move::Dead;
        }
        let Some(first) = self.copy_bodies(&item, hash) else { return Move::NeedsSegments };
        match self.publish_moved(participant, &item, hash, first, moment) {
            Some(true) => Move::Done,
            outcome => {
                self.segments.retire(first);
                // Without a segment for its head the value waits, too.
                outcome.map_or(Move::NeedsSegments, |_| Move::Done)
            }
        }
    }

    /// Whether a segment is among the bodies of an item. Protection as in `item`.
    fn owns_body(&self, item: &ItemAt, body: SegmentId) -> bool {
        if item.header.kind() != Kind::Chained {
            return false;
        }
        // SAFETY: the caller's protection.
        let chained = unsafe { item.chained(&self.segments.arena) };
        let mut owns = false;
        self.segments
            .each_body(chained.first_body, chained.total - item.tail().1, |segment, _| owns |= segment == body);
        owns
    }

    /// Copies the bodies of a pinned value to free segments that the shrink leaves alone. Returns the first one. `None`
    /// if too few are free.
    fn copy_bodies(&self, item: &ItemAt, hash: u64) -> Option<SegmentId> {
        // SAFETY: the caller holds a pin under which it found the item.
        let chained = unsafe { item.chained(&self.segments.arena) };
        let in_bodies = chained.total - item.tail().1;
        let count = in_bodies.div_ceil(self.segments.segment_bytes());
        let mut places = self.places_for_move();
        if self.segments.free_for_writers() < count || places.clone().take(count as usize).count() < count as usize {
            return None;
        }
        let (mut first, mut last) = (None, None::<SegmentId>);
        let mut has_all = true;
        self.segments.each_body(chained.first_body, in_bodies, |from, bytes| {
            let Some(to) = has_all.then(|| places.find(|place| self.segments.take_free(*place))).flatten() else {
                has_all = false;
                return;
            };
            let header = self.segments.header(to);
            header.is_body.store(1, Ordering::Relaxed);
            header.owner_hash.store(hash, Ordering::Relaxed);
            match last {
                Some(last) => self.segments.header(last).next.store(to.number(), Ordering::Relaxed),
                None => first = Some(to),
            }
            last = Some(to);
            // SAFETY: the source is pinned; the destination was taken just now.
            unsafe { self.segments.arena.copy(Location::new(from, 0), Location::new(to, 0), bytes as usize) };
        });
        let first = first?;
        if !has_all {
            self.segments.retire(first);
            return None;
        }
        std::iter::successors(Some(first), |body| self.segments.next_body(*body))
            .for_each(|body| self.segments.header(body).pass_to(State::Body));
        Some(first)
    }

    /// The free segments that the shrink does not want, the lowest first. In a store that keeps everything all: each
    /// move lowers the limit. Others may take them meanwhile.
    fn places_for_move(&self) -> impl Iterator<Item = SegmentId> + Clone + use<'_> {
        let target = self.budget.target.load(Ordering::Relaxed);
        let is_shared = self.budget.page_rule().is_shared();
        let stays = move |segment| self.segments.stays_within(segment, target, is_shared);
        let is_free = |segment| self.segments.header(segment).state() == State::Free;
        self.segments.ids().filter(move |segment| is_free(*segment) && (!self.options.evicts || stays(*segment)))
    }

    /// Publishes the copy of a value, with these bodies, in the place of the original. `None` if no segment is free for
    /// its head. False if the key has another item by now.
    fn publish_moved(
        &self,
        participant: &Participant,
        item: &ItemAt,
        hash: u64,
        first: SegmentId,
        moment: Moment,
    ) -> Option<bool> {
        let arena = &self.segments.arena;
        let life = self.lifetime_until(self.expiry_seconds(item), moment);
        // SAFETY: the caller holds a pin under which it found the item.
        let (key, flags, extension) = unsafe {
            let key = item.key(arena);
            (key, item.flags(arena), item.extension(arena))
        };
        let (exact, kind, value_length) = (life.exact, Kind::Chained, item.header.value_length());
        let head = Head { key, flags, extension, exact, kind, value_length };
        let size = head.size() as u32;
        let reserved = self.reserve(participant, size, life, moment)?;
        let value_at = self.write_head(&reserved, &head);
        // SAFETY: the reservation owns the new range; the old one is pinned.
        unsafe {
            arena.copy(item.value_at(), value_at, item.header.value_length() as usize);
            arena.write(value_at.plus(FIRST_BODY_OFFSET), &first.number().to_le_bytes());
        }
        kill_point(KillPoint::RelocationCopy);
        let generation = |at: Location| self.segments.header(at.segment()).generation.load(Ordering::Relaxed);
        let to = Location::new(reserved.segment, reserved.offset);
        let mut pair = self.index.lock_pair(hash);
        let place = pair.find(|slot| slot.location() == item.at);
        let Some(place) = place.filter(|_| generation(item.at) == generation(to)) else { return Some(false) };
        let unlinked = self.footprint(place.slot);
        let frequency = pair.reread(&place).frequency();
        pair.replace(&place, place.slot.moved(to, frequency));
        kill_point(KillPoint::RelocationSlot);
        self.account_unlinked(&unlinked);
        drop(pair);
        self.segments.header(reserved.segment).add_live(size, unlinked.body_bytes);
        reserved.commit(&self.segments);
        self.retire_body(&unlinked);
        Some(true)
    }

    /// Drops the value that owns a body. False if there is none, or if it is alive in a store that does not evict.
    ///
    /// `body` and `hash` were read from a header without a lock: the segment may be in other use by now, also as a body
    /// of another value. So under the bucket locks of the key the value is dropped only if the segment is among its
    /// bodies.
    pub(super) fn drop_value_of_body(
        &self,
        participant: &Participant,
        body: SegmentId,
        hash: u64,
        moment: Moment,
    ) -> bool {
        let mut pair = self.index.lock_pair(hash);
        let Some(place) = pair.find(|slot| self.owns_body(&self.item(slot), body)) else {
            return false;
        };
        let unlinked = self.footprint(place.slot);
        let item = self.item(place.slot);
        let is_live = self.is_live(&item, moment);
        if is_live && !self.options.evicts {
            return false;
        }
        let control = pair.control(Some(&place));
        let is_demoted = self.demote(participant, place.slot, control, moment);
        let notice = self.prepare_removal_notice(participant, place.slot, control, is_demoted);
        pair.remove(&place);
        kill_point(KillPoint::Removal);
        self.account_unlinked(&unlinked);
        drop(pair);
        self.retire_body(&unlinked);
        self.note_unlinked(participant, &item, Departure { was_live: is_live, is_demoted }, notice, moment);
        self.settle_lower_tier(moment);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::evict::jobs::Job;
    use crate::evict::shrink::tests::{TWO_SEGMENTS_BYTES, store_with_its_top_first};
    use crate::ops::{MetaFlags, MetaFlagsChange, MetaFlagsLookup, Mode, Write};
    use crate::options::Options;
    use crate::segment::Purpose;
    use crate::ttl::Ttl;
    use std::sync::Arc;

    fn set_long(store: &Store, participant: &Participant, key: &[u8], value: &[u8], ttl: Ttl) {
        let write = Write { key, hash: store.hash(key), value, flags: 7.into(), ttl, mode: Mode::Set, token: None };
        store.write(participant, &write, 1000).unwrap();
    }

    fn bytes_of(store: &Store, participant: &Participant, key: &[u8]) -> Option<Vec<u8>> {
        let item = store.get(participant, key, store.hash(key), 1000)?;
        let mut bytes = Vec::new();
        item.copy_to(&mut bytes);
        Some(bytes)
    }

    fn settle(store: &Store, participant: &Participant) {
        while store.maintain(participant, 1000) == Progress::Working {}
    }

    /// Bytes that tell each place of a value from all others.
    fn pattern(seed: usize, length: usize) -> Vec<u8> {
        (0..length).map(|at| (((at + seed) * 2_654_435_761) >> 13) as u8).collect()
    }

    #[test]
    fn moving_a_topmost_body_keeps_its_metadata() {
        for evicts in [true, false] {
            let (store, participant, held) = store_with_its_top_first(evicts);
            let (key, value) = (b"long", pattern(1, 10_000));
            let hash = store.hash(key);
            set_long(&store, &participant, key, &value, Ttl::seconds(100));
            let lookup = MetaFlagsLookup { create: None, counts: false };
            let stale = MetaFlagsChange { ttl: None, flags: MetaFlags::Stale { token: Some(99) } };
            store.update_meta_flags(&participant, (key, hash), lookup, 1000, |_| Some(stale)).unwrap();
            let seen = || {
                let item = store.peek(&participant, key, hash, 1000).expect("it is kept");
                // SAFETY: the borrow of the item protects it.
                let chained = unsafe { item.item_at().chained(&store.segments.arena) };
                let moved = (item.item_at().at, chained.first_body);
                let kept = (item.flags(), item.extension(), item.expiry_seconds(), item.token());
                (moved, kept)
            };
            let frequency = || store.index.find(hash, |_| true).expect("it is kept").slot.frequency();
            (0..3).for_each(|_| assert!(bytes_of(&store, &participant, key).is_some()));
            let (before, uses) = (seen(), frequency());
            assert!(uses > 0);
            store.resize((1 << 20) - TWO_SEGMENTS_BYTES).unwrap();
            settle(&store, &participant);
            let after = seen();
            assert!(before.0.0 != after.0.0 && before.0.1 != after.0.1, "{before:?} {after:?}");
            assert_eq!((before.1, uses), (after.1, frequency()));
            assert!(store.resize_done());
            assert_eq!(bytes_of(&store, &participant, key).as_ref(), Some(&value));
            held.into_iter().for_each(|segment| store.segments.retire(segment));
            store.verify(&participant, 1000);
        }
    }

    #[test]
    fn only_evicting_stores_drop_an_unmovable_body() {
        for evicts in [true, false] {
            let (store, participant, _held) = store_with_its_top_first(evicts);
            set_long(&store, &participant, b"long", &pattern(1, 10_000), Ttl::Never);
            let _taken: Vec<_> = std::iter::from_fn(|| store.segments.take(Purpose::Write)).collect();
            store.resize((1 << 20) - TWO_SEGMENTS_BYTES).unwrap();
            settle(&store, &participant);
            let is_there = bytes_of(&store, &participant, b"long").is_some();
            assert_eq!((is_there, store.resize_done()), (!evicts, evicts));
        }
    }

    #[test]
    fn a_handle_keeps_a_moved_values_memory() {
        let (store, participant, held) = store_with_its_top_first(true);
        let value = pattern(1, 10_000);
        set_long(&store, &participant, b"long", &value, Ttl::Never);
        let handle = store.get(&participant, b"long", store.hash(b"long"), 1000).unwrap().to_handle(&store).unwrap();
        store.resize((1 << 20) - TWO_SEGMENTS_BYTES).unwrap();
        settle(&store, &participant);
        assert!(!store.resize_done());
        let mut lent = Vec::new();
        while lent.len() < handle.len() {
            lent.extend_from_slice(handle.slice_at(lent.len()));
        }
        assert_eq!(lent, value);
        assert_eq!(bytes_of(&store, &participant, b"long").as_ref(), Some(&value));
        drop(handle);
        settle(&store, &participant);
        assert!(store.resize_done());
        assert_eq!(bytes_of(&store, &participant, b"long").as_ref(), Some(&value));
        held.into_iter().for_each(|segment| store.segments.retire(segment));
        store.verify(&participant, 1000);
    }

    /// Long values that were written behind many small ones survive a shrink to where the small ones were.
    #[test]
    fn long_values_survive_shrinks_with_space() {
        let options = Options { memory_bytes: 64 << 20, value_bytes_max: 8 << 20, ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let small = |number: u32| number.to_le_bytes();
        for number in 0..45_000 {
            set_long(&store, &participant, &small(number), &[1; 1000], Ttl::Never);
        }
        for number in 0..10 {
            set_long(&store, &participant, &[b'L', number], &pattern(number.into(), 700_000), Ttl::Never);
        }
        for number in 0..45_000 {
            store.delete(&participant, &small(number), store.hash(&small(number)), 1000);
        }
        store.resize(24 << 20).unwrap();
        settle(&store, &participant);
        assert!(store.resize_done());
        for number in 0..10 {
            let bytes = bytes_of(&store, &participant, &[b'L', number]);
            assert_eq!(bytes, Some(pattern(number.into(), 700_000)), "value {number}");
        }
        assert_eq!(store.stats().evictions, 0);
        store.verify(&participant, 1000);
    }

    #[test]
    fn a_change_during_the_move_is_kept() {
        let (store, participant, held) = store_with_its_top_first(true);
        let (key, hash) = (b"long", store.hash(b"long"));
        set_long(&store, &participant, key, &pattern(1, 10_000), Ttl::Never);
        let item = store.get(&participant, key, hash, 1000).unwrap().item_at();
        let first = {
            let _pin = participant.pin();
            let first = store.copy_bodies(&item, hash).unwrap();
            set_long(&store, &participant, key, b"new", Ttl::Never);
            assert_eq!(store.publish_moved(&participant, &item, hash, first, store.moment(1000)), Some(false));
            first
        };
        held.into_iter().chain([first]).for_each(|segment| store.segments.retire(segment));
        assert_eq!(bytes_of(&store, &participant, key).as_deref(), Some(&b"new"[..]));
        store.verify(&participant, 1000);
    }

    #[test]
    fn an_outdated_body_hash_drops_nothing() {
        let (store, participant, held) = store_with_its_top_first(true);
        held.iter().for_each(|segment| store.segments.retire(*segment));
        store.segments.reclaim();
        let hashes = [b"one", b"two"].map(|key| store.hash(key));
        let bodies = [b"one", b"two"].map(|key| {
            let mut upload = store.upload(key, store.hash(key), 0.into(), 10_000).unwrap();
            upload.write(&mut &[1; 10_000][..]).unwrap();
            let is_body = |segment: &SegmentId| {
                let header = store.segments.header(*segment);
                header.state() == State::Open && header.is_body.load(Ordering::Relaxed) == 1
            };
            let body = store.segments.ids().find(is_body).expect("it has come");
            upload.finish(&participant, Ttl::Never, Mode::Set, None, 1000).unwrap();
            body
        });
        let moment = store.moment(1000);
        // As if the hash was read before the segment became a body of the other value, or after.
        for (body, hash) in [(bodies[0], hashes[1]), (bodies[1], hashes[0]), (bodies[0], 0)] {
            assert!(!store.drop_value_of_body(&participant, body, hash, moment));
        }
        assert_eq!(store.stats().items, 2);
        assert!(store.drop_value_of_body(&participant, bodies[0], hashes[0], moment));
        assert!(store.get(&participant, b"two", hashes[1], 1000).is_some());
        store.verify(&participant, 1000);
    }

    fn set_small(store: &Store, participant: &Participant, number: u32) {
        let key = number.to_le_bytes();
        let (hash, ttl) = (store.hash(&key), Ttl::Never);
        let write = Write { key: &key, hash, value: &[7; 1000], flags: 0.into(), ttl, mode: Mode::Set, token: None };
        while store.write(participant, &write, 1000).is_err() {
            assert_ne!(store.evict(participant, 1000), Progress::Stuck);
        }
    }

    /// A store that is full, with a long value on top that was written last.
    fn full_store_with_a_long_value_on_top(length: usize) -> (Arc<Store>, Participant, Vec<u8>) {
        let (store, participant, mut held) = store_with_its_top_first(true);
        let mut top: Vec<_> = std::iter::from_fn(|| store.segments.take(Purpose::Merge)).collect();
        top.sort();
        held.drain(..).for_each(|segment| store.segments.retire(segment));
        store.segments.reclaim();
        let mut number = 0;
        while store.segments.free_for_writers() > 0 {
            set_small(&store, &participant, number);
            number += 1;
        }
        top.into_iter().for_each(|segment| store.segments.retire(segment));
        store.segments.reclaim();
        let value = pattern(1, length);
        set_long(&store, &participant, b"long", &value, Ttl::Never);
        while store.segments.free_for_writers() > 0 {
            set_small(&store, &participant, number);
            number += 1;
        }
        assert_eq!(store.segments.top_state(), State::Body);
        (store, participant, value)
    }

    #[test]
    fn pinned_readers_do_not_make_moves_evict() {
        let (store, participant, value) = full_store_with_a_long_value_on_top(10_000);
        let reader = store.participate();
        let pin = reader.pin();
        let before = store.stats().items;
        store.resize((1 << 20) - TWO_SEGMENTS_BYTES).unwrap();
        for _ in 0..5000 {
            store.maintain(&participant, 1000);
        }
        let items = store.stats().items;
        assert!(items > before / 4 * 3, "{items} of {before} items are left");
        drop(pin);
        settle(&store, &participant);
        assert!(store.resize_done());
        assert_eq!(bytes_of(&store, &participant, b"long"), Some(value));
        store.verify(&participant, 1000);
    }

    /// Segments freed last are above, and are tried first by others.
    #[test]
    fn free_segments_above_do_not_hide_those_below() {
        let segment_size = Some(4 << 10);
        let options = Options { memory_bytes: 8 << 20, segment_size, value_bytes_max: 1 << 20, ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let mut taken: Vec<_> = std::iter::from_fn(|| store.segments.take(Purpose::Merge)).collect();
        taken.sort();
        let free = |segments: Vec<SegmentId>| {
            segments.into_iter().for_each(|segment| store.segments.retire(segment));
            store.segments.reclaim();
        };
        free(taken.split_off(taken.len() - 8));
        let value = pattern(1, 20_000);
        set_long(&store, &participant, b"long", &value, Ttl::Never);
        free(taken);
        store.resize(5 << 20).unwrap();
        settle(&store, &participant);
        assert!(store.resize_done());
        assert_eq!(store.stats().evictions, 0, "most of the memory is free");
        assert_eq!(bytes_of(&store, &participant, b"long"), Some(value));
        store.verify(&participant, 1000);
    }

    #[test]
    fn non_evicting_moves_leave_paused_evictions() {
        let (store, participant, _) = full_store_with_a_long_value_on_top(10_000);
        let job = store.plan_job(&participant, store.moment(1000), true).expect("something is sealed");
        assert!(matches!(job, Job::Eviction(_)));
        store.pause_job(job);
        store.resize((1 << 20) - TWO_SEGMENTS_BYTES).unwrap();
        for _ in 0..1000 {
            store.maintain_without_evicting(&participant, 1000);
        }
        assert_eq!(store.stats().evictions, 0);
        settle(&store, &participant);
        assert!(store.resize_done());
        store.verify(&participant, 1000);
    }
}
