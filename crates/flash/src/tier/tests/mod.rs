//! Tests of the whole tier.

mod basic;
mod bounds;
mod division;
mod model;
mod restart;
mod scan;
mod stress;

use super::{Tier, TierOptions};
use crate::device::Device;
use crate::{Found, Key, Lookup, Object, Token};
use std::sync::{Arc, mpsc};
use std::thread::{Scope, ScopedJoinHandle};

/// A longer one is a large object.
const SMALL: usize = 1900;

fn tier_on(device: Arc<dyn Device>) -> Arc<Tier> {
    Tier::on(device, &TierOptions { small_share: Some(0.5), ..TierOptions::default() }).unwrap()
}

fn put(tier: &Tier, key: &[u8], value: &[u8], now: u32) -> Option<Token> {
    put_until(tier, key, value, 0, now)
}

fn put_until(tier: &Tier, key: &[u8], value: &[u8], expiry: u32, now: u32) -> Option<Token> {
    let key = Key::new(key);
    tier.insert(&Object { key, value: &[value], client_flags: 5, attributes: 6, expiry }, now)
}

fn get(tier: &Tier, key: &[u8], now: u32) -> Option<Found> {
    let (sender, receiver) = mpsc::channel();
    let found = match tier.lookup(Key::new(key), now, Box::new(move |found| sender.send(found).unwrap())) {
        Lookup::Absent => None,
        Lookup::Found(found) => Some(found),
        Lookup::Reading => receiver.recv().unwrap(),
    }?;
    assert_eq!((found.client_flags, found.attributes), (5, 6));
    Some(found)
}

/// Serves the device on a thread of its own, until the tier stops.
fn serve<'scope>(scope: &'scope Scope<'scope, '_>, tier: &Arc<Tier>) -> Vec<ScopedJoinHandle<'scope, ()>> {
    let spawn = |_| {
        let tier = Arc::clone(tier);
        scope.spawn(move || tier.serve_io())
    };
    (0..tier.io_threads()).map(spawn).collect()
}

/// Stops a tier when the test ends, well or not: who serves must not be waited for in vain.
struct Stopping<'a>(&'a Tier);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
