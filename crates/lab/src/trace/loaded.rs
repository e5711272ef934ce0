//! A trace in memory: 24 bytes a request, so that each size of each policy can go through it.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use ebbtide::{ByteSize, message};

use super::{CapturedServer, Format, LabelBy, Op, Request, TraceReader};
use crate::Error;
use crate::warmup::Warmup;

/// Traces of fewer objects get a caveat, and so do those in which one object has more than this share of all bytes.
const FEW_OBJECTS: usize = 100;
const LARGE_SHARE: f64 = 0.1;
/// Malformed lines that are reported one by one; the rest is only counted.
const REPORTED_LINES: u64 = 10;

/// One request. Its key is the number of the key in the order of first use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) key: u32,
    pub(crate) key_size: u16,
    pub(crate) op: Op,
    /// Whether the captured server had the object of a get; `None` if the trace does not say.
    pub(crate) found: Option<bool>,
    pub(crate) value_size: u32,
    /// Seconds since the first request. Where the time of the trace falls, the latest one until then.
    pub(crate) time: u32,
    pub(crate) ttl_seconds: u32,
}

impl Step {
    /// Bytes of key and value.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.key_size) + u64::from(self.value_size)
    }
}

pub(crate) struct LoadedTrace {
    pub(crate) trace: String,
    pub(crate) format: &'static str,
    pub(crate) steps: Vec<Step>,
    /// The ids of the keys, by their number.
    ids: Vec<u64>,
    /// The label of each step, if labels are enabled.
    labels: Vec<u32>,
    pub(crate) label_names: Vec<String>,
    pub(crate) malformed_lines: u64,
    /// Bytes of all objects, each with the size that it had first.
    pub(crate) footprint_bytes: u64,
    /// The time of the first request, as the trace has it.
    pub(crate) origin_seconds: u64,
    /// Requests whose time is less than the latest until then.
    pub(crate) time_falls: u64,
    /// The trace holds one key in this number of the real load, in a captured trace.
    pub(crate) sample: u32,
    /// Steps at the beginning that fill caches and do not count.
    pub(crate) warmup: usize,
    pub(crate) server: Option<CapturedServer>,
}

/// Gets that count and are the first request for their key, by the answer of the captured server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FirstGets {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

impl LoadedTrace {
    fn empty(trace: String, format: &'static str) -> Self {
        Self {
            trace,
            format,
            steps: Vec::new(),
            ids: Vec::new(),
            labels: Vec::new(),
            label_names: Vec::new(),
            malformed_lines: 0,
            footprint_bytes: 0,
            origin_seconds: 0,
            time_falls: 0,
            sample: 1,
            warmup: 0,
            server: None,
        }
    }

    /// A trace that is in memory already, whose time does not fall, each request with the answer of the server.
    pub(crate) fn of_requests(
        trace: String,
        format: &'static str,
        requests: &[Request],
        found: &[Option<bool>],
        (sample, server): (u32, CapturedServer),
    ) -> Self {
        let mut loaded = Self::empty(trace, format);
        let mut numbers = HashMap::new();
        loaded.sample = sample;
        loaded.server = Some(server);
        loaded.origin_seconds = requests.first().map_or(0, |request| request.time_seconds);
        for (request, found) in requests.iter().zip(found) {
            let time = request.time_seconds.saturating_sub(loaded.origin_seconds);
            loaded.push(request, time, *found, &mut numbers);
        }
        loaded
    }

    /// The trace with a label for each of its requests.
    pub(crate) fn with_labels(self, labels: Vec<u32>, label_names: Vec<String>) -> Self {
        Self { labels, label_names, ..self }
    }

