//! The log as a whole, on devices in memory.

mod behaviour;
mod eventful;
mod history;
mod model;
mod races;
mod ranges;
mod reclaim;
mod reinsertion;
mod restart;
mod shares;
mod stress;
mod unclean;

use super::address::UNIT;
use super::format::{FOOTER_ENTRY_BYTES, REGION_HEADER_BYTES, value_bytes_in};
use super::{Inserted, LargeDrop, LargeLog, Options, Reclaim, Stats};
use crate::FlashLookup;
use crate::device::{Device, MemoryDevice};
use crate::{FlashHit, Key, Object};
use ebbtide_testkit::Stamp;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::Scope;

const REGION_BYTES: usize = 64 << 10;

/// Small regions, so that a test fills the log many times.
fn small() -> Options {
    Options {
        identity: 7,
        region_bytes: REGION_BYTES,
        expiry_groups: 3,
        buffers: 5,
        reclaim: Reclaim::Fifo,
        ..Options::default()
    }
}

fn on_memory(regions: usize, options: Options) -> Arc<LargeLog> {
    on(Arc::new(MemoryDevice::new(regions * options.region_bytes)), options)
}

fn on(device: Arc<dyn Device>, options: Options) -> Arc<LargeLog> {
    let area = 0..device.capacity();
    LargeLog::new(device, area, options).unwrap()
}

/// Serves a device until the returned guard is dropped, also by a panic.
fn served<'scope, D: Device>(scope: &'scope Scope<'scope, '_>, device: &'scope D) -> Stop<'scope, D> {
    for _ in 0..device.threads() {
        scope.spawn(|| device.serve());
    }
    Stop(device)
}

struct Stop<'a, D: Device>(&'a D);

impl<D: Device> Drop for Stop<'_, D> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

fn insert(log: &Arc<LargeLog>, number: u64, value: &[u8], expiry: u32, now: u32) -> Result<Inserted, LargeDrop> {
    let key = key(number);
    // In two pieces, like a chained value.
    let (front, back) = value.split_at(value.len() / 3);
    let value = [front, back];
    log.insert(&Object { key: Key::new(&key), value: &value, client_flags: 5, is_annotated: false, expiry }, now)
}

fn remove(log: &LargeLog, number: u64) -> bool {
    log.remove(Key::new(&key(number)).hash)
}

/// Waits for the read, so only on devices that need no serving or are served.
fn find(log: &Arc<LargeLog>, number: u64, now: u32) -> Option<FlashHit> {
    let (sender, receiver) = mpsc::channel();
    let done = Box::new(move |found| sender.send(found).unwrap());
    match log.lookup(Key::new(&key(number)), now, done) {
        FlashLookup::Absent => None,
        FlashLookup::Found(found) => Some(found),
        FlashLookup::Reading => receiver.recv().unwrap(),
    }
}

fn get(log: &Arc<LargeLog>, number: u64, now: u32) -> Option<Vec<u8>> {
    find(log, number, now).map(|found| {
        assert_eq!(found.client_flags, 5);
        found.value().to_vec()
    })
}

/// Length of a value of which `objects` fill a region, so that none is cut.
fn whole_part(objects: usize) -> usize {
    let bytes = (REGION_BYTES - REGION_HEADER_BYTES - (objects + 1) * FOOTER_ENTRY_BYTES) / objects;
    value_bytes_in(key(999).len(), bytes / UNIT * UNIT)
}

fn value(key: u64, version: u64, bytes: usize) -> Vec<u8> {
    Stamp { key, version }.value(bytes)
}
