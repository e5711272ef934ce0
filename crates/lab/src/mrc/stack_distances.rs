//! LRU for all sizes in one pass: the profile of `ebbtide_control`, and the buckets of the Dynacache paper.

use ebbtide_control::{BucketedStack, Options, Point, Profiler};

use crate::trace::Op;
use crate::trace::loaded::{LoadedTrace, Step, is_get};

/// Buckets and their objects, as in the paper (HotCloud'15, section 3.2).
const BUCKETS: usize = 100;
const BUCKET_OBJECTS: usize = 100;

/// The points of LRU. An object larger than the cache is refused, as by the other references. By stack distances it
/// would empty the cache, so it is left out of the profile, and its gets are misses.
pub(super) fn profiled(workload: &LoadedTrace, sizes: &[u64], exact: bool) -> Vec<Point> {
    let fits = |step: &Step| sizes.first().is_some_and(|&size| step.bytes() <= size);
    let mut profiler = Profiler::new(if exact { Options::exact() } else { Options::default() });
    profile(workload, fits, Step::bytes, &mut profiler);
    let (mut gets, mut bytes, mut refused, mut refused_bytes) = (0.0, 0.0, 0.0, 0.0);
    for step in workload.counted().iter().filter(|step| is_get(step.op)) {
        gets += 1.0;
        bytes += step.bytes() as f64;
        if !fits(step) {
            refused += 1.0;
            refused_bytes += step.bytes() as f64;
        }
    }
    let with = |ratio: f64, refused: f64, all: f64| ratio + (1.0 - ratio) * refused / f64::max(all, 1.0);
    if refused == gets {
        return sizes.iter().map(|&memory_bytes| Point::exact(memory_bytes, 1.0, 1.0)).collect();
    }
    let point = |point: &Point| Point {
        memory_bytes: point.memory_bytes,
        miss_ratio: with(point.miss_ratio, refused, gets),
        low: with(point.low, refused, gets),
        high: with(point.high, refused, gets),
        byte_miss_ratio: with(point.byte_miss_ratio, refused_bytes, bytes),
        byte_low: with(point.byte_low, refused_bytes, bytes),
        byte_high: with(point.byte_high, refused_bytes, bytes),
    };
    profiler.curve(sizes).points().iter().map(point).collect()
}

/// The points of LRU by buckets, which hold the newest 10,000 objects: a larger cache gets the same number of hits.
pub(super) fn bucketed(workload: &LoadedTrace, sizes: &[u64]) -> Vec<Point> {
    let mut stack = BucketedStack::new(BUCKETS, BUCKET_OBJECTS);
    let mut hits = vec![(0.0, 0.0); sizes.len()];
    let (mut gets, mut bytes) = (0.0, 0.0);
    each_access(
        workload,
        |_| true,
        |step, access| {
            let (key, size) = (u64::from(step.key), step.bytes() as f64);
            match access {
                LruAccess::Delete => drop(stack.remove(key)),
                LruAccess::Set { .. } | LruAccess::Get { is_counted: false, .. } => stack.push(key, size),
                LruAccess::Get { is_there, .. } => {
                    gets += 1.0;
                    bytes += size;
                    if let Some(distance) = stack.distance(key).filter(|_| is_there) {
                        let first = sizes.partition_point(|&memory| (memory as f64) < distance);
                        if let Some((count, hit_bytes)) = hits.get_mut(first) {
                            *count += 1.0;
                            *hit_bytes += size;
                        }
                    }
                    stack.push(key, size);
                }
            }
        },
    );
    let (mut found, mut found_bytes) = (0.0, 0.0);
    let point = |(&memory_bytes, (count, hit_bytes)): (&u64, (f64, f64))| {
        found += count;
        found_bytes += hit_bytes;
        let miss_ratio = 1.0 - found / f64::max(gets, 1.0);
        Point::exact(memory_bytes, miss_ratio, 1.0 - found_bytes / f64::max(bytes, 1.0))
    };
    sizes.iter().zip(hits).map(point).collect()
}

/// An access to LRU stacks, with the seconds that the object lives on; 0 is for ever.
enum LruAccess {
    Get { ttl_seconds: u32, is_there: bool, is_counted: bool },
    Set { ttl_seconds: u32 },
    Delete,
}

/// Feeds a profiler.
pub(super) fn profile(
    workload: &LoadedTrace,
    wanted: impl Fn(&Step) -> bool,
    bytes_of: impl Fn(&Step) -> u64,
    profiler: &mut Profiler,
) {
    each_access(workload, wanted, |step, access| {
        let (key, bytes, now) = (u64::from(step.key), bytes_of(step), u64::from(step.time));
        match access {
            LruAccess::Get { ttl_seconds, is_counted: true, .. } => profiler.get(key, bytes, ttl_seconds, now),
            LruAccess::Get { ttl_seconds, .. } | LruAccess::Set { ttl_seconds } => {
                profiler.set(key, bytes, ttl_seconds, now)
            }
            LruAccess::Delete => profiler.delete(key, now),
        }
    });
}

/// Calls `each` for the accesses of the wanted requests. The life of an object is counted from its load into an endless
/// cache: a stack drops objects, and would restart their lives.
fn each_access(workload: &LoadedTrace, wanted: impl Fn(&Step) -> bool, mut each: impl FnMut(&Step, LruAccess)) {
    let mut expires_at = vec![0u32; workload.objects()];
    for (number, step) in workload.steps.iter().enumerate().filter(|(_, step)| wanted(step)) {
        let is_counted = number >= workload.warmup;
        let expires_at = &mut expires_at[step.key as usize];
        let is_there = *expires_at > step.time;
        let is_written = match step.op {
            Op::Get | Op::Gets | Op::Add => !is_there,
            Op::Replace | Op::Cas | Op::Append | Op::Prepend => is_there,
            Op::Set | Op::Incr | Op::Decr => true,
            Op::Delete => false,
        };
        if is_written {
            *expires_at = match step.ttl_seconds {
                0 => u32::MAX,
                ttl => step.time.saturating_add(ttl),
            };
        }
        let ttl_seconds = if *expires_at == u32::MAX { 0 } else { expires_at.saturating_sub(step.time) };
        match step.op {
            Op::Get | Op::Gets => each(step, LruAccess::Get { ttl_seconds, is_there, is_counted }),
            Op::Delete => {
                *expires_at = 0;
                each(step, LruAccess::Delete);
            }
            _ if is_written => each(step, LruAccess::Set { ttl_seconds }),
            _ => {}
        }
    }
}