    /// Reads a whole trace.
    ///
    /// # Errors
    /// Those of [`TraceReader`], and [`Error::NoRequests`] for a trace without a request.
    pub(crate) fn read(
        path: &Path,
        format: Option<Format>,
        strict: bool,
        labels: Option<LabelBy>,
    ) -> Result<Self, Error> {
        let mut reader = TraceReader::open(path, format)?;
        if let Some(by) = labels {
            let value = match by {
                LabelBy::Pool => "pool".to_owned(),
                LabelBy::Prefix(_) => "prefix".to_owned(),
            };
            reader.label_by(by).map_err(|reason| Error::Configuration { option: "--by", value, reason })?;
        }
        let mut loaded = Self::empty(reader.name().to_owned(), reader.format().name());
        loaded.sample = reader.sample();
        loaded.server = reader.server();
        let mut numbers: HashMap<u64, u32> = HashMap::new();
        let (mut origin, mut latest) = (None, 0);
        loop {
            match reader.next_request() {
                Ok(None) => break,
                Ok(Some(request)) => {
                    let origin = *origin.get_or_insert(request.time_seconds);
                    loaded.origin_seconds = origin;
                    loaded.time_falls += u64::from(request.time_seconds < origin + latest);
                    latest = request.time_seconds.saturating_sub(origin).max(latest);
                    loaded.push(&request, latest, reader.found(), &mut numbers);
                    if labels.is_some() {
                        loaded.labels.push(reader.label());
                    }
                }
                Err(error @ Error::Malformed { .. }) if !strict => {
                    loaded.malformed_lines += 1;
                    if loaded.malformed_lines <= REPORTED_LINES {
                        message!("{error}; skipped");
                    }
                }
                Err(error) => return Err(error),
            }
        }
        loaded.label_names = reader.label_names().to_vec();
        if loaded.steps.is_empty() {
            let Self { trace, format, malformed_lines: malformed, .. } = loaded;
            return Err(Error::NoRequests { trace, format, malformed });
        }
        Ok(loaded)
    }

    /// Bytes of all objects of some kind, each with its first size.
    pub(crate) fn footprint_of(&self, wanted: impl Fn(&Step) -> bool, bytes_of: impl Fn(&Step) -> u64) -> u64 {
        let mut seen = vec![false; self.objects()];
        let first = |step: &&Step| !std::mem::replace(&mut seen[step.key as usize], true) && wanted(step);
        self.steps.iter().filter(first).map(bytes_of).sum()
    }

    /// The trace, or an error if it has no get and so no miss ratio.
    pub(crate) fn with_gets(self) -> Result<Self, Error> {
        if self.steps.iter().any(|step| is_get(step.op)) {
            return Ok(self);
        }
        Err(Error::NoGets { trace: self.trace, requests: self.steps.len() })
    }

    /// The trace with a beginning that does not count.
    ///
    /// # Errors
    /// A warmup after which no get is left.
    pub(crate) fn after(mut self, warmup: Option<Warmup>) -> Result<Self, Error> {
        let Some(warmup) = warmup else { return Ok(self) };
        self.warmup = match warmup {
            Warmup::Requests(count) => usize::try_from(count).unwrap_or(usize::MAX),
            Warmup::Share(share) => (self.steps.len() as f64 * share) as usize,
            Warmup::Seconds(seconds) => self.steps.partition_point(|step| u64::from(step.time) < seconds),
        };
        if self.warmup < self.steps.len() && self.gets() > 0 {
            return Ok(self);
        }
        let reason = format!("the trace has {} requests only; no get is left to count", self.steps.len());
        Err(Error::Configuration { option: "--warmup", value: warmup.to_string(), reason })
    }

    /// The steps after the warmup.
    pub(crate) fn counted(&self) -> &[Step] {
        &self.steps[self.warmup.min(self.steps.len())..]
    }

    pub(crate) fn first_gets(&self) -> FirstGets {
        let (mut seen, mut first) = (vec![false; self.objects()], FirstGets::default());
        for (number, step) in self.steps.iter().enumerate() {
            let is_first = !std::mem::replace(&mut seen[step.key as usize], true);
            if is_first && is_get(step.op) && number >= self.warmup {
                first.hits += u64::from(step.found == Some(true));
                first.misses += u64::from(step.found == Some(false));
            }
        }
        first
    }

    /// A trace for each group of requests, by the number of the group. Keys are numbered anew.
    pub(crate) fn split(&self, group_of: impl Fn(usize, &Step) -> u32) -> BTreeMap<u32, Self> {
        let mut groups = BTreeMap::new();
        let mut numbers: HashMap<(u32, u32), u32> = HashMap::new();
        for (number, step) in self.steps.iter().enumerate() {
            let group = group_of(number, step);
            let of: &mut Self = groups.entry(group).or_insert_with(|| Self::empty(self.trace.clone(), self.format));
            let key = *numbers.entry((group, step.key)).or_insert_with(|| {
                of.ids.push(self.ids[step.key as usize]);
                of.footprint_bytes += step.bytes();
                (of.ids.len() - 1) as u32
            });
            of.warmup += usize::from(number < self.warmup);
            of.steps.push(Step { key, ..*step });
        }
        groups
    }

