//! The flash of one pool: its incarnation on flash, and its state of promotions and scans. All pools share one
//! [`FlashTier`].

use crate::flash::absence_ticket::AbsentKeys;
use crate::flash::kept_tokens::{self, TokenStart};
use crate::flash::memory_split::TOKENS_SHARE;
use crate::flash::pending_reads::ReadValue;
use crate::flash::promoted_keys::PromotedKeys;
use crate::flash::promotion::{Choice, Promotions};
use crate::flash::read::FlashProbe;
use crate::flash::tier::FlashTier;
use ebbtide_flash::admission::Offer;
use ebbtide_flash::{FlashHash, FlashPool, Key, Object, Token};
use ebbtide_store::{Item, LowerCopy, LowerTier, Store};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A pool's filters are sized for this part of flash's memory at least: its memory may grow.
const MIN_PART: u64 = 64;

/// The part of flash's memory by which the filters of a pool are sized.
fn part_of(flash_bytes: u64, pool_bytes: u64, all_bytes: u64) -> u64 {
    let part = u128::from(flash_bytes) * u128::from(pool_bytes) / u128::from(all_bytes.max(1));
    (part as u64).max(flash_bytes / MIN_PART).min(flash_bytes)
}

/// The flash of a pool.
pub(crate) struct PoolFlash {
    pub shared: Arc<FlashTier>,
    /// Its numbers and bytes on flash.
    pub on_flash: Arc<FlashPool>,
    pub promotions: Promotions,
    /// For scans.
    pub promoted_keys: Arc<PromotedKeys>,
    pub absent_keys: AbsentKeys,
    is_flushing: AtomicBool,
    /// The pool was removed: its next flush is the last.
    is_removed: AtomicBool,
    /// Of the tokens that the store keeps.
    token_bytes: u64,
}

impl Deref for PoolFlash {
    type Target = FlashTier;

    fn deref(&self) -> &FlashTier {
        &self.shared
    }
}

impl PoolFlash {
    /// Bytes on the heap beside the filters and tokens, which are in the memory of flash.
    pub const HEAP_BYTES: u64 = (size_of::<Self>() + size_of::<FlashPool>() + size_of::<PromotedKeys>()) as u64;

    /// Puts a store over flash. `memory_bytes` is the part of flash's memory by which the pool's filters are sized.
    fn over(shared: &Arc<FlashTier>, on_flash: Arc<FlashPool>, store: &Store, memory_bytes: u64) -> Arc<Self> {
        store.retain_tokens(memory_bytes / TOKENS_SHARE);
        let token_bytes = store.token_bytes();
        shared.token_bytes.fetch_add(token_bytes, Ordering::Relaxed);
        let pool = Arc::new(Self {
            shared: Arc::clone(shared),
            on_flash,
            promotions: Promotions::new(store.memory_bytes(), memory_bytes),
            promoted_keys: Arc::default(),
            absent_keys: AbsentKeys::default(),
            is_flushing: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            token_bytes,
        });
        shared.register(&pool.promoted_keys);
        shared.filter_bytes.fetch_add(pool.promotions.memory_bytes(), Ordering::Relaxed);
        store.set_lower_tier(Box::new(FlashLowerTier(Arc::clone(&pool))));
        pool
    }

    /// The pools of a start, with their incarnations on flash and the CAS tokens that the last stop kept. Waits for the
    /// device.
    pub fn open_all(
        shared: &Arc<FlashTier>,
        names: &[&str],
        stores: &mut [Store],
        tokens: TokenStart,
    ) -> Result<Vec<Option<Arc<Self>>>, ebbtide_flash::Error> {
        let all_bytes = stores.iter().map(Store::memory_bytes).sum();
        let open = |(on_flash, store): (Arc<FlashPool>, &Store)| {
            let memory_bytes = part_of(shared.memory_split.planned_bytes(), store.memory_bytes(), all_bytes);
            Some(Self::over(shared, on_flash, store, memory_bytes))
        };
        shared.note_dropped_pools(shared.tier.unnamed_pools(names));
        let pools = shared.tier.open_pools(names)?;
        let opened = pools.iter().map(Arc::clone).zip(&*stores).map(open).collect();
        kept_tokens::resume(shared.tier.take_tokens(), &pools, stores, tokens);
        Ok(opened)
    }

    /// As [`PoolFlash::over`], for a pool of this name beside others that have `all_bytes` of memory together.
    pub fn open(shared: &Arc<FlashTier>, name: &str, store: &Store, all_bytes: u64) -> Arc<Self> {
        let memory_bytes = part_of(shared.memory_split.planned_bytes(), store.memory_bytes(), all_bytes);
        Self::over(shared, shared.tier.open_pool(name), store, memory_bytes)
    }

