//! The eviction of memcached 1.6 with its defaults: in each class a segmented LRU of HOT, WARM and COLD.
//!
//! A new item enters HOT. Beyond their shares of the class, or with a last use too long ago, the tails of HOT and WARM
//! go to COLD, unless they were asked for twice: then to the head of WARM. An item of COLD that is asked for twice goes
//! to WARM. Memory comes from the tail of COLD. Expired items are removed when asked for, at the tails, and, with the
//! crawler, by walks along the queues, as often as that pays ([`Crawl`]). Pages move as `automove.rs` decides.
//!
//! memcached's maintenance thread moves tails all the time; here each set does it for its class.

use crate::automove::{self, Page, Tail};
use crate::memory::{EXPIRY, FLAGS, Field, Item, NONE, OWN_FIELDS, USED};
use crate::space::{Eviction, ItemEviction, NEVER, Space, move_page, seize_page};

const OLDER: Field<u64> = Field::at(OWN_FIELDS);
const NEWER: Field<u64> = Field::at(OWN_FIELDS + 8);
const FETCHED: u8 = 2;
const ACTIVE: u8 = 4;
/// Two bits of the flags are the number of the queue.
const QUEUE_SHIFT: u8 = 3;

const HOT: usize = 0;
const WARM: usize = 1;
const COLD: usize = 2;
/// Of HOT and WARM: the share of the class, and the age as a multiple of the age of COLD's tail.
const SHARES: [f64; 2] = [0.2, 0.4];
const AGES: [f64; 2] = [0.2, 2.0];

#[derive(Clone, Copy, Debug)]
struct Queue {
    oldest: Item,
    newest: Item,
    length: usize,
    crawl: Crawl,
}

#[derive(Clone, Debug)]
struct ClassQueues {
    queues: [Queue; 3],
    evicted_at: Option<u32>,
}

/// Segmented LRU; the crawler is optional.
#[derive(Debug)]
pub struct SegmentedLru {
    classes: Vec<ClassQueues>,
    crawler: bool,
    /// The second up to which pages have been moved.
    moved_at: u32,
}

impl SegmentedLru {
    pub fn new(crawler: bool) -> Self {
        Self { classes: Vec::new(), crawler, moved_at: 0 }
    }

    fn queue_of(space: &Space, item: Item) -> usize {
        usize::from(space.slabs.memory.get(item, FLAGS) >> QUEUE_SHIFT)
    }

    fn class_mut(&mut self, class: usize) -> &mut ClassQueues {
        if self.classes.len() <= class {
            let empty = Queue { oldest: NONE, newest: NONE, length: 0, crawl: Crawl::default() };
            self.classes.resize(class + 1, ClassQueues { queues: [empty; 3], evicted_at: None });
        }
        &mut self.classes[class]
    }

    fn oldest(&self, class: usize, queue: usize) -> Option<Item> {
        self.classes.get(class).map(|class| class.queues[queue].oldest).filter(|&item| item != NONE)
    }

    fn link(&mut self, space: &mut Space, item: Item, queue: usize) {
        let class = space.slabs.class_of(item);
        let memory = &mut space.slabs.memory;
        let flags = memory.get(item, FLAGS) & ((1 << QUEUE_SHIFT) - 1);
        memory.put(item, FLAGS, flags | (queue as u8) << QUEUE_SHIFT);
        let queue = &mut self.class_mut(class).queues[queue];
        memory.put(item, OLDER, queue.newest.0);
        memory.put(item, NEWER, NONE.0);
        match queue.newest {
            NONE => queue.oldest = item,
            newest => memory.put(newest, NEWER, item.0),
        }
        queue.newest = item;
        queue.length += 1;
    }

    fn unlink(&mut self, space: &mut Space, item: Item) {
        let neighbours = Self::neighbours(space, item);
        self.join(space, item, neighbours);
        let queue = Self::queue_of(space, item);
        self.class_mut(space.slabs.class_of(item)).queues[queue].length -= 1;
    }

    fn neighbours(space: &Space, item: Item) -> (Item, Item) {
        (Item(space.slabs.memory.get(item, OLDER)), Item(space.slabs.memory.get(item, NEWER)))
    }

    /// Makes both neighbours of an item, or the ends of its queue, point to each other.
    fn join(&mut self, space: &mut Space, item: Item, (older, newer): (Item, Item)) {
        self.point(space, item, older, newer, OLDER);
        self.point(space, item, newer, older, NEWER);
    }

