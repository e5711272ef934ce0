//! Flash of a terabyte, simulated: `make terabyte [SCALE=64]`, or
//! `cargo bench -p ebbtide-flash --features test-devices --bench terabyte -- [SCALE]`.
//!
//! The real formats on a device that keeps its blocks compressed in memory (`CompressedDevice`): a capacity of 1 TB /
//! SCALE of objects of 4 KiB, then of 300 B, is filled, turned over once, killed and started again. A sample of all
//! objects that were ever written is looked up: a value that is not its key's is an error.
//!
//! Not shown: the time of a device. Addresses of 4 and 16 TB are in the tests of the layout. A SCALE of 256 takes 1 GB
//! of memory and some minutes, 64 four times as much, a whole terabyte (1) 100 GB and days.

mod scenario;

use scenario::{Plan, run};

const TERABYTE: u64 = 1 << 40;
const BLOCK: u64 = 4096;

fn main() {
    let scale = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(64_u64).max(1);
    let capacity = TERABYTE / scale / BLOCK * BLOCK;
    println!("1 TB / {scale} = {} MiB", capacity >> 20);
    println!(
        "| value bytes | written | found of looked up | newest quarter found | wrong | start, s | longest pause, ms \
         | memory, MiB: full, started | bytes per object | compressed, MiB |\n|---|---|---|---|---|---|---|---|---|---|"
    );
    for (value_bytes, small_share) in [(4096, 0.01), (300, 0.99)] {
        let folder = tempfile::tempdir().expect("a folder for the deletion log");
        let outcome = run(&Plan { capacity, value_bytes, small_share, sample: 97 }, folder.path());
        let (full, started) = outcome.memory_bytes;
        println!(
            "| {value_bytes} | {} | {} of {} | {} of {} | {} | {:.2} | {:.1} | {}, {} | {:.2} | {} |",
            outcome.written,
            outcome.found,
            outcome.looked_up,
            outcome.newest.0,
            outcome.newest.1,
            outcome.wrong,
            outcome.start.as_secs_f64(),
            outcome.longest_pause.as_secs_f64() * 1e3,
            full >> 20,
            started >> 20,
            full as f64 / outcome.objects.max(1) as f64,
            outcome.compressed_bytes >> 20,
        );
        outcome.notices.iter().for_each(|notice| println!("    {notice}"));
        assert_eq!(outcome.wrong, 0, "wrong values");
    }
}
