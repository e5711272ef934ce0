//! Lookups in memory, and hits: borrowed items, and handles that outlive the borrow.

use crate::access::Access;
use crate::error::Error;
use crate::flash::pending_reads::ReadValue;
use crate::flash::tier::FlashTier;
use crate::pool_state::PoolState;
use ebbtide_flash::{ByteRange, FlashHit};
use ebbtide_store::{Flags, Store};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The answer to a get.
#[derive(Debug)]
pub enum Lookup<'a> {
    Hit(Item<'a>),
    Miss,
}

impl<'a> Lookup<'a> {
    /// The hit, if it is one.
    pub fn hit(self) -> Option<Item<'a>> {
        match self {
            Self::Hit(item) => Some(item),
            Self::Miss => None,
        }
    }

    /// The hit, borrowed.
    pub fn item(&self) -> Option<&Item<'a>> {
        match self {
            Self::Hit(item) => Some(item),
            Self::Miss => None,
        }
    }

    pub fn is_hit(&self) -> bool {
        matches!(self, Self::Hit(_))
    }
}

impl Access {
    #[inline(always)]
    pub fn get_in_memory(&self, key: &[u8]) -> Lookup<'_> {
        let pool = &*self.pool;
        let (now_ms, target) = (pool.clock.coarse_ms(), (key, pool.store.hash(key)));
        let has_ended = |expiry| self.has_ended(expiry);
        pool.store.get_alive(&pool.participant(), target, now_ms, has_ended, |item| self.lookup(item))
    }

    /// A lookup that is not counted.
    pub fn peek(&self, key: &[u8]) -> Lookup<'_> {
        let pool = &*self.pool;
        let now_ms = pool.clock.coarse_ms();
        match pool.store.peek(&pool.participant(), key, pool.store.hash(key), now_ms) {
            Some(item) if !pool.clock.has_expired(item.expiry_seconds()) && !pool.is_removed() => {
                Lookup::Hit(Item::in_memory(item, &pool.store))
            }
            _ => Lookup::Miss,
        }
    }

    #[inline]
    pub fn get_batch_in_memory<'a>(
        &'a self,
        keys: &[&[u8]],
        mut answer: impl FnMut(usize, Lookup<'a>) -> ControlFlow<()>,
    ) {
        let pool = &*self.pool;
        let now_ms = pool.clock.coarse_ms();
        let has_ended = |expiry| self.has_ended(expiry);
        pool.store.get_batch(&pool.participant(), keys, now_ms, has_ended, |i, item| answer(i, self.lookup(item)));
    }

    /// Whether an item with this expiry is to be found no more: one that is alive at the coarse time may have expired
    /// by the exact clock.
    #[inline(always)]
    pub fn has_ended(&self, expiry_seconds: Option<u64>) -> bool {
        self.pool.clock.has_expired(expiry_seconds) || self.pool.is_removed()
    }

    #[inline(always)]
    pub fn lookup<'a>(&'a self, item: Option<ebbtide_store::Item<'a>>) -> Lookup<'a> {
        match item {
            Some(item) => Lookup::Hit(Item::in_memory(item, &self.pool.store)),
            None => Lookup::Miss,
        }
    }
}

impl PoolState {
    /// The remaining life of a value on flash; `None` if it never expires.
    fn remaining(&self, value: &ReadValue) -> Option<Duration> {
        self.flash.as_ref()?.remaining(value.found.expiry, self.clock.now_ms())
    }
}

/// A borrowed hit. Holding it delays the reuse of evicted memory: keep it short, or make a [`Handle`]. One that flash
/// has answered holds a copy of its own.
pub struct Item<'a>(Source<'a>);

enum Source<'a> {
    Memory { item: ebbtide_store::Item<'a>, store: &'a Arc<Store> },
    Flash { value: Arc<ReadValue>, pool: &'a PoolState, token: u64 },
    Compact { key: Box<[u8]>, value: Box<[u8]> },
}

