//! Gets of values on flash in one process, ebbtide and foyer: all keys alike, several gets at a time. Sets of missed
//! keys fill the cache, at a rate that devices sustain, until the hits no longer increase. Both use direct I/O.
//! Concurrent gets are threads for ebbtide, which waits for its reads, and tasks on one thread per core for foyer.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use ebbtide::memcached::{ByteSize, Cache};
use ebbtide_flash_replay::{Failure, exit};
use foyer::{BlockEngineConfig, DeviceBuilder, FileDeviceBuilder, HybridCache, HybridCacheBuilder};
use tokio::runtime::{Builder, Runtime};

/// Maximum number of fill passes, and the gain in hits below which the fill ends.
const PASSES: usize = 4;
const GAIN: f64 = 0.01;
/// Rate of the fill, in bytes per second.
const PACE: f64 = 10e6;
/// Bytes that foyer is charged for each object in memory beside key and value, and the bytes of its flash blocks.
const OBJECT_BYTES: usize = 24;
const BLOCK_BYTES: usize = 16 << 20;

#[derive(Parser)]
struct Args {
    system: Name,
    /// The file, which is made
    #[arg(long)]
    path: PathBuf,
    /// MiB of memory
    #[arg(long, default_value_t = 64)]
    memory: u64,
    /// MiB of flash
    #[arg(long, default_value_t = 2048)]
    flash: u64,
    /// MiB of keys and values
    #[arg(long, default_value_t = 384)]
    data: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 4000)]
    value: usize,
    /// Gets at a time
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    depths: Vec<usize>,
    /// Of each measurement
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Name {
    Ebbtide,
    Foyer,
}

enum System {
    Ebbtide(Cache),
    Foyer(Runtime, HybridCache<Vec<u8>, Vec<u8>>),
}

fn main() -> ExitCode {
    exit(run(&Args::parse()))
}

fn run(args: &Args) -> Result<(), Failure> {
    let system = match args.system {
        Name::Ebbtide => System::ebbtide(args)?,
        Name::Foyer => System::foyer(args)?,
    };
    let keys = (args.data << 20) / (args.value + key(0).len()) as u64;
    fill(&system, keys, args.value)?;
    println!("system,value,depth,hits_per_second,hit_ratio,processor_us_per_get");
    let mut random = Random(0);
    for &depth in &args.depths {
        let (began, before) = (Instant::now(), processor_seconds()?);
        let until = began + Duration::from_secs_f64(args.seconds);
        let (gets, hits) = system.gets(depth, keys, args.value, &mut random, until)?;
        let (seconds, used) = (began.elapsed().as_secs_f64(), processor_seconds()? - before);
        let (rate, ratio) = (hits as f64 / seconds, hits as f64 / gets as f64);
        println!("{:?},{},{depth},{rate:.0},{ratio:.4},{:.1}", args.system, args.value, used / gets as f64 * 1e6);
    }
    Ok(())
}

impl System {
    fn ebbtide(args: &Args) -> Result<Self, Failure> {
        let builder = Cache::builder().memory(ByteSize::mib(args.memory));
        Ok(Self::Ebbtide(builder.flash(&args.path, ByteSize::mib(args.flash)).build()?))
    }

