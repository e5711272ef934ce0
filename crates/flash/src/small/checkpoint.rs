//! The checkpoint: the state in RAM, on the device, for a start that reads no page. Little-endian; written last, valid
//! once.
//!
//! ```text
//! block 0   magic u32 | version u32 | salt u64 | sets u32 | segments u32 | bytes of an entry u8, mark u8, 0 u16, 0 u32
//!           | moment u64 | bytes of the body u64 | checksum of the body u64 | checksum of the 56 bytes before it u64
//! body      per segment of the log: moment of its first page u64, 0 if it is free
//!           per group of sets: as `SetGroup::save` draws it
//! ```
//! Checksums are XXH3 (64 bits) with the salt as seed. The body is durable before block 0 is written.

use super::options::MARKS;
use super::page::PAGE;
use super::set_group::{SETS, SetGroup};
use super::{SmallShared, SmallStore};
use crate::Error;
use crate::checkpoint_header::{self, BYTES as HEADER_BYTES, steps_in};
use crate::codec::{DeviceReader, DeviceWriter};
use crate::device::{self, Buffer};
use std::io;
use std::ops::Range;
use std::thread;
use std::time::Duration;

const MAGIC: [u8; 4] = *b"EbSc";
const VERSION: u32 = 1;
/// Time between two checks of a checkpoint for the end of all writes.
const WAIT_STEP: Duration = Duration::from_millis(1);

const _: () = assert!(HEADER_BYTES <= PAGE);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    sets: u32,
    segments: u32,
    entry_bytes: u8,
    mark: u8,
    log_clock: u64,
    body_bytes: u64,
    body_checksum: u64,
}

impl SmallStore {
    /// Bytes that a checkpoint needs now, whole blocks.
    pub fn checkpoint_bytes(&self) -> u64 {
        let shared = &self.shared;
        let groups = (0..shared.groups.len()).map(|index| shared.locked((index * SETS) as u32).0.saved_bytes());
        let segments = shared.area_layout.log.segments as usize * size_of::<u64>();
        (PAGE + segments + groups.sum::<usize>()).next_multiple_of(PAGE) as u64
    }

    /// Writes the open segment, and the state in RAM to an area of the device outside the store's own, of at least one
    /// block. If the state does not fit, writes an invalid block, and a recovery reads all pages. Returns the bytes
    /// that it took. No inserts and no maintenance may follow. Later removals must be passed to the recovery, as
    /// always.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`] and [`Error::Sync`] when the device fails or is too slow. There is no checkpoint then.
    pub fn checkpoint(&self, area: Range<u64>, now: u32) -> Result<u64, Error> {
        let shared = &self.shared;
        self.write_all(now)?;
        let maintenance = shared.maintenance.lock().expect("no thread panics with maintenance");
        let (bytes, space) = (self.checkpoint_bytes(), area.end - area.start);
        if bytes > space {
            device::write(&*shared.device, area.start, Buffer::zeroed(PAGE))?;
            shared.device.sync()?;
            return Ok(PAGE as u64);
        }
        let salt = shared.options.salt;
        let mut device_writer = DeviceWriter::new(&*shared.device, area.start + PAGE as u64, salt);
        // Earlier removals have orders up to this one.
        let log_clock = shared.log.advance();
        for first in shared.log.firsts() {
            device_writer.put(&first.to_le_bytes())?;
        }
        for index in 0..shared.groups.len() {
            let (group, _) = shared.locked((index * SETS) as u32);
            group.save(|bytes| device_writer.put(bytes))?;
        }
        let (body_bytes, body_checksum) = device_writer.finish()?;
        let (sets, segments) = (shared.area_layout.set_layout.sets, shared.area_layout.log.segments);
        let (entry_bytes, mark) = (shared.area_layout.set_layout.entry_bytes as u8, maintenance.mark as u8);
        let header = Header { sets, segments, entry_bytes, mark, log_clock, body_bytes, body_checksum };
        shared.device.sync()?;
        let mut block = Buffer::zeroed(PAGE);
        block[..HEADER_BYTES].copy_from_slice(&header.encode(salt));
        device::write(&*shared.device, area.start, block)?;
        shared.device.sync()?;
        Ok(bytes)
    }

