//! ARC (FAST'03, Fig. 4), by bytes: gets of their ghosts divide the memory between recency and frequency.

use super::cache::Cache;
use super::queues::{Node, Queues};

/// Used once, lately.
const T1: usize = 0;
/// Used more than once.
const T2: usize = 1;
/// Keys evicted from T1, and from T2.
const B1: usize = 2;
const B2: usize = 3;

pub(super) struct Arc {
    limit: u64,
    /// Bytes that T1 should have (the paper's p).
    target: u64,
    queues: Queues,
}

impl Arc {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, target: 0, queues: Queues::new(4) }
    }

    fn used(&self) -> u64 {
        self.queues.bytes(T1) + self.queues.bytes(T2)
    }

    /// The paper's REPLACE: takes one from T1 or T2 and remembers its key.
    fn replace(&mut self, from_b2: bool) {
        let first = self.queues.bytes(T1);
        let takes_first = first > 0 && (first > self.target || from_b2 && first == self.target);
        let queue = if takes_first || self.queues.bytes(T2) == 0 { T1 } else { T2 };
        let node = self.queues.back(queue).expect("it evicts only what holds memory");
        self.queues.move_front(node, if queue == T1 { B1 } else { B2 });
    }

    fn ghost_hit(&mut self, node: Node) {
        let object = *self.queues.get(node);
        let (first, second) = (self.queues.bytes(B1) as f64, self.queues.bytes(B2) as f64);
        let step = |other: f64, own: f64| (object.bytes as f64 * (other / own).max(1.0)) as u64;
        let from_b2 = object.queue == B2;
        self.target = if from_b2 {
            self.target.saturating_sub(step(first, second))
        } else {
            (self.target + step(second, first)).min(self.limit)
        };
        self.queues.remove(node);
        while self.used() + object.bytes > self.limit {
            self.replace(from_b2);
        }
        self.queues.push_front(T2, object.key, object.bytes);
    }

    fn insert(&mut self, key: u64, bytes: u64) {
        while self.used() + bytes > self.limit {
            self.make_space(bytes);
        }
        self.queues.push_front(T1, key, bytes);
    }

    /// Case IV of the paper.
    fn make_space(&mut self, bytes: u64) {
        let (t1, b1) = (self.queues.bytes(T1), self.queues.bytes(B1));
        if t1 + b1 + bytes > self.limit {
            if self.queues.pop_back(B1).is_some() {
                self.replace(false);
            } else {
                self.queues.pop_back(T1);
            }
            return;
        }
        if self.used() + b1 + self.queues.bytes(B2) >= 2 * self.limit {
            self.queues.pop_back(B2);
        }
        self.replace(false);
    }
}

impl Cache for Arc {
    fn get(&mut self, key: u64, bytes: u64, _next: u64) -> bool {
        match self.queues.find(key) {
            Some(node) if self.queues.get(node).queue <= T2 => {
                self.queues.move_front(node, T2);
                return true;
            }
            Some(node) => self.ghost_hit(node),
            None if bytes <= self.limit => self.insert(key, bytes),
            None => {}
        }
        false
    }

    fn remove(&mut self, key: u64) {
        if let Some(node) = self.queues.find(key) {
            self.queues.remove(node);
        }
    }

    fn bytes_of(&self, key: u64) -> Option<u64> {
        let node = self.queues.find(key).filter(|&node| self.queues.get(node).queue <= T2);
        node.map(|node| self.queues.get(node).bytes)
    }
}