    /// Limitations of any result of this trace, in sentences.
    pub(crate) fn caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        if self.time_falls > 0 {
            let falls = self.time_falls;
            let are = if falls == 1 { "request is" } else { "requests are" };
            caveats.push(format!("{falls} {are} earlier than one before; there the latest time until then counts"));
        }
        let mut largest = vec![0; self.objects()];
        for step in &self.steps {
            largest[step.key as usize] = step.bytes().max(largest[step.key as usize]);
        }
        if self.objects() < FEW_OBJECTS {
            caveats.push(format!("{} objects are too few for more than an anecdote", self.objects()));
        }
        let (sized, max_bytes): (u64, u64) = (largest.iter().sum(), largest.iter().copied().max().unwrap_or(0));
        if self.objects() >= FEW_OBJECTS && max_bytes as f64 > sized as f64 * LARGE_SHARE {
            let share = max_bytes as f64 / sized as f64 * 100.0;
            let object = ByteSize::bytes(max_bytes);
            caveats.push(format!("one object of {object} has {share:.0} % of all bytes; sizes by share follow it"));
        }
        let valueless = self.steps.iter().filter(|step| is_get(step.op) && step.value_size == 0).count();
        if self.sample > 1 {
            let sample = self.sample;
            caveats.push(format!("the trace holds one key of {sample}: the real load is {sample} times as large"));
        }
        if valueless > 0 {
            caveats.push(format!("{valueless} gets have a value of 0 bytes: misses of the traced cache, or no size"));
        }
        if self.warmup > 0 {
            let (warmup, counted) = (self.warmup, self.counted().len());
            caveats.push(format!("{warmup} requests at the beginning fill only; the {counted} after them count"));
        }
        caveats
    }

    /// A note on gets that miss here and hit at the server of the capture.
    pub(crate) fn about_first_hits(&self) -> Option<String> {
        let (hits, gets) = (self.first_gets().hits, self.gets().max(1));
        (hits > 0).then(|| {
            format!(
                "{hits} gets, {:.1} % of those that count, are the first of their key here and hit at the server, which \
                 was warm: they are misses in the miss ratios of this trace; --warmup leaves most of them out",
                hits as f64 / gets as f64 * 100.0
            )
        })
    }

    /// The label of a step, an index into `label_names`.
    pub(crate) fn label(&self, step: usize) -> u32 {
        self.labels.get(step).copied().unwrap_or(0)
    }

    fn push(&mut self, request: &Request, time: u64, found: Option<bool>, numbers: &mut HashMap<u64, u32>) {
        let bytes = u64::from(request.key_size) + u64::from(request.value_size);
        let key = *numbers.entry(request.key).or_insert_with(|| {
            self.ids.push(request.key);
            self.footprint_bytes += bytes;
            (self.ids.len() - 1) as u32
        });
        self.steps.push(Step {
            key,
            key_size: request.key_size.min(u32::from(u16::MAX)) as u16,
            op: request.op,
            found,
            value_size: request.value_size,
            time: u32::try_from(time).unwrap_or(u32::MAX),
            ttl_seconds: request.ttl_seconds,
        });
    }

    pub(crate) fn objects(&self) -> usize {
        self.ids.len()
    }

    /// Gets that count.
    pub(crate) fn gets(&self) -> u64 {
        self.counted().iter().filter(|step| is_get(step.op)).count() as u64
    }

    /// Whether the step of this number is a get.
    pub(crate) fn is_get(&self, step: usize) -> bool {
        is_get(self.steps[step].op)
    }

    /// The id of the key of this number.
    pub(crate) fn id(&self, key: u32) -> u64 {
        self.ids[key as usize]
    }

    /// The requests as the trace has them.
    pub(crate) fn requests(&self) -> impl Iterator<Item = Request> {
        self.steps.iter().map(|step| Request {
            time_seconds: u64::from(step.time),
            key: self.ids[step.key as usize],
            key_size: u32::from(step.key_size),
            value_size: step.value_size,
            op: step.op,
            ttl_seconds: step.ttl_seconds,
        })
    }
}

pub(crate) fn is_get(op: Op) -> bool {
    matches!(op, Op::Get | Op::Gets)
}
