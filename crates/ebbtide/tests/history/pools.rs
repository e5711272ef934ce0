//! Histories of pools over flash: each has its own record, and a value of another pool is foreign. Threads use them
//! while they are resized, flushed, removed and added again. Handles of values are held over all of that, and those of
//! removed pools are used.
//!
//! The record of a pool goes on when the pool is removed and another one gets its name: removal counts as a flush, so
//! anything that a removed pool served later, or that its successor found, would be stale.

use crate::player::{Player, Table};
use crate::value;
use crate::{Mover, THREADS, origins, unix_ms};
use ebbtide::memcached::{ByteSize, Cache, Clock, Error, FlashOptions, Handle, Mode, Pool, PoolOptions, Ttl};
use ebbtide_flash::admission::AdmissionOptions;
use ebbtide_flash::device::{Delivery, Device, Faults, FaultyDevice};
use ebbtide_testkit::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Operations of all pools together, unless `EBBTIDE_HISTORY_OPERATIONS` is set.
const OPERATIONS: u64 = 90_000;
const ROUNDS: u64 = 6;
const KEYS: u64 = 900;
/// Threads of one pool.
const PLAYERS: usize = 2;
const TENANT: &str = "tenant";

/// Values that are held at a time.
const HELD: usize = 40;

/// Values held over changes of their pools, with their bytes.
#[derive(Default)]
struct Held(Vec<(Handle, Vec<u8>)>);

fn bytes_of(handle: &Handle) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(handle.len());
    while bytes.len() < handle.len() {
        bytes.extend_from_slice(handle.slice_at(bytes.len()));
    }
    bytes
}

impl Held {
    /// Holds values of a pool, some in place of others.
    fn hold(&mut self, pool: &Pool, random: &mut Random) {
        for _ in 0..HELD / 2 {
            let key = value::name(random.uniform(KEYS));
            let Some(handle) = pool.get(&key).hit().and_then(|item| item.to_handle().ok()) else { continue };
            if self.0.len() == HELD {
                self.0.swap_remove(random.uniform(HELD as u64) as usize);
            }
            let bytes = bytes_of(&handle);
            self.0.push((handle, bytes));
        }
    }

    fn check(&self) {
        assert!(self.0.iter().all(|(handle, bytes)| bytes_of(handle) == *bytes), "a handle keeps its bytes");
    }
}

/// The handle of a pool that was removed finds nothing, and answers its error.
fn check_removed(pool: &Pool) {
    let removed = || Error::PoolRemoved { name: TENANT.to_owned() };
    for key in (0..KEYS).map(value::name) {
        assert!(!pool.get(&key).is_hit() && !pool.delete(&key), "a removed pool has nothing");
        for mode in [Mode::Set, Mode::Add, Mode::Replace, Mode::Append, Mode::Cas(1)] {
            assert_eq!(pool.insert(&key, b"1").mode(mode).apply(), Err(removed()));
        }
        assert_eq!(pool.touch(&key, Ttl::Never), Err(removed()));
        assert_eq!(pool.increment(&key, 1), Err(removed()));
    }
    assert_eq!(pool.resize(ByteSize::kib(0), ByteSize::mib(1)), Err(removed()));
    assert_eq!(pool.release(), Err(removed()));
}

/// Changes the pools of a cache as an operator does, until the players of a round are done.
fn manage(cache: &Cache, tables: [&Table; 3], random: &mut Random, is_over: impl Fn() -> bool) {
    let [default, other, tenant] = tables;
    let (mut is_removed, mut held) = (false, Held::default());
    while !is_over() {
        thread::sleep(Duration::from_millis(1));
        let (low, high) = (ByteSize::kib(random.uniform(1024)), ByteSize::kib(1024 + random.uniform(4096)));
        match random.uniform(40) {
            0..8 => {
                held.hold(&other.pool, random);
                other.pool.resize(low, high).expect("the bounds fit");
            }
            8 => other.pool.release().expect("it is there"),
            9 | 10 => {
                let table = [default, other, tenant][random.uniform(3) as usize];
                held.hold(&table.pool, random);
                let operation = table.record.begin(THREADS, (table.now)().earliest);
                table.pool.flush(Duration::ZERO);
                table.record.flushed(operation);
                table.record.over(THREADS);
            }
            11 if !is_removed => {
                held.hold(&tenant.pool, random);
                let operation = tenant.record.begin(THREADS, (tenant.now)().earliest);
                cache.remove_pool(TENANT).expect("it is there");
                tenant.record.flushed(operation);
                tenant.record.over(THREADS);
                is_removed = true;
                check_removed(&tenant.pool);
            }
            _ => {}
        }
        held.check();
    }
    if !is_removed {
        let operation = tenant.record.begin(THREADS, (tenant.now)().earliest);
        cache.remove_pool(TENANT).expect("it is there");
        tenant.record.flushed(operation);
        tenant.record.over(THREADS);
    }
}

