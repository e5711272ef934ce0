//! Objects out.
//!
//! ```text
//! large log's index --- nothing ---------------------------------+
//!        | something                                             v
//!        +--> buffer or device --- another key's, or gone ---> small objects --> answer
//!                   | the key's
//!                   +--> answer
//! ```

use super::small_area::SmallArea;
use super::{Tier, token_of_large};
use crate::{FlashHit, FlashLookup, Key, OnLookup};
use std::sync::{Arc, Mutex};

impl Tier {
    /// Looks for an object that is alive at `now`, in seconds since 1970. Never waits for the device: if it must be read,
    /// `done` is called when that is over, maybe before this returns; otherwise never.
    pub fn lookup(&self, key: Key<'_>, now: u32, done: OnLookup) -> FlashLookup {
        let now = self.observe_time(now);
        if self.has_failed(now) {
            return FlashLookup::Absent;
        }
        if !self.large.could_exist(key.hash) {
            return self.small.lookup(key, now, done);
        }
        // Given to the large log, and taken back if that calls nothing.
        let done = Arc::new(Mutex::new(Some(done)));
        let (theirs, small, bytes) = (Arc::clone(&done), Arc::clone(&self.small), Box::<[u8]>::from(key.bytes));
        let (hash, pool) = (key.hash, key.pool);
        let read = Box::new(move |found: Option<FlashHit>| {
            let done = take(&theirs);
            match found {
                Some(found) => done(Some(with_large_token(found))),
                None => continue_log(&small, Key { bytes: &bytes, hash, pool }, now, done),
            }
        });
        match self.large.lookup(key, now, read) {
            FlashLookup::Absent => self.small.lookup(key, now, take(&done)),
            FlashLookup::Found(found) => FlashLookup::Found(with_large_token(found)),
            FlashLookup::Reading => FlashLookup::Reading,
        }
    }
}

/// Goes on among the small objects, on a thread that completes a read.
fn continue_log(small: &SmallArea, key: Key<'_>, now: u32, done: OnLookup) {
    let done = Arc::new(Mutex::new(Some(done)));
    let theirs = Arc::clone(&done);
    match small.lookup(key, now, Box::new(move |found| take(&theirs)(found))) {
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
