//! All four parties that decide about one memory at the same time: monitor, flash, controller, indexes; and a hand.

use ebbtide_control::arbiter::{Claim, arbitrate};
use ebbtide_control::controller::{Controller, ControllerOptions, PoolReading, Situation};
use ebbtide_control::pressure::{self, Memory, Mode, PressureDecision, PressureOptions, Reading};
use ebbtide_control::{Curve, Point, Share};

const MIB: u64 = 1 << 20;
const CONFIGURED: u64 = 256 * MIB;
/// Memory of the host beside the kernel.
const HOST: u64 = 600 * MIB;
/// Maximum number of bytes that a pool evicts in a second.
const EVICTED: u64 = 6 * MIB;

struct Pool {
    gets_per_second: f64,
    scale_mib: f64,
    used_bytes: u64,
    gets: f64,
    hits: f64,
}

impl Pool {
    fn misses_at(&self, bytes: u64) -> f64 {
        0.01 + 0.99 * (-(bytes as f64) / MIB as f64 / self.scale_mib).exp()
    }

    /// The index grows with the objects, and does not contract at once.
    fn index_bytes(&self) -> u64 {
        self.used_bytes / 16
    }
}

struct Host {
    pools: Vec<Pool>,
    budgets: Vec<u64>,
    total_bytes: u64,
    flash_bytes: u64,
    by_hand_bytes: Option<u64>,
    wanted: Option<Vec<u64>>,
    controller: Controller,
    monitor: PressureOptions,
    shrank_at: u64,
    second: u64,
}

impl Host {
    fn new() -> Self {
        let pool =
            |(gets_per_second, scale_mib)| Pool { gets_per_second, scale_mib, used_bytes: 0, gets: 0.0, hits: 0.0 };
        let pools: Vec<Pool> = [(2000.0, 60.0), (400.0, 20.0), (900.0, 40.0)].map(pool).into();
        Self {
            budgets: vec![CONFIGURED / 3; pools.len()],
            pools,
            total_bytes: CONFIGURED,
            flash_bytes: 0,
            by_hand_bytes: None,
            wanted: None,
            controller: Controller::new(ControllerOptions::default()).unwrap(),
            monitor: PressureOptions::new(Mode::Free, 100 * MIB, 200 * MIB),
            shrank_at: 0,
            second: 0,
        }
    }

    fn used_bytes(&self) -> u64 {
        self.flash_bytes + self.pools.iter().map(|pool| pool.used_bytes).sum::<u64>()
    }

    fn divide(&mut self) {
        let claim = |at: usize| Claim {
            share: Share { floor_bytes: MIB, ..Share::named(format!("p{at}")) },
            by_hand_bytes: self.by_hand_bytes.filter(|_| at == 1),
            controller_bytes: self.wanted.as_ref().map(|wanted| wanted[at]),
            index_bytes: self.pools[at].index_bytes(),
        };
        let claims: Vec<Claim> = (0..self.pools.len()).map(claim).collect();
        self.budgets = arbitrate(self.total_bytes, self.flash_bytes, &claims).unwrap();
        assert!(self.budgets.iter().sum::<u64>() + self.flash_bytes <= self.total_bytes, "{:?}", self.budgets);
    }

    fn readings(&self) -> Vec<PoolReading> {
        let reading = |(at, pool): (usize, &Pool)| {
            let point = |mib: u64| Point::exact(mib * MIB, pool.misses_at(mib * MIB), 0.0);
            PoolReading {
                name: format!("p{at}"),
                memory_bytes: self.budgets[at],
                used_bytes: pool.used_bytes,
                min_bytes: MIB,
                max_bytes: u64::MAX,
                is_fixed: at == 1 && self.by_hand_bytes.is_some(),
                hit_value: 1.0,
                bytes_of_hit: None,
                target_hit_ratio: None,
                curve: Curve::new((1..=256).step_by(3).map(point).collect()),
                sampled_gets: 1e5,
                gets_per_second: pool.gets_per_second,
                gets: pool.gets as u64,
                hits: pool.hits as u64,
            }
        };
        self.pools.iter().enumerate().map(reading).collect()
    }

