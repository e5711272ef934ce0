//! Equal memory for all engines. Each engine counts its capacity differently, so it is scaled until the resident memory
//! of the full cache equals the target, or, if it jumps because tables double, is the largest value below the target.
//! Some engines use more parts, and more memory, with more threads.

use crate::Error;
use crate::compare::in_own_process;
use crate::engine::{EngineName, Mode};
use crate::plan::{Distribution, Mix, Plan, Sharing};

/// Largest relative deviation of the resident memory from the target.
const TOLERANCE: f64 = 0.03;
const TRIES: u32 = 8;

/// Capacities that have been found.
#[derive(Default)]
pub struct Calibration {
    found: Vec<Found>,
}

struct Found {
    engine: EngineName,
    keys: u32,
    value_bytes: u32,
    memory_bytes: u64,
    threads: u32,
    capacity_bytes: u64,
}

impl Calibration {
    /// The plan with a capacity that takes its memory. Plans in which everything fits, and engines that evict nothing,
    /// stay as they are.
    pub fn apply(&mut self, plan: Plan) -> Result<Plan, Error> {
        if plan.mix == Mix::Get || !plan.engine.evicts() {
            return Ok(plan);
        }
        let known = self.found.iter().find(|found| {
            (found.engine, found.keys, found.value_bytes, found.memory_bytes, found.threads)
                == (plan.engine, plan.keys, plan.value_bytes, plan.memory_bytes, plan.threads)
        });
        let capacity_bytes = match known {
            Some(found) => found.capacity_bytes,
            None => self.find(&plan)?,
        };
        Ok(Plan { capacity_bytes: Some(capacity_bytes), ..plan })
    }

    fn find(&mut self, plan: &Plan) -> Result<u64, Error> {
        let wanted = plan.memory_bytes as f64;
        let mut trial = Plan {
            mode: Mode::Get,
            mix: Mix::Fill,
            distribution: Distribution { exponent: 1.0, churn: 0.0 },
            sharing: Sharing::Shared,
            requests: plan.requests.min(1_000_000),
            ..plan.clone()
        };
        // Capacities that take too little and too much.
        let (mut below, mut above) = (0.0, f64::INFINITY);
        let mut capacity = wanted;
        for _ in 0..TRIES {
            trial.capacity_bytes = Some(capacity as u64);
            let rss = in_own_process(&trial)?.rss_bytes as f64;
            eprintln!("{}: capacity {:.0} MiB takes {:.0} MiB", plan.engine, capacity / 1048576.0, rss / 1048576.0);
            if (rss / wanted - 1.0).abs() <= TOLERANCE {
                below = capacity;
                break;
            }
            if rss < wanted {
                below = capacity.max(below);
            } else {
                above = capacity.min(above);
            }
            let scaled = capacity * wanted / rss;
            capacity = if below < scaled && scaled < above { scaled } else { (below + above) / 2.0 };
        }
        if below == 0.0 {
            return Err(Error::Plan(format!("{} takes more than {wanted} bytes even when almost empty", plan.engine)));
        }
        self.found.push(Found {
            engine: plan.engine,
            keys: plan.keys,
            value_bytes: plan.value_bytes,
            memory_bytes: plan.memory_bytes,
            threads: plan.threads,
            capacity_bytes: below as u64,
        });
        Ok(below as u64)
    }
}
