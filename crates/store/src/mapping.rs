//! The memory that the store maps for itself: address space is reserved once at its largest size, so that nothing ever
//! moves, and pages are taken by touching them and given back by `release`.
//!
//! A `Table` is an array in such a mapping. Loom builds keep it in a `Vec`, because loom's atomics cannot start as zeroed
//! bytes.

use crate::error::Error;

/// A type of which an array may start as zeroed memory.
///
/// # Safety
/// The all-zero bit pattern must be a valid value (in loom builds, which cannot have that, `zeroed` makes it), and the type must have no drop code.
pub unsafe trait Zeroed {
    #[cfg(loom)]
    fn zeroed() -> Self;
}

#[cfg(not(loom))]
pub use real::{Mapping, Table, prefetch_line};

#[cfg(loom)]
pub use modelled::Table;

/// Bytes of physical memory, or `None` if the system does not say.
pub fn physical_memory_bytes() -> Option<u64> {
    // SAFETY: sysconf reads no memory of ours.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    Some(u64::try_from(pages).ok()? * u64::try_from(size).ok()?)
}

/// The unit in which memory goes back to the system: a huge page, so that none is broken up.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

#[cfg(not(loom))]
mod real {
    use super::{Error, HUGE_PAGE_BYTES, Zeroed};
    use std::marker::PhantomData;
    use std::ptr::NonNull;

    /// Reserved address space, aligned to a huge page, zero until written.
    pub struct Mapping {
        reservation: NonNull<u8>,
        reserved_bytes: usize,
        base: NonNull<u8>,
        bytes: usize,
    }

    // SAFETY: a mapping is plain memory; what is put into it decides who may touch it when.
    unsafe impl Send for Mapping {}
    // SAFETY: as above; the mapping itself is never changed after `reserve`.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        pub fn reserve(bytes: usize) -> Result<Self, Error> {
            let reserved_bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES) + HUGE_PAGE_BYTES;
            // SAFETY: a fresh anonymous mapping overlaps nothing.
            let raw = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    reserved_bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
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
            // SAFETY: the range lies in the mapping. Advice may be refused: then small pages serve.
            unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
            Ok(Self { reservation, reserved_bytes, base, bytes })
        }

        pub fn base(&self) -> *mut u8 {
            self.base.as_ptr()
        }

        /// Shortens what is in use from `to` bytes to `from`: gives the huge pages that are not in use any more back to the
        /// system. They read as zero afterwards.
        ///
        /// # Safety
        /// Nothing at or after `from` may be in use: nobody may hold a reference there, nor look or write concurrently.
        pub unsafe fn release(&self, from: usize, to: usize) {
            debug_assert!(from <= to && to <= self.bytes, "{from}..{to} of {} bytes", self.bytes);
            let from = from.next_multiple_of(HUGE_PAGE_BYTES);
            let to = to.next_multiple_of(HUGE_PAGE_BYTES);
            if from < to {
                // SAFETY: the range lies in the mapping, and the caller vouches that nobody looks.
                let answer = unsafe { libc::madvise(self.base().add(from).cast(), to - from, libc::MADV_DONTNEED) };
                assert_eq!(answer, 0, "madvise(MADV_DONTNEED) on our own mapping");
            }
        }
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
        pub fn new(length: usize) -> Result<Self, Error> {
            let mapping = Mapping::reserve(length * size_of::<T>())?;
            Ok(Self { mapping, length, _items: PhantomData })
        }

        #[inline(always)]
        pub fn at(&self, index: usize) -> &T {
            debug_assert!(index < self.length, "entry {index} of {}", self.length);
            // SAFETY: the index is in bounds (callers get it from a slot or the split word, whose ranges `verify` checks),
            // the memory is zeroed or holds a T, and T is Zeroed.
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
    use super::{Error, Zeroed};

    /// An array of `T`; in loom builds a vector.
    pub struct Table<T> {
        items: Vec<T>,
    }

    impl<T: Zeroed> Table<T> {
        pub fn new(length: usize) -> Result<Self, Error> {
            Ok(Self { items: (0..length).map(|_| T::zeroed()).collect() })
        }

        pub fn at(&self, index: usize) -> &T {
            &self.items[index]
        }

        pub fn length(&self) -> usize {
            self.items.len()
        }

        pub fn prefetch(&self, _index: usize) {}
    }
}
