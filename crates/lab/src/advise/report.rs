//! The advice as text and as JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::flags::{MAX_DRAM, MIN_DRAM, MIN_DRAM_WITH_FLASH};
use super::open_questions::{self, OpenQuestion};
use super::plan::{Demand, ENDURANCE, Hardware, Latencies, NETWORK, Overheads, Plan, ram_per_item};
use super::planner::Planner;
use super::pool_flags::PoolShare;
use super::pools::PoolAdvice;
use super::search::{Budget, Wanted};
use super::slabs::Slabs;
use super::units::{given, money, percent, percent_below, size};
use crate::mrc::{FirstHits, TraceLoad};

/// Number of gets of a trace below which its curve is unreliable.
const FEW_GETS: u64 = 100_000;
const MIB: u64 = 1 << 20;
/// A cache within this part of the best hit ratio is large enough.
const ENOUGH: f64 = 0.01;
/// Said of a plan that is smaller than a server.
const NO_SERVER: &str = "a server needs more, a program that embeds the cache does not";
/// Pools that the advice names in a sentence.
const NAMED_POOLS: usize = 5;

/// The names of the fields are the names in the JSON object.
#[derive(Serialize)]
pub(super) struct Advice {
    pub trace: String,
    pub requests: usize,
    pub gets: u64,
    /// Of the server of a capture, by its own counters; `None` for other traces.
    pub server_hit_ratio: Option<f64>,
    /// Memory that holds what this server holds.
    pub server_memory_bytes: Option<u64>,
    /// Share of the gets that are the first of their key in the capture, and hit at the server.
    pub first_hit_share: f64,
    pub objects: usize,
    pub footprint_bytes: u64,
    pub seconds: u64,
    pub demand: Demand,
    pub overheads: Overheads,
    pub hardware: Hardware,
    /// Unit of all prices.
    pub currency: String,
    pub latencies: Latencies,
    /// DRAM alone, by its size.
    pub dram: Vec<Plan>,
    pub wanted: Option<Wanted>,
    pub budget: Option<Budget>,
    pub slabs: Option<Slabs>,
    /// With `--by`.
    pub pools: Option<PoolAdvice>,
    /// The least DRAM that reaches nearly all that DRAM can.
    pub smallest: Option<Plan>,
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
        (wanted, budget): (Option<Wanted>, Option<Budget>),
        (slabs, pools): (Option<Slabs>, Option<PoolAdvice>),
        currency: &str,
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
        caveats.extend(slabs.as_ref().and_then(Slabs::caveat));
        caveats.extend(pools.iter().flat_map(|pools| pools.caveats.clone()));
        caveats.push(
            "flash is judged by LRU's curve, without admission: it writes less with --flash-admission".to_owned(),
        );
        let smallest = smallest(&dram).filter(|_| open_questions::is_end_known(&load.first));
        let mut verdict = verdict((wanted.as_ref(), &load.first), budget.as_ref(), slabs.as_ref(), currency);
        verdict.extend(smallest.map(|plan| {
            format!(
                "more than {} hardly pays: {} hit{}, and all DRAM adds less than a point{}",
                words(&plan, currency),
                percent(plan.hit_ratio),
                over_network(&plan),
                as_flags(&plan)
            )
        }));
        verdict.extend(pools.as_ref().map(about_pools));
        verdict.extend(open_questions::sentence(&load.first));
        Self {
            trace: load.trace.clone(),
            requests: load.requests,
            gets: load.gets,
            server_hit_ratio: load.first.server.and_then(|server| server.hit_ratio()),
            server_memory_bytes: load.first.held_bytes,
            first_hit_share: load.first.hit_share,
            objects: load.objects,
            footprint_bytes: load.footprint_bytes,
            seconds: load.seconds,
            demand: planner.demand,
            overheads: planner.overheads,
            hardware: planner.hardware,
            currency: currency.to_owned(),
            latencies: planner.latencies,
            dram,
            wanted,
            budget,
            slabs,
            pools,
            smallest,
            ram_per_item: ram_per_item.collect(),
            verdict,
            caveats,
        }
    }
}

