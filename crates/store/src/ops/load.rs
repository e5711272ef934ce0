//! Loads: a caller that finds a key absent, or its value out of date, gets the value elsewhere, and publishes it with a
//! ticket.

use super::write::check_key;
use crate::error::Error;
use crate::store::Store;
use crate::sync::Ordering;

impl Store {
    /// Begins to load an absent key: returns a ticket for `Mode::Load`, which `end_load` must get. `None` if the key
    /// has a live item.
    ///
    /// # Errors
    /// `KeyLength`.
    pub fn begin_load(&self, key: &[u8], hash: u64, now_ms: u64) -> Result<Option<u64>, Error> {
        check_key(key)?;
        let moment = self.moment(now_ms);
        let pair = self.index.lock_pair(hash);
        // Acquire pairs with the Release in `advance_generation`.
        let generation = self.generation.load(Ordering::Acquire);
        let place = pair.find(|slot| self.is_key(slot, key));
        let is_live = place.is_some_and(|place| self.is_live_in(generation, &self.item(place.slot), moment));
        Ok((!is_live).then(|| self.load_tickets.add(hash, generation, true)))
    }

    /// Begins to load a key, present or absent: returns a ticket for `Mode::Reload`, which `end_load` must get.
    ///
    /// # Errors
    /// `KeyLength`.
    pub fn begin_reload(&self, key: &[u8], hash: u64) -> Result<u64, Error> {
        check_key(key)?;
        let _pair = self.index.lock_pair(hash);
        // Acquire pairs with the Release in `advance_generation`.
        Ok(self.load_tickets.add(hash, self.generation.load(Ordering::Acquire), false))
    }

    /// Whether the key has not changed since `begin_load`. Exact under the bucket locks of the key; else as far as this
    /// thread knows.
    pub fn is_load_valid(&self, hash: u64, ticket: u64) -> bool {
        // Acquire pairs with the Release in `advance_generation`.
        self.load_tickets.is_valid(hash, ticket, self.generation.load(Ordering::Acquire))
    }

    /// Whether the store has an item of the key that is not alive any more. Then the key is absent, also if the lower
    /// tier, which may keep the expiry in finer units, has a copy.
    pub fn has_dead_item(&self, key: &[u8], hash: u64, now_ms: u64) -> bool {
        let moment = self.moment(now_ms);
        let pair = self.index.lock_pair(hash);
        // Acquire pairs with the Release in `advance_generation`.
        let generation = self.generation.load(Ordering::Acquire);
        let place = pair.find(|slot| self.is_key(slot, key));
        place.is_some_and(|place| !self.is_live_in(generation, &self.item(place.slot), moment))
    }

    /// Ends a load, whether or not its value was published.
    pub fn end_load(&self, hash: u64, ticket: u64) {
        self.load_tickets.remove(hash, ticket);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Change as NumberChange, Changed, Count, Creation, MetaFlagsLookup, MetaFlagsOutcome};
    use crate::{Mode, Options, Stored, Ttl, Write};

    type Change = dyn Fn(&Store, &[u8]);

    fn write(store: &Store, key: &[u8], value: &[u8], mode: Mode) -> Stored {
        let hash = store.hash(key);
        let write = Write { key, hash, value, flags: 0.into(), ttl: Ttl::Never, mode, token: None };
        store.write(&store.participate(), &write, 1000).unwrap().stored
    }

    #[test]
    fn a_reload_is_published_unless_its_key_changed() {
        let changes: [(&Change, Option<&[u8]>); 5] = [
            (&|_, _| (), Some(b"loaded")),
            (&|store, _| set(store, b"another"), Some(b"loaded")),
            (&set, Some(b"newer")),
            (&delete, None),
            (&|store, _| store.flush(1000, 0), None),
        ];
        for is_present in [true, false] {
            for (number, (change, expected)) in changes.iter().enumerate() {
                let store = Store::new(Options { memory_bytes: 4 << 20, ..Options::default() }).unwrap();
                let (key, participant) = (&b"key"[..], store.participate());
                let hash = store.hash(key);
                if is_present {
                    write(&store, key, b"old", Mode::Set);
                }
                let ticket = store.begin_reload(key, hash).unwrap();
                change(&store, key);
                write(&store, key, b"loaded", Mode::Reload(ticket));
                store.end_load(hash, ticket);
                let present = store.get(&participant, key, hash, 1000);
                let present = present.map(|item| item.slices().flatten().copied().collect::<Vec<u8>>());
                assert_eq!(present.as_deref(), *expected, "change {number}, {is_present}");
                store.verify(&participant, 1000);
            }
        }
    }

    /// Begins to load "key", makes a change, and publishes. Returns the outcome, and the value at the end.
    fn load_across(value: &[u8], change: &Change) -> (Stored, Option<Vec<u8>>) {
        let store = Store::new(Options { memory_bytes: 4 << 20, ..Options::default() }).unwrap();
        let (key, participant) = (&b"key"[..], store.participate());
        let hash = store.hash(key);
        let ticket = store.begin_load(key, hash, 1000).unwrap().expect("the key is absent");
        change(&store, key);
        let stored = write(&store, key, value, Mode::Load(ticket));
        store.end_load(hash, ticket);
        store.verify(&participant, 1000);
        let present = store.get(&participant, key, hash, 1000).map(|item| item.slices().flatten().copied().collect());
        (stored, present)
    }

    fn set(store: &Store, key: &[u8]) {
        write(store, key, b"newer", Mode::Set);
    }

    fn delete(store: &Store, key: &[u8]) {
        store.delete(&store.participate(), key, store.hash(key), 1000);
    }

