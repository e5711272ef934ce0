//! The advice as text and as JSON.

use std::io::{self, Write};

use ebbtide::ByteSize;
use serde::Serialize;

use super::plan::{Demand, Hardware, Latencies, Overheads, Plan, ram_per_item};
use super::planner::Planner;
use super::search::{Budget, Wanted};
use super::slabs::Slabs;
use crate::mrc::TraceLoad;

/// A trace of fewer gets than these for each object tells little of what memory would do.
const FEW_GETS: u64 = 100_000;

/// The names of the fields are the names in the JSON object.
#[derive(Serialize)]
pub(super) struct Advice {
    pub trace: String,
    pub requests: usize,
    pub gets: u64,
    pub objects: usize,
    pub footprint_bytes: u64,
    pub seconds: u64,
    pub demand: Demand,
    pub overheads: Overheads,
    pub hardware: Hardware,
    pub latencies: Latencies,
    /// DRAM alone, by its size.
    pub dram: Vec<Plan>,
    pub wanted: Option<Wanted>,
    pub budget: Option<Budget>,
    pub slabs: Option<Slabs>,
    pub ram_per_item: Vec<RamPerItem>,
    /// The advice in sentences.
    pub verdict: Vec<String>,
    pub caveats: Vec<String>,
}

/// RAM for an item on flash, by its size.
#[derive(Serialize)]
pub(super) struct RamPerItem {
    pub item_bytes: u64,
    pub ebbtide_bytes: f64,
    pub extstore_bytes: f64,
}

impl Advice {
    pub fn new(
        load: &TraceLoad,
        planner: Planner<'_>,
        dram: Vec<Plan>,
        wanted: Option<Wanted>,
        budget: Option<Budget>,
        slabs: Option<Slabs>,
    ) -> Self {
        let sizes = [64_u64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 65_536];
        let ram_per_item = sizes.into_iter().map(|item_bytes| {
            let (ebbtide_bytes, extstore_bytes) = ram_per_item(item_bytes as f64);
            RamPerItem { item_bytes, ebbtide_bytes, extstore_bytes }
        });
        let mut caveats = Vec::new();
        if load.gets < FEW_GETS {
            caveats.push(format!("the trace has {} gets only: its hit ratios are those of a short time", load.gets));
        }
        caveats.extend(load.caveats());
        if load.seconds <= 1 {
            caveats.push("the trace has no time: rates are those of one second".to_owned());
        }
        caveats.push(
            "flash is judged by LRU's curve, without admission: it writes less with --flash-admission".to_owned(),
        );
        let verdict = verdict(wanted.as_ref(), budget.as_ref(), slabs.as_ref());
        Self {
            trace: load.trace.clone(),
            requests: load.requests,
            gets: load.gets,
            objects: load.objects,
            footprint_bytes: load.footprint_bytes,
            seconds: load.seconds,
            demand: planner.demand,
            overheads: planner.overheads,
            hardware: planner.hardware,
            latencies: planner.latencies,
            dram,
            wanted,
            budget,
            slabs,
            ram_per_item: ram_per_item.collect(),
            verdict,
            caveats,
        }
    }
}

