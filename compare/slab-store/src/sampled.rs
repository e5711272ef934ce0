//! Evictions of the lowest-ranked among randomly drawn items of a class: `r-Hyperbolic` and `r-LHD` of the Segcache
//! paper.
//!
//! Expired items are removed when asked for, when drawn for an eviction, and by a cycle as Redis has it: twenty drawn
//! items, again while more than a tenth of them was expired. A cycle takes place once a second, and at most once in 128
//! requests, as a generated trace has few requests a second.
//!
//! Pages move as the LHD paper has it (section 5): from the class whose victims rank lowest, by the byte, to the one
//! whose victims rank highest.

use crate::memory::{Item, KEY_BYTES, VALUE_BYTES};
use crate::random::Random;
use crate::space::{Eviction, ItemEviction, Space, move_page, seize_page};

const CYCLE_DRAWS: usize = 20;
const MAX_CYCLES: usize = 100;
const REQUESTS_PER_CYCLE: u32 = 128;
/// Draws of chunks, some of which are free, until an item is found.
const MAX_TRIES: usize = 64;
/// Evictions between two moves of a page, as a share of the items.
const MOVE_SHARE: usize = 16;
const MIN_MOVE_EVICTIONS: usize = 64;
/// Weight of a new victim in the mean rank of its class's victims.
const VICTIM_WEIGHT: f64 = 0.05;
const MIN_PAGES_OF_SOURCE: usize = 3;

/// Rank of items. `requests` counts gets and sets.
pub trait Ranking {
    /// Items drawn for an eviction.
    const DRAWS: usize;

    fn stored(&mut self, space: &mut Space, item: Item, requests: u32);
    fn used(&mut self, space: &mut Space, item: Item, requests: u32);
    fn evicted(&mut self, _space: &Space, _item: Item, _requests: u32) {}
    /// An item is removed next, for whatever reason.
    fn removed(&mut self, _space: &Space, _item: Item) {}
    /// The lowest is evicted. By the byte: `bytes` are those of the item.
    fn rank(&self, space: &Space, item: Item, bytes: usize, requests: u32) -> f64;
}

#[derive(Debug)]
pub struct Sampled<R> {
    ranking: R,
    random: Random,
    requests: u32,
    cycled_at: u32,
    evictions: usize,
    /// Of each class: the mean rank of its victims; none if it has evicted nothing since pages moved.
    victims: Vec<Option<f64>>,
}

impl<R: Ranking> Sampled<R> {
    pub fn new(ranking: R) -> Self {
        Self { ranking, random: Random::new(1), requests: 0, cycled_at: 0, evictions: 0, victims: Vec::new() }
    }

    /// An item of a page drawn from `pages`.
    #[inline]
    fn draw(&mut self, space: &Space, pages: impl Fn(&mut Random) -> u32) -> Option<Item> {
        for _ in 0..MAX_TRIES {
            let page = pages(&mut self.random);
            let Some(class) = space.slabs.class_of_page(page) else { continue };
            let class = &space.slabs.classes[class];
            let chunk = self.random.below(class.chunks_per_page);
            let item = space.slabs.chunk(page, class.chunk_bytes, chunk);
            if space.is_live(item) {
                return Some(item);
            }
        }
        None
    }

    fn draw_of_class(&mut self, space: &Space, class: usize) -> Option<Item> {
        let pages = &space.slabs.classes[class].pages;
        self.draw(space, |random| pages[random.below(pages.len())])
    }

    /// The victim and its rank, which is none for an expired item.
    fn choose(&mut self, space: &Space, class: usize) -> Option<(Item, Option<f64>)> {
        let mut lowest: Option<(Item, f64)> = None;
        for _ in 0..R::DRAWS {
            let Some(item) = self.draw_of_class(space, class) else { break };
            if space.has_expired(item) {
                return Some((item, None));
            }
            let memory = &space.slabs.memory;
            let bytes = usize::from(memory.get(item, KEY_BYTES)) + memory.get(item, VALUE_BYTES) as usize;
            let rank = self.ranking.rank(space, item, space.item_bytes(bytes, 0), self.requests);
            if lowest.is_none_or(|(_, other)| rank < other) {
                lowest = Some((item, rank));
            }
        }
        lowest.map(|(item, rank)| (item, Some(rank))).or_else(|| Some((first_item(space, class)?, None)))
    }

