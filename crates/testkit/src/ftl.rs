//! A page-mapped flash translation layer: pages that a drive writes for the pages that it receives.
//!
//! ```text
//! logical pages    0 .. capacity, each at one physical page or at none (never written, or discarded)
//! physical pages   (1 + spare) * capacity, in blocks that are erased as a whole
//! write            the next page of the open block; the page's former place becomes invalid
//! garbage          with too few free blocks the block with the fewest valid pages is emptied: its valid pages are
//!                  written to a block of their own kind, and it is erased
//! ```
//! Drives differ in their blocks (some MiB, over all dies), in what they keep in reserve, and in how they choose; the
//! rule here, the emptiest block first, is the one that the literature analyses as greedy.

/// A drive of pages. See the drawing.
pub struct Ftl {
    /// By logical page: its physical page, or `NONE`.
    places: Vec<u32>,
    /// By physical page: its logical page, or `NONE` if it is invalid or empty.
    pages: Vec<u32>,
    /// By block: its valid pages.
    valid: Vec<u32>,
    free: Vec<u32>,
    pages_per_block: u32,
    /// The open blocks for written and for moved pages, with their numbers of pages.
    open: [(u32, u32); 2],
    given: u64,
    written: u64,
}

const NONE: u32 = u32::MAX;
/// Places in `open`.
const GIVEN: usize = 0;
const MOVED: usize = 1;
/// Free blocks from which garbage is not collected.
const MIN_FREE: usize = 2;

impl Ftl {
    /// An empty drive of `capacity_pages` logical pages, with `spare_percent` more physical ones.
    pub fn new(capacity_pages: u32, spare_percent: u32, pages_per_block: u32) -> Self {
        let physical = u64::from(capacity_pages) * u64::from(100 + spare_percent) / 100;
        // Open blocks and those that garbage collection keeps free are the drive's.
        let blocks = physical.div_ceil(pages_per_block.into()) as u32 + MIN_FREE as u32;
        Self {
            places: vec![NONE; capacity_pages as usize],
            pages: vec![NONE; (blocks * pages_per_block) as usize],
            valid: vec![0; blocks as usize],
            free: (2..blocks).rev().collect(),
            pages_per_block,
            open: [(0, 0), (1, 0)],
            given: 0,
            written: 0,
        }
    }

    pub fn capacity_pages(&self) -> u32 {
        self.places.len() as u32
    }

    /// Writes one page.
    pub fn write(&mut self, page: u32) {
        self.given += 1;
        self.invalidate(page);
        self.place(page, GIVEN);
        while self.free.len() < MIN_FREE {
            self.collect();
        }
    }

    /// The page is not read before it is written again.
    pub fn discard(&mut self, page: u32) {
        self.invalidate(page);
    }

    /// Resets the counts after a warm-up.
    pub fn reset_counts(&mut self) {
        (self.given, self.written) = (0, 0);
    }

    /// Pages written for each page given.
    pub fn amplification(&self) -> f64 {
        self.written as f64 / self.given.max(1) as f64
    }

    fn invalidate(&mut self, page: u32) {
        let place = std::mem::replace(&mut self.places[page as usize], NONE);
        if place != NONE {
            self.pages[place as usize] = NONE;
            self.valid[(place / self.pages_per_block) as usize] -= 1;
        }
    }

    fn place(&mut self, page: u32, kind: usize) {
        if self.open[kind].1 == self.pages_per_block {
            self.open[kind] = (self.free.pop().expect("garbage collection keeps blocks free"), 0);
        }
        let (block, used) = &mut self.open[kind];
        let place = *block * self.pages_per_block + *used;
        *used += 1;
        self.valid[*block as usize] += 1;
        self.pages[place as usize] = page;
        self.places[page as usize] = place;
        self.written += 1;
    }

    /// Empties the block with the fewest valid pages.
    fn collect(&mut self) {
        let is_open = |block: u32| self.open.iter().any(|open| open.0 == block);
        let closed = (0..self.valid.len() as u32).filter(|&block| !is_open(block) && !self.free.contains(&block));
        let block = closed.min_by_key(|&block| self.valid[block as usize]).expect("most blocks are closed");
        assert!(self.valid[block as usize] < self.pages_per_block, "a drive without spare space");
        let first = block * self.pages_per_block;
        for place in first..first + self.pages_per_block {
            let page = std::mem::replace(&mut self.pages[place as usize], NONE);
            if page != NONE {
                self.places[page as usize] = NONE;
                self.valid[block as usize] -= 1;
                self.place(page, MOVED);
            }
        }
        self.free.insert(0, block);
    }

    /// Asserts that both maps agree.
    pub fn verify(&self) {
        for (page, &place) in self.places.iter().enumerate() {
            assert!(place == NONE || self.pages[place as usize] == page as u32, "page {page}");
        }
        for (block, &valid) in self.valid.iter().enumerate() {
            let first = block * self.pages_per_block as usize;
            let pages = &self.pages[first..first + self.pages_per_block as usize];
            assert_eq!(pages.iter().filter(|&&page| page != NONE).count(), valid as usize, "block {block}");
        }
    }
}
