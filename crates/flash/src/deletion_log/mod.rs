//! The log of removals: what flash may still hold, and must not give out after a crash.
//!
//! ```text
//! file    | head: a block | ring of the small objects | ring of the large ones |      each ring of `blocks` blocks
//!
//! head    0       8         12       16    24     32         40    512                1024               1536              2048
//!         | magic | version | blocks | run | next | checksum | ... | latest, checksum | latest, checksum | waits, checksum | front, checksum | zeros ...
//! ```
//! Little-endian. Checksums are XXH3 (64 bits); the head's is of the 32 bytes before it. `latest` is the latest time that anyone
//! has named, in seconds since 1970, with a checksum whose seed is the life of the large objects: written once a second, in turns. `stalled_for` is 1 with such
//! a checksum while a flush is to come: who starts before it came must not find what it was to end. `wal_buffer` is the run
//! whose front has what the file may lack, 0 for none; its checksum has no seed.
//!
//! The run ties the log to its flash: each start draws one, and a log is read only with a superblock of the same run.
//! ```text
//! head {old, 0} -> head {old, new} -> superblock new, durable -> head {new, 0} -> the tier is served
//! ```
//! While two runs stand in the head, a superblock of either is accepted: a start that was killed between the writes has removed nothing, and
//! no later one has begun. Afterwards the old one is refused, so an old flash file beside this log, or an old log beside the current
//! flash, is a cold start. Another keeper of the run is written between the superblock and the last write of the head.
//!
//! The log is doubted in one way, [`DeletionLog::invalidate`]: the mark stands where the latest records go, in the front, or without one in the head, whose
//! run is erased. Only a file that refuses both a record and the mark leaves it to the superblock.
//!
//! A record is with the system when the call that makes it returns, in the file or in its front (see `wal_buffer` and `writer`): it outlives the process, but a
//! power cut only when the log was stopped before, since nothing is found after one without a stop. What the rings forget they say: see `ring`. The order of records means nothing.

mod log_file;
mod record_ring;
mod wal_buffer;
mod writer;

pub(crate) use self::wal_buffer::remove_stale;

use self::log_file::LogFile;
use self::record_ring::{Deletion, RecordRing};
use self::wal_buffer::{LogWrite, WalBuffer};
use self::writer::LogWriter;
use crate::FlashHash;
use crate::device::{self, BLOCK};
use crate::large::Known;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use twox_hash::XxHash3_64;

const MAGIC: [u8; 8] = *b"ebbtider";
const VERSION: u32 = 3;
const HEAD_BYTES: usize = 40;
const HEAD_CHECKSUM: usize = 32;
/// Where the latest time is, in turns.
const TIME_SLOTS: [u64; 2] = [512, 1024];
const SLOT_BYTES: usize = 16;
/// Where it stands that a flush is to come.
const PENDING_FLUSH_SLOT: u64 = 1536;
/// Where the name of the front is.
const WAL_BUFFER_SLOT: u64 = 2048;
/// How long a stop waits for the file.
const MAX_DRAIN: Duration = Duration::from_secs(10);
/// And an end without one.
const MAX_CLOSE: Duration = Duration::from_secs(1);
/// So much is looked at at once.
const PIECE_BYTES: usize = 1 << 20;
/// Behind the path of the flash.
const SUFFIX: &str = ".removals";

const _: () = assert!(
    HEAD_BYTES as u64 <= TIME_SLOTS[0]
        && WAL_BUFFER_SLOT as usize + SLOT_BYTES <= BLOCK
        && SLOT_BYTES <= wal_buffer::MAX_WRITE
);

/// Of which store something was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Small,
    Large,
}

/// What both stores write their checksums with: another one whenever they start empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incarnations {
    pub small: u64,
    pub large: u64,
}

/// What the log held.
#[derive(Debug)]
pub(crate) struct LogContents {
    /// None if it is another life's.
    pub small: Option<Known>,
    pub large: Known,
    /// Seconds since 1970.
    pub latest: u32,
    /// A flush was to come.
    pub flush_is_pending: bool,
}

/// Why a log says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It is new, or another life's.
    Missing,
    /// It belongs to another run of the flash.
    OtherRun,
    Damaged,
    /// What the file lacks was in a front, which is gone.
    WithoutWalBuffer,
}

