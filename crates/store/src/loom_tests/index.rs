//! The index against itself: lookups, displacements and splits, with hashes chosen so that buckets collide.

use super::{hash_for, model};
use crate::index::{ContractOutcome, Index, Items, Placement, Slot, Split, SplitOutcome, Tag};
use crate::segment::{Location, SegmentId};
use loom::thread;
use std::sync::Arc;

/// Keys without items: the key numbered `n` has its item at segment n + 1, and this hash.
pub(super) struct Keys {
    pub index: Index,
    hashes: Vec<u64>,
}

impl Items for Keys {
    fn hash_at(&self, at: Location) -> u64 {
        self.hashes[at.segment().index()]
    }

    fn prefetch(&self, _at: Location) {}
}

impl Keys {
    /// An index of four buckets that may grow to eight, and keys with these candidates.
    pub fn new(candidates: &[(usize, usize)]) -> Self {
        let split = Split::new(2, 0);
        let hashes = candidates.iter().zip(1..).map(|(pair, tag)| hash_for(split, *pair, None, tag)).collect();
        Self::with_hashes(hashes)
    }

    /// As `new`, of keys with one tag, so that a lookup reads each slot.
    fn of_one_tag(candidates: &[(usize, usize)], tag: u64) -> Self {
        let split = Split::new(2, 0);
        Self::with_hashes(candidates.iter().map(|pair| hash_for(split, *pair, None, tag)).collect())
    }

    pub fn with_hashes(hashes: Vec<u64>) -> Self {
        let index = Index::new(2, 8, crate::mapping::Pages::Huge).expect("a model needs no mapping");
        index.pay_for(4);
        Self { index, hashes }
    }

    pub fn at(number: usize, offset: u32) -> Location {
        Location::new(SegmentId::new(number as u32 + 1), offset)
    }

    pub fn hash(&self, number: usize) -> u64 {
        self.hashes[number]
    }

    /// Puts a key in, or another item of it in its place, as a publication does.
    pub fn put(&self, number: usize, offset: u32) -> Placement {
        let hash = self.hash(number);
        let at = Self::at(number, offset);
        let mut pair = self.index.lock_pair(hash);
        match pair.find(|slot| slot.segment() == at.segment()) {
            Some(place) => {
                pair.replace(&place, place.slot.moved(at, 0));
                Placement::Free
            }
            None => {
                let slot = Slot::new(Tag::of(hash), 0, at);
                match pair.find_vacancy(self) {
                    Some(vacancy) => pair.fill(vacancy, slot),
                    None => pair.replace_coldest(slot),
                }
            }
        }
    }

    /// Puts an absent key in, as an insert does: where there is no slot, buckets are split in a turn.
    pub fn insert(&self, number: usize) {
        if self.try_insert(number) {
            return;
        }
        let (_turn, has_waited) = self.index.turns.take();
        if has_waited && self.try_insert(number) {
            return;
        }
        loop {
            assert_ne!(self.grow(), SplitOutcome::Unpaid);
            if self.try_insert(number) {
                return;
            }
        }
    }

    fn try_insert(&self, number: usize) -> bool {
        let hash = self.hash(number);
        let mut pair = self.index.lock_pair(hash);
        let vacancy = pair.find_vacancy(self);
        vacancy.map(|vacancy| pair.fill(vacancy, Slot::new(Tag::of(hash), 0, Self::at(number, 0)))).is_some()
    }

    /// Puts keys in while others, which then leave, fill a bucket.
    pub fn put_beside(&self, blockers: &[usize], numbers: &[usize]) {
        for &number in blockers.iter().chain(numbers) {
            assert_eq!(self.put(number, 0), Placement::Free);
        }
        for &number in blockers {
            self.remove(number);
        }
    }

    pub fn remove(&self, number: usize) {
        let mut pair = self.index.lock_pair(self.hash(number));
        let place = pair.find(|slot| slot.segment() == Self::at(number, 0).segment());
        pair.remove(&place.expect("the key is there"));
    }

    /// Where a lookup finds the key: the bucket and the item's offset, with the token.
    pub fn find(&self, number: usize) -> Option<(usize, u32, u64)> {
        let segment = Self::at(number, 0).segment();
        let found = self.index.find(self.hash(number), |slot| slot.segment() == segment)?;
        Some((found.bucket, found.slot.location().offset(), found.control.sequence()))
    }

