//! Several queues of fixed shares: segmented LRU, 2Q, S3-FIFO.

use super::cache::Cache;
use super::queues::{Node, Queues};

/// Segmented LRU: a new object enters the lowest segment that has space, a used one the next segment; objects beyond a
/// segment's share move to the segment below.
pub(super) struct Slru {
    limit: u64,
    /// The lowest first.
    shares: Vec<u64>,
    queues: Queues,
}

impl Slru {
    /// Segments of these parts of the memory.
    pub(super) fn new(limit: u64, parts: &[u64]) -> Self {
        let whole: u64 = parts.iter().sum();
        let shares = parts.iter().map(|part| (limit as f64 * *part as f64 / whole as f64) as u64).collect();
        Self { limit, shares, queues: Queues::new(parts.len()) }
    }

    pub(super) fn used(&self) -> u64 {
        (0..self.shares.len()).map(|segment| self.queues.bytes(segment)).sum()
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether it could ever take an object of this size.
    pub(super) fn takes(&self, bytes: u64) -> bool {
        bytes <= self.shares[0]
    }

    pub(super) fn touch(&mut self, key: u64) -> bool {
        let Some(node) = self.queues.find(key) else {
            return false;
        };
        let segment = (self.queues.get(node).queue + 1).min(self.shares.len() - 1);
        self.queues.move_front(node, segment);
        self.cool(segment);
        true
    }

    /// Puts in a new object.
    pub(super) fn insert(&mut self, key: u64, bytes: u64) {
        let has_space = |segment: &usize| self.queues.bytes(*segment) + bytes <= self.shares[*segment];
        let segment = (0..self.shares.len()).find(has_space).unwrap_or(0);
        while self.used() + bytes > self.limit {
            self.evict();
        }
        self.queues.push_front(segment, key, bytes);
    }

    pub(super) fn victim(&self) -> Option<Node> {
        (0..self.shares.len()).find_map(|segment| self.queues.back(segment))
    }

    pub(super) fn key_of(&self, node: Node) -> u64 {
        self.queues.get(node).key
    }

    pub(super) fn evict(&mut self) {
        let victim = self.victim().expect("it evicts only what holds memory");
        self.queues.remove(victim);
    }

    /// Moves objects beyond a segment's share to the next lower segment, and evicts them from the lowest one. The loop
    /// ends: each turn takes one object out of a segment.
    fn cool(&mut self, from: usize) {
        for segment in (0..=from).rev() {
            while self.queues.bytes(segment) > self.shares[segment] {
                let node = self.queues.back(segment).expect("it holds bytes");
                match segment {
                    0 => _ = self.queues.remove(node),
                    _ => self.queues.move_front(node, segment - 1),
                }
            }
        }
    }
}

impl Cache for Slru {
    fn get(&mut self, key: u64, bytes: u64, _next: u64) -> bool {
        if self.touch(key) {
            return true;
        }
        if self.takes(bytes) {
            self.insert(key, bytes);
        }
        false
    }

    fn remove(&mut self, key: u64) {
        if let Some(node) = self.queues.find(key) {
            self.queues.remove(node);
        }
    }

    fn bytes_of(&self, key: u64) -> Option<u64> {
        self.queues.find(key).map(|node| self.queues.get(node).bytes)
    }
}

/// 2Q: new objects pass a FIFO, whose keys become ghosts when objects leave it; an object with a ghost enters an LRU.
pub(super) struct TwoQ {
    limit: u64,
    in_limit: u64,
    out_limit: u64,
    queues: Queues,
}

const IN: usize = 0;
const MAIN: usize = 1;
const OUT: usize = 2;

impl TwoQ {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, in_limit: limit / 4, out_limit: limit / 2, queues: Queues::new(3) }
    }

    fn evict(&mut self) {
        if self.queues.bytes(IN) <= self.in_limit && self.queues.pop_back(MAIN).is_some() {
            return;
        }
        let victim = self.queues.pop_back(IN).expect("it evicts only what holds memory");
        remember(&mut self.queues, OUT, self.out_limit, victim.key, victim.bytes);
    }
}

/// Puts a key that has left into a FIFO of those.
fn remember(queues: &mut Queues, ghosts: usize, limit: u64, key: u64, bytes: u64) {
    if bytes <= limit {
        while queues.bytes(ghosts) + bytes > limit {
            queues.pop_back(ghosts);
        }
        queues.push_front(ghosts, key, bytes);
    }
}

