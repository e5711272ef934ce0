//! Inputs of capacity planning from a trace: its load, and the curves of LRU and of the engine.

use ebbtide::Policy;
use ebbtide::memcached::MEMORY_BYTES_MIN as MIN_MEMORY;
use ebbtide_control::{Curve, Point, division::Tenant};

use super::first_hits::FirstHits;
use super::group::{self, LabelGroup};
use super::policy::CurvePolicy;
use super::simulate::{self, Found};
use super::sizes;
use super::slabs;
use crate::Error;
use crate::memory_size::MemorySize;
use crate::reference::Reference;
use crate::replay::each_in_order;
use crate::trace::Op;
use crate::trace::loaded::{LoadedTrace, is_get};

/// Requests that may have a pool of their own.
pub(crate) struct GroupLoad {
    pub(crate) name: String,
    pub(crate) gets: u64,
    pub(crate) objects: usize,
    pub(crate) footprint_bytes: u64,
    /// The engine by all of its memory, from no memory on.
    pub(crate) curve: Curve,
    /// The requests without a group of their own.
    pub(crate) is_rest: bool,
}

/// Memory of the next smaller cache of a curve that begins too high.
const LOWER: f64 = 0.7;
/// Bytes beside key and value of an object in a cache that is too small for a curve of the engine.
const OBJECT_OVERHEAD: f64 = 17.0;

impl GroupLoad {
    fn of(LabelGroup { name, part, is_rest }: LabelGroup, jobs: usize) -> Result<Self, Error> {
        let sizes = sizes::resolve(&[MemorySize::Auto], part.footprint_bytes.max(1))?;
        let more = [part.footprint_bytes + part.footprint_bytes / 4, part.footprint_bytes * 3 / 2];
        let engine_sizes: Vec<u64> = sizes.iter().copied().chain(more).filter(|&size| size >= MIN_MEMORY).collect();
        let engine = match engine_sizes.is_empty() {
            true => Curve::default(),
            false => curve(CurvePolicy::Engine(Policy::default()), &part, &engine_sizes, jobs)?,
        };
        // Smaller pools follow LRU, with the overhead of objects.
        let mean = part.footprint_bytes as f64 / part.objects().max(1) as f64;
        let scale = (mean + OBJECT_OVERHEAD) / mean.max(1.0);
        let lru = curve(CurvePolicy::Reference(Reference::Lru), &part, &sizes, jobs)?;
        let first = engine.points().first().map_or(u64::MAX, |point| point.memory_bytes);
        let scaled = |point: &Point| Point { memory_bytes: (point.memory_bytes as f64 * scale) as u64, ..*point };
        let mut points = vec![Point::without_memory()];
        points.extend(lru.points().iter().map(scaled).filter(|point| point.memory_bytes < first));
        points.extend(engine.points());
        points.dedup_by_key(|point| point.memory_bytes);
        let (gets, objects, footprint_bytes) = (part.gets(), part.objects(), part.footprint_bytes);
        Ok(Self { name, gets, objects, footprint_bytes, curve: Curve::new(points), is_rest })
    }
}

/// A trace as a load on a cache. Of a trace that is a sample of keys, everything is that of all keys.
pub(crate) struct TraceLoad {
    pub(crate) trace: String,
    pub(crate) requests: usize,
    pub(crate) gets: u64,
    /// Writes that the trace itself has.
    pub(crate) sets: u64,
    pub(crate) objects: usize,
    pub(crate) footprint_bytes: u64,
    /// Bytes of key and value of the object of a get, on average.
    pub(crate) hit_bytes: f64,
    /// From the first to the last request that counts; at least one.
    pub(crate) seconds: u64,
    /// LRU, by bytes of keys and values.
    pub(crate) lru: Curve,
    /// The engine, by all of its memory.
    pub(crate) engine: Curve,
    /// Gets that are the first of their key and whose answer the server of a capture gave.
    pub(crate) first: FirstHits,
    /// The engine, with a miss for each first get.
    cold_engine: Curve,
    /// The load has this multiple of the keys of the trace.
    pub(crate) sample: u32,
    workload: LoadedTrace,
}

impl TraceLoad {
    /// Computes the curves of a trace.
    ///
    /// # Errors
    /// Those of a replay, and [`Error::NoGets`].
    pub(crate) fn of(workload: LoadedTrace, jobs: usize) -> Result<Self, Error> {
        let workload = workload.with_gets()?;
        let sample = u64::from(workload.sample);
        if workload.footprint_bytes == 0 {
            let reason = "its objects have no bytes, so there is no size to advise".to_owned();
            return Err(Error::Configuration { option: "the trace", value: workload.trace, reason });
        }
        let sizes = sizes::resolve(&[MemorySize::Auto], workload.footprint_bytes)?;
        // The engine needs more than the objects: the whole footprint fits 1.5 times it.
        let more = [workload.footprint_bytes + workload.footprint_bytes / 4, workload.footprint_bytes * 3 / 2];
        let mut engine_sizes: Vec<u64> = sizes.iter().copied().chain(more).map(|size| size.max(MIN_MEMORY)).collect();
        engine_sizes.dedup();
        let lru = curve(CurvePolicy::Reference(Reference::Lru), &workload, &sizes, jobs)?;
        let engine = curve(CurvePolicy::Engine(Policy::default()), &workload, &engine_sizes, jobs)?;
        let (gets, counted) = (workload.gets(), workload.counted());
        let first = FirstHits::of(&workload);
        let (lru, cold_engine) = (scaled(&lru, sample), scaled(&engine, sample));
        let of_gets = || counted.iter().filter(|step| is_get(step.op));
        let hit_bytes = of_gets().map(|step| step.bytes() as f64).sum::<f64>() / gets.max(1) as f64;
        let is_write = |op: Op| !is_get(op) && op != Op::Delete;
        Ok(Self {
            trace: workload.trace.clone(),
            requests: workload.steps.len() * sample as usize,
            gets: gets * sample,
            sets: counted.iter().filter(|step| is_write(step.op)).count() as u64 * sample,
            objects: workload.objects() * sample as usize,
            footprint_bytes: workload.footprint_bytes * sample,
            hit_bytes,
            seconds: match counted {
                [from, .., to] => u64::from(to.time - from.time).max(1),
                _ => 1,
            },
            lru: first.added_to(&lru),
            engine: first.added_to(&cold_engine),
            first,
            cold_engine,
            sample: workload.sample,
            workload,
        })
    }