    fn write_all(&self, now: u32) -> Result<(), Error> {
        self.shared.log.seal_open();
        for _ in 0..steps_in(self.shared.options.max_checkpoint_wait, WAIT_STEP) {
            drop(self.shared.maintain(now));
            // A readmitted object may open a segment meanwhile.
            self.shared.log.seal_open();
            if self.shared.log.is_written() {
                return Ok(());
            }
            thread::sleep(WAIT_STEP);
        }
        let source = io::Error::from(io::ErrorKind::TimedOut);
        let (offset, bytes) = (self.shared.area.start, self.shared.log.segment_bytes());
        Err(Error::Transfer { operation: "a write", offset, bytes, source })
    }
}

impl SmallShared {
    /// Fills an empty store, and returns the moment of the checkpoint. `None` if there is no valid checkpoint of this
    /// store: then the store must be discarded.
    pub(super) fn load(&self, area: &Range<u64>) -> Option<u64> {
        let block = device::read(&*self.device, area.start, Buffer::zeroed(PAGE)).ok()?;
        let header = Header::decode(&block[..HEADER_BYTES], self.options.salt)?;
        let (set_layout, log) = (&self.area_layout.set_layout, &self.log);
        let is_same = (header.sets, header.segments) == (set_layout.sets, self.area_layout.log.segments)
            && usize::from(header.entry_bytes) == set_layout.entry_bytes;
        let space = area.end.checked_sub(area.start + PAGE as u64)?;
        if !is_same || header.body_bytes > space {
            return None;
        }
        let start = area.start + PAGE as u64;
        let mut device_reader = DeviceReader::new(&*self.device, start, header.body_bytes, self.options.salt);
        let mut firsts = Vec::new();
        for segment in 0..header.segments {
            let first = u64::from_le_bytes(device_reader.take()?);
            firsts.extend((first != 0).then_some((segment, first)));
        }
        log.restore(&firsts, header.log_clock);
        self.maintenance.lock().expect("nobody else has the store").mark = u32::from(header.mark) % MARKS;
        for index in 0..self.groups.len() {
            let loaded = SetGroup::load(set_layout, |bytes| device_reader.fill(bytes))?;
            let (mut group, _) = self.locked((index * SETS) as u32);
            *group = loaded;
            if group.has_unclean() {
                self.enqueue(&mut group, (index * SETS) as u32);
            }
        }
        (device_reader.finish()? == header.body_checksum).then_some(header.log_clock)
    }
}

impl Header {
    fn encode(&self, salt: u64) -> [u8; HEADER_BYTES] {
        checkpoint_header::encode(MAGIC, VERSION, salt, |writer| {
            writer.u32(self.sets).u32(self.segments);
            writer.u32(u32::from_le_bytes([self.entry_bytes, self.mark, 0, 0])).u32(0);
            writer.u64(self.log_clock).u64(self.body_bytes).u64(self.body_checksum);
        })
    }

    fn decode(bytes: &[u8], salt: u64) -> Option<Self> {
        let mut reader = checkpoint_header::decode(bytes, MAGIC, VERSION, salt)?;
        let (sets, segments) = (reader.u32(), reader.u32());
        let [entry_bytes, mark, ..] = reader.u32().to_le_bytes();
        reader.u32();
        let (log_clock, body_bytes, body_checksum) = (reader.u64(), reader.u64(), reader.u64());
        Some(Self { sets, segments, entry_bytes, mark, log_clock, body_bytes, body_checksum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_these_bytes() {
        let header = Header {
            sets: 0x0102_0304,
            segments: 9,
            entry_bytes: 4,
            mark: 1,
            log_clock: 0x0102_0304_0506,
            body_bytes: 999,
            body_checksum: 0xfeed,
        };
        let bytes = header.encode(0x1d);
        let hex: Vec<String> =
            bytes.chunks(8).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
        assert_eq!(
            hex.join(" "),
            "4562536301000000 1d00000000000000 0403020109000000 0401000000000000 0605040302010000 e703000000000000 \
             edfe000000000000 d4e6db034bdc363f"
        );
        assert_eq!(Header::decode(&bytes, 0x1d), Some(header));
        assert_eq!(Header::decode(&bytes, 0x1e), None);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&damaged, 0x1d), None, "bit {bit}");
        }
    }
}