pub(crate) struct DeletionLog {
    log_file: Arc<LogFile>,
    writer: LogWriter,
    /// Where a front of it may be.
    wal_folder: Option<PathBuf>,
    is_created: bool,
    rings: [Mutex<RecordRing>; 2],
    blocks: u32,
    incarnation: AtomicU64,
    run: AtomicU64,
    records: AtomicU64,
    is_broken: AtomicBool,
    /// Nor does the log say so.
    lacks_mark: AtomicBool,
    /// What is appended is durable at once. Changed under the locks of both rings.
    is_stopped: AtomicBool,
    /// Read under the lock of the ring of small objects by who writes to the head, under its own by who appends.
    is_closed: AtomicBool,
}

impl DeletionLog {
    /// Beside the file of a device.
    pub fn path_beside(path: &Path) -> PathBuf {
        let mut name = OsString::from(path);
        name.push(SUFFIX);
        name.into()
    }

    /// The flash beside which a log lies, if its name says so.
    fn path_of_flash(log: &Path) -> Option<PathBuf> {
        let name = log.as_os_str().as_bytes().strip_suffix(SUFFIX.as_bytes())?;
        Some(OsStr::from_bytes(name).into())
    }

    /// Opens a log, or makes an empty one, whose rings have so many blocks. A log of another size or version is emptied; what is no log
    /// is an error, and is left as it is; so is one that somebody else has open, with `WouldBlock`. A file of zeros is what a power cut may leave of a log.
    /// `wal_folder` is the folder in memory where its front may be.
    pub fn open(path: &Path, blocks: u32, wal_folder: Option<&Path>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        // A pipe must not be waited for.
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        options.read(true).write(true).truncate(false).mode(0o600).custom_flags(nonblocking);
        let (mut file, is_created) = match options.clone().create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (options.create(true).open(path)?, false),
            made => (made?, true),
        };
        // Until it is closed. Another server would overwrite what this one knows.
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
        })
    }

    /// Has a new front take what is written from now on. Whoever starts a log does this at last.
    ///
    /// # Errors
    ///
    /// Why there is none: then all goes to the file.
    pub fn begin_wal_buffer(&self) -> io::Result<()> {
        let Some(folder) = &self.wal_folder else { return Ok(()) };
        let run = self.run.load(Relaxed);
        let wal_buffer = WalBuffer::create(folder, run, self.log_file.path())?;
        self.writer.serve().and_then(|()| self.name_wal_buffer(run)).inspect_err(|_| wal_buffer.remove())?;
        self.writer.take(wal_buffer);
        Ok(())
    }

    /// Removes the fronts of killed servers that no start will ask for, in the folder where its front may be.
    pub fn sweep_wal_buffers(&self) {
        self.wal_folder.iter().for_each(|folder| remove_stale(folder));
    }

    fn name_wal_buffer(&self, run: u64) -> io::Result<()> {
        let mut bytes = run.to_le_bytes().to_vec();
        bytes.extend_from_slice(&XxHash3_64::oneshot(&bytes).to_le_bytes());
        self.log_file.file.write_all_at(&bytes, WAL_BUFFER_SLOT)
    }

    /// Whether opening it made the file.
    pub fn is_created(&self) -> bool {
        self.is_created
    }

    /// Begins an empty log: of what is there nothing is said that has these orders or higher ones, and all with lower ones is gone.
    pub fn begin(&self, incarnations: Incarnations, run: u64, small: u64, large: u64, latest: u32) -> io::Result<()> {
        self.log_file.file.set_len(0)?;
        // From its first byte on it says whose it is.
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

    /// The start goes from the run that was read to another one: from now on a superblock of either is accepted.
    pub fn announce_run(&self, next: u64) -> io::Result<()> {
        self.write_head(self.run.load(Relaxed), next)
    }

    /// The superblock of this run is durable: from now on no other one is accepted.
    pub fn set_run(&self, run: u64) -> io::Result<()> {
        self.write_head(run, 0)?;
        self.run.store(run, Relaxed);
        Ok(())
    }

    fn write_head(&self, run: u64, next: u64) -> io::Result<()> {
        self.log_file.file.write_all_at(&LogHead { blocks: self.blocks, run, next }.encode(), 0)
    }

    fn begin_ring(&self, store: StoreKind, incarnation: u64, highest: u64) -> io::Result<()> {
        let mut ring = self.ring(store);
        if self.is_closed.load(Relaxed) {
            return Ok(());
        }
        ring.begin(incarnation, highest);
        self.write(&ring.head(), ring.offset())
    }

    /// One store starts empty, in another life.
    pub fn restart_ring(&self, store: StoreKind, incarnation: u64) {
        if self.begin_ring(store, incarnation, 0).is_err() {
            self.invalidate(&self.ring(store));
        }
    }

    /// What the log holds of these lives, so that it can go on, if it belongs to this run. Who took the boundary back, or gave the small objects up, may have ended before their
    /// ring began again.
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
        // What the system could not write it has forgotten, and says so here.
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

    fn first_block(&self) -> io::Result<[u8; BLOCK]> {
        let mut block = [0; BLOCK];
        self.log_file.file.read_exact_at(&mut block, 0)?;
        Ok(block)
    }

    /// Writes what the file lacks and its front has.
    fn replay_wal_buffer(&self, run: u64) -> Result<(), Unreadable> {
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
        // Before anything goes to the file by another way: its entries must not come after that.
        self.log_file.apply(&writes).and_then(|()| self.name_wal_buffer(0)).map_err(|_| Unreadable::Damaged)?;
        wal_buffer.remove();
        Ok(())
    }

    /// A version of this hash with a lower order is gone.
    pub fn log_removal(&self, store: StoreKind, hash: FlashHash, order: u64) {
        self.append(store, Deletion::Key(hash), order);
    }

    /// Everything with a lower order is gone.
    pub fn log_flush(&self, store: StoreKind, order: u64) {
        self.append(store, Deletion::All, order);
    }

    fn append(&self, store: StoreKind, end: Deletion, order: u64) {
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

    /// It is at least this time.
    pub fn record_time(&self, latest: u32) {
        self.write_in_head(|| self.write_time(latest));
    }

    /// A flush is to come, or is over.
    pub fn flush_is_pending(&self, stalled_for: bool) {
        self.write_in_head(|| self.write_at(PENDING_FLUSH_SLOT, stalled_for.into()));
    }

    fn write_in_head(&self, write: impl FnOnce() -> io::Result<()>) {
        let open = self.ring(StoreKind::Small);
        if self.accepts_records() && write().is_err() {
            self.invalidate(&open);
        }
    }

    fn accepts_records(&self) -> bool {
        !self.is_broken.load(Relaxed) && !self.is_closed.load(Relaxed)
    }

    /// Writes nothing more, and lets others open the file: something may hold the log for longer. If the disk of the file does nothing, it stays locked until it does.
    pub fn close(&self) {
        let _rings = (self.ring(StoreKind::Small), self.ring(StoreKind::Large));
        self.is_closed.store(true, Relaxed);
        self.writer.close(MAX_CLOSE);
    }

    /// As a kill does: what the file lacks it does not get.
    #[cfg(test)]
    pub fn kill(&self) {
        let _rings = (self.ring(StoreKind::Small), self.ring(StoreKind::Large));
        self.is_closed.store(true, Relaxed);
        self.writer.kill();
    }

    fn write_time(&self, latest: u32) -> io::Result<()> {
        self.write_at(TIME_SLOTS[latest as usize % 2], latest)
    }

    fn write_at(&self, place: u64, number: u32) -> io::Result<()> {
        let mut bytes = [0; SLOT_BYTES];
        bytes[..8].copy_from_slice(&u64::from(number).to_le_bytes());
        let sum = XxHash3_64::oneshot_with_seed(self.incarnation.load(Relaxed), &bytes[..8]);
        bytes[8..].copy_from_slice(&sum.to_le_bytes());
        self.write(&bytes, place)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.writer.append(LogWrite::new(offset, bytes))? {
            return Ok(());
        }
        self.log_file.file.write_all_at(bytes, offset)?;
        if self.is_stopped.load(Relaxed) { self.log_file.file.sync_data() } else { Ok(()) }
    }

    /// Marks the log as one that does not have everything, before anyone leaves a record out because of it. Nobody closes it while one of its
    /// rings is held.
    fn invalidate(&self, _open: &MutexGuard<'_, RecordRing>) {
        let is_marked = self.is_broken.load(Acquire) || self.is_closed.load(Relaxed) || self.writer.invalidate();
        if !is_marked && !self.log_file.erase_run() {
            self.lacks_mark.store(true, Relaxed);
        }
        // Release: with the loads of `is_broken`, so that who sees it sees whether there is a mark.
        self.is_broken.store(true, Release);
    }

    /// As when a record cannot be written: no start is to read the log, whatever superblock it finds.
    pub fn abandon(&self) {
        self.invalidate(&self.ring(StoreKind::Small));
    }

    /// The same, with a file that takes no mark.
    #[cfg(test)]
    pub fn break_without_mark(&self) {
        self.lacks_mark.store(true, Relaxed);
        self.is_broken.store(true, Release);
    }

    /// Whether something could not be written.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Acquire) || self.writer.is_invalid()
    }

    /// Whether something could not be written, and the log could not be marked either: then the superblock must say so.
    pub fn lacks_mark(&self) -> bool {
        self.is_broken.load(Acquire) && self.lacks_mark.load(Relaxed)
    }

    /// How long the file has taken nothing though its front has something for it.
    pub fn stalled_for(&self) -> Duration {
        self.writer.stalled_for()
    }

    /// Makes durable what was written, and from then on whatever is appended. Says whether the log has everything.
    pub fn stop(&self) -> io::Result<bool> {
        // Who removes something does not wait for the most of it.
        let is_flushed = self.writer.flush_pending(MAX_DRAIN);
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
        // What could not be synced is told of once, and forgotten. As long as the file names its front, that can say so whatever becomes of the file.
        self.log_file.file.sync_all().inspect_err(|_| self.invalidate(&rings.0))?;
        let ended = self.name_wal_buffer(0).and_then(|()| self.log_file.file.sync_all());
        let wal_buffer = self.writer.take_wal_buffer();
        if let Err(error) = ended {
            // The file may name the front, or not: both are marked.
            wal_buffer.iter().for_each(|wal_buffer| drop(wal_buffer.invalidate()));
            self.invalidate(&rings.0);
            return Err(error);
        }
        wal_buffer.iter().for_each(WalBuffer::remove);
        Ok(!self.is_broken())
    }

    /// How many were written since it was opened.
    pub fn records(&self) -> u64 {
        self.records.load(Relaxed)
    }

    fn ring(&self, store: StoreKind) -> MutexGuard<'_, RecordRing> {
        self.rings[store as usize].lock().expect("no thread panics with a ring")
    }
}

