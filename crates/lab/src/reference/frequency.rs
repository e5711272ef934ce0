//! W-TinyLFU (ACM ToS 2017): a small window of recency before a main cache, which an object enters only if it is used
//! more often than the one that would leave. Counts are exact, and halved when as many uses have been counted as 32
//! times the objects of the cache.

use std::collections::HashMap;

use super::cache::Cache;
use super::queues::Queues;
use super::segmented::Slru;

const WINDOW: usize = 0;
/// Uses for each object of the cache until counts are halved.
const USES_PER_OBJECT: u64 = 32;

pub(super) struct WTinyLfu {
    limit: u64,
    window_limit: u64,
    /// Of all objects so far: one of them fits into the window in any case.
    smallest_bytes: u64,
    window: Queues,
    main: Slru,
    counts: HashMap<u64, u32>,
    uses: u64,
    objects: u64,
}

impl WTinyLfu {
    pub(super) fn new(limit: u64) -> Self {
        let window_limit = limit / 100;
        Self {
            limit,
            window_limit,
            smallest_bytes: u64::MAX,
            window: Queues::new(1),
            main: Slru::new(limit - window_limit, &[1, 4]),
            counts: HashMap::new(),
            uses: 0,
            objects: 0,
        }
    }

    fn count(&mut self, key: u64) {
        *self.counts.entry(key).or_insert(0) += 1;
        self.uses += 1;
        if self.uses >= USES_PER_OBJECT * self.objects.max(1024) {
            self.uses = 0;
            self.counts.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
        }
    }

    fn count_of(&self, key: u64) -> u32 {
        self.counts.get(&key).copied().unwrap_or(0)
    }

    /// The oldest of the window goes to the main cache, or one of both leaves. Ends: each turn takes one out of the
    /// window.
    fn evict(&mut self) {
        while let Some(candidate) = self.window.pop_back(WINDOW) {
            if self.main.used() + candidate.bytes <= self.main.limit() {
                self.main.insert(candidate.key, candidate.bytes);
                continue;
            }
            self.objects -= 1;
            let victim = self.main.victim().map(|node| self.main.key_of(node));
            if victim.is_some_and(|victim| self.count_of(candidate.key) > self.count_of(victim)) {
                self.main.evict();
                self.main.insert(candidate.key, candidate.bytes);
            }
            self.count(candidate.key);
            return;
        }
        self.main.evict();
        self.objects -= 1;
    }
}

impl Cache for WTinyLfu {
    fn get(&mut self, key: u64, bytes: u64, _next: u64) -> bool {
        if let Some(node) = self.window.find(key) {
            self.window.move_front(node, WINDOW);
            return true;
        }
        if self.main.touch(key) {
            self.count(key);
            return true;
        }
        self.smallest_bytes = self.smallest_bytes.min(bytes);
        if bytes > self.window_limit.max(self.smallest_bytes) || !self.main.takes(bytes) {
            return false;
        }
        while self.window.bytes(WINDOW) + self.main.used() + bytes > self.limit {
            self.evict();
        }
        self.window.push_front(WINDOW, key, bytes);
        self.objects += 1;
        self.count(key);
        false
    }

    fn remove(&mut self, key: u64) {
        if self.bytes_of(key).is_none() {
            return;
        }
        self.objects -= 1;
        match self.window.find(key) {
            Some(node) => _ = self.window.remove(node),
            None => self.main.remove(key),
        }
    }

    fn bytes_of(&self, key: u64) -> Option<u64> {
        let in_window = self.window.find(key).map(|node| self.window.get(node).bytes);
        in_window.or_else(|| self.main.bytes_of(key))
    }
}
