//! The latency of a set in a full cache at a fixed rate: `cargo bench -p ebbtide --bench set_latency -- SECONDS RATE`,
//! 60 seconds and 100,000 sets a second if nothing is said.
//!
//! One thread sets keys of 20 bytes with values of 100 to 360 bytes, of ten times as many keys as the cache holds, so
//! that memory is evicted all the time. Each set is due at a fixed time, from which its latency is measured: a set that
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
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let (seconds, rate): (u64, u64) = (numbers.next().unwrap_or(60), numbers.next().unwrap_or(100_000));
    let cache = Cache::builder().memory(MEMORY).build().expect("the machine has the memory");
    let mut sets = Sets { cache, random: 1, value: [7; 360] };
    for _ in 0..KEYS / 5 {
        sets.set();
    }
    assert!(sets.cache.stats().evictions > 0, "the cache is full");
    let new = || Histogram::new(3).expect("three digits");
    let (mut set, mut nothing) = (new(), new());
    for _ in 0..seconds.div_ceil(2) {
        second(rate, &mut set, || sets.set());
        second(rate, &mut nothing, || {});
    }
    println!("{rate} a second, {MEMORY} full, {} evictions", sets.cache.stats().evictions);
    print("set", &set);
    print("nothing", &nothing);
}
