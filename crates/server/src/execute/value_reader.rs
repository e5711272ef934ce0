//! Collects the bytes of a value that was not received in one read.
//!
//! A value up to the engine's contiguous limit is collected in a buffer, which grows with the bytes received. A larger
//! value is written piece by piece into segments that are published at its end. Dropping a reader undoes its upload.

use ebbtide::memcached::{Error, Mode, Patience, Pool, Ttl, Upload, Written};

/// Error of an upload whose key belongs to another pool since a reload.
pub const POOL_CHANGED: Error = Error::OutOfMemory { reason: "a reload has given the key to another pool meanwhile" };

/// A key with the attributes of its new value.
pub struct NewItem<'a> {
    pub key: &'a [u8],
    pub flags: u32,
    pub ttl: Ttl,
    pub mode: Mode,
}

pub struct ValueReader {
    buffer: ValueBuffer,
    /// Bytes that have not arrived.
    left: u64,
    /// True while bytes of an upload wait for memory.
    waits_for_memory: bool,
}

enum ValueBuffer {
    Whole(Vec<u8>),
    Upload(Box<Upload>),
    /// An upload that the cache has aborted; the remaining bytes are dropped.
    Failed(Error),
}

impl ValueReader {
    /// Starts a value of `length` bytes within the cache's limit.
    pub fn begin(pool: &Pool, entry: &NewItem<'_>, length: u64) -> Self {
        let buffer = if length <= pool.contiguous_limit() as u64 {
            ValueBuffer::Whole(Vec::with_capacity(length as usize))
        } else {
            match pool.upload(entry.key, length, entry.flags, entry.ttl, entry.mode) {
                Ok(upload) => ValueBuffer::Upload(Box::new(upload)),
                Err(error) => ValueBuffer::Failed(error),
            }
        };
        Self { buffer, left: length, waits_for_memory: false }
    }

    /// Starts a value that is collected as a whole.
    pub fn begin_whole(length: u64) -> Self {
        Self { buffer: ValueBuffer::Whole(Vec::with_capacity(length as usize)), left: length, waits_for_memory: false }
    }

    /// A value that was collected as a whole; empty for others.
    pub fn whole(&self) -> &[u8] {
        match &self.buffer {
            ValueBuffer::Whole(value) => value,
            ValueBuffer::Upload(_) | ValueBuffer::Failed(_) => &[],
        }
    }

    /// Consumes the bytes of `input` that belong to the value, and returns their number.
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

    /// Drops the received bytes: the value cannot be stored.
    pub fn fail(&mut self, error: Error) {
        self.buffer = ValueBuffer::Failed(error);
    }

    pub fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// True while received bytes wait for memory.
    pub fn waits_for_memory(&self) -> bool {
        self.waits_for_memory
    }

    /// Continues with bytes that wait for memory.
    ///
    /// # Errors
    /// `WouldWait`. Other errors end the upload and are answered by `finish`.
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
    /// As [`ebbtide::memcached::Insert::apply`].
    pub fn finish(&mut self, pool: &Pool, entry: &NewItem<'_>, patience: Patience) -> Result<Written, Error> {
        match &mut self.buffer {
            ValueBuffer::Whole(value) => entry.store(pool, value),
            ValueBuffer::Upload(upload) => entry.finish_upload(pool, upload, patience),
            ValueBuffer::Failed(error) => Err(error.clone()),
        }
    }
}

impl NewItem<'_> {
    /// Stores a value that is all there.
    ///
    /// # Errors
    /// As [`ebbtide::memcached::Insert::apply`].
    pub fn store(&self, pool: &Pool, value: &[u8]) -> Result<Written, Error> {
        pool.insert(self.key, value).flags(self.flags).ttl(self.ttl).mode(self.mode).apply_with_token()
    }

    /// Publishes an upload that has all bytes; after `WouldWait` it is to be called again. `pool`: the present pool of
    /// the key. An upload that began before a reload may be of another one, where nobody would find it, and where it
    /// would be older than what the present pool has when the key comes back. So it is refused, and of a set no old
    /// value stays behind.
    ///
    /// # Errors
    /// As [`ebbtide::memcached::Insert::apply`].
    pub fn finish_upload(&self, pool: &Pool, upload: &mut Upload, patience: Patience) -> Result<Written, Error> {
        if pool.receives(upload) {
            upload.set_patience(patience);
            return upload.try_finish();
        }
        if self.mode == Mode::Set {
            pool.delete(self.key);
        }
        Err(POOL_CHANGED)
    }
}
