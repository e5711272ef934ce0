//! Drain: at a clean stop without a memory file, the objects in memory are written to flash, so that the next start has
//! them.
//!
//! ```text
//! stores in turns, the most frequent first --> limits, not admission --> flash, region by region --> checkpoint
//! ```
//! The drain ends when nothing is left, the time is over, the write budget of that time is used up, half of flash is
//! written, or the device has failed or hangs. The index of flash gets memory for what is drained before the items are
//! gone: 1.5 to 12 bytes an object. A region is durable as soon as it is written, so a stop that is
//! cut short keeps the regions before. Flash cannot hold meta flags and CAS tokens of clients: such objects are lost,
//! and counted.

use crate::byte_size::ByteSize;
use crate::clock::Clock;
use crate::flash::pool_flash::PoolFlash;
use crate::flash::tier::{FlashTier, WAIT_STEP};
use ebbtide_flash::Object;
use ebbtide_flash::admission::Offer;
use ebbtide_flash::device::Health;
use ebbtide_store::{Drain, Item, Participant, Store};
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

/// A drain writes at most this part of flash: hotter objects in the rest stay.
const MAX_CAPACITY_SHARE: u64 = 2;

/// A drain has flash maintained whenever it has written this much: by then its capacity may have to be split, without
/// which small objects take as much of an index as large ones.
const MAINTAINED_BYTES: u64 = 1 << 20;
const MAINTAINED_OBJECTS: u64 = 1 << 12;

/// A turn of a pool ends after this number of objects, or of buckets without any: the choice of the next pool costs
/// little beside them.
const TURN_OBJECTS: u64 = 64;
const TURN_BUCKETS: u32 = 256;

/// A drain ends after this time without a completed write while flash has no space.
const MAX_STALL: Duration = Duration::from_secs(10);

/// Why a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainEnd {
    /// Every object was offered.
    Complete,
    /// The time of `CacheBuilder::flash_drain` was over.
    Time,
    /// The bytes that the write budget allows in that time are written.
    WriteBudget,
    /// Half of flash is written.
    Capacity,
    /// The device has failed, or has completed no write for ten seconds.
    Failed,
}

impl DrainEnd {
    fn explain(self) -> &'static str {
        match self {
            Self::Complete => "nothing was left",
            Self::Time => "the time for the drain was over (--flash-drain-seconds)",
            Self::WriteBudget => "the write budget was used up",
            Self::Capacity => "half of flash was written",
            Self::Failed => "flash has failed or hangs",
        }
    }
}

/// Objects that a clean stop wrote to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashDrained {
    /// Objects that were written, and bytes of their keys and values.
    pub objects: u64,
    pub bytes: u64,
    /// Objects that flash held already.
    pub unchanged: u64,
    /// Objects that flash cannot hold: with meta flags (stale, won) or a CAS token of a client.
    pub unsupported: u64,
    /// Objects that [`crate::memcached::FlashLimits`] refuse: they expire too soon, or are too short.
    pub refused: u64,
    /// Objects that are too long for flash, or found no memory in its index.
    pub without_place: u64,
    /// Entries of compact pools, which are never on flash.
    pub compact: u64,
    /// Objects that were not offered.
    pub left: u64,
    pub end: DrainEnd,
    pub took: Duration,
}

impl fmt::Display for FlashDrained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, took) = (ByteSize::bytes(self.bytes), self.took);
        write!(f, "{} objects and {bytes} went from memory to flash, in {took:.2?}", self.objects)?;
        let counts = [
            (self.unchanged, "were there already"),
            (self.unsupported, "are lost: flash cannot hold meta flags and CAS tokens of clients"),
            (self.refused, "are lost: they expire too soon or are too short for flash"),
            (self.without_place, "are lost: flash has no place for them"),
            (self.compact, "are lost: compact pools are never on flash"),
            (self.left, "are lost"),
        ];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "; {count} {what}")?;
        }
        if self.left > 0 { write!(f, ": {}", self.end.explain()) } else { Ok(()) }
    }
}

/// A pool whose objects are written to flash.
pub(crate) struct PoolDrain<'p> {
    flash: &'p PoolFlash,
    store: &'p Store,
    drain: Drain,
    items: u64,
    offered: u64,
    is_complete: bool,
}

impl<'p> PoolDrain<'p> {
    /// Of a store that no thread changes any more.
    pub fn new(flash: &'p PoolFlash, store: &'p Store) -> Self {
        let (drain, items) = (Drain::new(store), store.counter_snapshot().items);
        Self { flash, store, drain, items, offered: 0, is_complete: false }
    }

    /// Offers the next objects, until flash has no space.
    fn take_turn(&mut self, participant: &Participant, now_ms: u64, drained: &mut FlashDrained) {
        let offered_before = drained.offered();
        for _ in 0..TURN_BUCKETS {
            let offer = |item: &Item<'_>| self.flash.drain_item(item, now_ms, drained);
            if !self.drain.advance(self.store, participant, now_ms, offer) {
                self.is_complete = true;
                break;
            }
            if !self.flash.tier.has_space() || drained.offered() - offered_before >= TURN_OBJECTS {
                break;
            }
        }
        self.offered += drained.offered() - offered_before;
    }