impl<'a> Item<'a> {
    #[inline(always)]
    pub(crate) fn in_memory(item: ebbtide_store::Item<'a>, store: &'a Arc<Store>) -> Self {
        Self(Source::Memory { item, store })
    }

    pub(crate) fn on_flash(value: Arc<ReadValue>, pool: &'a PoolState, token: u64) -> Self {
        Self(Source::Flash { value, pool, token })
    }

    /// A copy of an entry of a compact pool: without client flags, token, life and uses.
    pub(crate) fn of_compact(key: &[u8], value: &[u8]) -> Self {
        Self(Source::Compact { key: key.into(), value: value.into() })
    }
}

impl Item<'_> {
    /// Bytes of the value.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Source::Memory { item, .. } => item.len(),
            Source::Flash { value, .. } => value.found.value().len(),
            Source::Compact { value, .. } => value.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn key(&self) -> &[u8] {
        match &self.0 {
            Source::Memory { item, .. } => item.key(),
            Source::Flash { value, .. } => &value.key,
            Source::Compact { key, .. } => key,
        }
    }

    /// Client flags; 0 of an entry that the library has annotated.
    #[inline]
    pub fn flags(&self) -> u32 {
        self.word().of_client()
    }

    /// The library's annotation of the entry; 0 without one.
    #[inline]
    pub(crate) fn annotation(&self) -> u32 {
        self.word().to_annotation()
    }

    #[inline]
    fn word(&self) -> Flags {
        match &self.0 {
            Source::Memory { item, .. } => item.flags(),
            Source::Flash { value, .. } => flags_of(&value.found),
            Source::Compact { .. } => Flags::default(),
        }
    }

    /// The CAS token: changes with every change of the value, and sometimes without one. With flash it is kept from
    /// here on until the value changes, also while the value is on flash only, unless more tokens are handed out than
    /// are kept. A hit that was served from flash has the token that was handed out before, if it is kept. Otherwise it
    /// has no valid token: a write with it is refused, and finds the value in memory the next time.
    /// `Cache::get_with_token` returns only hits with tokens.
    pub fn cas(&self) -> u64 {
        match &self.0 {
            Source::Memory { item, .. } => item.issue_token(),
            Source::Flash { token, .. } => *token,
            Source::Compact { .. } => 0,
        }
    }

    /// The CAS token to look at: as `cas`, and not kept.
    pub fn passing_cas(&self) -> u64 {
        match &self.0 {
            Source::Memory { item, .. } => item.token(),
            Source::Flash { token, .. } => *token,
            Source::Compact { .. } => 0,
        }
    }

    /// Whether a CAS token that was handed out stands for this value.
    pub fn has_cas(&self, token: u64) -> bool {
        match &self.0 {
            Source::Memory { item, .. } => item.has_token(token),
            Source::Flash { pool, token: kept, .. } => *kept == token && token != pool.store.invalid_token(),
            Source::Compact { .. } => false,
        }
    }

    /// Whether the value was marked as out of date and not replaced since.
    pub fn is_stale(&self) -> bool {
        matches!(&self.0, Source::Memory { item, .. } if item.extension().stale)
    }

    /// Whether a client won the right to store the value anew, and has not done so yet.
    pub fn is_won(&self) -> bool {
        matches!(&self.0, Source::Memory { item, .. } if item.extension().won)
    }

    /// Whether a use of the key was counted before this one. Uses of the value before the present one count, too; an
    /// eviction that the entry survives may forget them, and flash counts none.
    pub fn was_used(&self) -> bool {
        matches!(&self.0, Source::Memory { item, .. } if item.was_used())
    }

    /// About how long the entry had not been read before this look. Entries that share a bucket of the index share the
    /// time of their last read; one that was never read counts from the time at which its segment was opened. Zero if
    /// flash has answered.
    pub fn idle(&self) -> Duration {
        match &self.0 {
            Source::Memory { item, .. } => Duration::from_millis(item.idle_ms()),
            Source::Flash { .. } | Source::Compact { .. } => Duration::ZERO,
        }
    }

    /// Bytes that the entry takes in the cache's segments.
    pub fn stored_bytes(&self) -> u64 {
        match &self.0 {
            Source::Memory { item, .. } => item.stored_bytes(),
            Source::Flash { .. } | Source::Compact { .. } => 0,
        }
    }

    /// Remaining life; `None` if it never expires.
    pub fn ttl(&self) -> Option<Duration> {
        match &self.0 {
            Source::Memory { item, .. } => item.remaining_ms().map(Duration::from_millis),
            Source::Flash { value, pool, .. } => pool.remaining(value),
            Source::Compact { .. } => None,
        }
    }

    /// The value in pieces: one for all but values longer than a segment.
    #[inline]
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        match &self.0 {
            Source::Memory { item, .. } => Slices::Memory(item.slices()),
            Source::Flash { value, .. } => Slices::Flash(Some(value.found.value())),
            Source::Compact { value, .. } => Slices::Flash(Some(value)),
        }
    }

    /// The value, if it is in one piece.
    #[inline]
    pub(crate) fn contiguous(&self) -> Option<&[u8]> {
        match &self.0 {
            Source::Memory { item, .. } => item.contiguous(),
            Source::Flash { value, .. } => Some(value.found.value()),
            Source::Compact { value, .. } => Some(value),
        }
    }

    /// Appends the value to `out`.
    #[inline]
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Source::Memory { item, .. } => item.copy_to(out),
            Source::Flash { value, .. } => out.extend_from_slice(value.found.value()),
            Source::Compact { value, .. } => out.extend_from_slice(value),
        }
    }

    /// A copy of a range of the value: fewer bytes if the value ends before. A hit that flash has answered for a range
    /// has the bytes of that range only, which must be this one.
    pub fn range_to_vec(&self, range: ByteRange) -> Vec<u8> {
        if let Source::Flash { value, .. } = &self.0
            && let Some(read) = value.range
        {
            assert_eq!(read, range, "flash was read for another range");
            return value.found.value().to_vec();
        }
        let Range { start: mut skip, end } = range.within(self.len());
        // A vector may have more capacity than was asked for.
        let length = end - skip;
        let mut copy = Vec::with_capacity(length);
        for slice in self.slices() {
            let bytes = slice.get(skip..).unwrap_or_default();
            let left = length - copy.len();
            copy.extend_from_slice(&bytes[..bytes.len().min(left)]);
            skip = skip.saturating_sub(slice.len());
        }
        copy
    }

    /// A copy of the value.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.len());
        self.copy_to(&mut copy);
        copy
    }

    /// A handle that outlives the borrow. Values under 4 KiB are copied, others stay in place until it is dropped.
    ///
    /// # Errors
    /// `PinnedLimit` if handles hold a quarter of the memory already, or as much as the largest value takes. For hits
    /// served from flash the limit is a quarter of the memory of flash, or one value. Always for hits of a compact
    /// pool, which are copies.
    pub fn to_handle(&self) -> Result<Handle, Error> {
        match &self.0 {
            Source::Memory { item, store } => {
                item.to_handle(store).map(|handle| Handle(HandleSource::Memory(handle))).map_err(Error::from_store)
            }
            Source::Flash { value, pool, .. } => {
                let flash = pool.flash.as_ref().expect("a cache whose flash has answered has flash");
                PinnedValue::new(value, flash).map(|lent| Handle(HandleSource::Flash(lent)))
            }
            // A copy of a few bytes: there is nothing to pin.
            Source::Compact { .. } => Err(Error::PinnedLimit { pinned_bytes: 0, limit: 0 }),
        }
    }
}

