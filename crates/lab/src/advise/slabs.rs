//! The same memory in a memcached with slab classes: as it falls out, and as it could be.

use ebbtide_control::division::{Tenant, divide};
use serde::Serialize;

use crate::mrc::TraceLoad;

/// Bytes of a page of memcached, the unit that goes to a class.
const PAGE_BYTES: u64 = 1 << 20;
/// Bytes of the smallest chunk.
const SMALLEST_CHUNK: f64 = 96.0;

/// Hit ratios of one memory, divided among slab classes in two ways.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Slabs {
    pub memory_bytes: u64,
    pub factor: f64,
    /// Pages go to the class that asks first, and stay there.
    pub first_come_hit_ratio: f64,
    /// Pages where they earn most hits.
    pub optimal_hit_ratio: f64,
    /// Part of the misses that the optimal division avoids.
    pub misses_avoided: f64,
    pub classes: Vec<SlabClass>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct SlabClass {
    pub chunk_bytes: u64,
    pub share_of_gets: f64,
    pub first_come_bytes: u64,
    pub first_come_hit_ratio: f64,
    pub optimal_bytes: u64,
    pub optimal_hit_ratio: f64,
}

/// Compares both ways. `None` if the trace has no class, or the memory no page.
pub(super) fn compare(load: &TraceLoad, memory_bytes: u64, factor: f64) -> Option<Slabs> {
    let (sample, all_bytes) = (u64::from(load.sample), memory_bytes);
    let memory_bytes = memory_bytes / sample;
    // Small traces in pages that are as much smaller, so that each class can have several.
    let page_bytes = PAGE_BYTES.min((memory_bytes / 256).next_power_of_two()).max(4096);
    let classes = load.slab_classes(SMALLEST_CHUNK, factor);
    let pages = load.page_requests(SMALLEST_CHUNK, factor, page_bytes);
    let page_count = (memory_bytes / page_bytes) as usize;
    let (chunks, tenants): (Vec<u64>, Vec<Tenant>) = classes.into_iter().unzip();
    let taken = &pages[..page_count.min(pages.len())];
    let first_come: Vec<u64> =
        chunks.iter().map(|chunk| taken.iter().filter(|page| *page == chunk).count() as u64 * page_bytes).collect();
    let optimal = divide(&tenants, memory_bytes, page_bytes).ok()?.bytes;
    let gets: f64 = tenants.iter().map(|tenant| tenant.gets).sum();
    let hits = |tenant: &Tenant, bytes: u64| 1.0 - tenant.curve.miss_ratio_at(bytes).unwrap_or(1.0);
    let ratio = |division: &[u64]| {
        let all = tenants.iter().zip(division).map(|(tenant, bytes)| tenant.gets * hits(tenant, *bytes));
        all.sum::<f64>() / gets
    };
    let rows =
        chunks.iter().zip(&tenants).zip(first_come.iter().zip(&optimal)).map(|((chunk, tenant), (first, best))| {
            SlabClass {
                chunk_bytes: *chunk,
                share_of_gets: tenant.gets / gets,
                first_come_bytes: *first * sample,
                first_come_hit_ratio: hits(tenant, *first),
                optimal_bytes: *best * sample,
                optimal_hit_ratio: hits(tenant, *best),
            }
        });
    let (first_come_hit_ratio, optimal_hit_ratio) = (ratio(&first_come), ratio(&optimal));
    Some(Slabs {
        memory_bytes: all_bytes,
        factor,
        first_come_hit_ratio,
        optimal_hit_ratio,
        misses_avoided: (optimal_hit_ratio - first_come_hit_ratio) / (1.0 - first_come_hit_ratio).max(1e-9),
        classes: rows.collect(),
    })
}
