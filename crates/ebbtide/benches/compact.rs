//! Gets of a compact pool beside those of a store, and the memory of a compact pool: `cargo bench -p ebbtide --bench
//! compact`.
//!
//! Both hold the same keys of 16 bytes, with values of 0 and of 16 bytes; the compact pool is filled to nine tenths of
//! its capacity. One thread gets keys in an order without pattern: all of them, more than the processor's caches hold,
//! a thousand of them, or as many absent ones. Rounds of the two alternate. Runs for about a minute, with 1 GiB.
//!
//! Not measured: writes, evictions, several threads, a machine with other work.

use ebbtide::options::PoolOptions;
use ebbtide::{ByteSize, Cache};
use std::hint::black_box;
use std::time::Instant;

const KEY_BYTES: usize = 16;
const ROUNDS: usize = 11;
/// Gets of a round.
const GETS: u64 = 2_000_000;
const HOT_KEYS: u64 = 1000;

/// A bijection of 64 bits that leaves no pattern, murmur3's finalizer.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let number = (number ^ (number >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ (number >> 33)
}

fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key[8..].copy_from_slice(&mixed(number).to_le_bytes());
    key
}

/// Nanoseconds of a get, and the number of hits.
fn time(first: u64, keys: u64, round: usize, get: impl Fn(&[u8; KEY_BYTES]) -> bool) -> (f64, u64) {
    let start = Instant::now();
    let hits = (0..GETS).filter(|number| get(&key(first + mixed(number + ((round as u64) << 32)) % keys))).count();
    (start.elapsed().as_nanos() as f64 / GETS as f64, hits as u64)
}

/// Median, least and greatest.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

fn measure(value_bytes: usize) {
    let size = ByteSize::mib(128);
    let options = PoolOptions::named("tiny").compact(KEY_BYTES, value_bytes).min(size).max(size);
    let cache = Cache::builder().memory(ByteSize::gib(1)).pool(options).build().expect("the machine has 1 GiB");
    let (pool, value) = (cache.compact_pool("tiny").expect("it was just added"), vec![7; value_bytes]);
    let mut keys = 0;
    while pool.stats().entries * 10 < pool.stats().capacity * 9 {
        for _ in 0..1000 {
            pool.insert(key(keys), &value).expect("it evicts");
            keys += 1;
        }
    }
    // Only what the pool has kept: a full set evicts before the pool is full.
    (0..keys).map(key).filter(|key| pool.contains_key(key)).for_each(|key| {
        cache.insert(key, &value).expect("the memory holds them");
    });
    let stats = pool.stats();
    let raw_bytes = stats.entries * (KEY_BYTES + value_bytes) as u64;
    println!(
        "values of {value_bytes} bytes: {} entries of {} ({:.1} %), {:.3} bytes for each byte of keys and values",
        stats.entries,
        stats.capacity,
        stats.entries as f64 / stats.capacity as f64 * 100.0,
        stats.memory_limit_bytes as f64 / raw_bytes as f64,
    );
    for (name, first, keys) in [("all keys", 0, keys), ("a thousand keys", 0, HOT_KEYS), ("absent keys", 1 << 40, keys)]
    {
        let (mut compact, mut store, mut ratios) = (vec![], vec![], vec![]);
        for round in 0..ROUNDS {
            let of_pool = time(first, keys, round, |key| pool.with(key, |value| _ = black_box(value)).hit().is_some());
            let of_store = time(first, keys, round, |key| cache.with(key, |value| _ = black_box(value)).is_some());
            assert_eq!(of_pool.1, of_store.1, "the same keys are present");
            compact.push(of_pool.0);
            store.push(of_store.0);
            ratios.push(of_store.0 / of_pool.0);
        }
        let (compact, store, ratios) = (spread(compact), spread(store), spread(ratios));
        println!(
            "  {name:16} compact {:5.1} ns ({:.1} to {:.1})   store {:5.1} ns ({:.1} to {:.1})   {:.2} ({:.2} to {:.2})",
            compact.0, compact.1, compact.2, store.0, store.1, store.2, ratios.0, ratios.1, ratios.2
        );
    }
}

fn main() {
    measure(0);
    measure(16);
}
