//! Caches that evict among random objects: Redis, and Hyperbolic caching.
//!
//! Redis (`allkeys-lru`): the least recently used of a pool of 16 that is fed five random objects per eviction.
//! Hyperbolic: of 64 random objects an expired one, or the one with the fewest gets per time in the cache. Both remove
//! expired objects when they are asked for, and by an active cycle, as Redis has it: it samples 20 of those with a TTL,
//! again while more than a tenth of them was expired, once in a second of the trace (a server's cycle runs ten times a
//! second; it matters little, as it repeats itself). How allocators round is not charged.

use crate::Cache;
use crate::random::{Random, Sampled};
use crate::trace::{NEVER, Request, Trace};

pub const REDIS_HEADER_BYTES: u64 = 60;
/// Hyperbolic in the Segcache paper was built upon slab storage.
pub const HYPERBOLIC_HEADER_BYTES: u64 = 38;
const REDIS_SAMPLES: usize = 5;
const POOL: usize = 16;
const HYPERBOLIC_SAMPLES: usize = 64;
const CYCLE_SAMPLES: usize = 20;
const CYCLE_REPEATS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    LeastRecentlyUsed,
    Hyperbolic,
}

impl Choice {
    fn header_bytes(self) -> u64 {
        match self {
            Choice::LeastRecentlyUsed => REDIS_HEADER_BYTES,
            Choice::Hyperbolic => HYPERBOLIC_HEADER_BYTES,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Item {
    /// 0 if the object is not there.
    bytes: u64,
    expiry: u32,
    gets: u32,
    /// Requests before it was stored, and before its last use.
    stored: u64,
    used: u64,
}

pub struct Sampling {
    choice: Choice,
    memory: u64,
    used: u64,
    requests: u64,
    cycled: u32,
    items: Vec<Item>,
    all: Sampled,
    mortal: Sampled,
    /// Last use and key, the least recent first.
    pool: Vec<(u64, u32)>,
    random: Random,
}

impl Sampling {
    pub fn new(memory: u64, trace: &Trace, choice: Choice) -> Self {
        let keys = trace.objects.len();
        Self {
            choice,
            memory,
            used: 0,
            requests: 0,
            cycled: 0,
            items: vec![Item::default(); keys],
            all: Sampled::new(keys),
            mortal: Sampled::new(keys),
            pool: Vec::new(),
            random: Random::new(1),
        }
    }

    fn evict(&mut self, now: u32) {
        let victim = match self.choice {
            Choice::LeastRecentlyUsed => self.least_recent(),
            Choice::Hyperbolic => self.least_dense(now),
        };
        if let Some(key) = victim {
            self.delete(key);
        }
    }

    /// The pool remembers when its members were last used; one used since is passed over.
    fn least_recent(&mut self) -> Option<u32> {
        loop {
            for _ in 0..REDIS_SAMPLES {
                let key = self.all.draw(&mut self.random)?;
                let member = (self.items[key as usize].used, key);
                if let Err(place) = self.pool.binary_search(&member) {
                    self.pool.insert(place, member);
                }
            }
            self.pool.truncate(POOL);
            while !self.pool.is_empty() {
                let (used, key) = self.pool.remove(0);
                let item = self.items[key as usize];
                if item.bytes > 0 && item.used == used {
                    return Some(key);
                }
            }
        }
    }

    fn least_dense(&mut self, now: u32) -> Option<u32> {
        let mut sparsest = None;
        for _ in 0..HYPERBOLIC_SAMPLES {
            let key = self.all.draw(&mut self.random)?;
            let item = self.items[key as usize];
            if item.expiry <= now {
                return Some(key);
            }
            let density = f64::from(item.gets) / (self.requests - item.stored) as f64;
            if sparsest.is_none_or(|(other, _)| density < other) {
                sparsest = Some((density, key));
            }
        }
        sparsest.map(|(_, key)| key)
    }

    fn cycle(&mut self, now: u32) {
        if now == self.cycled {
            return;
        }
        self.cycled = now;
        for _ in 0..CYCLE_REPEATS {
            let mut expired = 0;
            for _ in 0..CYCLE_SAMPLES {
                let Some(key) = self.mortal.draw(&mut self.random) else {
                    return;
                };
                if self.items[key as usize].expiry <= now {
                    self.delete(key);
                    expired += 1;
                }
            }
            if expired * 10 <= CYCLE_SAMPLES {
                return;
            }
        }
    }
}

impl Cache for Sampling {
    fn get(&mut self, key: u32, now: u32) -> bool {
        self.cycle(now);
        self.requests += 1;
        let item = &mut self.items[key as usize];
        if item.bytes == 0 {
            return false;
        }
        if item.expiry <= now {
            self.delete(key);
            return false;
        }
        item.gets += 1;
        item.used = self.requests;
        true
    }

    fn set(&mut self, request: &Request) {
        self.cycle(request.now);
        self.delete(request.key);
        self.requests += 1;
        let bytes = request.object.bytes() + self.choice.header_bytes();
        if bytes > self.memory {
            return;
        }
        while self.used + bytes > self.memory {
            self.evict(request.now);
        }
        let (stored, expiry) = (self.requests, request.expiry());
        // The first request, which stored it, counts.
        self.items[request.key as usize] = Item { bytes, expiry, gets: 1, stored: stored - 1, used: stored };
        self.used += bytes;
        self.all.add(request.key);
        if expiry != NEVER {
            self.mortal.add(request.key);
        }
    }

    fn delete(&mut self, key: u32) {
        let bytes = std::mem::take(&mut self.items[key as usize].bytes);
        if bytes > 0 {
            self.used -= bytes;
            self.all.discard(key);
            self.mortal.discard(key);
        }
    }
}
