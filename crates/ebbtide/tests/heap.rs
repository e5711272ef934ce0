//! 512 pools that 64 threads use at once: their heap is in the one number. In a process of its own, because it counts
//! the allocations of the whole process.

use ebbtide::memcached::{ByteSize, Cache, CacheBuilder, Policy, PoolOptions, Stored, Ttl};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

const POOLS: u64 = 512;
const MEMORY: u64 = POOLS << 20;
const THREADS: u64 = 64;
const STEPS: u64 = 8000;

/// Bytes on the heap that belong to no pool: the engine, the queue of its maintenance, the owners of frames, and the
/// membership of 64 threads, some of which may not have ended.
const ENGINE_BYTES: u64 = 128 << 10;

/// Bytes that are allocated.
static ALLOCATED: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: the system's allocator does it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes that were allocated since `before` are named, and all named parts are within the memory.
fn check(cache: &Cache, before: u64, when: &str) {
    let (stats, heap) = (cache.stats(), ALLOCATED.load(Ordering::Relaxed) - before);
    let named = stats.table_bytes + ENGINE_BYTES;
    println!("{when}: {} bytes of heap a pool, {} of tables are named", heap / POOLS, stats.table_bytes / POOLS);
    assert!(heap <= named, "{when}: {heap} bytes are allocated, {named} are named: {stats:?}");
    assert!(stats.memory_used_bytes <= stats.memory_limit_bytes && stats.memory_limit_bytes <= MEMORY, "{stats:?}");
    assert!(stats.table_bytes + stats.index_bytes <= stats.memory_used_bytes, "{stats:?}");
}

#[test]
fn the_heap_of_pools_is_in_their_memory() {
    let before = ALLOCATED.load(Ordering::Relaxed);
    let named = |number: u64| PoolOptions::named(format!("tenant-{number}"));
    // A policy without a history: histories are named among the tables, and are not on the heap.
    let builder = Cache::builder().memory(ByteSize::bytes(MEMORY)).max_value(ByteSize::kib(64)).policy(Policy::Fifo);
    let cache = (1..POOLS).map(named).fold(builder, CacheBuilder::pool).build().unwrap();
    check(&cache, before, "at the start");
    std::thread::scope(|scope| {
        let cache = &cache;
        for thread in 0..THREADS {
            scope.spawn(move || {
                let pools: Vec<_> = cache.pools().iter().map(|name| cache.pool(name).unwrap()).collect();
                for step in 0..STEPS {
                    let number = (thread * STEPS + step).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                    let pool = &pools[(number >> 32) as usize % pools.len()];
                    let value = &[7; 2500][..[20, 400, 2500][step as usize % 3]];
                    let ttl = Ttl::Seconds(1 << (number % 20));
                    let written = pool.insert(&number.to_le_bytes(), value).ttl(ttl).apply();
                    assert_eq!(written, Ok(Stored::Stored), "{step} in {}", pool.name());
                }
            });
        }
    });
    let evictions = cache.stats().evictions;
    assert!(evictions > 10_000, "{evictions}");
    check(&cache, before, "in use");
    cache.verify();
}
