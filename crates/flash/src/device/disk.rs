//! Files and block devices as one device.
//!
//! ```text
//! submit ------> Queue -> ring (one thread) or pool (several) ---> the paths, by Stripes
//! submit_local -> the ring of the calling thread, if it has one ----^        its ring, or a spare one while it waits
//! ```

#![allow(unsafe_code)]

use super::blocking_ring::RingPool;
use super::drive::{DriveLog, Drives};
use super::dry_run::check_paths;
use super::fiemap::UnwrittenRanges;
use super::label::{Label, LabelState};
use super::open_error::{Notice, OpenError};
use super::path::{DevicePath, check_size, unlock, whole_blocks};
use super::queue::RequestQueue;
use super::stats::DeviceMonitor;
use super::stripes::Stripes;
use super::{BlockingRing, Device, ThreadRing, TransferRequest, thread_pool, thread_ring, uring};
use crate::Error;
use rustix::ioctl::{Opcode, Setter, opcode};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// `BLKDISCARD`, as linux/fs.h has it.
const DISCARD: Opcode = opcode::none(0x12, 119);

/// The engine that executes transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// By io_uring, where the system allows it.
    Ring,
    /// By threads.
    Pool,
}

#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// `None`: the ring if the system has one, since it uses the processor least; else the pool.
    pub engine: Option<Engine>,
    /// Maximum number of pending transfers, 2 to 4096; writes may be half of them. By default 256: enough to keep a
    /// fast drive busy with random reads, while a slow one still completes each within a few milliseconds.
    pub queue_depth: usize,
    /// Threads of the pool, 1 to 256, each with one transfer at a time. By default 16: most drives gain little from
    /// more.
    pub pool_threads: usize,
    /// Whether threads that wait for their reads poll for up to 200 us before they sleep, if polls mostly succeed and
    /// no other thread wants the processor: a read takes about as long as a wake. At most half of the processors poll
    /// at a time. By default true, since the processor would be idle otherwise. `false` where idle processors save
    /// money or energy.
    pub busy_poll: bool,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self { engine: None, queue_depth: 256, pool_threads: 16, busy_poll: true }
    }
}

/// The result of [`Disk::open`].
pub struct OpenedDisk {
    pub disk: Disk,
    /// Whether the device is new: its bytes have no meaning.
    pub is_new: bool,
    pub notices: Vec<Notice>,
}

/// Files and block devices, as one device. It locks them for as long as it lives.
pub struct Disk {
    parts: Vec<DevicePath>,
    stripes: Stripes,
    queue: RequestQueue,
    engine: Engine,
    pool_threads: usize,
    identity: u64,
    takes_discards: AtomicBool,
    drives: Option<Drives>,
    ring_pool: RingPool,
}

impl Disk {
    /// Opens paths, each with its bytes. Files are created, and their space is reserved. A path that holds data of
    /// others is not changed, and then none of the other paths is labelled.
    pub fn open(paths: &[(PathBuf, u64)], options: &DiskOptions) -> Result<OpenedDisk, Error> {
        check_options(paths, options)?;
        let mut notices = Vec::new();
        let engine = choose_engine(options.engine, || uring::probe(options.queue_depth), &mut notices)?;
        let mut parts = Vec::new();
        let opened = open_parts(paths, &mut parts, &mut notices);
        let labelled = opened.and_then(|stripes| Ok((label(&parts, stripes.stripe_bytes(), &mut notices)?, stripes)));
        let ((identity, is_new), stripes) = labelled.inspect_err(|_| parts.iter().for_each(DevicePath::abandon))?;
        let takes_discards = AtomicBool::new(parts.iter().all(DevicePath::takes_discards));
        let queue = RequestQueue::new(options.queue_depth).map_err(|source| Error::Engine { source })?;
        let drives = Drives::of_paths(parts.iter().map(DevicePath::device_number));
        let pool_threads = options.pool_threads;
        let ring_pool = RingPool::new(options.busy_poll);
        let disk = Self { parts, stripes, queue, engine, pool_threads, identity, takes_discards, drives, ring_pool };
        Ok(OpenedDisk { disk, is_new, notices })
    }

    /// Checks whether [`Disk::open`] would succeed, as far as possible without changing anything, and returns the
    /// capacity. Existing files are locked for a moment.
    pub fn check(paths: &[(PathBuf, u64)], options: &DiskOptions) -> Result<u64, Error> {
        check_options(paths, options)?;
        check_paths(paths)?;
        let bytes: Vec<u64> = paths.iter().map(|(_, bytes)| *bytes).collect();
        Ok(Self::capacity_of(&bytes))
    }

