use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::args::Arrivals;
use super::plan::Plan;
use super::tally::{LatencyTally, OtherWrites, PoolTally};
use crate::flash::FlashReport;
use crate::format;

/// Results of a load; the names of the fields are the names in the JSON object.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// `in-process`, or the address of the server.
    pub target: String,
    /// Number of keys requested, written or deleted, fills included.
    pub requests: u64,
    /// From the start of the measurement to the end of the last thread.
    pub seconds: f64,
    /// requests / seconds.
    pub ops_per_second: f64,
    /// In process: the sum over the threads of requests per time spent in the cache, without the time in which requests
    /// are drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_ops_per_second: Option<f64>,
    pub gets: u64,
    pub hits: u64,
    /// hits / gets; 0 without gets.
    pub hit_ratio: f64,
    pub sets: u64,
    /// Sets that followed a miss; not among `sets`.
    pub fills: u64,
    /// Only of a trace or a workload.
    pub deletes: u64,
    /// Of a trace or a workload that has such.
    #[serde(flatten)]
    pub writes: Option<OtherWrites>,
    /// Requests that were refused.
    pub errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// Of whole gets: all keys of a batch.
    pub get_latency: Option<Latency>,
    /// Of all writes.
    pub set_latency: Option<Latency>,
    pub delete_latency: Option<Latency>,
    /// Of all requests.
    pub latency: Option<Latency>,
    /// Bytes over the network.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    #[serde(flatten)]
    pub pace: Option<PaceReport>,
    /// Of a workload with several pools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<BenchPoolReport>,
    /// Counters of flash, prefill included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash: Option<FlashReport>,
    /// Keys of the configuration of CacheBench that have no effect here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
    /// The trace or workload that was played.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Number of distinct keys of the load.
    pub keys: u64,
    #[serde(flatten)]
    pub drawn: Option<DrawnReport>,
    pub threads: u16,
    pub batch: u16,
    pub pipeline: u16,
    pub connections: usize,
    pub seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<&'static str>,
}

impl BenchReport {
    /// The results in one sentence.
    pub(super) fn conclusion(&self) -> String {
        let rate = format::rate(Some(self.ops_per_second));
        let latency = self.latency.as_ref().map_or_else(String::new, |latency| {
            let us = |us: f64| format::micros(Some(us));
            format!(", half of them within {} and 99 % within {}", us(latency.p50_us), us(latency.p99_us))
        });
        let hits = match self.gets {
            0 => String::new(),
            _ => format!("; {} of the gets hit", format::percent(Some(self.hit_ratio))),
        };
        let unsent = self.pace.as_ref().map_or(0, |pace| pace.unsent);
        let overload = match unsent {
            0 => String::new(),
            _ => format!(
                "; {} that were due could not be sent: the latencies are of an overload",
                format::count(Some(unsent))
            ),
        };
        let errors = match self.errors {
            0 => String::new(),
            errors => format!("; {} were refused", format::count(Some(errors))),
        };
        let in_cache = self.cache_ops_per_second.map_or_else(String::new, |rate| {
            format!(" ({} without the drawing of requests)", format::rate(Some(rate)))
        });
        format!("{} did {rate}{in_cache}{latency}{hits}{overload}{errors}", self.target)
    }
}

/// One pool of a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchPoolReport {
    pub name: String,
    pub gets: u64,
    pub hits: u64,
    /// In process: its part of the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// How requests came due in an open loop.
#[derive(Clone, Debug, Serialize)]
pub struct PaceReport {
    /// Requests per second that were to be sent.
    pub rate: f64,
    pub arrivals: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Requests that were due at the start, by the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u64>,
    /// Requests that were due before the end and could not be sent: the server was too slow, and the latencies are of
    /// an overload.
    pub unsent: u64,
    /// How long after its time a request was sent, for lack of a connection or because this client was held up. It is
    /// part of the latencies.
    pub delay: Option<Latency>,
}

/// How requests were drawn, if nothing was played.
#[derive(Clone, Debug, Serialize)]
pub struct DrawnReport {
    pub popularity: &'static str,
    pub exponent: f64,
    pub key_size: String,
    pub value_size: String,
    pub get_ratio: f64,
    pub ttl: u32,
}

/// Latencies in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// How many requests had their latency taken.
    pub samples: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub p9999_us: f64,
    pub max_us: f64,
    /// How many requests took how long, from the shortest on; together they are `samples`.
    pub buckets: Vec<LatencyBucket>,
}

/// Requests with a latency of at most `max_us`, and above that of the previous bucket.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyBucket {
    /// None in the last one, of those that took longer than all others' bounds.
    #[serde(rename = "at_most_us")]
    pub max_us: Option<u64>,
    pub requests: u64,
}

/// The bounds of latency buckets in microseconds: memory, a fast drive, a slow one, trouble.
const BUCKETS_US: [u64; 10] = [50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000, 1_000_000];

