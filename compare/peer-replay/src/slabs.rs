//! Slab storage: memory in pages, each cut into chunks of the class of sizes it was given to.
//!
//! Chunk sizes grow by 1.25 from the least one, rounded up to 8 bytes. Pages have 1 MiB; smaller memory gets smaller
//! pages, so that there are 64 of them, but never too small for the largest object.
//!
//! [`SlabEviction`] evicts whole pages, as Twemcache and Pelikan do: a random page loses all its objects and goes to
//! the class that needs space. Expired objects are removed only when they are asked for.

use crate::Cache;
use crate::list::{Links, List};
use crate::random::Random;
use crate::trace::{Request, Trace};

const PAGE_BYTES: u64 = 1 << 20;
const PAGES: u64 = 64;
const GROWTH: f64 = 1.25;
const MIN_CHUNK_BYTES: u64 = 48;
pub const HEADER_BYTES: u64 = 38;

/// The size of pages for so much memory and objects of up to `largest` bytes, headers included.
pub fn page_bytes(memory: u64, largest: u64) -> u64 {
    (memory / PAGES).max(largest).min(PAGE_BYTES)
}

/// Ascending chunk sizes, the last of which is `largest`.
pub fn chunk_sizes(min_bytes: u64, largest: u64) -> Vec<u64> {
    let mut sizes = Vec::new();
    let mut size = min_bytes;
    while (size as f64) < largest as f64 / GROWTH {
        size = size.next_multiple_of(8);
        sizes.push(size);
        size = (size as f64 * GROWTH) as u64;
    }
    sizes.push(largest);
    sizes
}

pub struct SlabEviction {
    page: u64,
    sizes: Vec<u64>,
    pages_left: u64,
    /// Of each class: the pages of its free chunks.
    free: Vec<Vec<u32>>,
    /// Of each page: its class and its objects.
    pages: Vec<(usize, List)>,
    /// Of each key: its page and its expiry.
    objects: Vec<Option<(u32, u32)>>,
    links: Links,
    random: Random,
}

impl SlabEviction {
    pub fn new(memory: u64, trace: &Trace) -> Self {
        let page = page_bytes(memory, trace.largest_bytes() + HEADER_BYTES);
        let sizes = chunk_sizes(MIN_CHUNK_BYTES, page);
        Self {
            page,
            pages_left: memory / page,
            free: vec![Vec::new(); sizes.len()],
            sizes,
            pages: Vec::new(),
            objects: vec![None; trace.objects.len()],
            links: Links::new(trace.objects.len()),
            random: Random::new(1),
        }
    }

    /// A page more for a class; false if there is none at all.
    fn give_page(&mut self, class: usize) -> bool {
        let page = if self.pages_left > 0 {
            self.pages_left -= 1;
            self.pages.push((class, List::default()));
            self.pages.len() - 1
        } else if self.pages.is_empty() {
            return false;
        } else {
            let page = self.random.uniform(self.pages.len());
            while let Some(key) = self.pages[page].1.first() {
                self.delete(key);
            }
            self.free[self.pages[page].0].retain(|&other| other as usize != page);
            self.pages[page].0 = class;
            page
        };
        let chunks = (self.page / self.sizes[class]) as usize;
        self.free[class].extend(std::iter::repeat_n(page as u32, chunks));
        true
    }
}

impl Cache for SlabEviction {
    fn get(&mut self, key: u32, now: u32) -> bool {
        let there = self.objects[key as usize].is_some_and(|(_, expiry)| expiry > now);
        if !there {
            self.delete(key);
        }
        there
    }

    fn set(&mut self, request: &Request) {
        self.delete(request.key);
        let bytes = request.object.bytes() + HEADER_BYTES;
        let class = self.sizes.partition_point(|&size| size < bytes);
        if class == self.sizes.len() || self.free[class].is_empty() && !self.give_page(class) {
            return;
        }
        if let Some(page) = self.free[class].pop() {
            self.objects[request.key as usize] = Some((page, request.expiry()));
            self.pages[page as usize].1.push(&mut self.links, request.key);
        }
    }

    fn delete(&mut self, key: u32) {
        if let Some((page, _)) = self.objects[key as usize].take() {
            let (class, objects) = &mut self.pages[page as usize];
            objects.remove(&mut self.links, key);
            self.free[*class].push(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_memcached() {
        let sizes = chunk_sizes(96, 1 << 19);
        assert_eq!(sizes[..8], [96, 120, 152, 192, 240, 304, 384, 480]);
        assert_eq!(sizes.last(), Some(&(1 << 19)));
        assert_eq!(sizes.len(), 39);
    }
}