    /// A second in which all parties act. True if the controller moved memory.
    fn step(&mut self, neighbour_bytes: u64) -> bool {
        self.second += 1;
        for (pool, budget) in self.pools.iter_mut().zip(&self.budgets) {
            let misses = pool.misses_at(pool.used_bytes);
            pool.gets += pool.gets_per_second;
            pool.hits += pool.gets_per_second * (1.0 - misses);
            pool.used_bytes = match pool.used_bytes > *budget {
                true => budget.max(&pool.used_bytes.saturating_sub(EVICTED)).to_owned(),
                false => budget.min(&(pool.used_bytes + (pool.gets_per_second * misses * 4096.0) as u64)).to_owned(),
            };
        }
        let (used_bytes, limit_bytes) = (self.used_bytes(), self.total_bytes);
        let memory = Memory { configured_bytes: CONFIGURED, limit_bytes, used_bytes };
        let free_bytes = HOST.saturating_sub(neighbour_bytes + used_bytes);
        match pressure::decide(&self.monitor, memory, Reading { free_bytes, ..Reading::default() }) {
            PressureDecision::Keep => {}
            PressureDecision::Shrink { to_bytes, .. } => (self.total_bytes, self.shrank_at) = (to_bytes, self.second),
            PressureDecision::Grow { to_bytes, .. } => self.total_bytes = to_bytes,
        }
        self.divide();
        if !self.second.is_multiple_of(10) {
            return false;
        }
        let is_shrinking = self.second - self.shrank_at < 10 || used_bytes > self.total_bytes;
        let readings = self.readings();
        let total_bytes = self.total_bytes - self.flash_bytes;
        let situation = Situation { now_seconds: self.second as f64, total_bytes, is_shrinking, pools: &readings };
        let decision = self.controller.decide(&situation).unwrap();
        if let Some(bytes) = decision.bytes() {
            assert!(!is_shrinking, "{decision}");
            self.wanted = Some(bytes.to_vec());
            self.divide();
            return true;
        }
        false
    }

    /// Budgets and total after each second of these.
    fn rest(&mut self, seconds: u64, neighbour_bytes: u64) -> Vec<(u64, Vec<u64>)> {
        let one = |_| {
            self.step(neighbour_bytes);
            (self.total_bytes, self.budgets.clone())
        };
        (0..seconds).map(one).collect()
    }
}

#[test]
fn four_parties_come_to_rest_together() {
    let mut host = Host::new();
    let mut moved = 0;
    for second in 0..7200 {
        // A neighbour that takes and returns memory, an index of flash that grows, and a hand in between.
        let neighbour_bytes = if second / 900 % 2 == 0 { 150 * MIB } else { 380 * MIB };
        host.flash_bytes = (second * 4096).min(24 * MIB);
        host.by_hand_bytes = (3000..4000).contains(&second).then_some(30 * MIB);
        moved += u64::from(host.step(neighbour_bytes));
        if host.by_hand_bytes.is_some() && host.total_bytes > 128 * MIB {
            assert_eq!(host.budgets[1], 30 * MIB, "the hand holds");
        }
    }
    assert!(moved > 0, "the controller acts, too");
    host.rest(3600, 150 * MIB);
    let states = host.rest(7200, 150 * MIB);
    assert!(states.windows(2).all(|two| two[0] == two[1]), "nothing moves any more");
    assert_eq!(host.total_bytes, CONFIGURED);
    assert_eq!(host.budgets.iter().sum::<u64>() + host.flash_bytes, CONFIGURED, "all of it is used");
    host.rest(3600, 380 * MIB);
    let states = host.rest(7200, 380 * MIB);
    assert!(host.total_bytes < CONFIGURED && states.windows(2).all(|two| two[0] == two[1]), "nor with less");
}
