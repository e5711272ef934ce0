//! Pools beside one pool: `cargo bench -p ebbtide --bench pools -- [many|move|shrink|isolation] [--scale PERCENT]`.
//!
//! - `many`: 512 pools in 2 GiB beside one pool of 2 GiB on the same merged load, 4 threads: operations a second by
//!   kind in turns, misses, resident memory.
//! - `move`: 1 GiB moves from one pool to another while both and a third one are used: latency of the third, resident
//!   memory, time.
//! - `shrink`: a pool of 50 M objects of 16 bytes shrinks to a tenth: when its index is back.
//! - `isolation`: one tenant is flooded with ten times its memory, values of all sizes: hits of the others, in memory
//!   and with flash.
//!
//! `--scale` changes all sizes, for a trial; `many` needs 10. All parts take about six minutes and 6 GiB. Not measured:
//! a machine with other work, pools of different policies.

use ebbtide::{ByteSize, Cache, CacheBuilder, Error, Pool, PoolOptions};
use ebbtide_testkit::Random;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

const MIB: u64 = 1 << 20;
const THREADS: u64 = 4;
const VALUE: [u8; 230] = [7; 230];
/// Key, metadata and index of an object beside its value.
const OVERHEAD_BYTES: u64 = 8 + 5 + 10;
const ROUNDS: usize = 5;
/// The share of flash of each of the five tenants beside a flood: their objects and the flood do not fit.
const FLASH_PERCENT: u8 = 18;
/// A wait of more than this is a failure.
const PATIENCE: Duration = Duration::from_secs(600);

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("the second number");
    pages * 4096
}

/// Half of the draws go to the first eighth of the keys.
fn draw(random: &mut Random, keys: u64) -> u64 {
    let unit = random.uniform(1 << 32) as f64 / (1_u64 << 32) as f64;
    ((unit * unit * unit) * keys as f64) as u64
}

/// The tenants of one load: each has a pool, or all have one.
struct Tenants {
    pools: Vec<Pool>,
    tenants: u64,
    /// Keys of one tenant.
    keys: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    LookAside,
    Get,
    Set,
    Remove,
}

/// Inserts that the full memory refused, each repeated.
static REFUSED: AtomicU64 = AtomicU64::new(0);

fn insert(pool: &Pool, key: [u8; 8]) {
    let start = Instant::now();
    while let Err(refusal) = pool.insert(key, VALUE) {
        assert!(matches!(refusal, Error::OutOfMemory { .. }) && start.elapsed() < PATIENCE, "{refusal}");
        REFUSED.fetch_add(1, Ordering::Relaxed);
    }
}

impl Tenants {
    fn one(&self, kind: Kind, random: &mut Random) -> bool {
        let tenant = random.uniform(self.tenants);
        let key = (tenant << 40 | draw(random, self.keys)).to_le_bytes();
        let pool = &self.pools[tenant as usize % self.pools.len()];
        let insert = || insert(pool, key);
        match kind {
            Kind::Get => pool.with(key, |value| assert_eq!(value.len(), VALUE.len())).is_some(),
            Kind::Set => {
                insert();
                true
            }
            Kind::Remove => pool.remove(key),
            Kind::LookAside => {
                let is_hit = pool.with(key, |_| ()).is_some();
                if !is_hit {
                    insert();
                }
                is_hit
            }
        }
    }

    /// Operations a second of all threads, and the share that hit.
    fn run(&self, kind: Kind, operations: u64, seed: u64) -> (f64, f64) {
        let hits = AtomicU64::new(0);
        let start = Instant::now();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let hits = &hits;
                scope.spawn(move || {
                    let mut random = Random::new(seed << 8 | thread);
                    let found = (0..operations / THREADS).filter(|_| self.one(kind, &mut random)).count();
                    hits.fetch_add(found as u64, Ordering::Relaxed);
                });
            }
        });
        let operations = (operations / THREADS * THREADS) as f64;
        (operations / start.elapsed().as_secs_f64(), hits.into_inner() as f64 / operations)
    }
}