    fn foyer(args: &Args) -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread().enable_all().build()?;
        let cache = runtime.block_on(async {
            let device =
                FileDeviceBuilder::new(&args.path).with_capacity((args.flash as usize) << 20).with_direct(true);
            HybridCacheBuilder::new()
                .with_flush_on_close(false)
                .memory((args.memory as usize) << 20)
                .with_weighter(|key: &Vec<u8>, value: &Vec<u8>| key.len() + value.len() + OBJECT_BYTES)
                .storage()
                .with_engine_config(BlockEngineConfig::new(device.build()?).with_block_size(BLOCK_BYTES))
                .build()
                .await
        })?;
        Ok(Self::Foyer(runtime, cache))
    }

    fn get(&self, key: &[u8], value_bytes: usize) -> Result<bool, Failure> {
        match self {
            Self::Ebbtide(cache) => Ok(has(cache, key, value_bytes)),
            Self::Foyer(runtime, cache) => runtime.block_on(has_foyer(cache, key, value_bytes)),
        }
    }

    fn set(&self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Ebbtide(cache) => _ = cache.insert(key, value).apply()?,
            Self::Foyer(_, cache) => drop(cache.insert(key.to_vec(), value.to_vec())),
        }
        Ok(())
    }

    /// Gets random keys, several at a time. Returns the numbers of gets and of hits. `seeds` continues from one call to
    /// the next: a repeated order of keys would find the objects that its first pass brought into memory.
    fn gets(
        &self,
        depth: usize,
        keys: u64,
        value_bytes: usize,
        seeds: &mut Random,
        until: Instant,
    ) -> Result<(u64, u64), Failure> {
        let mut total = (0, 0);
        let seeds = (0..depth).map(|_| seeds.next());
        match self {
            Self::Ebbtide(cache) => thread::scope(|scope| {
                let reader = |seed| {
                    scope.spawn(move || {
                        let (mut random, mut gets, mut hits) = (Random(seed), 0, 0);
                        while Instant::now() < until {
                            gets += 1;
                            hits += u64::from(has(cache, &key(random.next() % keys), value_bytes));
                        }
                        (gets, hits)
                    })
                };
                for reader in seeds.map(reader).collect::<Vec<_>>() {
                    add(&mut total, reader.join().expect("a reader does not panic"));
                }
                Ok(())
            }),
            Self::Foyer(runtime, cache) => runtime.block_on(async {
                let reader = |seed| {
                    let cache = cache.clone();
                    tokio::spawn(async move {
                        let (mut random, mut gets, mut hits) = (Random(seed), 0, 0);
                        while Instant::now() < until {
                            gets += 1;
                            let key = key(random.next() % keys);
                            hits += u64::from(has_foyer(&cache, &key, value_bytes).await?);
                        }
                        Ok::<_, Failure>((gets, hits))
                    })
                };
                for reader in seeds.map(reader).collect::<Vec<_>>() {
                    add(&mut total, reader.await??);
                }
                Ok::<_, Failure>(())
            }),
        }?;
        Ok(total)
    }
}

fn has(cache: &Cache, key: &[u8], value_bytes: usize) -> bool {
    let found = cache.get(key).hit().map(|item| item.to_vec());
    found.is_some_and(|value| is_of(&value, key, value_bytes))
}

async fn has_foyer(cache: &HybridCache<Vec<u8>, Vec<u8>>, key: &[u8], value_bytes: usize) -> Result<bool, Failure> {
    let found = cache.get(&key.to_vec()).await?;
    Ok(found.is_some_and(|entry| is_of(&entry.value().clone(), key, value_bytes)))
}

/// Values begin with their key.
fn is_of(value: &[u8], key: &[u8], value_bytes: usize) -> bool {
    assert!(value.len() == value_bytes && value.starts_with(key), "a foreign value");
    true
}

fn fill(system: &System, keys: u64, value_bytes: usize) -> Result<(), Failure> {
    let mut before = -1.0;
    for _ in 0..PASSES {
        let (began, mut written, mut hits) = (Instant::now(), 0, 0);
        for number in 0..keys {
            let key = key(number);
            if system.get(&key, value_bytes)? {
                hits += 1;
                continue;
            }
            let mut value = vec![b'.'; value_bytes];
            value[..key.len()].copy_from_slice(&key);
            system.set(&key, &value)?;
            written += value_bytes;
            let due = Duration::from_secs_f64(written as f64 / PACE);
            thread::sleep(due.saturating_sub(began.elapsed()));
        }
        let ratio = f64::from(hits) / keys as f64;
        if ratio - before < GAIN {
            break;
        }
        before = ratio;
    }
    Ok(())
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:020}").into_bytes()
}

fn add(total: &mut (u64, u64), part: (u64, u64)) {
    *total = (total.0 + part.0, total.1 + part.1);
}

/// Of all threads of this process.
fn processor_seconds() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').ok_or("/proc/self/stat has another form")?;
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).map(|field| field.parse().unwrap_or(0)).sum();
    Ok(ticks as f64 / 100.0)
}

/// splitmix64
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
}
