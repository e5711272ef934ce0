//! The state in RAM of a group of neighbouring sets: for each set the entries of its objects in the log and of its
//! tombstones, oldest first, and the filter of its page. The caller holds the group's lock.
//!
//! ```text
//! object     hash's low bits: the tag | page of the log | hit:1 | 0:1        entries have four bytes, or as many
//! tombstone  hash's low bits                                  | 1:1          more as the log's pages need
//! ```
//! The entries of all sets are stored one after another in one allocation, and so are the filters: the offset of a set
//! is the sum of the lengths before it. An entry hides the older ones of its key, and the key in the page. Of two
//! entries of a set with the same tag and page, the older is removed: so tag and page identify one object of the set.

use super::filter::{FilterWidth, hit_bytes};
use super::page::PAGE;
use crate::Error;
use crate::device::Buffer;
use crate::object::FlashHash;
use std::ops::Range;
use std::sync::Arc;

/// Number of sets in a group.
pub(crate) const SETS: usize = 128;
/// Minimum bits of a tag.
const TAG_BITS: u32 = 8;
/// Number of spare entries that each growth reserves.
const SPARE_ENTRIES: usize = 8;
/// Bytes of a unit of a page's fill, which is stored in a byte.
const FILL_UNIT: usize = PAGE / 256;
/// Bytes that the allocator takes beside each allocation.
const ALLOCATION: usize = 16;
/// Fixed bytes of each group in a checkpoint.
const FIXED_BYTES: usize = 4 * SETS + SETS / 8;
/// Number of successive pages of a set with distinct generations.
pub const GENERATIONS: u32 = u8::MAX as u32;

/// A set's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Object { page: u32, hit: bool, tag: u64 },
    Tombstone { mark: u64 },
}

impl Entry {
    pub fn is_object(self) -> bool {
        matches!(self, Self::Object { .. })
    }
}

/// How hashes are divided: the same for all groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetLayout {
    pub sets: u32,
    pub width: FilterWidth,
    pub entry_bytes: usize,
    page_bits: u32,
}

impl SetLayout {
    pub fn new(sets: u32, log_pages: u32, width: FilterWidth) -> Self {
        let page_bits = u32::BITS - log_pages.saturating_sub(1).leading_zeros();
        let entry_bytes = (TAG_BITS + page_bits + 2).div_ceil(8).max(4) as usize;
        Self { sets, width, entry_bytes, page_bits }
    }

    pub fn groups(&self) -> usize {
        (self.sets as usize).div_ceil(SETS)
    }

    /// The set that a key belongs to.
    pub fn set(&self, hash: FlashHash) -> u32 {
        ((u128::from(hash.0) * u128::from(self.sets)) >> 64) as u32
    }

    pub fn tag(&self, hash: FlashHash) -> u64 {
        hash.0 & ((1 << (8 * self.entry_bytes as u32 - self.page_bits - 2)) - 1)
    }

    pub fn mark(&self, hash: FlashHash) -> u64 {
        hash.0 & ((1 << (8 * self.entry_bytes - 1)) - 1)
    }

    fn unpack(&self, bytes: &[u8]) -> Entry {
        let mut word = [0; 8];
        word[..self.entry_bytes].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        if word & 1 != 0 {
            return Entry::Tombstone { mark: word >> 1 };
        }
        let page = (word >> 2 & ((1 << self.page_bits) - 1)) as u32;
        Entry::Object { page, hit: word & 2 != 0, tag: word >> (2 + self.page_bits) }
    }

    fn pack(&self, entry: Entry, bytes: &mut [u8]) {
        let word = match entry {
            Entry::Tombstone { mark } => mark << 1 | 1,
            Entry::Object { page, hit, tag } => {
                tag << (2 + self.page_bits) | u64::from(page) << 2 | u64::from(hit) << 1
            }
        };
        bytes.copy_from_slice(&word.to_le_bytes()[..self.entry_bytes]);
    }
}

/// A page that is being composed, or written.
#[derive(Debug)]
pub(crate) struct PendingRewrite {
    pub set: u8,
    /// Number of the set's oldest entries that are removed when the page is written.
    pub taken: u8,
    /// The new page, which answers lookups instead of the old one while it is being written.
    pub image: Option<Arc<Buffer>>,
    /// The set was emptied meanwhile.
    pub invalidate: bool,
}

/// The counts of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupTotals {
    pub page_objects: usize,
    pub log_objects: usize,
    pub tombstones: usize,
    pub bytes: usize,
}

