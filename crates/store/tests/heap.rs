//! Many small stores in one process: their statistics include their heap memory. A test program of its own, because it
//! counts the allocations of the whole process.

use ebbtide_store::{EngineMemory, Mode, Options, Store, Ttl, Write};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

const STORES: u64 = 512;
const THREADS: usize = 64;
const MEMORY_BYTES: u64 = 1 << 20;

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

#[test]
fn statistics_include_the_heap_of_stores() {
    let memory = EngineMemory::reserve(STORES * MEMORY_BYTES, STORES as u32).unwrap();
    let before = ALLOCATED.load(Ordering::Relaxed);
    let build = |_| {
        let options =
            Options { memory_bytes: MEMORY_BYTES, value_bytes_max: 64 << 10, writers: THREADS, ..Options::default() };
        Store::build(options, &memory).unwrap()
    };
    let stores: Vec<_> = (0..STORES).map(build).collect();
    let used = |store: &Store| store.stats().memory_used_bytes - store.stats().index_bytes;
    let named: u64 = stores.iter().map(used).sum();
    let heap = ALLOCATED.load(Ordering::Relaxed) - before;
    assert!(heap <= named, "{heap} bytes are allocated, {named} are in the statistics");

    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (stores, memory) = (&stores, &memory);
            scope.spawn(move || {
                let participant = memory.participate();
                for (number, store) in (0..).zip(stores.iter().cycle().skip(thread as usize * 8).take(2048)) {
                    let key = (thread << 32 | number).to_le_bytes();
                    let (hash, ttl) = (store.hash(&key), Ttl::Seconds(1 << (number % 20)));
                    let write =
                        Write { key: &key, hash, value: &[7; 50], flags: 0.into(), ttl, mode: Mode::Set, token: None };
                    while store.write(&participant, &write, 1000).is_err() {
                        store.evict(&participant, 1000);
                    }
                }
            });
        }
    });
    let heap = ALLOCATED.load(Ordering::Relaxed) - before;
    let stats = stores.iter().map(Store::stats);
    let (used, limit) = stats.fold((0, 0), |sum, it| (sum.0 + it.memory_used_bytes, sum.1 + it.memory_limit_bytes));
    assert!(heap <= named, "{heap} bytes are allocated, {named} are in the statistics");
    assert!(used <= limit && limit == STORES * MEMORY_BYTES, "{used} of {limit}");
}
