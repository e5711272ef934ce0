//! The checkpoint: the index on the device, for a start that reads no region. Little-endian; written last, valid once.
//!
//! ```text
//! block 0   magic u32 | version u32 | identity u64 | region bytes u32 | regions u32 | next sequence u64
//!           | next order u64 | bytes of the body u64 | checksum of the body u64 | checksum of the 56 bytes before u64
//! body      per region: sequence u64 | lowest order u64 | latest expiry u32 | state:7 unclean:1     21 bytes
//!           per region: pools u16, then per pool: number u16 | bytes u32                                  2 + 6 bytes
//!           per shard: objects u32, then per object: tag u32 | place, 48 bits                             10 bytes
//! ```
//! Checksums are XXH3 (64 bits) with the identity as seed; that of the body goes over pieces of 1 MiB, each with the
//! checksum so far as its seed. The body is durable before block 0 is written.

use super::LargeLog;
use super::address::Address;
use super::index::{IndexKey, SHARDS};
use super::open_region::FreeLists;
use super::recover::Deletions;
use super::regions::{RegionState, RegionSummary};
use crate::Error;
use crate::checkpoint_header::{self, BYTES as HEADER_BYTES, steps_in};
use crate::codec::{DeviceReader, DeviceWriter, FieldReader, FieldWriter};
use crate::device::{self, BLOCK, Buffer};
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, MutexGuard, TryLockError};
use std::thread;
use std::time::Duration;

const MAGIC: [u8; 4] = *b"EbLc";
const VERSION: u32 = 3;
const REGION_BYTES: usize = 21;
const OBJECT_BYTES: usize = 10;
const UNCLEAN: u8 = 1 << 7;
/// The number of a region's pools, and an entry of one.
const POOLS_BYTES: usize = 2;
const POOL_BYTES: usize = 6;
const UNHARMED: &str = "nothing panics under this lock";
/// Time between two checks of a checkpoint for the end of a reclaim or a write.
const WAIT_STEP: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    region_bytes: u32,
    regions: u32,
    next_sequence: u64,
    next_order: u64,
    body_bytes: u64,
    body_checksum: u64,
}

impl LargeLog {
    /// Bytes that a checkpoint needs now, whole blocks.
    pub fn checkpoint_bytes(&self) -> u64 {
        (BLOCK + self.body_bytes()).next_multiple_of(BLOCK) as u64
    }

    /// Writes all buffers, and the index to an area of the device outside the log's own, of at least one block. If the
    /// index does not fit, writes an invalid block, and a recovery reads the regions. Returns the bytes that it took,
    /// whole blocks. From then on the log refuses inserts and does not reclaim. Later removals must be passed to the
    /// recovery, as always.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`] and [`Error::Sync`] when the device fails or is too slow. There is no checkpoint then.
    pub fn checkpoint(self: &Arc<Self>, area: Range<u64>, now: u32) -> Result<u64, Error> {
        // Release: with `is_closed`. A thread that reads the old value holds a writer's lock, or that of a shard.
        self.is_closed.store(true, Release);
        self.writers.iter().for_each(|writer| drop(writer.lock().unwrap()));
        (0..SHARDS as u8).for_each(|shard| drop(self.index.lock(shard)));
        // A reclaim that has started may open regions for its copies.
        let _one = self.wait_for_reclaim()?;
        self.seal_all(now);
        self.wait_for_writes()?;
        // Earlier removals have lower orders. Regions of earlier flushes are reclaimed now: flush and reclaim both lock
        // `free_lists`.
        let next_order = self.next_order.fetch_add(1, Relaxed) + 1;
        self.reclaim_locked(now, 0);
        let bytes = self.checkpoint_bytes();
        if bytes > area.end - area.start {
            device::write(&*self.device, area.start, Buffer::zeroed(BLOCK))?;
            return self.device.sync().map(|()| BLOCK as u64);
        }
        let mut device_writer = DeviceWriter::new(&*self.device, area.start + BLOCK as u64, self.options.identity);
        self.save(&mut device_writer)?;
        let (body_bytes, body_checksum) = device_writer.finish()?;
        let header = Header {
            region_bytes: self.geometry.region_bytes as u32,
            regions: self.geometry.regions,
            next_sequence: self.free_lists().next_sequence,
            next_order,
            body_bytes,
            body_checksum,
        };
        self.device.sync()?;
        let mut block = Buffer::zeroed(BLOCK);
        block[..HEADER_BYTES].copy_from_slice(&header.encode(self.options.identity));
        device::write(&*self.device, area.start, block)?;
        self.device.sync().map(|()| bytes)
    }