    #[test]
    fn a_load_is_published_unless_its_key_changed() {
        let changes: [(&Change, Option<&[u8]>); 8] = [
            (&|_, _| (), Some(b"loaded")),
            (&|store, _| set(store, b"another"), Some(b"loaded")),
            (&|store, _| delete(store, b"another"), Some(b"loaded")),
            (&set, Some(b"newer")),
            (&|store, key| (set(store, key), delete(store, key)).0, None),
            (&delete, None),
            (&|store, _| store.flush(1000, 0), None),
            (&|store, key| (set(store, key), store.flush(1000, 0)).0, None),
        ];
        for (number, (change, expected)) in changes.into_iter().enumerate() {
            let (stored, present) = load_across(b"loaded", change);
            let published = if expected == Some(b"loaded") { Stored::Stored } else { Stored::NotStored };
            assert_eq!((stored, present.as_deref()), (published, expected), "change {number}");
        }
        // In several segments.
        let long = vec![7; 300_000];
        assert_eq!(load_across(&long, &|_, _| ()), (Stored::Stored, Some(long.clone())));
        assert_eq!(load_across(&long, &delete), (Stored::NotStored, None));
    }

    #[test]
    fn a_void_ticket_creates_nothing() {
        type Create = dyn Fn(&Store, &[u8], u64) -> bool;
        let creations: [&Create; 6] = [
            &|store, key, ticket| write(store, key, b"made", Mode::AddSince(ticket)) == Stored::Stored,
            // It has expired already: nothing is stored, which is a success.
            &|store, key, ticket| {
                let hash = store.hash(key);
                let (mode, ttl) = (Mode::AddSince(ticket), Ttl::Expired);
                let write = Write { key, hash, value: b"made", flags: 0.into(), ttl, mode, token: None };
                store.write(&store.participate(), &write, 1000).unwrap().stored == Stored::Stored
            },
            &|store, key, ticket| {
                let (initial, ticket) = (Some((7, Ttl::Never)), Some(ticket));
                let count = Count { initial, ticket, ..Count::plain(NumberChange::Add(1)) };
                let target = (key, store.hash(key));
                let changed = store.change_number(&store.participate(), target, &count, 1000).unwrap();
                assert!(changed == Changed::Absent || matches!(changed, Changed::Done(number) if number.is_new));
                changed != Changed::Absent
            },
            &|store, key, ticket| {
                let create = Some(Creation { ticket: Some(ticket), ..Ttl::Never.into() });
                let (lookup, target) = (MetaFlagsLookup { create, counts: false }, (key, store.hash(key)));
                let outcome = store.update_meta_flags(&store.participate(), target, lookup, 1000, |_| None).unwrap();
                assert!(!matches!(outcome, MetaFlagsOutcome::Found { .. }), "the key is absent");
                matches!(outcome, MetaFlagsOutcome::Created { .. })
            },
            // The two above, with an entry that has expired already.
            &|store, key, ticket| {
                let (initial, ticket) = (Some((7, Ttl::Expired)), Some(ticket));
                let count = Count { initial, ticket, ..Count::plain(NumberChange::Add(1)) };
                let target = (key, store.hash(key));
                store.change_number(&store.participate(), target, &count, 1000).unwrap() != Changed::Absent
            },
            &|store, key, ticket| {
                let create = Some(Creation { ticket: Some(ticket), ..Ttl::Expired.into() });
                let (lookup, target) = (MetaFlagsLookup { create, counts: false }, (key, store.hash(key)));
                let outcome = store.update_meta_flags(&store.participate(), target, lookup, 1000, |_| None).unwrap();
                matches!(outcome, MetaFlagsOutcome::Created { .. })
            },
        ];
        for (number, create) in creations.into_iter().enumerate() {
            let changes: [(&Change, bool); 4] = [
                (&|_, _| (), true),
                (&|store, _| set(store, b"another"), true),
                (&|store, key| (set(store, key), delete(store, key)).0, false),
                (&|store, _| store.flush(1000, 0), false),
            ];
            for (change, is_created) in changes {
                let store = Store::new(Options { memory_bytes: 4 << 20, ..Options::default() }).unwrap();
                let (key, participant) = (&b"key"[..], store.participate());
                let hash = store.hash(key);
                let ticket = store.begin_load(key, hash, 1000).unwrap().expect("the key is absent");
                change(&store, key);
                assert_eq!(create(&store, key, ticket), is_created, "creation {number}");
                let is_there = store.get(&participant, key, hash, 1000).is_some();
                assert_eq!(is_there, is_created && ![1, 4, 5].contains(&number), "creation {number}");
                store.end_load(hash, ticket);
                store.verify(&participant, 1000);
            }
        }
    }

    #[test]
    fn a_present_key_is_not_loaded() {
        let store = Store::new(Options { memory_bytes: 4 << 20, ..Options::default() }).unwrap();
        write(&store, b"key", b"value", Mode::Set);
        let hash = store.hash(b"key");
        assert_eq!(store.begin_load(b"key", hash, 1000), Ok(None));
        assert_eq!(store.delete_if(&store.participate(), b"key", hash, 1, 1000), Changed::Exists);
        assert_eq!(store.begin_load(b"", hash, 1000), Err(Error::KeyLength { length: 0 }));
        // A ticket that ended is valid no more.
        store.delete(&store.participate(), b"key", hash, 1000);
        let ticket = store.begin_load(b"key", hash, 1000).unwrap().expect("it was deleted");
        store.end_load(hash, ticket);
        assert_eq!(write(&store, b"key", b"late", Mode::Load(ticket)), Stored::NotStored);
    }
}