    fn left(&self) -> u64 {
        if self.is_complete { 0 } else { self.items.saturating_sub(self.offered) }
    }
}

impl FlashTier {
    /// Writes the live items of pools, within this time and what flash and its write budget allow in it. The pools take
    /// turns, each time the one of which the smallest part was offered: whenever the drain ends, each has its most
    /// frequent objects on flash, as many as its size is worth. `tick` refreshes the time.
    pub fn drain(
        &self,
        pools: &mut [PoolDrain<'_>],
        participant: &Participant,
        limit: Duration,
        tick: impl Fn() -> u64,
    ) -> FlashDrained {
        let started = Instant::now();
        let written_before = self.tier.written_bytes();
        let max_bytes = self.tier.capacity_bytes() / MAX_CAPACITY_SHARE;
        let budget = self.tier.write_budget().map(|rate| (rate * limit.as_secs_f64()) as u64);
        let mut drained = FlashDrained::new();
        let (mut maintained_bytes, mut maintained_objects) = (0, 0);
        drained.end = loop {
            let now_ms = tick();
            self.note_time(now_ms);
            let written = || drained.bytes.max(self.tier.written_bytes() - written_before);
            match () {
                () if started.elapsed() >= limit => break DrainEnd::Time,
                () if self.tier.health() == Health::Failed => break DrainEnd::Failed,
                () if drained.bytes >= max_bytes => break DrainEnd::Capacity,
                () if budget.is_some_and(|budget| written() >= budget) => break DrainEnd::WriteBudget,
                // Ends: the time advances, also while the device completes nothing.
                () if self.full_for(now_ms).is_some_and(|full| full >= MAX_STALL) => break DrainEnd::Failed,
                () if !self.tier.has_space() => self.await_space(now_ms),
                () => {
                    self.memory_split.give_ahead(&self.tier);
                    if drained.bytes - maintained_bytes >= MAINTAINED_BYTES
                        || drained.objects - maintained_objects >= MAINTAINED_OBJECTS
                    {
                        (maintained_bytes, maintained_objects) = (drained.bytes, drained.objects);
                        self.maintain(now_ms);
                    }
                    let pending = pools.iter_mut().filter(|pool| !pool.is_complete);
                    let progress = |pool: &&mut PoolDrain<'_>| pool.drain.progress(pool.store);
                    let next = pending.min_by(|one, other| progress(one).total_cmp(&progress(other)));
                    let Some(pool) = next else { break DrainEnd::Complete };
                    pool.take_turn(participant, now_ms, &mut drained);
                    self.settle(now_ms);
                }
            }
        };
        drained.left = pools.iter().map(PoolDrain::left).sum();
        drained.took = started.elapsed();
        drained
    }

    /// Lets the maintenance of flash work for a moment.
    fn await_space(&self, now_ms: u64) {
        match self.clock {
            Clock::Manual => self.maintain(now_ms),
            Clock::System => {
                self.waker.wake();
                thread::sleep(WAIT_STEP);
            }
        }
    }
}

impl PoolFlash {
    /// Writes an item, past admission. The lock of its key's buckets is held. False if there is no space now.
    fn drain_item(&self, item: &Item<'_>, now_ms: u64, drained: &mut FlashDrained) -> bool {
        if !self.tier.has_space() {
            return false;
        }
        let key = self.key(item.key());
        let Some(expiry) = self.expiry_on_flash(item) else {
            drained.unsupported += 1;
            return true;
        };
        if item.extension().copied && self.tier.could_exist(key.hash) {
            drained.unchanged += 1;
            return true;
        }
        let now = self.seconds(now_ms);
        let (value_bytes, bytes) = (item.len(), item.key().len() + item.len());
        if self.tier.limits().refuse(&Offer { key: key.hash, bytes, value_bytes, expiry }, now).is_some() {
            drained.refused += 1;
            return true;
        }
        let value: Vec<&[u8]> = item.slices().collect();
        let (client_flags, is_annotated) = item.flags().to_parts();
        let object = Object { key, value: &value, client_flags, is_annotated, expiry };
        match self.tier.insert_past_admission(&object, now) {
            Some(_) => {
                drained.objects += 1;
                drained.bytes += bytes as u64;
                self.note_demotion(value_bytes as u64);
            }
            None => drained.without_place += 1,
        }
        true
    }
}

impl FlashDrained {
    fn new() -> Self {
        Self {
            objects: 0,
            bytes: 0,
            unchanged: 0,
            unsupported: 0,
            refused: 0,
            without_place: 0,
            compact: 0,
            left: 0,
            end: DrainEnd::Complete,
            took: Duration::ZERO,
        }
    }

    fn offered(&self) -> u64 {
        self.objects + self.unchanged + self.unsupported + self.refused + self.without_place
    }
}