    /// Makes the neighbour on one side of an item (`OLDER` or `NEWER`), or that end of its queue, point to `target`.
    fn point(&mut self, space: &mut Space, item: Item, neighbour: Item, target: Item, side: Field<u64>) {
        let is_older = side.is(OLDER);
        if neighbour != NONE {
            return space.slabs.memory.put(neighbour, if is_older { NEWER } else { OLDER }, target.0);
        }
        let queue = Self::queue_of(space, item);
        let queue = &mut self.class_mut(space.slabs.class_of(item)).queues[queue];
        if is_older {
            queue.oldest = target;
        } else {
            queue.newest = target;
        }
    }

    fn move_to(&mut self, space: &mut Space, item: Item, queue: usize) {
        self.unlink(space, item);
        space.slabs.memory.set_flag(item, ACTIVE, false);
        self.link(space, item, queue);
    }

    fn discard(&mut self, space: &mut Space, item: Item) {
        self.unlink(space, item);
        space.remove(item);
    }

    /// Seconds since the tail of COLD was used.
    fn tail_age(&self, space: &Space, class: usize) -> u32 {
        self.oldest(class, COLD).map_or(0, |item| space.now - space.slabs.memory.get(item, USED))
    }

    /// Brings HOT and WARM back to their shares, and removes expired items at the tails.
    fn juggle(&mut self, space: &mut Space, class: usize) {
        let cold_age = f64::from(self.tail_age(space, class));
        for queue in [HOT, WARM, COLD] {
            while let Some(item) = self.oldest(class, queue) {
                if space.has_expired(item) {
                    self.discard(space, item);
                } else if queue == COLD {
                    break;
                } else if space.slabs.memory.has(item, ACTIVE) {
                    self.move_to(space, item, WARM);
                } else {
                    let share = SHARES[queue] * space.slabs.classes[class].items as f64;
                    let is_full = self.classes[class].queues[queue].length as f64 > share;
                    let age = f64::from(space.now - space.slabs.memory.get(item, USED));
                    if !is_full && age <= AGES[queue] * cold_age {
                        break;
                    }
                    self.move_to(space, item, COLD);
                }
            }
        }
    }

    fn crawl(&mut self, space: &mut Space) {
        for class in 0..self.classes.len() {
            for queue in [HOT, WARM, COLD] {
                if space.now > self.classes[class].queues[queue].crawl.next_at {
                    self.walk(space, class, queue);
                }
            }
        }
    }

    /// Removes the expired items of a queue.
    fn walk(&mut self, space: &mut Space, class: usize, queue: usize) {
        let mut census = Census::default();
        let mut next = self.oldest(class, queue);
        while let Some(item) = next {
            next = Some(Self::neighbours(space, item).1).filter(|&newer| newer != NONE);
            if space.has_expired(item) {
                self.discard(space, item);
            } else {
                census.add(space.slabs.memory.get(item, EXPIRY), space.now);
            }
        }
        self.classes[class].queues[queue].crawl.plan(&census, space.now);
    }

    fn move_pages(&mut self, space: &mut Space) {
        for _ in 0..(space.now - self.moved_at).min(automove::WINDOW_SECONDS) {
            let tail = |class| Tail {
                age: self.tail_age(space, class),
                evicted_for: self.classes.get(class).and_then(|class| class.evicted_at).map(|at| space.now - at),
            };
            match automove::decide(&space.slabs, tail) {
                Some(Page { from, to }) => move_page(self, space, space.slabs.classes[from].pages[0], to),
                None => break,
            }
        }
        self.moved_at = space.now;
    }
}

impl Eviction for SegmentedLru {
    const HEADER_BYTES: usize = 56;
    /// The end of the key, and of the line.
    const TRAILER_BYTES: usize = 3;

    fn stored(&mut self, space: &mut Space, item: Item) {
        space.slabs.memory.put(item, USED, space.now);
        self.link(space, item, HOT);
        self.juggle(space, space.slabs.class_of(item));
    }

    #[inline]
    fn used(&mut self, space: &mut Space, item: Item) {
        let memory = &mut space.slabs.memory;
        let flags = memory.get(item, FLAGS);
        if flags & FETCHED == 0 {
            memory.set_flag(item, FETCHED, true);
        } else if flags & ACTIVE == 0 {
            memory.set_flag(item, ACTIVE, true);
            memory.put(item, USED, space.now);
            if Self::queue_of(space, item) == COLD {
                self.move_to(space, item, WARM);
            }
        }
    }

