//! Slab storage: pages of 1 MiB, each cut into the chunks of a class.
//!
//! Chunk sizes grow by 1.25 from the smallest one, rounded up to 8 bytes; the last class has a chunk for a page. Less
//! memory than 256 MiB has smaller pages, so that there are 256 of them, as a server has: with 64, the pages of some
//! twenty classes are too few to be divided well. No page is smaller than the largest item.
//!
//! A page that is being emptied keeps its free chunks to itself: they are in no free list.

use crate::memory::{CAS, CHAIN, FLAGS, Item, LIVE, Memory, NONE};

const PAGE_BYTES: u64 = 1 << 20;
const MIN_PAGES: u64 = 256;
const GROWTH: f64 = 1.25;
/// Class of a page that no class has.
const NO_CLASS: u8 = u8::MAX;

#[derive(Debug)]
pub struct Class {
    pub chunk_bytes: usize,
    pub chunks_per_page: usize,
    /// The page that it has had for the longest time is the first.
    pub pages: Vec<u32>,
    pub free: usize,
    pub items: usize,
    first_free: Item,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    class: u8,
    is_emptied: bool,
}

#[derive(Debug)]
pub struct Slabs {
    pub memory: Memory,
    pub classes: Vec<Class>,
    page_shift: u32,
    pages: Vec<Page>,
    unused: Vec<u32>,
}

/// Pages are as large as a power of two.
fn page_shift(memory: u64, largest: u64) -> u32 {
    let bytes = (memory / MIN_PAGES).clamp(1, PAGE_BYTES);
    bytes.ilog2().max(largest.next_power_of_two().ilog2())
}

/// Ascending chunk sizes, the last of which is a page.
fn chunk_sizes(smallest: usize, page_bytes: usize) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut size = smallest.next_multiple_of(8);
    while (size as f64) < page_bytes as f64 / GROWTH {
        sizes.push(size);
        size = ((size as f64 * GROWTH) as usize).next_multiple_of(8);
    }
    sizes.push(page_bytes);
    sizes
}

impl Slabs {
    /// Storage for items of `smallest` to `largest` bytes, headers included.
    pub fn new(memory: u64, smallest: usize, largest: u64) -> Self {
        let page_shift = page_shift(memory, largest);
        let page_bytes = 1_usize << page_shift;
        let pages = (memory >> page_shift) as u32;
        let class = |chunk_bytes| Class {
            chunk_bytes,
            chunks_per_page: page_bytes / chunk_bytes,
            pages: Vec::new(),
            free: 0,
            items: 0,
            first_free: NONE,
        };
        Self {
            memory: Memory::new(page_bytes * pages as usize),
            classes: chunk_sizes(smallest, page_bytes).into_iter().map(class).collect(),
            page_shift,
            pages: vec![Page { class: NO_CLASS, is_emptied: false }; pages as usize],
            unused: (0..pages).rev().collect(),
        }
    }

    /// The class for so large an item.
    #[inline]
    pub fn class_for(&self, bytes: usize) -> Option<usize> {
        let class = self.classes.partition_point(|class| class.chunk_bytes < bytes);
        (class < self.classes.len()).then_some(class)
    }

    #[inline(always)]
    pub fn page_of(&self, item: Item) -> u32 {
        (item.0 >> self.page_shift) as u32
    }

    #[inline(always)]
    pub fn class_of(&self, item: Item) -> usize {
        self.pages[self.page_of(item) as usize].class.into()
    }

    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Pages that no class has.
    pub fn unused_pages(&self) -> usize {
        self.unused.len()
    }

    pub fn class_of_page(&self, page: u32) -> Option<usize> {
        Some(self.pages[page as usize].class).filter(|&class| class != NO_CLASS).map(usize::from)
    }

    /// The chunk of a page by its number.
    #[inline(always)]
    pub fn chunk(&self, page: u32, chunk_bytes: usize, number: usize) -> Item {
        Item((u64::from(page) << self.page_shift) + (number * chunk_bytes) as u64)
    }

    /// A free chunk, with a page more if there is an unused one.
    pub fn take(&mut self, class: usize) -> Option<Item> {
        if self.classes[class].free == 0 && !self.add_unused_page(class) {
            return None;
        }
        self.take_free(class)
    }

    /// A chunk of the free list.
    pub fn take_free(&mut self, class: usize) -> Option<Item> {
        let item = self.classes[class].first_free;
        if item == NONE {
            return None;
        }
        self.unlink_free(class, item);
        self.classes[class].items += 1;
        self.memory.put(item, FLAGS, LIVE);
        Some(item)
    }

