//! Drain: before a store ends, its live items are offered for the lower tier, the most frequent first.
//!
//! ```text
//! count frequencies -> ranges of frequencies, each with a share of the items, the highest first
//! per range: buckets in ascending order -> slots in the range -- lock key, check --> offer(item)
//! ```
//! The order matters because the lower tier may not take all. Each range costs one pass over the buckets, so ranges are
//! few; within a range the order is that of the buckets. Items stay in the store: readers find them until it ends.
//!
//! No other thread may change the store meanwhile. A read that counts a use may move an item to a range that was
//! offered already: that item is not offered.

use crate::epoch::Participant;
use crate::index::{FREQUENCY_LIMIT, Found, Items, Slot};
use crate::ops::Item;
use crate::store::Store;
use crate::sync::Ordering;
use crate::time::Moment;
use std::ops::RangeInclusive;

/// A range of frequencies has at least this part of all items, unless it is the last one.
const RANGE_SHARE: u64 = 16;

/// A drain in progress.
#[derive(Debug)]
pub struct Drain {
    /// The ranges that were not offered completely, with their items, the lowest first.
    ranges: Vec<(RangeInclusive<u8>, u64)>,
    /// Items of all ranges, and of those that were offered completely.
    items: u64,
    offered: u64,
    /// The next slot to offer.
    bucket: usize,
    position: usize,
}

impl Drain {
    /// Over the items that the store has now.
    pub fn new(store: &Store) -> Self {
        let mut counts = [0; FREQUENCY_LIMIT as usize + 1];
        for bucket in 0..store.index.length() {
            for slot in store.index.read_bucket(bucket).slots.iter().filter(|slot| !slot.is_empty()) {
                counts[usize::from(slot.frequency())] += 1;
            }
        }
        Self { ranges: ranges(&counts), items: counts.iter().sum(), offered: 0, bucket: 0, position: 0 }
    }

    /// The part of the items that was offered, or has died, as far as the buckets are even: 0 to 1.
    pub fn progress(&self, store: &Store) -> f64 {
        let in_range = self.ranges.last().map_or(0, |(_, items)| *items) as f64;
        let done = self.offered as f64 + in_range * self.bucket as f64 / store.index.length() as f64;
        if self.ranges.is_empty() { 1.0 } else { done / self.items.max(1) as f64 }
    }

