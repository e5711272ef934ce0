//! Load tickets: a value that was loaded for an absent key is published only if the key has not changed since.
//!
//! ```text
//! begin     lock key   no live item   add the ticket with the generation      unlock
//! change    lock key   void the tickets of the key's hash                     unlock
//! publish   lock key   no live item, the ticket is valid, same generation?    unlock
//! ```
//! Every change of a key is made under the lock of its buckets, and so is the registration of a ticket. So each change
//! after the miss either voids the ticket or, a flush, advances the generation. Maintenance voids nothing: it removes
//! items that a ticket's key did not have.
//!
//! A ticket is found by the hash of its key alone: a change of another key with the same hash voids it, too, which
//! costs a publication and nothing else.

use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, lock};

/// A change looks at one word of its shard, so that loads of other keys rarely cost it a lock. Loom models have one.
const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };

/// The loads that have started and not ended.
pub(crate) struct LoadTickets {
    shards: Box<[Shard]>,
    next_number: AtomicU64,
}

struct Shard {
    /// Entries of `tickets`.
    active: AtomicU32,
    tickets: Mutex<Vec<Ticket>>,
}

struct Ticket {
    number: u64,
    hash: u64,
    generation: u64,
    is_void: bool,
}

impl LoadTickets {
    pub fn new() -> Self {
        let shard = || Shard { active: AtomicU32::new(0), tickets: Mutex::new(Vec::new()) };
        Self { shards: (0..SHARDS).map(|_| shard()).collect(), next_number: AtomicU64::new(1) }
    }

    fn shard(&self, hash: u64) -> &Shard {
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// Adds a ticket. The caller holds the bucket locks of the key.
    pub fn add(&self, hash: u64, generation: u64) -> u64 {
        let shard = self.shard(hash);
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let mut tickets = lock(&shard.tickets);
        tickets.push(Ticket { number, hash, generation, is_void: false });
        // Relaxed: a change of this key looks at the word under the same bucket locks.
        shard.active.fetch_add(1, Ordering::Relaxed);
        number
    }

    /// Removes a ticket.
    pub fn remove(&self, hash: u64, number: u64) {
        let shard = self.shard(hash);
        let mut tickets = lock(&shard.tickets);
        if let Some(position) = tickets.iter().position(|ticket| ticket.number == number) {
            tickets.swap_remove(position);
            shard.active.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A key changes: voids the tickets of its hash. The caller holds the bucket locks of the key.
    #[inline(always)]
    pub fn void(&self, hash: u64) {
        let shard = self.shard(hash);
        if shard.active.load(Ordering::Relaxed) > 0 {
            shard.void(hash);
        }
    }

    /// Whether nothing has changed since the ticket was added, and no flush has advanced the generation. Exact if
    /// the caller holds the bucket locks of the key.
    pub fn is_valid(&self, hash: u64, number: u64, generation: u64) -> bool {
        let tickets = lock(&self.shard(hash).tickets);
        let ticket = tickets.iter().find(|ticket| ticket.number == number);
        ticket.is_some_and(|ticket| !ticket.is_void && ticket.generation == generation)
    }
}

impl Shard {
    #[cold]
    fn void(&self, hash: u64) {
        let mut tickets = lock(&self.tickets);
        tickets.iter_mut().filter(|ticket| ticket.hash == hash).for_each(|ticket| ticket.is_void = true);
    }
}
