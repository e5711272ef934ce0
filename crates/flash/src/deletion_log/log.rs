//! The log: opening, reading, records, and stopping.

use super::contents::{Incarnations, LogContents, StoreKind, Unreadable};
use super::head::*;
use super::log_file::LogFile;
use super::record_ring::{Deletion, RecordRing};
use super::wal_buffer::remove_stale;
use super::wal_buffer::{LogWrite, WalBuffer};
use super::writer::LogWriter;
use crate::FlashHash;
use crate::device::{self, BLOCK};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use twox_hash::XxHash3_64;

/// Maximum wait of a stop for the file.
const MAX_DRAIN: Duration = Duration::from_secs(10);
/// Maximum wait of a close without a stop.
pub(super) const MAX_CLOSE: Duration = Duration::from_secs(1);
pub(crate) struct DeletionLog {
    pub(super) log_file: Arc<LogFile>,
    pub(super) writer: LogWriter,
    /// Folder for its WAL buffer.
    pub(super) wal_folder: Option<PathBuf>,
    pub(super) is_created: bool,
    pub(super) rings: [Mutex<RecordRing>; 2],
    pub(super) blocks: u32,
    pub(super) incarnation: AtomicU64,
    pub(super) run: AtomicU64,
    pub(super) records: AtomicU64,
    pub(super) is_broken: AtomicBool,
    /// The log is broken but could not be marked.
    pub(super) lacks_mark: AtomicBool,
    /// Appended records are synced at once. Changes under the locks of both rings.
    pub(super) is_stopped: AtomicBool,
    /// A write to the head reads it under the lock of the ring of small objects, an append under the lock of its own
    /// ring.
    pub(super) is_closed: AtomicBool,
    /// Maximum wait of a stop for the file.
    pub(super) max_drain: Duration,
}

impl DeletionLog {
    /// The path of a log beside the file of a device.
    pub fn path_beside(path: &Path) -> PathBuf {
        let mut name = OsString::from(path);
        name.push(SUFFIX);
        name.into()
    }

