//! `Debug` of the public types, for logs and failed assertions: keys and sizes, never a value, which may be long or a
//! secret.

use crate::cache::{Cache, WeakCache};
use crate::compact_pool::CompactPool;
use crate::flash::read::FlashReads;
use crate::insert::Insert;
use crate::lookup::{Handle, Item};
use crate::pool::Pool;
use crate::pool_state::PoolState;
use crate::removal::Removal;
use crate::scan::{Entry, Scan};
use crate::upload::Upload;
use std::fmt::{Debug, Formatter, Result};

/// A key, readable as far as it is text.
pub(crate) struct Key<'a>(pub &'a [u8]);

impl Debug for Key<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl Debug for Cache {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Cache")
            .field("pulse", &self.counter_snapshot())
            .field("has_flash", &self.has_flash())
            .finish_non_exhaustive()
    }
}

impl Debug for CompactPool {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("CompactPool")
            .field("name", &self.name())
            .field("sizes", &self.sizes())
            .field("entries", &self.stats().items)
            .finish_non_exhaustive()
    }
}

impl Debug for WeakCache {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("WeakCache")
    }
}

impl Debug for Item<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let (key, bytes) = (Key(self.key()), self.len());
        f.debug_struct("Item")
            .field("key", &key)
            .field("bytes", &bytes)
            .field("ttl", &self.ttl())
            .finish_non_exhaustive()
    }
}

impl Debug for Handle {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Handle").field("bytes", &self.len()).finish_non_exhaustive()
    }
}

impl Debug for Removal<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let (key, bytes) = (Key(self.key()), self.len());
        f.debug_struct("Removal")
            .field("key", &key)
            .field("bytes", &bytes)
            .field("cause", &self.cause())
            .finish_non_exhaustive()
    }
}

impl Debug for Entry<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Entry").field("key", &Key(self.key())).finish_non_exhaustive()
    }
}

impl Debug for FlashReads {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("FlashReads")
            .field("found", &self.found())
            .field("is_pending", &self.is_pending())
            .finish_non_exhaustive()
    }
}

impl Debug for PoolState {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("PoolState").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Debug for Pool {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Pool").field("counters", &self.counter_snapshot()).finish_non_exhaustive()
    }
}

impl Debug for Insert<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let (key, bytes) = self.target();
        f.debug_struct("Insert").field("key", &Key(key)).field("bytes", &bytes).finish_non_exhaustive()
    }
}

impl Debug for Upload {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Upload").field("key", &Key(self.key())).finish_non_exhaustive()
    }
}

impl Debug for Scan {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("Scan")
    }
}

#[cfg(test)]
mod tests {
    use crate::memcached::{ByteSize, Cache};

    #[test]
    fn keys_are_shown_and_values_are_not() {
        let cache = Cache::builder().memory(ByteSize::mib(4)).build().unwrap();
        let insert = cache.insert(b"k\xff", b"secret");
        assert_eq!(format!("{insert:?}"), "Insert { key: \"k\\xff\", bytes: 6, .. }");
        insert.apply().unwrap();
        let lookup = cache.get(b"k\xff");
        assert_eq!(format!("{lookup:?}"), "Hit(Item { key: \"k\\xff\", bytes: 6, ttl: None, .. })");
        let handle = lookup.hit().unwrap().to_handle().unwrap();
        assert_eq!(format!("{handle:?}"), "Handle { bytes: 6, .. }");
        assert!(format!("{cache:?}").ends_with("has_flash: false, .. }"));
    }
}