fn many(scale: u64) {
    const TENANTS: u64 = 512;
    let memory = 2048 * MIB * scale / 100;
    let keys = memory * 3 / 2 / (VALUE.len() as u64 + OVERHEAD_BYTES) / TENANTS;
    let operations = 2 * keys * TENANTS;
    let builder = || Cache::builder().memory(ByteSize::bytes(memory)).max_value(ByteSize::kib(64));
    let name = |tenant: u64| format!("tenant-{tenant}");
    let before = resident_bytes();
    let builder_of_pools =
        (0..TENANTS).fold(builder(), |builder, tenant| builder.pool(PoolOptions::named(name(tenant))));
    let with_pools = builder_of_pools.build().expect("the machine has the memory");
    let pools = (0..TENANTS).map(|tenant| with_pools.pool(&name(tenant)).expect("it was made")).collect();
    let pools = Tenants { pools, tenants: TENANTS, keys };
    pools.run(Kind::LookAside, 2 * operations, 1);
    let resident = resident_bytes() - before;
    let of_limit = resident as f64 / memory as f64;
    println!("512 pools in {} MiB: resident {} MiB, {of_limit:.3} of the limit", memory / MIB, resident / MIB);
    let whole = builder().build().expect("the machine has the memory");
    let one = Tenants { pools: vec![whole.pool("default").expect("it is always there")], tenants: TENANTS, keys };
    one.run(Kind::LookAside, 2 * operations, 1);
    println!(
        "{:<12} {:>10} {:>10} {:>7} {:>11} {:>11}",
        "operations", "pools M/s", "one M/s", "ratio", "pools hit", "one hit"
    );
    for (kind, label) in
        [(Kind::LookAside, "look-aside"), (Kind::Get, "get"), (Kind::Set, "set"), (Kind::Remove, "remove")]
    {
        let (mut rates, mut ratios, mut hits) = ([vec![], vec![]], vec![], [vec![], vec![]]);
        for round in 0..ROUNDS {
            let seed = 10 + round as u64;
            let measured = [&pools, &one].map(|tenants| tenants.run(kind, operations / 4, seed));
            ratios.push(measured[0].0 / measured[1].0);
            for (side, (rate, hit)) in measured.into_iter().enumerate() {
                rates[side].push(rate / 1e6);
                hits[side].push(hit);
            }
        }
        let [(pools_rate, one_rate), (pools_hit, one_hit)] = [rates, hits].map(|[a, b]| (median(a), median(b)));
        let ratio = median(ratios);
        println!("{label:<12} {pools_rate:>10.2} {one_rate:>10.2} {ratio:>7.3} {pools_hit:>11.4} {one_hit:>11.4}");
    }
    with_pools.verify();
}

/// The 99th percentile of look-aside requests of one thread, in microseconds.
fn p99(tenants: &Tenants, is_over: impl Fn() -> bool) -> f64 {
    let mut random = Random::new(99);
    let mut latencies = Vec::new();
    while !is_over() {
        let start = Instant::now();
        tenants.one(Kind::LookAside, &mut random);
        latencies.push(start.elapsed().as_nanos() as f64 / 1000.0);
    }
    latencies.sort_by(f64::total_cmp);
    latencies[latencies.len() * 99 / 100]
}

fn moved(scale: u64) {
    let unit = 1024 * MIB * scale / 100;
    let cache = Cache::builder()
        .memory(ByteSize::bytes(3 * unit))
        .max_value(ByteSize::kib(64))
        .pool(PoolOptions::named("giver").min(ByteSize::bytes(unit * 5 / 4)))
        .pool(PoolOptions::named("taker"))
        .pool(PoolOptions::named("other").min(ByteSize::bytes(unit)).max(ByteSize::bytes(unit)))
        .build()
        .expect("the machine has the memory");
    let keys = unit * 2 / (VALUE.len() as u64 + OVERHEAD_BYTES);
    let of = |name: &str| {
        let pools = vec![cache.pool(name).expect("it was made")];
        Tenants { pools, tenants: 1, keys }
    };
    let (giver, taker, other) = (of("giver"), of("taker"), of("other"));
    for tenants in [&giver, &taker, &other] {
        tenants.run(Kind::LookAside, 4 * keys, 5);
    }
    let (is_over, max_resident) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for tenants in [&giver, &taker] {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut random = Random::new(3);
                while !is_over.load(Ordering::Relaxed) {
                    tenants.one(Kind::LookAside, &mut random);
                }
            });
        }
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                max_resident.fetch_max(resident_bytes(), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let window = Duration::from_secs(8);
        let start = Instant::now();
        let before = p99(&other, || start.elapsed() > window);
        let limits = || [&giver, &taker].map(|tenants| tenants.pools[0].stats().memory_limit_bytes);
        let [from, to] = limits();
        let start = Instant::now();
        let smallest = ByteSize::bytes(from - unit);
        giver.pools[0].resize(smallest, smallest).expect("the bounds fit");
        let larger = ByteSize::bytes(to + unit);
        taker.pools[0].resize(larger, larger).expect("the bounds fit");
        let is_there = || limits()[1] >= to + unit * 99 / 100;
        let during = p99(&other, || {
            assert!(start.elapsed() < PATIENCE, "it does not end: {:?}", limits());
            is_there()
        });
        let seconds = start.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        let expected = unit as f64 / (256 * MIB) as f64;
        println!("{} MiB moved in {seconds:.1} s, {:.2} of what 256 MiB a second says", unit / MIB, seconds / expected);
        println!("p99 of another pool: {before:.2} us before, {during:.2} us during, {:.3}", during / before);
    });
    let max_resident = max_resident.into_inner();
    println!("resident at most {} MiB of {} MiB", max_resident / MIB, 3 * unit / MIB);
    cache.verify();
}