fn run(seed: u64, operations: u64) {
    let (before, unix) = (Instant::now(), unix_ms());
    let device = Arc::new(FaultyDevice::new(12 << 20, seed, Delivery::Later { queue_depth: 200 }));
    device.set(Faults { read_errors: 2000, read_flips: 100, refusals: 50, delays: 20, ..Faults::default() });
    let options = FlashOptions {
        admission: AdmissionOptions { min_ttl_seconds: 1, ..AdmissionOptions::default() },
        small_share: Some(0.4),
        region_bytes: 64 << 10,
        seal_seconds: 3,
        rewrite_threshold: 1,
        ..FlashOptions::default()
    };
    let builder = Cache::builder().memory(ByteSize::mib(6)).max_value(ByteSize::kib(64)).seed(seed);
    let builder = builder.flash_device(Arc::clone(&device) as Arc<dyn Device>).flash_options(options);
    let cache = builder.pool(PoolOptions::named("other")).build().expect("the options are possible");
    let mover = Arc::new(Mover {
        clock: Clock::System,
        built: [before, Instant::now()],
        origins: origins(Clock::System, unix, unix_ms()),
        started: AtomicU64::new(0),
        done: AtomicU64::new(0),
    });
    let pool = |name: &str| cache.pool(name).expect("it is there");
    let mut tenant = None;
    let table = |name: &str| Table::new(cache.clone(), pool(name), KEYS, &mover);
    let (default, other) = (table("default"), table("other"));
    let mut random = Random::new(seed);
    for round in 1..=ROUNDS {
        cache.add_pool(&PoolOptions::named(TENANT)).expect("the name is free");
        let tenant: &mut Table = tenant.get_or_insert_with(|| table(TENANT));
        tenant.pool = pool(TENANT);
        let tenant = &*tenant;
        let tables = [&default, &other, tenant];
        thread::scope(|scope| {
            let last = operations / 3 * round / ROUNDS;
            let play = |(table, thread)| {
                let seed = seed * ROUNDS + round;
                scope.spawn(move || Player::new(table, thread, seed).play(last))
            };
            let players = tables.into_iter().flat_map(|table| (0..PLAYERS).map(move |thread| (table, thread)));
            let players: Vec<_> = players.map(play).collect();
            manage(&cache, tables, &mut random, || players.iter().all(|player| player.is_finished()));
            players.into_iter().for_each(|player| player.join().expect("nobody saw anything wrong"));
        });
        tables.iter().for_each(|table| table.record.verify().unwrap_or_else(|wrong| panic!("{wrong}")));
        let stats = cache.stats();
        assert!(stats.memory_used_bytes <= 6 << 20, "{stats:?}");
    }
    assert!([&default, &other].iter().all(|table| table.hits.load(Relaxed) > operations / 100), "they found something");
    device.set(Faults::default());
    let flash = cache.flash_stats().expect("there is flash");
    assert!(flash.promoted + flash.served > 0, "something came from flash");
    cache.verify();
}

#[test]
fn pools_read_nothing_stale_foreign_or_removed() {
    let asked = std::env::var("EBBTIDE_HISTORY_OPERATIONS").ok();
    let operations = asked.map_or(OPERATIONS, |number| number.parse().expect("a number of operations"));
    let seeds = operations.div_ceil(10 * OPERATIONS);
    for seed in 0..seeds {
        let began = Instant::now();
        run(seed, operations / seeds);
        println!("seed {seed}: {:?}", began.elapsed());
    }
}
