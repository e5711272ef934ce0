//! A page of the index: a few hundred objects, sorted by tag, without gaps.

use super::address::Address;

/// Number of objects for which a page allocates space at once, so its unused space is bounded.
const STEP: usize = 8;
/// Bytes of a memory allocator beside each allocation.
const ALLOCATION_BYTES: usize = 16;

/// Tags and addresses are stored separately, so a search reads only tags. Ten bytes per object.
#[derive(Debug, Default)]
pub struct IndexPage {
    tags: Vec<u32>,
    places: Vec<[u16; 3]>,
}

impl IndexPage {
    pub fn len(&self) -> usize {
        self.tags.len()
    }

    pub fn get(&self, tag: u32) -> Option<Address> {
        let at = self.tags.binary_search(&tag).ok()?;
        Some(Address::from_words(self.places[at]))
    }

    /// Inserts an address; returns the one that had the same tag.
    pub fn insert(&mut self, tag: u32, address: Address) -> Option<Address> {
        match self.tags.binary_search(&tag) {
            Ok(at) => Some(Address::from_words(std::mem::replace(&mut self.places[at], address.to_words()))),
            Err(at) => {
                self.reserve();
                self.tags.insert(at, tag);
                self.places.insert(at, address.to_words());
                None
            }
        }
    }

    pub fn remove(&mut self, tag: u32) -> Option<Address> {
        let at = self.tags.binary_search(&tag).ok()?;
        self.tags.remove(at);
        let address = self.places.remove(at);
        self.give_back();
        Some(Address::from_words(address))
    }

    /// Keeps the objects for which `keep` is true. It is called once for each tag, in ascending order.
    pub fn retain(&mut self, mut keep: impl FnMut(u32, Address) -> bool) {
        let mut reserved = 0;
        for at in 0..self.tags.len() {
            if keep(self.tags[at], Address::from_words(self.places[at])) {
                self.tags[reserved] = self.tags[at];
                self.places[reserved] = self.places[at];
                reserved += 1;
            }
        }
        self.tags.truncate(reserved);
        self.places.truncate(reserved);
        self.give_back();
    }

    /// Moves the objects for which `moves` is true to a new page.
    pub fn split(&mut self, moves: impl Fn(u32) -> bool) -> IndexPage {
        let mut other = IndexPage::default();
        self.retain(|tag, address| {
            if moves(tag) {
                other.append(tag, address);
            }
            !moves(tag)
        });
        other
    }

    /// Adds all objects of another page.
    pub fn merge(&mut self, other: IndexPage) {
        let (mine, mut theirs) = (std::mem::take(self), other.iter().peekable());
        for (tag, address) in mine.iter() {
            while let Some((tag, address)) = theirs.next_if(|theirs| theirs.0 < tag) {
                self.append(tag, address);
            }
            self.append(tag, address);
        }
        theirs.for_each(|(tag, address)| self.append(tag, address));
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, Address)> {
        self.tags.iter().zip(&self.places).map(|(&tag, &words)| (tag, Address::from_words(words)))
    }

    /// Bytes of RAM, without the page's own struct.
    pub fn heap_bytes(&self) -> usize {
        if self.tags.capacity() == 0 {
            return 0;
        }
        self.tags.capacity() * size_of::<u32>() + self.places.capacity() * size_of::<[u16; 3]>() + 2 * ALLOCATION_BYTES
    }

    fn append(&mut self, tag: u32, address: Address) {
        self.reserve();
        self.tags.push(tag);
        self.places.push(address.to_words());
    }

    fn reserve(&mut self) {
        if self.tags.len() == self.tags.capacity() {
            self.tags.reserve_exact(STEP);
            self.places.reserve_exact(STEP);
        }
    }

    fn give_back(&mut self) {
        if self.tags.is_empty() || self.tags.capacity() >= self.tags.len() + STEP + STEP / 2 {
            let capacity = self.tags.len().next_multiple_of(STEP);
            self.tags.shrink_to(capacity);
            self.places.shrink_to(capacity);
        }
    }
}
