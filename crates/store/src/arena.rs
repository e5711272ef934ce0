//! The bytes of a store's segments, addressed by `Location`: segment `i` begins `i - 1` segments into the address
//! space that the store shares with others (see `frames`).
//!
//! Access rules: bytes at and after a segment's write offset belong to the holder of its stripe (or the merge or upload
//! that owns the segment). Bytes before it are published and never change, except the aligned words of numeric and
//! structured items, which are atomic, and the spare bytes of a log (see `structured`). A reader reaches published
//! bytes only through a slot, under a pin. Loom builds keep every byte in a cell of its own, so that a breach of these
//! rules is found.

#[cfg(loom)]
pub use modelled::Arena;
#[cfg(not(loom))]
pub use real::Arena;

#[cfg(not(loom))]
mod real {
    use crate::frames::Frames;
    use crate::mapping::prefetch_line;
    use crate::segment::Location;
    use crate::sync::AtomicU64;
    use std::ptr::NonNull;
    use std::sync::Arc;

    pub struct Arena {
        /// The first byte of `frames`, which keeps the mapping.
        base: NonNull<u8>,
        segment_bytes: usize,
        _frames: Arc<Frames>,
    }

    // SAFETY: the bytes are plain memory in a mapping that lives as long as this; slots and owners decide who may touch
    // which of them when.
    unsafe impl Send for Arena {}
    // SAFETY: as above.
    unsafe impl Sync for Arena {}

    impl Arena {
        pub fn new(frames: Arc<Frames>, segment_bytes: u32) -> Self {
            let base = NonNull::new(frames.bytes().base()).expect("a mapping has an address");
            Self { base, segment_bytes: segment_bytes as usize, _frames: frames }
        }

        #[inline(always)]
        fn address(&self, at: Location) -> *mut u8 {
            let offset = at.segment().index() * self.segment_bytes + at.offset() as usize;
            // Wrapping, because a prefetch may name a place that is not there.
            self.base.as_ptr().wrapping_add(offset)
        }

        /// The bytes of a published item, or of a part of it.
        ///
        /// # Safety
        /// The range must be published and stay so for `'a`: its segment pinned, or protected by a bucket lock that
        /// holds the slot pointing at it, or owned.
        #[inline(always)]
        pub unsafe fn slice<'a>(&self, at: Location, length: usize) -> &'a [u8] {
            debug_assert!(at.offset() as usize + length <= self.segment_bytes, "a range within its segment");
            // SAFETY: in bounds by the check above; unchanging by the caller's word.
            unsafe { std::slice::from_raw_parts(self.address(at), length) }
        }

        /// The bytes behind the first `skip` ones of what is at a location.
        ///
        /// # Safety
        /// As `slice`, of a range in the same segment.
        #[inline(always)]
        pub unsafe fn slice_behind<'a>(&self, at: Location, skip: u32, length: usize) -> &'a [u8] {
            let end = at.offset() as usize + skip as usize + length;
            debug_assert!(end <= self.segment_bytes, "a range within its segment");
            // SAFETY: in bounds by the check above; unchanging by the caller's word.
            unsafe { std::slice::from_raw_parts(self.address(at).add(skip as usize), length) }
        }

        /// The four and the fifth byte of an item: its header.
        ///
        /// # Safety
        /// As `slice`.
        #[inline(always)]
        pub unsafe fn header_words(&self, at: Location) -> (u32, u8) {
            // SAFETY: the caller's; items are packed, so the read is unaligned.
            unsafe { (self.address(at).cast::<u32>().read_unaligned(), *self.address(at).add(4)) }
        }

        /// # Safety
        /// The caller must own the unpublished range.
        #[inline(always)]
        pub unsafe fn write(&self, at: Location, bytes: &[u8]) {
            debug_assert!(at.offset() as usize + bytes.len() <= self.segment_bytes, "a range within its segment");
            // SAFETY: in bounds by the check above, exclusive by the caller's word, and `bytes` cannot lie in it.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.address(at), bytes.len()) }
        }

        /// # Safety
        /// As `write`.
        pub unsafe fn write_zeros(&self, at: Location, length: usize) {
            debug_assert!(at.offset() as usize + length <= self.segment_bytes, "a range within its segment");
            // SAFETY: in bounds by the check above, exclusive by the caller's word.
            unsafe { std::ptr::write_bytes(self.address(at), 0, length) }
        }