/// The head of a log whose run is erased: no superblock goes with it.
fn invalid_head(blocks: u32) -> Vec<u8> {
    let mut head = LogHead { blocks, run: 0, next: 0 }.encode();
    head[MAGIC.len()..].fill(0);
    head.to_vec()
}

/// Which runs of the flash a log belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogHead {
    blocks: u32,
    run: u64,
    /// The run that a start goes on to, or 0.
    next: u64,
}

impl LogHead {
    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[12..16].copy_from_slice(&self.blocks.to_le_bytes());
        head[16..24].copy_from_slice(&self.run.to_le_bytes());
        head[24..32].copy_from_slice(&self.next.to_le_bytes());
        let sum = XxHash3_64::oneshot(&head[..HEAD_CHECKSUM]);
        head[HEAD_CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
        head
    }

    /// None for the head of no log, or of one of another version.
    fn decode(block: &[u8]) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        let blocks = u32::from_le_bytes(block[12..16].try_into().expect("four bytes"));
        let head = Self { blocks, run: word(16), next: word(24) };
        (block[..HEAD_BYTES] == head.encode()).then_some(head)
    }
}

/// The run whose front the file of a log names, 0 for none; None if it does not say.
fn named_wal_buffer(file: &File) -> Option<u64> {
    let mut bytes = [0; SLOT_BYTES];
    file.read_exact_at(&mut bytes, WAL_BUFFER_SLOT).ok()?;
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    (word(8) == XxHash3_64::oneshot(&bytes[..8])).then(|| word(0))
}

/// Bytes of a log whose rings have so many blocks.
fn bytes_of(blocks: u32) -> u64 {
    BLOCK as u64 * (1 + 2 * u64::from(blocks))
}

/// Whether a file has so many bytes at most, all of them zeros.
fn is_blank(file: &File, max: u64) -> io::Result<bool> {
    let bytes = file.metadata()?.len();
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < bytes && bytes <= max {
        let piece = &mut piece[..PIECE_BYTES.min((bytes - at) as usize)];
        file.read_exact_at(piece, at)?;
        if piece.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += piece.len() as u64;
    }
    Ok(bytes <= max)
}

fn decode_slot(bytes: &[u8], incarnation: u64) -> Option<u32> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let is_whole = word(8) == XxHash3_64::oneshot_with_seed(incarnation, &bytes[..8]);
    is_whole.then(|| u32::try_from(word(0)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