    /// The capacity of paths with these bytes; 0 if one of them has too few.
    pub(crate) fn capacity_of(bytes: &[u64]) -> u64 {
        let blocks: Vec<u64> = bytes.iter().map(|bytes| whole_blocks(*bytes)).collect();
        let is_alone = blocks.len() == 1;
        let is_enough = blocks.iter().all(|bytes| check_size(*bytes, is_alone).is_ok());
        if is_enough { Stripes::new(&blocks).capacity() } else { 0 }
    }

    /// The files that the open created.
    pub(crate) fn created(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().filter(|part| part.is_created()).map(|part| part.path.as_path())
    }

    /// The identity of the device, drawn when it is new: state with another identity does not belong to these bytes.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().map(|part| part.path.as_path())
    }

    /// A notice for each path that takes no discards. If there is one, nothing is discarded.
    pub fn paths_without_discards(&self) -> impl Iterator<Item = Notice> {
        let deaf = self.parts.iter().filter(|part| !part.takes_discards());
        deaf.map(|part| Notice::NoDiscard { path: part.path.clone() })
    }

    pub fn engine(&self) -> Engine {
        self.engine
    }

    pub(super) fn queue(&self) -> &RequestQueue {
        &self.queue
    }

    pub(super) fn ring_pool(&self) -> &RingPool {
        &self.ring_pool
    }

    pub(super) fn path_set(&self) -> uring::PathSet<'_> {
        uring::PathSet { parts: &self.parts, stripes: &self.stripes }
    }

    /// Discards blocks of one part.
    fn discard_run(&self, part: &DevicePath, offset: u64, bytes: u64) -> io::Result<()> {
        // SAFETY: this is the number of an ioctl that takes a pointer to two u64, the offset and the length.
        let request = unsafe { Setter::<DISCARD, [u64; 2]>::new([offset, bytes]) };
        // SAFETY: the call reads those two numbers. It discards blocks of our own block device, which is locked.
        unsafe { rustix::ioctl::ioctl(&part.file, request) }.map_err(io::Error::from)
    }
}

impl Device for Disk {
    fn capacity(&self) -> u64 {
        self.stripes.capacity()
    }

    fn submit(&self, request: TransferRequest) -> Result<(), TransferRequest> {
        request.check(self.capacity());
        self.queue.offer(request)
    }

    fn thread_ring(self: Arc<Self>) -> Option<ThreadRing> {
        if self.engine == Engine::Ring { ThreadRing::new(self) } else { None }
    }

    fn has_thread_ring(&self) -> bool {
        thread_ring::is_of(self)
    }

    fn blocking_ring(self: Arc<Self>) -> Option<BlockingRing> {
        if self.engine == Engine::Ring { BlockingRing::new(self) } else { None }
    }

    fn submit_local(&self, request: TransferRequest) -> Result<(), TransferRequest> {
        if !thread_ring::takes(self) {
            return self.submit(request);
        }
        request.check(self.capacity());
        self.queue.admit(request)?.into_iter().for_each(thread_ring::add);
        Ok(())
    }

    fn wait_for_slot(&self) {
        self.queue.wait_for_slot();
    }

    fn sync(&self) -> Result<(), Error> {
        let result = self.parts.iter().try_for_each(|part| part.file.sync_data());
        self.monitor().synced(result.is_ok());
        result.map_err(|source| Error::Sync { source })
    }

    /// Discards blocks of block devices only. Punching a hole in a file would give up its reserved space, and the next
    /// write of the region could fail on a full filesystem.
    fn discard(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        let (mut at, end) = (offset, offset + bytes);
        while at < end && self.takes_discards.load(Relaxed) && !self.queue.is_stopped() {
            let place = self.stripes.place(at);
            let run = place.run.min(end - at);
            if let Err(source) = self.discard_run(&self.parts[place.part], place.offset, run) {
                if !matches!(source.kind(), ErrorKind::Unsupported | ErrorKind::InvalidInput) {
                    self.monitor().discarded(false);
                    return Err(Error::Transfer { operation: "a discard", offset: at, bytes: run as usize, source });
                }
                self.takes_discards.store(false, Relaxed);
            }
            at += run;
        }
        self.monitor().discarded(self.takes_discards.load(Relaxed));
        Ok(())
    }