    /// Opens a log, or creates an empty one, whose rings have `blocks` blocks. A log of another size or version is
    /// emptied. A file that is not a log is an error and stays unchanged; a log that another process has open is an
    /// error, too, with `WouldBlock`. A power cut may leave a log as a file of zeros. `wal_folder` is the folder in
    /// memory for its WAL buffer.
    pub fn open(path: &Path, blocks: u32, wal_folder: Option<&Path>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        // The open must not wait for a pipe.
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        options.read(true).write(true).truncate(false).mode(0o600).custom_flags(nonblocking);
        let (mut file, is_created) = match options.clone().create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (options.create(true).open(path)?, false),
            made => (made?, true),
        };
        // Locked until it is closed. Another server would overwrite the records of this one.
        device::lock(&file)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        let mut magic = Vec::new();
        (&mut file).take(MAGIC.len() as u64).read_to_end(&mut magic)?;
        if magic != MAGIC && !is_blank(&file, bytes_of(blocks))? {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is a file of something else"));
        }
        let rings = [StoreKind::Small, StoreKind::Large].map(|store| Mutex::new(RecordRing::new(store, blocks)));
        let log_file = Arc::new(LogFile::new(file, path, invalid_head(blocks))?);
        Ok(Self {
            writer: LogWriter::new(Arc::clone(&log_file)),
            log_file,
            wal_folder: wal_folder.map(Path::to_owned),
            is_created,
            rings,
            blocks,
            incarnation: AtomicU64::new(0),
            run: AtomicU64::new(0),
            records: AtomicU64::new(0),
            is_broken: AtomicBool::new(true),
            lacks_mark: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            max_drain: MAX_DRAIN,
        })
    }

    /// Creates a WAL buffer for all later writes. This is the last step of the start of a log.
    ///
    /// # Errors
    ///
    /// Why there is no WAL buffer: then all writes go to the file.
    pub fn begin_wal_buffer(&self) -> io::Result<()> {
        let Some(folder) = &self.wal_folder else { return Ok(()) };
        let run = self.run.load(Relaxed);
        let wal_buffer = WalBuffer::create(folder, run, self.log_file.path())?;
        self.writer.serve().and_then(|()| self.name_wal_buffer(run)).inspect_err(|_| wal_buffer.remove())?;
        self.writer.take(wal_buffer);
        Ok(())
    }

    /// Removes the WAL buffers of killed servers that no start needs, in the folder for WAL buffers.
    pub fn sweep_wal_buffers(&self) {
        self.wal_folder.iter().for_each(|folder| remove_stale(folder));
    }

    pub(super) fn name_wal_buffer(&self, run: u64) -> io::Result<()> {
        let mut bytes = run.to_le_bytes().to_vec();
        bytes.extend_from_slice(&XxHash3_64::oneshot(&bytes).to_le_bytes());
        self.log_file.file.write_all_at(&bytes, WAL_BUFFER_SLOT)
    }

    /// Whether the open created the file.
    pub fn is_created(&self) -> bool {
        self.is_created
    }

    /// Starts an empty log: all objects with orders lower than `small` and `large` count as removed, all others as
    /// present.
    pub fn begin(&self, incarnations: Incarnations, run: u64, small: u64, large: u64, latest: u32) -> io::Result<()> {
        self.log_file.file.set_len(0)?;
        // The file is marked as a log from its first byte on.
        self.log_file.file.write_all_at(&invalid_head(self.blocks), 0)?;
        let bytes = bytes_of(self.blocks);
        match rustix::fs::fallocate(&self.log_file.file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
            Err(rustix::io::Errno::OPNOTSUPP) => self.log_file.file.set_len(bytes)?,
            other => other?,
        }
        self.incarnation.store(incarnations.large, Relaxed);
        self.write_time(latest)?;
        self.name_wal_buffer(0)?;
        for (store, incarnation, highest) in
            [(StoreKind::Small, incarnations.small, small), (StoreKind::Large, incarnations.large, large)]
        {
            self.begin_ring(store, incarnation, highest)?;
        }
        self.write_head(run, 0)?;
        self.run.store(run, Relaxed);
        self.is_broken.store(false, Relaxed);
        Ok(())
    }

    /// Announces the next run: from now on a superblock of it or of the current one is accepted.
    pub fn announce_run(&self, next: u64) -> io::Result<()> {
        self.write_head(self.run.load(Relaxed), next)
    }

    /// The superblock of this run is durable: from now on only this run is accepted.
    pub fn set_run(&self, run: u64) -> io::Result<()> {
        self.write_head(run, 0)?;
        self.run.store(run, Relaxed);
        Ok(())
    }

    pub(super) fn write_head(&self, run: u64, next: u64) -> io::Result<()> {
        self.log_file.file.write_all_at(&LogHead { blocks: self.blocks, run, next }.encode(), 0)
    }

    pub(super) fn begin_ring(&self, store: StoreKind, incarnation: u64, highest: u64) -> io::Result<()> {
        let mut ring = self.ring(store);
        if self.is_closed.load(Relaxed) {
            return Ok(());
        }
        ring.begin(incarnation, highest);
        self.write(&ring.head(), ring.offset())
    }

    /// Restarts the ring of a store that starts empty, in another life.
    pub fn restart_ring(&self, store: StoreKind, incarnation: u64) {
        if self.begin_ring(store, incarnation, 0).is_err() {
            self.invalidate(&self.ring(store));
        }
    }

    /// Reads the contents of the log for these lives, and prepares it to continue, if it belongs to this run. The ring
    /// of small objects may be of another life if a run ended after the small objects were dropped and before the ring
    /// restarted.
    pub fn read(&self, incarnations: Incarnations, run: u64) -> Result<LogContents, Unreadable> {
        let block = self.first_block().map_err(|_| Unreadable::Missing)?;
        let head = LogHead::decode(&block).filter(|head| head.blocks == self.blocks);
        let Some(head) = head else {
            let is_empty = block[..HEAD_BYTES].iter().all(|&byte| byte == 0);
            return Err(if is_empty { Unreadable::Missing } else { Unreadable::Damaged });
        };
        if run == 0 || run != head.run && run != head.next {
            return Err(Unreadable::OtherRun);
        }
        self.replay_wal_buffer(head.run)?;
        let head = self.first_block().map_err(|_| Unreadable::Damaged)?;
        // If the kernel failed to write cached data, this sync reports it.
        self.log_file.file.sync_all().map_err(|_| Unreadable::Damaged)?;
        let notes = TIME_SLOTS.map(|at| decode_slot(&head[at as usize..][..SLOT_BYTES], incarnations.large));
        let read = |store, incarnation| {
            let mut ring = self.ring(store);
            ring.read(incarnation, |offset, bytes| self.log_file.file.read_exact_at(bytes, offset))
        };
        let contents = LogContents {
            small: match read(StoreKind::Small, incarnations.small) {
                Err(Unreadable::Missing) => None,
                known => Some(known?),
            },
            large: read(StoreKind::Large, incarnations.large)?,
            latest: notes.into_iter().flatten().max().ok_or(Unreadable::Damaged)?,
            flush_is_pending: decode_slot(&head[PENDING_FLUSH_SLOT as usize..][..SLOT_BYTES], incarnations.large)
                == Some(1),
        };
        self.incarnation.store(incarnations.large, Relaxed);
        self.run.store(run, Relaxed);
        self.is_broken.store(false, Relaxed);
        Ok(contents)
    }

    pub(super) fn first_block(&self) -> io::Result<[u8; BLOCK]> {
        let mut block = [0; BLOCK];
        self.log_file.file.read_exact_at(&mut block, 0)?;
        Ok(block)
    }

    /// Applies the writes of the WAL buffer to the file.
    pub(super) fn replay_wal_buffer(&self, run: u64) -> Result<(), Unreadable> {
        let named = named_wal_buffer(&self.log_file.file).ok_or(Unreadable::Damaged)?;
        if named == 0 {
            return Ok(());
        }
        if named != run {
            return Err(Unreadable::Damaged);
        }
        let wal_buffer = self.wal_folder.as_ref().ok_or(Unreadable::WithoutWalBuffer)?;
        let wal_buffer = WalBuffer::open(wal_buffer, run).map_err(|_| Unreadable::WithoutWalBuffer)?;
        let writes = wal_buffer.writes().map_err(|_| Unreadable::WithoutWalBuffer)?.ok_or(Unreadable::Damaged)?;
        // Applied before any direct write to the file: the older entries must not overwrite newer bytes.
        self.log_file.apply(&writes).and_then(|()| self.name_wal_buffer(0)).map_err(|_| Unreadable::Damaged)?;
        wal_buffer.remove();
        Ok(())
    }

    /// Logs a removal of all versions of this hash with lower orders.
    pub fn log_deletion(&self, store: StoreKind, hash: FlashHash, order: u64) {
        self.append(store, Deletion::Key(hash), order);
    }

    /// Logs a removal of all objects with lower orders.
    pub fn log_flush(&self, store: StoreKind, order: u64) {
        self.append(store, Deletion::All, order);
    }

    /// Logs the end of an incarnation of a pool.
    pub fn log_pool_end(&self, store: StoreKind, pool: u16, order: u64) {
        self.append(store, Deletion::Pool(pool), order);
    }

    pub(super) fn append(&self, store: StoreKind, end: Deletion, order: u64) {
        let mut ring = self.ring(store);
        if !self.accepts_records() {
            return;
        }
        let (offset, bytes) = ring.append(end, order);
        if self.write(bytes.as_slice(), offset).is_err() {
            self.invalidate(&ring);
        }
        self.records.fetch_add(1, Relaxed);
    }

    /// Logs the latest time.
    pub fn record_time(&self, latest: u32) {
        self.write_in_head(|| self.write_time(latest));
    }

    /// Logs whether a flush is pending.
    pub fn flush_is_pending(&self, stalled_for: bool) {
        self.write_in_head(|| self.write_at(PENDING_FLUSH_SLOT, stalled_for.into()));
    }

    pub(super) fn write_in_head(&self, write: impl FnOnce() -> io::Result<()>) {
        let open = self.ring(StoreKind::Small);
        if self.accepts_records() && write().is_err() {
            self.invalidate(&open);
        }
    }

    pub(super) fn accepts_records(&self) -> bool {
        !self.is_broken.load(Relaxed) && !self.is_closed.load(Relaxed)
    }

    /// Stops writing and unlocks the file, so that others can open it while references to the log remain. If the disk
    /// of the file stalls, the file stays locked until the disk continues.
    pub fn close(&self) {
        let _rings = (self.ring(StoreKind::Small), self.ring(StoreKind::Large));
        self.is_closed.store(true, Relaxed);
        self.writer.close(MAX_CLOSE);
    }

    /// Ends like a kill: pending writes do not reach the file.
    #[cfg(test)]
    pub fn kill(&self) {
        let _rings = (self.ring(StoreKind::Small), self.ring(StoreKind::Large));
        self.is_closed.store(true, Relaxed);
        self.writer.kill();
    }

    pub(super) fn write_time(&self, latest: u32) -> io::Result<()> {
        self.write_at(TIME_SLOTS[latest as usize % 2], latest)
    }

    pub(super) fn write_at(&self, place: u64, number: u32) -> io::Result<()> {
        let mut bytes = [0; SLOT_BYTES];
        bytes[..8].copy_from_slice(&u64::from(number).to_le_bytes());
        let sum = XxHash3_64::oneshot_with_seed(self.incarnation.load(Relaxed), &bytes[..8]);
        bytes[8..].copy_from_slice(&sum.to_le_bytes());
        self.write(&bytes, place)
    }

    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.writer.append(LogWrite::new(offset, bytes))? {
            return Ok(());
        }
        self.log_file.file.write_all_at(bytes, offset)?;
        if self.is_stopped.load(Relaxed) { self.log_file.file.sync_data() } else { Ok(()) }
    }

    /// Marks the log as incomplete, before any thread skips a record because of it. The log cannot be closed while one
    /// of its rings is locked.
    pub(super) fn invalidate(&self, _open: &MutexGuard<'_, RecordRing>) {
        let is_marked = self.is_broken.load(Acquire) || self.is_closed.load(Relaxed) || self.writer.invalidate();
        if !is_marked && !self.log_file.erase_run() {
            self.lacks_mark.store(true, Relaxed);
        }
        // Release: with the loads of `is_broken`, so that a thread that reads true also reads whether there is a mark.
        self.is_broken.store(true, Release);
    }

    /// Marks the log as if a record could not be written: no start may read it, with any superblock.
    pub fn abandon(&self) {
        self.invalidate(&self.ring(StoreKind::Small));
    }

    /// As [`DeletionLog::abandon`], with a file that refuses the mark.
    #[cfg(test)]
    pub fn break_without_mark(&self) {
        self.lacks_mark.store(true, Relaxed);
        self.is_broken.store(true, Release);
    }

    /// Whether a write failed.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Acquire) || self.writer.is_invalid()
    }

    /// Whether a write failed and the log could not be marked either: then the superblock must be marked.
    pub fn lacks_mark(&self) -> bool {
        self.is_broken.load(Acquire) && self.lacks_mark.load(Relaxed)
    }

    /// How long the file has completed no write although the WAL buffer has pending ones.
    pub fn stalled_for(&self) -> Duration {
        self.writer.stalled_for()
    }

    /// Makes all records durable, and from then on each appended one. Returns whether the log is complete.
    pub fn stop(&self) -> io::Result<bool> {
        // The rings are not locked for most of this, so removals do not wait for it.
        let is_flushed = self.writer.flush_pending(self.max_drain);
        if is_flushed {
            self.log_file.file.sync_all().inspect_err(|_| self.invalidate(&self.ring(StoreKind::Small)))?;
        }
        let rings = (self.ring(StoreKind::Small), self.ring(StoreKind::Large));
        if !is_flushed || self.is_closed.load(Relaxed) || !self.writer.drain(MAX_CLOSE) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if self.is_broken() {
            return Ok(false);
        }
        self.is_stopped.store(true, Relaxed);
        // The kernel reports a failed sync only once. While the file names its WAL buffer, a mark there is enough,
        // whatever happens to the file.
        self.log_file.file.sync_all().inspect_err(|_| self.invalidate(&rings.0))?;
        let ended = self.name_wal_buffer(0).and_then(|()| self.log_file.file.sync_all());
        let wal_buffer = self.writer.take_wal_buffer();
        if let Err(error) = ended {
            // The file may name the WAL buffer, or not: both are marked.
            wal_buffer.iter().for_each(|wal_buffer| drop(wal_buffer.invalidate()));
            self.invalidate(&rings.0);
            return Err(error);
        }
        wal_buffer.iter().for_each(WalBuffer::remove);
        Ok(!self.is_broken())
    }

    /// Number of records that were appended since the log was opened.
    pub fn records(&self) -> u64 {
        self.records.load(Relaxed)
    }

    pub(super) fn ring(&self, store: StoreKind) -> MutexGuard<'_, RecordRing> {
        self.rings[store as usize].lock().expect("no thread panics with a ring")
    }
}