    /// The offset of the key's item and its token, under its locks.
    pub fn held_if_there(&self, number: usize) -> Option<(u32, u64)> {
        let pair = self.index.lock_pair(self.hash(number));
        let place = pair.find(|slot| slot.segment() == Self::at(number, 0).segment())?;
        Some((place.slot.location().offset(), pair.sequence(&place)))
    }

    pub fn held(&self, number: usize) -> (u32, u64) {
        self.held_if_there(number).expect("the key is there")
    }

    pub fn grow(&self) -> SplitOutcome {
        self.index.split_one(self, || ())
    }

    pub fn contract(&self) -> ContractOutcome {
        self.index.try_contract_one(self)
    }

    /// Asserts that each of these keys is in exactly one slot, in a bucket of its own, and that nothing else is there.
    pub fn verify(&self, present: &[usize]) {
        let mut seen = Vec::new();
        let split = self.index.split();
        self.index.each_slot(|bucket, slot| {
            let number = slot.segment().index();
            let candidates = split.candidates(self.hash(number));
            assert!(bucket == candidates.first || bucket == candidates.second, "key {number} in bucket {bucket}");
            seen.push(number);
        });
        seen.sort_unstable();
        assert_eq!(seen, present);
        for &number in present {
            assert!(self.find(number).is_some(), "key {number} is found");
        }
    }
}

/// A full pair of buckets (0, 1) of which key 0 has space in bucket 2: key 4 displaces it there.
pub(super) fn full_pair(leaver: (usize, usize)) -> Keys {
    let keys = Keys::new(&[leaver, (0, 0), (1, 1), (1, 1), (0, 1), (2, 2), (2, 2)]);
    keys.put_beside(&[5, 6], &[0, 1, 2, 3]);
    assert_eq!(keys.find(0).map(|found| found.0), Some(0));
    keys
}

/// The key leaves for its second candidate, or for its first, which a lookup has looked at already.
#[test]
fn a_displaced_key_is_never_missed() {
    for leaver in [(0, 2), (2, 0)] {
        model(2, move || {
            let keys = Arc::new(full_pair(leaver));
            let writer = {
                let keys = Arc::clone(&keys);
                thread::spawn(move || assert_eq!(keys.put(4, 0), Placement::Displaced))
            };
            assert!(keys.find(0).is_some(), "key 0 is always there");
            writer.join().unwrap();
            assert_eq!(keys.find(0).map(|found| found.0), Some(2));
            keys.verify(&[0, 1, 2, 3, 4]);
        });
    }
}

/// As before, with keys of one tag; empty slots have the tag 0, too.
#[test]
fn displaced_keys_of_one_tag_are_found() {
    for leaver in [(0, 2), (2, 0)] {
        model(2, move || {
            let keys = Keys::of_one_tag(&[leaver, (0, 0), (1, 1), (1, 1), (0, 1), (2, 2), (2, 2)], 0);
            keys.put_beside(&[5, 6], &[0, 1, 2, 3]);
            let keys = Arc::new(keys);
            let writer = {
                let keys = Arc::clone(&keys);
                thread::spawn(move || assert_eq!(keys.put(4, 0), Placement::Displaced))
            };
            assert!(keys.find(0).is_some(), "key 0 is always there");
            writer.join().unwrap();
            keys.verify(&[0, 1, 2, 3, 4]);
        });
    }
}

/// A key leaves a bucket that a walk has yet to visit for one that it may have visited.
#[test]
fn a_walk_visits_keys_displaced_behind_it() {
    model(3, || {
        let keys = Keys::new(&[(2, 0), (2, 2), (3, 3), (3, 3), (2, 3), (0, 0), (0, 0)]);
        keys.put_beside(&[5, 6], &[0, 1, 2, 3]);
        assert_eq!(keys.find(0).map(|found| found.0), Some(2));
        let keys = Arc::new(keys);
        let writer = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || keys.put(4, 0))
        };
        let mut walk = keys.index.begin_walk().expect("the first walk");
        let mut met = [false; 5];
        while let Some(visited) = keys.index.next_bucket(&mut walk) {
            let slots = visited.slots.iter().filter(|slot| !slot.is_empty());
            slots.for_each(|slot| met[slot.segment().index()] = true);
        }
        while let Some(hash) = keys.index.next_moved(&walk) {
            met[(0..5).find(|number| keys.hash(*number) == hash).expect("a key's hash")] = true;
        }
        keys.index.end_walk(&walk);
        let mut present: Vec<usize> = (0..5).collect();
        // The bucket to go to was being visited.
        if let Placement::Replaced(slot) = writer.join().unwrap() {
            present.retain(|number| *number != slot.segment().index());
        }
        assert!(present.iter().all(|number| *number == 4 || met[*number]), "{met:?}, {present:?}");
        keys.verify(&present);
    });
}

