//! Which page moves between the classes of memcached (`slab_automove=1`), decided once a second.
//!
//! Free chunks beyond two and a half pages are given back. Without unused pages, a page goes from the class with the
//! oldest tail to the one with the youngest among those that evict, if that one is younger than four fifths of it.
//!
//! memcached averages the ages of thirty seconds and wants evictions in more than half of these. A generated trace has
//! a thousandth of a server's requests a second: here an eviction within thirty seconds is enough.

use crate::slabs::Slabs;

pub const WINDOW_SECONDS: u32 = 30;
const YOUNG: f64 = 0.8;
const MIN_PAGES_OF_SOURCE: usize = 3;
const MAX_FREE_PAGES: f64 = 2.5;

/// The end of a class's queues.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    pub age: u32,
    /// Seconds since it evicted an item.
    pub evicted_for: Option<u32>,
}

/// A page to move; to no class is among the unused ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub from: usize,
    pub to: Option<usize>,
}

pub fn decide(slabs: &Slabs, tail: impl Fn(usize) -> Tail) -> Option<Page> {
    // Age and number.
    let mut youngest: Option<(u32, usize)> = None;
    let mut oldest: Option<(u32, usize)> = None;
    for (number, class) in slabs.classes.iter().enumerate() {
        if class.pages.is_empty() {
            continue;
        }
        let Tail { age, evicted_for } = tail(number);
        let evicts = evicted_for.is_some_and(|seconds| seconds <= WINDOW_SECONDS);
        if !evicts && class.pages.len() > 1 && class.free as f64 > MAX_FREE_PAGES * class.chunks_per_page as f64 {
            return Some(Page { from: number, to: None });
        }
        if class.pages.len() >= MIN_PAGES_OF_SOURCE && oldest.is_none_or(|(other, _)| age > other) {
            oldest = Some((age, number));
        }
        if evicts && youngest.is_none_or(|(other, _)| age < other) {
            youngest = Some((age, number));
        }
    }
    let ((young, to), (old, from)) = (youngest?, oldest?);
    let moves = slabs.unused_pages() == 0 && f64::from(young) < YOUNG * f64::from(old);
    moves.then_some(Page { from, to: Some(to) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slabs of 256 pages, of which class 0 has all but `unused`, full, and class 1 one.
    fn slabs(unused: usize) -> Slabs {
        let mut slabs = Slabs::new(1 << 20, 96, 100);
        let _one = slabs.take(1);
        let chunks = (255 - unused) * slabs.classes[0].chunks_per_page;
        assert!((0..chunks).all(|_| slabs.take(0).is_some()));
        slabs
    }

    fn tails(ages: [u32; 2]) -> impl Fn(usize) -> Tail {
        move |class| Tail { age: ages[class], evicted_for: Some(WINDOW_SECONDS) }
    }

    #[test]
    fn the_oldest_tail_gives_to_the_youngest() {
        let page = Page { from: 0, to: Some(1) };
        assert_eq!(decide(&slabs(0), tails([100, 79])), Some(page));
        assert_eq!(decide(&slabs(0), tails([100, 81])), None, "hardly younger");
        assert_eq!(decide(&slabs(0), tails([79, 100])), None, "a class of one page gives none");
        assert_eq!(decide(&slabs(1), tails([100, 79])), None, "there is an unused page");
    }

    #[test]
    fn free_pages_are_given_back_without_evictions() {
        let mut slabs = slabs(0);
        let (page, bytes) = (slabs.classes[0].pages[0], slabs.classes[0].chunk_bytes);
        let chunks = 5 * slabs.classes[0].chunks_per_page / 2 + 1;
        for number in 0..chunks {
            let per_page = slabs.classes[0].chunks_per_page;
            let page = slabs.classes[0].pages[number / per_page];
            slabs.give_back(slabs.chunk(page, bytes, number % per_page));
        }
        assert_eq!(slabs.class_of_page(page), Some(0));
        let idle = |_| Tail { age: 0, evicted_for: None };
        assert_eq!(decide(&slabs, idle), Some(Page { from: 0, to: None }));
        assert_eq!(decide(&slabs, tails([0, 0])), None);
    }
}
