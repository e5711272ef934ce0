use ebbtide::memcached::{Cache, Item, Lookup, Mode, Stored};

use super::audit::{Audit, HEAD, Joined, LastAnswer};
use crate::bench::OtherWrites;
use crate::keys::KeyBuffer;
use crate::store::{ValueWriter, ttl_of};
use crate::trace::{Op, Request};

/// The longest number: 2^64 - 1 has 20 digits.
const COUNTER_DIGITS: usize = 20;

/// Counts of one thread of a replay.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReplayCounts {
    pub(super) requests: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    /// Bytes of keys and values of all gets, and of the gets that missed.
    pub(super) get_bytes: u64,
    pub(super) missed_bytes: u64,
    pub(super) deletes: u64,
    pub(super) sets: u64,
    /// Sets after a miss, which are no requests.
    pub(super) fills: u64,
    pub(super) writes: OtherWrites,
    /// Writes that the cache accepted, fills included.
    pub(super) stored: u64,
    /// Writes that the cache refused: too large, or no memory.
    pub(super) store_failures: u64,
    /// Requests whose key could not have the length of the trace.
    pub(super) keys_resized: u64,
}

impl ReplayCounts {
    pub(super) fn add(&mut self, other: &ReplayCounts) {
        self.requests += other.requests;
        self.hits += other.hits;
        self.misses += other.misses;
        self.get_bytes += other.get_bytes;
        self.missed_bytes += other.missed_bytes;
        self.deletes += other.deletes;
        self.sets += other.sets;
        self.fills += other.fills;
        self.writes.add(other.writes);
        self.stored += other.stored;
        self.store_failures += other.store_failures;
        self.keys_resized += other.keys_resized;
    }

    /// Counts a request of any kind but a get.
    fn count_write(&mut self, op: Op) {
        let count = match op {
            Op::Get | Op::Gets => return,
            Op::Set => &mut self.sets,
            Op::Add => &mut self.writes.adds,
            Op::Replace | Op::Cas => &mut self.writes.replaces,
            Op::Append | Op::Prepend => &mut self.writes.appends,
            Op::Delete => &mut self.deletes,
            Op::Incr | Op::Decr => &mut self.writes.counts,
        };
        *count += 1;
    }
}

/// Plays requests against the cache. One per thread.
pub(super) struct Player {
    cache: Cache,
    key: KeyBuffer,
    values: ValueWriter,
    /// Whether a miss is followed by a set.
    fills: bool,
    pub(super) counts: ReplayCounts,
    pub(super) audit: Option<Audit>,
}

impl Player {
    pub(super) fn new(cache: Cache, audit: bool, fills: bool) -> Self {
        Self {
            cache,
            key: KeyBuffer::default(),
            values: ValueWriter::default(),
            fills,
            counts: ReplayCounts::default(),
            audit: audit.then(Audit::default),
        }
    }

    /// Plays one request; `now` is the cache's time in milliseconds.
    pub(super) fn play(&mut self, request: &Request, now: u64) {
        let length = self.key.write(request.key, request.key_size).len();
        self.counts.requests += 1;
        self.counts.keys_resized += u64::from(length != request.key_size as usize);
        self.counts.count_write(request.op);
        match request.op {
            Op::Get | Op::Gets => self.get(request, now),
            Op::Set => self.store(request, Mode::Set, now),
            Op::Add => self.store(request, Mode::Add, now),
            Op::Replace => self.store(request, Mode::Replace, now),
            Op::Append => self.store(request, Mode::Append, now),
            Op::Prepend => self.store(request, Mode::Prepend, now),
            Op::Cas => match self.token() {
                Some(token) => self.store(request, Mode::Cas(token), now),
                None => self.counts.writes.not_stored += 1,
            },
            Op::Delete => {
                self.cache.delete(self.key.as_bytes());
                let id = self.id(request);
                self.audited(|audit| audit.removed(id));
            }
            Op::Incr | Op::Decr => self.count(request, now),
        }
    }

