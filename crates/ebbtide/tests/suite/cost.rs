//! The cost of a loaded value, for evictions by the objective `cost`.

use ebbtide::{ByteSize, Cache, Objective};
use std::time::Duration;

#[test]
fn loaded_values_cost_their_loaders_time() {
    const EACH: u32 = 150;
    let cache = Cache::builder().memory(ByteSize::mib(4)).objective(Objective::Cost).build().unwrap();
    let name = |kind: &str, number| format!("{kind}{number}");
    let load = |kind: &str, number, pause: Duration| {
        let load = || {
            std::thread::sleep(pause);
            vec![1; 2000]
        };
        cache.get_or_insert_with(name(kind, number), load).unwrap();
    };
    for number in 0..EACH {
        load("slow", number, Duration::from_millis(8));
        load("quick", number, Duration::ZERO);
    }
    let left = |kind: &str| (0..EACH).filter(|number| cache.contains_key(name(kind, *number))).count();
    for number in 0..2500 {
        load("other", number, Duration::ZERO);
    }
    assert!(left("slow") > 2 * left("quick"), "slow {}, quick {}", left("slow"), left("quick"));
}
