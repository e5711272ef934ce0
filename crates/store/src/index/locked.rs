//! Operations of a writer that holds the locks of a key's candidate buckets.
//!
//! Lock order: the two candidates in ascending order; a third bucket, for a displacement, only by try-lock. The
//! addresses are computed again after locking, because a split may have changed them.
//!
//! The CAS token of an item is the sequence of its bucket. Every change gives the changed bucket a sequence greater
//! than those of all candidates, and a bucket made by a split starts with more than its parent. So the largest sequence
//! among a key's candidates is never less than a token issued for the key: an item that is changed, relocated, or
//! deleted and stored again never has an old token.

use super::{BUCKET_SLOTS, Candidates, Control, Found, Index, Items, Slot, Tag};
use crate::kill_point::{KillPoint, kill_point};
use crate::sync::{Backoff, Ordering, load_to_write, note_lock, store_over};

/// Further slots that a displacement may displace, one after the other.
const DISPLACEMENTS: u32 = 2;
/// Neighbours whose displacements are prefetched together, so that the cache misses overlap.
const DISPLACEMENT_BATCH: usize = 4;

/// Both candidate buckets of a key, locked. Dropping it unlocks them.
pub struct LockedPair<'i> {
    index: &'i Index,
    buckets: Candidates,
    first: LockedBucket,
    /// `None` when both candidates are the same bucket.
    second: Option<LockedBucket>,
    tag: Tag,
}

struct LockedBucket {
    control: Control,
    changed: bool,
}

/// A slot of the pair.
#[derive(Clone, Copy, Debug)]
pub struct SlotPlace {
    bucket: usize,
    position: usize,
    pub slot: Slot,
}

/// A slot of a locked pair that takes a new key: an empty one, or one whose key was copied to its other candidate. The
/// latter must be overwritten before the pair is unlocked.
#[derive(Debug)]
#[must_use = "a key that was displaced is in two buckets until its old slot is filled"]
pub struct Vacancy {
    bucket: usize,
    position: usize,
    placed: Placement,
}

/// Where a new slot was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In an empty slot of a candidate.
    Free,
    /// In the slot of a key that was displaced to its other candidate.
    Displaced,
    /// In the slot of the least used neighbour, which has left the index and must be accounted for.
    Replaced(Slot),
}

impl Index {
    /// Locks the candidates of a hash.
    pub fn lock_pair(&self, hash: u64) -> LockedPair<'_> {
        loop {
            let split = self.split();
            let buckets = split.candidates(hash);
            let (low, high) = (buckets.first.min(buckets.second), buckets.first.max(buckets.second));
            let low_locked = LockedBucket { control: self.lock_bucket(low), changed: false };
            let high_locked = (low != high).then(|| LockedBucket { control: self.lock_bucket(high), changed: false });
            let (first, second) = match high_locked {
                Some(locked) if buckets.first == low => (low_locked, Some(locked)),
                Some(locked) => (locked, Some(low_locked)),
                None => (low_locked, None),
            };
            let pair = LockedPair { index: self, buckets, first, second, tag: Tag::of(hash) };
            if split.agrees_on(self.split(), hash) {
                return pair;
            }
        }
    }

    /// Locks two buckets, the lower one first, if both are unlocked. The pair is of no key.
    pub(super) fn try_lock_two(&self, first: usize, second: usize) -> Option<LockedPair<'_>> {
        debug_assert!(first < second, "ascending order");
        let first_control = self.try_lock_bucket(first)?;
        let Some(second_control) = self.try_lock_bucket(second) else {
            self.unlock_bucket(first, first_control, first_control.sequence());
            return None;
        };
        Some(LockedPair {
            index: self,
            buckets: Candidates { first, second },
            first: LockedBucket { control: first_control, changed: false },
            second: Some(LockedBucket { control: second_control, changed: false }),
            tag: Tag::of(0),
        })
    }

    /// `find` under the locks of the candidates.
    #[cold]
    pub(super) fn find_locked<T>(&self, hash: u64, read: impl FnMut(Slot) -> Option<T>) -> Option<(Found, T)> {
        let pair = self.lock_pair(hash);
        let (place, answer) = pair.find_with(read)?;
        let SlotPlace { bucket, position, slot } = place;
        Some((Found { bucket, position, slot, control: pair.control(Some(&place)) }, answer))
    }

    pub(super) fn lock_bucket(&self, bucket: usize) -> Control {
        let mut backoff = Backoff::new();
        loop {
            if let Some(control) = self.try_lock_bucket(bucket) {
                return control;
            }
            backoff.wait();
        }
    }

    pub(super) fn try_lock_bucket(&self, bucket: usize) -> Option<Control> {
        let word = &self.buckets.at(bucket).control;
        let control = Control::from_word(load_to_write(word, Ordering::Relaxed));
        if control.is_locked() {
            note_lock(word, false);
            return None;
        }
        // Acquire pairs with the Release of `unlock_bucket`: the slots are as the last holder left them.
        let locked = control.locked().word();
        let is_locked = word.compare_exchange(control.word(), locked, Ordering::Acquire, Ordering::Relaxed).is_ok();
        note_lock(word, is_locked);
        is_locked.then_some(control)
    }

    pub(super) fn unlock_bucket(&self, bucket: usize, control: Control, sequence: u64) {
        // Pairs with the Acquire of `control` and of `try_lock_bucket`.
        store_over(&self.buckets.at(bucket).control, control.released(sequence).word(), Ordering::Release);
    }
}

