//! From flash to whoever asked: what was found there comes into memory, or is answered as it was found.
//!
//! ```text
//! found ---> policy ---> promote: into the store, if the key has none and this is still its copy ---> look there
//!               |            | no room
//!               +------------+-> serve: an answer, if the key has none and this is still its copy
//! ```
//! Both conditions are looked at under the lock of the key's buckets, `docs/concurrency.md`, "Flash: answers". The look
//! after a promotion is none that counts as a use: what comes up has to be used in memory to stay there.

use crate::cache::{Cache, Shared};
use crate::clock::Clock;
use crate::error::Error;
use crate::flash::promotion::Choice;
use crate::flash::read::{Fetched, Value};
use crate::flash::tier::FlashTier;
use crate::lookup::{Item, Lookup};
use crate::retry::{Patience, Waiting};
use ebbtide_flash::Key;
use ebbtide_store::{Mode, Stored, Ttl, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a get looks again for what it has found, when others evict or change it meanwhile.
const MAX_LOOKUPS: u32 = 4;

/// What a value that was found on flash is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It must be in memory, and may have to wait for that.
    Memory(Waiting),
    /// It can be answered as it was found.
    Answer,
}

/// What becomes of what a fetch found.
#[derive(Debug)]
pub enum Resolved<'a> {
    /// The key's value at this moment: it has come into memory, or stays where it is.
    Hit(Item<'a>),
    /// The key has changed: memory decides, and if it has not the key, flash may have another value.
    Changed,
    /// Nothing was found: a miss.
    Miss,
}

impl Shared {
    /// Promotes an entry that the store does not have; waits for the device. A copy that is moved on flash while it is read is
    /// read again, a few times.
    fn promote_from_flash(&self, flash: &Arc<FlashTier>, key: &[u8]) -> Result<(), Error> {
        let target = (key, self.store.hash(key));
        for _ in 0..MAX_LOOKUPS {
            let now_ms = self.time.now_ms();
            if self.store.peek(&self.participant(), key, target.1, now_ms).is_some() {
                break;
            }
            match flash.read_one(key, now_ms) {
                Some(value) => _ = self.promote_counted(flash, &value, Need::Memory(Waiting::Sleeps))?,
                None => break,
            }
        }
        Ok(())
    }

    /// Promotes what was found on flash, and counts that. What needs memory may answer `WouldWait`, which is not counted.
    pub(crate) fn promote_counted(&self, flash: &FlashTier, value: &Value, need: Need) -> Result<Stored, Error> {
        let promoted = self.promote(flash, value, need);
        if need != Need::Answer && promoted.as_ref().is_err_and(|error| !error.is_final()) {
            return promoted;
        }
        let counter = if promoted.is_ok() { &flash.promoted } else { &flash.promotions_refused };
        counter.fetch_add(1, Ordering::Relaxed);
        promoted
    }

    fn promote(&self, flash: &FlashTier, Value { key, found }: &Value, need: Need) -> Result<Stored, Error> {
        let participant = self.participant();
        let expiry = u64::from(found.expiry);
        let until = (expiry != 0).then(|| expiry.saturating_sub(flash.epoch_seconds));
        let mode = Mode::Promote { copy: found.token.0, until };
        let (hash, value, flags) = (self.store.hash(key), found.value(), found.client_flags);
        let write = Write { key, hash, value, flags, ttl: Ttl::Never, mode, token: None };
        let may_go_on = || need != Need::Answer || self.has_spare_memory(flash);
        let record = |now_ms| {
            let _recording = flash.promoted_keys.record(hash);
            self.store.write(&participant, &write, now_ms)
        };
        let waiting = match need {
            Need::Memory(waiting) => waiting,
            Need::Answer => Waiting::Answers(Patience::Whole),
        };
        let written = self.write_with_eviction_while(may_go_on, waiting, &participant, |now_ms| match need {
            Need::Memory(Waiting::Sleeps) => self.in_upload_order(|| record(self.time.now_ms())),
            _ => record(now_ms),
        });
        written.map(|written| written.stored)
    }