    fn reserved(&self, bytes: Range<u64>) -> Option<UnwrittenRanges> {
        let place = self.stripes.place(bytes.start);
        let run = place.run.min(bytes.end - bytes.start);
        let UnwrittenRanges { bytes: found, end } =
            self.parts[place.part].reserved(place.offset..place.offset + run)?;
        let of_device = |offset| bytes.start + (offset - place.offset);
        let found = found.into_iter().map(|found| of_device(found.start)..of_device(found.end));
        Some(UnwrittenRanges { bytes: found.collect(), end: of_device(end) })
    }

    fn read_drive_logs(&self) -> Option<DriveLog> {
        self.drives.as_ref()?.ask()
    }

    fn threads(&self) -> usize {
        match self.engine {
            Engine::Ring => 1,
            Engine::Pool => self.pool_threads,
        }
    }

    fn serve(&self) {
        let served = match self.engine {
            Engine::Ring => uring::serve(&self.queue, self.path_set()).is_ok(),
            Engine::Pool => false,
        };
        // If the ring cannot be created any more, its thread joins the pool.
        if !served {
            thread_pool::serve(&self.queue, &self.parts, &self.stripes);
        }
    }

    fn stop(&self) {
        self.queue.stop();
    }

    fn unlock(&self) {
        if self.queue.is_over() {
            self.parts.iter().for_each(|part| unlock(&part.file));
        }
    }

    fn monitor(&self) -> &DeviceMonitor {
        self.queue.monitor()
    }
}

fn check_options(paths: &[(PathBuf, u64)], options: &DiskOptions) -> Result<(), Error> {
    check("the queue's depth", options.queue_depth, 2, 4096)?;
    check("the number of threads", options.pool_threads, 1, 256)?;
    check("the number of paths", paths.len(), 1, usize::from(u16::MAX))
}

fn check(name: &'static str, value: usize, min: usize, max: usize) -> Result<(), Error> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Error::Options(format!("{name} is {value}, but can be {min} to {max}")))
}

/// The engine, by the option and whether the system has a ring.
fn choose_engine(
    wanted: Option<Engine>,
    probe: impl FnOnce() -> io::Result<()>,
    notices: &mut Vec<Notice>,
) -> Result<Engine, Error> {
    if wanted == Some(Engine::Pool) {
        return Ok(Engine::Pool);
    }
    match (probe(), wanted) {
        (Ok(()), _) => Ok(Engine::Ring),
        (Err(source), Some(_)) => Err(Error::Engine { source }),
        (Err(reason), None) => {
            notices.push(Notice::NoRing { reason });
            Ok(Engine::Pool)
        }
    }
}

/// Opens all paths, then prepares all: if one of them is refused, none of the others is changed.
fn open_parts(
    paths: &[(PathBuf, u64)],
    parts: &mut Vec<DevicePath>,
    notices: &mut Vec<Notice>,
) -> Result<Stripes, Error> {
    for (path, bytes) in paths {
        let part = DevicePath::open(path, *bytes, paths.len() == 1)
            .map_err(|reason| Error::Refused { path: path.clone(), reason })?;
        let is_foreign = part.found == Some(LabelState::Foreign);
        if part.bytes != *bytes {
            notices.push(Notice::Rounded { path: path.clone(), bytes: *bytes, used: part.bytes });
        }
        parts.push(part);
        if is_foreign {
            return Err(Error::Refused { path: path.clone(), reason: OpenError::Foreign });
        }
    }
    for part in parts.iter() {
        part.prepare(notices).map_err(|reason| refused(part, reason))?;
    }
    let bytes: Vec<u64> = parts.iter().map(|part| part.bytes).collect();
    Ok(Stripes::new(&bytes))
}

/// The identity that the parts share, and whether it is new.
fn label(parts: &[DevicePath], stripe_bytes: u64, notices: &mut Vec<Notice>) -> Result<(u64, bool), Error> {
    let drawn = RandomState::new().hash_one("identity");
    let first = match parts[0].found {
        Some(LabelState::Label(label)) => label.identity,
        _ => drawn,
    };
    let labels = |identity| {
        let label = move |(index, part): (usize, &DevicePath)| Label {
            index: index as u16,
            parts: parts.len() as u16,
            identity,
            bytes: part.bytes,
            stripe_bytes,
        };
        parts.iter().enumerate().map(label)
    };
    if parts.iter().zip(labels(first)).all(|(part, label)| part.found == Some(LabelState::Label(label))) {
        return Ok((first, false));
    }
    if parts.iter().any(|part| part.found.is_some()) {
        notices.push(Notice::Relabelled);
    }
    for (part, label) in parts.iter().zip(labels(drawn)) {
        part.write_label(&label.to_block()).map_err(|reason| refused(part, reason))?;
    }
    Ok((drawn, true))
}

