//! Lookups.
//!
//! ```text
//! large log's index --- nothing ---------------------------------+
//!        | something                                             v
//!        +--> buffer or device --- another key's, or gone ---> small objects --> answer
//!                   | the key's
//!                   +--> answer
//! ```
//! [`Tier::probe`] looks into the indexes, [`Tier::read`] does the rest; its result is an answer once
//! [`Tier::is_current_hit`] is true. So a hit takes the lock of the large log's index twice.

use super::small_area::SmallArea;
use super::{Tier, token_of_large};
use crate::device::Health;
use crate::large::{FinalCheck, Located};
use crate::small::PAGE;
use crate::{ByteRange, FlashHash, FlashHit, FlashLookup, Key, OnLookup};
use std::sync::{Arc, Mutex};

/// Where flash may have an object, from one lookup in its indexes.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    bytes: u64,
    large: Option<Located>,
}

impl Probe {
    /// Bytes that a lookup would read first: all of an object that lies in one region.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Tier {
    /// Looks for an object that is alive at `now`, in seconds since 1970. Never waits for the device. If the device
    /// must be read, `done` is called when the read is complete, possibly before this returns; otherwise `done` is
    /// never called.
    pub fn lookup(&self, key: Key<'_>, now: u32, done: OnLookup) -> FlashLookup {
        self.look_up(key, None, None, now, done)
    }

    /// As [`Tier::lookup`], for a range of the value: the hit has the bytes of the range only. Of a long value only the
    /// blocks that hold the range are read, and a block with the checksums.
    pub fn lookup_range(&self, key: Key<'_>, range: ByteRange, now: u32, done: OnLookup) -> FlashLookup {
        self.look_up(key, None, Some(range), now, done)
    }

    /// Lookups that ended as misses although flash may have the object: the device's queue was full, or the entry that
    /// was read changed at each try. A miss during which this number did not change is certain.
    pub fn undecided_lookups(&self) -> u64 {
        self.large.undecided_lookups() + self.small.undecided_lookups()
    }

    /// Where a lookup would find an object, if it may find one. No I/O.
    pub fn probe(&self, hash: FlashHash) -> Option<Probe> {
        if self.health() == Health::Failed {
            return None;
        }
        let large = self.large.locate(hash, FinalCheck::ByCaller);
        let bytes = large.map(|located| located.blocks().len());
        let bytes = bytes.or_else(|| self.small.could_exist(hash).then_some(PAGE))?;
        Some(Probe { bytes: bytes as u64, large })
    }

    /// As [`Tier::lookup`], or [`Tier::lookup_range`], of a key that was probed. Before it serves the hit, the caller
    /// asks [`Tier::is_current_hit`]: the object may have been overwritten or removed since the probe.
    pub fn read(&self, key: Key<'_>, probe: Probe, range: Option<ByteRange>, now: u32, done: OnLookup) -> FlashLookup {
        self.look_up(key, Some(probe), range, now, done)
    }

    fn look_up(
        &self,
        key: Key<'_>,
        probe: Option<Probe>,
        range: Option<ByteRange>,
        now: u32,
        done: OnLookup,
    ) -> FlashLookup {
        let now = self.observe_time(now);
        if self.has_failed(now) {
            return FlashLookup::Absent;
        }
        let final_check = if probe.is_some() { FinalCheck::ByCaller } else { FinalCheck::ByLookup };
        let probed = probe.and_then(|probe| probe.large);
        let Some(located) = probed.or_else(|| self.large.locate(key.hash, final_check)) else {
            return look_up_small(&self.small, key, range, now, done);
        };
        // The large log gets the callback, and it is taken back if the log does not call it.
        let done = Arc::new(Mutex::new(Some(done)));
        let (theirs, small, bytes) = (Arc::clone(&done), Arc::clone(&self.small), Box::<[u8]>::from(key.bytes));
        let (hash, pool) = (key.hash, key.pool);
        let read = Box::new(move |found: Option<FlashHit>| {
            let done = take(&theirs);
            match found {
                Some(found) => done(Some(with_large_token(found))),
                None => continue_log(&small, Key { bytes: &bytes, hash, pool }, range, now, done),
            }
        });
        let looked_up = match range {
            Some(range) => self.large.lookup_range_at(located, final_check, key, range, now, read),
            None => self.large.lookup_at(located, final_check, key, now, read),
        };
        match looked_up {
            FlashLookup::Absent => look_up_small(&self.small, key, range, now, take(&done)),
            FlashLookup::Found(found) => FlashLookup::Found(with_large_token(found)),
            FlashLookup::Reading => FlashLookup::Reading,
        }
    }
}

/// A small object lies in one block, which is read for any range of it.
fn look_up_small(small: &SmallArea, key: Key<'_>, range: Option<ByteRange>, now: u32, done: OnLookup) -> FlashLookup {
    let Some(range) = range else { return small.lookup(key, now, done) };
    match small.lookup(key, now, Box::new(move |found| done(found.map(|found| found.with_range(range))))) {
        FlashLookup::Found(found) => FlashLookup::Found(found.with_range(range)),
        unanswered => unanswered,
    }
}

/// Continues the lookup among the small objects, on a thread that completes a read.
fn continue_log(small: &SmallArea, key: Key<'_>, range: Option<ByteRange>, now: u32, done: OnLookup) {
    let done = Arc::new(Mutex::new(Some(done)));
    let theirs = Arc::clone(&done);
    match look_up_small(small, key, range, now, Box::new(move |found| take(&theirs)(found))) {
        FlashLookup::Absent => take(&done)(None),
        FlashLookup::Found(found) => take(&done)(Some(found)),
        FlashLookup::Reading => {}
    }
}

fn take(done: &Mutex<Option<OnLookup>>) -> OnLookup {
    done.lock().unwrap().take().expect("a lookup is answered once")
}

fn with_large_token(found: FlashHit) -> FlashHit {
    FlashHit { token: token_of_large(found.token), ..found }
}