    pub fn give_back(&mut self, item: Item) {
        let page = self.pages[self.page_of(item) as usize];
        self.classes[usize::from(page.class)].items -= 1;
        self.memory.put(item, FLAGS, 0);
        if !page.is_emptied {
            self.link_free(page.class.into(), item);
        }
    }

    fn add_unused_page(&mut self, class: usize) -> bool {
        let Some(page) = self.unused.pop() else { return false };
        self.add_page(class, page);
        true
    }

    /// Gives an empty page to a class.
    fn add_page(&mut self, class: usize, page: u32) {
        self.pages[page as usize] = Page { class: class as u8, is_emptied: false };
        let (bytes, chunks) = (self.classes[class].chunk_bytes, self.classes[class].chunks_per_page);
        self.classes[class].pages.push(page);
        for number in (0..chunks).rev() {
            let chunk = self.chunk(page, bytes, number);
            self.memory.put(chunk, FLAGS, 0);
            self.link_free(class, chunk);
        }
    }

    /// Takes the free chunks of a page out of the free list, and keeps those that become free.
    pub fn begin_emptying(&mut self, page: u32) {
        let class = usize::from(self.pages[page as usize].class);
        self.pages[page as usize].is_emptied = true;
        for number in 0..self.classes[class].chunks_per_page {
            let chunk = self.chunk(page, self.classes[class].chunk_bytes, number);
            if !self.memory.has(chunk, LIVE) {
                self.unlink_free(class, chunk);
            }
        }
    }

    /// Gives the page, which has no item any more, to a class, or to none.
    pub fn end_emptying(&mut self, page: u32, to: Option<usize>) {
        let class = usize::from(self.pages[page as usize].class);
        self.classes[class].pages.retain(|&other| other != page);
        match to {
            Some(to) => self.add_page(to, page),
            None => {
                self.pages[page as usize] = Page { class: NO_CLASS, is_emptied: false };
                self.unused.push(page);
            }
        }
    }

    fn link_free(&mut self, class: usize, item: Item) {
        let class = &mut self.classes[class];
        self.memory.put(item, CHAIN, class.first_free.0);
        self.memory.put(item, CAS, NONE.0);
        if class.first_free != NONE {
            self.memory.put(class.first_free, CAS, item.0);
        }
        class.first_free = item;
        class.free += 1;
    }

    fn unlink_free(&mut self, class: usize, item: Item) {
        let class = &mut self.classes[class];
        let (next, before) = (Item(self.memory.get(item, CHAIN)), Item(self.memory.get(item, CAS)));
        match before {
            NONE => class.first_free = next,
            before => self.memory.put(before, CHAIN, next.0),
        }
        if next != NONE {
            self.memory.put(next, CAS, before.0);
        }
        class.free -= 1;
    }

    /// # Panics
    /// If the counts of a class are not those of its pages.
    pub fn verify(&self) {
        for (number, class) in self.classes.iter().enumerate() {
            let chunks = class.pages.iter().flat_map(|&page| {
                assert_eq!(self.class_of_page(page), Some(number), "page {page}");
                (0..class.chunks_per_page).map(move |chunk| self.chunk(page, class.chunk_bytes, chunk))
            });
            let live = chunks.filter(|&chunk| self.memory.has(chunk, LIVE)).count();
            assert_eq!(live, class.items, "items of class {number}");
            assert_eq!(live + class.free, class.pages.len() * class.chunks_per_page, "chunks of class {number}");
        }
        let paged: usize = self.classes.iter().map(|class| class.pages.len()).sum();
        assert_eq!(paged + self.unused.len(), self.pages.len(), "pages");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_grow_by_a_quarter() {
        let sizes = chunk_sizes(96, 1 << 19);
        assert_eq!(sizes[..8], [96, 120, 152, 192, 240, 304, 384, 480]);
        assert_eq!(sizes.last(), Some(&(1 << 19)));
    }

    #[test]
    fn small_memory_has_small_pages() {
        assert_eq!((page_shift(1 << 30, 100), page_shift(1 << 20, 100), page_shift(1 << 20, 30_000)), (20, 12, 15));
    }

    #[test]
    fn an_emptied_page_changes_its_class() {
        let mut slabs = Slabs::new(1 << 20, 48, 100);
        let item = slabs.take(0).unwrap();
        let page = slabs.page_of(item);
        slabs.begin_emptying(page);
        assert_eq!((slabs.classes[0].free, slabs.take_free(0)), (0, None));
        slabs.give_back(item);
        assert_eq!(slabs.classes[0].free, 0);
        slabs.end_emptying(page, Some(3));
        assert_eq!((slabs.class_of_page(page), slabs.classes[0].pages.len()), (Some(3), 0));
        assert_eq!(slabs.classes[3].free, slabs.classes[3].chunks_per_page);
        slabs.verify();
    }
}