        /// # Safety
        /// The caller must own the unpublished range for `'a`, and no other thread may access it then.
        pub unsafe fn slice_mut<'a>(&self, at: Location, length: usize) -> &'a mut [u8] {
            debug_assert!(at.offset() as usize + length <= self.segment_bytes, "a range within its segment");
            // SAFETY: in bounds by the check above, exclusive by the caller's word; the arena's memory is initialized.
            unsafe { std::slice::from_raw_parts_mut(self.address(at), length) }
        }

        /// # Safety
        /// `from` must be readable as in `slice`, `to` owned as in `write`.
        pub unsafe fn copy(&self, from: Location, to: Location, length: usize) {
            debug_assert!(
                from.segment() != to.segment() || from.offset().abs_diff(to.offset()) as usize >= length,
                "items do not overlap"
            );
            // SAFETY: two items, so no overlap; the rest is the caller's.
            unsafe { std::ptr::copy_nonoverlapping(self.address(from), self.address(to), length) }
        }

        /// A word of an item that changes in place.
        ///
        /// # Safety
        /// `at` must be an aligned word of a numeric or structured item, alive as in `slice`.
        pub unsafe fn word(&self, at: Location) -> &AtomicU64 {
            debug_assert!(at.offset().is_multiple_of(8), "aligned words");
            // SAFETY: aligned by the check above; from its publication on every access to the word is atomic.
            unsafe { &*self.address(at).cast::<AtomicU64>() }
        }

        #[inline(always)]
        pub fn prefetch(&self, at: Location) {
            prefetch_line(self.address(at));
        }

        /// Prefetches the cache line of a location and those after it; some may lie behind its segment.
        #[inline(always)]
        pub fn prefetch_lines(&self, at: Location, lines: usize) {
            let address = self.address(at);
            (0..lines).for_each(|line| prefetch_line(address.wrapping_add(64 * line)));
        }
    }
}

#[cfg(loom)]
mod modelled {
    use crate::frames::Frames;
    use crate::segment::Location;
    use crate::sync::AtomicU64;
    use std::sync::Arc;

    pub struct Arena {
        frames: Arc<Frames>,
        segment_bytes: usize,
    }

    impl Arena {
        pub fn new(frames: Arc<Frames>, segment_bytes: u32) -> Self {
            Self { frames, segment_bytes: segment_bytes as usize }
        }

        fn start(&self, at: Location) -> usize {
            at.segment().index() * self.segment_bytes + at.offset() as usize
        }

        fn byte(&self, index: usize) -> u8 {
            // SAFETY: loom reports a concurrent write.
            self.frames.bytes().cells[index].with(|cell| unsafe { *cell })
        }

        /// A leaked copy of the range (the real arena borrows it).
        ///
        /// # Safety
        /// As the real arena's.
        pub unsafe fn slice<'a>(&self, at: Location, length: usize) -> &'a [u8] {
            let start = self.start(at);
            (start..start + length).map(|index| self.byte(index)).collect::<Vec<_>>().leak()
        }

        /// # Safety
        /// As the real arena's.
        pub unsafe fn slice_behind<'a>(&self, at: Location, skip: u32, length: usize) -> &'a [u8] {
            // SAFETY: the caller's.
            unsafe { self.slice(at.plus(skip), length) }
        }

        /// # Safety
        /// As the real arena's.
        pub unsafe fn header_words(&self, at: Location) -> (u32, u8) {
            let start = self.start(at);
            let bytes = [0, 1, 2, 3].map(|i| self.byte(start + i));
            (u32::from_le_bytes(bytes), self.byte(start + 4))
        }

        /// # Safety
        /// As the real arena's.
        pub unsafe fn write(&self, at: Location, bytes: &[u8]) {
            let start = self.start(at);
            for (i, byte) in bytes.iter().enumerate() {
                // SAFETY: loom reports a concurrent access.
                self.frames.bytes().cells[start + i].with_mut(|cell| unsafe { *cell = *byte });
            }
        }

        /// # Safety
        /// As the real arena's.
        pub unsafe fn write_zeros(&self, at: Location, length: usize) {
            // SAFETY: the caller's.
            unsafe { self.write(at, &vec![0; length]) }
        }

        /// # Safety
        /// As the real arena's.
        pub unsafe fn copy(&self, from: Location, to: Location, length: usize) {
            // SAFETY: the caller's.
            unsafe { self.write(to, self.slice(from, length)) }
        }

        /// # Safety
        /// As the real arena's.
        pub unsafe fn word(&self, at: Location) -> &AtomicU64 {
            &self.frames.bytes().words[self.start(at) / 8]
        }

        pub fn prefetch(&self, _at: Location) {}

        pub fn prefetch_lines(&self, _at: Location, _lines: usize) {}
    }
}
