//! Tests of the whole store.

mod basic;
mod model;
mod restart;
mod stress;
mod zero_fill;

use super::{Options, SmallDrop, SmallStore};
use crate::FlashLookup;
use crate::device::{Device, MemoryDevice};
use crate::object::{Key, Object, Token};
use std::sync::{Arc, Mutex};

/// Repeatable random numbers.
pub(super) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn uniform(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

pub(super) fn store_on(device: Arc<dyn Device>, options: Options) -> SmallStore {
    let area = 8192..device.capacity();
    SmallStore::new(device, area, options).unwrap()
}

pub(super) fn store(bytes: usize, options: Options) -> SmallStore {
    store_on(Arc::new(MemoryDevice::new(bytes)), options)
}

/// Inserts as the tier does: a key that is not inserted keeps no older version.
pub(super) fn put(store: &SmallStore, key: &[u8], value: &[u8], expiry: u32, now: u32) -> Result<Token, SmallDrop> {
    let key = Key::new(key);
    let object = Object { key, value: &[value], client_flags: 5, is_annotated: false, expiry };
    store.insert(&object, now).inspect_err(|_| _ = store.remove(key.hash))
}

/// The result of a lookup, on a device that completes at once.
pub(super) fn get(store: &SmallStore, key: &[u8], now: u32) -> Option<(Vec<u8>, Token)> {
    let answer = Arc::new(Mutex::new(None));
    let later = Arc::clone(&answer);
    let done = Box::new(move |found| *later.lock().unwrap() = Some(found));
    let found = match store.lookup(Key::new(key), now, done) {
        FlashLookup::Absent => None,
        FlashLookup::Found(found) => Some(found),
        FlashLookup::Reading => answer.lock().unwrap().take().expect("the read is done"),
    };
    found.map(|found| {
        assert_eq!(found.client_flags, 5);
        (found.value().to_vec(), found.token)
    })
}

pub(super) fn value(store: &SmallStore, key: &[u8]) -> Option<Vec<u8>> {
    get(store, key, 1).map(|(value, _)| value)
}
