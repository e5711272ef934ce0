//! A memcached with slab classes, seen through stack distances: each class is an LRU of its own (Dynacache,
//! HotCloud'15, section 2).

use ebbtide_control::division::Tenant;
use ebbtide_control::{Options, Profiler};

use super::stack_distances::profile;
use crate::trace::loaded::{LoadedTrace, Step, is_get};

/// Bytes of an item of memcached beside key and value: header, CAS token, suffix.
const ITEM_BYTES: u64 = 56;
/// Largest item that memcached accepts by default (`-I`), in bytes.
const ITEM_BYTES_MAX: u64 = 1 << 20;
/// Classes of memcached at most, beside the last one of half a page.
const CLASSES_MAX: usize = 62;
/// Points of the curve of a class.
const POINTS: u64 = 48;

/// Classes of chunks: `smallest` bytes, then by `factor`, in multiples of eight, up to 512 KiB and the rest. If a small
/// factor would make too many, the last class takes all larger objects.
fn chunk_sizes(smallest: f64, factor: f64) -> Vec<u64> {
    let (mut sizes, mut size) = (Vec::new(), smallest.max(8.0));
    while size < f64::from(1 << 19) && sizes.len() < CLASSES_MAX {
        sizes.push((size / 8.0).ceil() as u64 * 8);
        size = (size * factor).max(size + 8.0);
    }
    sizes.push(1 << 19);
    sizes.dedup();
    sizes
}

/// The class of an object; the last class takes larger objects in several chunks.
fn class_of(sizes: &[u64], step: &Step) -> usize {
    sizes.partition_point(|size| *size < step.bytes() + ITEM_BYTES).min(sizes.len() - 1)
}

/// Whether memcached takes the object.
fn is_taken(step: &Step) -> bool {
    step.bytes() + ITEM_BYTES <= ITEM_BYTES_MAX
}

/// Gets of objects that memcached does not take: they miss.
pub(super) fn gets_of_too_large(workload: &LoadedTrace) -> u64 {
    workload.counted().iter().filter(|step| is_get(step.op) && !is_taken(step)).count() as u64
}

/// Chunk bytes that an object takes.
fn chunk_bytes(sizes: &[u64], step: &Step) -> u64 {
    let size = sizes[class_of(sizes, step)];
    (step.bytes() + ITEM_BYTES).div_ceil(size) * size
}

/// The classes that the trace uses, each with its chunk size and the curve of an LRU in bytes of chunks.
pub(super) fn tenants(workload: &LoadedTrace, smallest: f64, factor: f64) -> Vec<(u64, Tenant)> {
    let sizes = chunk_sizes(smallest, factor);
    let tenant = |class: usize| {
        let mut profiler = Profiler::new(Options::default());
        let is_of_class = |step: &Step| is_taken(step) && class_of(&sizes, step) == class;
        profile(workload, is_of_class, |step| chunk_bytes(&sizes, step), &mut profiler);
        let gets = profiler.gets();
        let footprint = workload.footprint_of(is_of_class, |step| chunk_bytes(&sizes, step));
        if gets == 0.0 || footprint == 0 {
            return None;
        }
        let mut points: Vec<u64> = (1..=POINTS).map(|part| (footprint * part).div_ceil(POINTS)).collect();
        points.dedup();
        let curve = with_nothing(&profiler.curve(&points));
        Some((sizes[class], Tenant { curve, gets, value: 1.0, min_bytes: 0, max_bytes: u64::MAX }))
    };
    (0..sizes.len()).filter_map(tenant).collect()
}

/// The curve with its start: without memory every get misses.
fn with_nothing(curve: &ebbtide_control::Curve) -> ebbtide_control::Curve {
    let nothing = ebbtide_control::Point::without_memory();
    ebbtide_control::Curve::new(std::iter::once(nothing).chain(curve.points().iter().copied()).collect())
}

/// The chunk size of each page in the order in which an empty memcached would take them: a class takes a page when its
/// chunks are used up, first come first served.
pub(super) fn page_requests(workload: &LoadedTrace, smallest: f64, factor: f64, page_bytes: u64) -> Vec<u64> {
    let sizes = chunk_sizes(smallest, factor);
    let mut free = vec![0_u64; sizes.len()];
    let mut seen = vec![false; workload.objects()];
    let mut pages = Vec::new();
    let is_stored = |step: &&Step| (is_get(step.op) || step.bytes() > 0) && is_taken(step);
    for step in workload.steps.iter().filter(is_stored) {
        if std::mem::replace(&mut seen[step.key as usize], true) {
            continue;
        }
        let (class, bytes) = (class_of(&sizes, step), chunk_bytes(&sizes, step));
        while free[class] < bytes {
            pages.push(sizes[class]);
            free[class] += page_bytes;
        }
        free[class] -= bytes;
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_grow_by_their_factor() {
        let sizes = chunk_sizes(96.0, 1.25);
        assert_eq!(&sizes[..4], [96, 120, 152, 192]);
        assert_eq!(sizes.last(), Some(&(1 << 19)));
        assert!(sizes.is_sorted());
        assert_eq!(&chunk_sizes(64.0, 2.0)[..4], [64, 128, 256, 512]);
        let many = chunk_sizes(48.0, 1.001);
        assert_eq!((many.len(), many[61], many[62]), (63, 48 + 61 * 8, 1 << 19));
    }
}
