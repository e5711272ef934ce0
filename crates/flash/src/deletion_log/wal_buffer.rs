//! The WAL buffer: writes that the log's file does not have yet, in a file in memory. It accepts a record even while
//! the disk stalls, and it survives the process.
//!
//! ```text
//! file     0       8         16    24         32     40              48             56            58
//!          | magic | version | run | checksum | lost | folder device | folder inode | path length | path of log
//!          4096
//!          | entry | entry | ... 3640
//!
//! entry    0            8        16       24                 72
//!          | generation | offset | length | bytes, 48        | checksum | to 80
//! ```
//! Little-endian. Checksums are XXH3: the head's of the 24 bytes before it, an entry's of the 72 before it, with the
//! run and its place as the seed. The run is that of the log, and is in the name of the WAL buffer. An entry is a write
//! to the file of the log. Once the file has all of them, the next entry is written at the first position, with the
//! next generation. So the file may lack the entries up to the first one that is invalid or of another generation than
//! the first, in this order. To apply them again changes nothing. `lost` other than 0 marks the log as incomplete.
//!
//! A WAL buffer outlives its log when the flash of a killed server is deleted. Each start removes stale ones by
//! [`remove_stale`]: those that no process has locked, and whose log is missing in its folder, or names another WAL
//! buffer, or has no flash. The folder is identified by device and inode. If another folder has its path, as before a
//! mount or in another container, the state of the log is unknown, and the WAL buffer stays for a day.

use super::head::{SLOT_BYTES, named_wal_buffer, path_of_flash};
use crate::device::{self, BLOCK};
use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use twox_hash::XxHash3_64;

const MAGIC: [u8; 8] = *b"ebbtidef";
const VERSION: u64 = 2;
const RUN: usize = 16;
const CHECKSUM: usize = 24;
const INVALID_MARK: usize = 32;
const FOLDER: usize = 40;
const PATH_LENGTH: usize = 56;
const PATH: usize = 58;
/// Maximum bytes of a write.
pub(super) const MAX_WRITE: usize = 48;
const ENTRY: usize = 80;
const ENTRY_CHECKSUM: usize = 72;
/// Number of entries, a quarter of a MiB in all: more than the removals of a hundredth of a second.
pub(super) const ENTRIES: usize = 3640;
const BYTES: usize = BLOCK + (ENTRIES * ENTRY).next_multiple_of(BLOCK);
/// Age of the last write after which a WAL buffer counts as stale, if its log is missing.
const STALE_AGE: Duration = Duration::from_secs(24 * 60 * 60);
const PREFIX: &str = "ebbtide-";
/// Its name since the first version: a start finds, and removes, the files of killed servers by it.
const SUFFIX: &str = ".front";

const _: () = assert!(SLOT_BYTES <= MAX_WRITE);
const _: () = assert!(24 + MAX_WRITE == ENTRY_CHECKSUM && ENTRY_CHECKSUM + 8 == ENTRY && BYTES <= 300 << 10);

/// A write to the file of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogWrite {
    pub offset: u64,
    length: u8,
    bytes: [u8; MAX_WRITE],
}

