//! The words of the library beside those of moka and quick_cache, in one process and one run: the ratio of throughputs.
//!
//! | case | Ebbtide | peers |
//! |---|---|---|
//! | load-hot, load-spread | `get_or_insert_with` | `get_with`, `get_or_insert_with`, values are `Arc<[u8]>` |
//! | read-1k | `with` | `get`, which clones an `Arc` |
//! | copy-100 | `get`, which copies | `get`, which clones an `Arc` |
//! | range | `get_range` of 4 KiB from 1 MiB on flash | `get` of the whole value, from the same flash |
//!
//! Engines take turns in each round, and the median of the rounds counts. Keys are drawn with Zipf 1.0 (hot) or
//! uniformly (spread) from as many as fit all engines, so nearly all lookups are hits.
//!
//! Not measured: hit ratios, latencies, expensive loaders.
#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use clap::Parser;
use ebbtide::{ByteSize, Cache};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// The words of the library beside moka and quick_cache.
#[derive(Parser)]
struct Arguments {
    /// Numbers of threads.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    threads: Vec<usize>,
    /// Keys.
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 500)]
    milliseconds: u64,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// A folder for the flash file of the case `range`; without one it is left out.
    #[arg(long)]
    flash_folder: Option<std::path::PathBuf>,
}

type Bytes = Arc<[u8]>;
type Key = [u8; 8];
type Moka = moka::sync::Cache<Key, Bytes, ahash::RandomState>;
type QuickCache = quick_cache::sync::Cache<Key, Bytes>;

/// One lookup of a key.
type Operation = Box<dyn Fn(&Key) + Sync>;

fn engines(keys: u64, value: &Bytes) -> (Cache, Moka, QuickCache) {
    // Twice the bytes of all entries.
    let memory = ByteSize::mib(64 + (keys * (value.len() as u64 + 64) >> 19));
    let cache = Cache::builder().memory(memory).build().expect("the memory fits");
    let moka = moka::sync::Cache::builder().max_capacity(2 * keys).build_with_hasher(ahash::RandomState::new());
    let quick = QuickCache::new(2 * keys as usize);
    for key in (0..keys).map(u64::to_be_bytes) {
        cache.insert(key, value).expect("there is memory");
        moka.insert(key, Arc::clone(value));
        quick.insert(key, Arc::clone(value));
    }
    (cache, moka, quick)
}

/// The operations of a case: Ebbtide's, moka's, quick_cache's.
fn operations(case: &str, keys: u64) -> [Operation; 3] {
    let bytes = match case {
        "read-1k" => 1024,
        _ => 100,
    };
    let value: Bytes = vec![7; bytes].into();
    let (cache, moka, quick) = engines(keys, &value);
    match case {
        "read-1k" => [
            Box::new(move |key| _ = black_box(cache.with(key, |bytes| bytes[bytes.len() - 1]))),
            Box::new(move |key| _ = black_box(moka.get(key).map(|bytes| bytes[bytes.len() - 1]))),
            Box::new(move |key| _ = black_box(quick.get(key).map(|bytes| bytes[bytes.len() - 1]))),
        ],
        "copy-100" => [
            Box::new(move |key| _ = black_box(cache.get(key))),
            Box::new(move |key| _ = black_box(moka.get(key))),
            Box::new(move |key| _ = black_box(quick.get(key))),
        ],
        _ => {
            let values = [Arc::clone(&value), Arc::clone(&value), value];
            let [own, for_moka, for_quick] = values;
            [
                Box::new(move |key| _ = black_box(cache.get_or_insert_with(key, || Arc::clone(&own)))),
                Box::new(move |key| _ = black_box(moka.get_with(*key, || Arc::clone(&for_moka)))),
                Box::new(move |key| {
                    let load = || Ok::<_, Infallible>(Arc::clone(&for_quick));
                    _ = black_box(quick.get_or_insert_with(key, load));
                }),
            ]
        }
    }
}

