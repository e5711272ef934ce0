//! Drain: at a clean stop without a memory file, the objects in memory are written to flash, so that the next start has
//! them.
//!
//! ```text
//! store, the most frequent first --> limits, not admission --> flash, region by region --> checkpoint of the stop
//! ```
//! The drain ends when nothing is left, the time is over, the write budget of that time is used up, half of flash is
//! written, or the device has failed or hangs. The index of flash gets memory for what is drained before the items are
//! gone: 1.5 to 12 bytes an object. A region is durable as soon as it is written, so a stop that is
//! cut short keeps the regions before. Flash cannot hold meta flags and CAS tokens of clients: such objects are lost,
//! and counted.

use crate::byte_size::ByteSize;
use crate::clock::Clock;
use crate::flash::pool_flash::PoolFlash;
use crate::flash::tier::WAIT_STEP;
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

impl PoolFlash {
    /// Writes the live items of a store that no thread changes any more, for a part of the limit of all pools, with
    /// that part of the bytes that flash and its write budget allow. `tick` refreshes the time.
    pub fn drain(
        &self,
        store: &Store,
        participant: &Participant,
        (part, limit): (Duration, Duration),
        tick: impl Fn() -> u64,
    ) -> FlashDrained {
        let started = Instant::now();
        let written_before = self.tier.written_bytes();
        let share = part.as_secs_f64() / limit.as_secs_f64();
        let max_bytes = (self.tier.capacity_bytes() as f64 * share) as u64 / MAX_CAPACITY_SHARE;
        let budget = self.tier.write_budget().map(|rate| (rate * part.as_secs_f64()) as u64);
        let items = store.counter_snapshot().items;
        let mut drained = FlashDrained::new();
        let (mut maintained_bytes, mut maintained_objects) = (0, 0);
        let mut drain = Drain::new(store);
        drained.end = loop {
            let now_ms = tick();
            self.note_time(now_ms);
            let written = || drained.bytes.max(self.tier.written_bytes() - written_before);
            match () {
                () if started.elapsed() >= part => break DrainEnd::Time,
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
                    let offer = |item: &Item<'_>| self.drain_item(item, now_ms, &mut drained);
                    let has_more = drain.advance(store, participant, now_ms, offer);
                    self.settle(now_ms);
                    if !has_more {
                        break DrainEnd::Complete;
                    }
                }
            }
        };
        drained.left = if drained.end == DrainEnd::Complete { 0 } else { items.saturating_sub(drained.offered()) };
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

    /// Both together; why the first ended that did not offer everything.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            objects: self.objects + other.objects,
            bytes: self.bytes + other.bytes,
            unchanged: self.unchanged + other.unchanged,
            unsupported: self.unsupported + other.unsupported,
            refused: self.refused + other.refused,
            without_place: self.without_place + other.without_place,
            compact: self.compact + other.compact,
            left: self.left + other.left,
            end: if self.end == DrainEnd::Complete { other.end } else { self.end },
            took: self.took + other.took,
        }
    }

    fn offered(&self) -> u64 {
        self.objects + self.unchanged + self.unsupported + self.refused + self.without_place
    }
}
