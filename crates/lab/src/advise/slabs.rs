//! The same memory in a memcached with slab classes: as it falls out, and as it could be.

use ebbtide_control::division::{Tenant, divide};
use serde::Serialize;

use super::units::size;
use crate::mrc::TraceLoad;

/// Bytes of a page of memcached, the unit that goes to a class.
const PAGE_BYTES: u64 = 1 << 20;
/// Pages that a memory is divided into at least, if need be smaller ones: so each class can have several.
const MIN_PAGES: u64 = 256;

/// Hit ratios of one memory, divided among slab classes in two ways.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Slabs {
    pub memory_bytes: u64,
    pub smallest_chunk_bytes: u64,
    pub factor: f64,
    /// Bytes of a page; less than memcached's MiB for a small memory.
    pub page_bytes: u64,
    /// Gets of objects that are too large for memcached, and miss, among all.
    pub share_of_gets_too_large: f64,
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

impl Slabs {
    /// Memory and pages in words.
    pub fn words(&self) -> String {
        format!("{} in pages of {}", size(self.memory_bytes as f64), size(self.page_bytes as f64))
    }

    /// A note on the gets of objects that memcached refuses; `None` without any.
    pub fn caveat(&self) -> Option<String> {
        (self.share_of_gets_too_large > 0.0).then(|| {
            format!(
                "{:.1} % of gets are for objects over 1 MiB, which a memcached refuses: in its hit ratios they miss",
                self.share_of_gets_too_large * 100.0
            )
        })
    }
}

/// Compares both ways, with chunks from `smallest` bytes up by `factor`. `None` if the trace has no class, or the
/// memory no page.
pub(super) fn compare(load: &TraceLoad, memory_bytes: u64, (smallest, factor): (f64, f64)) -> Option<Slabs> {
    let (sample, all_bytes) = (u64::from(load.sample), memory_bytes);
    let memory_bytes = memory_bytes / sample;
    let page_bytes = PAGE_BYTES.min((memory_bytes / MIN_PAGES).next_power_of_two()).max(4096);
    let classes = load.slab_classes(smallest, factor);
    let pages = load.page_requests(smallest, factor, page_bytes);
    let page_count = (memory_bytes / page_bytes) as usize;
    let (chunks, tenants): (Vec<u64>, Vec<Tenant>) = classes.into_iter().unzip();
    let taken = &pages[..page_count.min(pages.len())];
    let first_come: Vec<u64> =
        chunks.iter().map(|chunk| taken.iter().filter(|page| *page == chunk).count() as u64 * page_bytes).collect();
    let optimal = divide(&tenants, memory_bytes, page_bytes).ok()?.bytes;
    let too_large = load.gets_of_too_large() as f64;
    let gets = too_large + tenants.iter().map(|tenant| tenant.gets).sum::<f64>();
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
        smallest_chunk_bytes: smallest as u64,
        factor,
        page_bytes: page_bytes * sample,
        share_of_gets_too_large: too_large / gets,
        first_come_hit_ratio,
        optimal_hit_ratio,
        misses_avoided: (optimal_hit_ratio - first_come_hit_ratio) / (1.0 - first_come_hit_ratio).max(1e-9),
        classes: rows.collect(),
    })
}
