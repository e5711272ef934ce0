//! Objects out.
//!
//! ```text
//! large log's index --- nothing ---------------------------------+
//!        | something                                             v
//!        +--> buffer or device --- another key's, or gone ---> small objects --> answer
//!                   | the key's
//!                   +--> answer
//! ```

use super::smalls::Smalls;
use super::{Tier, token_of_large};
use crate::{Done, Found, Key, Lookup};
use std::sync::{Arc, Mutex};

impl Tier {
    /// Looks for an object that is alive at `now`, in seconds since 1970. Never waits for the device: if it must be read,
    /// `done` is called when that is over, maybe before this returns; otherwise never.
    pub fn lookup(&self, key: Key<'_>, now: u32, done: Done) -> Lookup {
        let now = self.see(now);
        if self.has_failed(now) {
            return Lookup::Absent;
        }
        if !self.large.could_exist(key.hash) {
            return self.small.lookup(key, now, done);
        }
        // Given to the large log, and taken back if that calls nothing.
        let done = Arc::new(Mutex::new(Some(done)));
        let (theirs, small, bytes) = (Arc::clone(&done), Arc::clone(&self.small), Box::<[u8]>::from(key.bytes));
        let read = Box::new(move |found: Option<Found>| {
            let done = take(&theirs);
            match found {
                Some(found) => done(Some(of_large(found))),
                None => go_on(&small, Key { bytes: &bytes, hash: key.hash }, now, done),
            }
        });
        match self.large.lookup(key, now, read) {
            Lookup::Absent => self.small.lookup(key, now, take(&done)),
            Lookup::Found(found) => Lookup::Found(of_large(found)),
            Lookup::Reading => Lookup::Reading,
        }
    }
}

/// Goes on among the small objects, on a thread that completes a read.
fn go_on(small: &Smalls, key: Key<'_>, now: u32, done: Done) {
    let done = Arc::new(Mutex::new(Some(done)));
    let theirs = Arc::clone(&done);
    match small.lookup(key, now, Box::new(move |found| take(&theirs)(found))) {
        Lookup::Absent => take(&done)(None),
        Lookup::Found(found) => take(&done)(Some(found)),
        Lookup::Reading => {}
    }
}

fn take(done: &Mutex<Option<Done>>) -> Done {
    done.lock().unwrap().take().expect("a lookup is answered once")
}

fn of_large(found: Found) -> Found {
    Found { token: token_of_large(found.token), ..found }
}
