//! Exact LRU by bytes that removes every object in the second of its expiry: no memory is ever held by the expired.

use crate::Cache;
use crate::expiries::Expiries;
use crate::list::{Links, List};
use crate::trace::{Request, Trace};

/// Bytes that a lean cache charges per object.
pub const HEADER_BYTES: u64 = 24;

pub struct ProactiveLru {
    memory: u64,
    used: u64,
    /// Bytes and expiry of every object; no bytes if it is not there.
    objects: Vec<(u64, u32)>,
    order: List,
    links: Links,
    expiries: Expiries,
}

impl ProactiveLru {
    pub fn new(memory: u64, trace: &Trace) -> Self {
        let keys = trace.objects.len();
        Self {
            memory,
            used: 0,
            objects: vec![(0, 0); keys],
            order: List::default(),
            links: Links::new(keys),
            expiries: Expiries::default(),
        }
    }

    fn expire(&mut self, now: u32) {
        while let Some((key, expiry)) = self.expiries.take(now) {
            if self.objects[key as usize].1 == expiry {
                self.delete(key);
            }
        }
    }
}

impl Cache for ProactiveLru {
    fn get(&mut self, key: u32, now: u32) -> bool {
        self.expire(now);
        let there = self.objects[key as usize].0 > 0;
        if there {
            self.order.remove(&mut self.links, key);
            self.order.push(&mut self.links, key);
        }
        there
    }

    fn set(&mut self, request: &Request) {
        self.expire(request.now);
        self.delete(request.key);
        let bytes = request.object.bytes() + HEADER_BYTES;
        if bytes > self.memory {
            return;
        }
        while self.used + bytes > self.memory
            && let Some(oldest) = self.order.first()
        {
            self.delete(oldest);
        }
        self.objects[request.key as usize] = (bytes, request.expiry());
        self.order.push(&mut self.links, request.key);
        self.used += bytes;
        self.expiries.add(request.key, request.expiry());
    }

    fn delete(&mut self, key: u32) {
        let bytes = std::mem::take(&mut self.objects[key as usize].0);
        if bytes > 0 {
            self.order.remove(&mut self.links, key);
            self.used -= bytes;
        }
    }
}
