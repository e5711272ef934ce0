//! Writes one by one and sixteen at a time: `cargo bench -p ebbtide --bench insert_many -- [KEYS]`.
//!
//! Values of 230 bytes under keys of 20, in memory that the index and items exceed the caches of the processor by far,
//! in turns; medians of the rounds and their ratio. *Overwrites*: all keys are there, drawn by Zipf 1.0 or uniformly.
//! *New keys*: the cache is full, so each write evicts in the end. One thread.
//!
//! Not measured: several threads, flash, long values. KEYS is 2 million by default.

use ebbtide::{ByteSize, Cache};
use ebbtide_testkit::Random;
use std::time::Instant;

const KEY_BYTES: usize = 20;
const VALUE: [u8; 230] = [7; 230];
const BATCH: usize = 16;
const ROUNDS: usize = 9;
const WRITES: usize = 400_000;

type Key = [u8; KEY_BYTES];

fn key(number: u64) -> Key {
    let mut key = *b"user:profile\0\0\0\0\0\0\0\0";
    key[KEY_BYTES - 8..].copy_from_slice(&number.to_le_bytes());
    key
}

/// Nanoseconds of one write.
fn time(keys: &[Key], write: impl FnOnce(&[Key])) -> f64 {
    let start = Instant::now();
    write(keys);
    start.elapsed().as_nanos() as f64 / keys.len() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(name: &str, cache: &Cache, mut draw: impl FnMut() -> u64) {
    let (mut single, mut many) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        let keys: Vec<Key> = std::iter::repeat_with(|| key(draw())).take(WRITES).collect();
        single.push(time(&keys, |keys| keys.iter().for_each(|key| cache.insert(key, VALUE).expect("it fits"))));
        let keys: Vec<Key> = std::iter::repeat_with(|| key(draw())).take(WRITES).collect();
        many.push(time(&keys, |keys| {
            for run in keys.chunks(BATCH) {
                let mut entries = [(&keys[0], &VALUE); BATCH];
                entries.iter_mut().zip(run).for_each(|(entry, key)| entry.0 = key);
                cache.insert_many(&entries[..run.len()]).into_iter().for_each(|result| result.expect("it fits"));
            }
        }));
    }
    let (single, many) = (median(single), median(many));
    println!("| {name} | {single:.0} | {many:.0} | {:.2} |", single / many);
}

fn main() {
    let count = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(2_000_000_u64);
    let bytes = count * (KEY_BYTES + VALUE.len() + 30) as u64;
    let cache = Cache::builder().memory(ByteSize::bytes(2 * bytes)).build().expect("the machine has the memory");
    (0..count).for_each(|number| cache.insert(key(number), VALUE).expect("it fits"));
    println!("| writes | one by one, ns | sixteen at a time, ns | ratio |\n|---|---|---|---|");
    let (mut random, mut zipf_random) = (Random::new(1), Random::new(2));
    // The ranks of Zipf 1.0 in a scattered order of keys.
    let mut zipf = || {
        let unit = zipf_random.uniform(1 << 53) as f64 / (1_u64 << 53) as f64;
        ((count as f64).powf(unit) as u64 - 1).wrapping_mul(0x9E37_79B1) % count
    };
    measure("overwrites, uniform", &cache, || random.uniform(count));
    measure("overwrites, Zipf 1.0", &cache, &mut zipf);
    let full = Cache::builder().memory(ByteSize::bytes(bytes)).build().expect("the machine has the memory");
    (0..2 * count).for_each(|number| full.insert(key(number), VALUE).expect("it fits"));
    let mut next = 2 * count..;
    measure("new keys, full cache", &full, || next.next().expect("it does not end"));
}