#[derive(Debug)]
pub(crate) struct SetGroup {
    /// Changes whenever entries are removed, and at the start and the end of a page's write.
    pub version: u32,
    /// Counts objects that were appended to a page of the log that already had one of the same set and tag.
    pub repeats: u32,
    /// The last flush that was applied to the group.
    pub epoch: u32,
    /// The group is in the queue of groups with pages to rewrite.
    pub queued: bool,
    tombstones: u16,
    page_objects: u16,
    pub rewrites: Vec<PendingRewrite>,
    entries: Vec<u8>,
    filters: Vec<u8>,
    counts: [u8; SETS],
    objects: [u8; SETS],
    generations: [u8; SETS],
    /// End of the records of each page, in units of `FILL_UNIT`.
    fills: [u8; SETS],
    /// Sets whose page may hold objects that are not in RAM's state.
    unclean: [u8; SETS / 8],
}

impl SetGroup {
    /// An empty group.
    pub fn new() -> Self {
        Self {
            version: 0,
            repeats: 0,
            epoch: 0,
            queued: false,
            tombstones: 0,
            page_objects: 0,
            rewrites: Vec::new(),
            entries: Vec::new(),
            filters: Vec::new(),
            counts: [0; SETS],
            objects: [0; SETS],
            generations: [0; SETS],
            fills: [0; SETS],
            unclean: [0; SETS / 8],
        }
    }

    fn range(&self, set_layout: &SetLayout, set: usize) -> Range<usize> {
        let before: usize = self.counts[..set].iter().map(|&count| usize::from(count)).sum();
        let start = before * set_layout.entry_bytes;
        start..start + self.len(set) * set_layout.entry_bytes
    }

    fn region(&self, set_layout: &SetLayout, set: usize) -> Range<usize> {
        let start = self.objects[..set].iter().map(|&objects| set_layout.width.bytes(objects)).sum();
        start..start + set_layout.width.bytes(self.objects[set])
    }

