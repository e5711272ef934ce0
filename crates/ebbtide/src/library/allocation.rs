//! Allocations: a value that its writer fills and then publishes.
//!
//! A value of 4 KiB or more that fits a segment is filled in the segment: see `ops/allocation.rs` of the store, and
//! "Allocations" in `docs/concurrency.md`. Others are filled in a buffer of the writer and copied by the publication:
//! shorter ones, for which the second lock costs more than the copy; longer ones, whose segments are not contiguous;
//! and all values of a cache with a memory file, which a stop writes while writers may still fill their allocations.

use super::insert_options::InsertOptions;
use super::pool::Pool;
use crate::access::Access;
use crate::error::Error;
use ebbtide_store::Ttl;
use std::fmt::{Debug, Formatter};
use std::ops::{Deref, DerefMut};

/// A value that is being written; made by [`Pool::allocate`]. It derefs to its bytes, which are zero at first.
#[must_use = "an allocation that is dropped is not published"]
pub struct Allocation {
    pool: Pool,
    key: Box<[u8]>,
    ttl: Ttl,
    place: Place,
}

enum Place {
    Segment(ebbtide_store::Allocation),
    Buffer(Vec<u8>),
}

/// Shorter values are copied: that is cheaper than a second reservation of their segment.
const MIN_BYTES_IN_SEGMENT: usize = 4096;

impl Pool {
    /// Space of `length` bytes for the value of a key. No lookup sees it before [`Allocation::publish`]; dropping it
    /// leaves the key as it is. It may be kept for long: it holds up neither expiry nor eviction.
    ///
    /// A value of 4 KiB or more that fits a segment is written where it will stay, without a copy, if it is published
    /// before its segment is full. Until it is dropped, an allocation keeps its segment from reuse. Allocations and
    /// shared values hold a quarter of the memory, or one value of any size; more allocations are buffers.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # use std::time::Duration;
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let mut value = cache.allocate("k", 4, Duration::from_secs(60))?;
    /// value.copy_from_slice(b"1234");
    /// assert!(!cache.contains_key("k"));
    /// value.publish()?;
    /// assert_eq!(cache.get("k").unwrap(), b"1234");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `KeyLength`, `ValueTooLarge`: nothing was allocated.
    pub fn allocate(&self, key: impl AsRef<[u8]>, length: usize, ttl: impl Into<Ttl>) -> Result<Allocation, Error> {
        let (key, limit) = (key.as_ref(), self.commands.max_value().as_bytes());
        if key.is_empty() || key.len() > ebbtide_store::KEY_LIMIT {
            return Err(Error::KeyLength { length: key.len(), limit: ebbtide_store::KEY_LIMIT });
        }
        if length as u64 > limit {
            return Err(Error::ValueTooLarge { length: length as u64, limit });
        }
        let ttl = ttl.into();
        let place =
            self.commands.0.allocate(key, length, ttl).map_or_else(|| Place::Buffer(vec![0; length]), Place::Segment);
        Ok(Allocation { pool: self.clone(), key: key.into(), ttl, place })
    }

    /// As [`Pool::allocate`], for tasks: where that would wait for memory, the value is filled in a buffer. To be
    /// published by [`Allocation::publish_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # use std::time::Duration;
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// let mut value = cache.allocate_async("k", 4, Duration::from_secs(60)).await?;
    /// value.copy_from_slice(b"1234");
    /// value.publish_async().await?;
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pool::allocate`].
    pub async fn allocate_async(
        &self,
        key: impl AsRef<[u8]>,
        length: usize,
        ttl: impl Into<Ttl>,
    ) -> Result<Allocation, Error> {
        let allocation = self.without_waiting().allocate(key, length, ttl)?;
        Ok(Allocation { pool: self.clone(), ..allocation })
    }
}

impl Access {
    /// Space in a segment. `None` if the value is to be written into a buffer: also if memory is short, so that the
    /// publication waits for it and answers what is wrong.
    fn allocate(&self, key: &[u8], length: usize, ttl: Ttl) -> Option<ebbtide_store::Allocation> {
        let pool = &self.pool;
        let has_memory_file = self.owner.0.memory_file.is_some();
        if length < MIN_BYTES_IN_SEGMENT || length > pool.store.contiguous_value_bytes(key.len()) || has_memory_file {
            return None;
        }
        let (participant, hash) = (pool.participant(), pool.store.hash(key));
        let allocate = |now_ms| pool.store.allocate(&participant, (key, hash), length, ttl, now_ms);
        pool.write_with_eviction(self.waiting(), &participant, allocate).ok().flatten()
    }

    fn publish(&self, key: &[u8], allocation: &mut ebbtide_store::Allocation, ttl: Ttl) -> Result<(), Error> {
        let participant = self.pool.participant();
        let publish = |now_ms| allocation.publish(&participant, ttl, now_ms);
        let written = self.pool.write_with_eviction(self.waiting(), &participant, publish);
        if written.as_ref().is_err_and(Error::is_final) {
            self.delete_unread(key);
        }
        written.map(drop)
    }
}

impl Allocation {
    /// Writes the value. Its TTL begins now.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # use std::time::Duration;
    /// let mut value = cache.allocate("k", 2, Duration::from_secs(60))?;
    /// value[0] = 7;
    /// value.publish()?;
    /// assert_eq!(cache.get("k").unwrap(), [7, 0]);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pool::insert`].
    pub fn publish(self) -> Result<(), Error> {
        let Self { pool, key, ttl, place } = self;
        match place {
            Place::Segment(mut allocation) => pool.commands.0.publish(&key, &mut allocation, ttl),
            Place::Buffer(bytes) => pool.insert_with(key, bytes, InsertOptions::new().ttl(ttl)),
        }
    }

    /// As [`Allocation::publish`], for tasks of any executor: no call blocks it.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # use std::time::Duration;
    /// # let task = async {
    /// let value = cache.allocate_async("k", 2, Duration::from_secs(60)).await?;
    /// value.publish_async().await?;
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pool::insert_async`].
    pub async fn publish_async(self) -> Result<(), Error> {
        let Self { pool, key, ttl, place } = self;
        match place {
            Place::Segment(mut allocation) => {
                let commands = pool.commands.without_waiting();
                pool.write_async(&commands, |commands| commands.0.publish(&key, &mut allocation, ttl)).await
            }
            Place::Buffer(bytes) => pool.insert_with_async(key, bytes, InsertOptions::new().ttl(ttl)).await,
        }
    }
}

impl Deref for Allocation {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.place {
            Place::Segment(allocation) => allocation.bytes(),
            Place::Buffer(bytes) => bytes,
        }
    }
}

impl DerefMut for Allocation {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.place {
            Place::Segment(allocation) => allocation.bytes_mut(),
            Place::Buffer(bytes) => bytes,
        }
    }
}

impl Debug for Allocation {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocation").field("bytes", &self.len()).finish_non_exhaustive()
    }
}