/// A split moves a key ahead of a walk, never out of its way.
#[test]
fn a_walk_visits_keys_that_splits_move() {
    model(3, || {
        let keys = Arc::new(Keys::with_hashes(splitting_hashes(1)));
        keys.put(0, 0);
        let splitter = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || assert_eq!(keys.grow(), SplitOutcome::Split))
        };
        let mut walk = keys.index.begin_walk().expect("the first walk");
        let visited = std::iter::from_fn(|| keys.index.next_bucket(&mut walk));
        let met = visited.flat_map(|visited| visited.slots).filter(|slot| !slot.is_empty()).count();
        assert!(met >= 1, "the key is met");
        keys.index.end_walk(&walk);
        splitter.join().unwrap();
        keys.verify(&[0]);
    });
}

/// Two writers displace into one bucket that has space for one key: nothing is lost unaccounted, nothing is there
/// twice.
#[test]
fn two_displacements_lose_and_double_nothing() {
    model(2, || {
        let keys = Keys::new(&[(0, 2), (0, 2), (1, 2), (1, 2), (0, 0), (1, 1), (2, 2), (2, 2)]);
        keys.put_beside(&[6, 7], &[0, 1, 2, 3]);
        keys.put(6, 0);
        let keys = Arc::new(keys);
        let writer = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || keys.put(4, 0))
        };
        let mine = keys.put(5, 0);
        let theirs = writer.join().unwrap();
        let mut present: Vec<usize> = (0..7).collect();
        for placed in [mine, theirs] {
            if let Placement::Replaced(slot) = placed {
                present.retain(|number| *number != slot.segment().index());
            }
        }
        assert!(present.len() < 7, "there is free memory for one");
        keys.verify(&present);
    });
}

/// A displacement makes its space by another one.
#[test]
fn a_chain_of_displacements_hides_no_key() {
    model(1, || {
        // Bucket 0 is full of keys whose other bucket 1 is full of keys whose other bucket 2 has space.
        let keys = Keys::new(&[(1, 2), (1, 2), (0, 1), (0, 1), (0, 0), (2, 2), (2, 2)]);
        keys.put_beside(&[5, 6], &[0, 1, 2, 3]);
        let keys = Arc::new(keys);
        let writer = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || assert_eq!(keys.put(4, 0), Placement::Displaced))
        };
        for number in [0, 2] {
            assert!(keys.find(number).is_some(), "key {number} is always there");
        }
        writer.join().unwrap();
        keys.verify(&[0, 1, 2, 3, 4]);
    });
}

/// Candidates of two keys that the split of bucket 0 tells apart: one goes to bucket 4, one stays.
pub(super) fn splitting_hashes(second: usize) -> Vec<u64> {
    let (now, next) = (Split::new(2, 0), Split::new(2, 1));
    vec![
        hash_for(now, (0, second), Some((next, (4, second))), 1),
        hash_for(now, (0, second), Some((next, (0, second))), 2),
        hash_for(now, (second, 0), Some((next, (second, 4))), 3),
    ]
}

#[test]
fn a_split_hides_no_key() {
    model(2, || {
        let keys = Arc::new(Keys::with_hashes(splitting_hashes(1)));
        keys.put(0, 0);
        let splitter = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || assert_eq!(keys.grow(), SplitOutcome::Split))
        };
        assert!(keys.find(0).is_some(), "the key that moves");
        assert!(keys.find(1).is_none(), "a key that is not there");
        splitter.join().unwrap();
        keys.verify(&[0]);
    });
}