/// Removes a key from the ghosts; true if it was there.
fn forget(queues: &mut Queues, ghosts: usize, key: u64) -> bool {
    let ghost = queues.find(key).filter(|&node| queues.get(node).queue == ghosts);
    ghost.map(|node| queues.remove(node)).is_some()
}

impl Cache for TwoQ {
    fn get(&mut self, key: u64, bytes: u64, _next: u64) -> bool {
        let was_out = forget(&mut self.queues, OUT, key);
        if let Some(node) = self.queues.find(key) {
            if self.queues.get(node).queue == MAIN {
                self.queues.move_front(node, MAIN);
            }
            return true;
        }
        if bytes <= self.in_limit {
            while self.queues.bytes(IN) + self.queues.bytes(MAIN) + bytes > self.limit {
                self.evict();
            }
            self.queues.push_front(if was_out { MAIN } else { IN }, key, bytes);
            // Of a ghost hit the LRU makes the space within itself.
            while was_out && self.queues.bytes(MAIN) > self.limit - self.in_limit {
                self.queues.pop_back(MAIN);
            }
        }
        false
    }

    fn remove(&mut self, key: u64) {
        if let Some(node) = self.queues.find(key) {
            self.queues.remove(node);
        }
    }

    fn bytes_of(&self, key: u64) -> Option<u64> {
        let node = self.queues.find(key).filter(|&node| self.queues.get(node).queue != OUT);
        node.map(|node| self.queues.get(node).bytes)
    }
}

/// S3-FIFO: new objects pass a small FIFO; used ones go on to a main one, in which each use is a round more.
pub(super) struct S3Fifo {
    limit: u64,
    small_limit: u64,
    ghost_limit: u64,
    queues: Queues,
}

const SMALL: usize = 0;
const GHOST: usize = 2;
/// Number of uses in the small queue that move an object to the main queue.
const USES_TO_MOVE: u32 = 2;
const MAX_USES: u32 = 3;

impl S3Fifo {
    pub(super) fn new(limit: u64) -> Self {
        let share = |part: f64| (limit as f64 * part) as u64;
        Self { limit, small_limit: share(0.1), ghost_limit: share(0.9), queues: Queues::new(3) }
    }

    fn evict(&mut self) {
        if self.queues.bytes(MAIN) > self.limit - self.small_limit || self.queues.bytes(SMALL) == 0 {
            self.evict_main();
        } else {
            self.evict_small();
        }
    }

    /// Ends: each turn takes one out of the queue.
    fn evict_small(&mut self) {
        while let Some(node) = self.queues.back(SMALL) {
            if self.queues.get(node).mark >= USES_TO_MOVE {
                self.queues.mark(node, 0);
                self.queues.move_front(node, MAIN);
                continue;
            }
            let victim = self.queues.remove(node);
            remember(&mut self.queues, GHOST, self.ghost_limit, victim.key, victim.bytes);
            return;
        }
    }

    /// Ends: each turn takes a use.
    fn evict_main(&mut self) {
        while let Some(node) = self.queues.back(MAIN) {
            let uses = self.queues.get(node).mark;
            if uses == 0 {
                self.queues.remove(node);
                return;
            }
            self.queues.mark(node, uses.min(MAX_USES) - 1);
            self.queues.move_front(node, MAIN);
        }
    }
}

impl Cache for S3Fifo {
    fn get(&mut self, key: u64, bytes: u64, _next: u64) -> bool {
        let was_ghost = forget(&mut self.queues, GHOST, key);
        if let Some(node) = self.queues.find(key) {
            let uses = self.queues.get(node).mark + 1;
            self.queues.mark(node, uses);
            return true;
        }
        if bytes > self.small_limit {
            return false;
        }
        while self.queues.bytes(SMALL) + self.queues.bytes(MAIN) + bytes > self.limit {
            self.evict();
        }
        if was_ghost {
            self.queues.push_front(MAIN, key, bytes);
        } else if bytes < self.small_limit {
            self.queues.push_front(SMALL, key, bytes);
        }
        false
    }

    fn remove(&mut self, key: u64) {
        if let Some(node) = self.queues.find(key) {
            self.queues.remove(node);
        }
    }

    fn bytes_of(&self, key: u64) -> Option<u64> {
        let node = self.queues.find(key).filter(|&node| self.queues.get(node).queue != GHOST);
        node.map(|node| self.queues.get(node).bytes)
    }
}
