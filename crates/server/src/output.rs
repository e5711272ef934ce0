//! Unsent answers of a connection: bytes, and between them large values that stay in the cache until the socket takes
//! them.
//!
//! ```text
//! bytes   VALUE a 0 90000\r\n | \r\nVALUE b 0 3\r\nxyz\r\nEND\r\n
//! values                      ^ at 17: handle of a
//! ```
//!
//! The session stops when [`Output::is_full`] and continues when all is sent. So a client that does not read holds
//! [`FULL_BYTES`] and the last item, [`UNSENT_BYTES_MAX`] in all, and nothing more is executed for it.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use ebbtide::memcached::Handle;

/// Bytes, values included, at which an output is full: enough to send the answers to a whole read of small gets at
/// once.
pub const FULL_BYTES: usize = 256 << 10;
/// Max length of a value that is copied when no more memory can be pinned.
pub const COPY_BYTES: usize = 1 << 20;
/// Max memory of the unsent answers to a client that does not read, beside values that stay in the cache.
pub const UNSENT_BYTES_MAX: usize = FULL_BYTES + COPY_BYTES;
/// Slices per system call.
const SLICES: usize = 16;
/// Largest buffer that is kept for reuse.
const KEPT_CAPACITY: usize = 2 * FULL_BYTES;

#[derive(Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// The number of sent `bytes`.
    sent: usize,
    values: VecDeque<QueuedValue>,
    /// Bytes of all `values`, including sent ones.
    value_bytes: usize,
}

struct QueuedValue {
    /// The value precedes this byte of `bytes`.
    at: usize,
    handle: Handle,
    sent: usize,
}

impl Output {
    /// The buffer to which answers are appended.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends a value without copying it.
    pub fn push_value(&mut self, handle: Handle) {
        self.value_bytes += handle.len();
        self.values.push_back(QueuedValue { at: self.bytes.len(), handle, sent: 0 });
    }

    pub fn is_empty(&self) -> bool {
        self.sent == self.bytes.len() && self.values.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.bytes.len() + self.value_bytes >= FULL_BYTES
    }

    /// Sends as much as the socket accepts. Returns the number of bytes sent; the output is empty afterwards if that
    /// was all.
    pub fn send(&mut self, stream: &mut impl Write) -> io::Result<u64> {
        let mut total = 0;
        while !self.is_empty() {
            let result = match self.values.is_empty() {
                true => stream.write(&self.bytes[self.sent..]),
                false => self.send_slices(stream),
            };
            match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    total += count as u64;
                    self.advance(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(total),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_CAPACITY);
        self.sent = 0;
        self.value_bytes = 0;
        Ok(total)
    }

    /// Moves the unsent part into a new output with a buffer of its size; the buffer itself moves when a quarter or
    /// more of it is in use. `self` is empty afterwards.
    pub fn take_rest(&mut self) -> Output {
        let rest = self.bytes.len() - self.sent;
        if self.values.is_empty() && rest < self.bytes.capacity() / 4 {
            let bytes = self.bytes[self.sent..].to_vec();
            self.bytes.clear();
            self.sent = 0;
            self.value_bytes = 0;
            return Output { bytes, ..Output::default() };
        }
        std::mem::take(self)
    }

    fn send_slices(&self, stream: &mut impl Write) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        let mut position = self.sent;
        'full: for value in &self.values {
            if position < value.at {
                if count == SLICES {
                    break;
                }
                slices[count] = IoSlice::new(&self.bytes[position..value.at]);
                count += 1;
                position = value.at;
            }
            let mut offset = value.sent;
            while offset < value.handle.len() {
                if count == SLICES {
                    break 'full;
                }
                let slice = value.handle.slice_at(offset);
                slices[count] = IoSlice::new(slice);
                count += 1;
                offset += slice.len();
            }
        }
        if count < SLICES && position < self.bytes.len() {
            slices[count] = IoSlice::new(&self.bytes[position..]);
            count += 1;
        }
        stream.write_vectored(&slices[..count])
    }

    fn advance(&mut self, mut count: usize) {
        while let Some(value) = self.values.front_mut() {
            let before = (value.at - self.sent).min(count);
            self.sent += before;
            count -= before;
            let taken = (value.handle.len() - value.sent).min(count);
            value.sent += taken;
            count -= taken;
            if self.sent < value.at || value.sent < value.handle.len() {
                return;
            }
            self.values.pop_front();
        }
        self.sent += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide::memcached::{ByteSize, Cache, Lookup};

    /// Takes a limited number of bytes per call, and blocks after every other call.
    struct Trickle {
        taken: Vec<u8>,
        step: usize,
        blocked: bool,
    }

    impl Write for Trickle {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.blocked = !self.blocked;
            if self.blocked {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(self.step);
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            self.blocked = !self.blocked;
            if self.blocked {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let before = self.taken.len();
            let bytes = slices.iter().flat_map(|slice| slice.iter().copied());
            self.taken.extend(bytes.take(self.step));
            Ok(self.taken.len() - before)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn partial_writes_keep_bytes_and_values_in_order() {
        let cache = Cache::builder().memory(ByteSize::mib(64)).build().unwrap();
        for step in [7, 100, 10_000, 1 << 20] {
            let mut output = Output::default();
            let mut expected = Vec::new();
            for round in 0..40u8 {
                let value = vec![round; 4096 + usize::from(round)];
                cache.insert(b"k", &value).apply().unwrap();
                let Lookup::Hit(item) = cache.get(b"k") else {
                    panic!("just stored");
                };
                let line = vec![b'a' + round % 26; usize::from(round % 3)];
                output.bytes().extend_from_slice(&line);
                expected.extend_from_slice(&line);
                output.push_value(item.to_handle().unwrap());
                expected.extend_from_slice(&value);
            }
            output.bytes().extend_from_slice(b"end");
            expected.extend_from_slice(b"end");
            let mut stream = Trickle { taken: Vec::new(), step, blocked: false };
            let mut sent = 0;
            while !output.is_empty() {
                sent += output.send(&mut stream).unwrap();
                output = output.take_rest();
            }
            assert_eq!(sent, expected.len() as u64);
            assert!(stream.taken == expected, "step {step}");
        }
        cache.verify();
    }
}
