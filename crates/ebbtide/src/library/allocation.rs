//! Allocations: a value that its writer fills in place and then publishes.
//!
//! The buffer is the writer's own memory, and no part of a segment. A part of an open segment would keep the segment
//! open, and with it hold up the expiry and the eviction of its neighbours, for as long as the writer takes. So an
//! allocation costs the cache nothing before it is published, and publication copies the bytes once.

use super::insert_options::InsertOptions;
use super::pool::Pool;
use crate::error::Error;
use ebbtide_store::Ttl;
use std::fmt::{Debug, Formatter};
use std::ops::{Deref, DerefMut};

/// A value that is being written; made by [`Pool::allocate`]. It derefs to its bytes, which are zero at first.
#[must_use = "an allocation that is dropped is not published"]
pub struct Allocation {
    pool: Pool,
    key: Box<[u8]>,
    options: InsertOptions,
    bytes: Vec<u8>,
}

impl Pool {
    /// A buffer of `length` bytes for the value of a key. No lookup sees it before [`Allocation::publish`]; dropping it
    /// leaves the key as it is. It may be kept for long: it holds up neither expiry nor eviction.
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
        let options = InsertOptions::new().ttl(ttl);
        Ok(Allocation { pool: self.clone(), key: key.into(), options, bytes: vec![0; length] })
    }
}

impl Allocation {
    /// Writes the value. Its TTL begins now.
    ///
    /// # Errors
    /// As [`Pool::insert`].
    pub fn publish(self) -> Result<(), Error> {
        self.pool.insert_with(self.key, self.bytes, self.options)
    }
}

impl Deref for Allocation {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Allocation {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Debug for Allocation {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocation").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}
