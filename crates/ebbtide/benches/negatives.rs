//! What negative results are worth: `cargo bench -p ebbtide --bench negatives -- [GETS]` (default: 20,000,000, about a
//! minute). It prints a table of hits and backend load.
//!
//! The mix is that of CacheLib's graph_cache (section 3.5): 55.6 % of the gets are for keys that do not exist in the
//! backend. Both kinds of keys have their popularity by a power law of exponent 0.9. Each 2,000th operation creates an
//! object that did not exist. All caches have the same memory:
//!
//! - without: a key that the backend does not have is asked for there each time.
//! - empty values: the store keeps an empty value for such a key.
//! - compact pool: a part of the memory is a compact pool for such keys.
//!
//! Each answer is compared with the backend: no key is absent that exists. Not measured: time, threads, flash.

use ebbtide::compact::{Lookup, NegativeCache};
use ebbtide::{ByteSize, Cache, Error, PoolOptions};
use std::collections::HashSet;

const MEMORY: ByteSize = ByteSize::mib(64);
const OBJECTS: u64 = 2_000_000;
const ABSENT: u64 = 4_000_000;
const ABSENT_GETS_PER_MILLE: u64 = 556;
const EXPONENT: f64 = 0.9;
const CREATE_EVERY: u64 = 2000;
const KEY_BYTES: usize = 16;
const NEGATIVES: &str = "negatives";

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A rank below `count`, by a power law.
    fn rank(&mut self, count: u64) -> u64 {
        let power = 1.0 - EXPONENT;
        let rank = (((count as f64).powf(power) - 1.0) * self.unit() + 1.0).powf(1.0 / power);
        (rank as u64 - 1).min(count - 1)
    }
}

/// Numbers below `OBJECTS` exist, those after them when they were created.
fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key[8..].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    key
}

/// 20 to 275 bytes that depend on the number.
fn value(number: u64) -> Vec<u8> {
    vec![number as u8 | 1; 20 + (number.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 56) as usize]
}

/// How negative results are kept.
enum Kind {
    Without(Cache),
    EmptyValues(Cache),
    Compact(NegativeCache, Cache),
}

impl Kind {
    fn compact(share: u64) -> Self {
        let bytes = ByteSize::bytes(MEMORY.as_bytes() / share);
        let negatives = PoolOptions::named(NEGATIVES).compact(KEY_BYTES, 0).min(bytes).max(bytes);
        let cache = Cache::builder().memory(MEMORY).pool(negatives).build().expect("the machine has 64 MiB");
        Self::Compact(cache.with_negatives(cache.compact_pool(NEGATIVES).expect("it was built")), cache)
    }

    /// Whether the cache has answered, and the answer: whether the key exists.
    fn get(&self, number: u64, exists: bool) -> Result<(bool, bool), Error> {
        let key = key(number);
        match self {
            Self::Without(cache) | Self::EmptyValues(cache) => {
                if let Some(is_object) = cache.with(key, |value| !value.is_empty()) {
                    return Ok((true, is_object));
                }
                match (exists, self) {
                    (true, _) => cache.insert(key, value(number))?,
                    (false, Self::EmptyValues(_)) => cache.insert(key, "")?,
                    (false, _) => {}
                }
            }
            Self::Compact(cache, _) => {
                let mut is_asked = false;
                let found = cache.get_or_load(key, || {
                    is_asked = true;
                    Ok::<_, std::convert::Infallible>(exists.then(|| value(number)))
                });
                let found = found.expect("the loader does not fail");
                return Ok((!is_asked, matches!(found, Lookup::Hit(_))));
            }
        }
        Ok((false, exists))
    }

    fn create(&self, number: u64) -> Result<(), Error> {
        match self {
            Self::Without(cache) | Self::EmptyValues(cache) => cache.insert(key(number), value(number)),
            Self::Compact(cache, _) => cache.insert(key(number), value(number)),
        }
    }

    fn cache(&self) -> &Cache {
        match self {
            Self::Without(cache) | Self::EmptyValues(cache) | Self::Compact(_, cache) => cache,
        }
    }
}

/// Counts of the second half of a run, when the caches are full. By key: of objects, of absent ones.
#[derive(Default)]
struct Counts {
    gets: [u64; 2],
    hits: [u64; 2],
}

fn run(kind: &Kind, gets: u64) -> Result<Counts, Error> {
    let (mut random, mut created, mut counts) = (Random(40), HashSet::new(), Counts::default());
    for operation in 0..gets {
        let is_absent = random.next() % 1000 < ABSENT_GETS_PER_MILLE;
        let number = if is_absent { OBJECTS + random.rank(ABSENT) } else { random.rank(OBJECTS) };
        if is_absent && operation % CREATE_EVERY == 0 {
            created.insert(number);
            kind.create(number)?;
        }
        let exists = !is_absent || created.contains(&number);
        let (is_hit, answer) = kind.get(number, exists)?;
        assert_eq!(answer, exists, "the answer for key {number} is wrong");
        if operation >= gets / 2 {
            counts.gets[usize::from(!exists)] += 1;
            counts.hits[usize::from(!exists)] += u64::from(is_hit);
        }
    }
    Ok(counts)
}

fn print(name: &str, kind: &Kind, counts: &Counts, without: f64) -> f64 {
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole as f64;
    let (gets, hits) = (counts.gets.iter().sum(), counts.hits.iter().sum());
    let load = 100.0 - percent(hits, gets);
    let stats = kind.cache().stats();
    let negatives = kind.cache().compact_pool(NEGATIVES).map_or(0, |pool| pool.stats().entries);
    println!(
        "| {name} | {:.1} % | {:.1} % | {:.1} % | {load:.1} % | {:.2} | {} | {negatives} |",
        percent(hits, gets),
        percent(counts.hits[0], counts.gets[0]),
        percent(counts.hits[1], counts.gets[1]),
        load / if without == 0.0 { load } else { without },
        stats.entries,
    );
    load
}

type Build<'b> = &'b dyn Fn() -> Result<Kind, Error>;

fn main() -> Result<(), Error> {
    let gets = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(20_000_000);
    let plain = || Cache::builder().memory(MEMORY).build();
    println!("{gets} gets, {} MiB, {OBJECTS} objects, {ABSENT} absent keys", MEMORY.as_bytes() >> 20);
    println!();
    println!(
        "| negative results | hits | of objects | of absent keys | backend load | to without | entries | negatives |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut without = 0.0;
    let kinds: [(&str, Build<'_>); 5] = [
        ("without", &|| plain().map(Kind::Without)),
        ("empty values in the store", &|| plain().map(Kind::EmptyValues)),
        ("compact pool, 1/16 of the memory", &|| Ok(Kind::compact(16))),
        ("compact pool, 1/8", &|| Ok(Kind::compact(8))),
        ("compact pool, 1/4", &|| Ok(Kind::compact(4))),
    ];
    for (name, build) in kinds {
        let kind = build()?;
        let load = print(name, &kind, &run(&kind, gets)?, without);
        without = if without == 0.0 { load } else { without };
    }
    Ok(())
}
