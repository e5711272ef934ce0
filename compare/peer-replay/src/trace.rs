//! A trace in memory, with keys numbered from zero, so that caches can keep the state of keys in a table.

use std::collections::HashMap;
use std::path::Path;

use ebbtide_lab::Error;
use ebbtide_lab::trace::{Op, TraceReader};

/// Expiry of objects that do not expire.
pub const NEVER: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Get,
    Set,
    Delete,
}

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub action: Action,
    pub key: u32,
    pub object: Object,
    /// Seconds since the first request.
    pub now: u32,
    /// 0 is no expiry.
    pub ttl: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Object {
    pub key_bytes: u32,
    pub value_bytes: u32,
}

impl Object {
    /// Bytes of key and value.
    pub fn bytes(&self) -> u64 {
        u64::from(self.key_bytes) + u64::from(self.value_bytes)
    }
}

impl Request {
    /// The first second at which an object that is stored now is gone.
    pub fn expiry(&self) -> u32 {
        if self.ttl == 0 { NEVER } else { self.now.saturating_add(self.ttl) }
    }
}

#[derive(Debug, Default)]
pub struct Trace {
    pub requests: Vec<Request>,
    /// Of each key, as it came first.
    pub objects: Vec<Object>,
}

impl Trace {
    pub fn read(path: &Path) -> Result<Self, Error> {
        let mut reader = TraceReader::open(path, None)?;
        let mut numbers = HashMap::new();
        let mut trace = Trace::default();
        let mut start = None;
        let mut now = 0;
        while let Some(request) = reader.next_request()? {
            let object = Object { key_bytes: request.key_size, value_bytes: request.value_size };
            let key = *numbers.entry(request.key).or_insert_with(|| {
                trace.objects.push(object);
                trace.objects.len() as u32 - 1
            });
            let start = *start.get_or_insert(request.time_seconds);
            // Time does not go back, whatever the trace says.
            now = now.max(request.time_seconds.saturating_sub(start) as u32);
            let action = match request.op {
                Op::Get | Op::Gets => Action::Get,
                Op::Delete => Action::Delete,
                _ => Action::Set,
            };
            trace.requests.push(Request { action, key, object, now, ttl: request.ttl_seconds });
        }
        Ok(trace)
    }

    /// Bytes of the largest object, at most the limit of every cache.
    pub fn largest_bytes(&self) -> u64 {
        self.objects.iter().map(Object::bytes).max().unwrap_or(1).min(crate::LARGEST_BYTES)
    }
}
