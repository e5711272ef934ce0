//! Whether the cache has the right size: the profile of its accesses, taken in once a second by the admin thread.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ebbtide::memcached::{ByteSize, Cache, CacheProfile, CurvePoint, Verdict};
use serde_json::{Value, json};

/// Gets that tell the miss ratio that the level of a curve is set by.
const MIN_GETS: u64 = 1000;

/// The profile, and what was last made of it for threads that do not wait for it.
#[derive(Debug, Default)]
pub struct Sizing {
    profile: Mutex<Option<CacheProfile>>,
    latest: Mutex<LatestVerdict>,
}

#[derive(Clone, Copy, Debug, Default)]
struct LatestVerdict {
    verdict: Option<Verdict>,
    miss_ratio: Option<f64>,
}

impl Sizing {
    /// Begins to sample the accesses of a cache.
    pub fn start(&self, cache: &Cache) {
        *lock(&self.profile) = Some(CacheProfile::of(cache));
    }

    /// Takes in what was sampled. `gets` and `hits` are those of the last minutes.
    pub fn update(&self, gets: u64, hits: u64) {
        let mut profile = lock(&self.profile);
        let Some(profile) = profile.as_mut() else { return };
        profile.update();
        let miss_ratio = (gets >= MIN_GETS).then(|| 1.0 - hits.min(gets) as f64 / gets as f64);
        *lock(&self.latest) = LatestVerdict { verdict: profile.verdict(miss_ratio), miss_ratio };
    }

    /// The verdict in a line; `None` before enough was seen, and without an admin interface.
    pub fn verdict(&self) -> Option<String> {
        lock(&self.latest).verdict.map(|verdict| verdict.to_string())
    }

    /// The curve as JSON, and the point at `memory_bytes`, if one is asked for.
    pub fn curve(&self, memory_bytes: Option<u64>) -> Value {
        let LatestVerdict { verdict, miss_ratio } = *lock(&self.latest);
        let profile = lock(&self.profile);
        let found = profile.as_ref().and_then(|profile| {
            let what_if = memory_bytes.and_then(|bytes| profile.what_if(ByteSize::bytes(bytes), miss_ratio));
            Some((profile.curve(miss_ratio)?, what_if))
        });
        drop(profile);
        let Some((curve, what_if)) = found else {
            return json!({ "verdict": null, "points": [], "note": "too few gets were sampled yet" });
        };
        json!({
            "policy": "lru",
            "verdict": verdict.map(|verdict| verdict.to_string()),
            "full": curve.is_full,
            "measured_miss_ratio": miss_ratio.map(rounded),
            "evicted_after_seconds": curve.evicted_after.map(|after| rounded(after.as_secs_f64())),
            "present": point(&curve.present),
            "points": curve.points.iter().map(point).collect::<Vec<_>>(),
            "what_if": what_if.as_ref().map(point),
            "sampled_keys": curve.sampled_keys,
            "sample_rate": rounded(curve.sample_rate),
            "dropped_samples": curve.dropped_samples,
        })
    }
}

/// What a thread that panicked left behind is whole: each update of it is one assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn point(point: &CurvePoint) -> Value {
    let CurvePoint { memory_bytes, miss_ratio, low, high } = *point;
    json!({ "memory_bytes": memory_bytes, "miss_ratio": rounded(miss_ratio), "low": rounded(low), "high": rounded(high) })
}

/// Eight decimals: more are none of the sample.
fn rounded(ratio: f64) -> f64 {
    (ratio * 1e8).round() / 1e8
}
