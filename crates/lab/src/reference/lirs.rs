//! LIRS (SIGMETRICS'02): objects with a short distance between two uses (LIR) hold nearly all of the memory.
//!
//! The stack S has objects by recency: LIR ones, resident HIR ones and keys of HIR ones that have left. Its lowest is
//! always LIR. The queue Q has the resident HIR objects, which are evicted from it. A HIR object that is used while it
//! is in S has a shorter distance than the lowest LIR object, and they change places.

use super::cache::Cache;
use super::queues::Queues;

/// The only queue of each `Queues`.
const ALL: usize = 0;
/// States of an object of S.
const LIR: u32 = 0;
const RESIDENT: u32 = 1;
const GONE: u32 = 2;
/// Q has one part of these of the memory.
const HIR_PARTS: u64 = 100;
/// Bytes of S, by the memory: without a bound it would grow with each object that is used once.
const STACK_SHARE: u64 = 2;

pub(super) struct Lirs {
    limit: u64,
    /// Bytes of Q: a hundredth of the memory, and one of the smallest objects at least.
    hir_limit: u64,
    smallest_bytes: u64,
    stack: Queues,
    /// Resident HIR objects.
    queue: Queues,
    /// Keys of S that have left, by when they did.
    gone: Queues,
    lir_bytes: u64,
}

impl Lirs {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            hir_limit: (limit / HIR_PARTS).max(1),
            smallest_bytes: u64::MAX,
            stack: Queues::new(1),
            queue: Queues::new(1),
            gone: Queues::new(1),
            lir_bytes: 0,
        }
    }

    /// Sets the bytes of Q again for the smallest object so far. Without space for one object in Q, no object could
    /// enter a cache of fewer than a hundred: the papers and simulators count in objects.
    fn note_size(&mut self, bytes: u64) {
        if bytes >= self.smallest_bytes {
            return;
        }
        self.smallest_bytes = bytes;
        self.hir_limit = (self.limit / HIR_PARTS).max(bytes.min(self.limit / 2)).max(1);
        self.make_space_in_queue(0);
        // Ends: each turn takes a LIR object.
        while self.lir_bytes > self.lir_limit() {
            self.demote_lowest();
        }
    }

    fn lir_limit(&self) -> u64 {
        self.limit - self.hir_limit
    }

    /// Takes out HIR objects below the lowest LIR one, but for the one in front. Ends: each turn takes one out.
    fn prune(&mut self) {
        while let Some(node) = self.stack.back(ALL)
            && self.stack.get(node).mark != LIR
            && self.stack.newer(node).is_some()
        {
            let key = self.stack.remove(node).key;
            if let Some(gone) = self.gone.find(key) {
                self.gone.remove(gone);
            }
        }
    }

    /// The lowest object of S, which is LIR, becomes a resident HIR one, if Q has space for it at all.
    fn demote_lowest(&mut self) {
        let Some(node) = self.stack.back(ALL) else {
            return;
        };
        let object = self.stack.remove(node);
        self.lir_bytes -= object.bytes;
        if object.bytes <= self.hir_limit {
            self.make_space_in_queue(object.bytes);
            self.queue.push_front(ALL, object.key, object.bytes);
        }
        self.prune();
    }

    /// Evicts from Q, the first that came. Ends: each turn takes one out.
    fn make_space_in_queue(&mut self, bytes: u64) {
        while self.queue.bytes(ALL) + bytes > self.hir_limit
            && let Some(victim) = self.queue.pop_back(ALL)
        {
            if let Some(node) = self.stack.find(victim.key) {
                self.stack.mark(node, GONE);
                self.gone.push_front(ALL, victim.key, victim.bytes);
            }
        }
    }

    /// Bounds S by its keys that have left, those that left first. Ends: each turn takes one out.
    fn bound_stack(&mut self) {
        while self.stack.bytes(ALL) > STACK_SHARE * self.limit
            && let Some(gone) = self.gone.pop_back(ALL)
        {
            let node = self.stack.find(gone.key).expect("what has left is in S");
            self.stack.remove(node);
        }
    }

    /// Makes the object, which is in front of S and HIR, a LIR one. Ends: each turn takes a LIR object.
    fn promote(&mut self, key: u64, bytes: u64) {
        while self.lir_bytes + bytes > self.lir_limit() && self.lir_bytes > 0 {
            self.demote_lowest();
        }
        let node = self.stack.find(key).expect("it is in front of S");
        self.stack.mark(node, LIR);
        self.lir_bytes += bytes;
        self.prune();
    }

    /// A use of an object. False if it is not cached.
    fn hit(&mut self, key: u64) -> bool {
        let state = self.stack.find(key).map(|node| (node, self.stack.get(node).mark));
        match (state, self.queue.find(key)) {
            (Some((node, LIR)), _) => {
                self.stack.move_front(node, ALL);
                self.prune();
            }
            (Some((at, RESIDENT)), Some(node)) => {
                self.stack.move_front(at, ALL);
                let bytes = self.queue.remove(node).bytes;
                self.promote(key, bytes);
            }
            (None, Some(node)) => {
                let bytes = self.queue.get(node).bytes;
                self.queue.move_front(node, ALL);
                while self.lir_bytes + bytes > self.lir_limit() && self.lir_bytes > 0 {
                    self.demote_lowest();
                }
                // A demoted object may have taken its place in a short Q.
                if self.queue.find(key).is_none() {
                    self.make_space_in_queue(bytes);
                    self.queue.push_front(ALL, key, bytes);
                }
                self.push_resident(key, bytes);
            }
            _ => return false,
        }
        true
    }

    fn push_resident(&mut self, key: u64, bytes: u64) {
        let node = self.stack.push_front(ALL, key, bytes);
        self.stack.mark(node, RESIDENT);
    }
}

impl Cache for Lirs {
    fn get(&mut self, key: u64, bytes: u64, _next: u64) -> bool {
        self.note_size(bytes);
        let hit = self.hit(key);
        if let Some(node) = self.stack.find(key).filter(|_| !hit) {
            // The object returns with its earlier size.
            let bytes = self.stack.get(node).bytes;
            self.gone.remove(self.gone.find(key).expect("what has left is among those"));
            self.stack.mark(node, RESIDENT);
            self.stack.move_front(node, ALL);
            self.promote(key, bytes);
        } else if !hit && bytes <= self.hir_limit.min(self.lir_limit()) {
            if self.lir_bytes + bytes <= self.lir_limit() {
                self.stack.push_front(ALL, key, bytes);
                self.lir_bytes += bytes;
            } else {
                self.make_space_in_queue(bytes);
                self.push_resident(key, bytes);
                self.queue.push_front(ALL, key, bytes);
            }
        }
        self.bound_stack();
        hit
    }

    fn remove(&mut self, key: u64) {
        if let Some(node) = self.stack.find(key) {
            let object = self.stack.remove(node);
            self.lir_bytes -= if object.mark == LIR { object.bytes } else { 0 };
        }
        for queue in [&mut self.queue, &mut self.gone] {
            if let Some(node) = queue.find(key) {
                queue.remove(node);
            }
        }
        self.prune();
    }

    fn bytes_of(&self, key: u64) -> Option<u64> {
        let lir = self.stack.find(key).filter(|&node| self.stack.get(node).mark == LIR);
        let resident = self.queue.find(key).map(|node| self.queue.get(node).bytes);
        lir.map(|node| self.stack.get(node).bytes).or(resident)
    }
}
