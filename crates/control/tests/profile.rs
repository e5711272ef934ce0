//! Profiles against an LRU cache that is simulated object by object, with TTLs, deletes and overwrites.

use std::collections::VecDeque;

use ebbtide_control::{Options, Profiler};

/// A look-aside LRU cache of some bytes, by its definition.
struct Cache {
    limit: u64,
    /// Key, bytes, expiry (0 is never); the least recent first.
    objects: VecDeque<(u64, u64, u64)>,
    misses: u64,
}

impl Cache {
    fn new(limit: u64) -> Self {
        Self { limit, objects: VecDeque::new(), misses: 0 }
    }

    fn remove(&mut self, key: u64) -> Option<(u64, u64, u64)> {
        let at = self.objects.iter().position(|object| object.0 == key)?;
        self.objects.remove(at)
    }

    fn expire(&mut self, now: u64) {
        self.objects.retain(|object| object.2 == 0 || object.2 > now);
    }

    fn set(&mut self, key: u64, bytes: u64, expires_at: u64) {
        self.remove(key);
        self.objects.push_back((key, bytes, expires_at));
        while self.objects.iter().map(|object| object.1).sum::<u64>() > self.limit {
            self.objects.pop_front();
        }
    }

    fn get(&mut self, key: u64, bytes: u64, expires_at: u64) {
        match self.remove(key) {
            Some(object) => self.objects.push_back(object),
            None => {
                self.misses += 1;
                self.set(key, bytes, expires_at);
            }
        }
    }
}

/// Draws keys, some of them far more often than others.
struct Keys(u64);