/// The writer recomputes its addresses after locking: else it would put the key where no lookup finds it, or twice.
#[test]
fn a_put_beside_a_split_is_found() {
    model(3, || {
        let keys = Arc::new(Keys::with_hashes(splitting_hashes(1)));
        keys.put(0, 0);
        let splitter = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || assert_eq!(keys.grow(), SplitOutcome::Split))
        };
        keys.put(0, 8);
        keys.put(2, 0);
        assert_eq!(keys.find(0).map(|found| found.1), Some(8));
        splitter.join().unwrap();
        keys.verify(&[0, 2]);
    });
}

/// A displacement into a bucket that is split meanwhile.
#[test]
fn a_split_and_a_displacement_agree() {
    model(3, || {
        let (now, next) = (Split::new(2, 0), Split::new(2, 1));
        // Key 0 lives in bucket 1; its other bucket is 0, or 4 after the split.
        let hashes = vec![
            hash_for(now, (1, 0), Some((next, (1, 4))), 1),
            hash_for(now, (1, 1), None, 2),
            hash_for(now, (1, 1), None, 3),
        ];
        let keys = Arc::new(Keys::with_hashes(hashes));
        keys.put(0, 0);
        keys.put(1, 0);
        assert_eq!(keys.find(0).map(|found| found.0), Some(1));
        let splitter = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || assert_eq!(keys.grow(), SplitOutcome::Split))
        };
        let placed = keys.put(2, 0);
        splitter.join().unwrap();
        match placed {
            Placement::Replaced(slot) => {
                let gone = slot.segment().index();
                let present: Vec<usize> = (0..3).filter(|number| *number != gone).collect();
                keys.verify(&present);
            }
            _ => keys.verify(&[0, 1, 2]),
        }
    });
}

/// Keys 0 to 3 fill buckets 0 and 1 and can go nowhere else; the splits of those make places for keys 4 and 5.
pub(super) fn full_until_split() -> Keys {
    let (now, next) = (Split::new(2, 0), Split::new(2, 2));
    let hash = |buckets, later, tag| hash_for(now, buckets, Some((next, later)), tag);
    let keys = Keys::with_hashes(vec![
        hash((0, 0), (4, 4), 1),
        hash((0, 0), (0, 0), 2),
        hash((1, 1), (5, 5), 3),
        hash((1, 1), (1, 1), 4),
        hash((0, 1), (0, 1), 5),
        hash((0, 1), (0, 1), 6),
    ]);
    (0..4).for_each(|number| assert_eq!(keys.put(number, 0), Placement::Free));
    keys
}

/// Two inserts that find no slot: wherever one of them is preempted, the other one replaces no neighbour.
#[test]
fn inserts_grow_the_index_rather_than_replace() {
    model(3, || {
        let keys = Arc::new(full_until_split());
        let other = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || keys.insert(4))
        };
        keys.insert(5);
        other.join().unwrap();
        keys.verify(&[0, 1, 2, 3, 4, 5]);
    });
}

/// Two buckets are split at the same time: a key that one of the splits moves is found all the time.
#[test]
fn two_splits_at_once_hide_no_key() {
    model(2, || {
        let keys = Arc::new(full_until_split());
        let splitters = [(); 2].map(|()| {
            let keys = Arc::clone(&keys);
            thread::spawn(move || keys.grow())
        });
        assert!(keys.find(2).is_some(), "the key that the second split moves");
        let grown = splitters.map(|splitter| splitter.join().unwrap());
        assert!(grown.contains(&SplitOutcome::Split), "{grown:?}");
        keys.verify(&[0, 1, 2, 3]);
    });
}

/// Two threads that want to grow: each bucket is split once.
#[test]
fn two_splitters_split_two_buckets_or_one() {
    model(3, || {
        let keys = Arc::new(Keys::with_hashes(splitting_hashes(1)));
        keys.put(0, 0);
        let splitter = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || keys.grow())
        };
        let grown = [keys.grow(), splitter.join().unwrap()];
        let splits = grown.iter().filter(|grown| **grown == SplitOutcome::Split).count();
        assert!(splits >= 1 && keys.index.length() == 4 + splits, "{grown:?}");
        keys.verify(&[0]);
    });
}

/// An index of five buckets, with key 0 in the last one and key 1 in its parent.
pub(super) fn contractible() -> Keys {
    let keys = Keys::with_hashes(splitting_hashes(1));
    keys.put_beside(&[], &[0, 1]);
    assert_eq!(keys.grow(), SplitOutcome::Split);
    assert_eq!((keys.find(0).map(|found| found.0), keys.index.length()), (Some(4), 5));
    keys
}

