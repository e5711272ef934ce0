//! Writes of one value.

use crate::access::Access;
use crate::change::Tried;
use crate::error::Error;
use crate::lookup::Item;
use crate::retry::Waiting;
use ebbtide_store::{Flags, Mode, Stored, Ttl, Write, Written};

/// A write that is being described.
#[must_use = "a write does nothing before apply"]
pub struct Insert<'a> {
    access: &'a Access,
    key: &'a [u8],
    value: &'a [u8],
    flags: Flags,
    ttl: Ttl,
    mode: Mode,
    token: Option<u64>,
}

impl<'a> Insert<'a> {
    pub(crate) fn new(access: &'a Access, key: &'a [u8], value: &'a [u8]) -> Self {
        Self { access, key, value, flags: Flags::default(), ttl: Ttl::Never, mode: Mode::Set, token: None }
    }

    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = ttl;
        self
    }

    /// Client flags.
    pub fn flags(mut self, flags: u32) -> Self {
        self.flags = flags.into();
        self
    }

    /// A word of the library in place of client flags; 0 is none.
    pub(crate) fn annotation(mut self, word: u32) -> Self {
        self.flags = if word == 0 { Flags::default() } else { Flags::annotation(word) };
        self
    }

    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The CAS token that the value gets, and keeps until it changes; by default the cache makes one.
    pub fn token(mut self, token: Option<u64>) -> Self {
        self.token = token;
        self
    }

    /// The key, and bytes of the value.
    pub(crate) fn target(&self) -> (&[u8], usize) {
        (self.key, self.value.len())
    }

    /// Carries the write out.
    ///
    /// # Errors
    /// `KeyLength`, `ValueTooLarge`, `OutOfMemory`, `WouldWait`. After a set that failed no old value stays behind,
    /// except after `WouldWait`; other modes leave it as it was.
    pub fn apply(self) -> Result<Stored, Error> {
        self.apply_with_token().map(|written| written.stored)
    }

    /// Carries the write out and returns the CAS token of the stored item.
    ///
    /// # Errors
    /// As `apply`.
    pub fn apply_with_token(self) -> Result<Written, Error> {
        let Self { access, key, value, flags, ttl, mode, token } = self;
        let pool = &*access.pool;
        if value.len() > pool.store.contiguous_value_bytes(key.len()) && !mode.extends() {
            let length = value.len() as u64;
            let mut upload = access.upload(access.waits, key, length, flags, ttl, mode)?.token(token);
            upload.write(value)?;
            return upload.finish_with_token();
        }
        pool.expect_on_flash(key, value.len() as u64);
        let (participant, waiting) = (pool.participant(), access.waiting());
        let write = Write { key, hash: pool.store.hash(key), value, flags, ttl, mode, token };
        let try_once = |write: &Write<'_>, now_ms| pool.write_in_upload_order(waiting, &participant, write, now_ms);
        if mode != Mode::Set {
            return access.change_by_write(key, mode, |now_ms, mode| try_once(&Write { mode, ..write }, now_ms));
        }
        let written = pool.write_with_eviction(waiting, &participant, |now_ms| try_once(&write, now_ms));
        if written.as_ref().is_err_and(Error::is_final) {
            access.delete_unread(key);
        }
        written
    }

    /// Carries the write out if the present value is accepted, as one operation; `accepts` is called again if the key
    /// has another item by then. `NotFound` if the key is absent, `NotStored` if its value is not accepted.
    ///
    /// # Errors
    /// As `apply`; nothing is changed.
    pub(crate) fn replace_if(self, accepts: impl Fn(&Item<'_>) -> bool) -> Result<Stored, Error> {
        let Self { access, key, value, flags, ttl, mode: _, token } = self;
        let pool = &*access.pool;
        let (participant, waiting) = (pool.participant(), access.waiting());
        let write = Write { key, hash: pool.store.hash(key), value, flags, ttl, mode: Mode::Replace, token };
        let is_accepted = |item: &ebbtide_store::Item<'_>| accepts(&Item::in_memory(item.clone(), &pool.store));
        access.change(key, |now_ms, _| {
            let stored = match waiting {
                Waiting::Sleeps => pool
                    .in_upload_order(|| pool.store.replace_if(&participant, &write, pool.clock.now_ms(), is_accepted)),
                Waiting::Answers(_) => pool.store.replace_if(&participant, &write, now_ms, is_accepted),
            }?;
            Ok(Tried::of(stored, stored == Stored::NotFound))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::lookup::Item;
    use crate::memcached::{self, FlashPromotion, Pool};
    use crate::{ByteSize, Cache, Clock, InsertOptions, LoadOptions};
    use ebbtide_store::Stored;
    use std::cell::Cell;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Duration;

    const KEY: &[u8] = b"key";

    /// A counter whose increments in place change the token of `KEY`.
    fn neighbour(pool: &Pool) -> [u8; 4] {
        let token = || pool.peek(KEY).hit().expect("the key is there").cas();
        let add_one = |key: &[u8]| assert!(pool.increment(key, 1).unwrap().is_some());
        let is_near = |key: &[u8; 4]| {
            pool.insert(key, b"1000000").apply().unwrap();
            add_one(key);
            let before = token();
            add_one(key);
            before != token()
        };
        (0..8000_u32).map(u32::to_le_bytes).find(is_near).expect("one of them is a neighbour")
    }

    /// Runs an operation while another thread changes the token of `KEY` all the time.
    fn beside_a_busy_neighbour(pool: &Pool, operation: impl FnOnce()) {
        let neighbour = neighbour(pool);
        let (is_busy, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Bounded: the test must end also if the operation repeats each time.
                for _ in 0..20_000_000 {
                    pool.increment(&neighbour, 1).unwrap();
                    is_busy.store(true, Ordering::Release);
                    if is_over.load(Ordering::Acquire) {
                        break;
                    }
                }
            });
            while !is_busy.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            operation();
            is_over.store(true, Ordering::Release);
        });
    }

    #[test]
    fn a_swap_ends_beside_a_busy_neighbour() {
        let cache = Cache::builder().memory(ByteSize::mib(64)).build().unwrap();
        let pool = cache.memcached();
        let values = [vec![7; 900_000], vec![8; 900_000]];
        cache.insert(KEY, &values[0]).unwrap();
        let uploads_ended = || pool.0.pool.store.uploads_ended();
        let before = uploads_ended();
        beside_a_busy_neighbour(pool, || {
            for swap in 0..10 {
                let (old, new) = (&values[swap % 2], &values[1 - swap % 2]);
                assert!(cache.compare_and_swap(KEY, old, new, InsertOptions::new()).unwrap());
            }
        });
        assert_eq!(uploads_ended() - before, 10, "each swap has written the value once");
        assert_eq!(cache.get(KEY).unwrap(), values[0]);
    }

    /// A cache whose values come back from flash only where an operation needs them.
    fn over_flash(folder: &Path) -> Cache {
        let builder = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual);
        let builder = builder.engine(|engine| engine.flash_promotion(FlashPromotion::Never).flash_max_idle(Some(30)));
        builder.flash(folder.join("flash"), ByteSize::mib(64)).build().unwrap()
    }

    /// Seals the segment of `KEY`, and has another thread demote what is idle.
    fn evict(cache: &memcached::Cache) {
        static SECONDS: AtomicU64 = AtomicU64::new(0);
        let fillers = cache.0.pool.store.contiguous_value_bytes(KEY.len()) as u32 / 6000 + 2;
        (0..fillers).for_each(|number| _ = cache.insert(&number.to_le_bytes(), &[9; 6000]).apply().unwrap());
        let demote = || {
            let pass = |_: &u32| cache.maintain(Duration::from_secs(SECONDS.fetch_add(40, Ordering::Relaxed)));
            assert!((0..1000).inspect(pass).any(|_| !cache.peek(KEY).is_hit()), "it stays in memory");
        };
        std::thread::scope(|scope| scope.spawn(demote).join().unwrap());
    }

    /// Result of a swap of `old`, and the number of its looks at a value, if the key changes after the first look.
    fn swapped(pool: &Pool, change: impl Fn()) -> (Stored, u32) {
        pool.insert(KEY, b"old").apply().unwrap();
        let looks = Cell::new(0);
        let accepts = |item: &Item<'_>| {
            let is_old = item.to_vec() == b"old";
            looks.set(looks.get() + 1);
            if looks.get() == 1 {
                change();
            }
            is_old
        };
        let stored = pool.insert(KEY, b"new").replace_if(accepts).unwrap();
        (stored, looks.get())
    }

    #[test]
    fn a_swap_follows_its_item_over_both_tiers() {
        let folder = tempfile::tempdir().unwrap();
        let cache = over_flash(folder.path());
        let pool = cache.memcached();
        let set = |value: &[u8]| _ = pool.insert(KEY, value).apply().unwrap();
        let is = |value: &[u8]| pool.get(KEY).hit().is_some_and(|item| item.to_vec() == value);
        assert_eq!(swapped(pool, || evict(pool)), (Stored::Stored, 2));
        assert!(is(b"new"));
        assert_eq!(swapped(pool, || (evict(pool), set(b"other"), evict(pool)).0), (Stored::NotStored, 2));
        assert!(is(b"other"));
        assert_eq!(swapped(pool, || (set(b"other"), set(b"old")).0), (Stored::Stored, 2));
        assert!(is(b"new"));
        let absent: [&dyn Fn(); 4] = [
            &|| assert!(pool.delete(KEY)),
            &|| pool.flush(Duration::ZERO),
            &|| (evict(pool), assert!(pool.delete(KEY))).0,
            &|| (evict(pool), pool.flush(Duration::ZERO)).0,
        ];
        for change in absent {
            assert_eq!(swapped(pool, change), (Stored::NotFound, 1));
            assert!(!pool.get(KEY).is_hit());
        }
        cache.verify();
    }

    #[test]
    fn inserts_over_negatives_end_beside_busy_neighbours() {
        let value = vec![7; 900_000];
        // Each cache has other neighbours, and the negative result stays where it is.
        for _ in 0..5 {
            let cache = Cache::builder().memory(ByteSize::mib(64)).build().unwrap();
            let options = LoadOptions::new().negative_ttl(Duration::from_secs(3600));
            assert_eq!(cache.get_or_load(KEY, options, || Ok::<Option<&str>, u32>(None)), Ok(None));
            let uploads_ended = || cache.memcached().0.pool.store.uploads_ended();
            let before = uploads_ended();
            beside_a_busy_neighbour(cache.memcached(), || {
                assert!(cache.insert_if_absent(KEY, &value, InsertOptions::new()).unwrap());
            });
            assert_eq!(uploads_ended() - before, 2, "it tries to add, and then replaces the negative result");
        }
    }
}
