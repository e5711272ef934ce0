//! The objective `cost`: evictions keep the entries whose hits save the most.

use ebbtide_store::{Flags, Mode, Objective, Options, Progress, Store, Ttl, Write, cost_class};
use ebbtide_testkit::Random;

const KEYS: u64 = 100_000;
const REQUESTS: u64 = 1_000_000;

/// A twentieth of the keys costs a thousand, a quarter 30, the others 1.
fn mixed(key: u64) -> f64 {
    match key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 {
        hash if hash % 20 == 0 => 1000.0,
        hash if hash % 4 == 1 => 30.0,
        _ => 1.0,
    }
}

/// A key by Zipf's law with the exponent 1: the logarithm of its rank is uniform.
fn sample(random: &mut Random) -> u64 {
    (KEYS as f64).powf(random.number() as f64 / u64::MAX as f64) as u64
}

/// Gets, and a set after each miss; returns the misses of the second half, and their cost.
fn misses(objective: Objective, cost: impl Fn(u64) -> f64) -> (u64, f64) {
    let store = Store::new(Options { memory_bytes: 4 << 20, objective, ..Options::default() }).unwrap();
    let (participant, mut random) = (store.participate(), Random::new(1));
    let (mut count, mut costs) = (0, 0.0);
    for request in 0..REQUESTS {
        let now_ms = 1000 + request / 100;
        let number = sample(&mut random);
        let key = number.to_le_bytes();
        let hash = store.hash(&key);
        if store.get(&participant, &key, hash, now_ms).is_some() {
            continue;
        }
        let flags = match Flags::annotation_with_cost(0, cost_class(cost(number))) {
            0 => Flags::default(),
            word => Flags::annotation(word),
        };
        let (value, ttl) = (&[7; 200], Ttl::Never);
        let write = Write { key: &key, hash, value, flags, ttl, mode: Mode::Set, token: None };
        while store.write(&participant, &write, now_ms).is_err() {
            assert_ne!(store.evict(&participant, now_ms), Progress::Stuck);
        }
        if request >= REQUESTS / 2 {
            count += 1;
            costs += cost(number);
        }
    }
    store.verify(&participant, 1000 + REQUESTS / 100);
    (count, costs)
}

#[test]
fn costs_decide_what_stays() {
    let (hits_misses, hits_costs) = misses(Objective::Objects, mixed);
    let (cost_misses, cost_costs) = misses(Objective::Cost, mixed);
    println!("objects: {hits_misses} misses cost {hits_costs}; cost: {cost_misses} misses cost {cost_costs}");
    assert!(cost_costs < 0.7 * hits_costs, "{cost_costs} {hits_costs}");
    assert!(cost_misses > hits_misses, "hits are what it costs");
}

/// Equal costs change nothing, in any unit; only a cost that is not 1 takes bytes.
#[test]
fn equal_costs_change_nothing() {
    let (by_hits, _) = misses(Objective::Objects, |_| 1.0);
    assert_eq!(misses(Objective::Cost, |_| 1.0).0, by_hits);
    let (by_cost, _) = misses(Objective::Cost, |_| 256.0);
    assert!(by_cost.abs_diff(by_hits) * 25 < by_hits, "{by_cost} misses, {by_hits} without costs");
}