/// The report of all threads together.
pub(super) fn report(tally: LatencyTally, plan: &Plan, elapsed: Duration) -> BenchReport {
    let args = &plan.args;
    let mut all = tally.get_latency.clone();
    all += &tally.set_latency;
    all += &tally.delete_latency;
    BenchReport {
        target: args.target.clone().unwrap_or("in-process".into()),
        requests: tally.requests(),
        seconds: elapsed.as_secs_f64(),
        ops_per_second: tally.requests() as f64 / elapsed.as_secs_f64().max(1e-9),
        cache_ops_per_second: None,
        gets: tally.gets,
        hits: tally.hits,
        hit_ratio: match tally.gets {
            0 => 0.0,
            gets => tally.hits as f64 / gets as f64,
        },
        sets: tally.sets,
        fills: tally.fills,
        deletes: tally.deletes,
        writes: (tally.writes.requests() > 0).then_some(tally.writes),
        errors: tally.errors,
        first_error: tally.first_error,
        get_latency: latency(&tally.get_latency),
        set_latency: latency(&tally.set_latency),
        delete_latency: latency(&tally.delete_latency),
        latency: latency(&all),
        bytes_sent: tally.bytes_sent,
        bytes_received: tally.bytes_received,
        pools: plan
            .objects
            .pools()
            .iter()
            .enumerate()
            .map(|(place, name)| {
                let PoolTally { gets, hits } = tally.pools.get(place).copied().unwrap_or_default();
                BenchPoolReport { name: name.clone(), gets, hits, memory_bytes: None }
            })
            .collect(),
        flash: None,
        ignored: plan.objects.ignored().to_vec(),
        pace: plan.pace.map(|pace| PaceReport {
            rate: pace.rate,
            at_once: (pace.at_once > 0).then_some(pace.at_once),
            arrivals: args.arrivals.name(),
            burst: (args.arrivals == Arrivals::Bursty).then_some(args.burst),
            unsent: tally.unsent,
            delay: latency(&tally.delay),
        }),
        trace: args.recorded().map(|(_, name)| name),
        keys: plan.objects.count(),
        drawn: args.recorded().is_none().then(|| DrawnReport {
            popularity: args.popularity.name(),
            exponent: args.exponent,
            key_size: args.key_size.to_string(),
            value_size: args.value_size.to_string(),
            get_ratio: args.get_ratio,
            ttl: args.ttl,
        }),
        threads: args.threads,
        batch: args.batch,
        pipeline: args.pipeline,
        connections: args.connections(),
        seed: args.seed,
        protocol: args.target.is_some().then(|| args.protocol.name()),
    }
}

fn latency(histogram: &Histogram<u64>) -> Option<Latency> {
    let microseconds = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    (!histogram.is_empty()).then(|| Latency {
        samples: histogram.len(),
        mean_us: histogram.mean() / 1000.0,
        p50_us: microseconds(0.5),
        p90_us: microseconds(0.9),
        p99_us: microseconds(0.99),
        p999_us: microseconds(0.999),
        p9999_us: microseconds(0.9999),
        max_us: histogram.max() as f64 / 1000.0,
        buckets: buckets(histogram),
    })
}

fn buckets(histogram: &Histogram<u64>) -> Vec<LatencyBucket> {
    let mut counted = 0;
    let bounds = BUCKETS_US.map(|us| (Some(us), us * 1000)).into_iter().chain([(None, u64::MAX)]);
    let bucket = |(max_us, ns)| {
        let requests = histogram.count_between(0, ns) - counted;
        counted += requests;
        LatencyBucket { max_us, requests }
    };
    bounds.map(bucket).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::tally::{empty_histogram, record};
    use super::*;
    use crate::bench::BenchArgs;

    #[derive(Parser)]
    struct TestArgs {
        #[command(flatten)]
        args: BenchArgs,
    }

    #[test]
    fn the_conclusion_says_rate_latency_and_hits() {
        let args = TestArgs::parse_from("bench --target x:1 --rate 10".split(' ')).args;
        let plan = Plan::new(&args).unwrap();
        let mut tally = LatencyTally { gets: 40, hits: 30, errors: 2, unsent: 7, ..LatencyTally::default() };
        record(&mut tally.get_latency, Duration::from_micros(1500));
        let sentence = report(tally, &plan, Duration::from_secs(2)).conclusion();
        assert!(sentence.starts_with("x:1 did 20/s, half of them within 1.5 ms and 99 % within 1.5 ms"), "{sentence}");
        assert!(sentence.contains("; 75.0 % of the gets hit; 7 that were due could not be sent"), "{sentence}");
        assert!(sentence.ends_with("; 2 were refused"), "{sentence}");
        let idle = report(LatencyTally::default(), &plan, Duration::from_secs(2)).conclusion();
        assert_eq!(idle, "x:1 did 0/s");
    }

    #[test]
    fn latency_buckets_count_each_request_once() {
        let mut taken = empty_histogram();
        for us in [1, 40, 60, 150, 180, 900, 20_000, 5_000_000] {
            record(&mut taken, Duration::from_micros(us));
        }
        let buckets = latency(&taken).unwrap().buckets;
        let requests: Vec<u64> = buckets.iter().map(|bucket| bucket.requests).collect();
        assert_eq!(requests, [2, 1, 2, 0, 1, 0, 0, 0, 1, 0, 1]);
        assert_eq!((buckets[3].max_us, buckets[10].max_us), (Some(500), None));
    }
}
