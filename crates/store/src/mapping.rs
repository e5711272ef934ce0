//! Memory that the store maps for itself. Address space is reserved once at its maximum size, so that nothing moves.
//! Pages are taken by touching them, and returned by `release`.
//!
//! A `Table` is an array in such a mapping. Loom builds keep it in a `Vec`, because loom's atomics cannot start as
//! zeroed bytes.

use crate::error::Error;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64};

/// A type of which an array may start as zeroed memory.
///
/// # Safety
/// The all-zero bit pattern must be a valid value (in loom builds, which cannot have that, `zeroed` makes it), and the
/// type must have no drop code.
pub unsafe trait Zeroed {
    #[cfg(loom)]
    fn zeroed() -> Self;
}

macro_rules! zeroed_atomics {
    ($($atomic:ty),*) => { $(
        // SAFETY: zero is a number, and atomics need no drop.
        unsafe impl Zeroed for $atomic {
            #[cfg(loom)]
            fn zeroed() -> Self {
                Self::new(0)
            }
        }
    )* };
}

zeroed_atomics!(AtomicU8, AtomicU32, AtomicU64);

#[cfg(all(test, not(loom)))]
pub use real::is_resident;
#[cfg(not(loom))]
pub use real::{Mapping, Table, prefetch_line};

#[cfg(loom)]
pub use modelled::Table;

/// Bytes of physical memory, or `None` if the system does not say.
pub fn physical_memory_bytes() -> Option<u64> {
    if cfg!(miri) {
        return None;
    }
    // SAFETY: sysconf reads no memory of ours.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    Some(u64::try_from(pages).ok()? * u64::try_from(size).ok()?)
}

/// A huge page of the system.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// With which pages the system shall back memory. A huge page is resident as a whole as soon as one byte of it is
/// touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    Huge,
    Small,
}

#[cfg(not(loom))]
mod real {
    use super::{Error, HUGE_PAGE_BYTES, Pages, Zeroed};
    use std::fs::File;
    use std::marker::PhantomData;
    use std::ops::Range;
    use std::os::fd::AsRawFd;
    use std::ptr::NonNull;

    /// Reserved address space, aligned to a huge page, zero until written.
    pub struct Mapping {
        reservation: NonNull<u8>,
        reserved_bytes: usize,
        base: NonNull<u8>,
        bytes: usize,
    }

    // SAFETY: a mapping is plain memory; its contents decide which thread may access it when.
    unsafe impl Send for Mapping {}
    // SAFETY: as above; the mapping itself is never changed after `reserve`.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        /// The bytes of a file from an offset on, which is a multiple of a huge page. Pages after its end, and such
        /// that the file system cannot give memory to, must not be touched.
        pub fn reserve_in_file(bytes: usize, file: &File, offset: u64) -> Result<Self, Error> {
            assert!(offset.is_multiple_of(HUGE_PAGE_BYTES as u64), "huge pages of a file are aligned in it");
            let mapping = Self::reserve(bytes)?;
            let offset = libc::off_t::try_from(offset).expect("a file has fewer than 2^63 bytes");
            // SAFETY: the range is this reservation's own, and no thread has its address yet.
            let mapped = unsafe {
                libc::mmap(
                    mapping.base().cast(),
                    bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE,
                    file.as_raw_fd(),
                    offset,
                )
            };
            if mapped == libc::MAP_FAILED {
                return Err(Error::Mapping { bytes, reason: std::io::Error::last_os_error().to_string() });
            }
            Ok(mapping)
        }