/// The key leaves the last bucket, in which a lookup with the old split word looks.
#[test]
fn a_contraction_hides_no_key() {
    model(2, || {
        let keys = Arc::new(contractible());
        let contractor = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || assert_eq!(keys.contract(), ContractOutcome::Contracted))
        };
        assert!(keys.find(0).is_some(), "the key that moves");
        assert!(keys.find(2).is_none(), "a key that is not there");
        contractor.join().unwrap();
        assert_eq!(keys.index.length(), 4);
        keys.verify(&[0, 1]);
    });
}

/// The split word is the same again when the lookup reads it for the second time, and the key was not where it looked.
#[test]
fn contractions_undone_by_splits_hide_no_key() {
    model(3, || {
        let keys = Arc::new(contractible());
        let changer = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || {
                assert_eq!(keys.contract(), ContractOutcome::Contracted);
                keys.grow();
            })
        };
        assert!(keys.find(0).is_some(), "it is there all the time");
        changer.join().unwrap();
        keys.verify(&[0, 1]);
    });
}

#[test]
fn a_put_beside_a_contraction_is_found() {
    model(3, || {
        let keys = Arc::new(contractible());
        let contractor = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || keys.contract())
        };
        keys.put(0, 8);
        keys.remove(1);
        assert_eq!(keys.find(0).map(|found| found.1), Some(8));
        let outcome = contractor.join().unwrap();
        assert!(matches!(outcome, ContractOutcome::Contracted | ContractOutcome::Busy));
        keys.verify(&[0]);
    });
}

/// One thread grows while another one contracts: the split word counts each step once.
#[test]
fn a_split_and_a_contraction_agree() {
    model(3, || {
        let keys = Arc::new(contractible());
        let contractor = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || keys.contract())
        };
        let grown = keys.grow();
        let contracted = contractor.join().unwrap();
        let steps = usize::from(grown == SplitOutcome::Split);
        let back = usize::from(contracted == ContractOutcome::Contracted);
        assert!(steps + back >= 1 && keys.index.length() + back == 5 + steps, "{grown:?}, {contracted:?}");
        keys.verify(&[0, 1]);
    });
}

#[test]
fn concurrent_contractions_step_back_once_or_twice() {
    model(3, || {
        let keys = Arc::new(contractible());
        assert_eq!(keys.grow(), SplitOutcome::Split);
        let contractor = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || keys.contract())
        };
        let outcomes = [keys.contract(), contractor.join().unwrap()];
        let back = outcomes.iter().filter(|outcome| **outcome == ContractOutcome::Contracted).count();
        assert!(back >= 1 && keys.index.length() == 6 - back, "{outcomes:?}");
        keys.verify(&[0, 1]);
    });
}

/// A key leaves the last bucket for its parent, which a walk may have visited.
#[test]
fn a_walk_visits_keys_that_contractions_move() {
    model(3, || {
        let keys = Arc::new(contractible());
        let contractor = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || keys.contract())
        };
        let mut walk = keys.index.begin_walk().expect("the first walk");
        let mut met = [false; 2];
        while let Some(visited) = keys.index.next_bucket(&mut walk) {
            let slots = visited.slots.iter().filter(|slot| !slot.is_empty());
            slots.for_each(|slot| met[slot.segment().index()] = true);
        }
        while let Some(hash) = keys.index.next_moved(&walk) {
            met[(0..2).find(|number| keys.hash(*number) == hash).expect("a key's hash")] = true;
        }
        keys.index.end_walk(&walk);
        contractor.join().unwrap();
        assert_eq!(met, [true; 2]);
        keys.verify(&[0, 1]);
    });
}

/// A key that was read before a contraction and a split has another token afterwards, or the same item.
#[test]
fn a_token_outlives_no_change_across_a_contraction() {
    model(3, || {
        let keys = Arc::new(contractible());
        let (_, _, before) = keys.find(0).expect("it is there");
        let changer = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || {
                keys.contract();
            })
        };
        keys.put(0, 8);
        changer.join().unwrap();
        let (offset, after) = keys.held(0);
        assert!(offset == 8 && after > before, "{before}, then {after}");
    });
}