    /// The entries of a set, oldest first.
    pub fn entries<'a>(
        &'a self,
        set_layout: &'a SetLayout,
        set: usize,
    ) -> impl DoubleEndedIterator<Item = Entry> + ExactSizeIterator + 'a {
        self.entries[self.range(set_layout, set)]
            .chunks_exact(set_layout.entry_bytes)
            .map(|bytes| set_layout.unpack(bytes))
    }

    pub fn len(&self, set: usize) -> usize {
        usize::from(self.counts[set])
    }

    /// Number of objects in the page of a set.
    pub fn objects(&self, set: usize) -> u8 {
        self.objects[set]
    }

    /// Free bytes in the page of a set, rounded up.
    pub fn space(&self, set: usize) -> usize {
        PAGE - usize::from(self.fills[set]) * FILL_UNIT
    }

    pub fn generation(&self, set: usize) -> u8 {
        self.generations[set]
    }

    pub fn set_generation(&mut self, set: usize, generation: u8) {
        self.generations[set] = generation;
    }

    /// Adds the newest entry of a set. False if the set has 255 entries.
    pub fn push(&mut self, set_layout: &SetLayout, set: usize, entry: Entry) -> bool {
        if self.counts[set] == u8::MAX {
            return false;
        }
        let (end, bytes) = (self.range(set_layout, set).end, set_layout.entry_bytes);
        if self.entries.capacity() < self.entries.len() + bytes {
            self.entries.reserve_exact(SPARE_ENTRIES * bytes);
        }
        self.entries.splice(end..end, [0; 8][..bytes].iter().copied());
        set_layout.pack(entry, &mut self.entries[end..end + bytes]);
        self.counts[set] += 1;
        self.tombstones += u16::from(matches!(entry, Entry::Tombstone { .. }));
        true
    }

    /// Replaces an entry.
    pub fn replace(&mut self, set_layout: &SetLayout, set: usize, index: usize, entry: Entry) {
        let bytes = self.position(set_layout, set, index);
        let before = set_layout.unpack(&self.entries[bytes.clone()]);
        self.tombstones -= u16::from(matches!(before, Entry::Tombstone { .. }));
        self.tombstones += u16::from(matches!(entry, Entry::Tombstone { .. }));
        set_layout.pack(entry, &mut self.entries[bytes]);
    }

    fn position(&self, set_layout: &SetLayout, set: usize, index: usize) -> Range<usize> {
        assert!(index < self.len(set));
        let start = self.range(set_layout, set).start + index * set_layout.entry_bytes;
        start..start + set_layout.entry_bytes
    }

    /// Removes one entry.
    pub fn remove(&mut self, set_layout: &SetLayout, set: usize, index: usize) {
        let bytes = self.position(set_layout, set, index);
        self.end(set_layout, set, bytes);
        if let Some(pending) = self.rewrites.iter_mut().find(|m| usize::from(m.set) == set) {
            pending.taken -= u8::from(index < usize::from(pending.taken));
        }
    }

    /// Removes the oldest entries of a set.
    pub fn remove_oldest(&mut self, set_layout: &SetLayout, set: usize, count: usize) {
        let start = self.range(set_layout, set).start;
        self.end(set_layout, set, start..start + count * set_layout.entry_bytes);
    }

    fn end(&mut self, set_layout: &SetLayout, set: usize, bytes: Range<usize>) {
        let gone =
            self.entries[bytes.clone()].chunks_exact(set_layout.entry_bytes).map(|bytes| set_layout.unpack(bytes));
        self.tombstones -= gone.filter(|entry| matches!(entry, Entry::Tombstone { .. })).count() as u16;
        self.counts[set] -= (bytes.len() / set_layout.entry_bytes) as u8;
        self.entries.drain(bytes);
        if self.entries.capacity() > self.entries.len() + 2 * SPARE_ENTRIES * set_layout.entry_bytes {
            self.entries.shrink_to(self.entries.len() + SPARE_ENTRIES * set_layout.entry_bytes);
        }
        self.version = self.version.wrapping_add(1);
    }

    /// Whether the page of a set may hold a key, as far as its filter knows.
    pub fn may_hold(&self, set_layout: &SetLayout, set: usize, hash: FlashHash) -> bool {
        let region = self.region(set_layout, set);
        set_layout.width.contains(&self.filters[region][hit_bytes(self.objects[set])..], hash)
    }

    /// Sets the objects of a set's page, first to last, and the end of its records.
    pub fn set_page(&mut self, set_layout: &SetLayout, set: usize, generation: u8, hashes: &[FlashHash], end: usize) {
        let before = self.region(set_layout, set);
        let objects = u8::try_from(hashes.len()).expect("a page holds no more objects than a byte counts");
        let bytes = set_layout.width.bytes(objects);
        let after = (self.filters.len() + bytes).saturating_sub(before.len());
        if after > self.filters.capacity() {
            self.filters.reserve_exact(after - self.filters.len());
        }
        self.filters.splice(before.clone(), std::iter::repeat_n(0, bytes));
        let filter = &mut self.filters[before.start..before.start + bytes][hit_bytes(objects)..];
        hashes.iter().for_each(|&hash| set_layout.width.insert(filter, hash));
        self.page_objects = self.page_objects - u16::from(self.objects[set]) + u16::from(objects);
        self.objects[set] = objects;
        self.generations[set] = generation;
        self.fills[set] = (end / FILL_UNIT).min(usize::from(u8::MAX)) as u8;
        self.version = self.version.wrapping_add(1);
    }

    /// Removes all state of a set; the objects in its page are dead.
    pub fn invalidate(&mut self, set_layout: &SetLayout, set: usize) {
        self.remove_oldest(set_layout, set, self.len(set));
        self.set_page(set_layout, set, self.generations[set], &[], 0);
        self.set_unclean(set, true);
        self.rewrites.iter_mut().filter(|m| usize::from(m.set) == set).for_each(PendingRewrite::cancel);
    }

    /// Removes all state of all sets.
    pub fn clear(&mut self, epoch: u32) {
        (self.tombstones, self.page_objects) = (0, 0);
        (self.entries, self.filters) = (Vec::new(), Vec::new());
        (self.counts, self.objects, self.fills) = ([0; SETS], [0; SETS], [0; SETS]);
        self.rewrites.iter_mut().for_each(PendingRewrite::cancel);
        self.version = self.version.wrapping_add(1);
        self.epoch = epoch;
    }

    pub fn is_unclean(&self, set: usize) -> bool {
        self.unclean[set / 8] & 1 << (set % 8) != 0
    }

    pub fn has_unclean(&self) -> bool {
        self.unclean != [0; SETS / 8]
    }

    pub fn set_unclean(&mut self, set: usize, unclean: bool) {
        self.unclean[set / 8] &= !(1 << (set % 8));
        self.unclean[set / 8] |= u8::from(unclean) << (set % 8);
    }

    /// Sets the hit bit of an object of a page, unless a new page is being written.
    pub fn hit(&mut self, set_layout: &SetLayout, set: usize, position: usize) {
        if position < usize::from(self.objects[set]) && self.image(set).is_none() {
            let region = self.region(set_layout, set);
            self.filters[region][position / 8] |= 1 << (position % 8);
        }
    }

    /// Sets the hit bit of an object of the log.
    pub fn note_hit(&mut self, set_layout: &SetLayout, set: usize, index: usize) {
        let bytes = self.position(set_layout, set, index);
        if let Entry::Object { page, tag, .. } = set_layout.unpack(&self.entries[bytes.clone()]) {
            set_layout.pack(Entry::Object { page, hit: true, tag }, &mut self.entries[bytes]);
        }
    }

    /// The hit bits of a page.
    pub fn hits(&self, set_layout: &SetLayout, set: usize) -> &[u8] {
        &self.filters[self.region(set_layout, set)][..hit_bytes(self.objects[set])]
    }

    pub fn pending_rewrite(&mut self, set: usize) -> Option<&mut PendingRewrite> {
        self.rewrites.iter_mut().find(|m| usize::from(m.set) == set)
    }

    pub fn image(&self, set: usize) -> Option<Arc<Buffer>> {
        self.rewrites.iter().find(|m| usize::from(m.set) == set)?.image.clone()
    }

    pub fn tombstones(&self) -> usize {
        usize::from(self.tombstones)
    }

    pub fn totals(&self, set_layout: &SetLayout) -> GroupTotals {
        let entries = self.entries.len() / set_layout.entry_bytes;
        let allocated = |capacity: usize| if capacity == 0 { 0 } else { capacity + ALLOCATION };
        let rewrites = self.rewrites.capacity() * size_of::<PendingRewrite>();
        GroupTotals {
            page_objects: usize::from(self.page_objects),
            log_objects: entries - self.tombstones(),
            tombstones: self.tombstones(),
            bytes: allocated(self.entries.capacity()) + allocated(self.filters.capacity()) + allocated(rewrites),
        }
    }

    /// Writes the state of the group to a checkpoint. No transfer may be pending.
    ///
    /// ```text
    /// entries per set, objects, generations, fills, each u8 x 128 | unclean sets u8 x 16 | entries | filters
    /// ```
    pub fn save(&self, mut put: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let per_set = [&self.counts, &self.objects, &self.generations, &self.fills];
        per_set.into_iter().try_for_each(|bytes| put(bytes))?;
        [&self.unclean[..], &self.entries, &self.filters].into_iter().try_for_each(put)
    }

    pub fn saved_bytes(&self) -> usize {
        FIXED_BYTES + self.entries.len() + self.filters.len()
    }

    /// Reads a group that [`SetGroup::save`] wrote.
    pub fn load(set_layout: &SetLayout, mut fill: impl FnMut(&mut [u8]) -> Option<()>) -> Option<Self> {
        let mut group = Self::new();
        fill(&mut group.counts)?;
        fill(&mut group.objects)?;
        fill(&mut group.generations)?;
        fill(&mut group.fills)?;
        fill(&mut group.unclean)?;
        let entries: usize = group.counts.iter().map(|&count| usize::from(count)).sum();
        group.entries = vec![0; entries * set_layout.entry_bytes];
        fill(&mut group.entries)?;
        group.filters = vec![0; group.objects.iter().map(|&objects| set_layout.width.bytes(objects)).sum()];
        fill(&mut group.filters)?;
        let all = group.entries.chunks_exact(set_layout.entry_bytes).map(|bytes| set_layout.unpack(bytes));
        group.tombstones = all.filter(|entry| matches!(entry, Entry::Tombstone { .. })).count() as u16;
        group.page_objects = group.objects.iter().map(|&objects| u16::from(objects)).sum();
        Some(group)
    }

    /// Asserts every invariant.
    pub fn verify(&self, set_layout: &SetLayout) {
        let entries: usize = self.counts.iter().map(|&count| usize::from(count)).sum();
        assert_eq!(self.entries.len(), entries * set_layout.entry_bytes);
        assert_eq!(
            self.filters.len(),
            self.objects.iter().map(|&objects| set_layout.width.bytes(objects)).sum::<usize>()
        );
        assert_eq!(u32::from(self.page_objects), self.objects.iter().map(|&objects| u32::from(objects)).sum::<u32>());
        let all = self.entries.chunks_exact(set_layout.entry_bytes).map(|bytes| set_layout.unpack(bytes));
        assert_eq!(self.tombstones(), all.filter(|entry| matches!(entry, Entry::Tombstone { .. })).count());
        for one in &self.rewrites {
            assert!(one.invalidate || usize::from(one.taken) <= self.len(usize::from(one.set)));
        }
    }
}