    fn body_bytes(&self) -> usize {
        let pools =
            self.region_pools.iter().map(|pools| pools.lock().expect(UNHARMED).len() * POOL_BYTES + POOLS_BYTES);
        self.regions.len() * REGION_BYTES
            + pools.sum::<usize>()
            + SHARDS * size_of::<u32>()
            + self.index.objects() * OBJECT_BYTES
    }

    fn wait_for_reclaim(&self) -> Result<MutexGuard<'_, ()>, Error> {
        for _ in 0..steps_in(self.options.max_checkpoint_wait, WAIT_STEP) {
            match self.reclaiming.try_lock() {
                Ok(one) => return Ok(one),
                Err(TryLockError::WouldBlock) => thread::sleep(WAIT_STEP),
                Err(TryLockError::Poisoned(poisoned)) => panic!("a reclaim has panicked: {poisoned}"),
            }
        }
        Err(self.too_slow())
    }

    fn wait_for_writes(self: &Arc<Self>) -> Result<(), Error> {
        let is_busy = |free_lists: &mut FreeLists| self.used_buffers(free_lists) > 0;
        for _ in 0..steps_in(self.options.max_checkpoint_wait, WAIT_STEP) {
            self.submit_waiting();
            let wait = self.freed.wait_timeout_while(self.free_lists(), WAIT_STEP, is_busy).unwrap();
            if !wait.1.timed_out() {
                return Ok(());
            }
        }
        Err(self.too_slow())
    }

    fn too_slow(&self) -> Error {
        let source = io::Error::from(io::ErrorKind::TimedOut);
        let bytes = self.geometry.region_bytes;
        Error::Transfer { operation: "a write", offset: self.geometry.offset(0), bytes, source }
    }

    fn save(&self, device_writer: &mut DeviceWriter<'_>) -> Result<(), Error> {
        for region in &self.regions {
            let summary = region.summary();
            let mut bytes = [0; REGION_BYTES];
            let mut writer = FieldWriter { bytes: &mut bytes, at: 0 };
            writer.u64(summary.sequence).u64(summary.lowest_order).u32(summary.latest_expiry);
            bytes[REGION_BYTES - 1] = region.state() as u8 | if region.is_unclean() { UNCLEAN } else { 0 };
            device_writer.put(&bytes)?;
        }
        for pools in &self.region_pools {
            let pools = pools.lock().expect(UNHARMED);
            device_writer.put(&(pools.len() as u16).to_le_bytes())?;
            for (number, bytes) in &*pools {
                device_writer.put(&number.to_le_bytes())?;
                device_writer.put(&bytes.to_le_bytes())?;
            }
        }
        for shard in 0..SHARDS as u8 {
            let objects = self.objects_of(shard);
            device_writer.put(&(objects.len() as u32).to_le_bytes())?;
            for (tag, address) in objects {
                let words = address.to_words().map(u16::to_le_bytes);
                device_writer.put(&tag.to_le_bytes())?;
                device_writer.put(words.as_flattened())?;
            }
        }
        Ok(())
    }

    fn objects_of(&self, shard: u8) -> Vec<(u32, Address)> {
        let locked = self.index.lock(shard);
        (0..).map_while(|page| locked.page(page)).flatten().collect()
    }

    /// Fills an empty log from a checkpoint. `None` if there is no valid checkpoint of this log: then the log must be
    /// discarded.
    pub(super) fn load(&self, area: &Range<u64>, deletions: &Deletions) -> Option<()> {
        let block = device::read(&*self.device, area.start, Buffer::zeroed(BLOCK)).ok()?;
        let header = Header::decode(&block[..HEADER_BYTES], self.options.identity)?;
        let is_same =
            header.region_bytes as usize == self.geometry.region_bytes && header.regions == self.geometry.regions;
        let fits = area.end.checked_sub(area.start + BLOCK as u64).is_some_and(|space| header.body_bytes <= space);
        if !is_same || !fits {
            return None;
        }
        let start = area.start + BLOCK as u64;
        let mut device_reader = DeviceReader::new(&*self.device, start, header.body_bytes, self.options.identity);
        for (number, region) in (0..).zip(&self.regions) {
            let bytes: [u8; REGION_BYTES] = device_reader.take()?;
            let mut reader = FieldReader { bytes: &bytes, at: 0 };
            let (sequence, lowest_order) = (reader.u64(), reader.u64());
            let summary = RegionSummary { sequence, lowest_order, latest_expiry: reader.u32() };
            region.complete(summary);
            region.set_state(RegionState::saved(bytes[REGION_BYTES - 1] & !UNCLEAN)?);
            self.set_unclean(number, bytes[REGION_BYTES - 1] & UNCLEAN != 0);
        }
        for region in 0..self.regions.len() as u32 {
            let count = u16::from_le_bytes(device_reader.take()?);
            for _ in 0..count {
                let number = u16::from_le_bytes(device_reader.take()?);
                self.occupy(region, number, u32::from_le_bytes(device_reader.take()?));
            }
        }
        for shard in 0..SHARDS as u8 {
            let count = u32::from_le_bytes(device_reader.take()?);
            for _ in 0..count {
                let bytes: [u8; OBJECT_BYTES] = device_reader.take()?;
                let tag = FieldReader { bytes: &bytes, at: 0 }.u32();
                let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
                let address = Address::from_words([word(4), word(6), word(8)]);
                let region = self.geometry.split(address.unit()).0;
                if self.regions.get(region as usize).is_none_or(|region| region.state() == RegionState::Free) {
                    return None;
                }
                self.index.lock(shard).insert(tag, address);
            }
        }
        if device_reader.finish()? != header.body_checksum {
            return None;
        }
        self.free_lists().next_sequence = header.next_sequence;
        self.next_order.fetch_max(header.next_order, Relaxed);
        match deletions.since(header.next_order) {
            Some(removed) => removed.for_each(|IndexKey { shard, tag }| {
                self.index.lock(shard).remove(tag);
            }),
            None => self.index.retain(|_, _| false),
        }
        Some(())
    }
}

