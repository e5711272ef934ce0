//! Issued CAS tokens over a restart: what a stop keeps of them, and how the store of the next start resumes them.
//!
//! ```text
//! stop    table of issued tokens, seed of the hash, base, limit (the token of the highest sequence)
//! start   empty store         the same seed; base above the limit      an unchanged value keeps its token, and each
//!                                                                       token that is new is higher than all before
//!         store of an image   seed, base and sequences are the same    as without a restart
//! ```
//! A resumed token is valid for the value that the lower tier kept: every change of the key in the new store removes
//! the entry, as in the old one. It cannot be valid for a later value, because no token of the new store is as low.

use crate::hash::KeyHash;
use crate::store::{Store, token_base};
use crate::token_table::TokenTable;

/// A new base is above the limit by less than this, and random: files that are both restored from an earlier time are
/// accepted, and tokens of the two runs from it should not be equal.
const BASE_GAP: u64 = 1 << 22;
/// Bits of the highest base. It is above those of seeds, so that restarts do not exhaust the bases, and below what a
/// client may keep in a floating-point number.
const MAX_BASE_BITS: u32 = 52;

/// Tokens above the highest sequence that a store may issue after its tokens were kept: where changes are not refused
/// then. More than changes of one bucket in hours, and little beside the bases that there are.
const LATER_TOKENS: u64 = 1 << 34;
/// The base of tokens after which the store may have changed: that of none.
const NO_BASE: u64 = 0;

/// Issued tokens of a store, for the store of the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTokens {
    /// Seed of the hash of keys.
    pub seed: u64,
    /// The token of sequence 0; 0 if the store may have changed since: no image of it has the values of these tokens.
    pub base: u64,
    /// The highest token that the store issues is not above this one; except for tokens that clients gave.
    pub limit: u64,
    /// The hash of a key, and its token.
    pub tokens: Vec<(u64, u64)>,
}

impl Store {
    /// The issued tokens that are retained; `None` if the store retains none, or neither it nor an earlier one has
    /// issued any, and changes are refused by now. Without a token the base and the limit are kept: clients may have
    /// tokens of values that are gone. Where changes are not refused the limit is above the tokens of later ones, and
    /// the lower tier must forget what they change: then the tokens are for the store of a start without an image.
    pub fn kept_tokens(&self) -> Option<KeptTokens> {
        let mut tokens = self.issued_tokens.get()?.entries();
        let is_over = self.domain.has_refused_changes() && !self.has_changes();
        let highest = self.index.highest_sequence();
        let has_own_base = self.token_base == token_base(self.options.seed);
        if is_over && tokens.is_empty() && highest == 0 && has_own_base && self.earlier_limit == 0 {
            return None;
        }
        let limit = self.token(highest);
        // Values with higher tokens, which clients gave, are not in the lower tier.
        tokens.retain(|(_, token)| *token <= limit);
        let (base, later) = if is_over { (self.token_base, 0) } else { (NO_BASE, LATER_TOKENS) };
        let limit = limit.max(self.earlier_limit).saturating_add(later);
        Some(KeptTokens { seed: self.options.seed, base, limit, tokens })
    }

    /// Keeps the limit of an earlier store whose tokens this one does not adopt, for a later one that may.
    pub fn keep_limit(&mut self, limit: u64) {
        self.earlier_limit = limit;
    }

    /// Resumes tokens in a store that is empty, and gets their seed and a base above all of them. False, and nothing
    /// changes, if no base is left below the limit of bases: then the store starts with tokens of its own.
    ///
    /// # Panics
    /// If the store is not empty, or retains no tokens.
    pub fn adopt_tokens(&mut self, kept: &KeptTokens) -> bool {
        assert!(self.counters.items() == 0 && self.index.highest_sequence() == 0, "the store is in use");
        let base = kept.limit.saturating_add(1 + self.token_base % BASE_GAP);
        if base >> MAX_BASE_BITS > 0 {
            return false;
        }
        (self.options.seed, self.hash, self.token_base) = (kept.seed, KeyHash::new(kept.seed), base);
        self.retained_tokens().fill(&kept.tokens);
        true
    }