/// The pieces of a value.
enum Slices<'a, Pieces> {
    Memory(Pieces),
    Flash(Option<&'a [u8]>),
}

impl<'a, Pieces: Iterator<Item = &'a [u8]>> Iterator for Slices<'a, Pieces> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Self::Memory(pieces) => pieces.next(),
            Self::Flash(piece) => piece.take(),
        }
    }
}

/// A hit that may be kept and sent to other threads.
pub struct Handle(HandleSource);

enum HandleSource {
    Memory(ebbtide_store::Handle),
    Flash(PinnedValue),
}

/// A value served from flash, counted among the bytes that such handles hold. Dropping it releases them.
struct PinnedValue {
    value: Arc<ReadValue>,
    pinned_bytes: Arc<AtomicU64>,
}

impl PinnedValue {
    fn new(value: &Arc<ReadValue>, flash: &FlashTier) -> Result<Self, Error> {
        let lent = Self { value: Arc::clone(value), pinned_bytes: Arc::clone(&flash.pinned_bytes) };
        let (bytes, limit) = (lent.bytes(), flash.reads.max_bytes());
        let pinned_bytes = lent.pinned_bytes.fetch_add(bytes, Ordering::Relaxed);
        if pinned_bytes > 0 && pinned_bytes + bytes > limit {
            return Err(Error::PinnedLimit { pinned_bytes, limit });
        }
        Ok(lent)
    }

