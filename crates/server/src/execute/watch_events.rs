//! Reports commands to watchers and counts them by key prefix. Without either, a command costs one load for each.

use std::time::Duration;

use ebbtide::memcached::{Changed, Error, Mode, Stored, Ttl};
use ebbtide_protocol::{Watched, reply};

use super::{Executor, Next, OptionalReply};
use crate::watch::{DeleteCommand, FetchDetail, FetchResult, FetchVerb, StoreEvent, StoreStatus, StoreVerb, WatchKind};

impl Executor {
    pub(super) fn watch(&self, watched: Option<Watched>, reply: OptionalReply<'_>) -> Next {
        let refusal = match (self.options().allow_watch, watched) {
            (false, _) => reply::WATCH_NOT_ALLOWED,
            (true, None) => reply::ERROR,
            (true, Some(watched)) => match self.shared.watching.subscribe(watched) {
                Some(watch) => {
                    reply.line(reply::OK);
                    return Next::Watch(watch);
                }
                None => reply::TOO_MANY_WATCHERS,
            },
        };
        reply.line(refusal);
        Next::Continue
    }

    /// True when gets are reported or counted by prefix.
    #[inline]
    pub(super) fn notes_gets(&self) -> bool {
        self.watches_fetches() || self.shared.prefix_stats.is_counting()
    }

    /// Reports and counts a get, with the length of its value or a miss. Call it only if `notes_gets`.
    #[cold]
    pub(super) fn note_get(&self, key: &[u8], hit: Option<usize>) {
        if self.watches_fetches() {
            self.watch_fetch(key, hit, FetchVerb::Get);
        }
        if self.shared.prefix_stats.is_counting() {
            self.shared.prefix_stats.count_get(key, hit.is_some());
        }
    }

    #[inline]
    fn watches_fetches(&self) -> bool {
        self.shared.watching.wants(WatchKind::Fetch)
    }

    #[cold]
    fn watch_fetch(&self, key: &[u8], hit: Option<usize>, verb: FetchVerb) {
        let watching = &self.shared.watching;
        let detail = || {
            watching.wants_details(key).then(|| {
                let ttl = self.pool(key).peek(key).item().and_then(|item| item.ttl());
                FetchDetail { verb, ttl_seconds: ttl_seconds(ttl) }
            })
        };
        watching.fetch(key, self.connection_key.get().id, hit.map_or(FetchResult::Miss, FetchResult::Hit), detail);
    }

    /// Reports whether a command other than a get found its key, if fetches are watched. Looks the length up.
    #[inline]
    pub(super) fn note_keyed(&self, key: &[u8], found: bool, verb: FetchVerb) {
        if self.watches_fetches() {
            let length = self.value_length(key);
            self.watch_fetch(key, found.then_some(length), verb);
        }
    }

    /// Reports and counts a storage command, if that is enabled.
    #[inline]
    pub(super) fn note_store(
        &self,
        key: &[u8],
        mode: Mode,
        ttl: impl FnOnce() -> Ttl,
        length: usize,
        outcome: Result<Stored, &Error>,
    ) {
        if self.shared.prefix_stats.is_counting() {
            self.shared.prefix_stats.count_set(key);
        }
        if self.shared.watching.wants(WatchKind::Mutation) {
            self.watch_store(key, mode, ttl(), length, outcome);
        }
    }

