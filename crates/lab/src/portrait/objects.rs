//! Properties of objects: sizes, requests, lives.

use std::collections::HashMap;

use crate::trace::Op;
use crate::trace::loaded::{LoadedTrace, Step, is_get};

/// Values of the TTL that are listed, by their share.
const LISTED_TTLS: usize = 8;

/// Objects whose size has the same highest bit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SizeClass {
    pub(super) from_bytes: u64,
    pub(super) objects: u64,
    /// Of keys and values, each object once.
    pub(super) bytes: u64,
    pub(super) gets: u64,
    /// Gets that find their object in an endless cache.
    pub(super) hits: u64,
}

/// How the requests are spread over the objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ObjectStatistics {
    /// By size; classes without objects are left out.
    pub(super) classes: Vec<SizeClass>,
    /// Requests of each object that has some, in descending order.
    pub(super) requests: Vec<u64>,
    /// Objects with a get, and those of them that never have a value.
    pub(super) asked_for: u64,
    pub(super) absent: u64,
    pub(super) gets_of_absent: u64,
    /// Sizes of values: mean, and the quantiles 0.5, 0.9, 0.99 and 1.
    pub(super) value_mean: f64,
    pub(super) value_quantiles: [u64; 4],
    pub(super) key_mean: f64,
}

#[derive(Clone, Copy, Default)]
struct ObjectUse {
    key_size: u16,
    value_size: u32,
    requests: u32,
    gets: u32,
    hits: u32,
    /// True if the object was written, or found with a value.
    is_real: bool,
    /// Second at which the object leaves an endless cache.
    there_until: u32,
}

/// Goes through the trace once.
pub(super) fn objects(trace: &LoadedTrace) -> ObjectStatistics {
    let mut all = vec![ObjectUse::default(); trace.objects()];
    let counts_gets = trace.gets() > 0;
    for step in &trace.steps {
        all[step.key as usize].see(step, counts_gets);
    }
    let mut found = ObjectStatistics::default();
    let mut classes: Vec<SizeClass> = Vec::new();
    for object in &all {
        let bytes = u64::from(object.key_size) + u64::from(object.value_size);
        let class = bytes.max(1).ilog2() as usize;
        if class >= classes.len() {
            classes.resize(class + 1, SizeClass::default());
        }
        let of = &mut classes[class];
        of.objects += 1;
        of.bytes += bytes;
        of.gets += u64::from(object.gets);
        of.hits += u64::from(object.hits);
        found.asked_for += u64::from(object.gets > 0);
        if object.gets > 0 && !object.is_real {
            found.absent += 1;
            found.gets_of_absent += u64::from(object.gets);
        }
    }
    let numbered = classes.into_iter().enumerate().map(|(class, of)| SizeClass { from_bytes: 1 << class, ..of });
    found.classes = numbered.filter(|of| of.objects > 0).collect();
    found.requests = all.iter().map(|object| u64::from(object.requests)).filter(|&requests| requests > 0).collect();
    found.requests.sort_unstable_by(|one, other| other.cmp(one));
    found.sizes(&all);
    found
}

impl ObjectStatistics {
    fn sizes(&mut self, all: &[ObjectUse]) {
        let count = all.len().max(1) as f64;
        self.key_mean = all.iter().map(|object| f64::from(object.key_size)).sum::<f64>() / count;
        let mut values: Vec<u64> = all.iter().map(|object| u64::from(object.value_size)).collect();
        values.sort_unstable();
        self.value_mean = values.iter().sum::<u64>() as f64 / count;
        let at = |share: f64| values.get(((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1)));
        self.value_quantiles = [0.5, 0.9, 0.99, 1.0].map(|share| at(share).copied().unwrap_or(0));
    }

    /// Share of the objects with a get that have exactly one request.
    pub(super) fn one_hit_share(&self) -> f64 {
        let once = self.requests.len() - self.requests.partition_point(|&requests| requests > 1);
        once as f64 / self.requests.len().max(1) as f64
    }

    /// Share of all requests that goes to the tenth of the objects with the most.
    pub(super) fn top_tenth_share(&self) -> f64 {
        let tenth = self.requests.len().div_ceil(10);
        let total: u64 = self.requests.iter().sum();
        self.requests[..tenth].iter().sum::<u64>() as f64 / total.max(1) as f64
    }
}

impl ObjectUse {
    fn see(&mut self, step: &Step, counts_gets: bool) {
        let get = is_get(step.op);
        self.requests += u32::from(if counts_gets { get } else { step.op != Op::Delete });
        self.gets += u32::from(get);
        self.hits += u32::from(get && self.there_until > step.time);
        self.is_real |= (!get && step.op != Op::Delete) || step.value_size > 0;
        if step.op != Op::Delete {
            self.key_size = step.key_size;
            // A get that missed may have no size.
            self.value_size = if step.value_size > 0 { step.value_size } else { self.value_size };
        }
        let expiry = if step.ttl_seconds == 0 { u32::MAX } else { step.time.saturating_add(step.ttl_seconds) };
        self.there_until = match step.op {
            Op::Delete => 0,
            Op::Get | Op::Gets | Op::Add if self.there_until > step.time => self.there_until,
            Op::Replace | Op::Cas | Op::Append | Op::Prepend if self.there_until <= step.time => 0,
            _ => expiry,
        };
    }
}

/// The lives that requests give.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ttls {
    /// Requests that may give a life.
    pub(super) requests: u64,
    /// Share of them without an expiry.
    pub(super) endless_share: f64,
    /// Of the others the quantiles 0.1, 0.5, 0.9 and 1, in seconds; none if no request has an expiry.
    pub(super) quantiles: Option<[u32; 4]>,
    /// The most frequent TTLs and their shares.
    pub(super) listed: Vec<(u32, f64)>,
}

/// TTLs of writes; in a trace whose gets carry some, which is then that of the write after a miss, of gets, too.
pub(super) fn ttls(trace: &LoadedTrace) -> Ttls {
    let of_gets = trace.steps.iter().any(|step| is_get(step.op) && step.ttl_seconds > 0);
    let writes = trace.steps.iter().any(|step| !is_get(step.op) && step.op != Op::Delete);
    let gives = |step: &&Step| step.op != Op::Delete && (of_gets || !writes || !is_get(step.op));
    let mut shares: HashMap<u32, u64> = HashMap::new();
    for step in trace.steps.iter().filter(gives) {
        *shares.entry(step.ttl_seconds).or_default() += 1;
    }
    let requests: u64 = shares.values().sum();
    let part = |count: u64| count as f64 / requests.max(1) as f64;
    let endless = shares.remove(&0).unwrap_or(0);
    let mut by_ttl: Vec<(u32, u64)> = shares.into_iter().collect();
    by_ttl.sort_unstable();
    let mortal = requests - endless;
    let quantile = |share: f64| {
        let wanted = (mortal as f64 * share).ceil() as u64;
        let mut seen = 0;
        let reached = by_ttl.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        reached.map_or(0, |&(ttl, _)| ttl)
    };
    let quantiles = (mortal > 0).then(|| [0.1, 0.5, 0.9, 1.0].map(quantile));
    by_ttl.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let listed = by_ttl.iter().take(LISTED_TTLS).map(|&(ttl, count)| (ttl, part(count))).collect();
    Ttls { requests, endless_share: part(endless), quantiles, listed }
}