    fn bytes(&self) -> u64 {
        self.value.found.value().len() as u64
    }
}

impl Drop for PinnedValue {
    fn drop(&mut self) {
        self.pinned_bytes.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}

impl Handle {
    /// Bytes of the value.
    pub fn len(&self) -> usize {
        match &self.0 {
            HandleSource::Memory(handle) => handle.len(),
            HandleSource::Flash(lent) => lent.value.found.value().len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Client flags; 0 of an entry that the library has annotated.
    pub fn flags(&self) -> u32 {
        match &self.0 {
            HandleSource::Memory(handle) => handle.flags().of_client(),
            HandleSource::Flash(lent) => flags_of(&lent.value.found).of_client(),
        }
    }

    /// The bytes from `offset` to the end of the piece that holds it; empty only at the end of the value.
    pub fn slice_at(&self, offset: usize) -> &[u8] {
        match &self.0 {
            HandleSource::Memory(handle) => handle.slice_at(offset),
            HandleSource::Flash(lent) => &lent.value.found.value()[offset..],
        }
    }
}

/// The word beside a value on flash.
pub(crate) fn flags_of(found: &FlashHit) -> Flags {
    Flags::from_parts(found.client_flags, found.is_annotated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_size::ByteSize;
    use crate::cache::Cache;
    use crate::pool::Pool;
    use ebbtide_store::Ttl;

    /// The coarse time stands still, as between two refreshes by the maintenance.
    #[test]
    fn reads_ask_the_exact_clock() {
        let folder = tempfile::tempdir().unwrap();
        let builder = || Cache::builder().memory(ByteSize::mib(8));
        for cache in [builder(), builder().flash(folder.path().join("flash"), ByteSize::mib(64))] {
            let cache = cache.build().unwrap();
            let (engine, pool): (_, &Pool) = (cache.engine(), &cache);
            let _without_maintenance = engine.maintaining.lock().unwrap();
            let coarse_ms = engine.clock.coarse_ms();
            pool.insert(b"short", b"value").ttl(Ttl::seconds(10)).apply().unwrap();
            pool.insert(b"long", b"value").ttl(Ttl::seconds(100)).apply().unwrap();
            let found = |key: &[u8]| {
                let (mut in_batch, mut in_pools) = (false, false);
                pool.get_batch(&[key], |_, lookup| in_batch = lookup.is_hit());
                Pool::get_batch_of_pools(
                    1,
                    |_| (pool, key),
                    |_, lookup| {
                        in_pools = lookup.is_hit();
                        ControlFlow::Continue(())
                    },
                );
                let range = pool.get_range(key, ByteRange { offset: 0, length: 1 }).is_hit();
                [pool.get(key).is_hit(), pool.peek(key).is_hit(), range, in_batch, in_pools]
            };
            assert_eq!((found(b"short"), found(b"long")), ([true; 5], [true; 5]));
            engine.clock.skip_unnoticed(Duration::from_secs(20));
            assert_eq!((found(b"short"), found(b"long")), ([false; 5], [true; 5]));
            assert_eq!(engine.clock.coarse_ms(), coarse_ms);
        }
    }
}