    /// Offers the live items of the next bucket. `offer` is called under the lock of the key's buckets: it must be
    /// quick, and must not use the store. After an answer of false the next call begins with the same item. False when
    /// there are no more items.
    pub fn advance(
        &mut self,
        store: &Store,
        participant: &Participant,
        now_ms: u64,
        mut offer: impl FnMut(&Item<'_>) -> bool,
    ) -> bool {
        let Some((range, items)) = self.ranges.last() else { return false };
        if self.bucket >= store.index.length() {
            self.offered += items;
            self.ranges.pop();
            (self.bucket, self.position) = (0, 0);
            return !self.ranges.is_empty();
        }
        let moment = store.moment(now_ms);
        let _pin = participant.pin();
        let slots = store.index.read_bucket(self.bucket).slots;
        for (position, slot) in slots.iter().enumerate().skip(self.position) {
            let is_chosen = !slot.is_empty() && range.contains(&slot.frequency());
            if is_chosen && !store.offer(participant, *slot, moment, &mut offer) {
                self.position = position;
                return true;
            }
        }
        (self.bucket, self.position) = (self.bucket + 1, 0);
        true
    }
}

/// The ranges for these numbers of items of each frequency, with their items, the lowest first.
fn ranges(counts: &[u64; FREQUENCY_LIMIT as usize + 1]) -> Vec<(RangeInclusive<u8>, u64)> {
    let min_items = counts.iter().sum::<u64>().div_ceil(RANGE_SHARE).max(1);
    let (mut ranges, mut high, mut items) = (Vec::new(), FREQUENCY_LIMIT, 0);
    for frequency in (0..=FREQUENCY_LIMIT).rev() {
        items += counts[usize::from(frequency)];
        if items >= min_items {
            ranges.push((frequency..=high, items));
            (high, items) = (frequency.saturating_sub(1), 0);
        }
    }
    if items > 0 {
        ranges.push((0..=high, items));
    }
    ranges.reverse();
    ranges
}

impl Store {
    /// Offers the item of a slot that was read under the caller's pin, if it is live and in place. False if it is to be
    /// offered again.
    fn offer(
        &self,
        participant: &Participant,
        slot: Slot,
        moment: Moment,
        offer: &mut impl FnMut(&Item<'_>) -> bool,
    ) -> bool {
        let at = slot.location();
        let pair = self.index.lock_pair(self.hash_at(at));
        let Some(place) = pair.find(|slot| slot.location() == at) else { return true };
        let item = self.item(place.slot);
        // Acquire pairs with the Release in `advance_generation`.
        let generation = self.generation.load(Ordering::Acquire);
        if !self.is_live(&item, moment) {
            return true;
        }
        let control = pair.control(Some(&place));
        let found = Found { bucket: 0, position: 0, slot: place.slot, control };
        let present = self.hit(item, &found, participant.pin());
        let is_done = offer(&present);
        if self.generation.load(Ordering::Acquire) != generation {
            // As in `demote`: the flush may have invalidated all copies before this one was made.
            self.lower_tier.get().map(|tier| tier.remove(present.key()));
        }
        is_done
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ops::{Mode, Write};
    use crate::options::Options;
    use crate::ttl::Ttl;

    #[test]
    fn each_item_is_offered_once_by_frequency() {
        let store = Store::new(Options { memory_bytes: 8 << 20, ..Options::default() }).unwrap();
        let participant = store.participate();
        let uses = |number: u32| if number.is_multiple_of(10) { 9 } else { number % 3 };
        for number in 0..5000_u32 {
            let key = number.to_le_bytes();
            let hash = store.hash(&key);
            let ttl = if number.is_multiple_of(7) { Ttl::Seconds(1) } else { Ttl::Never };
            let write = Write { key: &key, hash, value: &[7; 40], flags: 0.into(), ttl, mode: Mode::Set, token: None };
            store.write(&participant, &write, 1000).unwrap();
        }
        let now_ms = 1000 + 600_000;
        for round in 0..9_u32 {
            for number in (0..5000).filter(|number| uses(*number) > round) {
                let key = u32::to_le_bytes(number);
                // Another quantum for each use.
                store.get(&participant, &key, store.hash(&key), now_ms + u64::from(round) * 600_000);
            }
        }
        let now_ms = now_ms + 10 * 600_000;
        let (mut drain, mut offered, mut calls) = (Drain::new(&store), Vec::new(), 0_u32);
        assert_eq!(drain.progress(&store), 0.0);
        let mut progress = 0.0;
        while drain.advance(&store, &participant, now_ms, |item| {
            calls += 1;
            // Each third item is not taken at first.
            let is_taken = !calls.is_multiple_of(3);
            if is_taken {
                offered.push(u32::from_le_bytes(item.key().try_into().unwrap()));
            }
            is_taken
        }) {
            assert!((progress..=1.0).contains(&drain.progress(&store)), "{progress}: {drain:?}");
            progress = drain.progress(&store);
        }
        assert_eq!(drain.progress(&store), 1.0);
        let live: Vec<u32> = (0..5000).filter(|number: &u32| !number.is_multiple_of(7)).collect();
        let mut sorted = offered.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, live, "expired items are not offered, others once");
        let most_used = live.iter().filter(|number| uses(**number) == 9).count();
        assert!(offered[..most_used].iter().all(|number| uses(*number) == 9), "the most frequent items come first");
        store.verify(&participant, now_ms);
    }

    #[test]
    fn ranges_hold_a_share_of_the_items_each() {
        let counts = |items: &[(u8, u64)]| {
            let mut counts = [0; FREQUENCY_LIMIT as usize + 1];
            items.iter().for_each(|(frequency, count)| counts[usize::from(*frequency)] = *count);
            counts
        };
        assert_eq!(ranges(&counts(&[])), []);
        assert_eq!(ranges(&counts(&[(0, 100)])), [(0..=FREQUENCY_LIMIT, 100)]);
        assert_eq!(ranges(&counts(&[(0, 10), (1, 100), (3, 2), (90, 1)])), [(0..=0, 10), (1..=FREQUENCY_LIMIT, 103)]);
        assert_eq!(
            ranges(&counts(&[(0, 1000), (2, 100), (5, 100)])),
            [(0..=1, 1000), (2..=4, 100), (5..=FREQUENCY_LIMIT, 100)]
        );
        assert!(ranges(&[1; FREQUENCY_LIMIT as usize + 1]).len() as u64 <= RANGE_SHARE + 1);
    }
}
