//! A trace in the compact form: 16 bytes a request, little-endian, keys numbered from zero.
//!
//! ```text
//! 0     4     8     12
//! key | now | TTL | action (2 bits) | key bytes (8) | value bytes (22)
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use ebbtide_lab::trace::{Op, TraceReader};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Get,
    Set,
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub key: u32,
    /// Seconds since the first request.
    pub now: u32,
    /// 0 is no expiry.
    pub ttl: u32,
    pub action: Action,
    pub key_bytes: u8,
    pub value_bytes: u32,
}

const REQUEST_BYTES: usize = 16;
const VALUE_BITS: u32 = 22;
const ACTION_SHIFT: u32 = 30;

impl Request {
    fn write(&self) -> [u8; REQUEST_BYTES] {
        let sizes = u32::from(self.key_bytes) << VALUE_BITS | self.value_bytes.min((1 << VALUE_BITS) - 1);
        let words = [self.key, self.now, self.ttl, (self.action as u32) << ACTION_SHIFT | sizes];
        let mut bytes = [0; REQUEST_BYTES];
        bytes.chunks_exact_mut(4).zip(words).for_each(|(part, word)| part.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    #[inline(always)]
    fn read(bytes: &[u8; REQUEST_BYTES]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let last = word(12);
        let action = match last >> ACTION_SHIFT {
            0 => Action::Get,
            1 => Action::Set,
            _ => Action::Delete,
        };
        let (key_bytes, value_bytes) = ((last >> VALUE_BITS) as u8, last & ((1 << VALUE_BITS) - 1));
        Self { key: word(0), now: word(4), ttl: word(8), action, key_bytes, value_bytes }
    }

    /// Bytes of key and value.
    pub fn bytes(&self) -> u64 {
        u64::from(self.key_bytes) + u64::from(self.value_bytes)
    }
}

/// A converted trace in memory.
pub struct Requests(Vec<u8>);

impl Requests {
    pub fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        match bytes.len() % REQUEST_BYTES {
            0 if !bytes.is_empty() => Ok(Self(bytes)),
            _ => Err(format!("{} has {} bytes: it is no converted trace", path.display(), bytes.len())),
        }
    }

    #[inline(always)]
    pub fn slice(&self, from: usize, to: usize) -> impl Iterator<Item = Request> + Clone + '_ {
        self.0[from * REQUEST_BYTES..to * REQUEST_BYTES].as_chunks().0.iter().map(Request::read)
    }

    pub fn all(&self) -> impl Iterator<Item = Request> + '_ {
        self.slice(0, self.len())
    }

    pub fn len(&self) -> usize {
        self.0.len() / REQUEST_BYTES
    }

    /// Bytes of the largest object.
    pub fn largest_bytes(&self) -> u64 {
        self.all().map(|request| request.bytes()).max().unwrap_or(1)
    }
}

/// Writes a trace in the compact form. Returns its footprint: bytes of all keys and their first values.
pub fn convert(trace: &Path, output: &Path) -> Result<u64, String> {
    let mut reader = TraceReader::open(trace, None).map_err(|error| format!("{}: {error}", trace.display()))?;
    let failed = |error| format!("{}: {error}", output.display());
    let mut out = BufWriter::new(File::create(output).map_err(failed)?);
    let mut numbers = HashMap::new();
    let (mut start, mut now, mut footprint) = (None, 0, 0);
    while let Some(request) = reader.next_request().map_err(|error| error.to_string())? {
        let next = numbers.len() as u32;
        let start = *start.get_or_insert(request.time_seconds);
        // Time does not go back, whatever the trace says.
        now = now.max(request.time_seconds.saturating_sub(start) as u32);
        let action = match request.op {
            Op::Get | Op::Gets => Action::Get,
            Op::Delete => Action::Delete,
            _ => Action::Set,
        };
        let request = Request {
            key: *numbers.entry(request.key).or_insert(next),
            now,
            ttl: request.ttl_seconds,
            action,
            key_bytes: u8::try_from(request.key_size).unwrap_or(u8::MAX),
            value_bytes: request.value_size,
        };
        if request.key == next {
            footprint += request.bytes();
        }
        out.write_all(&request.write()).map_err(failed)?;
    }
    out.flush().map_err(failed)?;
    Ok(footprint)
}

#[cfg(test)]
pub fn of(requests: &[Request]) -> Requests {
    Requests(requests.iter().flat_map(Request::write).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_written() {
        let request = |action| Request { key: 7, now: 8, ttl: 9, action, key_bytes: 250, value_bytes: 1 << 20 };
        for request in [Action::Get, Action::Set, Action::Delete].map(request) {
            assert_eq!(of(&[request, request]).slice(1, 2).collect::<Vec<_>>(), [request]);
        }
    }
}
