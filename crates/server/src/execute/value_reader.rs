//! The bytes of a value on their way into the cache, when they were not all in one read.
//!
//! Up to the engine's contiguous limit they are gathered in a buffer of the connection, which takes no more memory than
//! has arrived; a larger value is written piece by piece into segments that are published at its end. Dropping a reader
//! undoes what it began.

use ebbtide::{Cache, Error, Mode, Patience, Ttl, Upload, Written};

/// What is to be stored under which key.
pub struct NewItem<'a> {
    pub key: &'a [u8],
    pub flags: u32,
    pub ttl: Ttl,
    pub mode: Mode,
}

pub struct ValueReader {
    buffer: ValueBuffer,
    /// Bytes that have not come yet.
    left: u64,
    /// An upload has bytes that wait for memory.
    waits_for_memory: bool,
}

enum ValueBuffer {
    Whole(Vec<u8>),
    Upload(Box<Upload>),
    /// An upload that the cache has broken off; what still comes is dropped.
    Failed(Error),
}

impl ValueReader {
    /// Begins a value of `length` bytes, which is not larger than the cache takes.
    pub fn begin(cache: &Cache, entry: &NewItem<'_>, length: u64) -> Self {
        let buffer = if length <= cache.contiguous_limit() as u64 {
            ValueBuffer::Whole(Vec::with_capacity(length as usize))
        } else {
            match cache.upload(entry.key, length, entry.flags, entry.ttl, entry.mode) {
                Ok(upload) => ValueBuffer::Upload(Box::new(upload)),
                Err(error) => ValueBuffer::Failed(error),
            }
        };
        Self { buffer, left: length, waits_for_memory: false }
    }

    /// Takes what belongs to the value off the front of `input`: how many bytes that was.
    pub fn take(&mut self, input: &[u8]) -> usize {
        let count = input.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= count as u64;
        let piece = &input[..count];
        match &mut self.buffer {
            ValueBuffer::Whole(value) => value.extend_from_slice(piece),
            ValueBuffer::Upload(upload) => match upload.write(piece) {
                Ok(()) => {}
                Err(Error::WouldWait { .. }) => self.waits_for_memory = true,
                Err(error) => self.buffer = ValueBuffer::Failed(error),
            },
            ValueBuffer::Failed(_) => {}
        }
        count
    }

    /// Drops what has come: the value cannot be stored.
    pub fn fail(&mut self, error: Error) {
        self.buffer = ValueBuffer::Failed(error);
    }

    pub fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Whether bytes have come that wait for memory.
    pub fn waits_for_memory(&self) -> bool {
        self.waits_for_memory
    }

    /// Goes on with bytes that wait for memory.
    ///
    /// # Errors
    /// `WouldWait`; what breaks the upload off is answered by `finish`.
    pub fn resume(&mut self, patience: Patience) -> Result<(), Error> {
        let ValueBuffer::Upload(upload) = &mut self.buffer else { return Ok(()) };
        upload.set_patience(patience);
        let resumed = upload.resume();
        upload.set_patience(Patience::Whole);
        self.waits_for_memory = matches!(resumed, Err(Error::WouldWait { .. }));
        match resumed {
            Err(error) if !self.waits_for_memory => self.buffer = ValueBuffer::Failed(error),
            resumed => return resumed,
        }
        Ok(())
    }

    /// Stores a complete value; after `WouldWait` it is to be called again.
    ///
    /// # Errors
    /// As [`ebbtide::Insert::apply`].
    pub fn finish(&mut self, cache: &Cache, entry: &NewItem<'_>, patience: Patience) -> Result<Written, Error> {
        match &mut self.buffer {
            ValueBuffer::Whole(value) => entry.store(cache, value),
            ValueBuffer::Upload(upload) => {
                upload.set_patience(patience);
                upload.try_finish()
            }
            ValueBuffer::Failed(error) => Err(error.clone()),
        }
    }
}

impl NewItem<'_> {
    /// Stores a value that is all there.
    ///
    /// # Errors
    /// As [`ebbtide::Insert::apply`].
    pub fn store(&self, cache: &Cache, value: &[u8]) -> Result<Written, Error> {
        cache.insert(self.key, value).flags(self.flags).ttl(self.ttl).mode(self.mode).apply_with_token()
    }
}