    fn removed(&mut self, space: &mut Space, item: Item) {
        self.unlink(space, item);
    }

    fn make_space(&mut self, space: &mut Space, class: usize) -> bool {
        if !self.evict(space, class) {
            return seize_page(self, space, class);
        }
        self.class_mut(class).evicted_at = Some(space.now);
        true
    }

    fn advanced(&mut self, space: &mut Space) {
        if self.crawler {
            self.crawl(space);
        }
        self.move_pages(space);
    }

    fn verify(&self, space: &Space) {
        for (number, class) in self.classes.iter().enumerate() {
            let mut items = 0;
            for (number, queue) in class.queues.iter().enumerate() {
                let (mut item, mut before, mut length) = (queue.oldest, NONE, 0);
                while item != NONE {
                    let (older, newer) = Self::neighbours(space, item);
                    assert_eq!((older, Self::queue_of(space, item)), (before, number));
                    (before, item, length) = (item, newer, length + 1);
                }
                assert_eq!((before, length), (queue.newest, queue.length));
                items += length;
            }
            assert_eq!(items, space.slabs.classes[number].items, "items of the queues of class {number}");
        }
    }
}

impl ItemEviction for SegmentedLru {
    fn evict(&mut self, space: &mut Space, class: usize) -> bool {
        let victim = [COLD, HOT, WARM].into_iter().find_map(|queue| self.oldest(class, queue));
        victim.inspect(|&item| self.discard(space, item)).is_some()
    }

    fn copied(&mut self, space: &mut Space, to: Item) {
        let (older, newer) = Self::neighbours(space, to);
        self.point(space, to, older, to, OLDER);
        self.point(space, to, newer, to, NEWER);
    }
}

/// When the crawler walks along a queue: as soon as it frees more than a hundredth of its items by that.
#[derive(Clone, Copy, Debug, Default)]
struct Crawl {
    wait_seconds: u32,
    next_at: u32,
}

const MAX_WAIT_SECONDS: u32 = 3600;
/// Step of the wait, and minutes that a census tells apart.
const STEP_SECONDS: u32 = 60;
const MINUTES: usize = 60;
const MIN_GAP_SECONDS: u32 = 5;

/// Items of a queue by the minutes until their expiry.
#[derive(Debug)]
struct Census {
    mortal: usize,
    minutes: [usize; MINUTES],
}

impl Default for Census {
    fn default() -> Self {
        Self { mortal: 0, minutes: [0; MINUTES] }
    }
}

impl Census {
    fn add(&mut self, expiry: u32, now: u32) {
        self.mortal += usize::from(expiry != NEVER);
        if let Some(count) = self.minutes.get_mut(((expiry - now) / STEP_SECONDS) as usize) {
            *count += 1;
        }
    }
}

impl Crawl {
    fn plan(&mut self, census: &Census, now: u32) {
        let wanted = census.mortal / 100 + 1;
        let mut expiring = 0;
        let paying = census.minutes.iter().position(|count| {
            expiring += count;
            expiring > wanted
        });
        match paying {
            Some(minute) if self.wait_seconds < minute as u32 * STEP_SECONDS => self.wait_seconds += STEP_SECONDS,
            Some(_) => self.wait_seconds = self.wait_seconds.saturating_sub(STEP_SECONDS),
            None if expiring == 0 => self.wait_seconds += STEP_SECONDS,
            None => {}
        }
        self.wait_seconds = self.wait_seconds.min(MAX_WAIT_SECONDS);
        self.next_at = now + self.wait_seconds + MIN_GAP_SECONDS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crawler_waits_longer_where_little_expires() {
        let mut crawl = Crawl::default();
        let census = |expiries: &[u32]| {
            let mut census = Census::default();
            expiries.iter().for_each(|&expiry| census.add(expiry, 0));
            census
        };
        for _ in 0..3 {
            crawl.plan(&census(&[NEVER; 10]), 0);
        }
        assert_eq!((crawl.wait_seconds, crawl.next_at), (180, 185));
        crawl.plan(&census(&[90; 10]), 0);
        assert_eq!(crawl.wait_seconds, 120);
        // One item is no more than the hundredth that pays.
        crawl.plan(&census(&[90]), 0);
        assert_eq!(crawl.wait_seconds, 120);
        (0..99).for_each(|_| crawl.plan(&census(&[]), 0));
        assert_eq!(crawl.wait_seconds, MAX_WAIT_SECONDS);
    }
}
