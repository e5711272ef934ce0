//! Models of the concurrent protocols, which loom runs through all interleavings (up to a bound of preemptions) and all
//! stale values that the orderings allow. `docs/concurrency.md` says what they cover.
//!
//! The store of a model has segments of 64 bytes and buckets of two slots. The operations of all threads are recorded
//! in an `OperationLog`, outside of loom, and judged at the end: some order of the operations must explain every
//! answer.

mod allocations;
mod changes;
mod growth;
mod handles;
mod index;
mod issued_tokens;
mod loads;
mod meta_flags;
mod operation_log;
mod ops;
mod readers;
mod reloads;
mod segments;
mod structured;

pub(crate) use operation_log::{Did, OperationLog};

use crate::budget::{MemoryLayout, PageRule};
use crate::engine_memory::EngineMemory;
use crate::epoch::{Domain, Participant};
use crate::evict::{History, Policy};
use crate::frames::Frames;
use crate::index::Split;
use crate::options::Options;
use crate::store::Store;
use crate::ttl::Ttl;
use crate::{
    Change, Changed, Count, Extension, MetaFlags, MetaFlagsChange, MetaFlagsLookup, MetaFlagsOutcome, Mode, Stored,
    Write,
};
use std::sync::Arc;

/// Runs a model with at most `preemptions` preemptions in an execution.
pub(crate) fn model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 20_000;
    builder.check(run);
}

/// A store of `segments` segments of 64 bytes, and of `2^level` buckets that can become twice as many.
pub(crate) fn store(segments: u32, level: u32) -> Arc<Store> {
    let options = Options {
        memory_bytes: 1 << 20,
        value_bytes_max: 256,
        policy: Policy::Merge,
        merge_run: 2,
        writers: 1,
        ..Options::default()
    };
    let layout = MemoryLayout::tiny(segments, level, 2 << level);
    let memory = EngineMemory {
        frames: Frames::reserve(64 * segments as usize).expect("a model needs no mapping"),
        domain: Domain::new(),
    };
    Arc::new(
        Store::with_layout(options, layout, History::none(), &memory, PageRule::Huge)
            .expect("a model needs no mapping"),
    )
}

/// A client of the calling thread: operations on one key at one time.
pub(crate) struct Client<'s> {
    pub store: &'s Store,
    pub participant: Participant,
    pub now_ms: u64,
}

impl<'s> Client<'s> {
    pub fn new(store: &'s Store) -> Self {
        Self { store, participant: store.participate(), now_ms: 1000 }
    }

    pub fn write(&self, key: &[u8], value: u64, mode: Mode) -> Stored {
        self.write_wide(key, value, 0, mode)
    }

    /// As `write`, padded with zeros to this width: a segment has 64 bytes.
    pub fn write_wide(&self, key: &[u8], value: u64, width: usize, mode: Mode) -> Stored {
        let value = format!("{value:0width$}");
        let write = Write {
            key,
            hash: self.store.hash(key),
            value: value.as_bytes(),
            flags: 0.into(),
            ttl: Ttl::Never,
            mode,
            token: None,
        };
        self.store.write(&self.participant, &write, self.now_ms).expect("the model has free memory").stored
    }

    pub fn set(&self, key: &[u8], value: u64) {
        assert_eq!(self.write(key, value, Mode::Set), Stored::Stored);
    }

    pub fn gets(&self, key: &[u8]) -> Option<(u64, u64)> {
        let item = self.store.get(&self.participant, key, self.store.hash(key), self.now_ms)?;
        let mut value = Vec::new();
        item.copy_to(&mut value);
        let text = String::from_utf8(value).expect("digits");
        Some((text.trim_end().parse().unwrap_or_else(|_| panic!("a torn value: {text:?}")), item.token()))
    }

    pub fn get(&self, key: &[u8]) -> Option<u64> {
        self.gets(key).map(|(value, _)| value)
    }

    /// A meta lookup that wins a stale item or creates an absent one. Returns whether it did.
    pub fn win(&self, key: &[u8]) -> bool {
        let target = (key, self.store.hash(key));
        let lookup = MetaFlagsLookup { create: Some(Ttl::Never.into()), counts: true };
        let mut wins = false;
        let outcome = self.store.update_meta_flags(&self.participant, target, lookup, self.now_ms, |item| {
            let Extension { stale, won, .. } = item.extension();
            wins = stale && !won;
            wins.then_some(MetaFlagsChange { ttl: None, flags: MetaFlags::Won })
        });
        matches!(outcome.expect("the model has free memory"), MetaFlagsOutcome::Created { .. }) || wins
    }

    /// Makes an item stale. False if it is absent.
    pub fn mark_stale(&self, key: &[u8]) -> bool {
        let target = (key, self.store.hash(key));
        let lookup = MetaFlagsLookup { create: None, counts: false };
        let change = MetaFlagsChange { ttl: None, flags: MetaFlags::Stale { token: None } };
        let outcome = self.store.update_meta_flags(&self.participant, target, lookup, self.now_ms, |_| Some(change));
        matches!(outcome.expect("the model has free memory"), MetaFlagsOutcome::Found { .. })
    }

    pub fn extension(&self, key: &[u8]) -> Option<Extension> {
        let item = self.store.peek(&self.participant, key, self.store.hash(key), self.now_ms)?;
        Some(item.extension())
    }

    /// Gives an item another TTL.
    pub fn touch(&self, key: &[u8], seconds: u32) -> bool {
        let touched =
            self.store.touch(&self.participant, key, self.store.hash(key), Ttl::seconds(seconds), self.now_ms);
        touched.expect("the model has free memory")
    }

    pub fn delete(&self, key: &[u8]) -> bool {
        self.store.delete(&self.participant, key, self.store.hash(key), self.now_ms)
    }

    pub fn add_to(&self, key: &[u8], delta: u64) -> Option<u64> {
        let target = (key, self.store.hash(key));
        let count = Count::plain(Change::Add(delta));
        let changed = self.store.change_number(&self.participant, target, &count, self.now_ms);
        match changed.expect("the model has free memory and numbers") {
            Changed::Done(number) => Some(number.value),
            Changed::Absent => None,
            Changed::Exists => unreachable!("no token was given"),
        }
    }

    pub fn verify(&self) {
        self.store.verify(&self.participant, self.now_ms);
    }
}

/// A hash with these candidates at `split`, and at `later` if that is given, and this tag.
pub(crate) fn hash_for(split: Split, buckets: (usize, usize), later: Option<(Split, (usize, usize))>, tag: u64) -> u64 {
    let fits = |split: Split, buckets: (usize, usize), hash| {
        let candidates = split.candidates(hash);
        (candidates.first, candidates.second) == buckets
    };
    (0..1 << 20)
        .map(|low| tag << 52 | low)
        .find(|hash| fits(split, buckets, *hash) && later.is_none_or(|(split, buckets)| fits(split, buckets, *hash)))
        .expect("hashes reach all pairs of buckets")
}