fn refused(part: &DevicePath, reason: OpenError) -> Error {
    Error::Refused { path: part.path.clone(), reason }
}

#[cfg(test)]
mod tests {
    use super::super::{Buffer, STRIPE};
    use super::*;
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use std::io::{Write, stderr};
    use std::iter;
    use std::os::unix::fs::FileExt;

    #[test]
    fn threads_replace_a_ring_that_was_not_requested() {
        let mut notices = Vec::new();
        let refused = || Err(ErrorKind::PermissionDenied.into());
        assert_eq!(choose_engine(None, refused, &mut notices).unwrap(), Engine::Pool);
        assert!(notices[0].to_string().contains("no io_uring here (permission denied)"));
        assert!(matches!(choose_engine(Some(Engine::Ring), refused, &mut notices), Err(Error::Engine { .. })));
        assert_eq!(choose_engine(None, || Ok(()), &mut notices).unwrap(), Engine::Ring);
        assert_eq!(notices.len(), 1);
    }

    /// A disk on a filesystem that reports reserved extents.
    fn disk(paths: &[(&str, u64)]) -> Option<(tempfile::TempDir, Disk)> {
        let directory = tempfile::tempdir().unwrap();
        let paths: Vec<_> = paths.iter().map(|(name, bytes)| (directory.path().join(name), *bytes)).collect();
        let disk = Disk::open(&paths, &DiskOptions::default()).unwrap().disk;
        let tells = disk.reserved(0..4096).is_some();
        if !tells {
            let _ = writeln!(stderr(), "not tested: this filesystem does not tell what is only reserved");
        }
        tells.then_some((directory, disk))
    }

    #[test]
    fn reserved_ranges_are_device_bytes_by_stripe() {
        let Some((_directory, disk)) = disk(&[("a", 40 << 20), ("b", 40 << 20)]) else { return };
        let mut block = Buffer::zeroed(4096);
        block.fill(7);
        // The third stripe is the second one of the first part.
        for at in [2 * STRIPE + 8192, STRIPE + 4096] {
            let place = disk.stripes.place(at);
            disk.parts[place.part].file.write_all_at(&block, place.offset).unwrap();
        }
        let whole = |from: u64| disk.reserved(from..disk.capacity()).unwrap();
        assert_eq!(whole(0), UnwrittenRanges { bytes: iter::once(0..STRIPE).collect(), end: STRIPE });
        let second = vec![STRIPE..STRIPE + 4096, STRIPE + 8192..2 * STRIPE];
        assert_eq!(whole(STRIPE), UnwrittenRanges { bytes: second, end: 2 * STRIPE });
        let third = vec![2 * STRIPE + 4096..2 * STRIPE + 8192, 2 * STRIPE + 12288..3 * STRIPE];
        assert_eq!(whole(2 * STRIPE + 4096), UnwrittenRanges { bytes: third, end: 3 * STRIPE });
    }

    #[test]
    fn many_extents_come_in_several_answers() {
        let Some((_directory, disk)) = disk(&[("a", 16 << 20)]) else { return };
        let mut block = Buffer::zeroed(4096);
        block.fill(7);
        let file = &disk.parts[0].file;
        let pages = 1000;
        for page in (0..pages).step_by(2) {
            file.write_all_at(&block, disk.stripes.place(page * 4096).offset).unwrap();
        }
        let (mut at, mut found, mut answers) = (0, Vec::new(), 0);
        while at < pages * 4096 {
            let UnwrittenRanges { bytes, end } = disk.reserved(at..pages * 4096).unwrap();
            assert!(at < end, "an answer goes on");
            (found, at, answers) = ([found, bytes].concat(), end, answers + 1);
        }
        let expected: Vec<_> = (1..pages).step_by(2).map(|page| page * 4096..(page + 1) * 4096).collect();
        assert_eq!(found, expected);
        assert!(answers > 1);
        fcntl_setfl(file, fcntl_getfl(file).unwrap() - OFlags::DIRECT).unwrap();
        assert_eq!(disk.reserved(0..4096), None);
    }
}
