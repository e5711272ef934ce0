//! The controller of a live cache: memory goes to the pool that earns hits by it.

use ebbtide::memcached::{
    ByteSize, Cache, CacheProfile, Clock, ControllerMode, ControllerOptions, HitRatio, Lookup, Objective, Policy, Pool,
    PoolController, PoolDecision, PoolOptions,
};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A cache with the pools `again`, `once` and `default`, and its controller.
struct Load {
    cache: Cache,
    again: Pool,
    once: Pool,
    controller: PoolController,
    second: u64,
    number: u64,
}

impl Load {
    fn new(mode: ControllerMode) -> Self {
        Self::with_value(mode, 1)
    }

    /// Hits of `again` count `value` times.
    fn with_value(mode: ControllerMode, value: u32) -> Self {
        Self::with_pools(mode, PoolOptions::named("again").hit_value(value), PoolOptions::named("once"))
    }

    fn with_pools(mode: ControllerMode, again: PoolOptions, once: PoolOptions) -> Self {
        let pools = [again, once, PoolOptions::named("default").weight(0)];
        let builder = Cache::builder().memory(ByteSize::mib(9)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let cache = pools.into_iter().fold(builder, |builder, pool| builder.pool(pool)).build().unwrap();
        let controller = PoolController::new(&cache, mode, ControllerOptions::default()).unwrap();
        let [again, once] = ["again", "once"].map(|name| cache.pool(name).unwrap());
        Self { cache, again, once, controller, second: 0, number: 0 }
    }

    /// Seconds of look-aside load: 200 gets a second of 5,000 keys in `again`, and of new keys in `once`.
    fn run(&mut self, seconds: u64) -> Vec<PoolDecision> {
        let mut decisions = Vec::new();
        for _ in 0..seconds {
            self.second += 1;
            for _ in 0..200 {
                self.number += 1;
                // Keys in the order of a permutation that is walked again and again, each second from another start.
                let key = self.number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) % 5000;
                look_aside(&self.again, key, 1000);
                look_aside(&self.once, self.number, 1000);
            }
            self.cache.maintain(Duration::from_secs(self.second));
            decisions.extend(self.controller.update().unwrap().cloned());
            let budgets: u64 = self.limits().iter().sum();
            assert!(budgets <= 9 * MIB, "{budgets}");
        }
        decisions
    }

    fn limits(&self) -> [u64; 3] {
        ["again", "once", "default"].map(|name| self.cache.pool(name).unwrap().stats().memory_limit_bytes)
    }
}

fn look_aside(pool: &Pool, key: u64, bytes: usize) {
    let key = key.to_le_bytes();
    if matches!(pool.get(&key), Lookup::Miss) {
        pool.insert(&key, &vec![7; bytes]).apply().unwrap();
    }
}

#[test]
fn memory_goes_where_it_earns_hits() {
    let mut load = Load::new(ControllerMode::Auto);
    let before = load.limits();
    let decisions = load.run(900);
    let [again, once, _] = load.limits();
    assert!(before[0] < 9 * MIB / 2 && again > 5 * MIB && once < 4 * MIB, "{before:?} {:?}", load.limits());
    let first = &decisions[0];
    assert!(first.is_applied && !first.is_undo && first.reason.starts_with("again +"), "{first:?}");
    assert!(first.moves.iter().map(|step| step.bytes).sum::<u64>() <= 9 * MIB / 20 + 1, "{first:?}");
    assert_eq!(load.controller.decisions().count(), decisions.len());
    // The last gains are small: which update sees them depends on the keys that are sampled.
    let later: Vec<_> = (0..4).map(|_| load.run(900)).collect();
    assert!(later.iter().any(Vec::is_empty), "a stationary load comes to rest: {later:?}");
    let undone = later.iter().flatten().filter(|decision| decision.is_undo).count();
    assert!(undone <= 1 && later.iter().flatten().count() <= 3, "it swings: {later:?}");
    assert!(load.controller.state().starts_with("nothing moves: "), "{}", load.controller.state());
    load.cache.verify();
}

#[test]
fn hits_without_value_draw_no_memory() {
    for (value, is_drawn) in [(1, true), (0, false)] {
        let mut load = Load::with_value(ControllerMode::DryRun, value);
        let decisions = load.run(200);
        let drawn = decisions.iter().flat_map(|decision| &decision.moves).any(|step| step.to == "again");
        assert_eq!(drawn, is_drawn, "{value}: {decisions:?}");
    }
}