    fn note_victim(&mut self, class: usize, rank: f64) {
        if self.victims.len() <= class {
            self.victims.resize(class + 1, None);
        }
        let mean = &mut self.victims[class];
        let rank = rank.max(0.0);
        *mean = Some(mean.map_or(rank, |mean| mean + VICTIM_WEIGHT * (rank - mean)));
    }

    fn discard(&mut self, space: &mut Space, item: Item) {
        self.ranking.removed(space, item);
        space.remove(item);
    }

    /// Moves a page, if the ranks of victims differ.
    fn balance(&mut self, space: &mut Space) {
        let by_rank = |(_, one): &(usize, f64), (_, other): &(usize, f64)| one.total_cmp(other);
        let known = self.victims.iter().enumerate().filter_map(|(class, rank)| Some((class, (*rank)?)));
        let highest = known.clone().max_by(by_rank);
        let lowest =
            known.filter(|&(class, _)| space.slabs.classes[class].pages.len() >= MIN_PAGES_OF_SOURCE).min_by(by_rank);
        if let (Some((from, low)), Some((to, high))) = (lowest, highest)
            && low < high
        {
            let pages = &space.slabs.classes[from].pages;
            let page = pages[self.random.below(pages.len())];
            move_page(self, space, page, Some(to));
        }
        self.victims.fill(None);
    }

    fn expire(&mut self, space: &mut Space) {
        let pages = space.slabs.page_count();
        for _ in 0..MAX_CYCLES {
            let mut expired = 0;
            for _ in 0..CYCLE_DRAWS {
                let Some(item) = self.draw(space, |random| random.below(pages) as u32) else { return };
                if space.has_expired(item) {
                    self.discard(space, item);
                    expired += 1;
                }
            }
            if expired * 10 <= CYCLE_DRAWS {
                return;
            }
        }
    }
}

/// An item of a class that has so few of them that none was drawn.
fn first_item(space: &Space, class: usize) -> Option<Item> {
    let class = &space.slabs.classes[class];
    let chunks = class.pages.iter().flat_map(|&page| (0..class.chunks_per_page).map(move |number| (page, number)));
    chunks.map(|(page, number)| space.slabs.chunk(page, class.chunk_bytes, number)).find(|&item| space.is_live(item))
}

impl<R: Ranking> Eviction for Sampled<R> {
    const HEADER_BYTES: usize = 38;

    fn stored(&mut self, space: &mut Space, item: Item) {
        self.requests = self.requests.wrapping_add(1);
        self.ranking.stored(space, item, self.requests);
    }

    #[inline]
    fn used(&mut self, space: &mut Space, item: Item) {
        self.requests = self.requests.wrapping_add(1);
        self.ranking.used(space, item, self.requests);
    }

    fn removed(&mut self, space: &mut Space, item: Item) {
        self.ranking.removed(space, item);
    }

    fn make_space(&mut self, space: &mut Space, class: usize) -> bool {
        if space.slabs.classes[class].items == 0 {
            return seize_page(self, space, class);
        }
        self.evictions += 1;
        if self.evictions > (space.table.len() / MOVE_SHARE).max(MIN_MOVE_EVICTIONS) {
            self.evictions = 0;
            self.balance(space);
        }
        space.slabs.classes[class].free > 0 || self.evict(space, class)
    }

    fn advanced(&mut self, space: &mut Space) {
        if self.requests.wrapping_sub(self.cycled_at) >= REQUESTS_PER_CYCLE {
            self.cycled_at = self.requests;
            self.expire(space);
        }
    }
}

impl<R: Ranking> ItemEviction for Sampled<R> {
    fn evict(&mut self, space: &mut Space, class: usize) -> bool {
        let Some((item, rank)) = self.choose(space, class) else { return false };
        if let Some(rank) = rank {
            self.note_victim(class, rank);
            self.ranking.evicted(space, item, self.requests);
        }
        self.discard(space, item);
        true
    }
}
