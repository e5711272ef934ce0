//! Tests of the whole tier.

mod basic;
mod bounds;
mod capacity_split;
mod device_amplification;
mod model;
mod pools;
mod restart;
mod scan;
mod stress;

use super::{Tier, TierOptions};
use crate::device::Device;
use crate::{FlashHit, FlashLookup, Key, Object, Token};
use ebbtide_testkit::Random;
use std::sync::{Arc, mpsc};
use std::thread::{Scope, ScopedJoinHandle};

/// Longest value of a small object.
const SMALL: usize = 1900;

/// A value with its key, its version and padding.
fn stamped(key: u64, version: u64, bytes: u64) -> Vec<u8> {
    let mut value = [key, version].map(u64::to_le_bytes).concat();
    value.resize(16 + bytes as usize, key as u8 ^ version as u8);
    value
}

/// A value of any length: small, large, or in several parts.
fn value_of(key: u64, version: u64) -> Vec<u8> {
    let mut random = Random::new(key << 32 | version);
    let bytes = match random.uniform(20) {
        0..10 => random.uniform(400),
        10..14 => random.uniform(SMALL as u64),
        14..18 => 2100 + random.uniform(9000),
        18 => 30_000 + random.uniform(30_000),
        _ => 64_000 + random.uniform(150_000),
    };
    stamped(key, version, bytes)
}

fn tier_on(device: Arc<dyn Device>) -> Arc<Tier> {
    Tier::on(device, &TierOptions { small_share: Some(0.5), ..TierOptions::default() }).unwrap()
}

fn put(tier: &Tier, key: &[u8], value: &[u8], now: u32) -> Option<Token> {
    put_until(tier, key, value, 0, now)
}

fn put_until(tier: &Tier, key: &[u8], value: &[u8], expiry: u32, now: u32) -> Option<Token> {
    let key = Key::new(key);
    tier.insert(&Object { key, value: &[value], client_flags: 5, is_annotated: false, expiry }, now)
}

fn get(tier: &Tier, key: &[u8], now: u32) -> Option<FlashHit> {
    let (sender, receiver) = mpsc::channel();
    let found = match tier.lookup(Key::new(key), now, Box::new(move |found| sender.send(found).unwrap())) {
        FlashLookup::Absent => None,
        FlashLookup::Found(found) => Some(found),
        FlashLookup::Reading => receiver.recv().unwrap(),
    }?;
    assert_eq!(found.client_flags, 5);
    Some(found)
}

/// Serves the device on a thread of its own, until the tier stops.
fn serve<'scope>(scope: &'scope Scope<'scope, '_>, tier: &Arc<Tier>) -> Vec<ScopedJoinHandle<'scope, ()>> {
    let spawn = |_| {
        let tier = Arc::clone(tier);
        scope.spawn(move || tier.device.serve())
    };
    (0..tier.device.threads()).map(spawn).collect()
}

/// Stops a tier when the test ends, also by a panic: otherwise the join of the serving thread would never return.
struct Stopping<'a>(&'a Tier);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
