//! A page of the index: some hundred objects, sorted by their tags, without gaps.

use super::address::Address;

/// Room is taken for so many objects at once: a page is never emptier than that.
const STEP: usize = 8;
/// What a memory allocator keeps beside each piece that it hands out.
const ALLOCATION_BYTES: usize = 16;

/// Tags and places apart, so that a search reads only tags. Ten bytes an object.
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

    /// Puts it in, and gives back what had the same tag.
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

    /// Keeps what `keep` says, which gets tags in ascending order, once each.
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

    /// Moves to a new page what `moves` says.
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

    /// Takes over all of another page.
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

    /// Bytes of RAM, but for the page itself.
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
