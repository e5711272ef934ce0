//! memcached 1.6 with its defaults: slab classes, in each a segmented LRU, and pages that move between classes.
//!
//! Headers are 48 bytes and 8 for CAS; key and value are followed by 3 more, and the sum is rounded up to the chunk of
//! its class. Objects beyond half a page take two chunks of half a page. The hash table is not charged.
//!
//! A new object enters HOT. Beyond their shares of the class, or with a last use too long ago, the tails of HOT and
//! WARM go to COLD, unless they were asked for twice: then to the head of WARM. An object of COLD that is asked for
//! twice goes to WARM. Memory comes from the tail of COLD. Expired objects are removed when asked for and at the
//! tails; with the crawler, all of them once a minute.
//!
//! Once a second, at most, a page goes from the class with the oldest tail to one that evicts much younger objects;
//! free chunks beyond two and a half pages are given back. Unlike memcached, which gives every class a page beyond the
//! limit, a class without one takes it from the class that has most.

use crate::Cache;
use crate::expiries::Expiries;
use crate::list::{Links, List};
use crate::slabs::{chunk_sizes, page_bytes};
use crate::trace::{Request, Trace};

pub const HEADER_BYTES: u64 = 56;
const TERMINATOR_BYTES: u64 = 3;
const MIN_CHUNK_BYTES: u64 = 96;
const CRAWL_SECONDS: u32 = 60;
const MOVE_WINDOW_SECONDS: u32 = 30;
/// Tails younger than this share of the oldest one's age get a page.
const YOUNG: f64 = 0.8;

const HOT: usize = 0;
const WARM: usize = 1;
const COLD: usize = 2;
/// Of HOT and WARM: the share of the class, and the age as a multiple of the age of COLD's tail.
const SHARES: [f64; 2] = [0.2, 0.4];
const AGES: [f64; 2] = [0.2, 2.0];

#[derive(Clone, Copy, Debug, Default)]
struct Item {
    /// 0 if the object is not there.
    chunks: u8,
    queue: u8,
    class: u8,
    fetched: bool,
    active: bool,
    used: u32,
    expiry: u32,
}

#[derive(Clone, Debug, Default)]
struct Class {
    chunks_per_page: u64,
    pages: u64,
    free: u64,
    queues: [List; 3],
    evicted: Option<u32>,
}

impl Class {
    fn items(&self) -> usize {
        self.queues.iter().map(List::len).sum()
    }
}

pub struct Memcached {
    page: u64,
    sizes: Vec<u64>,
    classes: Vec<Class>,
    pages_left: u64,
    crawler: bool,
    expiries: Expiries,
    items: Vec<Item>,
    links: Links,
    second: u32,
}

impl Memcached {
    pub fn new(memory: u64, trace: &Trace, crawler: bool) -> Self {
        let page = page_bytes(memory, trace.largest_bytes() + HEADER_BYTES + TERMINATOR_BYTES);
        let sizes = chunk_sizes(MIN_CHUNK_BYTES, page / 2);
        let class = |&size| Class { chunks_per_page: page / size, ..Class::default() };
        Self {
            page,
            classes: sizes.iter().map(class).collect(),
            sizes,
            pages_left: memory / page,
            crawler,
            expiries: Expiries::default(),
            items: vec![Item::default(); trace.objects.len()],
            links: Links::new(trace.objects.len()),
            second: 0,
        }
    }

    fn move_to(&mut self, key: u32, queue: usize) {
        let item = &mut self.items[key as usize];
        let queues = &mut self.classes[usize::from(item.class)].queues;
        queues[usize::from(item.queue)].remove(&mut self.links, key);
        queues[queue].push(&mut self.links, key);
        item.queue = queue as u8;
        item.active = false;
    }

    /// Chunks of a class, with whatever has to go for them; false if there is no memory at all.
    fn take(&mut self, class: usize, chunks: u64, now: u32) -> bool {
        while self.classes[class].free < chunks {
            if self.pages_left > 0 {
                self.pages_left -= 1;
                self.add_page(class);
            } else if self.evict(class) {
                self.classes[class].evicted = Some(now);
            } else {
                let largest = (0..self.classes.len()).max_by_key(|&other| self.classes[other].pages);
                if !largest.is_some_and(|largest| self.move_page(largest, class)) {
                    return false;
                }
            }
        }
        self.classes[class].free -= chunks;
        true
    }

    fn evict(&mut self, class: usize) -> bool {
        let victim = [COLD, HOT, WARM].into_iter().find_map(|queue| self.classes[class].queues[queue].first());
        if let Some(key) = victim {
            self.delete(key);
        }
        victim.is_some()
    }

