//! A device in memory that fails as devices do, repeatably, for tests.
//!
//! ```text
//!             execute                    sync, or pushed out by later writes
//! pending  -----------> bytes, volatile ------------------------------------> durable
//!    |                            |                                              |
//!    +----- any part of these ----+------------------- power_cut ----------------+--> the next device
//! ```
//! Reads see `bytes`. A power cut keeps the durable bytes, and of each later write all, none, or some sectors, also of
//! pending writes. Some sectors of a pending write may be written before the rest: a read meanwhile sees both.
//!
//! One mutex guards everything. No completion runs under it.

use crate::Error;
use crate::device::{BLOCK, Device, DeviceMonitor, Direction, TransferRequest, stopped};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that a device writes atomically.
const SECTOR: usize = 512;
/// Maximum bytes in a drive's volatile cache.
const VOLATILE_BYTES: usize = 16 << 20;
const DELAY: Duration = Duration::from_millis(1);

/// Rates of faults: one random transfer in this number; 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Reads that fail.
    pub read_errors: u32,
    /// Writes that fail; some of their sectors may be written.
    pub write_errors: u32,
    /// Syncs that fail; nothing becomes durable.
    pub sync_errors: u32,
    /// Reads with a wrong bit, right another time.
    pub read_flips: u32,
    /// Writes that store a wrong bit.
    pub write_flips: u32,
    /// Writes that succeed and leave the old bytes. No checksum detects this; only a reader that knows the expected
    /// version does.
    pub lost_writes: u32,
    /// Writes that go to another block.
    pub misplaced_writes: u32,
    /// Submits that find the queue full.
    pub refusals: u32,
    /// Steps of a serving thread before which all pending transfers pause for a millisecond.
    pub delays: u32,
}

/// When transfers complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// When `submit` returns.
    AtOnce,
    /// Later, in any order: at [`FaultyDevice::step`], or on serving threads. At most `queue_depth` are pending.
    Later { queue_depth: usize },
}

/// Called after each write, with its offset and whether the power has failed.
type Watcher = Box<dyn FnMut(u64, bool) + Send>;

/// A device in memory with faults that come from a seed.
pub struct FaultyDevice {
    capacity: u64,
    delivery: Delivery,
    state: Mutex<State>,
    watcher: Mutex<Option<Watcher>>,
    /// Something is pending, or the device has stopped.
    work: Condvar,
    account: DeviceMonitor,
}

struct State {
    random: Random,
    faults: Faults,
    bytes: Vec<u8>,
    durable: Vec<u8>,
    volatile: VecDeque<VolatileWrite>,
    volatile_bytes: usize,
    pending: Vec<PendingRequest>,
    broken: Vec<(Direction, Range<u64>)>,
    writes: u64,
    cut_at: Option<u64>,
    is_stalled: bool,
    stopped: bool,
}

/// Whole sectors that were written and may be lost.
struct VolatileWrite {
    offset: usize,
    bytes: Vec<u8>,
}

struct PendingRequest {
    request: TransferRequest,
    began: Instant,
    /// Some of its sectors are written.
    started: bool,
}

impl FaultyDevice {
    /// Zeros, and no faults yet.
    ///
    /// # Panics
    ///
    /// Panics when `capacity` is not a multiple of [`BLOCK`].
    pub fn new(capacity: usize, seed: u64, delivery: Delivery) -> Self {
        assert!(capacity.is_multiple_of(BLOCK), "{capacity} bytes are not whole blocks");
        Self::with_bytes(vec![0; capacity], seed, delivery)
    }

