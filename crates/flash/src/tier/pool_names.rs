//! The names of pools, their incarnations, and the unused numbers.
//!
//! A running tier draws numbers below the `next` of the table on the device, and a start continues at `next`. So a
//! number drawn after a crash was not drawn before it. When few numbers are left to draw, the next maintenance writes a
//! table with a higher `next`. If no number is left for a pool, the pool stores nothing on flash.

use super::pool_table::{MAX_ENTRIES, PoolEntry, PoolTable, hash_of_name};
use crate::Error;
use crate::deletion_log::LogContents;
use crate::device::Device;
use crate::object::FIRST_POOL;
use crate::pools::{FlashPool, LivePools, NO_POOL};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// Numbers that may be drawn until the table is written again.
const RESERVED: u16 = 256;
/// The name of the pool that every cache has.
const DEFAULT_NAME: &str = "default";

/// The pools of a tier.
pub(super) struct TierPools {
    pub live: Arc<LivePools>,
    /// The incarnation of the large objects, which is the seed of the table's checksums.
    life: u64,
    /// Area of the table; `None` if nothing is kept for another start.
    pub area: Option<Range<u64>>,
    state: Mutex<State>,
    /// Held while a table is written.
    writing: Mutex<()>,
}

pub(super) struct State {
    pub pools: Vec<NamedPool>,
    sequence: u64,
    /// The next number to be drawn. `reserved`: the first number that must not be drawn.
    next: u16,
    reserved: u16,
    /// The table on the device is not current.
    pub is_changed: bool,
}

pub(super) struct NamedPool {
    pub name: u128,
    pub pool: Arc<FlashPool>,
    pub is_open: bool,
}

impl State {
    /// An unused number; [`NO_POOL`] if none is left.
    pub fn draw(&mut self) -> u16 {
        if self.next >= self.reserved {
            return NO_POOL;
        }
        self.next += 1;
        self.next - 1
    }

    /// The table to write, if a write is due.
    fn next_table(&mut self) -> Option<PoolTable> {
        let is_short = self.reserved - self.next < RESERVED / 2 && self.reserved < NO_POOL;
        if !self.is_changed && !is_short {
            return None;
        }
        self.is_changed = false;
        self.sequence += 1;
        Some(self.table(self.next.saturating_add(RESERVED).max(self.reserved)))
    }

    /// Allows numbers below `reserved` to be drawn. Draws one for each pool that has none.
    fn reserve(&mut self, reserved: u16, live: &LivePools) {
        self.reserved = reserved;
        let waiting: Vec<_> = self.pools.iter().map(|named| Arc::clone(&named.pool)).collect();
        for pool in waiting.iter().filter(|pool| pool.number() == NO_POOL) {
            let number = self.draw();
            if number != NO_POOL {
                live.add(number, pool);
                pool.set_number(number);
                self.is_changed = true;
            }
        }
    }

    fn table(&self, next: u16) -> PoolTable {
        let entry = |named: &NamedPool| PoolEntry {
            name: named.name,
            number: named.pool.number(),
            small_bytes: named.pool.small_bytes(),
        };
        let entries = self.pools.iter().filter(|named| named.pool.number() != NO_POOL).map(entry);
        PoolTable { sequence: self.sequence, next, entries: entries.collect() }
    }
}

impl TierPools {
    /// The pools of a new incarnation of the tier.
    pub fn new(life: u64, area: Option<Range<u64>>) -> Self {
        let default = PoolEntry { name: hash_of_name(DEFAULT_NAME), number: FIRST_POOL, small_bytes: 0 };
        Self::of(PoolTable { sequence: 0, next: FIRST_POOL + 1, entries: vec![default] }, life, area)
    }

    /// The pools of a table.
    pub fn of(table: PoolTable, life: u64, area: Option<Range<u64>>) -> Self {
        let named = |entry: PoolEntry| {
            let pool = FlashPool::new(entry.number);
            pool.set_small_bytes(entry.small_bytes);
            NamedPool { name: entry.name, pool, is_open: false }
        };
        let pools: Vec<NamedPool> = table.entries.into_iter().map(named).collect();
        let live = LivePools::new(life, pools.iter().map(|named| (named.pool.number(), Arc::clone(&named.pool))));
        let reserved = if area.is_some() { table.next } else { NO_POOL };
        let state = State { pools, sequence: table.sequence, next: table.next, reserved, is_changed: true };
        Self { live: Arc::new(live), life, area, state: Mutex::new(state), writing: Mutex::default() }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under this lock")
    }

    /// Writes the table if it has changed, or if few numbers are left to be drawn. Waits for the device.
    pub fn write(&self, device: &dyn Device) -> Result<(), Error> {
        let Some(area) = &self.area else { return Ok(()) };
        let _writing = self.writing.lock().expect("no writer panics");
        let Some(table) = self.state().next_table() else { return Ok(()) };
        // The state is not locked here, so a flush does not wait for the device.
        let written = table.write(device, area, self.life);
        let mut state = self.state();
        match written {
            Ok(()) => state.reserve(table.next, &self.live),
            Err(_) => state.is_changed = true,
        }
        written
    }

    /// Writes the table of a stop. Its `next` is exact, so no number is lost.
    pub fn write_last(&self, device: &dyn Device) -> Result<(), Error> {
        let Some(area) = &self.area else { return Ok(()) };
        let _writing = self.writing.lock().expect("no writer panics");
        let table = {
            let mut state = self.state();
            state.sequence += 1;
            state.table(state.next)
        };
        table.write(device, area, self.life)
    }

    /// The pools of the last run, without those whose numbers the deletion log ends. Waits for the device.
    pub fn before(
        device: &dyn Device,
        (life, is_clean): (u64, bool),
        area: Option<Range<u64>>,
        contents: Option<&LogContents>,
    ) -> Result<Self, String> {
        let table = area.as_ref().and_then(|area| PoolTable::read(device, area, life));
        let mut table = table.ok_or("its table of pools is damaged")?;
        if table.next >= NO_POOL - MAX_ENTRIES as u16 - RESERVED {
            return Err("its pools were flushed so often that no numbers are left for them".to_owned());
        }
        let of_small = contents.and_then(|contents| contents.small.as_ref());
        let logs = [contents.map(|contents| &contents.large), of_small];
        let is_over = |number: u16| logs.iter().flatten().any(|log| log.ended_pools.contains(&number));
        table.entries.retain(|entry| !is_over(entry.number));
        table.entries.iter_mut().filter(|_| !is_clean).for_each(|entry| entry.small_bytes = 0);
        Ok(Self::of(table, life, area))
    }
}
