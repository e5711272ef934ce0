//! Load tickets: a value that was loaded for an absent key is published only if the key has not changed since.
//!
//! ```text
//! begin     lock key   no live item   add the ticket with the generation      unlock
//! change    lock key   void the tickets of the key's hash                     unlock
//! publish   lock key   no live item, the ticket is valid, same generation?    unlock
//! ```
//! Every change of a key is made under the lock of its buckets, and so is the registration of a ticket. So each change
//! after the miss either voids the ticket or, a flush, advances the generation. Maintenance voids nothing: it removes
//! items that a ticket's key did not have. A promotion from the lower tier changes no value, but its key is not absent
//! any more: it voids the tickets of absent keys, and leaves those of reloads.
//!
//! A ticket is found by the hash of its key alone: a change of another key with the same hash voids it, too, which
//! costs a publication and nothing else.

use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// A change takes a lock only if its shard has tickets, so that loads of other keys rarely cost it one. Loom models
/// have one shard.
const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };

const _: () = assert!(SHARDS <= u64::BITS as usize, "a bit for each shard");

/// The loads that have started and not ended.
pub(crate) struct LoadTickets {
    /// A bit for each shard: whether it has tickets. Written under the lock of the shard. One word, so that a change
    /// reads no line of the shards: with many stores that would be a cache miss.
    shards_in_use: AtomicU64,
    shards: Box<[Shard]>,
    next_number: AtomicU64,
}

type Shard = Mutex<Vec<Ticket>>;

struct Ticket {
    number: u64,
    hash: u64,
    generation: u64,
    /// Whether the key was absent.
    is_of_absent: bool,
    is_void: bool,
}

impl LoadTickets {
    /// Bytes of the shards, without tickets.
    pub const SHARD_BYTES: u64 = (SHARDS * size_of::<Shard>()) as u64;

    pub fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Vec::new())).collect();
        Self { shards_in_use: AtomicU64::new(0), shards, next_number: AtomicU64::new(1) }
    }

    #[inline(always)]
    fn number(hash: u64) -> usize {
        (hash >> 32) as usize % SHARDS
    }

    fn shard(&self, hash: u64) -> &Shard {
        &self.shards[Self::number(hash)]
    }

    /// Adds a ticket. The caller holds the bucket locks of the key.
    pub fn add(&self, hash: u64, generation: u64, is_of_absent: bool) -> u64 {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let mut tickets = lock(self.shard(hash));
        tickets.push(Ticket { number, hash, generation, is_of_absent, is_void: false });
        // Relaxed: a change of this key looks at the word under the same bucket locks.
        self.shards_in_use.fetch_or(1 << Self::number(hash), Ordering::Relaxed);
        number
    }

    /// Removes a ticket.
    pub fn remove(&self, hash: u64, number: u64) {
        let mut tickets = lock(self.shard(hash));
        if let Some(position) = tickets.iter().position(|ticket| ticket.number == number) {
            tickets.swap_remove(position);
        }
        if tickets.is_empty() {
            self.shards_in_use.fetch_and(!(1 << Self::number(hash)), Ordering::Relaxed);
        }
    }

    /// A key changes: voids the tickets of its hash. The caller holds the bucket locks of the key.
    #[inline(always)]
    pub fn void(&self, hash: u64) {
        if self.is_in_use(hash) {
            self.void_in_shard(hash, |_| true);
        }
    }

    #[inline(always)]
    fn is_in_use(&self, hash: u64) -> bool {
        self.shards_in_use.load(Ordering::Relaxed) >> Self::number(hash) & 1 == 1
    }

    /// The lower tier's value of a key is promoted: voids the tickets of its hash that were given while it was absent.
    /// The caller holds the bucket locks of the key.
    pub fn void_of_absent(&self, hash: u64) {
        if self.is_in_use(hash) {
            self.void_in_shard(hash, |ticket| ticket.is_of_absent);
        }
    }

    /// Whether nothing has changed since the ticket was added, and no flush has advanced the generation. Exact if
    /// the caller holds the bucket locks of the key.
    pub fn is_valid(&self, hash: u64, number: u64, generation: u64) -> bool {
        let tickets = lock(self.shard(hash));
        let ticket = tickets.iter().find(|ticket| ticket.number == number);
        ticket.is_some_and(|ticket| !ticket.is_void && ticket.generation == generation)
    }

    /// Whether no load is under way.
    #[cfg(all(test, loom))]
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| lock(shard).is_empty())
    }

    #[cold]
    fn void_in_shard(&self, hash: u64, is_chosen: impl Fn(&Ticket) -> bool) {
        let mut tickets = lock(self.shard(hash));
        let chosen = tickets.iter_mut().filter(|ticket| ticket.hash == hash && is_chosen(ticket));
        chosen.for_each(|ticket| ticket.is_void = true);
    }
}
