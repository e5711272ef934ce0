//! Slab eviction, as Pelikan and Twemcache have it: a page loses all its items and goes to the class that needs space.
//! Items have no order, and expired ones are removed only when they are asked for.

use crate::memory::Item;
use crate::random::Random;
use crate::space::{Eviction, Space};

/// Which page is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimSlab {
    Random,
    /// The one whose last use is the longest ago.
    LeastRecentlyUsed,
}

#[derive(Debug)]
pub struct SlabEviction {
    victim: VictimSlab,
    random: Random,
    /// Number of the last use of each page; empty if victims are random.
    used: Vec<u64>,
    uses: u64,
}

impl SlabEviction {
    pub fn new(victim: VictimSlab) -> Self {
        Self { victim, random: Random::new(1), used: Vec::new(), uses: 0 }
    }

    #[inline]
    fn touch(&mut self, space: &Space, item: Item) {
        if self.victim == VictimSlab::Random {
            return;
        }
        let page = space.slabs.page_of(item) as usize;
        if self.used.len() <= page {
            self.used.resize(page + 1, 0);
        }
        self.uses += 1;
        self.used[page] = self.uses;
    }

    fn victim(&mut self, pages: usize) -> u32 {
        let page = match self.victim {
            VictimSlab::Random => self.random.below(pages),
            VictimSlab::LeastRecentlyUsed => (0..pages).min_by_key(|&page| self.used.get(page)).unwrap_or(0),
        };
        page as u32
    }
}

impl Eviction for SlabEviction {
    const HEADER_BYTES: usize = 38;

    fn stored(&mut self, space: &mut Space, item: Item) {
        self.touch(space, item);
    }

    #[inline]
    fn used(&mut self, space: &mut Space, item: Item) {
        self.touch(space, item);
    }

    /// Without unused pages, which is when it is asked, each page has a class.
    fn make_space(&mut self, space: &mut Space, to: usize) -> bool {
        if space.slabs.page_count() == 0 {
            return false;
        }
        let page = self.victim(space.slabs.page_count());
        let Some(from) = space.slabs.class_of_page(page) else { return false };
        let (bytes, chunks) = (space.slabs.classes[from].chunk_bytes, space.slabs.classes[from].chunks_per_page);
        space.slabs.begin_emptying(page);
        for number in 0..chunks {
            let item = space.slabs.chunk(page, bytes, number);
            if space.is_live(item) {
                space.remove(item);
            }
        }
        space.slabs.end_emptying(page, Some(to));
        true
    }
}