impl LockedPair<'_> {
    /// The slot with the key's tag for which `is_it` holds.
    pub fn find(&self, mut is_it: impl FnMut(Slot) -> bool) -> Option<SlotPlace> {
        self.find_with(|slot| is_it(slot).then_some(())).map(|(place, ())| place)
    }

    /// The slot with the key's tag for which `read` answers, and the answer.
    pub fn find_with<T>(&self, mut read: impl FnMut(Slot) -> Option<T>) -> Option<(SlotPlace, T)> {
        let mut look = |bucket: usize| {
            let load = |slot: &_| load_to_write(slot, Ordering::Acquire);
            let (position, slot, answer) = self.index.scan(bucket, self.tag, load, &mut read)?;
            Some((SlotPlace { bucket, position, slot }, answer))
        };
        look(self.buckets.first).or_else(|| self.second.as_ref().and_then(|_| look(self.buckets.second)))
    }

    /// The sequence of the bucket that holds a slot, from which its item's CAS token is made.
    pub fn sequence(&self, place: &SlotPlace) -> u64 {
        self.locked(place.bucket).control.sequence()
    }

    /// The sequence that the changed buckets get when the pair is unlocked.
    pub fn next_sequence(&self) -> u64 {
        self.top_sequence() + 1
    }

    fn locked(&self, bucket: usize) -> &LockedBucket {
        if bucket == self.buckets.first {
            &self.first
        } else {
            self.second.as_ref().expect("the bucket of a place is one of the pair")
        }
    }

    /// Counts a change of the item in this place: its CAS token changes.
    pub fn mark_changed(&mut self, place: &SlotPlace) {
        self.mark(place.bucket);
    }

    fn mark(&mut self, bucket: usize) {
        let locked = if bucket == self.buckets.first { Some(&mut self.first) } else { self.second.as_mut() };
        locked.expect("the bucket is one of the pair").changed = true;
    }

    /// The control word of a place's bucket, as it was when it was locked; without a place, of the key's first one.
    pub fn control(&self, place: Option<&SlotPlace>) -> Control {
        place.map_or(&self.first, |place| self.locked(place.bucket)).control
    }

    /// Puts `new` into this place.
    pub fn replace(&mut self, place: &SlotPlace, new: Slot) {
        self.index.store_slot(place.bucket, place.position, new);
        self.mark(place.bucket);
    }

    pub fn remove(&mut self, place: &SlotPlace) {
        self.replace(place, Slot::EMPTY);
    }

    /// The present slot of a place: readers may have counted accesses since it was found.
    pub fn reread(&self, place: &SlotPlace) -> Slot {
        self.index.locked_slot(place.bucket, place.position)
    }

    /// Finds a slot for a key that `find` did not find: an empty one in the less loaded bucket, or that of a neighbour
    /// displaced to its other candidate. `None`, with nothing changed, if there is none.
    pub fn find_vacancy(&self, items: &impl Items) -> Option<Vacancy> {
        let first = self.empty_position(self.buckets.first);
        let second = self.second.as_ref().and_then(|_| self.empty_position(self.buckets.second));
        let (bucket, position) = match (first, second) {
            (Some((_, first_load)), Some((position, second_load))) if second_load < first_load => {
                (self.buckets.second, position)
            }
            (Some((position, _)), _) => (self.buckets.first, position),
            (None, Some((position, _))) => (self.buckets.second, position),
            (None, None) => return self.displace_for_vacancy(items),
        };
        Some(Vacancy { bucket, position, placed: Placement::Free })
    }

    /// Puts a slot into a vacancy of this pair.
    pub fn fill(&mut self, vacancy: Vacancy, new: Slot) -> Placement {
        self.index.store_slot(vacancy.bucket, vacancy.position, new);
        self.mark(vacancy.bucket);
        vacancy.placed
    }

    /// Puts a slot into the place of the least used neighbour, when `find_vacancy` has found none.
    pub fn replace_coldest(&mut self, new: Slot) -> Placement {
        let places = self.candidate_places();
        let coldest = places.min_by_key(|place| place.slot.frequency()).expect("a full bucket has slots");
        self.replace(&coldest, new);
        Placement::Replaced(coldest.slot)
    }

    /// Whether the slots in use of both buckets fit one.
    pub(super) fn fits_one(&self) -> bool {
        self.distinct_buckets().flat_map(|bucket| self.slots_of(bucket)).count() <= BUCKET_SLOTS
    }

    /// The slots in use of a bucket of the pair.
    pub(super) fn slots_of(&self, bucket: usize) -> impl Iterator<Item = Slot> {
        self.places(bucket).map(|place| place.slot).filter(|slot| !slot.is_empty())
    }

    /// Moves a slot of the pair to the other candidate of its key. False, with nothing changed, if none can be moved.
    pub(super) fn move_one_out(&mut self, items: &impl Items) -> bool {
        let in_use = || self.candidate_places().filter(|place| !place.slot.is_empty());
        let place = (0..=DISPLACEMENTS).find_map(|depth| in_use().find(|place| self.displace(place, items, depth)));
        if let Some(place) = place {
            self.remove(&place);
        }
        place.is_some()
    }

    /// Moves all slots of one bucket of the pair to the other one, in which they have places.
    pub(super) fn move_all(&mut self, from: usize, to: usize) {
        for place in self.places(from).filter(|place| !place.slot.is_empty()) {
            let (position, _) = self.empty_position(to).expect("all slots fit one bucket");
            // A reader that started with the old split word finds the slot until it is emptied.
            self.index.store_slot(to, position, self.index.locked_slot(place.bucket, place.position));
            kill_point(KillPoint::ContractionSlot);
            self.index.store_slot(place.bucket, place.position, Slot::EMPTY);
        }
        self.mark(from);
        self.mark(to);
    }

    /// An empty position and the number of slots in use.
    fn empty_position(&self, bucket: usize) -> Option<(usize, usize)> {
        let mut empty = None;
        let mut load = 0;
        for position in 0..BUCKET_SLOTS {
            if self.index.locked_slot(bucket, position).is_empty() {
                empty = Some(position);
            } else {
                load += 1;
            }
        }
        empty.map(|position| (position, load))
    }

    fn displace_for_vacancy(&self, items: &impl Items) -> Option<Vacancy> {
        (0..=DISPLACEMENTS).find_map(|depth| {
            let leaver = self.candidate_places().enumerate().find_map(|(i, place)| {
                if depth == 0 && i % DISPLACEMENT_BATCH == 0 {
                    self.prefetch_displacements(i, items);
                }
                self.displace(&place, items, depth).then_some(place)
            })?;
            Some(Vacancy { bucket: leaver.bucket, position: leaver.position, placed: Placement::Displaced })
        })
    }

    /// Prefetches the memory that the next displacements read: the items, then their other candidate buckets. Not
    /// part of the loop that calls it, which would need more registers.
    #[inline(never)]
    fn prefetch_displacements(&self, first: usize, items: &impl Items) {
        let leavers =
            || self.candidate_places().skip(first).take(DISPLACEMENT_BATCH).map(|place| place.slot.location());
        leavers().for_each(|at| items.prefetch(at));
        leavers().for_each(|at| {
            self.index.prefetch(items.hash_at(at));
        });
    }

    fn candidate_places(&self) -> impl Iterator<Item = SlotPlace> {
        self.distinct_buckets().flat_map(|bucket| self.places(bucket))
    }

    fn places(&self, bucket: usize) -> impl Iterator<Item = SlotPlace> + use<'_> {
        let index = self.index;
        (0..BUCKET_SLOTS).map(move |position| SlotPlace { bucket, position, slot: index.locked_slot(bucket, position) })
    }

    fn distinct_buckets(&self) -> impl Iterator<Item = usize> + use<> {
        let second = self.second.as_ref().map(|_| self.buckets.second);
        std::iter::once(self.buckets.first).chain(second)
    }

    /// Copies the slot of a place to the other candidate of its key, if the lock is free and there is an empty slot, or
    /// one can be emptied by `depth` more displacements. The place still holds the slot until the caller overwrites it:
    /// a reader finds the item in at least one of the two.
    fn displace(&self, place: &SlotPlace, items: &impl Items, depth: u32) -> bool {
        let hash = items.hash_at(place.slot.location());
        let candidates = || self.index.split().candidates(hash);
        let theirs = candidates();
        let other = if theirs.first == place.bucket { theirs.second } else { theirs.first };
        if other == place.bucket || self.distinct_buckets().any(|bucket| bucket == other) {
            return false;
        }
        let Some(control) = self.index.try_lock_bucket(other) else {
            return false;
        };
        let unlock = |sequence| self.index.unlock_bucket(other, control, sequence);
        let free_position = || {
            // The other bucket may have been split after the split word was read and before the lock was taken.
            if candidates() != theirs {
                return None;
            }
            let empty = self.empty_position(other).map(|(position, _)| position);
            if !self.index.cursors.may_move(place.bucket, other) {
                return None;
            }
            empty.or_else(|| {
                let deeper = depth.checked_sub(1)?;
                self.places(other).for_each(|place| items.prefetch(place.slot.location()));
                self.places(other).find(|place| self.displace(place, items, deeper)).map(|place| place.position)
            })
        };
        let Some(position) = free_position() else {
            unlock(control.sequence());
            return false;
        };
        self.index.cursors.note_move(hash, place.bucket, other);
        self.index.store_slot(other, position, self.index.locked_slot(place.bucket, place.position));
        let from = self.index.control(place.bucket).sequence();
        unlock(control.sequence().max(from).max(self.top_sequence()) + 1);
        kill_point(KillPoint::Displacement);
        true
    }

    fn top_sequence(&self) -> u64 {
        let second = self.second.as_ref().map_or(0, |locked| locked.control.sequence());
        self.first.control.sequence().max(second)
    }
}