    #[cold]
    fn watch_store(&self, key: &[u8], mode: Mode, ttl: Ttl, length: usize, outcome: Result<Stored, &Error>) {
        let command = match mode {
            Mode::Set => StoreVerb::Set,
            Mode::Add => StoreVerb::Add,
            Mode::Replace => StoreVerb::Replace,
            Mode::Append | Mode::AppendIf(_) => StoreVerb::Append,
            Mode::Prepend | Mode::PrependIf(_) => StoreVerb::Prepend,
            Mode::Cas(_) | Mode::CasOrStale(_) => StoreVerb::Cas,
            Mode::Promote { .. } | Mode::Load(_) | Mode::Reload(_) | Mode::AddSince(_) => {
                panic!("no client promotes or loads")
            }
        };
        let status = match outcome {
            Ok(Stored::Stored) => StoreStatus::Stored,
            Ok(Stored::NotStored) => StoreStatus::NotStored,
            Ok(Stored::Exists) => StoreStatus::Exists,
            Ok(Stored::NotFound) => StoreStatus::NotFound,
            Err(Error::Structured) => StoreStatus::NotStored,
            Err(Error::ValueTooLarge { .. }) => StoreStatus::TooLarge,
            Err(_) => StoreStatus::NoMemory,
        };
        // An append keeps the life; the line shows the length of the whole value.
        let joined = match (command, status) {
            (StoreVerb::Append | StoreVerb::Prepend, StoreStatus::Stored) => {
                self.pool(key).peek(key).item().map(|item| (item.len(), item.ttl()))
            }
            _ => None,
        };
        let (length, life) = joined.unwrap_or_else(|| (length, self.cache.ttl_duration(ttl)));
        let ttl_seconds = ttl_seconds(life);
        self.shared.watching.store(
            key,
            self.connection_key.get().id,
            &StoreEvent { command, status, ttl_seconds, length },
        );
    }

    /// Reports and counts an md that leaves a tombstone. An md that only marks the item as stale is reported as a
    /// fetch.
    pub(super) fn note_tombstone(&self, key: &[u8], done: Changed<()>, is_stale: bool) {
        let verb = if is_stale { FetchVerb::Touch } else { FetchVerb::Delete };
        self.note_keyed(key, done != Changed::Absent, verb);
        if is_stale {
            return;
        }
        self.counters().delete_hits.add(u64::from(done == Changed::Done(())));
        if self.shared.prefix_stats.is_counting() {
            self.shared.prefix_stats.count_delete(key);
        }
        let watching = &self.shared.watching;
        if done == Changed::Done(()) && watching.wants(WatchKind::Deletion) {
            watching.delete(key, DeleteCommand::MetaDelete, 0);
        }
    }

    /// Deletes a key, if it has the expected CAS token, and reports that. `None` when flash must be read, or memory
    /// waited for, first: nothing is done.
    pub(super) fn delete_noted(
        &self,
        key: &[u8],
        expected: Option<u64>,
        command: DeleteCommand,
    ) -> Option<Changed<()>> {
        self.note_delete(key, command, || match expected {
            // Without memory for the value of flash nothing is deleted.
            Some(token) => {
                let deleted = self.park_if_waiting(self.pool(key).delete_if(key, token))?;
                Some(deleted.unwrap_or(Changed::Exists))
            }
            None => self.delete_known_key(key).map(|known| if known { Changed::Done(()) } else { Changed::Absent }),
        })
    }

    /// The length of a key's value; 0 without one.
    fn value_length(&self, key: &[u8]) -> usize {
        let lookup = match self.compact(key) {
            Some(pool) => pool.look_up(key),
            None => self.pool(key).peek(key),
        };
        lookup.item().map_or(0, |item| item.len())
    }

    /// Executes a delete and reports it, unless the delete must wait.
    pub(super) fn note_delete(
        &self,
        key: &[u8],
        command: DeleteCommand,
        delete: impl FnOnce() -> Option<Changed<()>>,
    ) -> Option<Changed<()>> {
        let watching = &self.shared.watching;
        let is_watched = watching.wants(WatchKind::Deletion) || watching.wants(WatchKind::Fetch);
        let length = if is_watched { self.value_length(key) } else { 0 };
        let deleted = delete()?;
        if self.shared.prefix_stats.is_counting() {
            self.shared.prefix_stats.count_delete(key);
        }
        if is_watched && watching.wants(WatchKind::Fetch) {
            self.watch_fetch(key, (deleted != Changed::Absent).then_some(length), FetchVerb::Delete);
        }
        if is_watched && deleted == Changed::Done(()) && watching.wants(WatchKind::Deletion) {
            watching.delete(key, command, length);
        }
        Some(deleted)
    }
}

/// A TTL in whole seconds, the last one full; zero for never.
fn ttl_seconds(ttl: Option<Duration>) -> u32 {
    u32::try_from(ttl.unwrap_or_default().as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}