/// The hit ratio of a plan, from the least to the most where a capture leaves hits open.
pub(super) fn hits(plan: &Plan) -> String {
    match open_questions::is_open(plan.hit_ratio, plan.max_hit_ratio) {
        true => format!("{:.1}-{}", plan.hit_ratio * 100.0, percent(plan.max_hit_ratio)),
        false => percent(plan.hit_ratio),
    }
}

/// A plan in a few words, with a price in this currency.
pub(super) fn words(plan: &Plan, currency: &str) -> String {
    let (flash, min, cache) = match plan.flash_bytes > 0.0 {
        true => (format!(" and {} of flash", size(plan.flash_bytes)), MIN_DRAM_WITH_FLASH, "a cache with flash"),
        false => (String::new(), MIN_DRAM, "a cache"),
    };
    let min = if plan.dram_bytes <= min { format!(" (the least of {cache})") } else { String::new() };
    format!("{} of DRAM{min}{flash}, at {} {currency}", size(plan.dram_bytes), money(plan.price))
}

/// Flags of a server of these sizes.
fn as_flags(plan: &Plan) -> String {
    match plan.flags {
        Some(flags) => format!("; as flags of the server: {flags}"),
        None => format!("; {}", no_server(plan)),
    }
}

/// Why a plan has no flags.
fn no_server(plan: &Plan) -> String {
    match plan.dram_bytes > MAX_DRAM as f64 {
        true => format!("no cache has more than {} of DRAM", size(MAX_DRAM as f64)),
        false => NO_SERVER.to_owned(),
    }
}