impl Drop for LockedPair<'_> {
    fn drop(&mut self) {
        let next = self.next_sequence();
        let release = |bucket: usize, locked: &LockedBucket| {
            let sequence = if locked.changed { next } else { locked.control.sequence() };
            self.index.unlock_bucket(bucket, locked.control, sequence);
        };
        if let Some(locked) = &self.second {
            release(self.buckets.second, locked);
        }
        release(self.buckets.first, &self.first);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::index::SplitOutcome;
    use crate::segment::{Location, SegmentId};

    /// An index of keys that are their own hashes: the item of hash number `n` lies in "segment" `n + 1`.
    struct Keys {
        index: Index,
        hashes: Vec<u64>,
        present: Vec<usize>,
        random: u64,
    }

    impl Items for Vec<u64> {
        fn hash_at(&self, at: Location) -> u64 {
            self[at.segment().index()]
        }

        fn prefetch(&self, _at: Location) {}
    }

    impl Keys {
        fn new(level: u32) -> Self {
            let index = Index::new(level, 4 << level, crate::mapping::Pages::Huge).unwrap();
            Self { index, hashes: Vec::new(), present: Vec::new(), random: 1 }
        }

        fn draw(&mut self) -> u64 {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.random ^ self.random >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
        }

        fn at(number: usize) -> Location {
            Location::new(SegmentId::new(number as u32 + 1), 0)
        }

        fn insert(&mut self) -> Placement {
            let hash = self.draw();
            self.hashes.push(hash);
            let number = self.hashes.len() - 1;
            let slot = Slot::new(Tag::of(hash), 0, Self::at(number));
            let mut pair = self.index.lock_pair(hash);
            let placed = match pair.find_vacancy(&self.hashes) {
                Some(vacancy) => pair.fill(vacancy, slot),
                None => pair.replace_coldest(slot),
            };
            drop(pair);
            self.present.push(number);
            if let Placement::Replaced(slot) = placed {
                self.present.retain(|number| Self::at(*number) != slot.location());
            }
            placed
        }

        fn remove_any(&mut self) {
            let choice = self.draw() as usize % self.present.len();
            let number = self.present.swap_remove(choice);
            let mut pair = self.index.lock_pair(self.hashes[number]);
            let place = pair.find(|slot| slot.location() == Self::at(number)).expect("it is in the index");
            pair.remove(&place);
        }

        fn load(&self) -> f64 {
            self.present.len() as f64 / self.index.capacity() as f64
        }
    }

    #[test]
    fn at_88_percent_load_few_neighbours_are_lost() {
        let mut keys = Keys::new(9);
        keys.index.pay_for(512);
        let (mut inserted, mut replaced, mut displaced) = (0u32, 0u32, 0u32);
        while keys.index.length() < 1024 {
            while keys.load() < 0.88 {
                keys.insert();
            }
            for _ in 0..40 {
                keys.remove_any();
                match keys.insert() {
                    Placement::Free => {}
                    Placement::Displaced => displaced += 1,
                    Placement::Replaced(_) => replaced += 1,
                }
                inserted += 1;
            }
            assert_eq!(keys.index.split_one(&keys.hashes, || ()), SplitOutcome::Split);
        }
        assert!(displaced > inserted / 10, "{displaced} of {inserted} displaced");
        assert!(replaced < inserted / 2000, "{replaced} of {inserted} lost a neighbour");
        for number in keys.present.clone() {
            let found = keys.index.find(keys.hashes[number], |slot| slot.location() == Keys::at(number));
            assert!(found.is_some(), "key {number} is where a reader looks");
        }
    }

    /// Each read of a slot with the tag of the key, which is absent, changes the bucket.
    #[test]
    fn a_miss_ends_beside_a_changing_neighbour() {
        let mut keys = Keys::new(2);
        keys.insert();
        let hash = keys.hashes[0];
        let mut looks = 0;
        let found = keys.index.find(hash, |slot| {
            looks += 1;
            assert!(looks < 1000, "it does not end");
            let Candidates { first, second } = keys.index.split().candidates(hash);
            if !keys.index.control(first).is_locked() && !keys.index.control(second).is_locked() {
                let mut pair = keys.index.lock_pair(hash);
                let place = pair.find(|other| other == slot).expect("it is in the index");
                pair.replace(&place, slot);
            }
            false
        });
        assert!(found.is_none() && looks > 1, "{looks} looks");
    }
}