    /// A key of the pool as flash knows it.
    pub fn key<'a>(&self, key: &'a [u8]) -> Key<'a> {
        self.tier.key(&self.on_flash, key)
    }

    /// The copy that a value is, for the store. A copy of an incarnation that is over is not current.
    pub fn copy_of(&self, value: &ReadValue) -> LowerCopy {
        LowerCopy { hash: value.hash.0, token: value.found.token.0 ^ self.tier.pool_salt(value.pool) }
    }

    /// The next flush removes the pool from flash.
    pub fn remove(&self) {
        self.is_removed.store(true, Ordering::Relaxed);
    }

    /// Whether flash may have a key.
    pub fn probe(&self, key: &[u8]) -> Option<FlashProbe> {
        let Key { hash, pool, .. } = self.key(key);
        self.tier.probe(hash).map(|place| FlashProbe { hash, pool, place: Some(place) })
    }

    /// As `probe`, for a request of a key that memory does not have: admission by history counts it.
    pub fn probe_missed(&self, key: &[u8]) -> Option<FlashProbe> {
        let Key { hash, pool, .. } = self.key(key);
        self.tier.missed(hash);
        self.tier.probe(hash).map(|place| FlashProbe { hash, pool, place: Some(place) })
    }

    /// Whether a lookup of a range reads and promotes the whole value: ranges have used it, and the policy promotes
    /// such a hit.
    pub fn promotes_range(&self, probe: &FlashProbe, now_ms: u64) -> bool {
        self.range_uses.take_use(probe.hash) && self.choose_promotion(probe.hash, now_ms) == Choice::Promote
    }

    /// Whether the policy promotes a hit on flash. Counts the hit.
    pub fn choose_promotion(&self, hash: FlashHash, now_ms: u64) -> Choice {
        self.promotions.choose(self.promotion.get(), hash, self.seconds(now_ms))
    }

    /// Demotes an idle item, if its key is not on flash already and admission takes it. The lock of the key's buckets
    /// is held.
    pub fn demote_idle(&self, item: &Item<'_>, now_ms: u64) -> bool {
        let Some(expiry) = self.expiry_on_flash(item) else { return false };
        let key = self.key(item.key());
        if item.extension().copied && self.tier.could_exist(key.hash) {
            return true;
        }
        let (value_bytes, now) = (item.len(), self.seconds(now_ms));
        let offer = Offer { key: key.hash, bytes: item.key().len() + value_bytes, value_bytes, expiry };
        // An item that the limits refuse is not offered in each scan again.
        if self.tier.limits().refuse(&offer, now).is_some() || !self.tier.has_space() {
            return false;
        }
        let value: Vec<&[u8]> = item.slices().collect();
        let (client_flags, is_annotated) = item.flags().to_parts();
        let object = Object { key, value: &value, client_flags, is_annotated, expiry };
        let is_taken = self.tier.insert(&object, now).is_some();
        if is_taken {
            self.idle.note_demoted();
            self.promotions.note_evicted(item.stored_bytes());
            self.note_demotion(value_bytes as u64);
        }
        is_taken
    }
}

impl Drop for PoolFlash {
    fn drop(&mut self) {
        self.shared.token_bytes.fetch_sub(self.token_bytes, Ordering::Relaxed);
        self.shared.filter_bytes.fetch_sub(self.promotions.memory_bytes(), Ordering::Relaxed);
    }
}

/// The flash of a pool as its store sees it.
pub(crate) struct FlashLowerTier(pub Arc<PoolFlash>);

impl LowerTier for FlashLowerTier {
    fn demote(&self, item: &Item<'_>, now_ms: u64) -> bool {
        let flash = &*self.0;
        flash.promotions.note_evicted(item.stored_bytes());
        let key = flash.key(item.key());
        let Some(expiry) = flash.expiry_on_flash(item) else {
            flash.tier.remove(key.hash);
            return false;
        };
        if item.extension().copied && flash.tier.could_exist(key.hash) {
            flash.unchanged.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        let value: Vec<&[u8]> = item.slices().collect();
        let (client_flags, is_annotated) = item.flags().to_parts();
        let object = Object { key, value: &value, client_flags, is_annotated, expiry };
        let is_taken = flash.tier.insert(&object, flash.seconds(now_ms)).is_some();
        flash.note_demotion(object.value_bytes() as u64);
        is_taken
    }

    fn settle(&self, now_ms: u64) {
        self.0.shared.settle(now_ms);
    }

    fn is_current(&self, copy: LowerCopy) -> bool {
        // The flush first: a flush that starts after this look makes the promoted item worthless, too.
        if self.0.is_flushing.load(Ordering::SeqCst) {
            return false;
        }
        let salt = self.0.tier.pool_salt(self.0.on_flash.number());
        self.0.tier.is_current_hit(FlashHash(copy.hash), Token(copy.token ^ salt))
    }

    fn remove(&self, key: &[u8]) -> bool {
        self.0.tier.remove(self.0.key(key).hash)
    }

    fn flush(&self, advance: &mut dyn FnMut()) {
        let flash = &*self.0;
        flash.is_flushing.store(true, Ordering::SeqCst);
        advance();
        if flash.is_removed.load(Ordering::Relaxed) {
            flash.tier.remove_pool(&flash.on_flash);
        } else {
            flash.tier.flush_pool(&flash.on_flash);
        }
        flash.is_flushing.store(false, Ordering::SeqCst);
    }
}
