//! The cost of a value that is produced in pieces: `cargo bench -p ebbtide --bench allocation`.
//!
//! A producer writes each value into a new `Vec` that is then inserted, or into an allocation that is then published,
//! in turns. One thread overwrites 64 MiB of values in a cache of 256 MiB, so nothing is evicted. The medians of the
//! rounds and their ratio. Runs for about a minute.
//!
//! Not measured: several threads, evictions, values longer than a segment (both copy them), a machine with other work.

use ebbtide::{ByteSize, Cache, Ttl};
use std::time::Instant;

const ROUNDS: usize = 11;
const BYTES: usize = 64 << 20;
const PIECE: usize = 1024;

/// Writes a value piece by piece, as a decoder or a socket does.
fn produce(value: &mut [u8], seed: u64) {
    let piece = [seed as u8; PIECE];
    value.chunks_mut(PIECE).for_each(|chunk| chunk.copy_from_slice(&piece[..chunk.len()]));
}

/// Nanoseconds of one value.
fn time(count: usize, mut write: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    (0..count as u64).for_each(&mut write);
    start.elapsed().as_nanos() as f64 / count as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let cache = Cache::builder().memory(ByteSize::mib(256)).build().expect("the machine has 256 MiB");
    println!("| bytes | insert, ns | allocate and publish, ns | ratio |\n|---|---|---|---|");
    for bytes in [1 << 10, 4 << 10, 16 << 10, 60 << 10, 200 << 10] {
        cache.invalidate_all();
        let count = BYTES / bytes;
        let (mut inserts, mut allocations) = (vec![], vec![]);
        for _ in 0..ROUNDS {
            inserts.push(time(count, |number| {
                let mut value = vec![0; bytes];
                produce(&mut value, number);
                cache.insert(number.to_le_bytes(), value).expect("it fits");
            }));
            allocations.push(time(count, |number| {
                let mut value = cache.allocate(number.to_le_bytes(), bytes, Ttl::Never).expect("it fits");
                produce(&mut value, number);
                value.publish().expect("it fits");
            }));
        }
        let (insert, allocation) = (median(inserts), median(allocations));
        println!("| {bytes} | {insert:.0} | {allocation:.0} | {:.2} |", insert / allocation);
    }
}