        pub fn reserve(bytes: usize) -> Result<Self, Error> {
            let reserved_bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES) + HUGE_PAGE_BYTES;
            // SAFETY: a fresh anonymous mapping overlaps nothing.
            let raw = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    reserved_bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | if cfg!(miri) { 0 } else { libc::MAP_NORESERVE },
                    -1,
                    0,
                )
            };
            if raw == libc::MAP_FAILED {
                return Err(Error::Mapping {
                    bytes: reserved_bytes,
                    reason: std::io::Error::last_os_error().to_string(),
                });
            }
            let reservation = NonNull::new(raw.cast::<u8>()).expect("mmap does not answer address zero");
            let skip = reservation.as_ptr().align_offset(HUGE_PAGE_BYTES);
            // SAFETY: `skip` is below HUGE_PAGE_BYTES, which the reservation has to spare.
            let base = unsafe { reservation.add(skip) };
            Ok(Self { reservation, reserved_bytes, base, bytes })
        }

        #[inline(always)]
        pub fn base(&self) -> *mut u8 {
            self.base.as_ptr()
        }

        /// Sets the pages with which the system backs a range from here on; resident pages stay as they are.
        pub fn advise(&self, from: usize, to: usize, pages: Pages) {
            assert!(from <= to && to <= self.bytes, "{from}..{to} of {} bytes", self.bytes);
            let advice = match pages {
                Pages::Huge => libc::MADV_HUGEPAGE,
                Pages::Small => libc::MADV_NOHUGEPAGE,
            };
            if cfg!(miri) {
                return;
            }
            // SAFETY: the range lies in the mapping, and advice changes no byte. It may be refused, by a system without
            // huge pages for example: then the system's own choice serves.
            unsafe { libc::madvise(self.base().add(from).cast(), to - from, advice) };
        }

        /// Takes the pages of a range from the system before they are touched, so that who touches them need not wait
        /// until the system has cleared them. No byte changes.
        pub fn populate(&self, from: usize, to: usize) {
            assert!(from <= to && to <= self.bytes, "{from}..{to} of {} bytes", self.bytes);
            if cfg!(miri) {
                return;
            }
            let from = from / page_bytes() * page_bytes();
            // SAFETY: the range lies in the mapping, and this changes no byte. A system that does not know it, or has
            // no memory now, refuses: then the pages come when they are touched.
            unsafe { libc::madvise(self.base().add(from).cast(), to - from, libc::MADV_POPULATE_WRITE) };
        }

        /// Returns the whole pages of a range to the system. They read as zero afterwards.
        ///
        /// # Safety
        /// Nothing in the range may be in use: no thread may hold a reference there, nor read or write concurrently,
        /// unless zero is a valid value for each access.
        pub unsafe fn release(&self, from: usize, to: usize) {
            assert!(from <= to && to <= self.bytes, "{from}..{to} of {} bytes", self.bytes);
            let page = page_bytes();
            let (from, to) = (from.next_multiple_of(page), to / page * page);
            if from < to {
                // SAFETY: the range lies in the mapping, and the caller guarantees that no thread accesses it.
                let answer = unsafe { libc::madvise(self.base().add(from).cast(), to - from, libc::MADV_DONTNEED) };
                assert_eq!(answer, 0, "madvise(MADV_DONTNEED) on our own mapping");
            }
        }
    }

    /// Whether the page of an address in a mapping is in memory.
    #[cfg(test)]
    pub fn is_resident(address: *const u8) -> bool {
        let page = address.wrapping_sub(address.addr() % page_bytes());
        let mut residency = 0_u8;
        // SAFETY: nothing is read there, and one byte is written for the one page.
        let answer = unsafe { libc::mincore(page.cast_mut().cast(), page_bytes(), &raw mut residency) };
        assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
        residency & 1 == 1
    }

    /// Bytes of a small page.
    fn page_bytes() -> usize {
        // SAFETY: sysconf reads no memory of ours.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(bytes).expect("the system knows the size of its pages")
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: the reservation is ours, and its last user has dropped all references into it.
            unsafe { libc::munmap(self.reservation.as_ptr().cast(), self.reserved_bytes) };
        }
    }

    /// An array of `T` in a mapping of its own.
    pub struct Table<T> {
        mapping: Mapping,
        length: usize,
        _items: PhantomData<T>,
    }

    impl<T: Zeroed> Table<T> {
        pub fn new(length: usize, pages: Pages) -> Result<Self, Error> {
            let mapping = Mapping::reserve(length * size_of::<T>())?;
            mapping.advise(0, mapping.bytes, pages);
            Ok(Self { mapping, length, _items: PhantomData })
        }

        /// The entries of a range that lie in whole pages.
        pub fn whole_pages(&self, from: usize, to: usize) -> Range<usize> {
            let per_page = (page_bytes() / size_of::<T>()).max(1);
            let start = from.next_multiple_of(per_page);
            start..(to / per_page * per_page).max(start)
        }

        /// Returns the pages of these entries to the system: they are zero afterwards.
        ///
        /// # Safety
        /// The threads that read them meanwhile accept both the former values and zero.
        pub unsafe fn release(&self, range: Range<usize>) {
            // SAFETY: the caller's.
            unsafe { self.mapping.release(range.start * size_of::<T>(), range.end * size_of::<T>()) };
        }

        /// Takes the pages of these entries from the system before they are touched.
        pub fn populate(&self, range: Range<usize>) {
            self.mapping.populate(range.start * size_of::<T>(), range.end * size_of::<T>());
        }

        /// Says with which pages the system shall back the table from here on.
        pub fn advise(&self, pages: Pages) {
            self.mapping.advise(0, self.mapping.bytes, pages);
        }

        #[inline(always)]
        pub fn at(&self, index: usize) -> &T {
            debug_assert!(index < self.length, "entry {index} of {}", self.length);
            // SAFETY: the index is in bounds (callers get it from a slot or the split word, whose ranges `verify`
            // checks), the memory is zeroed or holds a T, and T is Zeroed.
            unsafe { &*self.mapping.base().cast::<T>().add(index) }
        }

        pub fn length(&self) -> usize {
            self.length
        }

        #[inline(always)]
        pub fn prefetch(&self, index: usize) {
            prefetch_line(self.mapping.base().wrapping_add(index * size_of::<T>()));
        }
    }

    /// Asks the processor to load the cache line at an address.
    #[inline(always)]
    pub fn prefetch_line(address: *const u8) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch has no effect on memory and faults on no address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(address.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }
}

#[cfg(loom)]
mod modelled {
    use super::{Error, Pages, Zeroed};
    use std::ops::Range;

    /// An array of `T`; in loom builds a vector.
    pub struct Table<T> {
        items: Vec<T>,
    }

    impl<T: Zeroed> Table<T> {
        pub fn new(length: usize, _pages: Pages) -> Result<Self, Error> {
            Ok(Self { items: (0..length).map(|_| T::zeroed()).collect() })
        }

        pub fn advise(&self, _pages: Pages) {}

        /// Nothing is released in a model.
        pub fn whole_pages(&self, from: usize, _to: usize) -> Range<usize> {
            from..from
        }

        /// # Safety
        /// As the real one.
        pub unsafe fn release(&self, _range: Range<usize>) {}

        pub fn at(&self, index: usize) -> &T {
            &self.items[index]
        }

        pub fn length(&self) -> usize {
            self.items.len()
        }

        pub fn prefetch(&self, _index: usize) {}
    }
}