    /// Whether memory can take what flash has anyway: not if writers are about to run out of segments, nor while flash could not take what is
    /// evicted for it, which may be nowhere else. With a manual clock evictions wait for flash.
    fn has_spare_memory(&self, flash: &FlashTier) -> bool {
        let can = self.clock == Clock::Manual || !self.store.is_low() && flash.tier.has_space();
        if !can {
            self.waker.wake();
        }
        can
    }

    /// What is left of the life of a value; `None` if it never expires.
    pub(crate) fn remaining(&self, value: &Value) -> Option<Duration> {
        self.flash.as_ref()?.remaining(value.found.expiry, self.time.now_ms())
    }

    /// Before an operation of a cache that waits for flash, and that depends on a present value: promotes it if it may be on flash
    /// and nowhere else.
    ///
    /// # Errors
    /// `OutOfMemory` if flash has the value and memory has no room for it: the operation must not take the key for absent.
    #[inline]
    pub(crate) fn promote_if_on_flash(&self, waits: bool, key: &[u8]) -> Result<(), Error> {
        match &self.flash {
            Some(flash) if waits && flash.tier.could_exist(Key::new(key).hash) => self.promote_from_flash(flash, key),
            _ => Ok(()),
        }
    }
}

impl Cache {
    /// Answers with what a fetch has found, or brings it into memory, as the promotion says; counts as a hit on flash.
    pub fn resolve(&self, fetched: Fetched) -> Resolved<'_> {
        let value = fetched.value().cloned();
        // Before an item is held: whoever gives room back begins reads of others, and runs their landings.
        drop(fetched);
        match (&self.shared.flash, value) {
            (Some(flash), Some(value)) => self.resolve_value(flash, &value),
            _ => Resolved::Miss,
        }
    }

    fn resolve_value(&self, flash: &FlashTier, value: &Arc<Value>) -> Resolved<'_> {
        let item = match self.promotes(flash, value) {
            true => self.peek(&value.key).hit(),
            false => self.serve(flash, value),
        };
        item.map_or(Resolved::Changed, Resolved::Hit)
    }

    /// Brings what a plain get has found into memory, if the policy says so and there is room. Whether memory decides then.
    fn promotes(&self, flash: &FlashTier, value: &Value) -> bool {
        let choice = flash.promotions.choose(Key::new(&value.key).hash, flash.seconds(self.shared.time.now_ms()));
        choice == Choice::Promote && self.shared.promote_counted(flash, value, Need::Answer).is_ok()
    }

    /// The value as a hit, if it is the key's at this moment.
    fn serve(&self, flash: &FlashTier, value: &Arc<Value>) -> Option<Item<'_>> {
        let shared = &*self.shared;
        let (now_ms, found) = (shared.time.now_ms(), &value.found);
        let is_over = found.expiry != 0 && found.expiry <= flash.seconds(now_ms);
        let is_it =
            !is_over && shared.store.is_current_copy(&value.key, shared.store.hash(&value.key), found.token.0, now_ms);
        is_it.then(|| {
            flash.served.fetch_add(1, Ordering::Relaxed);
            Item::on_flash(Arc::clone(value), shared)
        })
    }

    /// As `get`, and the hit is in memory, so that its CAS token is one: what only flash has comes up whatever the promotion says.
    /// Where memory has no room for that it is a miss.
    pub fn get_with_token(&self, key: &[u8]) -> Lookup<'_> {
        match self.shared.promote_if_on_flash(self.waits, key) {
            Ok(()) => self.get_in_memory(key),
            Err(_) => Lookup::Miss,
        }
    }

    /// Keeps the CAS token that a write answered, as [`Item::cas`] does; answers the one to hand out. The value must have been the key's
    /// since, and its bucket unchanged: otherwise the token is as good as without this.
    pub fn keep_cas(&self, key: &[u8], token: u64) -> u64 {
        let store = &self.shared.store;
        store.retain_token(key, store.hash(key), token)
    }

    /// A get that has missed in the store.
    #[cold]
    pub(crate) fn get_from_flash<'a>(&'a self, flash: &Arc<FlashTier>, key: &[u8]) -> Lookup<'a> {
        for _ in 0..MAX_LOOKUPS {
            if !flash.may_contain(key) {
                return Lookup::Miss;
            }
            match flash
                .read_one(key, self.shared.time.now_ms())
                .map_or(Resolved::Miss, |value| self.resolve_value(flash, &value))
            {
                Resolved::Hit(item) => return Lookup::Hit(item),
                Resolved::Miss => return Lookup::Miss,
                Resolved::Changed => {}
            }
            if let hit @ Lookup::Hit(_) = self.get_in_memory(key) {
                return hit;
            }
        }
        Lookup::Miss
    }

    /// A batch of gets. All that only flash has is read at once; between the reads nothing is held.
    #[cold]
    pub(crate) fn get_batch_from_flash<'a>(
        &'a self,
        flash: &Arc<FlashTier>,
        keys: &[&[u8]],
        mut answer: impl FnMut(usize, Lookup<'a>) -> ControlFlow<()>,
    ) {
        let mut from = 0;
        // How often something was found on flash for the first key that may have changed since, and whether it is not looked for again: what
        // was found, or memory, decides.
        let (mut looks, mut settled) = (0, false);
        // What was found and stays on flash, by the numbers of the keys. It is believed when its turn comes.
        let mut values: Vec<(usize, Arc<Value>)> = Vec::new();
        loop {
            let mut missing = None;
            self.get_batch_in_memory(&keys[from..], |i, lookup| {
                let number = from + i;
                let is_settled = std::mem::take(&mut settled);
                let found =
                    || values.iter().find(|(of, _)| *of == number).and_then(|(_, value)| self.serve(flash, value));
                let lookup = match lookup {
                    Lookup::Miss => found().map_or(Lookup::Miss, Lookup::Hit),
                    hit @ Lookup::Hit(_) => hit,
                };
                if !lookup.is_hit() && !is_settled && flash.may_contain(keys[number]) {
                    missing = Some(number);
                    return ControlFlow::Break(());
                }
                answer(number, lookup)
            });
            let Some(number) = missing else { return };
            values.clear();
            looks = if number == from { looks + 1 } else { 1 };
            settled = true;
            let now = flash.seconds(self.shared.time.now_ms());
            let mut is_promoted = false;
            flash.read_and_wait(&keys[number..], now, |i, value| {
                settled &= i > 0 || looks == MAX_LOOKUPS;
                match self.promotes(flash, value) {
                    true => is_promoted |= i == 0,
                    false => values.push((number + i, Arc::clone(value))),
                }
            });
            from = number;
            // Answered here, since a look with those behind it would count as a use.
            if is_promoted && let hit @ Lookup::Hit(_) = self.peek(keys[number]) {
                if answer(number, hit).is_break() {
                    return;
                }
                (looks, settled, from) = (0, false, number + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlashOptions;
    use crate::byte_size::ByteSize;
    use crate::flash::promotion::FlashPromotion;
    use ebbtide_flash::Object;
    use std::cell::Cell;

    fn build(folder: &std::path::Path, promotion: FlashPromotion) -> Cache {
        let builder = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual).flash_promotion(promotion);
        builder.flash(folder.join("flash"), ByteSize::mib(64)).build().unwrap()
    }

    fn find(flash: &Arc<FlashTier>, key: &[u8]) -> Arc<Value> {
        let mut found = None;
        flash.read_and_wait(&[key], 2, |_, value| found = Some(Arc::clone(value)));
        found.expect("it was just inserted")
    }

    #[test]
    fn a_stale_value_is_neither_promoted_nor_served() {
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path(), FlashPromotion::Never);
        let shared = &*cache.shared;
        let flash = shared.flash.as_ref().unwrap();
        let key = Key::new(b"key");
        let leave: [&dyn Fn(); 2] = [&|| _ = cache.delete(b"key"), &|| cache.flush(Duration::ZERO)];
        for (leave, bytes) in leave.into_iter().flat_map(|leave| [(leave, 100), (leave, 9000)]) {
            let evict = |value: &[u8]| {
                let object = Object { key, value: &[value], client_flags: 0, attributes: 0, expiry: 0 };
                flash.tier.insert(&object, 2).unwrap();
            };
            evict(&vec![1; bytes]);
            let found = find(flash, key.bytes);
            leave();
            evict(&vec![2; bytes]);
            assert!(cache.serve(flash, &found).is_none(), "{bytes} bytes");
            assert_eq!(
                shared.promote(flash, &found, Need::Memory(Waiting::Answers(Patience::Spent))),
                Ok(Stored::NotStored)
            );
            assert_eq!(cache.get(b"key").hit().unwrap().to_vec(), vec![2; bytes]);
            cache.delete(b"key");
        }
    }

    #[test]
    fn a_late_promotion_keeps_its_expiry() {
        for (late, stored) in [(97, Stored::Stored), (99, Stored::NotStored)] {
            let folder = tempfile::tempdir().unwrap();
            let cache = build(folder.path(), FlashPromotion::Always);
            let shared = &*cache.shared;
            let flash = shared.flash.as_ref().unwrap();
            let key = Key::new(b"key");
            let object = Object { key, value: &[b"value"], client_flags: 7, attributes: 0, expiry: 100 };
            flash.tier.insert(&object, 2).unwrap();
            let found = find(flash, key.bytes);
            cache.maintain(Duration::from_secs(late));
            let item = cache.serve(flash, &found);
            assert_eq!(item.is_some(), stored == Stored::Stored);
            assert!(item.is_none_or(|item| item.ttl() == Some(Duration::from_secs(2)) && item.flags() == 7));
            assert_eq!(shared.promote(flash, &found, Need::Memory(Waiting::Answers(Patience::Spent))), Ok(stored));
            let ttl = cache.peek(b"key").hit().and_then(|item| item.ttl());
            assert_eq!(ttl, (stored == Stored::Stored).then_some(Duration::from_secs(2)));
            cache.maintain(Duration::from_secs(99));
            assert!(!cache.get(b"key").is_hit(), "it has expired");
        }
    }

    #[test]
    fn a_refused_promotion_is_served_from_flash() {
        const KEYS: u32 = 1000;
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path(), FlashPromotion::Always);
        let value = [7; 9000];
        (0..KEYS).for_each(|number| _ = cache.insert(&number.to_le_bytes(), &value).apply().unwrap());
        cache.insert(b"held", &value).apply().unwrap();
        // Who holds an item evicts nothing.
        let held = cache.get(b"held").hit().unwrap();
        let found = (0..KEYS).filter(|number| cache.get(&number.to_le_bytes()).is_hit()).count();
        let keys: Vec<[u8; 4]> = (0..KEYS).map(u32::to_le_bytes).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut in_batch = 0;
        cache.get_batch(&keys, |_, lookup| in_batch += usize::from(lookup.is_hit()));
        drop(held);
        let stats = cache.flash_stats().unwrap();
        assert!(stats.promotions_refused > 500 && stats.served >= stats.promotions_refused, "{stats:?}");
        assert_eq!((found, in_batch), (KEYS as usize, KEYS as usize));
    }

    #[test]
    fn a_promotion_counts_as_no_use() {
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path(), FlashPromotion::Always);
        let keys: Vec<[u8; 4]> = (0..1000_u32).map(u32::to_le_bytes).collect();
        keys.iter().for_each(|key| _ = cache.insert(key, &[7; 9000]).apply().unwrap());
        // Evicted a moment ago, which without flash would count as a use when it comes back.
        let key = keys.iter().rfind(|key| !cache.peek(&key[..]).is_hit()).expect("not all fit in memory");
        let uses = || {
            let (mut scan, mut uses) = (cache.scan().unwrap(), None);
            while scan.advance(|entry| uses = uses.or((entry.key() == key).then(|| entry.frequency()))) {}
            uses
        };
        let get = || cache.get(key).hit().map(|item| item.to_vec());
        let in_batch = || {
            let mut value = None;
            cache.get_batch(&[key], |_, lookup| value = lookup.hit().map(|item| item.to_vec()));
            value
        };
        let gets: [&dyn Fn() -> Option<Vec<u8>>; 2] = [&get, &in_batch];
        for (get, second) in gets.into_iter().zip([10, 30]) {
            assert!(!cache.peek(key).is_hit());
            for (second, counted) in [(second, 0), (second + 10, 1)] {
                cache.maintain(Duration::from_secs(second));
                assert_eq!(get(), Some(vec![7; 9000]));
                assert!(cache.peek(key).is_hit(), "it came up");
                assert_eq!(uses(), Some(counted));
            }
            keys.iter().for_each(|key| _ = cache.insert(key, &[8; 9000]).apply().unwrap());
            keys.iter().for_each(|key| _ = cache.insert(key, &[7; 9000]).apply().unwrap());
        }
        assert_eq!(cache.flash_stats().unwrap().promoted, 2);
    }

    #[test]
    fn a_promotion_evicts_nothing_while_flash_is_full() {
        const MAX_LOOKUPS: u64 = 400;
        let folder = tempfile::tempdir().unwrap();
        let options = FlashOptions { small_share: Some(0.5), ..FlashOptions::default() };
        let builder = Cache::builder().memory(ByteSize::mib(6)).flash_options(options);
        let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
        let flash = cache.shared.flash.as_ref().unwrap();
        let insert = |key: &[u8]| {
            let object = Object { key: Key::new(key), value: &[&[7; 1500]], client_flags: 0, attributes: 0, expiry: 0 };
            flash.tier.insert(&object, 2)
        };
        let found = [b"first", b"other"].map(|key| {
            insert(key).unwrap();
            find(flash, key)
        });
        assert!(matches!(cache.resolve_value(flash, &found[0]), Resolved::Hit(_)));
        assert!(cache.peek(b"first").is_hit());

        let without_maintenance = flash.maintaining.lock().unwrap();
        (0..10_000_u32).take_while(|_| flash.tier.has_space()).for_each(|number| _ = insert(&number.to_le_bytes()));
        assert!(!flash.tier.has_space() && flash.tier.stats().drops.total() == 0);
        assert!(matches!(cache.resolve_value(flash, &found[1]), Resolved::Hit(_)));
        let mut answers = Vec::new();
        cache.get_batch(&[b"other"], |_, lookup| answers.push(lookup.is_hit()));
        assert_eq!((answers, cache.peek(b"other").is_hit()), (vec![true], false), "it stays on flash");
        // Evictions in the background wait for longer than a device stalls, unless writers wait for them.
        let ticks = Cell::new(0);
        let tick = || {
            ticks.set(ticks.get() + 1);
            ticks.get()
        };
        let max = || Duration::from_secs(if ticks.get() == MAX_LOOKUPS { 0 } else { 60 });
        flash.wait_until_can_demote(max, tick);
        assert_eq!(ticks.get(), MAX_LOOKUPS);
        assert!(cache.get_with_token(b"other").is_hit() && cache.peek(b"other").is_hit(), "a token needs it in memory");
        drop(without_maintenance);
    }

    #[test]
    fn a_thread_local_destructor_reads_flash() {
        struct AtEnd(Cache, Vec<[u8; 4]>, std::sync::mpsc::Sender<usize>);
        impl Drop for AtEnd {
            fn drop(&mut self) {
                self.2.send(self.1.iter().filter(|key| self.0.get(&key[..]).is_hit()).count()).unwrap();
            }
        }
        thread_local!(static AT_END: std::cell::OnceCell<AtEnd> = const { std::cell::OnceCell::new() });
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path(), FlashPromotion::Never);
        let keys: Vec<[u8; 4]> = (0..1000_u32).map(u32::to_le_bytes).collect();
        keys.iter().for_each(|key| _ = cache.insert(key, &[7; 9000]).apply().unwrap());
        let (sender, found) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // Destructors run from the last to the first that was needed.
            assert!(AT_END.with(|at_end| at_end.set(AtEnd(cache.clone(), keys, sender))).is_ok());
            assert!(cache.get(&0_u32.to_le_bytes()).is_hit());
        });
        assert_eq!(found.recv(), Ok(1000));
    }

    #[test]
    fn handles_of_flash_hits_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path(), FlashPromotion::Never);
        let flash = cache.shared.flash.as_ref().unwrap();
        let value = vec![7; 9000];
        let object = Object { key: Key::new(b"key"), value: &[&value], client_flags: 3, attributes: 0, expiry: 0 };
        flash.tier.insert(&object, 2).unwrap();
        let limit = flash.reads.max_bytes();
        let handle = || cache.get(b"key").hit().unwrap().to_handle();
        let mut handles: Vec<_> = (0..limit / 9000).map(|_| handle().unwrap()).collect();
        let refusal = handle().err();
        assert_eq!(refusal, Some(Error::PinnedLimit { pinned_bytes: limit / 9000 * 9000, limit }));
        handles.pop();
        let last = handle().unwrap();
        drop(handles);
        drop(cache);
        assert_eq!((last.slice_at(0), last.slice_at(8999), last.flags()), (&value[..], &value[8999..], 3));
        build(folder.path(), FlashPromotion::Never);
    }

    #[test]
    fn callbacks_of_other_reads_run_unpinned() {
        use crate::flash::read::{Fetch, Fetched, WhenBusy};
        use std::sync::{Mutex, mpsc};
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path(), FlashPromotion::Always);
        let flash = cache.shared.flash.as_ref().unwrap();
        let insert = |key: &[u8]| {
            let object = Object { key: Key::new(key), value: &[&[7; 9000]], client_flags: 0, attributes: 0, expiry: 0 };
            flash.tier.insert(&object, 2).unwrap();
        };
        // All room for reads is taken by what others hold.
        let held: Arc<Mutex<Vec<Fetched>>> = Arc::default();
        for number in 0..100_000_u32 {
            insert(&number.to_le_bytes());
            let theirs = Arc::clone(&held);
            let on_read = Box::new(move |fetched| theirs.lock().unwrap().push(fetched));
            if cache.fetch(&number.to_le_bytes(), WhenBusy::Refuse, on_read) == Fetch::Refused {
                break;
            }
        }
        // In a buffer that is not written yet: to read it ends at once.
        insert(b"got");
        insert(b"other");
        let (sender, landed) = mpsc::channel();
        std::thread::scope(|scope| {
            let getter = scope.spawn(|| (std::thread::current().id(), cache.get(b"got").is_hit()));
            std::thread::sleep(Duration::from_millis(100));
            let shared = Arc::clone(&cache.shared);
            let on_read = Box::new(move |fetched: Fetched| {
                let is_pinned = shared.participant().is_pinned();
                sender.send((std::thread::current().id(), is_pinned, fetched.is_hit())).unwrap();
            });
            assert_eq!(cache.fetch(b"other", WhenBusy::Queue, on_read), Fetch::Queued);
            let one = held.lock().unwrap().pop();
            drop(one);
            let (thread, is_hit) = getter.join().unwrap();
            assert!(is_hit);
            assert!(cache.peek(b"got").is_hit(), "it came up");
            let (landed_on, is_pinned, is_hit) = landed.recv_timeout(Duration::from_secs(5)).unwrap();
            assert!(is_hit);
            println!(
                "landed on {landed_on:?} getter {thread:?} main {:?}, pinned: {is_pinned}; {:?}",
                std::thread::current().id(),
                held.lock().unwrap().len()
            );
            assert!(!is_pinned, "the on_read of another's fetch runs while the getter's item is alive");
        });
        held.lock().unwrap().clear();
    }
}
