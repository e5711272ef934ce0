//! Random operations against a plain map. Time is an argument and also steps back.

use crate::common::StoreSubject;
use ebbtide_store::{Options, Policy};
use ebbtide_testkit::{GeneratorOptions, Lives, check};

fn generator(subject: &StoreSubject, keys: usize) -> GeneratorOptions {
    GeneratorOptions {
        keys,
        segment_bytes: subject.store.stats().segment_bytes as usize,
        value_limit: subject.store.options().value_bytes_max as usize,
        long_values: 8,
        moves_by_maintenance: false,
        steps_back: true,
        flushes: true,
        lives: Lives::All,
    }
}

fn options(memory_bytes: u64, seed: u64) -> Options {
    Options { memory_bytes, memory_bytes_max: Some(memory_bytes), seed, writers: 2, ..Options::default() }
}

#[test]
fn a_store_with_free_memory_matches_the_model() {
    for (seed, segment_bytes) in [(11, 4096), (12, 1 << 16)] {
        let options =
            Options { segment_size: Some(segment_bytes), value_bytes_max: 200_000, ..options(64 << 20, seed) };
        let mut subject = StoreSubject::new(options);
        let generator = generator(&subject, 150);
        check(&mut subject, seed, generator, false, 8000);
        let stats = subject.store.stats();
        assert_eq!((stats.evictions, stats.index_replaced), (0, 0), "the store had space");
    }
}

#[test]
fn a_full_store_returns_no_wrong_value() {
    for (number, policy) in Policy::ALL.into_iter().enumerate() {
        for (memory_kib, segment_kib, value_kib, lives) in [
            (256, 4, 128, Lives::All),
            (300, 8, 100, Lives::Short),
            (1024, 4, 30, Lives::All),
            (1024, 32, 512, Lives::Short),
        ] {
            let seed = 1000 * (number as u64 + 1) + memory_kib;
            let options = Options {
                segment_size: Some(segment_kib << 10),
                value_bytes_max: value_kib << 10,
                policy,
                merge_run: 2 + number as u32 % 5,
                ..options(memory_kib << 10, seed)
            };
            let mut subject = StoreSubject::new(options);
            let generator = GeneratorOptions { lives, ..generator(&subject, 500) };
            check(&mut subject, seed, generator, true, 5000);
        }
    }
}