/// Memory goes to records, which are asked for more often, or to pages, which are longer, by the objective.
#[test]
fn the_objective_of_bytes_divides_by_bytes() {
    for (objective, receiver) in [(Objective::Objects, "records"), (Objective::Bytes, "pages")] {
        let builder = Cache::builder().memory(ByteSize::mib(9)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let pools =
            [PoolOptions::named("records"), PoolOptions::named("pages"), PoolOptions::named("default").weight(0)];
        let builder = pools.into_iter().fold(builder.objective(objective), |builder, pool| builder.pool(pool));
        let cache = builder.build().unwrap();
        let mut controller = PoolController::new(&cache, ControllerMode::Auto, ControllerOptions::default()).unwrap();
        let [records, pages] = ["records", "pages"].map(|name| cache.pool(name).unwrap());
        let mut first = None;
        for number in 1..=600_000_u64 {
            let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17);
            look_aside(&records, key % 60_000, 100);
            if number % 10 == 0 {
                look_aside(&pages, key % 750, 10_000);
            }
            if number % 2000 == 0 {
                cache.maintain(Duration::from_secs(number / 2000));
                first = first.or(controller.update().unwrap().cloned());
            }
        }
        let decision = first.expect("a decision");
        assert_eq!(decision.moves[0].to, receiver, "{decision:?}");
        assert_eq!(decision.reason.contains("more of hits a second"), objective == Objective::Bytes, "{decision:?}");
        let [records, pages] = [records, pages].map(|pool| pool.stats().memory_limit_bytes);
        assert_eq!(pages > records, objective == Objective::Bytes, "{records} {pages}");
        cache.verify();
    }
}

#[test]
fn a_dry_run_says_so_and_moves_nothing() {
    let mut load = Load::new(ControllerMode::DryRun);
    let before = load.limits();
    let decisions = load.run(300);
    assert_eq!(load.limits(), before);
    assert!(!decisions.is_empty() && decisions.iter().all(|decision| !decision.is_applied), "{decisions:?}");
    assert!(decisions[0].reason.starts_with("again +"), "{decisions:?}");
    assert!(decisions.len() < 10, "a dry run does not repeat itself: {decisions:?}");
}

/// The second of the first decision differs a little between caches of one load: some are closed a second too early for
/// it, and another one is tried.
#[test]
fn a_closed_cache_moves_nothing() {
    let mut seconds = 0;
    let mut first = Load::new(ControllerMode::Auto);
    while first.run(1).is_empty() {
        seconds += 1;
    }
    let is_refused = (0..20).any(|_| {
        let mut load = Load::new(ControllerMode::Auto);
        load.run(seconds);
        let before = load.limits();
        load.cache.close().unwrap();
        load.cache.maintain(Duration::from_secs(seconds + 1));
        let updated = load.controller.update().map(Option::<&PoolDecision>::cloned);
        assert_eq!(load.limits(), before);
        match updated {
            Ok(decision) => assert!(decision.is_none(), "{decision:?}"),
            Err(ebbtide::memcached::Error::Closed) => return true,
            Err(error) => panic!("{error}"),
        }
        false
    });
    assert!(is_refused, "no cache was closed before a decision");
}

#[test]
fn a_resized_pool_keeps_memory_until_released() {
    let mut load = Load::new(ControllerMode::Auto);
    load.again.resize(ByteSize::mib(4), ByteSize::mib(4)).unwrap();
    load.run(400);
    assert_eq!(load.limits()[0], 4 * MIB);
    load.again.release().unwrap();
    load.run(600);
    assert!(load.limits()[0] > 5 * MIB, "{:?}", load.limits());
}

#[test]
fn the_controller_follows_removals_and_smaller_limits() {
    let mut load = Load::new(ControllerMode::Auto);
    load.run(400);
    load.cache.resize(ByteSize::mib(6)).unwrap();
    load.run(60);
    assert!(load.limits().iter().sum::<u64>() <= 6 * MIB, "{:?}", load.limits());
    assert!(load.controller.profile("once").is_some());
    let cache = load.cache.clone();
    drop(load.once);
    cache.remove_pool("once").unwrap();
    cache.maintain(Duration::from_secs(load.second + 1));
    load.controller.update().unwrap();
    assert!(load.controller.profile("once").is_none());
    cache.maintain(Duration::from_secs(load.second + 2));
    let limits: u64 =
        ["again", "default"].map(|name| cache.pool(name).unwrap().stats().memory_limit_bytes).iter().sum();
    assert_eq!(limits, 6 * MIB, "no handle holds the removed pool");
}

#[test]
fn a_controller_that_is_off_decides_nothing() {
    let mut load = Load::new(ControllerMode::Off);
    assert!(load.run(300).is_empty());
    assert!(load.controller.state().is_empty(), "{}", load.controller.state());
    assert!(load.controller.profile("again").is_none() && load.controller.profile("default").is_some());
}

#[test]
fn nothing_moves_while_the_cache_shrinks() {
    let mut load = Load::new(ControllerMode::Auto);
    load.run(65);
    load.cache.resize(ByteSize::mib(8)).unwrap();
    load.run(10);
    assert_eq!(load.controller.state(), "nothing moves: the cache is shrinking");
    load.run(600);
    assert!(load.limits()[0] > 9 * MIB / 2, "{:?}", load.limits());
}