fn verdict(
    (wanted, first): (Option<&Wanted>, &FirstHits),
    budget: Option<&Budget>,
    slabs: Option<&Slabs>,
    currency: &str,
) -> Vec<String> {
    let mut verdict = wanted.map_or_else(Vec::new, |wanted| about_hit_ratio(wanted, first, currency));
    verdict.extend(budget.into_iter().flat_map(|budget| about_budget(budget, currency)));
    let of_slabs = slabs.and_then(|slabs| slabs.wanted_bytes.map(|bytes| (slabs.factor, bytes)));
    if let (Some(wanted), Some((factor, bytes))) = (wanted, of_slabs) {
        verdict.push(format!(
            "a memcached with slab classes of factor {factor} takes {} (-m {}) for {}",
            size(bytes as f64),
            bytes.div_ceil(MIB).max(2),
            given(wanted.hit_ratio)
        ));
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

/// The answer where a longer capture is needed for the memory of a hit ratio.
fn about_open(wanted: &Wanted, open: OpenQuestion, first: &FirstHits, currency: &str) -> String {
    let ratio = given(wanted.hit_ratio);
    let server = open_questions::of_server(first).unwrap_or_else(|| "the server was warm".to_owned());
    match (open, &wanted.dram) {
        (OpenQuestion::LessMayDo, Some(dram)) => format!(
            "a hit ratio of {ratio} takes at most {}{}{}; whether less would do: longer capture needed",
            words(dram, currency),
            over_network(dram),
            as_flags(dram)
        ),
        (OpenQuestion::LessMayDo | OpenQuestion::BelowServer, _) => {
            format!("a hit ratio of {ratio}: {server}; whether less memory would do: longer capture needed")
        }
        (OpenQuestion::BeyondServer, _) => {
            format!("a hit ratio of {ratio}: {server}; whether other memory would do: longer capture needed")
        }
    }
}

fn about_hit_ratio(wanted: &Wanted, first: &FirstHits, currency: &str) -> Vec<String> {
    let ratio = given(wanted.hit_ratio);
    let mut verdict = Vec::new();
    if let Some(open) = wanted.longer_capture {
        return vec![about_open(wanted, open, first, currency)];
    }
    match (&wanted.dram, &wanted.hybrid) {
        (None, None) => verdict.push(format!(
            "a hit ratio of {ratio} cannot be reached: every object's first get misses, so {} is the most",
            percent_below(wanted.reachable, wanted.hit_ratio)
        )),
        (dram, hybrid) => {
            if let Some(dram) = dram {
                verdict.push(format!(
                    "a hit ratio of {ratio} takes {}{}{}",
                    words(dram, currency),
                    over_network(dram),
                    as_flags(dram)
                ));
            }
            match hybrid {
                Some(hybrid) if wanted.flash_pays => verdict.push(format!(
                    "flash pays: {} reaches it too; the first limit is {}, {} used{}",
                    words(hybrid, currency),
                    hybrid.binding,
                    percent(hybrid.binding_used),
                    as_flags(hybrid)
                )),
                _ => verdict.push(match &wanted.beyond_limit {
                    Some(plan) => beyond_limit(plan, "reach it at less", currency),
                    None => "stay with DRAM: flash would not save a tenth of the price".to_owned(),
                }),
            }
        }
    }
    verdict
}

fn about_budget(budget: &Budget, currency: &str) -> Vec<String> {
    let mut verdict = Vec::new();
    let money = money(budget.money);
    match &budget.dram {
        Some(dram) => {
            let (ratio, over) = (hits(dram), over_network(dram));
            let open = if budget.longer_capture { "; where between: longer capture needed" } else { "" };
            verdict.push(format!(
                "for {money} {currency}, {} hit {ratio}{over}{}{open}",
                words(dram, currency),
                as_flags(dram)
            ));
        }
        None => verdict.push(format!("{money} {currency} buy less DRAM than a cache has at least, {}", size(MIN_DRAM))),
    }
    match budget.hybrid {
        _ if budget.longer_capture => {}
        Some(hybrid) if budget.flash_pays => {
            let (ratio, over) = (percent(hybrid.hit_ratio), over_network(&hybrid));
            verdict.push(format!("flash pays: {} hit {ratio}{over}{}", words(&hybrid, currency), as_flags(&hybrid)));
        }
        _ => verdict.extend(match &budget.beyond_limit {
            Some(plan) => Some(beyond_limit(plan, &format!("hit {}", percent(plan.hit_ratio)), currency)),
            None => budget.dram.map(|_| "stay with DRAM: flash would not avoid a tenth of the misses".to_owned()),
        }),
    }
    verdict
}

/// The network that hits need, if that is more than there is.
fn over_network(plan: &Plan) -> String {
    match plan.network_used > 1.0 {
        true => format!(" with {:.1} times the network", plan.network_used),
        false => String::new(),
    }
}

/// Why a mixture that would pay is not advised.
fn beyond_limit(plan: &Plan, earns: &str, currency: &str) -> String {
    let (limit, times) = match plan.device_used > 1.0 {
        true => (plan.device_binding, plan.device_used),
        false => (NETWORK, plan.network_used),
    };
    let life = match plan.flash_life_years {
        Some(years) if limit == ENDURANCE => format!(
            ", so that a drive of {} lasts {:.0} days; as a part of one of {} or more it would do (--flash-drive {}m)",
            size(plan.drive_bytes),
            years * 365.0,
            size(plan.drive_bytes * times),
            (plan.drive_bytes * times / MIB as f64).ceil() as u64
        ),
        _ => String::new(),
    };
    format!("stay with DRAM: {} would {earns}, but takes {times:.1} times the {limit}{life}", words(plan, currency))
}

/// The first plan by memory within a hundredth of the best hit ratio.
fn smallest(dram: &[Plan]) -> Option<Plan> {
    let best = dram.iter().map(|plan| plan.hit_ratio).fold(0.0, f64::max);
    dram.iter().find(|plan| plan.hit_ratio >= best - ENOUGH).copied()
}

fn about_pools(pools: &PoolAdvice) -> String {
    let memory = size(pools.memory_bytes as f64);
    let (divided, shared) = (percent(pools.divided_hit_ratio), percent(pools.shared_hit_ratio));
    if !pools.pays {
        return format!(
            "pools would gain little: of {memory} they hit {divided} at best, one cache {shared}; stay with one"
        );
    }
    let mut by_memory: Vec<&PoolShare> = pools.pools.iter().collect();
    by_memory.sort_by_key(|pool| std::cmp::Reverse(pool.memory_bytes));
    let deserve = |pool: &&PoolShare| format!("{} {}", pool.name, size(pool.memory_bytes as f64));
    let named: Vec<String> = by_memory.iter().take(NAMED_POOLS).map(deserve).collect();
    format!(
        "of {memory} the {} deserve {}: pools of these sizes hit {divided}, one cache {shared}",
        match pools.by {
            "prefix" => "prefixes",
            _ => "pools",
        },
        named.join(", ")
    )
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
    dram_table(advice, out)?;
    let hybrids =
        [advice.wanted.as_ref().and_then(|wanted| wanted.hybrid), advice.budget.as_ref().and_then(|b| b.hybrid)];
    hybrids.into_iter().flatten().try_for_each(|plan| hybrid_table(&plan, &advice.currency, out))?;
    if let Some(slabs) = &advice.slabs {
        writeln!(out, "\nmemcached with slab classes, {}:", slabs.words())?;
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
    if let Some(pools) = &advice.pools {
        pool_table(pools, &advice.currency, out)?;
    }
    writeln!(out)?;
    advice.caveats.iter().try_for_each(|caveat| writeln!(out, "note: {caveat}"))
}

fn dram_table(advice: &Advice, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\n{:<12} {:>10} {:>13} {:>16} {:>14}  flags",
        "DRAM", advice.currency, "hits", "backend/s", "mean ms"
    )?;
    for plan in &advice.dram {
        writeln!(
            out,
            "{:<12} {:>10} {:>13} {:>16.1} {:>14.3}  {}",
            size(plan.dram_bytes),
            money(plan.price),
            hits(plan),
            plan.backend_per_second,
            plan.mean_latency_ms,
            plan.flags.map_or_else(String::new, |flags| flags.to_string())
        )?;
    }
    Ok(())
}

fn hybrid_table(plan: &Plan, currency: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\n{}", words(plan, currency))?;
    let rows = [
        ("hits in DRAM, on flash", format!("{}, {}", percent(plan.dram_hit_ratio), percent(plan.flash_hit_ratio))),
        ("DRAM for the index of flash", size(plan.index_bytes)),
        ("reads of flash", format!("{:.1} a second", plan.flash_reads_per_second)),
        ("written to flash", format!("{}/s", size(plan.flash_written_bytes_per_second))),
        ("drive writes", format!("{:.2} a day", plan.drive_writes_per_day)),
        ("the drive writes", format!("{:.2} bytes for each", plan.device_amplification)),
        ("life of the drive", plan.flash_life_years.map_or("-".to_owned(), |years| format!("{years:.1} years"))),
        ("to the backend", format!("{:.1} a second", plan.backend_per_second)),
        ("mean latency", format!("{:.3} ms", plan.mean_latency_ms)),
        ("first limit", format!("{}, {} used", plan.binding, percent(plan.binding_used))),
        ("flags of the server", plan.flags.map_or_else(|| no_server(plan), |flags| flags.to_string())),
    ];
    rows.iter().try_for_each(|(name, value)| writeln!(out, "  {name:<28} {value}"))
}

fn pool_table(pools: &PoolAdvice, currency: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\n{} by {}:", size(pools.memory_bytes as f64), pools.by)?;
    writeln!(
        out,
        "{:<20} {:>8} {:>10} {:>12} {:>12} {:>10} {:>8} {:>22}",
        pools.by, "gets", "objects", "their bytes", "deserves", currency, "hits", "next MiB, hits/million"
    )?;
    for pool in &pools.pools {
        writeln!(
            out,
            "{:<20} {:>8} {:>10} {:>12} {:>12} {:>10} {:>8} {:>22.1}",
            pool.name,
            percent(pool.share_of_gets),
            pool.objects,
            size(pool.footprint_bytes as f64),
            size(pool.memory_bytes as f64),
            money(pool.price),
            percent(pool.hit_ratio),
            pool.hits_per_million_of_next_mib
        )?;
    }
    writeln!(
        out,
        "one cache hits {}, pools in proportion to their bytes {}, pools of these sizes {}",
        percent(pools.shared_hit_ratio),
        percent(pools.proportional_hit_ratio),
        percent(pools.divided_hit_ratio)
    )?;
    pools.flags.iter().try_for_each(|flags| writeln!(out, "{flags}"))
}