/// Operations a second of all threads.
fn measure(arguments: &Arguments, threads: usize, is_hot: bool, operation: &Operation) -> f64 {
    let (start, time) = (Barrier::new(threads), Duration::from_millis(arguments.milliseconds));
    let counts = std::thread::scope(|scope| {
        let spawned: Vec<_> = (0..threads)
            .map(|number| {
                let start = &start;
                scope.spawn(move || {
                    let mut random = SmallRng::seed_from_u64(number as u64);
                    let zipf = Zipf::new(arguments.keys as f64, 1.0).expect("the exponent is valid");
                    let drawn: Vec<Key> = (0..1 << 16)
                        .map(|_| match is_hot {
                            true => (zipf.sample(&mut random) as u64 - 1).to_be_bytes(),
                            false => random.random_range(0..arguments.keys).to_be_bytes(),
                        })
                        .collect();
                    start.wait();
                    let (started, mut count) = (Instant::now(), 0_u64);
                    while started.elapsed() < time {
                        let from = (count % (1 << 16)) as usize;
                        drawn[from..from + 256].iter().for_each(operation);
                        count += 256;
                    }
                    count as f64 / started.elapsed().as_secs_f64()
                })
            })
            .collect();
        spawned.into_iter().map(|thread| thread.join().expect("the engine does not panic")).sum()
    });
    counts
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn compare(arguments: &Arguments, case: &str, is_hot: bool) {
    let operations = operations(case, arguments.keys);
    for &threads in &arguments.threads {
        let mut rates = [vec![], vec![], vec![]];
        for _ in 0..arguments.rounds {
            for (operation, rates) in operations.iter().zip(&mut rates) {
                rates.push(measure(arguments, threads, is_hot, operation));
            }
        }
        let [ebbtide, moka, quick] = rates.map(median);
        let (to_moka, to_quick) = (ebbtide / moka, ebbtide / quick);
        println!("{case},{threads},{ebbtide:.0},{moka:.0},{quick:.0},{to_moka:.2},{to_quick:.2}");
    }
}

/// A part of long values on flash against the whole: times of one lookup.
fn compare_ranges(arguments: &Arguments, folder: &std::path::Path) {
    const VALUES: u32 = 256;
    let path = folder.join("ebbtide-library-range.flash");
    let cache = Cache::builder()
        .memory(ByteSize::mib(64))
        .flash(&path, ByteSize::gib(1))
        .engine(|engine| {
            let engine = engine.flash_demotion_wait(Duration::from_secs(60));
            engine.flash_promotion(ebbtide::memcached::FlashPromotion::Never)
        })
        .build()
        .expect("the flash file can be made");
    let value = vec![7; 1000 << 10];
    (0..VALUES).for_each(|number| cache.insert(number.to_be_bytes(), &value).expect("there is memory"));
    // The first values have gone to flash.
    let time = |read: &dyn Fn([u8; 4])| {
        let started = Instant::now();
        (0..VALUES / 2).for_each(|number| read(number.to_be_bytes()));
        started.elapsed().as_secs_f64() / f64::from(VALUES / 2)
    };
    let (mut parts, mut wholes) = (vec![], vec![]);
    for _ in 0..arguments.rounds {
        parts.push(time(&|key| _ = black_box(cache.get_range(key, 512 << 10, 4 << 10))));
        wholes.push(time(&|key| _ = black_box(cache.get(key))));
    }
    let (part, whole) = (median(parts) * 1e6, median(wholes) * 1e6);
    println!("\nrange: 4 KiB in {part:.0} us, the whole of 1000 KiB in {whole:.0} us: {:.1} times", whole / part);
    drop(cache);
    // A file that stays costs space and nothing else.
    let _ = std::fs::remove_file(&path);
}

fn main() {
    let arguments = Arguments::parse();
    println!("case,threads,ebbtide/s,moka/s,quick_cache/s,ebbtide/moka,ebbtide/quick_cache");
    compare(&arguments, "load-hot", true);
    compare(&arguments, "load-spread", false);
    compare(&arguments, "read-1k", false);
    compare(&arguments, "copy-100", false);
    if let Some(folder) = &arguments.flash_folder {
        compare_ranges(&arguments, folder);
    }
}
