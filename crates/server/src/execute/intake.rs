//! The bytes of a value on their way into the cache, when they were not all in one read.
//!
//! Up to the engine's contiguous limit they are gathered in a buffer of the connection, which takes no more memory than
//! has arrived; a larger value is written piece by piece into segments that are published at its end. Dropping an intake
//! undoes what it began.

use ebbtide::{Cache, Error, Mode, Patience, Ttl, Upload, Written};

/// What is to be stored under which key.
pub struct Entry<'a> {
    pub key: &'a [u8],
    pub flags: u32,
    pub ttl: Ttl,
    pub mode: Mode,
}

pub struct Intake {
    sink: Sink,
    /// Bytes that have not come yet.
    left: u64,
    /// An upload has bytes that wait for memory.
    is_blocked: bool,
}

enum Sink {
    Gather(Vec<u8>),
    Upload(Box<Upload>),
    /// An upload that the cache has broken off; what still comes is dropped.
    Broken(Error),
}

impl Intake {
    /// Begins a value of `length` bytes, which is not larger than the cache takes.
    pub fn begin(cache: &Cache, entry: &Entry<'_>, length: u64) -> Self {
        let sink = if length <= cache.contiguous_limit() as u64 {
            Sink::Gather(Vec::with_capacity(length as usize))
        } else {
            match cache.upload(entry.key, length, entry.flags, entry.ttl, entry.mode) {
                Ok(upload) => Sink::Upload(Box::new(upload)),
                Err(error) => Sink::Broken(error),
            }
        };
        Self { sink, left: length, is_blocked: false }
    }

    /// Takes what belongs to the value off the front of `input`: how many bytes that was.
    pub fn take(&mut self, input: &[u8]) -> usize {
        let count = input.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= count as u64;
        let piece = &input[..count];
        match &mut self.sink {
            Sink::Gather(value) => value.extend_from_slice(piece),
            Sink::Upload(upload) => match upload.write(piece) {
                Ok(()) => {}
                Err(Error::WouldWait { .. }) => self.is_blocked = true,
                Err(error) => self.sink = Sink::Broken(error),
            },
            Sink::Broken(_) => {}
        }
        count
    }

    /// Drops what has come: the value cannot be stored.
    pub fn break_off(&mut self, error: Error) {
        self.sink = Sink::Broken(error);
    }

    pub fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Whether bytes have come that wait for memory.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Goes on with bytes that wait for memory.
    ///
    /// # Errors
    /// `WouldWait`; what breaks the upload off is answered by `finish`.
    pub fn resume(&mut self, patience: Patience) -> Result<(), Error> {
        let Sink::Upload(upload) = &mut self.sink else { return Ok(()) };
        upload.set_patience(patience);
        let resumed = upload.resume();
        upload.set_patience(Patience::Whole);
        self.is_blocked = matches!(resumed, Err(Error::WouldWait { .. }));
        match resumed {
            Err(error) if !self.is_blocked => self.sink = Sink::Broken(error),
            resumed => return resumed,
        }
        Ok(())
    }

    /// Stores a complete value; after `WouldWait` it is to be called again.
    ///
    /// # Errors
    /// As [`ebbtide::Insert::apply`].
    pub fn finish(&mut self, cache: &Cache, entry: &Entry<'_>, patience: Patience) -> Result<Written, Error> {
        match &mut self.sink {
            Sink::Gather(value) => entry.store(cache, value),
            Sink::Upload(upload) => {
                upload.set_patience(patience);
                upload.try_finish()
            }
            Sink::Broken(error) => Err(error.clone()),
        }
    }
}

impl Entry<'_> {
    /// Stores a value that is all there.
    ///
    /// # Errors
    /// As [`ebbtide::Insert::apply`].
    pub fn store(&self, cache: &Cache, value: &[u8]) -> Result<Written, Error> {
        cache.insert(self.key, value).flags(self.flags).ttl(self.ttl).mode(self.mode).apply_with_token()
    }
}
