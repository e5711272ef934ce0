//! Random operations against a plain map, with a manual clock.

use crate::common::CacheSubject;
use ebbtide::memcached::{ByteSize, Cache, CacheBuilder, Clock, Policy};
use ebbtide_testkit::{GeneratorOptions, Lives, check};

fn builder(memory: ByteSize, max_value: ByteSize) -> CacheBuilder {
    Cache::builder().memory(memory).memory_ceiling(memory).max_value(max_value).clock(Clock::Manual)
}

fn generator(cache: &Cache, keys: usize) -> GeneratorOptions {
    GeneratorOptions {
        keys,
        segment_bytes: cache.stats().segment_bytes as usize,
        value_limit: cache.max_value().as_bytes() as usize,
        long_values: 10,
        moves_by_maintenance: true,
        steps_back: false,
        flushes: true,
        lives: Lives::All,
    }
}

#[test]
fn a_cache_with_space_equals_the_model() {
    for (seed, segment) in [(1, ByteSize::kib(4)), (2, ByteSize::kib(32)), (3, ByteSize::kib(8))] {
        let cache = builder(ByteSize::mib(64), ByteSize::kib(100)).seed(seed).segment_size(segment).build().unwrap();
        let generator = generator(&cache, 150);
        check(&mut CacheSubject::new(cache.clone()), seed, generator, false, 8000);
        let stats = cache.stats();
        assert_eq!((stats.evictions, stats.index_replaced), (0, 0), "the cache had space");
    }
}

#[test]
fn a_full_cache_returns_no_wrong_value() {
    for (number, policy) in Policy::ALL.into_iter().enumerate() {
        for (memory, segment, max_value) in [(256, 4, 128), (512, 4, 64), (1024, 16, 512), (2048, 8, 20)] {
            let seed = number as u64 * 100 + memory;
            let (memory, max_value) = (ByteSize::kib(memory), ByteSize::kib(max_value));
            let cache = builder(memory, max_value).seed(seed).policy(policy).segment_size(ByteSize::kib(segment));
            let cache = cache.merge_run(2 + number as u32 % 4).build().unwrap();
            let generator = GeneratorOptions { long_values: 5, ..generator(&cache, 400) };
            check(&mut CacheSubject::new(cache), seed, generator, true, 5000);
        }
    }
}

#[test]
fn fast_turnover_never_returns_wrong_values() {
    for (number, policy) in Policy::ALL.into_iter().enumerate() {
        let seed = 7000 + number as u64;
        let cache = builder(ByteSize::kib(512), ByteSize::kib(128)).seed(seed).policy(policy).build().unwrap();
        let generator = GeneratorOptions { lives: Lives::Short, ..generator(&cache, 1000) };
        check(&mut CacheSubject::new(cache), seed, generator, true, 6000);
    }
}