    fn with_bytes(bytes: Vec<u8>, seed: u64, delivery: Delivery) -> Self {
        let state = State {
            random: Random(seed),
            faults: Faults::default(),
            durable: bytes.clone(),
            bytes,
            volatile: VecDeque::new(),
            volatile_bytes: 0,
            pending: Vec::new(),
            broken: Vec::new(),
            writes: 0,
            cut_at: None,
            is_stalled: false,
            stopped: false,
        };
        let capacity = state.bytes.len() as u64;
        let (state, watcher) = (Mutex::new(state), Mutex::new(None));
        Self { capacity, delivery, state, watcher, work: Condvar::new(), account: DeviceMonitor::new() }
    }

    /// Sets the faults from now on.
    pub fn set(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// From now on transfers in this direction that touch these bytes fail.
    pub fn break_range(&self, direction: Direction, range: Range<u64>) {
        self.state().broken.push((direction, range));
    }

    /// Flips one stored bit, durably.
    pub fn flip(&self, offset: u64, bit: u32) {
        let mut state = self.state();
        state.bytes[offset as usize] ^= 1 << bit;
        state.durable[offset as usize] ^= 1 << bit;
        for written in &mut state.volatile {
            if let Some(byte) = (offset as usize).checked_sub(written.offset).and_then(|i| written.bytes.get_mut(i)) {
                *byte ^= 1 << bit;
            }
        }
    }

    /// Number of pending transfers.
    pub fn pending(&self) -> usize {
        self.state().pending.len()
    }

    /// Number of writes that completed or failed.
    pub fn writes(&self) -> u64 {
        self.state().writes
    }

    /// Advances one random pending transfer, and calls its completion when it is done. False if none is pending.
    pub fn step(&self) -> bool {
        let mut state = self.state();
        if state.pending.is_empty() {
            return false;
        }
        let pending = state.pending.len();
        let chosen = state.random.of_paths(pending);
        if !state.pending[chosen].started && state.random.one_in(4) && state.begin(chosen) {
            return true;
        }
        let PendingRequest { mut request, began, .. } = state.pending.swap_remove(chosen);
        let result = state.execute(&mut request);
        drop(state);
        self.finish(request, began, result);
        true
    }

    /// Steps until nothing is pending.
    pub fn drain(&self) {
        while self.step() {}
    }

    /// The threads that serve complete no transfer until [`FaultyDevice::resume`], or until the device is stopped.
    pub fn stall(&self) {
        self.state().is_stalled = true;
    }

    /// Ends [`FaultyDevice::stall`].
    pub fn resume(&self) {
        self.state().is_stalled = false;
        self.work.notify_all();
    }

    /// The power will fail at the write of this number, counted from 1 as [`FaultyDevice::writes`] does: reads see
    /// later writes, but the device of [`FaultyDevice::power_cut`] does not.
    pub fn cut_at(&self, write: u64) {
        self.state().cut_at = Some(write);
    }

    /// Sets a callback after each write that completes at once, which can inspect the files beside the device at that
    /// time.
    pub fn watch(&self, watcher: impl FnMut(u64, bool) + Send + 'static) {
        *self.watcher.lock().unwrap() = Some(Box::new(watcher));
    }

    /// Whether the power has failed.
    pub fn is_cut(&self) -> bool {
        self.state().is_cut()
    }

    /// The device as it may be found after a power cut, now or when it was set to be: without faults, and delivering as
    /// this one does. Another seed loses other writes. This device is unchanged.
    pub fn power_cut(&self, seed: u64) -> FaultyDevice {
        let state = self.state();
        let mut random = Random(seed);
        let mut bytes = state.durable.clone();
        for written in &state.volatile {
            keep_some(&mut bytes, written.offset, &written.bytes, &mut random);
        }
        if !state.is_cut() {
            let writes = state.pending.iter().map(|pending| &pending.request);
            for request in writes.filter(|request| request.direction == Direction::Write) {
                keep_some(&mut bytes, request.offset as usize, &request.buffer, &mut random);
            }
        }
        Self::with_bytes(bytes, random.next(), self.delivery)
    }

    /// The device as the next process finds it, if this one is killed now: with all completed writes, and any part of
    /// pending ones.
    pub fn killed(&self, seed: u64) -> FaultyDevice {
        let state = self.state();
        let mut random = Random(seed);
        let mut bytes = state.bytes.clone();
        let writes = state.pending.iter().map(|pending| &pending.request);
        for request in writes.filter(|request| request.direction == Direction::Write) {
            keep_some(&mut bytes, request.offset as usize, &request.buffer, &mut random);
        }
        Self::with_bytes(bytes, random.next(), self.delivery)
    }

    fn rest(&self) {
        let mut state = self.state();
        let delays = state.faults.delays;
        if state.random.one_in(delays) {
            drop(state);
            thread::sleep(DELAY);
        }
    }

    fn finish(&self, request: TransferRequest, began: Instant, result: io::Result<()>) {
        self.account.end(request.direction, request.buffer.len(), &result, began, Instant::now());
        request.finish(result);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Device for FaultyDevice {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn submit(&self, mut request: TransferRequest) -> Result<(), TransferRequest> {
        request.check(self.capacity);
        let mut state = self.state();
        if state.stopped {
            drop(state);
            request.finish(Err(stopped()));
            return Ok(());
        }
        let is_full = match self.delivery {
            Delivery::AtOnce => false,
            Delivery::Later { queue_depth } => state.pending.len() >= queue_depth,
        };
        let refusals = state.faults.refusals;
        if state.random.one_in(refusals) || is_full {
            self.account.refused();
            return Err(request);
        }
        let began = Instant::now();
        self.account.begin(began);
        if self.delivery == Delivery::AtOnce {
            let result = state.execute(&mut request);
            let is_cut = state.is_cut();
            drop(state);
            if request.direction == Direction::Write
                && let Some(watcher) = &mut *self.watcher.lock().unwrap()
            {
                watcher(request.offset, is_cut);
            }
            self.finish(request, began, result);
        } else {
            state.pending.push(PendingRequest { request, began, started: false });
            self.work.notify_one();
        }
        Ok(())
    }

    fn wait_for_slot(&self) {
        drop(self.work.wait_while(self.state(), |state| state.rests()).unwrap());
        self.step();
    }

    fn sync(&self) -> Result<(), Error> {
        let mut state = self.state();
        let errors = state.faults.sync_errors;
        let fails = state.random.one_in(errors);
        self.account.synced(!fails);
        if fails {
            return Err(Error::Sync { source: failed() });
        }
        if !state.is_cut() {
            while state.push_out() {}
        }
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        let mut state = self.state();
        let fill = [None, Some(0), Some(0xdc)][state.random.of_paths(3)];
        if let Some(fill) = fill {
            state.put(offset as usize, &vec![fill; bytes as usize]);
        }
        self.account.discarded(true);
        Ok(())
    }

    fn threads(&self) -> usize {
        match self.delivery {
            Delivery::AtOnce => 0,
            Delivery::Later { .. } => 1,
        }
    }

    fn serve(&self) {
        loop {
            while !self.state().rests() && self.step() {
                self.rest();
            }
            let state = self.state();
            if !state.pending.is_empty() && !state.rests() {
                continue;
            }
            if state.stopped {
                return;
            }
            drop(self.work.wait(state).unwrap());
        }
    }

    fn stop(&self) {
        self.state().stopped = true;
        self.work.notify_all();
    }

    fn monitor(&self) -> &DeviceMonitor {
        &self.account
    }
}

impl State {
    /// Whether pending transfers make no progress.
    fn rests(&self) -> bool {
        self.is_stalled && !self.stopped
    }

    /// Whether the power has failed, so that new writes are lost.
    fn is_cut(&self) -> bool {
        self.cut_at.is_some_and(|write| self.writes >= write)
    }

    /// Writes some sectors of a pending write. False for a read.
    fn begin(&mut self, chosen: usize) -> bool {
        let mut pending = self.pending.swap_remove(chosen);
        let is_write = pending.request.direction == Direction::Write;
        if is_write {
            pending.started = true;
            self.put_some(pending.request.offset as usize, &pending.request.buffer);
        }
        self.pending.push(pending);
        let last = self.pending.len() - 1;
        self.pending.swap(chosen, last);
        is_write
    }

    fn execute(&mut self, request: &mut TransferRequest) -> io::Result<()> {
        let end = request.offset + request.buffer.len() as u64;
        let touches = |range: &Range<u64>| range.start < end && request.offset < range.end;
        let is_broken = self.broken.iter().any(|(direction, range)| *direction == request.direction && touches(range));
        match request.direction {
            Direction::Read => self.read(request, is_broken),
            Direction::Write => {
                let result = self.write(request, is_broken);
                self.writes += 1;
                result
            }
        }
    }

    fn read(&mut self, request: &mut TransferRequest, is_broken: bool) -> io::Result<()> {
        if is_broken || self.random.one_in(self.faults.read_errors) {
            return Err(failed());
        }
        let at = request.offset as usize;
        let length = request.buffer.len();
        request.buffer.copy_from_slice(&self.bytes[at..][..length]);
        if self.random.one_in(self.faults.read_flips) {
            self.random.flip(&mut request.buffer);
        }
        Ok(())
    }

    fn write(&mut self, request: &TransferRequest, is_broken: bool) -> io::Result<()> {
        let mut at = request.offset as usize;
        if is_broken || self.random.one_in(self.faults.write_errors) {
            self.put_some(at, &request.buffer);
            return Err(failed());
        }
        if self.random.one_in(self.faults.lost_writes) {
            return Ok(());
        }
        if self.random.one_in(self.faults.misplaced_writes) {
            at = self.random.of_paths((self.bytes.len() - request.buffer.len()) / BLOCK + 1) * BLOCK;
        }
        if self.random.one_in(self.faults.write_flips) {
            let mut wrong = request.buffer.to_vec();
            self.random.flip(&mut wrong);
            self.put(at, &wrong);
        } else {
            self.put(at, &request.buffer);
        }
        Ok(())
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..][..bytes.len()].copy_from_slice(bytes);
        if self.is_cut() {
            return;
        }
        self.volatile_bytes += bytes.len();
        self.volatile.push_back(VolatileWrite { offset, bytes: bytes.to_vec() });
        while self.volatile_bytes > VOLATILE_BYTES && self.push_out() {}
    }

    fn put_some(&mut self, offset: usize, bytes: &[u8]) {
        for (i, sector) in bytes.chunks(SECTOR).enumerate() {
            if self.random.one_in(2) {
                self.put(offset + i * SECTOR, sector);
            }
        }
    }

    /// Makes the oldest write durable. False if there is none.
    fn push_out(&mut self) -> bool {
        let Some(written) = self.volatile.pop_front() else { return false };
        self.volatile_bytes -= written.bytes.len();
        self.durable[written.offset..][..written.bytes.len()].copy_from_slice(&written.bytes);
        true
    }
}

/// Applies the part of a write that survives a power cut: all, nothing, its beginning, or any of its blocks or sectors.
fn keep_some(image: &mut [u8], offset: usize, bytes: &[u8], random: &mut Random) {
    let sectors = bytes.len() / SECTOR;
    let (beginning, unit) = match random.of_paths(6) {
        0 => (0, None),
        1 => (sectors, None),
        2 => (random.of_paths(sectors + 1), None),
        3 | 4 => (0, Some(BLOCK)),
        _ => (0, Some(SECTOR)),
    };
    image[offset..][..beginning * SECTOR].copy_from_slice(&bytes[..beginning * SECTOR]);
    let Some(unit) = unit else { return };
    for (i, part) in bytes.chunks(unit).enumerate() {
        if random.one_in(2) {
            image[offset + i * unit..][..part.len()].copy_from_slice(part);
        }
    }
}

fn failed() -> io::Error {
    io::Error::other("an injected fault")
}

/// Splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn of_paths(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn one_in(&mut self, transfers: u32) -> bool {
        transfers != 0 && self.next().is_multiple_of(u64::from(transfers))
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        if !bytes.is_empty() {
            let at = self.of_paths(bytes.len());
            bytes[at] ^= 1 << self.of_paths(8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Buffer, TransferOutcome, read, write};
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};

    fn filled(blocks: usize, byte: u8) -> Buffer {
        let mut buffer = Buffer::zeroed(blocks * BLOCK);
        buffer.fill(byte);
        buffer
    }

    fn submit(device: &FaultyDevice, direction: Direction, block: usize, buffer: Buffer) -> Receiver<TransferOutcome> {
        let (sender, receiver) = channel();
        let done = Box::new(move |outcome| sender.send(outcome).unwrap());
        device.submit(TransferRequest { direction, offset: (block * BLOCK) as u64, buffer, done }).unwrap();
        receiver
    }

    fn contents(device: &FaultyDevice) -> Vec<u8> {
        device.state().bytes.clone()
    }

    fn share_of_failed(faults: Faults, direction: Direction) -> usize {
        let device = FaultyDevice::new(4 * BLOCK, 1, Delivery::AtOnce);
        device.set(faults);
        let failed = |_: &usize| submit(&device, direction, 1, filled(1, 9)).recv().unwrap().result.is_err();
        (0..1000).filter(failed).count()
    }

    #[test]
    fn without_faults_it_is_memory() {
        let device = FaultyDevice::new(4 * BLOCK, 1, Delivery::AtOnce);
        write(&device, BLOCK as u64, filled(2, 7)).unwrap();
        let read = read(&device, 0, Buffer::zeroed(4 * BLOCK)).unwrap();
        assert!(read[BLOCK..3 * BLOCK].iter().all(|&b| b == 7));
        assert!(read[..BLOCK].iter().chain(&read[3 * BLOCK..]).all(|&b| b == 0));
    }

    #[test]
    fn errors_come_as_often_as_is_said() {
        let reads = Faults { read_errors: 10, ..Faults::default() };
        let writes = Faults { write_errors: 10, ..Faults::default() };
        assert!((50..200).contains(&share_of_failed(reads, Direction::Read)));
        assert_eq!(share_of_failed(reads, Direction::Write), 0);
        assert!((50..200).contains(&share_of_failed(writes, Direction::Write)));
        assert_eq!(share_of_failed(writes, Direction::Read), 0);
    }

    #[test]
    fn only_transfers_of_a_broken_range_fail() {
        let device = FaultyDevice::new(4 * BLOCK, 1, Delivery::AtOnce);
        device.break_range(Direction::Read, BLOCK as u64 + 1..BLOCK as u64 + 2);
        device.break_range(Direction::Write, 0..1);
        let outcomes: Vec<_> = (0..4).map(|block| read(&device, block * BLOCK as u64, filled(1, 0)).is_ok()).collect();
        assert_eq!(outcomes, [true, false, true, true]);
        assert!(write(&device, 0, filled(2, 1)).is_err());
        assert!(write(&device, BLOCK as u64, filled(2, 1)).is_ok());
    }

    #[test]
    fn reads_and_writes_flip_one_bit() {
        let bits = |bytes: &[u8]| bytes.iter().map(|b| b.count_ones()).sum::<u32>();
        let device = FaultyDevice::new(BLOCK, 1, Delivery::AtOnce);
        device.set(Faults { read_flips: 1, ..Faults::default() });
        assert_eq!(bits(&read(&device, 0, filled(1, 0)).unwrap()), 1);
        assert_eq!(bits(&contents(&device)), 0, "a wrong read leaves what is stored");
        device.set(Faults { write_flips: 1, ..Faults::default() });
        write(&device, 0, filled(1, 0)).unwrap();
        assert_eq!(bits(&contents(&device)), 1);
        let device = FaultyDevice::new(BLOCK, 1, Delivery::AtOnce);
        device.flip(3, 5);
        assert_eq!((contents(&device)[3], contents(&device.power_cut(1))[3]), (32, 32));
    }

    #[test]
    fn writes_are_lost_or_misplaced() {
        let device = FaultyDevice::new(64 * BLOCK, 1, Delivery::AtOnce);
        device.set(Faults { lost_writes: 1, ..Faults::default() });
        write(&device, 0, filled(1, 1)).unwrap();
        assert!(contents(&device).iter().all(|&b| b == 0));
        device.set(Faults { misplaced_writes: 1, ..Faults::default() });
        for _ in 0..8 {
            write(&device, 0, filled(1, 1)).unwrap();
        }
        assert!(contents(&device).chunks(BLOCK).filter(|block| block[0] == 1).count() > 4);
    }

    #[test]
    fn a_full_queue_gives_requests_back() {
        let device = FaultyDevice::new(BLOCK, 1, Delivery::Later { queue_depth: 2 });
        let request =
            || TransferRequest { direction: Direction::Read, offset: 0, buffer: filled(1, 0), done: Box::new(|_| ()) };
        assert!(device.submit(request()).is_ok());
        assert!(device.submit(request()).is_ok());
        assert!(device.submit(request()).is_err());
        device.wait_for_slot();
        assert_eq!(device.pending(), 1);
        assert!(device.submit(request()).is_ok());
        device.drain();
        let device = FaultyDevice::new(BLOCK, 1, Delivery::AtOnce);
        device.set(Faults { refusals: 1, ..Faults::default() });
        assert!(device.submit(request()).is_err());
    }

    #[test]
    fn transfers_are_done_later_and_in_another_order() {
        let device = FaultyDevice::new(16 * BLOCK, 3, Delivery::Later { queue_depth: 16 });
        let order = Arc::new(Mutex::new(Vec::new()));
        for block in 0..16 {
            let order = order.clone();
            let done = Box::new(move |_| order.lock().unwrap().push(block));
            let request = TransferRequest {
                direction: Direction::Write,
                offset: block * BLOCK as u64,
                buffer: filled(1, 1),
                done,
            };
            device.submit(request).unwrap();
        }
        assert!(order.lock().unwrap().is_empty());
        device.drain();
        let mut order = order.lock().unwrap().clone();
        assert!(!order.is_sorted());
        order.sort();
        assert_eq!(order, (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn a_concurrent_read_sees_a_torn_write() {
        let torn = |seed| {
            let device = FaultyDevice::new(BLOCK, seed, Delivery::Later { queue_depth: 2 });
            let _write = submit(&device, Direction::Write, 0, filled(1, 1));
            let read = submit(&device, Direction::Read, 0, filled(1, 0));
            device.drain();
            let buffer = read.recv().unwrap().buffer;
            buffer.contains(&0) && buffer.contains(&1)
        };
        let count = (0..100).filter(|&seed| torn(seed)).count();
        assert!((1..50).contains(&count), "{count} of 100");
    }

    #[test]
    fn a_power_cut_spares_what_was_synced() {
        let mut outcomes = [0; 3];
        for seed in 0..200 {
            let device = FaultyDevice::new(4 * BLOCK, seed, Delivery::AtOnce);
            write(&device, 0, filled(2, 1)).unwrap();
            device.sync().unwrap();
            write(&device, BLOCK as u64, filled(2, 2)).unwrap();
            let bytes = contents(&device.power_cut(seed));
            assert!(bytes[..BLOCK].iter().all(|&b| b == 1));
            assert!(bytes[3 * BLOCK..].iter().all(|&b| b == 0));
            for (i, sector) in bytes[BLOCK..3 * BLOCK].chunks(SECTOR).enumerate() {
                let old = if i < BLOCK / SECTOR { 1 } else { 0 };
                assert!(sector.iter().all(|&b| b == 2) || sector.iter().all(|&b| b == old));
            }
            let kept = bytes.iter().filter(|&&b| b == 2).count();
            outcomes[if kept == 0 { 0 } else { 1 + usize::from(kept == 2 * BLOCK) }] += 1;
            assert!(contents(&device)[BLOCK..3 * BLOCK].iter().all(|&b| b == 2), "this device goes on");
        }
        assert!(outcomes.iter().all(|&count| count > 20), "nothing, some, all: {outcomes:?}");
    }

    #[test]
    fn a_power_cut_tears_pending_writes() {
        let kept = |seed| {
            let device = FaultyDevice::new(BLOCK, seed, Delivery::Later { queue_depth: 1 });
            let _write = submit(&device, Direction::Write, 0, filled(1, 1));
            contents(&device.power_cut(seed)).iter().filter(|&&b| b == 1).count()
        };
        let kept: Vec<_> = (0..100).map(kept).collect();
        assert!(kept.contains(&0) && kept.contains(&BLOCK) && kept.iter().any(|&k| k != 0 && k != BLOCK));
    }

    #[test]
    fn writes_after_a_cut_are_lost() {
        for seed in 0..50 {
            let device = FaultyDevice::new(4 * BLOCK, seed, Delivery::AtOnce);
            device.cut_at(2);
            for block in 0..4 {
                assert_eq!(device.is_cut(), block >= 2);
                write(&device, block * BLOCK as u64, filled(1, 1)).unwrap();
                device.sync().unwrap();
            }
            assert!(contents(&device).iter().all(|&b| b == 1));
            let after = contents(&device.power_cut(seed));
            assert!(after[..BLOCK].iter().all(|&b| b == 1));
            assert!(after[2 * BLOCK..].iter().all(|&b| b == 0));
        }
    }

    #[test]
    fn a_failed_sync_keeps_nothing() {
        let device = FaultyDevice::new(BLOCK, 1, Delivery::AtOnce);
        device.set(Faults { sync_errors: 1, ..Faults::default() });
        write(&device, 0, filled(1, 1)).unwrap();
        assert!(matches!(device.sync(), Err(Error::Sync { .. })));
        assert!((0..50).any(|seed| contents(&device.power_cut(seed))[0] == 0));
    }

    #[test]
    fn what_a_drive_holds_back_is_bounded() {
        let device = FaultyDevice::new(BLOCK, 1, Delivery::AtOnce);
        for _ in 0..2 * VOLATILE_BYTES / BLOCK {
            write(&device, 0, filled(1, 1)).unwrap();
        }
        assert_eq!(device.state().volatile_bytes, VOLATILE_BYTES);
    }

    #[test]
    fn what_is_discarded_may_change() {
        let after = |seed| {
            let device = FaultyDevice::new(BLOCK, seed, Delivery::AtOnce);
            write(&device, 0, filled(1, 1)).unwrap();
            device.discard(0, BLOCK as u64).unwrap();
            contents(&device)[0]
        };
        let after: Vec<_> = (0..50).map(after).collect();
        assert!([0, 1, 0xdc].iter().all(|byte| after.contains(byte)));
    }

    #[test]
    fn a_stopped_device_completes_accepted_requests_only() {
        let device = FaultyDevice::new(16 * BLOCK, 1, Delivery::Later { queue_depth: 16 });
        assert_eq!(device.threads(), 1);
        let taken: Vec<_> = (0..16).map(|block| submit(&device, Direction::Write, block, filled(1, 1))).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| device.serve());
            write(&device, 0, filled(1, 2)).unwrap();
            device.stop();
        });
        assert!(taken.iter().all(|outcome| outcome.recv().unwrap().result.is_ok()));
        assert!(submit(&device, Direction::Write, 0, filled(1, 1)).recv().unwrap().result.is_err());
    }
}
