//! The cost of an edit of a structured value, and of edits to others: `cargo bench -p ebbtide --bench structured`.
//!
//! Edits: one entry of a map of 1,000 entries, of 16 bytes each, as an edit in place and as get, decode, change, encode
//! and set by postcard, in turns. Latencies: sets of 100 bytes by one thread beside another one that makes 100,000
//! edits a second, or none, in turns; the first pair of runs, without edits in both, shows the noise. Runs for about a
//! minute.
//!
//! Not measured: flash, contended values, a machine with other work.

use ebbtide::{ByteSize, Cache};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ENTRIES: u64 = 1000;
const ROUNDS: usize = 10;
const EDITS: u64 = 20_000;
const EDITS_PER_SECOND: u64 = 100_000;
const SETS: usize = 1_000_000;

fn cache() -> Cache {
    Cache::builder().memory(ByteSize::mib(256)).build().expect("the machine has 256 MiB")
}

/// Nanoseconds of one call.
fn time(calls: u64, mut call: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    (0..calls).for_each(&mut call);
    start.elapsed().as_nanos() as f64 / calls as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn edits() {
    let cache = cache();
    let map = cache.map::<u64, u64>("map");
    let plain: BTreeMap<u64, u64> = (0..ENTRIES).map(|key| (key, key)).collect();
    map.insert_many(&plain, ebbtide::InsertOptions::new()).expect("a map of 1,000 entries fits");
    let typed = cache.typed::<String, BTreeMap<u64, u64>>();
    let name = "encoded".to_owned();
    typed.insert(&name, &plain).expect("it fits");
    let key = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % ENTRIES;
    let (mut inserts, mut updates, mut whole, mut gets) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        inserts.push(time(EDITS, |number| map.insert(&key(number), &number).expect("it fits")));
        updates.push(time(EDITS, |number| {
            map.update(&key(number), |old| (old.map(|old| old + 1), ())).expect("it fits").expect("it is present");
        }));
        whole.push(time(EDITS / 20, |number| {
            let mut decoded = typed.get(&name).expect("it decodes").expect("it is present");
            decoded.insert(key(number), number);
            typed.insert(&name, &decoded).expect("it fits");
        }));
        gets.push(time(EDITS, |number| assert!(map.get(&key(number)).expect("it decodes").is_some())));
    }
    let (insert, update, whole, get) = (median(inserts), median(updates), median(whole), median(gets));
    println!("map of {ENTRIES} entries, medians of {ROUNDS} rounds");
    println!("  insert                      {insert:9.0} ns   {:5.1} x", whole / insert);
    println!("  update                      {update:9.0} ns   {:5.1} x", whole / update);
    println!("  get of an entry             {get:9.0} ns");
    println!("  get, decode, change, set    {whole:9.0} ns");
}

/// The 99.9th percentile of sets, in nanoseconds.
fn sets(cache: &Cache, edits_per_second: u64) -> f64 {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (start, maps) = (Instant::now(), (0..100).map(|map| format!("map:{map}")).collect::<Vec<_>>());
            let mut done = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                let due = start.elapsed().as_micros() as u64 * edits_per_second / 1_000_000;
                while done < due {
                    let map = cache.map::<u64, u64>(&maps[done as usize % maps.len()]);
                    map.insert(&(done % ENTRIES), &done).expect("it fits");
                    done += 1;
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let value = [7; 100];
        let mut nanoseconds: Vec<u64> = (0..SETS as u64)
            .map(|number| {
                let start = Instant::now();
                cache.insert((number % 500_000).to_le_bytes(), value).expect("it evicts");
                start.elapsed().as_nanos() as u64
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        nanoseconds.sort_unstable();
        nanoseconds[SETS - SETS / 1000] as f64
    })
}

fn latencies() {
    let cache = cache();
    sets(&cache, 0);
    let (mut alone, mut again, mut beside) = (vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        alone.push(sets(&cache, 0));
        again.push(sets(&cache, 0));
        beside.push(sets(&cache, EDITS_PER_SECOND));
    }
    let (alone, again, beside) = (median(alone), median(again), median(beside));
    println!("p99.9 of sets, medians of {ROUNDS} rounds");
    println!("  no edits                    {alone:9.0} ns");
    println!("  no edits, again             {again:9.0} ns   {:+5.1} %", (again / alone - 1.0) * 100.0);
    println!("  {EDITS_PER_SECOND} edits a second       {beside:9.0} ns   {:+5.1} %", (beside / alone - 1.0) * 100.0);
}

fn main() {
    edits();
    latencies();
}
