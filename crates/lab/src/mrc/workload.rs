//! A trace in memory: 24 bytes a request, so that each size of each policy can go through it.

use std::collections::HashMap;
use std::path::Path;

use crate::Error;
use crate::trace::{Format, Op, Request, TraceReader};

/// Malformed lines that are reported one by one; the rest is only counted.
const REPORTED_LINES: u64 = 10;

/// One request. Its key is the number of the key in the order of first use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) key: u32,
    key_size: u16,
    pub(super) op: Op,
    value_size: u32,
    /// Seconds since the first request; 0 where the trace steps back.
    pub(super) time: u32,
    pub(super) ttl_seconds: u32,
}

impl Step {
    /// Bytes of key and value.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.key_size) + u64::from(self.value_size)
    }
}

pub(super) struct Workload {
    pub(super) trace: String,
    pub(super) format: &'static str,
    pub(super) steps: Vec<Step>,
    /// The ids of the keys, by their number.
    ids: Vec<u64>,
    pub(super) malformed_lines: u64,
    /// Bytes of all objects, each with the size that it had first.
    pub(super) footprint_bytes: u64,
}

impl Workload {
    /// Reads a whole trace.
    ///
    /// # Errors
    /// Those of [`TraceReader`], and [`Error::NoRequests`] for a trace without a get.
    pub(super) fn read(path: &Path, format: Option<Format>, strict: bool) -> Result<Self, Error> {
        let mut reader = TraceReader::open(path, format)?;
        let mut workload = Self {
            trace: reader.name().to_owned(),
            format: reader.format().name(),
            steps: Vec::new(),
            ids: Vec::new(),
            malformed_lines: 0,
            footprint_bytes: 0,
        };
        let mut numbers: HashMap<u64, u32> = HashMap::new();
        let (mut origin, mut latest) = (None, 0);
        loop {
            match reader.next_request() {
                Ok(None) => break,
                Ok(Some(request)) => {
                    let origin = *origin.get_or_insert(request.time_seconds);
                    latest = request.time_seconds.saturating_sub(origin).max(latest);
                    workload.push(&request, latest, &mut numbers);
                }
                Err(error @ Error::Malformed { .. }) if !strict => {
                    workload.malformed_lines += 1;
                    if workload.malformed_lines <= REPORTED_LINES {
                        eprintln!("{error}; skipped");
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if !workload.steps.iter().any(|step| is_get(step.op)) {
            let Self { trace, format, malformed_lines: malformed, .. } = workload;
            return Err(match workload.steps.len() {
                0 => Error::NoRequests { trace, format, malformed },
                requests => Error::NoGets { trace, requests },
            });
        }
        Ok(workload)
    }

    fn push(&mut self, request: &Request, time: u64, numbers: &mut HashMap<u64, u32>) {
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
            value_size: request.value_size,
            time: u32::try_from(time).unwrap_or(u32::MAX),
            ttl_seconds: request.ttl_seconds,
        });
    }

    pub(super) fn objects(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn gets(&self) -> u64 {
        self.steps.iter().filter(|step| is_get(step.op)).count() as u64
    }

    /// Bytes of all objects of some kind, each as it was first.
    pub(super) fn footprint_of(&self, wanted: impl Fn(&Step) -> bool, bytes_of: impl Fn(&Step) -> u64) -> u64 {
        let mut seen = vec![false; self.objects()];
        let first = |step: &&Step| !std::mem::replace(&mut seen[step.key as usize], true) && wanted(step);
        self.steps.iter().filter(first).map(bytes_of).sum()
    }

    /// The id of the key of this number.
    pub(super) fn id(&self, key: u32) -> u64 {
        self.ids[key as usize]
    }

    /// The requests as the trace has them.
    pub(super) fn requests(&self) -> impl Iterator<Item = Request> {
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

pub(super) fn is_get(op: Op) -> bool {
    matches!(op, Op::Get | Op::Gets)
}