    /// Brings HOT and WARM back to their shares and frees what is expired at the tails.
    fn juggle(&mut self, class: usize, now: u32) {
        let cold_age = self.age(class, now);
        for queue in [HOT, WARM, COLD] {
            while let Some(key) = self.classes[class].queues[queue].first() {
                let item = self.items[key as usize];
                if item.expiry <= now {
                    self.delete(key);
                } else if queue == COLD {
                    break;
                } else if item.active {
                    self.move_to(key, WARM);
                } else {
                    let owner = &self.classes[class];
                    let full = owner.queues[queue].len() as f64 > SHARES[queue] * owner.items() as f64;
                    if !full && f64::from(now - item.used) <= AGES[queue] * cold_age {
                        break;
                    }
                    self.move_to(key, COLD);
                }
            }
        }
    }

    /// Seconds since the tail of COLD was used.
    fn age(&self, class: usize, now: u32) -> f64 {
        let tail = self.classes[class].queues[COLD].first();
        tail.map_or(0.0, |key| f64::from(now - self.items[key as usize].used))
    }

    fn maintain(&mut self, now: u32) {
        if now == self.second {
            return;
        }
        if self.crawler && now / CRAWL_SECONDS != self.second / CRAWL_SECONDS {
            while let Some((key, expiry)) = self.expiries.take(now) {
                if self.items[key as usize].expiry == expiry {
                    self.delete(key);
                }
            }
        }
        for _ in 0..(now - self.second).min(MOVE_WINDOW_SECONDS) {
            self.balance(now);
        }
        self.second = now;
    }

    fn balance(&mut self, now: u32) {
        for owner in self.classes.iter_mut().filter(|owner| owner.pages > 1) {
            while owner.pages > 1 && owner.free as f64 >= 2.5 * owner.chunks_per_page as f64 {
                owner.pages -= 1;
                owner.free -= owner.chunks_per_page;
                self.pages_left += 1;
            }
        }
        if self.pages_left > 0 {
            return;
        }
        let by_age = |a: &usize, b: &usize| self.age(*a, now).total_cmp(&self.age(*b, now));
        let evicting = |owner: &Class| owner.evicted.is_some_and(|then| now - then <= MOVE_WINDOW_SECONDS);
        let all = 0..self.classes.len();
        let youngest = all.clone().filter(|&class| evicting(&self.classes[class])).min_by(by_age);
        let oldest = all.filter(|&class| self.classes[class].pages > 2).max_by(by_age);
        if let (Some(youngest), Some(oldest)) = (youngest, oldest)
            && self.age(youngest, now) < YOUNG * self.age(oldest, now)
        {
            self.move_page(oldest, youngest);
        }
    }

    /// Frees a page of a class, the least used objects first, and gives it to another.
    fn move_page(&mut self, from: usize, to: usize) -> bool {
        if self.classes[from].pages == 0 {
            return false;
        }
        while self.classes[from].free < self.classes[from].chunks_per_page {
            self.evict(from);
        }
        self.classes[from].pages -= 1;
        self.classes[from].free -= self.classes[from].chunks_per_page;
        self.add_page(to);
        true
    }

    fn add_page(&mut self, class: usize) {
        let owner = &mut self.classes[class];
        owner.pages += 1;
        owner.free += owner.chunks_per_page;
    }
}

impl Cache for Memcached {
    fn get(&mut self, key: u32, now: u32) -> bool {
        self.maintain(now);
        let item = &mut self.items[key as usize];
        if item.chunks == 0 {
            return false;
        }
        if item.expiry <= now {
            self.delete(key);
            return false;
        }
        if !item.fetched {
            item.fetched = true;
        } else if !item.active {
            item.active = true;
            item.used = now;
            if usize::from(item.queue) == COLD {
                self.move_to(key, WARM);
            }
        }
        true
    }

    fn set(&mut self, request: &Request) {
        let now = request.now;
        self.maintain(now);
        self.delete(request.key);
        let bytes = request.object.bytes() + HEADER_BYTES + TERMINATOR_BYTES;
        if bytes > self.page {
            return;
        }
        let half = self.page / 2;
        let class = self.sizes.partition_point(|&size| size < bytes.min(half));
        let chunks = if bytes <= half { 1 } else { 2 };
        if !self.take(class, chunks, now) {
            return;
        }
        let expiry = request.expiry();
        self.items[request.key as usize] =
            Item { chunks: chunks as u8, queue: HOT as u8, class: class as u8, used: now, expiry, ..Item::default() };
        self.classes[class].queues[HOT].push(&mut self.links, request.key);
        if self.crawler {
            self.expiries.add(request.key, expiry);
        }
        self.juggle(class, now);
    }

    fn delete(&mut self, key: u32) {
        let item = self.items[key as usize];
        if item.chunks > 0 {
            let owner = &mut self.classes[usize::from(item.class)];
            owner.queues[usize::from(item.queue)].remove(&mut self.links, key);
            owner.free += u64::from(item.chunks);
            self.items[key as usize].chunks = 0;
        }
    }
}
