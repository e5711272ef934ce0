//! A page of the index: some hundred objects, sorted by their tags, without gaps.

use super::place::Place;

/// Room is taken for so many objects at once: a page is never emptier than that.
const STEP: usize = 8;
/// What a memory allocator keeps beside each piece that it hands out.
const ALLOCATION_BYTES: usize = 16;

/// Tags and places apart, so that a search reads only tags. Ten bytes an object.
#[derive(Debug, Default)]
pub struct Page {
    tags: Vec<u32>,
    places: Vec<[u16; 3]>,
}

impl Page {
    pub fn len(&self) -> usize {
        self.tags.len()
    }

    pub fn get(&self, tag: u32) -> Option<Place> {
        let at = self.tags.binary_search(&tag).ok()?;
        Some(Place::from_words(self.places[at]))
    }

    /// Puts it in, and gives back what had the same tag.
    pub fn insert(&mut self, tag: u32, place: Place) -> Option<Place> {
        match self.tags.binary_search(&tag) {
            Ok(at) => Some(Place::from_words(std::mem::replace(&mut self.places[at], place.to_words()))),
            Err(at) => {
                self.reserve();
                self.tags.insert(at, tag);
                self.places.insert(at, place.to_words());
                None
            }
        }
    }

    pub fn remove(&mut self, tag: u32) -> Option<Place> {
        let at = self.tags.binary_search(&tag).ok()?;
        self.tags.remove(at);
        let place = self.places.remove(at);
        self.give_back();
        Some(Place::from_words(place))
    }

    /// Keeps what `keep` says, which gets tags in ascending order, once each.
    pub fn retain(&mut self, mut keep: impl FnMut(u32, Place) -> bool) {
        let mut kept = 0;
        for at in 0..self.tags.len() {
            if keep(self.tags[at], Place::from_words(self.places[at])) {
                self.tags[kept] = self.tags[at];
                self.places[kept] = self.places[at];
                kept += 1;
            }
        }
        self.tags.truncate(kept);
        self.places.truncate(kept);
        self.give_back();
    }

    /// Moves to a new page what `moves` says.
    pub fn split(&mut self, moves: impl Fn(u32) -> bool) -> Page {
        let mut other = Page::default();
        self.retain(|tag, place| {
            if moves(tag) {
                other.append(tag, place);
            }
            !moves(tag)
        });
        other
    }

    /// Takes over all of another page.
    pub fn merge(&mut self, other: Page) {
        let (mine, mut theirs) = (std::mem::take(self), other.iter().peekable());
        for (tag, place) in mine.iter() {
            while let Some((tag, place)) = theirs.next_if(|theirs| theirs.0 < tag) {
                self.append(tag, place);
            }
            self.append(tag, place);
        }
        theirs.for_each(|(tag, place)| self.append(tag, place));
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, Place)> {
        self.tags.iter().zip(&self.places).map(|(&tag, &words)| (tag, Place::from_words(words)))
    }

    /// Bytes of RAM, but for the page itself.
    pub fn heap_bytes(&self) -> usize {
        if self.tags.capacity() == 0 {
            return 0;
        }
        self.tags.capacity() * size_of::<u32>() + self.places.capacity() * size_of::<[u16; 3]>() + 2 * ALLOCATION_BYTES
    }

    fn append(&mut self, tag: u32, place: Place) {
        self.reserve();
        self.tags.push(tag);
        self.places.push(place.to_words());
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