impl LogWrite {
    pub fn new(offset: u64, bytes: &[u8]) -> Self {
        let mut write = Self { offset, length: bytes.len() as u8, bytes: [0; MAX_WRITE] };
        write.bytes[..bytes.len()].copy_from_slice(bytes);
        write
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    fn entry(&self, generation: u64, index: usize, run: u64) -> [u8; ENTRY] {
        let mut entry = [0; ENTRY];
        entry[..8].copy_from_slice(&generation.to_le_bytes());
        entry[8..16].copy_from_slice(&self.offset.to_le_bytes());
        entry[16..24].copy_from_slice(&u64::from(self.length).to_le_bytes());
        entry[24..ENTRY_CHECKSUM].copy_from_slice(&self.bytes);
        let sum = checksum(&entry[..ENTRY_CHECKSUM], run, index);
        entry[ENTRY_CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
        entry
    }

    /// The generation and the write of a valid entry.
    fn decode(entry: &[u8], index: usize, run: u64) -> Option<(u64, Self)> {
        let is_whole = word(entry, ENTRY_CHECKSUM) == checksum(&entry[..ENTRY_CHECKSUM], run, index);
        let length = is_whole.then(|| word(entry, 16)).filter(|&length| length <= MAX_WRITE as u64)?;
        Some((word(entry, 0), Self::new(word(entry, 8), &entry[24..][..length as usize])))
    }
}

pub(super) struct WalBuffer {
    file: File,
    path: PathBuf,
    run: u64,
}

impl WalBuffer {
    /// Creates a WAL buffer for the log at this path. `folder` must be in memory.
    pub fn create(folder: &Path, run: u64, log: &Path) -> io::Result<Self> {
        let path = path_of(folder, run);
        let file = options().create_new(true).mode(0o600).open(&path)?;
        let wal_buffer = Self { file, path, run };
        wal_buffer.begin(log).inspect_err(|_| wal_buffer.remove()).map(|()| wal_buffer)
    }

    fn begin(&self, log: &Path) -> io::Result<()> {
        device::lock(&self.file)?;
        // The space is reserved here, so later writes cannot fail for lack of memory.
        rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, BYTES as u64)?;
        let log = std::path::absolute(log)?;
        let (device, inode) = folder_of(&log)?;
        let path = log.as_os_str().as_bytes();
        let mut head = head(self.run).to_vec();
        head.resize(FOLDER, 0);
        head.extend_from_slice(&device.to_le_bytes());
        head.extend_from_slice(&inode.to_le_bytes());
        head.extend_from_slice(&u16::try_from(path.len()).map_err(io::Error::other)?.to_le_bytes());
        head.extend_from_slice(path);
        if head.len() > BLOCK {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        self.file.write_all_at(&head, 0)
    }

    /// Opens the WAL buffer of an earlier process.
    pub fn open(folder: &Path, run: u64) -> io::Result<Self> {
        let path = path_of(folder, run);
        let file = options().open(&path)?;
        device::lock(&file)?;
        let wal_buffer = Self { file, path, run };
        let mut found = [0; INVALID_MARK];
        wal_buffer.file.read_exact_at(&mut found, 0)?;
        let is_valid = found == head(run) && wal_buffer.file.metadata()?.len() == BYTES as u64;
        is_valid.then_some(wal_buffer).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The writes that the file of the log may lack; `None` if the log is marked as incomplete.
    pub fn writes(&self) -> io::Result<Option<Vec<LogWrite>>> {
        let mut bytes = vec![0; BYTES];
        self.file.read_exact_at(&mut bytes, 0)?;
        if word(&bytes, INVALID_MARK) != 0 {
            return Ok(None);
        }
        let entries = bytes[BLOCK..].chunks_exact(ENTRY).take(ENTRIES).enumerate();
        let mut whole = entries.map_while(|(index, entry)| LogWrite::decode(entry, index, self.run)).peekable();
        let first = whole.peek().map(|&(generation, _)| generation);
        Ok(Some(whole.take_while(|&(generation, _)| Some(generation) == first).map(|(_, write)| write).collect()))
    }

    pub fn append(&self, generation: u64, index: usize, write: &LogWrite) -> io::Result<()> {
        self.file.write_all_at(&write.entry(generation, index, self.run), (BLOCK + index * ENTRY) as u64)
    }

    /// Marks the log as incomplete.
    pub fn invalidate(&self) -> io::Result<()> {
        self.file.write_all_at(&[0xff; 8], INVALID_MARK as u64)
    }

    pub fn unlock(&self) {
        device::unlock(&self.file);
    }

    pub fn remove(&self) {
        // If this fails, a later start removes it.
        let _ = fs::remove_file(&self.path);
    }

    /// Whether no start needs it.
    fn is_stale(&self) -> bool {
        match self.log() {
            Some(LogState::Names(run)) => run != self.run,
            Some(LogState::Gone) => true,
            Some(LogState::Unreadable) => false,
            None => self.is_old(),
        }
    }

    fn is_old(&self) -> bool {
        let modified = self.file.metadata().and_then(|metadata| metadata.modified());
        modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > STALE_AGE))
    }

    /// The state of its log; `None` if the head is invalid, or the folder of the log is missing.
    fn log(&self) -> Option<LogState> {
        let mut block = [0; BLOCK];
        self.file.read_exact_at(&mut block, 0).ok()?;
        let length = usize::from(u16::from_le_bytes([block[PATH_LENGTH], block[PATH_LENGTH + 1]]));
        let path = block.get(PATH..PATH + length).filter(|_| block[..INVALID_MARK] == head(self.run))?;
        let path = Path::new(OsStr::from_bytes(path));
        if folder_of(path).ok()? != (word(&block, FOLDER), word(&block, FOLDER + 8)) {
            return None;
        }
        let is_gone =
            |path: &Path| fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if is_gone(path) || path_of_flash(path).is_some_and(|flash| is_gone(&flash)) {
            return Some(LogState::Gone);
        }
        let log = path.is_file().then(|| options().write(false).open(path).ok()).flatten()?;
        Some(named_wal_buffer(&log).map_or(LogState::Unreadable, LogState::Names))
    }

    /// Whether its path still names this file.
    fn is_in_place(&self) -> bool {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino(), metadata.is_file());
        let here = self.file.metadata().map(identity);
        matches!((here, fs::symlink_metadata(&self.path).map(identity)), (Ok(here), Ok(there)) if here == there && here.2)
    }
}