    /// Resumes tokens in a store that was loaded from an image of the same stop. False, and nothing changes, if they
    /// are not of this store.
    ///
    /// # Panics
    /// If the store retains no tokens.
    pub fn continue_tokens(&self, kept: &KeptTokens) -> bool {
        let is_it = (self.options.seed, self.token_base) == (kept.seed, kept.base);
        // A store without items may be a new one with a seed that its owner gave.
        let is_its = is_it && self.counters.items() > 0;
        if is_its {
            self.retained_tokens().fill(&kept.tokens);
        }
        is_its
    }

    fn retained_tokens(&self) -> &TokenTable {
        self.issued_tokens.get().expect("the store retains tokens")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::store::TOKEN_BASE_BITS;
    use crate::{Item, LowerCopy, LowerTier, Mode, Options, Ttl, Write};

    /// A lower tier that takes nothing.
    struct NoCopies;

    impl LowerTier for NoCopies {
        fn demote(&self, _item: &Item<'_>, _now_ms: u64) -> bool {
            false
        }

        fn settle(&self, _now_ms: u64) {}

        fn is_current(&self, _copy: LowerCopy) -> bool {
            false
        }

        fn remove(&self, _key: &[u8]) -> bool {
            false
        }

        fn flush(&self, advance: &mut dyn FnMut()) {
            advance();
        }
    }

    fn store(seed: u64) -> Store {
        let store = Store::new(Options { memory_bytes: 4 << 20, seed, ..Options::default() }).unwrap();
        store.retain_tokens(1 << 16);
        store.set_lower_tier(Box::new(NoCopies));
        store
    }

    fn set(store: &Store, key: &[u8], value: &[u8]) {
        let hash = store.hash(key);
        let write = Write { key, hash, value, flags: 0.into(), ttl: Ttl::Never, mode: Mode::Set, token: None };
        store.write(&store.participate(), &write, 1).unwrap();
    }

    fn issue(store: &Store, key: &[u8]) -> u64 {
        store.get(&store.participate(), key, store.hash(key), 1).expect("it was set").issue_token()
    }

    /// A store that has issued tokens of 50 keys, and these.
    fn issued(seed: u64) -> (Store, Vec<(Vec<u8>, u64)>) {
        let store = store(seed);
        for round in 0..40_u64 {
            (0..100_u64).for_each(|key| set(&store, &key.to_le_bytes(), &round.to_le_bytes()));
        }
        let key = |number: u64| number.to_le_bytes().to_vec();
        let issued = (0..50).map(|number| (key(number), issue(&store, &key(number)))).collect();
        (store, issued)
    }

    /// As at a stop.
    fn kept_at_end(store: &Store) -> KeptTokens {
        store.refuse_changes();
        store.kept_tokens().expect("tokens were issued")
    }

    #[test]
    fn an_empty_store_adopts_kept_tokens() {
        let unused = store(1);
        unused.refuse_changes();
        assert_eq!(unused.kept_tokens(), None, "no token can have been issued");
        let (old, issued) = issued(1);
        let kept = kept_at_end(&old);
        assert_eq!(kept.tokens.len(), issued.len());
        let mut new = store(2);
        let hash_before = new.hash(b"key");
        assert!(new.adopt_tokens(&kept));
        assert_eq!((new.options().seed, new.hash(b"key")), (1, old.hash(b"key")));
        assert_ne!(hash_before, new.hash(b"key"));
        assert!(issued.iter().all(|(key, token)| new.is_issued(new.hash(key), *token)));
        // A write of the key ends its token.
        for (key, token) in &issued {
            set(&new, key, b"new");
            assert!(!new.is_issued(new.hash(key), *token));
        }
    }

    #[test]
    fn new_tokens_exceed_all_before_the_restart() {
        let (old, _) = issued(1);
        let mut highest = 0;
        for key in 0..100_u64 {
            highest = highest.max(issue(&old, &key.to_le_bytes()));
        }
        let kept = kept_at_end(&old);
        // Tokens that no stop knows.
        let beside = old.get(&old.participate(), &7_u64.to_le_bytes(), old.hash(&7_u64.to_le_bytes()), 1).unwrap();
        assert!(kept.limit >= highest && kept.limit >= beside.token());
        let mut new = store(2);
        assert!(new.adopt_tokens(&kept));
        assert!(new.invalid_token() > kept.limit);
        (0..100_u64).for_each(|key| set(&new, &key.to_le_bytes(), b"value"));
        assert!((0..100_u64).all(|key| issue(&new, &key.to_le_bytes()) > kept.limit));
        // And again.
        let again = kept_at_end(&new);
        assert!(again.base > kept.limit && again.limit > again.base);
    }

    /// As after `Cache::close_flash`.
    #[test]
    fn changes_may_follow_the_kept_tokens() {
        let (used, issued) = issued(1);
        for (store, key) in [(used, &issued[0].0[..]), (store(2), b"key")] {
            let kept = store.kept_tokens().expect("a token may be issued later");
            (0..100).for_each(|_| set(&store, key, b"later"));
            assert!(issue(&store, key) <= kept.limit);
            assert!(!store.continue_tokens(&kept), "an image has later values");
            let mut next = self::store(3);
            assert!(next.adopt_tokens(&kept));
            assert!(kept.tokens.iter().all(|(hash, token)| next.is_issued(*hash, *token)));
            assert_eq!(kept_at_end(&store).limit, store.token(store.index.highest_sequence()));
        }
    }

    #[test]
    fn exhausted_bases_are_not_adopted() {
        let kept = |limit| KeptTokens { seed: 5, base: 1, limit, tokens: vec![(1, 1)] };
        let last = (1 << MAX_BASE_BITS) - 1;
        let mut new = store(2);
        let base = new.invalid_token();
        let gap = 1 + base % BASE_GAP;
        for limit in [u64::MAX, last, last - gap + 1] {
            assert!(!new.adopt_tokens(&kept(limit)), "{limit}");
            assert_eq!((new.options().seed, new.invalid_token()), (2, base));
            assert!(!new.is_issued(1, 1));
        }
        assert!(new.adopt_tokens(&kept(last - gap)) && new.invalid_token() == last);
    }

    /// As of a store with the highest base of its own, or after hundreds of restarts.
    #[test]
    fn bases_beyond_those_of_seeds_are_adopted() {
        let mut limit = (1 << TOKEN_BASE_BITS) - 1;
        for seed in 2..100 {
            let mut new = store(seed);
            assert!(new.adopt_tokens(&KeptTokens { seed: 1, base: 1, limit, tokens: vec![(1, 1)] }), "{limit}");
            assert!(new.is_issued(1, 1) && new.invalid_token() > limit);
            limit = kept_at_end(&new).limit;
        }
    }

    #[test]
    fn tokens_that_clients_gave_are_not_kept() {
        let (store, issued) = issued(1);
        let (key, hash) = (b"own", store.hash(b"own"));
        let token = Some(u64::MAX - 1);
        let write = Write { key, hash, value: b"v", flags: 0.into(), ttl: Ttl::Never, mode: Mode::Set, token };
        store.write(&store.participate(), &write, 1).unwrap();
        assert_eq!(issue(&store, key), u64::MAX - 1);
        let kept = kept_at_end(&store);
        assert!(kept.tokens.len() == issued.len() && kept.limit < u64::MAX - 1);
    }

    /// As over a start whose memory file began cold.
    #[test]
    fn limits_outlive_stores_that_adopt_nothing() {
        let limit = kept_at_end(&issued(1).0).limit.max(1 << TOKEN_BASE_BITS);
        for changes in [0, 3] {
            let mut between = store(2);
            between.keep_limit(limit);
            (0..changes).for_each(|_| set(&between, b"key", b"value"));
            let kept = kept_at_end(&between);
            let mut new = store(3);
            assert!(new.adopt_tokens(&kept) && new.invalid_token() > limit);
        }
    }

    #[test]
    fn only_its_own_tokens_are_continued() {
        let (store, issued) = issued(1);
        let kept = kept_at_end(&store);
        store.issued_tokens.get().unwrap().forget(store.hash(&issued[0].0));
        assert!(!store.is_issued(store.hash(&issued[0].0), issued[0].1));
        for foreign in [KeptTokens { seed: 2, ..kept.clone() }, KeptTokens { base: kept.base + 1, ..kept.clone() }] {
            assert!(!store.continue_tokens(&foreign));
        }
        assert!(!self::store(1).continue_tokens(&kept), "an empty store with the same seed");
        assert!(store.continue_tokens(&kept));
        assert!(store.is_issued(store.hash(&issued[0].0), issued[0].1));
    }
}