    /// Adds smaller caches to the engine's curve while `is_too_large` holds for its first point.
    ///
    /// # Errors
    /// Those of a replay.
    pub(crate) fn begin_lower(&mut self, jobs: usize, is_too_large: impl Fn(&Point) -> bool) -> Result<(), Error> {
        let sample = u64::from(self.sample);
        while let Some(first) = self.cold_engine.points().first().filter(|first| is_too_large(first)) {
            let size = ((first.memory_bytes / sample) as f64 * LOWER).max(MIN_MEMORY as f64) as u64;
            if size * sample >= first.memory_bytes {
                break;
            }
            let lower = curve(CurvePolicy::Engine(Policy::default()), &self.workload, &[size], jobs)?;
            if lower.points().is_empty() {
                break;
            }
            let lower = scaled(&lower, sample);
            self.cold_engine = Curve::new(lower.points().iter().chain(self.cold_engine.points()).copied().collect());
            self.engine = self.first.added_to(&self.cold_engine);
        }
        Ok(())
    }

    /// The sizes of the engine's curve, without the end of the part that first hits are no part of.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u64> {
        let end = self.first.held_bytes.filter(|_| self.first.hit_share > 0.0).map(|held| held - 1);
        self.engine.points().iter().map(|point| point.memory_bytes).filter(move |&size| Some(size) != end)
    }

    /// The least memory that has this hit ratio if every first get that may hit does so; `None` if none has.
    pub(crate) fn min_memory_for(&self, hit_ratio: f64) -> Option<u64> {
        self.cold_engine.memory_for(1.0 - (hit_ratio - self.first.hit_share - self.first.unknown_share))
    }

    /// Limitations of the result.
    pub(crate) fn caveats(&self) -> Vec<String> {
        self.workload.caveats()
    }

    /// The slab classes of memcached, for the trace as it is, as tenants: chunks that grow by `factor`, from `smallest`
    /// bytes up. The memory of a class is in bytes of chunks. Answers the chunk size with each.
    pub(crate) fn slab_classes(&self, smallest: f64, factor: f64) -> Vec<(u64, Tenant)> {
        slabs::tenants(&self.workload, smallest, factor)
    }

    /// The groups of requests that may be pools, the one with the most gets first, each as it is in the trace and with
    /// the curve of an engine of its own. Labels beyond `max_pools`, and those that cannot have a pool, share the last
    /// group.
    ///
    /// # Errors
    /// Those of a replay.
    pub(crate) fn groups(
        &self,
        max_pools: usize,
        can_have_pool: impl Fn(&str) -> bool,
        jobs: usize,
    ) -> Result<Vec<GroupLoad>, Error> {
        let groups = group::of_labels(&self.workload, max_pools, can_have_pool).into_iter();
        groups.filter(|group| group.part.gets() > 0).map(|group| GroupLoad::of(group, jobs)).collect()
    }

    /// Bytes of the longest value.
    pub(crate) fn longest_value_bytes(&self) -> u64 {
        self.workload.steps.iter().map(|step| u64::from(step.value_size)).max().unwrap_or(0)
    }

    /// Gets, of the trace as it is, of objects that memcached does not take.
    pub(crate) fn gets_of_too_large(&self) -> u64 {
        slabs::gets_of_too_large(&self.workload)
    }

    /// The chunk sizes in the order in which the trace as it is first needs one more page of each, with `page_bytes` a
    /// page.
    pub(crate) fn page_requests(&self, smallest: f64, factor: f64, page_bytes: u64) -> Vec<u64> {
        slabs::page_requests(&self.workload, smallest, factor, page_bytes)
    }
}

/// The curve of a load with `sample` times the keys.
fn scaled(curve: &Curve, sample: u64) -> Curve {
    let scale = |point: &Point| Point { memory_bytes: point.memory_bytes * sample, ..*point };
    Curve::new(curve.points().iter().map(scale).collect())
}

fn curve(policy: CurvePolicy, workload: &LoadedTrace, sizes: &[u64], jobs: usize) -> Result<Curve, Error> {
    let cells = simulate::cells(policy, workload, sizes);
    let mut found: Vec<Found> = Vec::new();
    let compute = |index: usize| cells[index].compute(workload, false);
    each_in_order(cells.len(), jobs, compute, |_, one| {
        found.push(one?);
        Ok(())
    })?;
    Ok(simulate::joined(policy, None, workload, found).curve)
}
