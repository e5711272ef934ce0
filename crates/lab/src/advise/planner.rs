//! Plans for a trace on given hardware.

use ebbtide_control::Curve;

use super::plan::{self, Demand, Hardware, Latencies, Overheads, Plan};
use crate::mrc::TraceLoad;

/// Inputs of plans.
pub(super) struct Planner<'a> {
    pub demand: Demand,
    pub overheads: Overheads,
    pub hardware: Hardware,
    pub latencies: Latencies,
    pub load: &'a TraceLoad,
}

impl Planner<'_> {
    pub fn plan(&self, dram_bytes: f64, flash_bytes: f64) -> Plan {
        let at = |curve: &Curve, bytes: f64| match curve.points().first() {
            // Below the first point on a line from no memory and no hits.
            Some(first) if bytes < first.memory_bytes as f64 => {
                1.0 - (1.0 - first.miss_ratio) * bytes / first.memory_bytes as f64
            }
            Some(_) => curve.miss_ratio_at(bytes as u64).expect("a curve with a point"),
            None => 1.0,
        };
        let lru = |bytes: f64| at(&self.load.lru, bytes);
        let engine = |bytes: f64| at(&self.load.engine, bytes);
        let Self { demand, overheads, hardware, latencies, .. } = self;
        let plan = plan::plan((dram_bytes, flash_bytes), demand, overheads, hardware, latencies, &lru, &engine);
        let more = self.load.first.more_hits(dram_bytes + flash_bytes);
        Plan { max_hit_ratio: (plan.hit_ratio + more).min(1.0), ..plan }
    }
}
