//! 512 pools that 64 threads use at once. In a process of its own, because it counts threads of the process and reads
//! the resident size.

mod common;

use common::resident_bytes;
use ebbtide::memcached::{ByteSize, Cache, CacheBuilder, PoolOptions, Stored, Ttl};

const MEMORY: u64 = 256 << 20;
const THREADS: u32 = 64;
const STEPS: u32 = 8000;

/// Threads that a cache has started, by the beginning of their names.
fn own_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("ebbtide")).count()
}

#[test]
fn many_pools_have_one_thread_and_one_memory() {
    let before = resident_bytes();
    let named = |number: u32| PoolOptions::named(format!("tenant-{number}"));
    let builder = Cache::builder().memory(ByteSize::bytes(MEMORY)).max_value(ByteSize::kib(64));
    let cache = (0..511).map(named).fold(builder, CacheBuilder::pool).build().unwrap();
    let pools: Vec<_> = cache.pools().iter().map(|name| cache.pool(name).unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let pools = &pools;
            scope.spawn(move || {
                let mut random = thread;
                for step in 0..STEPS {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let pool = &pools[(random >> 8) as usize % pools.len()];
                    let (key, bytes) = ((random >> 4).to_le_bytes(), [20, 400, 2500][step as usize % 3]);
                    let write = pool.insert(&key, &[7; 2500][..bytes]).ttl(Ttl::Seconds((random >> 26) + 600));
                    assert_eq!(write.apply(), Ok(Stored::Stored), "{step} in {}", pool.name());
                }
            });
        }
    });
    assert_eq!(own_threads(), 1, "the thread of maintenance");
    let (stats, resident) = (cache.stats(), resident_bytes() - before);
    assert!(stats.evictions > 10_000 && stats.memory_used_bytes <= MEMORY, "{stats:?}");
    assert!(stats.memory_used_bytes > MEMORY / 10 * 9, "{stats:?}");
    assert!(resident < MEMORY + MEMORY / 20 + (32 << 20), "{resident} bytes are resident: {stats:?}");
    cache.verify();
}