    fn get(&mut self, request: &Request, now: u64) {
        let id = self.id(request);
        let bytes = u64::from(id.1) + u64::from(request.value_size);
        self.counts.get_bytes += bytes;
        match self.cache.get(self.key.as_bytes()) {
            Lookup::Hit(item) => {
                self.counts.hits += 1;
                if let Some(audit) = &mut self.audit {
                    let mut head = [0; HEAD];
                    let known = copy_head(&item, &mut head);
                    let answer = LastAnswer { length: item.len(), head: &head[..known] };
                    audit.hit(id, &answer, now);
                }
                return;
            }
            Lookup::Miss => {
                self.counts.misses += 1;
                self.counts.missed_bytes += bytes;
            }
        }
        self.audited(|audit| audit.missed(id, now));
        if self.fills {
            self.counts.fills += 1;
            self.store(request, Mode::Set, now);
        }
    }

    fn store(&mut self, request: &Request, mode: Mode, now: u64) {
        let id = self.id(request);
        let head = self.audit.as_mut().map(|audit| audit.next_head(request.key));
        let head = head.as_ref().map_or(&[][..], |head| &head[..]);
        let outcome = self.values.store(
            &self.cache,
            self.key.as_bytes(),
            head,
            request.value_size as usize,
            ttl_of(request.ttl_seconds),
            mode,
        );
        match outcome {
            Ok(Stored::Stored) => self.counts.stored += 1,
            Ok(_) => self.counts.writes.not_stored += 1,
            Err(_) => self.counts.store_failures += 1,
        }
        let Some(audit) = &mut self.audit else {
            return;
        };
        match (outcome, mode) {
            (Ok(Stored::Stored), Mode::Append) => audit.joined(id, request, Joined::Behind),
            (Ok(Stored::Stored), Mode::Prepend) => audit.joined(id, request, Joined::Before),
            (Ok(Stored::Stored), _) => audit.written(id, request, now),
            (Err(_), mode) if !mode.extends() => audit.removed(id),
            // An add of a present key, or a failed append: the key keeps its value.
            (Ok(_) | Err(_), _) => {}
        }
    }

    fn token(&self) -> Option<u64> {
        match self.cache.get_with_token(self.key.as_bytes()) {
            Lookup::Hit(item) => Some(item.cas()),
            Lookup::Miss => None,
        }
    }

    fn count(&mut self, request: &Request, now: u64) {
        let id = self.id(request);
        let key = self.key.as_bytes();
        let number = match request.op {
            Op::Decr => self.cache.decrement(key, 1),
            _ => self.cache.increment(key, 1),
        };
        if let Ok(Some(_)) = number {
            self.audited(|audit| audit.counted(id));
            return;
        }
        self.counts.writes.not_stored += 1;
        self.counts.fills += 1;
        let digits = [b'0'; COUNTER_DIGITS];
        let width = (request.value_size as usize).clamp(1, COUNTER_DIGITS);
        let stored = self.cache.insert(key, &digits[..width]).ttl(ttl_of(request.ttl_seconds)).apply();
        match stored {
            Ok(_) => self.counts.stored += 1,
            Err(_) => self.counts.store_failures += 1,
        }
        self.audited(|audit| match stored {
            Ok(_) => {
                audit.written(id, request, now);
                audit.counted(id);
            }
            Err(_) => audit.removed(id),
        });
    }

    /// Identity of the key in the cache: its number and its length.
    fn id(&self, request: &Request) -> (u64, u16) {
        (request.key, self.key.as_bytes().len() as u16)
    }

    fn audited(&mut self, tell: impl FnOnce(&mut Audit)) {
        if let Some(audit) = &mut self.audit {
            tell(audit);
        }
    }
}

/// Copies the first bytes of a value; returns how many it has, up to [`HEAD`].
fn copy_head(item: &Item<'_>, head: &mut [u8; HEAD]) -> usize {
    let mut known = 0;
    for slice in item.slices() {
        let take = slice.len().min(HEAD - known);
        head[known..known + take].copy_from_slice(&slice[..take]);
        known += take;
        if known == HEAD {
            break;
        }
    }
    known
}