fn shrink(scale: u64) {
    let objects = 50_000_000 * scale / 100;
    let memory = objects * (16 + 5 + 14);
    let cache = Cache::builder()
        .memory(ByteSize::bytes(memory + 64 * MIB))
        .max_value(ByteSize::kib(64))
        .pool(PoolOptions::named("tiny").min(ByteSize::bytes(memory)).max(ByteSize::bytes(memory)))
        .build()
        .expect("the machine has the memory");
    let tiny = cache.pool("tiny").expect("it was made");
    (0..objects).for_each(|key| tiny.insert(key.to_le_bytes(), key.to_le_bytes()).expect("there is memory"));
    let index = || tiny.memcached().stats().index_bytes;
    let (entries, before) = (tiny.entry_count(), index());
    let start = Instant::now();
    let tenth = ByteSize::bytes(memory / 10);
    tiny.resize(tenth, tenth).expect("the bounds fit");
    let is_reached = || tiny.stats().memory_limit_bytes <= memory / 10 + MIB && index() <= before / 9;
    while !is_reached() {
        assert!(start.elapsed() < PATIENCE, "index of {} bytes, {:?}", index(), tiny.stats());
        thread::sleep(Duration::from_millis(50));
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{entries} objects of 16 bytes, index {} MiB: {} MiB after {seconds:.1} s", before / MIB, index() / MIB);
    cache.verify();
}

/// Hits of four tenants while a fifth writes ten times its memory, or nothing.
fn hits_beside(builder: CacheBuilder, pool_bytes: u64, is_flooded: bool, rounds: u64) -> [u64; 4] {
    let size = ByteSize::bytes(pool_bytes);
    let named = |name: String| PoolOptions::named(name).min(size).max(size).flash_share(FLASH_PERCENT);
    let builder = (0..5).fold(builder, |builder, tenant| builder.pool(named(format!("tenant-{tenant}"))));
    let cache = builder.build().expect("the machine has the memory");
    let pools: Vec<_> = (0..5).map(|tenant| cache.pool(&format!("tenant-{tenant}")).expect("it was made")).collect();
    let keys = pool_bytes * 2 / (VALUE.len() as u64 + OVERHEAD_BYTES);
    let (mut random, mut flood, mut flooded) = (Random::new(17), Random::new(18), 0);
    let mut hits = [0; 4];
    let requests = rounds * keys;
    for request in 0..requests {
        for (pool, hits) in pools.iter().zip(&mut hits) {
            let key = draw(&mut random, keys).to_le_bytes();
            if pool.with(key, |_| ()).is_some() {
                *hits += 1;
            } else {
                pool.insert(key, VALUE).expect("there is memory");
            }
        }
        while is_flooded && flooded < 10 * pool_bytes * request / requests {
            let length = 1 << flood.uniform(16);
            pools[4].insert(flood.number().to_le_bytes(), vec![1; length]).expect("there is memory");
            flooded += length as u64;
        }
    }
    cache.verify();
    hits
}

fn isolation(scale: u64) {
    let pool_bytes = 64 * MIB * scale / 100;
    let builder = || Cache::builder().memory(ByteSize::bytes(6 * pool_bytes)).max_value(ByteSize::kib(64));
    let folder = tempfile::tempdir().expect("there is a folder for files");
    let flash = |name: &str| {
        let path = folder.path().join(name);
        builder().flash(path, ByteSize::bytes(8 * pool_bytes))
    };
    let pair = |name: &str, builder: &dyn Fn(&str) -> CacheBuilder| {
        let [quiet, flooded] =
            [false, true].map(|is| hits_beside(builder(if is { "flood" } else { "quiet" }), pool_bytes, is, 6));
        let ratios: Vec<_> = quiet.iter().zip(flooded).map(|(quiet, flooded)| flooded as f64 / *quiet as f64).collect();
        println!("{name}: hits of four tenants {quiet:?}, beside a flood {flooded:?}, ratios {ratios:.4?}");
    };
    pair("memory", &|_| builder());
    pair("flash", &flash);
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let scale_at = arguments.iter().position(|argument| argument == "--scale");
    let scale = scale_at.map_or(100, |at| arguments[at + 1].parse().expect("--scale takes a number of percent"));
    let part = arguments.iter().find(|argument| argument.parse::<u64>().is_err() && !argument.starts_with('-'));
    for (name, run) in [("many", many as fn(u64)), ("move", moved), ("shrink", shrink), ("isolation", isolation)] {
        if part.is_none_or(|part| part == name) {
            println!("## {name}");
            run(scale);
            println!("inserts refused and repeated: {}", REFUSED.swap(0, Ordering::Relaxed));
        }
    }
}