pub(super) fn size(bytes: f64) -> String {
    ByteSize::bytes(bytes.max(0.0) as u64).to_string()
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

/// A plan in a few words.
pub(super) fn words(plan: &Plan) -> String {
    let flash =
        if plan.flash_bytes > 0.0 { format!(" and {} of flash", size(plan.flash_bytes)) } else { String::new() };
    format!("{} of DRAM{flash}, at {:.2}", size(plan.dram_bytes), plan.price)
}

fn verdict(wanted: Option<&Wanted>, budget: Option<&Budget>, slabs: Option<&Slabs>) -> Vec<String> {
    let mut verdict = Vec::new();
    if let Some(wanted) = wanted {
        let ratio = percent(wanted.hit_ratio);
        match (&wanted.dram, &wanted.hybrid) {
            (None, None) if wanted.reachable >= wanted.hit_ratio => verdict.push(format!(
                "a hit ratio of {ratio} takes less memory than a cache has at least: the trace is too small to size one"
            )),
            (None, None) => verdict.push(format!(
                "a hit ratio of {ratio} cannot be reached: every object's first get misses, so {} is the most",
                percent(wanted.reachable)
            )),
            (dram, hybrid) => {
                if let Some(dram) = dram {
                    verdict.push(format!("a hit ratio of {ratio} takes {}", words(dram)));
                }
                match hybrid {
                    Some(hybrid) if wanted.flash_pays => verdict.push(format!(
                        "flash pays: {} reaches it too; the first limit is {}, {} used",
                        words(hybrid),
                        hybrid.binding,
                        percent(hybrid.binding_used)
                    )),
                    _ => verdict.push("stay with DRAM: flash would not save a tenth of the price".to_owned()),
                }
            }
        }
    }
    if let Some(budget) = budget {
        verdict.push(format!(
            "for {:.2}, {} hit {}",
            budget.money,
            words(&budget.dram),
            percent(budget.dram.hit_ratio)
        ));
        match budget.hybrid {
            Some(hybrid) if budget.flash_pays => {
                verdict.push(format!("flash pays: {} hit {}", words(&hybrid), percent(hybrid.hit_ratio)));
            }
            _ => verdict.push("stay with DRAM: flash would not avoid a tenth of the misses".to_owned()),
        }
    }
    if let Some(slabs) = slabs.filter(|slabs| slabs.misses_avoided > 0.01) {
        verdict.push(format!(
            "a memcached with slab classes of factor {} would hit {} with {}, and {} with its pages where they earn most",
            slabs.factor,
            percent(slabs.first_come_hit_ratio),
            size(slabs.memory_bytes as f64),
            percent(slabs.optimal_hit_ratio)
        ));
    }
    if verdict.is_empty() {
        verdict.push("give --hit-ratio or --budget for advice on one size; the table has them all".to_owned());
    }
    verdict
}

pub(super) fn text(advice: &Advice, out: &mut impl Write) -> io::Result<()> {
    let demand = &advice.demand;
    writeln!(
        out,
        "{}: {} gets in {} s, {:.1} a second; {} objects of {:.0} B, {} in all",
        advice.trace,
        advice.gets,
        advice.seconds,
        demand.gets_per_second,
        advice.objects,
        demand.object_bytes,
        size(advice.footprint_bytes as f64)
    )?;
    writeln!(out)?;
    advice.verdict.iter().try_for_each(|sentence| writeln!(out, "{sentence}"))?;
    writeln!(out, "\n{:<12} {:>10} {:>10} {:>16} {:>14}", "DRAM", "price", "hits", "backend/s", "mean ms")?;
    for plan in &advice.dram {
        writeln!(
            out,
            "{:<12} {:>10.2} {:>10} {:>16.1} {:>14.3}",
            size(plan.dram_bytes),
            plan.price,
            percent(plan.hit_ratio),
            plan.backend_per_second,
            plan.mean_latency_ms
        )?;
    }
    let hybrids =
        [advice.wanted.as_ref().and_then(|wanted| wanted.hybrid), advice.budget.as_ref().and_then(|b| b.hybrid)];
    for plan in hybrids.into_iter().flatten() {
        writeln!(out, "\n{}", words(&plan))?;
        let rows = [
            ("hits in DRAM, on flash", format!("{}, {}", percent(plan.dram_hit_ratio), percent(plan.flash_hit_ratio))),
            ("DRAM for the index of flash", size(plan.index_bytes)),
            ("reads of flash", format!("{:.1} a second", plan.flash_reads_per_second)),
            ("written to flash", format!("{}/s", size(plan.flash_written_bytes_per_second))),
            ("drive writes", format!("{:.2} a day", plan.drive_writes_per_day)),
            ("life of the drive", plan.flash_life_years.map_or("-".to_owned(), |years| format!("{years:.1} years"))),
            ("to the backend", format!("{:.1} a second", plan.backend_per_second)),
            ("mean latency", format!("{:.3} ms", plan.mean_latency_ms)),
            ("first limit", format!("{}, {} used", plan.binding, percent(plan.binding_used))),
        ];
        rows.iter().try_for_each(|(name, value)| writeln!(out, "  {name:<28} {value}"))?;
    }
    if let Some(slabs) = &advice.slabs {
        writeln!(out, "\nmemcached with slab classes, {}:", size(slabs.memory_bytes as f64))?;
        writeln!(out, "{:>8} {:>8} {:>24} {:>24}", "chunk", "gets", "first come", "optimal")?;
        for class in &slabs.classes {
            let with = |bytes: u64, ratio: f64| format!("{} {:>8}", size(bytes as f64), percent(ratio));
            writeln!(
                out,
                "{:>8} {:>8} {:>24} {:>24}",
                class.chunk_bytes,
                percent(class.share_of_gets),
                with(class.first_come_bytes, class.first_come_hit_ratio),
                with(class.optimal_bytes, class.optimal_hit_ratio)
            )?;
        }
    }
    writeln!(out)?;
    advice.caveats.iter().try_for_each(|caveat| writeln!(out, "note: {caveat}"))
}