impl Header {
    fn encode(&self, identity: u64) -> [u8; HEADER_BYTES] {
        checkpoint_header::encode(MAGIC, VERSION, identity, |writer| {
            writer.u32(self.region_bytes).u32(self.regions);
            writer.u64(self.next_sequence).u64(self.next_order).u64(self.body_bytes).u64(self.body_checksum);
        })
    }

    fn decode(bytes: &[u8], identity: u64) -> Option<Self> {
        let mut reader = checkpoint_header::decode(bytes, MAGIC, VERSION, identity)?;
        Some(Self {
            region_bytes: reader.u32(),
            regions: reader.u32(),
            next_sequence: reader.u64(),
            next_order: reader.u64(),
            body_bytes: reader.u64(),
            body_checksum: reader.u64(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_these_bytes() {
        let header = Header {
            region_bytes: 1 << 24,
            regions: 9,
            next_sequence: 77,
            next_order: 0x0102_0304_0506,
            body_bytes: 999,
            body_checksum: 0xfeed,
        };
        let bytes = header.encode(0x1d);
        let hex: Vec<String> =
            bytes.chunks(8).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
        assert_eq!(
            hex.join(" "),
            "45624c6303000000 1d00000000000000 0000000109000000 4d00000000000000 0605040302010000 e703000000000000 \
             edfe000000000000 d1d511d79a846672"
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
