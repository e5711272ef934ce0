//! The latency of a set at a fixed rate: `cargo bench -p ebbtide --bench set_latency -- [fill] SECONDS RATE`.
//! The defaults are 60 seconds and 100,000 sets a second.
//!
//! One thread sets keys of 20 bytes with values of 100 to 360 bytes, of ten times as many keys as the cache holds, so
//! that memory is evicted all the time. With `fill` each key is new, has 8 bytes and no value, and nothing is evicted:
//! the index grows from nothing. Each set is due at a fixed time, from which its latency is measured: a set that
//! waits for the one before is late (no coordinated omission). Rounds of a second alternate with rounds in
//! which nothing is set at the due time: what these show is the machine's own.
//!
//! Not measured: several writers, flash, values longer than a segment.

use ebbtide::{ByteSize, Cache};
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

const MEMORY: ByteSize = ByteSize::mib(256);
/// Objects of 255 bytes on average: ten times the memory.
const KEYS: u64 = 10 * (256 << 20) / 255;
const STALL: Duration = Duration::from_millis(1);

/// For keys without values: 10 million and more.
const FILL_MEMORY: ByteSize = ByteSize::mib(1024);

struct Sets {
    cache: Cache,
    random: u64,
    value: [u8; 360],
}

impl Sets {
    fn set(&mut self) {
        // xorshift64 (Marsaglia, 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let key = format!("key:{:016}", self.random % KEYS);
        let length = 100 + (self.random >> 32) as usize % 261;
        self.cache.insert(key, &self.value[..length]).expect("it evicts");
    }

    fn set_new(&mut self) {
        self.random += 1;
        self.cache.insert(self.random.to_le_bytes(), []).expect("there is memory");
    }
}

/// Latencies of a second of calls at this rate, in nanoseconds.
fn second(rate: u64, latencies: &mut Histogram<u64>, mut call: impl FnMut()) {
    let start = Instant::now();
    for number in 0..rate {
        let due = Duration::from_nanos(number * 1_000_000_000 / rate);
        // Ends: the time comes. A sleep would be late by more than is measured.
        while start.elapsed() < due {
            std::hint::spin_loop();
        }
        call();
        let late = start.elapsed() - due;
        latencies.record(late.as_nanos() as u64).expect("a histogram that grows");
    }
}

fn print(name: &str, latencies: &Histogram<u64>) {
    let micros = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
    let stalls = latencies.count_between(STALL.as_nanos() as u64, u64::MAX);
    println!(
        "{name:<8} {:>10} calls   us: p50 {:.2}  p99 {:.2}  p99.9 {:.1}  p99.99 {:.1}  max {:.0}   over 1 ms: {stalls}",
        latencies.len(),
        micros(0.5),
        micros(0.99),
        micros(0.999),
        micros(0.9999),
        latencies.max() as f64 / 1000.0,
    );
}

fn main() {
    // Cargo adds flags of its own.
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut numbers = words.iter().filter_map(|word| word.parse().ok());
    let (seconds, rate): (u64, u64) = (numbers.next().unwrap_or(60), numbers.next().unwrap_or(100_000));
    let fills = words.iter().any(|word| word == "fill");
    let memory = if fills { FILL_MEMORY } else { MEMORY };
    let cache = Cache::builder().memory(memory).build().expect("the machine has the memory");
    let mut sets = Sets { cache, random: 1, value: [7; 360] };
    if !fills {
        (0..KEYS / 5).for_each(|_| sets.set());
        assert!(sets.cache.stats().evictions > 0, "the cache is full");
    }
    let new = || Histogram::new(3).expect("three digits");
    let (mut set, mut nothing) = (new(), new());
    for _ in 0..seconds.div_ceil(2) {
        second(rate, &mut set, || if fills { sets.set_new() } else { sets.set() });
        second(rate, &mut nothing, || {});
    }
    let stats = sets.cache.stats();
    println!("{rate} a second, {memory}: {} entries, {} evictions", sets.cache.entry_count(), stats.evictions);
    assert!(!fills || stats.evictions == 0, "a cache that fills evicts nothing");
    print("set", &set);
    print("nothing", &nothing);
}
