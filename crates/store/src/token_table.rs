//! CAS tokens that were issued and outlive the sequence of their bucket.
//!
//! A token is the sequence of a bucket, which every change of a neighbour changes. A value that goes to flash and back
//! meets a bucket that has changed many times. So an issued token is kept here until the value changes:
//!
//! ```text
//! set 0   | entries in use | mutex: (hash of the key, token) x 8, the oldest is replaced |
//! set 1   | ...
//! ```
//! Invariant: while the hash of a key is listed, its value has not changed since the token was issued. Entries are
//! added and removed under the bucket locks of the key. Evictions, relocations and promotions keep them, because they
//! change no value. An entry whose key is absent matches nothing: the write that stores the key again removes it. In a
//! full set the oldest entry is replaced; its token may then be refused, as without this table.
//!
//! A write of a key without an issued token reads one word.

use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, lock};

/// Entries of a set.
const SET_ENTRIES: usize = 8;

/// No token is 0.
const FREE: Entry = Entry { hash: 0, token: 0 };

/// A table of issued tokens.
pub(crate) struct TokenTable {
    sets: Box<[Set]>,
    /// Tokens refused for a value that was promoted and has not changed since: they may have been valid.
    unknown: AtomicU64,
}

struct Set {
    /// Entries in use. Relaxed: entries of a key are added and read under the locks of its buckets.
    used: AtomicU32,
    entries: Mutex<Entries>,
}

struct Entries {
    all: [Entry; SET_ENTRIES],
    /// The oldest entry, if none is free.
    next: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    hash: u64,
    token: u64,
}

impl TokenTable {
    /// A table of at most `bytes` bytes, at least one set.
    pub fn new(bytes: u64) -> Self {
        let sets = (bytes as usize / size_of::<Set>()).max(1);
        let set =
            || Set { used: AtomicU32::new(0), entries: Mutex::new(Entries { all: [FREE; SET_ENTRIES], next: 0 }) };
        Self { sets: (0..sets).map(|_| set()).collect(), unknown: AtomicU64::new(0) }
    }

    pub fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.sets) as u64
    }

    pub fn note_unknown(&self) {
        self.unknown.fetch_add(1, Ordering::Relaxed);
    }

    pub fn unknown(&self) -> u64 {
        self.unknown.load(Ordering::Relaxed)
    }

    fn set(&self, hash: u64) -> &Set {
        &self.sets[((u128::from(hash) * self.sets.len() as u128) >> u64::BITS) as usize]
    }

    /// The token that was issued for the value of this key.
    pub fn token_of(&self, hash: u64) -> Option<u64> {
        let set = self.set(hash);
        if set.used.load(Ordering::Relaxed) == 0 {
            return None;
        }
        lock(&set.entries).all.iter().find(|entry| entry.hash == hash && **entry != FREE).map(|entry| entry.token)
    }

    /// Keeps a token for the value of a key, whose buckets are locked. Returns the token that is kept: an earlier one
    /// stays.
    pub fn insert(&self, hash: u64, token: u64) -> u64 {
        let set = self.set(hash);
        let entries = &mut *lock(&set.entries);
        if let Some(entry) = entries.all.iter().find(|entry| entry.hash == hash && **entry != FREE) {
            return entry.token;
        }
        let place = entries.all.iter().position(|entry| *entry == FREE).unwrap_or_else(|| {
            entries.next = (entries.next + 1) % SET_ENTRIES;
            entries.next
        });
        entries.all[place] = Entry { hash, token };
        set.count(entries);
        token
    }

    /// The hash of each key that has a token, and the token.
    #[cfg(not(loom))]
    pub fn entries(&self) -> Vec<(u64, u64)> {
        let of_set = |set: &Set| lock(&set.entries).all;
        let entries = self.sets.iter().filter(|set| set.used.load(Ordering::Relaxed) > 0).flat_map(of_set);
        entries.filter(|entry| *entry != FREE).map(|entry| (entry.hash, entry.token)).collect()
    }

    /// Fills a table of a store that no thread uses yet.
    #[cfg(not(loom))]
    pub fn fill(&self, entries: &[(u64, u64)]) {
        entries.iter().for_each(|(hash, token)| _ = self.insert(*hash, *token));
    }

    /// The value of a key, whose buckets are locked, changes.
    #[inline]
    pub fn forget(&self, hash: u64) {
        let set = self.set(hash);
        if set.used.load(Ordering::Relaxed) > 0 {
            set.forget(hash);
        }
    }
}

impl Set {
    #[cold]
    fn forget(&self, hash: u64) {
        let entries = &mut *lock(&self.entries);
        entries.all.iter_mut().filter(|entry| entry.hash == hash).for_each(|entry| *entry = FREE);
        self.count(entries);
    }

    fn count(&self, entries: &Entries) {
        let used = entries.all.iter().filter(|entry| **entry != FREE).count();
        self.used.store(used as u32, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_kept_until_forgotten() {
        let tokens = TokenTable::new(1 << 16);
        assert_eq!((tokens.token_of(7), tokens.insert(7, 100), tokens.token_of(7)), (None, 100, Some(100)));
        assert_eq!((tokens.insert(7, 200), tokens.token_of(7)), (100, Some(100)), "the first one stays");
        tokens.forget(8);
        assert_eq!((tokens.token_of(7), tokens.token_of(8)), (Some(100), None));
        tokens.forget(7);
        assert_eq!((tokens.token_of(7), tokens.insert(7, 300)), (None, 300));
        // A hash of 0 is not special.
        assert_eq!((tokens.token_of(0), tokens.insert(0, 5), tokens.token_of(0)), (None, 5, Some(5)));
    }

    #[test]
    fn a_full_token_table_replaces_the_oldest() {
        let tokens = TokenTable::new(0);
        assert!(tokens.memory_bytes() <= 200);
        (0..100).for_each(|hash| _ = tokens.insert(hash, hash + 1));
        let kept: Vec<u64> = (0..100).filter(|hash| tokens.token_of(*hash).is_some()).collect();
        assert_eq!(kept.len(), SET_ENTRIES);
        assert!(kept.iter().all(|hash| *hash >= 100 - 2 * SET_ENTRIES as u64), "{kept:?}");
        assert!(TokenTable::new(1 << 20).memory_bytes() <= 1 << 20);
    }
}
