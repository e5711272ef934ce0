//! One queue: FIFO, LRU, CLOCK, SIEVE.

use super::cache::Cache;
use super::queues::{Node, Queues};

/// Effect of a use, and order of evictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Fifo,
    Lru,
    /// A use sets the bit; an object with the bit loses it and goes to the front in place of being evicted.
    Clock,
    /// As `Clock`, but the object keeps its place, and a hand moves from the last victim towards the front.
    Sieve,
}

pub(super) struct Simple {
    limit: u64,
    order: Order,
    queue: Queues,
    hand: Option<Node>,
}

impl Simple {
    pub(super) fn new(limit: u64, order: Order) -> Self {
        Self { limit, order, queue: Queues::new(1), hand: None }
    }

    fn evict(&mut self) {
        let victim = match self.order {
            Order::Fifo | Order::Lru => self.queue.back(0),
            Order::Clock => self.oldest_unused(),
            Order::Sieve => self.unused_from_hand(),
        };
        self.take(victim.expect("it evicts only what holds memory"));
    }

    /// Ends: each turn clears a bit.
    fn oldest_unused(&mut self) -> Option<Node> {
        loop {
            let node = self.queue.back(0)?;
            if self.queue.get(node).mark == 0 {
                return Some(node);
            }
            self.queue.mark(node, 0);
            self.queue.move_front(node, 0);
        }
    }

    /// Ends: each turn clears a bit.
    fn unused_from_hand(&mut self) -> Option<Node> {
        let mut node = self.hand.or(self.queue.back(0))?;
        while self.queue.get(node).mark > 0 {
            self.queue.mark(node, 0);
            node = self.queue.newer(node).or(self.queue.back(0))?;
        }
        self.hand = Some(node);
        Some(node)
    }

    fn take(&mut self, node: Node) {
        if self.hand == Some(node) {
            self.hand = self.queue.newer(node);
        }
        self.queue.remove(node);
    }
}

impl Cache for Simple {
    fn get(&mut self, key: u64, bytes: u64, _next: u64) -> bool {
        if let Some(node) = self.queue.find(key) {
            match self.order {
                Order::Fifo => {}
                Order::Lru => self.queue.move_front(node, 0),
                Order::Clock | Order::Sieve => self.queue.mark(node, 1),
            }
            return true;
        }
        if bytes <= self.limit {
            while self.queue.bytes(0) + bytes > self.limit {
                self.evict();
            }
            self.queue.push_front(0, key, bytes);
        }
        false
    }

    fn remove(&mut self, key: u64) {
        if let Some(node) = self.queue.find(key) {
            self.take(node);
        }
    }

    fn bytes_of(&self, key: u64) -> Option<u64> {
        self.queue.find(key).map(|node| self.queue.get(node).bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cached keys of these.
    fn there(cache: &Simple, keys: std::ops::Range<u64>) -> Vec<u64> {
        keys.filter(|&key| cache.bytes_of(key).is_some()).collect()
    }

    #[test]
    fn each_order_evicts_as_its_paper_says() {
        for (order, stay) in [
            (Order::Fifo, vec![3, 4, 5]),
            (Order::Lru, vec![1, 4, 5]),
            (Order::Clock, vec![1, 4, 5]),
            (Order::Sieve, vec![1, 4, 5]),
        ] {
            let mut cache = Simple::new(3, order);
            (1..=3).for_each(|key| assert!(!cache.get(key, 1, 0)));
            assert!(cache.get(1, 1, 0));
            (4..=5).for_each(|key| assert!(!cache.get(key, 1, 0)));
            assert_eq!(there(&cache, 1..6), stay, "{order:?}");
        }
    }

    #[test]
    fn the_hand_of_sieve_keeps_its_position() {
        let mut cache = Simple::new(4, Order::Sieve);
        (1..=4).for_each(|key| _ = cache.get(key, 1, 0));
        [1, 2, 4].iter().for_each(|&key| assert!(cache.get(key, 1, 0)));
        cache.get(5, 1, 0);
        assert_eq!(there(&cache, 1..6), [1, 2, 4, 5]);
        cache.get(6, 1, 0);
        assert_eq!(there(&cache, 1..7), [1, 2, 4, 6], "4 lost its bit, 5 had none");
    }
}