impl Keys {
    fn random(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn next(&mut self, count: u64) -> u64 {
        let uniform = (self.random() % 1_000_000) as f64 / 1e6;
        (uniform * uniform * uniform * count as f64) as u64
    }
}

fn size_of(key: u64) -> u64 {
    40 + key * 7919 % 400
}

#[test]
fn an_exact_profile_is_the_simulation() {
    let sizes = [2_000, 5_000, 10_000, 20_000, 40_000, 80_000, 200_000];
    let mut caches = sizes.map(Cache::new);
    let mut profiler = Profiler::new(Options::exact());
    let (mut keys, mut gets) = (Keys(1), 0u64);
    for step in 0..60_000u64 {
        let (now, key) = (step / 100, keys.next(400));
        // As the model has it: an object lives as long as its first write says.
        let (ttl, bytes) = ([0, 50, 300][(key % 3) as usize], size_of(key));
        let expires_at = if ttl == 0 { 0 } else { now + ttl };
        caches.iter_mut().for_each(|cache| cache.expire(now));
        match keys.random() % 20 {
            0 => {
                caches.iter_mut().for_each(|cache| _ = cache.remove(key));
                profiler.delete(key, now);
            }
            1 => {
                caches.iter_mut().for_each(|cache| cache.set(key, bytes, expires_at));
                profiler.set(key, bytes, ttl as u32, now);
            }
            _ => {
                gets += 1;
                caches.iter_mut().for_each(|cache| cache.get(key, bytes, expires_at));
                profiler.get(key, bytes, ttl as u32, now);
            }
        }
    }
    let curve = profiler.curve(&sizes);
    for (point, cache) in curve.points().iter().zip(&caches) {
        let simulated = cache.misses as f64 / gets as f64;
        assert!((point.miss_ratio - simulated).abs() < 0.012, "{point:?}: {simulated}");
        assert_eq!((point.low, point.high), (point.miss_ratio, point.miss_ratio), "nothing was sampled");
        assert_eq!((point.byte_low, point.byte_high), (point.byte_miss_ratio, point.byte_miss_ratio));
    }
    assert_eq!(profiler.sample_rate(), 1.0);
}

#[test]
fn sampled_curves_are_near_with_valid_intervals() {
    let sizes: Vec<u64> = (0..20).map(|step| (30_000.0 * 1.5f64.powi(step)) as u64).collect();
    let (mut inside, mut bytes_inside, mut worst) = (0, 0, 0.0f64);
    for seed in 1..=5 {
        let mut exact = Profiler::new(Options::exact());
        let mut sampled = Profiler::new(Options { max_sampled: Some(4096), max_top: 4096, ..Options::default() });
        let mut keys = Keys(seed);
        for step in 0..400_000u64 {
            let key = keys.next(200_000) ^ seed << 40;
            for profiler in [&mut exact, &mut sampled] {
                profiler.get(key, size_of(key), 0, step / 1000);
            }
        }
        assert!(sampled.sample_rate() < 0.1, "{}", sampled.sample_rate());
        assert!((sampled.footprint_bytes() / exact.footprint_bytes() - 1.0).abs() < 0.05);
        let (exact, sampled) = (exact.curve(&sizes), sampled.curve(&sizes));
        let widest = sampled.points().iter().map(|point| point.byte_high - point.byte_low).fold(0.0, f64::max);
        assert!(widest > 0.002 && widest < 0.08, "{widest}");
        for (exact, sampled) in exact.points().iter().zip(sampled.points()) {
            worst = worst.max((exact.miss_ratio - sampled.miss_ratio).abs());
            inside += u32::from((sampled.low..=sampled.high).contains(&exact.miss_ratio));
            bytes_inside += u32::from((sampled.byte_low..=sampled.byte_high).contains(&exact.byte_miss_ratio));
        }
    }
    assert!(worst < 0.03, "{worst}");
    assert!(inside >= 90 && bytes_inside >= 90, "{inside} and {bytes_inside} of 100 points lie in the interval");
}

#[test]
fn large_objects_count_although_small_ones_are_sampled() {
    // One object in 500 has 1 MB and makes 95 % of the bytes: without it distances would be guesses.
    let bytes = |key: u64| if key.is_multiple_of(500) { 1 << 20 } else { 100 };
    let mut exact = Profiler::new(Options::exact());
    let mut sampled = Profiler::new(Options { max_sampled: Some(2048), max_top: 1024, ..Options::default() });
    let mut keys = Keys(9);
    for step in 0..300_000u64 {
        let key = keys.next(50_000);
        for profiler in [&mut exact, &mut sampled] {
            profiler.get(key, bytes(key), 0, step / 1000);
        }
    }
    let sizes = [8 << 20, 16 << 20, 32 << 20, 64 << 20];
    let (exact, sampled) = (exact.curve(&sizes), sampled.curve(&sizes));
    for (exact, sampled) in exact.points().iter().zip(sampled.points()) {
        assert!((exact.miss_ratio - sampled.miss_ratio).abs() < 0.03, "{exact:?} {sampled:?}");
    }
}

#[test]
fn what_is_aged_weighs_less() {
    let mut profiler = Profiler::default();
    (0..100).for_each(|key| profiler.get(key, 10, 0, 0));
    profiler.age(0.25);
    (0..100).for_each(|key| profiler.get(key, 10, 0, 0));
    assert_eq!(profiler.gets(), 125.0);
    let point = profiler.curve(&[1 << 20]).points()[0];
    assert!((point.miss_ratio - 0.2).abs() < 1e-9, "{point:?}");
    assert!(Profiler::default().curve(&[1]).points().is_empty(), "no gets, no curve");
}

/// A live profiler, which sees only sampled keys, and an exact one of the same gets.
struct Pair {
    live: Profiler,
    exact: Profiler,
    keys: Keys,
    new_keys: u64,
    /// Makes another sample of the same keys.
    seed: u64,
}

impl Pair {
    /// Gets of 40,000 keys, half of them of an eighth of these, and in `flood` percent of keys that never recur. No key
    /// is hot: the error of a sample by hot keys is not under test.
    fn get(&mut self, gets: u64, flood: u64) {
        for _ in 0..gets {
            let is_new = self.keys.random() % 100 < flood;
            self.new_keys += u64::from(is_new);
            let count = if self.keys.random().is_multiple_of(2) { 5_000 } else { 40_000 };
            let id = if is_new { 1 << 40 | self.new_keys } else { self.keys.random() % count };
            let hash = (id ^ self.seed << 48).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let hash = (hash ^ hash >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
            let hash = hash ^ hash >> 32;
            self.live.get(hash, 100, 0, 0);
            self.exact.get(hash, 100, 0, 0);
        }
    }
}

#[test]
fn after_a_flood_sampling_recovers_without_bias() {
    let sizes: Vec<u64> = (0..6).map(|step| 50_000 << step).collect();
    let (mut mean, mut worst) = (vec![0.0; sizes.len()], 0.0f64);
    let seeds = 10;
    for seed in 1..=seeds {
        let mut pair = Pair {
            live: Profiler::new(Options::live(2048)),
            exact: Profiler::new(Options::exact()),
            keys: Keys(seed),
            new_keys: 0,
            seed,
        };
        pair.get(50_000, 0);
        pair.get(50_000, 90);
        let low = pair.live.sample_rate();
        assert!(low < 0.05, "{low}");
        let (mut falls, mut before) = (0, low);
        for _ in 0..30 {
            pair.get(5_000, 0);
            pair.live.limit_depth(3_000_000);
            pair.live.grow_rate(2.0);
            falls += u32::from(pair.live.sample_rate() < before);
            before = pair.live.sample_rate();
            assert!(pair.live.sampled() <= 2048 && pair.live.counted_gets() > 1000.0);
        }
        assert!(pair.live.sample_rate() > 1.5 * low, "{} after {low}", pair.live.sample_rate());
        assert_eq!(falls, 0, "it never has to fall for its own growth");
        let (live, exact) = (pair.live.curve(&sizes), pair.exact.curve(&sizes));
        for ((sum, live), exact) in mean.iter_mut().zip(live.points()).zip(exact.points()) {
            let error = live.miss_ratio - exact.miss_ratio;
            *sum += error / seeds as f64;
            worst = worst.max(error.abs());
        }
    }
    let bias = mean.iter().fold(0.0f64, |worst, error| worst.max(error.abs()));
    assert!(bias < 0.006 && worst < 0.03, "bias {bias}, worst {worst}, means {mean:?}");
}

#[test]
fn first_gets_of_unsampled_keys_are_no_misses() {
    let sizes: Vec<u64> = (0..6).map(|step| 200_000 << step).collect();
    let mut mean = vec![0.0; sizes.len()];
    let seeds = 10;
    for seed in 1..=seeds {
        let (live, exact) = (Profiler::new(Options::live(16_384)), Profiler::new(Options::exact()));
        let mut pair = Pair { live, exact, keys: Keys(seed), new_keys: 0, seed };
        pair.get(60_000, 0);
        pair.live.limit_rate(0.1);
        pair.get(20_000, 0);
        // Only later gets count.
        pair.live.age(0.0);
        pair.exact.age(0.0);
        pair.live.grow_rate(2.0);
        pair.get(5_000, 0);
        pair.live.grow_rate(2.0);
        assert!(pair.live.sample_rate() > 0.3, "{}", pair.live.sample_rate());
        pair.get(15_000, 10);
        let (live, exact) = (pair.live.curve(&sizes), pair.exact.curve(&sizes));
        for ((sum, live), exact) in mean.iter_mut().zip(live.points()).zip(exact.points()) {
            *sum += (live.miss_ratio - exact.miss_ratio) / seeds as f64;
        }
    }
    assert!(mean.iter().all(|error| error.abs() < 0.01), "{mean:?}");
}
