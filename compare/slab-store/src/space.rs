//! Items in slab storage with the hash table that leads to them; and the interface of evictions.

use crate::memory::{EXPIRY, Item, KEY_BYTES, LIVE, VALUE_BYTES};
use crate::slabs::Slabs;
use crate::table::Table;

/// Expiry of items that do not expire.
pub const NEVER: u32 = u32::MAX;

/// Items, and where they are.
#[derive(Debug)]
pub struct Space {
    pub(crate) slabs: Slabs,
    pub(crate) table: Table,
    /// Seconds.
    pub(crate) now: u32,
    /// Bytes before the key.
    pub(crate) header_bytes: usize,
    pub(crate) trailer_bytes: usize,
}

impl Space {
    pub(crate) fn item_bytes(&self, key_bytes: usize, value_bytes: usize) -> usize {
        self.header_bytes + key_bytes + value_bytes + self.trailer_bytes
    }

    #[inline(always)]
    pub(crate) fn has_expired(&self, item: Item) -> bool {
        self.slabs.memory.get(item, EXPIRY) <= self.now
    }

    #[inline(always)]
    pub(crate) fn is_live(&self, item: Item) -> bool {
        self.slabs.memory.has(item, LIVE)
    }

    /// Takes an item out of the table and frees its chunk.
    pub(crate) fn remove(&mut self, item: Item) {
        self.table.remove(&mut self.slabs.memory, item);
        self.slabs.give_back(item);
    }

    /// Copies an item to a chunk of its class, and frees the old chunk.
    pub(crate) fn copy(&mut self, from: Item, to: Item) {
        let memory = &mut self.slabs.memory;
        let length = usize::from(memory.get(from, KEY_BYTES)) + memory.get(from, VALUE_BYTES) as usize;
        memory.copy(from, to, self.header_bytes + length);
        self.table.replace(memory, from, to);
        self.slabs.give_back(from);
    }
}

/// Which items leave, and the state that it takes to tell.
pub trait Eviction {
    const HEADER_BYTES: usize;
    /// Bytes after the value.
    const TRAILER_BYTES: usize = 0;

    /// A new item, already in the table.
    fn stored(&mut self, space: &mut Space, item: Item);

    /// A hit.
    fn used(&mut self, space: &mut Space, item: Item);

    /// An item that is removed next, but not by the eviction.
    fn removed(&mut self, _space: &mut Space, _item: Item) {}

    /// Frees a chunk of the class. False if it cannot.
    fn make_space(&mut self, space: &mut Space, class: usize) -> bool;

    /// Time has moved on.
    fn advanced(&mut self, _space: &mut Space) {}

    /// # Panics
    /// If the state is not that of the items.
    fn verify(&self, _space: &Space) {}
}

/// An eviction that evicts item by item.
pub(crate) trait ItemEviction: Eviction {
    /// Evicts an item of the class. False if it has none.
    fn evict(&mut self, space: &mut Space, class: usize) -> bool;

    /// An item has been copied to another chunk.
    fn copied(&mut self, _space: &mut Space, _to: Item) {}
}

/// Empties the page and gives it to another class, or to none: items move to free chunks of their class, for which
/// others of it are evicted, as in memcached.
pub(crate) fn move_page(eviction: &mut impl ItemEviction, space: &mut Space, page: u32, to: Option<usize>) {
    let Some(class) = space.slabs.class_of_page(page) else { return };
    let (bytes, chunks) = (space.slabs.classes[class].chunk_bytes, space.slabs.classes[class].chunks_per_page);
    space.slabs.begin_emptying(page);
    for number in 0..chunks {
        let item = space.slabs.chunk(page, bytes, number);
        while space.is_live(item) {
            if space.has_expired(item) {
                eviction.removed(space, item);
                space.remove(item);
            } else if let Some(to) = space.slabs.take_free(class) {
                space.copy(item, to);
                eviction.copied(space, to);
            } else {
                eviction.evict(space, class);
            }
        }
    }
    space.slabs.end_emptying(page, to);
}

/// Gives a class without a page one of the class that has most. False if there is none.
pub(crate) fn seize_page(eviction: &mut impl ItemEviction, space: &mut Space, class: usize) -> bool {
    let Some(richest) = space.slabs.classes.iter().max_by_key(|class| class.pages.len()) else { return false };
    let Some(&page) = richest.pages.first() else { return false };
    move_page(eviction, space, page, Some(class));
    true
}
