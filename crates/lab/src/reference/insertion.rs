//! LRU with an insertion point: a new object enters the order below its head, a used one goes to the head.

use super::cache::Cache;
use super::queues::Queues;
use ebbtide::options::InsertionPoint;

/// The order is in two queues. The head is as long as its share of all bytes allows.
pub(super) struct LruInsertion {
    limit: u64,
    point: InsertionPoint,
    queues: Queues,
}

const HEAD: usize = 0;
const TAIL: usize = 1;

impl LruInsertion {
    pub(super) fn new(limit: u64, point: InsertionPoint) -> Self {
        Self { limit, point, queues: Queues::new(2) }
    }

    fn used(&self) -> u64 {
        self.queues.bytes(HEAD) + self.queues.bytes(TAIL)
    }

    fn evict(&mut self) {
        let evicted = self.queues.pop_back(TAIL).or_else(|| self.queues.pop_back(HEAD));
        assert!(evicted.is_some(), "it evicts only what holds memory");
    }

    /// Moves the boundary to the insertion point. Ends: each loop goes through a queue once.
    fn balance(&mut self) {
        let head_bytes = self.point.head_bytes(self.used());
        while self.queues.bytes(HEAD) > head_bytes {
            let node = self.queues.back(HEAD).expect("it holds bytes");
            self.queues.move_front(node, TAIL);
        }
        while let Some(node) = self.queues.front(TAIL)
            && self.queues.bytes(HEAD) + self.queues.get(node).bytes <= head_bytes
        {
            self.queues.move_back(node, HEAD);
        }
    }
}

impl Cache for LruInsertion {
    fn get(&mut self, key: u64, bytes: u64, _next: u64) -> bool {
        if let Some(node) = self.queues.find(key) {
            self.queues.move_front(node, HEAD);
            self.balance();
            return true;
        }
        if bytes <= self.limit {
            while self.used() + bytes > self.limit {
                self.evict();
            }
            self.queues.push_front(TAIL, key, bytes);
            self.balance();
        }
        false
    }

    fn remove(&mut self, key: u64) {
        if let Some(node) = self.queues.find(key) {
            self.queues.remove(node);
            self.balance();
        }
    }

    fn bytes_of(&self, key: u64) -> Option<u64> {
        self.queues.find(key).map(|node| self.queues.get(node).bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order as one list, its head first, with the number of objects in front of the insertion point.
    #[derive(Default)]
    struct Listed {
        order: Vec<(u64, u64)>,
        head_count: usize,
    }

    impl Listed {
        fn bytes(objects: &[(u64, u64)]) -> u64 {
            objects.iter().map(|object| object.1).sum()
        }

        /// Moves the insertion point so that the objects in front of it have its share of all bytes.
        fn balance(&mut self, point: InsertionPoint) {
            let head = point.head_bytes(Self::bytes(&self.order));
            let fits = |count: &usize| Self::bytes(&self.order[..*count]) <= head;
            self.head_count = (0..=self.order.len()).rev().find(fits).unwrap();
        }

        fn get(&mut self, point: InsertionPoint, limit: u64, object: (u64, u64)) -> bool {
            let found = self.order.iter().position(|(key, _)| *key == object.0);
            match found {
                Some(at) => {
                    let used = self.order.remove(at);
                    self.order.insert(0, used);
                }
                None => {
                    while Self::bytes(&self.order) + object.1 > limit {
                        self.order.pop();
                        self.head_count = self.head_count.min(self.order.len());
                    }
                    self.order.insert(self.head_count, object);
                }
            }
            self.balance(point);
            found.is_some()
        }
    }

    #[test]
    fn the_queues_are_one_list_with_a_point() {
        for (point, limit) in
            [(InsertionPoint::Half, 100), (InsertionPoint::Quarter, 64), (InsertionPoint::Eighth, 300)]
        {
            let (mut cache, mut listed) = (LruInsertion::new(limit, point), Listed::default());
            let mut seed = 1u64;
            for number in 0..20_000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let key = (seed >> 33) % 23 * ((seed >> 50) % 7);
                let bytes = 1 + key % 9;
                let expected = listed.get(point, limit, (key, bytes));
                assert_eq!(cache.get(key, bytes, 0), expected, "{point:?}, request {number} of {key}");
                if number % 50 == 7 {
                    cache.remove(key);
                    listed.order.retain(|(kept, _)| *kept != key);
                    listed.balance(point);
                }
            }
        }
    }

    #[test]
    fn a_scan_passes_through_the_tail_only() {
        for (point, head) in [(InsertionPoint::Half, 4), (InsertionPoint::Quarter, 6), (InsertionPoint::Eighth, 7)] {
            let mut cache = LruInsertion::new(8, point);
            (1..=8).chain(1..=head).for_each(|key| _ = cache.get(key, 1, 0));
            (100..200).for_each(|key| assert!(!cache.get(key, 1, 0)));
            assert!((1..=head).all(|key| cache.bytes_of(key).is_some()), "{point:?}");
            assert!((head + 1..=8).all(|key| cache.bytes_of(key).is_none()), "{point:?}");
        }
    }
}
