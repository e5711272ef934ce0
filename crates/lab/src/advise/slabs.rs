//! Hit ratios of a memcached with slab classes at equal memory: with the division of memcached, and with the best one.

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
    /// Memory at which first come first served reaches the wanted hit ratio; `None` if none does, or none is wanted.
    pub wanted_bytes: Option<u64>,
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

/// The classes of a trace, with the memory of its sample.
struct Classes<'l> {
    load: &'l TraceLoad,
    smallest: f64,
    factor: f64,
    chunks: Vec<u64>,
    tenants: Vec<Tenant>,
    /// Gets that miss whatever the division, as their objects are too large, and all.
    too_large: f64,
    gets: f64,
}

impl<'l> Classes<'l> {
    fn new(load: &'l TraceLoad, (smallest, factor): (f64, f64)) -> Self {
        let (chunks, tenants): (Vec<u64>, Vec<Tenant>) = load.slab_classes(smallest, factor).into_iter().unzip();
        let too_large = load.gets_of_too_large() as f64;
        let gets = too_large + tenants.iter().map(|tenant| tenant.gets).sum::<f64>();
        Self { load, smallest, factor, chunks, tenants, too_large, gets }
    }

    /// Bytes of each class if pages go to the one that asks first.
    fn first_come(&self, memory_bytes: u64) -> Vec<u64> {
        let page_bytes = page_bytes(memory_bytes);
        let pages = self.load.page_requests(self.smallest, self.factor, page_bytes);
        let taken = &pages[..((memory_bytes / page_bytes) as usize).min(pages.len())];
        let of_class = |chunk| taken.iter().filter(|page| *page == chunk).count() as u64 * page_bytes;
        self.chunks.iter().map(of_class).collect()
    }

    fn hit_ratio(&self, division: &[u64]) -> f64 {
        let all = self.tenants.iter().zip(division).map(|(tenant, bytes)| tenant.gets * hits(tenant, *bytes));
        all.sum::<f64>() / self.gets
    }

    /// The least memory, to a 256th, with which first come reaches this hit ratio; `None` if none does.
    fn memory_for(&self, hit_ratio: f64) -> Option<u64> {
        let reaches = |memory_bytes| self.hit_ratio(&self.first_come(memory_bytes)) >= hit_ratio;
        let of_all = |tenant: &Tenant| tenant.curve.points().last().map_or(0, |point| point.memory_bytes);
        let (mut less, mut enough) = (0, self.tenants.iter().map(|tenant| of_all(tenant) + PAGE_BYTES).sum::<u64>());
        if !reaches(enough) {
            return None;
        }
        while enough - less > (enough / MIN_PAGES).max(1) {
            let middle = u64::midpoint(less, enough);
            *(if reaches(middle) { &mut enough } else { &mut less }) = middle;
        }
        Some(enough)
    }
}

fn page_bytes(memory_bytes: u64) -> u64 {
    PAGE_BYTES.min((memory_bytes / MIN_PAGES).next_power_of_two()).max(4096)
}

fn hits(tenant: &Tenant, bytes: u64) -> f64 {
    1.0 - tenant.curve.miss_ratio_at(bytes).unwrap_or(1.0)
}

/// Compares both ways, with chunks from the smallest up by a factor, and looks for the memory of a wanted hit ratio.
/// `None` if the trace has no class, or the memory no page.
pub(super) fn compare(
    load: &TraceLoad,
    memory_bytes: u64,
    chunks: (f64, f64),
    wanted_hit_ratio: Option<f64>,
) -> Option<Slabs> {
    let classes = Classes::new(load, chunks);
    let (sample, all_bytes) = (u64::from(load.sample), memory_bytes);
    let memory_bytes = memory_bytes / sample;
    let page_bytes = page_bytes(memory_bytes);
    let first_come = classes.first_come(memory_bytes);
    let optimal = divide(&classes.tenants, memory_bytes, page_bytes).ok()?.bytes;
    let of_classes = classes.chunks.iter().zip(&classes.tenants);
    let rows = of_classes.zip(first_come.iter().zip(&optimal)).map(|((chunk, tenant), (first, best))| SlabClass {
        chunk_bytes: *chunk,
        share_of_gets: tenant.gets / classes.gets,
        first_come_bytes: *first * sample,
        first_come_hit_ratio: hits(tenant, *first),
        optimal_bytes: *best * sample,
        optimal_hit_ratio: hits(tenant, *best),
    });
    let (first_come_hit_ratio, optimal_hit_ratio) = (classes.hit_ratio(&first_come), classes.hit_ratio(&optimal));
    let wanted_bytes = wanted_hit_ratio.and_then(|wanted| classes.memory_for(wanted));
    Some(Slabs {
        memory_bytes: all_bytes,
        smallest_chunk_bytes: classes.smallest as u64,
        factor: classes.factor,
        page_bytes: page_bytes * sample,
        share_of_gets_too_large: classes.too_large / classes.gets,
        first_come_hit_ratio,
        optimal_hit_ratio,
        misses_avoided: (optimal_hit_ratio - first_come_hit_ratio) / (1.0 - first_come_hit_ratio).max(1e-9),
        wanted_bytes: wanted_bytes.map(|bytes| bytes * sample),
        classes: rows.collect(),
    })
}
