//! The cost of a live profile without a clock: a fixed number of operations, for a counter of instructions.
//!
//! ```text
//! cargo build --release -p ebbtide --example profile_instructions
//! valgrind --tool=callgrind target/release/examples/profile_instructions get|set|insert|mixed on|off RATE OPERATIONS
//! ```
//! Each second of the cache's time has RATE operations: gets that hit, sets that replace, sets of new keys, for which
//! the index grows (up to 300,000 fit), or nine gets to a set. With a profile it is updated each second, as in the
//! server, where another thread does that. `scripts/profile_cost.py --only instructions` runs it with two counts, whose
//! difference leaves the fill out. Not measured: gets that miss, and models of the engine, for which a pool must evict.

use std::hint::black_box;
use std::time::Duration;

use ebbtide::memcached::{ByteSize, Cache, CacheProfile, Clock, Lookup};

const KEYS: u64 = 50_000;
const VALUE: [u8; 100] = [7; 100];

fn get(cache: &Cache, key: u64) {
    match cache.get(&key.to_le_bytes()) {
        Lookup::Hit(item) => _ = black_box(item.len()),
        other => panic!("all keys are there: {}", other.is_hit()),
    }
}

fn set(cache: &Cache, key: u64) {
    cache.insert(&key.to_le_bytes(), &VALUE).apply().expect("the value fits");
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [kind, profiled, rate, operations] = &given[..] else { panic!("KIND on|off RATE OPERATIONS") };
    let [rate, operations] = [rate, operations].map(|number| number.parse::<u64>().expect("a number"));
    let cache = Cache::builder().memory(ByteSize::mib(64)).clock(Clock::Manual).build().expect("64 MiB");
    (0..KEYS).for_each(|key| set(&cache, key));
    let mut profile = (profiled == "on").then(|| CacheProfile::of(&cache));
    let mut state = 7u64;
    for number in 1..=operations {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = (state >> 33) % KEYS;
        match kind.as_str() {
            "get" => get(&cache, key),
            "set" => set(&cache, key),
            "insert" => set(&cache, KEYS + number),
            _ if number % 10 == 0 => set(&cache, key),
            _ => get(&cache, key),
        }
        if number % rate == 0 {
            cache.maintain(Duration::from_secs(number / rate));
            profile.iter_mut().for_each(CacheProfile::update);
        }
    }
}