impl PendingRewrite {
    fn cancel(&mut self) {
        self.invalidate = true;
        self.image = None;
        self.taken = 0;
    }
}

/// The generation of the next page. 0 is not used again: it means that there was no page.
pub fn next_generation(generation: u8) -> u8 {
    generation.checked_add(1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_layout(log_pages: u32) -> SetLayout {
        SetLayout::new(1000, log_pages, FilterWidth::of(21))
    }

    #[test]
    fn entries_are_as_long_as_the_log_needs() {
        for (pages, bytes) in [(1, 4), (1 << 22, 4), ((1 << 22) + 1, 5), (1 << 30, 5)] {
            assert_eq!(set_layout(pages).entry_bytes, bytes, "{pages} pages");
        }
    }

    #[test]
    fn entries_are_these_bytes() {
        let set_layout = set_layout(1 << 22);
        let mut bytes = [0; 4];
        set_layout.pack(Entry::Object { page: 0x2a_aaab, hit: true, tag: 0xc3 }, &mut bytes);
        assert_eq!(bytes, [0xae, 0xaa, 0xaa, 0xc3]);
        set_layout.pack(Entry::Tombstone { mark: 0x7654_3210 }, &mut bytes);
        assert_eq!(bytes, [0x21, 0x64, 0xa8, 0xec]);
        assert_eq!(set_layout.unpack(&bytes), Entry::Tombstone { mark: 0x7654_3210 });
    }

    #[test]
    fn sets_do_not_disturb_each_other() {
        let set_layout = set_layout(1 << 20);
        let mut group = SetGroup::new();
        let hash = |set: usize, i: usize| FlashHash::of(&(set * 1000 + i).to_le_bytes());
        let object = |set, i| Entry::Object { page: (set + i) as u32, hit: i == 1, tag: set_layout.tag(hash(set, i)) };
        for i in 0..5 {
            (0..SETS).for_each(|set| assert!(group.push(&set_layout, set, object(set, i))));
        }
        for set in (0..SETS).rev() {
            group.set_page(&set_layout, set, 3, &(0..set).map(|i| hash(set, i)).collect::<Vec<_>>(), 16 * set + 7);
            assert_eq!(group.space(set), PAGE - 16 * set);
            group.replace(&set_layout, set, 2, Entry::Tombstone { mark: set_layout.mark(hash(set, 2)) });
        }
        group.verify(&set_layout);
        (0..SETS).step_by(2).for_each(|set| group.remove_oldest(&set_layout, set, 2));
        (1..SETS).step_by(2).for_each(|set| group.remove(&set_layout, set, 0));
        group.hit(&set_layout, 77, 76);
        group.verify(&set_layout);
        for set in 0..SETS {
            let mark = set_layout.mark(hash(set, 2));
            let mut left = vec![Entry::Tombstone { mark }, object(set, 3), object(set, 4)];
            if set % 2 == 1 {
                left.insert(0, object(set, 1));
            }
            assert_eq!(group.entries(&set_layout, set).collect::<Vec<_>>(), left);
            assert!((0..set).all(|i| group.may_hold(&set_layout, set, hash(set, i))));
            assert_eq!(group.hits(&set_layout, set).iter().map(|b| b.count_ones()).sum::<u32>(), u32::from(set == 77));
        }
        group.invalidate(&set_layout, 77);
        assert!(group.len(77) == 0 && group.objects(77) == 0 && group.is_unclean(77) && !group.is_unclean(76));
        assert_eq!(group.len(78), 3);
        group.clear(1);
        assert_eq!(group.totals(&set_layout), GroupTotals::default());
        group.verify(&set_layout);
    }

    #[test]
    fn generations_of_written_sets_are_never_zero() {
        let all: Vec<u8> = std::iter::successors(Some(1), |&it| Some(next_generation(it))).take(256).collect();
        assert!(all[..255].is_sorted() && all[255] == 1 && all.len() == GENERATIONS as usize + 1);
        assert_eq!(next_generation(0), 1);
    }
}