/// The state of the log of a WAL buffer.
enum LogState {
    /// The log names the WAL buffer of this run, 0 for none.
    Names(u64),
    /// The log, or the flash beside it, is missing.
    Gone,
    Unreadable,
}

/// Removes stale WAL buffers that no process has open.
pub(crate) fn remove_stale(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let run = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
        let Some(run) = run.and_then(|digits| u64::from_str_radix(digits, 16).ok()) else { continue };
        // The lock is held until the file is removed: a server that uses the file holds the lock, and a start that
        // needs it waits for the lock.
        if let Ok(wal_buffer) = open_unlocked(folder, run)
            && wal_buffer.is_in_place()
            && wal_buffer.is_stale()
        {
            wal_buffer.remove();
        }
    }
}

/// Opens a file with the name of a WAL buffer, if no process has it open.
fn open_unlocked(folder: &Path, run: u64) -> io::Result<WalBuffer> {
    let path = path_of(folder, run);
    let file = options().open(&path)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    Ok(WalBuffer { file, path, run })
}

/// Device and inode of the folder of a file.
fn folder_of(path: &Path) -> io::Result<(u64, u64)> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidFilename)?;
    fs::metadata(folder).map(|metadata| (metadata.dev(), metadata.ino()))
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    // The open must not wait, whatever kind of file has this name.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    options.read(true).write(true).custom_flags(flags.bits() as i32);
    options
}

fn path_of(folder: &Path, run: u64) -> PathBuf {
    folder.join(format!("{PREFIX}{run:016x}{SUFFIX}"))
}

fn head(run: u64) -> [u8; INVALID_MARK] {
    let mut head = [0; INVALID_MARK];
    head[..8].copy_from_slice(&MAGIC);
    head[8..16].copy_from_slice(&VERSION.to_le_bytes());
    head[RUN..CHECKSUM].copy_from_slice(&run.to_le_bytes());
    let sum = XxHash3_64::oneshot(&head[..CHECKSUM]);
    head[CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
    head
}

fn checksum(bytes: &[u8], run: u64, index: usize) -> u64 {
    XxHash3_64::oneshot_with_seed(run ^ index as u64, bytes)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