#[test]
fn profiles_of_many_pools_share_one_percent() {
    const POOLS: u64 = 100;
    let builder = Cache::builder().memory(ByteSize::mib(400)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
    let named = |number: u64| format!("pool{number}");
    let builder = (0..POOLS).fold(builder, |builder, number| builder.pool(PoolOptions::named(named(number))));
    let cache = builder.pool(PoolOptions::named("default").weight(0)).build().unwrap();
    let mut controller = PoolController::new(&cache, ControllerMode::DryRun, ControllerOptions::default()).unwrap();
    for second in 1..=8 {
        for pool in (0..POOLS).map(|number| cache.pool(&named(number)).unwrap()) {
            (0..3000).for_each(|key| look_aside(&pool, key, 1000));
        }
        cache.maintain(Duration::from_secs(second));
        controller.update().unwrap();
    }
    let sampled = |number: u64| controller.profile(&named(number)).unwrap().curve(None).map(|curve| curve.sampled_keys);
    let keys: Vec<usize> = (0..POOLS).filter_map(sampled).collect();
    assert!(keys.len() as u64 > POOLS / 2, "{} curves", keys.len());
    let max_keys = (400 * MIB / 100 / 128 / (POOLS + 1)) as usize;
    assert!(keys.iter().all(|keys| *keys <= max_keys && *keys > max_keys / 4), "{max_keys}: {keys:?}");
}

#[test]
fn target_hit_ratios_get_memory_or_a_report() {
    // Hits of `again` earn more than those of `once`, whose keys are read once: without a target it gives memory.
    let once = PoolOptions::named("once").target_hit_ratio(HitRatio::new(0.5).unwrap());
    let mut load = Load::with_pools(ControllerMode::Auto, PoolOptions::named("again"), once);
    load.run(300);
    let said: Vec<String> = load.controller.targets().iter().map(ToString::to_string).collect();
    assert!(said.len() == 1 && said[0] == "once: 50 % of hits are out of reach, 40 MiB would have 0 %", "{said:?}");
    assert!(load.controller.state().ends_with(&said[0]), "{}", load.controller.state());
    let again = PoolOptions::named("again").target_hit_ratio(HitRatio::new(0.6).unwrap());
    let mut load = Load::with_pools(ControllerMode::Auto, again, PoolOptions::named("once"));
    load.run(900);
    // Six tenths of 5 MB of objects, which are evenly asked for; by hits alone the pool would get all of them.
    let again = load.limits()[0];
    assert!(again > 5 * MIB / 2 && again < 9 * MIB / 2, "{:?}", load.limits());
}

/// A loop over more keys than the cache holds: LRU misses each of them, and a random eviction does not.
#[test]
fn a_pool_gets_the_policy_that_misses_least() {
    const KEYS: u64 = 55_000;
    for mode in [ControllerMode::DryRun, ControllerMode::Auto] {
        let builder = Cache::builder().memory(ByteSize::mib(40)).policy(Policy::Lru).clock(Clock::Manual);
        let cache = builder.controller_policies(&[Policy::Random]).build().unwrap();
        let mut controller = PoolController::new(&cache, mode, ControllerOptions::default()).unwrap();
        let (mut second, mut number, mut decisions) = (0, 0, Vec::new());
        while second < 300 && decisions.is_empty() {
            second += 1;
            for _ in 0..KEYS / 10 {
                number += 1;
                look_aside(&cache, number % KEYS, 1000);
            }
            cache.maintain(Duration::from_secs(second));
            decisions.extend(controller.update().unwrap().cloned());
        }
        let [decision] = &decisions[..] else { panic!("{:?}", controller.policy_state("default")) };
        let changed = decision.policy.as_ref().unwrap();
        assert_eq!((changed.pool.as_str(), changed.change.to.as_str()), ("default", "random"));
        assert!(changed.change.miss_ratio_before > 0.98 && changed.change.miss_ratio_after < 0.7, "{changed:?}");
        assert!(decision.reason.starts_with("default: random instead of lru: "), "{}", decision.reason);
        let is_auto = mode == ControllerMode::Auto;
        assert_eq!(decision.is_applied, is_auto);
        assert_eq!(cache.policy(), if is_auto { Policy::Random } else { Policy::Lru });
        cache.verify();
    }
}

/// A loop over more keys than the cache holds: LRU would miss each of them, and a random eviction does not.
#[test]
fn a_curve_follows_the_policy_of_the_pool() {
    const KEYS: u64 = 110_000;
    let builder = Cache::builder().memory(ByteSize::mib(80)).policy(Policy::Random).clock(Clock::Manual);
    let cache = builder.build().unwrap();
    let mut profile = CacheProfile::of(&cache);
    let (mut second, mut number) = (0, 0);
    // A loop takes 22 seconds.
    while second < 240 && !profile.is_modelled() {
        second += 1;
        for _ in 0..KEYS / 22 {
            number += 1;
            look_aside(&cache, number % KEYS, 1000);
        }
        cache.maintain(Duration::from_secs(second));
        profile.update();
    }
    assert!(profile.is_modelled(), "{profile:?}");
    let at = |mib| profile.what_if(ByteSize::mib(mib), None).unwrap().miss_ratio;
    let [less, present, more] = [64, 80, 100].map(at);
    assert!(less > present + 0.05 && present > more + 0.05 && present < 0.7, "{less} {present} {more}");
}
