//! One path of a device: a file, or a block device.
//!
//! ```text
//! open: check the size, open, lock, look at what it holds       changes nothing
//! prepare: reserve the space, turn direct I/O on                 only after every path was opened
//! ```
//! The lock (`flock`, and for block devices an exclusive open) lasts as long as the part.

use super::fiemap::{self, UnwrittenRanges};
use super::label::{DATA_START, LabelState};
use super::open_error::{Notice, OpenError};
use super::stripes::STRIPE;
use super::{BLOCK, Buffer};
use rustix::fs::{Access, FallocateFlags, FlockOperation, OFlags, SeekFrom, StatVfs};
use rustix::io::Errno;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Minimum bytes of one of several paths: its label, a stripe, and some data.
pub const MIN_STRIPED_PATH_BYTES: u64 = 32 << 20;
/// Minimum bytes of a single path: its label, and space for both stores.
pub const MIN_SINGLE_PATH_BYTES: u64 = 4 << 20;
/// Bytes at the start of a block device that must be zeros for it to count as empty: labels, partition tables and
/// superblocks are there.
const ERASED: usize = 1 << 20;
/// Filesystems of the kernel's own, as statfs(2) numbers them: proc, sysfs, cgroup, cgroup2, debugfs, tracefs,
/// configfs, securityfs, devpts, bpf.
const VOLATILE_FILESYSTEMS: [u64; 10] = [
    0x9fa0,
    0x6265_6572,
    0x27_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x6265_6570,
    0x7363_6673,
    0x1cd1,
    0xcafe_4a11,
];
/// Maximum wait for a lock: the kernel releases the ring of a process, and its open files, a moment after the process
/// has ended, and an immediate restart must not be refused for that.
const MAX_LOCK: Duration = Duration::from_secs(2);
const LOCK_STEP: Duration = Duration::from_millis(10);

const _: () = assert!(MIN_STRIPED_PATH_BYTES > DATA_START + STRIPE);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathKind {
    File,
    BlockDevice,
}

pub(super) struct DevicePath {
    pub path: PathBuf,
    pub file: File,
    pub kind: PathKind,
    /// Whole blocks.
    pub bytes: u64,
    /// `None` if the path is empty.
    pub found: Option<LabelState>,
    is_created: bool,
}

/// The space of its filesystem that a file needs.
pub(super) struct FreeSpace {
    pub filesystem: u64,
    pub needed: u64,
    pub free: u64,
}

impl DevicePath {
    /// Opens and locks a path, and reads its label. A missing file is created.
    pub fn open(path: &Path, bytes: u64, is_alone: bool) -> Result<Self, OpenError> {
        check_size(bytes, is_alone)?;
        let kind = kind_of(path)?;
        let (file, is_created) = open_file(path, kind)?;
        // After an error from here on, a created file is removed.
        let bytes = whole_blocks(bytes);
        let mut part = Self { path: path.to_owned(), file, kind, bytes, found: None, is_created };
        let looked = part.lock().and_then(|()| part.look());
        match looked {
            Ok(found) => part.found = found,
            Err(open_error) => {
                part.abandon();
                return Err(open_error);
            }
        }
        Ok(part)
    }

    /// Whether [`DevicePath::open`] would open a path of a good size, without changing anything: an existing file is
    /// locked for a moment. Returns the space that a file would need.
    pub fn check(path: &Path, bytes: u64) -> Result<Option<FreeSpace>, OpenError> {
        let (kind, bytes) = (kind_of(path)?, whole_blocks(bytes));
        let Some(file) = open_present(path, kind)? else {
            return free_space_in(folder_of(path), bytes).map(Some);
        };
        let part = Self { path: path.to_owned(), file, kind, bytes, found: None, is_created: false };
        part.lock()?;
        match part.look()? {
            Some(LabelState::Foreign) => Err(OpenError::Foreign),
            _ if kind == PathKind::File => {
                let (metadata, needed) = part.missing()?;
                Ok(Some(FreeSpace { filesystem: metadata.dev(), needed, free: part.free()? }))
            }
            _ => Ok(None),
        }
    }

    pub fn is_created(&self) -> bool {
        self.is_created
    }

    /// Removes the file if it was created.
    pub fn abandon(&self) {
        if self.is_created {
            let _ = fs::remove_file(&self.path);
        }
    }

    fn lock(&self) -> Result<(), OpenError> {
        lock(&self.file).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => OpenError::InUse,
            _ => OpenError::failed("locking")(error),
        })
    }

    /// The label of the path; `None` if it is empty.
    fn look(&self) -> Result<Option<LabelState>, OpenError> {
        self.check_storage()?;
        let has = rustix::fs::seek(&self.file, SeekFrom::End(0)).map_err(OpenError::failed("asking for the size"))?;
        if self.kind == PathKind::BlockDevice && self.bytes > has {
            return Err(OpenError::TooLarge { bytes: self.bytes, has });
        }
        if has == 0 || self.is_erased().map_err(OpenError::failed("reading"))? {
            return Ok(None);
        }
        if has < BLOCK as u64 {
            return Ok(Some(LabelState::Foreign));
        }
        let mut block = Buffer::zeroed(BLOCK);
        self.file.read_exact_at(&mut block, 0).map_err(OpenError::failed("reading"))?;
        Ok(Some(LabelState::in_block(&block)))
    }

    /// Whether it holds only zeros: the whole file, without reading its holes, or the start of a block device.
    fn is_erased(&self) -> io::Result<bool> {
        let mut piece = Buffer::zeroed(ERASED);
        if self.kind == PathKind::BlockDevice {
            self.file.read_exact_at(&mut piece, 0)?;
            return Ok(piece.iter().all(|&byte| byte == 0));
        }
        let mut at = 0;
        loop {
            match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) => at = data,
                Err(Errno::NXIO) => return Ok(true),
                // The filesystem does not support holes.
                Err(Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
            let bytes = self.file.read_at(&mut piece, at)?;
            if bytes == 0 || piece[..bytes].iter().any(|&byte| byte != 0) {
                return Ok(bytes == 0);
            }
            at += bytes as u64;
        }
    }

    /// Checks whether writes are stored, without writing: a file of the kernel (as in /proc) may open and accept a
    /// size, and store nothing.
    fn check_storage(&self) -> Result<(), OpenError> {
        if self.kind == PathKind::BlockDevice {
            return Ok(());
        }
        let filesystem = rustix::fs::fstatfs(&self.file).map_err(OpenError::failed("asking for the filesystem"))?;
        if stores_nothing(filesystem.f_type as u64) {
            return Err(OpenError::NoStorage);
        }
        // An empty write changes nothing, and fails if no write is possible.
        rustix::io::pwrite(&self.file, &[], 0).map(drop).map_err(OpenError::failed("writing"))
    }

    /// Reserves its space, and turns on direct I/O.
    pub fn prepare(&self, notices: &mut Vec<Notice>) -> Result<(), OpenError> {
        if self.kind == PathKind::File && !self.reserve()? {
            notices.push(Notice::NotReserved { path: self.path.clone() });
        }
        self.disable_access_time();
        if let Err(reason) = self.make_direct() {
            notices.push(Notice::NotDirect { path: self.path.clone(), reason });
        }
        Ok(())
    }

    /// Sets the size of a file and reserves its space. False if the filesystem cannot reserve space.
    fn reserve(&self) -> Result<bool, OpenError> {
        let (metadata, needed) = self.check_free_space()?;
        if metadata.len() > self.bytes {
            self.file.set_len(self.bytes).map_err(OpenError::failed("shrinking"))?;
        }
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, self.bytes) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) => {
                    self.file.set_len(self.bytes).map_err(OpenError::failed("growing"))?;
                    return Ok(false);
                }
                Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {
                    // The space reserved so far is released.
                    let _ = self.file.set_len(metadata.len());
                    return Err(OpenError::Full { needed, free: self.free()? });
                }
                Err(error) => return Err(OpenError::failed("reserving space")(error)),
            }
        }
    }

    /// The metadata of a file, and the bytes that are still to be reserved.
    fn check_free_space(&self) -> Result<(Metadata, u64), OpenError> {
        let (metadata, needed) = self.missing()?;
        let free = self.free()?;
        if needed > free {
            return Err(OpenError::Full { needed, free });
        }
        Ok((metadata, needed))
    }

    fn missing(&self) -> Result<(Metadata, u64), OpenError> {
        let metadata = self.file.metadata().map_err(OpenError::failed("asking for the size"))?;
        let needed = self.bytes.saturating_sub(metadata.blocks() * 512);
        Ok((metadata, needed))
    }

    fn free(&self) -> Result<u64, OpenError> {
        rustix::fs::fstatvfs(&self.file)
            .map(|filesystem| free_of(&filesystem))
            .map_err(OpenError::failed("asking for free space"))
    }

    /// Turns off updates of the access time, for which reads would wait for the filesystem. Only the owner of the file
    /// may; for others it stays on.
    fn disable_access_time(&self) {
        if let Ok(flags) = rustix::fs::fcntl_getfl(&self.file) {
            let _ = rustix::fs::fcntl_setfl(&self.file, flags | OFlags::NOATIME);
        }
    }

    /// Turns on direct I/O, if this path supports it with our blocks.
    fn make_direct(&self) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&self.file)?;
        rustix::fs::fcntl_setfl(&self.file, flags | OFlags::DIRECT)?;
        let mut block = Buffer::zeroed(BLOCK);
        if let Err(error) = self.file.read_exact_at(&mut block, DATA_START) {
            rustix::fs::fcntl_setfl(&self.file, flags)?;
            return Err(error);
        }
        Ok(())
    }

    /// The bytes in this range that are reserved but unwritten. Only for a file with direct I/O: otherwise the page
    /// cache may hold writes.
    pub fn reserved(&self, bytes: Range<u64>) -> Option<UnwrittenRanges> {
        let is_direct = || rustix::fs::fcntl_getfl(&self.file).is_ok_and(|flags| flags.contains(OFlags::DIRECT));
        (self.kind == PathKind::File && is_direct()).then(|| fiemap::reserved(&self.file, bytes))?
    }

    /// Whether it takes discards. A file does not: it would lose its space. A block device that does not report it
    /// does, until it refuses one.
    pub fn takes_discards(&self) -> bool {
        self.kind == PathKind::BlockDevice && self.max_discard_bytes() != Some(0)
    }

    /// The number of the block device that it is, or that its filesystem is on.
    pub fn device_number(&self) -> Option<u64> {
        let metadata = self.file.metadata().ok()?;
        Some(match self.kind {
            PathKind::BlockDevice => metadata.rdev(),
            PathKind::File => metadata.dev(),
        })
    }

    /// The discard limit of a block device, or of the one that it is a part of.
    fn max_discard_bytes(&self) -> Option<u64> {
        let number = self.device_number()?;
        let device = format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        let queue = |at: &str| fs::read_to_string(format!("{device}{at}/queue/discard_max_bytes")).ok();
        queue("").or_else(|| queue("/..")).and_then(|bytes| bytes.trim().parse().ok())
    }

    pub fn write_label(&self, block: &[u8]) -> Result<(), OpenError> {
        self.file.write_all_at(block, 0).map_err(OpenError::failed("writing the label"))?;
        self.file.sync_data().map_err(OpenError::failed("writing the label"))
    }
}

/// Locks a file for as long as it is open, or until [`unlock`]. `WouldBlock` if another process keeps it locked for
/// `MAX_LOCK`.
pub(crate) fn lock(file: &File) -> io::Result<()> {
    let deadline = Instant::now() + MAX_LOCK;
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => thread::sleep(LOCK_STEP),
            locked => return Ok(locked?),
        }
    }
}

pub(crate) fn unlock(file: &File) {
    // It does not fail for a locked file.
    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
}

pub(super) fn check_size(bytes: u64, is_alone: bool) -> Result<(), OpenError> {
    let min = if is_alone { MIN_SINGLE_PATH_BYTES } else { MIN_STRIPED_PATH_BYTES };
    if bytes < min { Err(OpenError::TooSmall { bytes, min }) } else { Ok(()) }
}

/// The usable bytes of this number: whole blocks.
pub(super) fn whole_blocks(bytes: u64) -> u64 {
    bytes / BLOCK as u64 * BLOCK as u64
}

pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// The space that a new file of `bytes` needs in a folder, if it can be created.
fn free_space_in(folder: &Path, bytes: u64) -> Result<FreeSpace, OpenError> {
    check_folder(folder)?;
    rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| open_error_of(error.into()))?;
    let filesystem = rustix::fs::statvfs(folder).map_err(OpenError::failed("asking for free space"))?;
    let metadata = fs::metadata(folder).map_err(open_error_of)?;
    Ok(FreeSpace { filesystem: metadata.dev(), needed: bytes, free: free_of(&filesystem) })
}

/// Whether a new file in a folder could store data: filesystems of the kernel seem to let root create files.
fn check_folder(folder: &Path) -> Result<(), OpenError> {
    let filesystem = rustix::fs::statfs(folder).map_err(|error| open_error_of(error.into()))?;
    if stores_nothing(filesystem.f_type as u64) { Err(OpenError::NoStorage) } else { Ok(()) }
}

/// Whether a filesystem of this kind, as statfs(2) numbers them, keeps no files of users.
pub fn stores_nothing(kind: u64) -> bool {
    VOLATILE_FILESYSTEMS.contains(&kind)
}

fn free_of(filesystem: &StatVfs) -> u64 {
    // A filesystem without a size limit, as one in memory can be, reports 0 blocks.
    match filesystem.f_blocks {
        0 => u64::MAX,
        _ => filesystem.f_bavail * filesystem.f_frsize,
    }
}

/// The kind of a path; a missing one counts as a file.
pub(super) fn kind_of(path: &Path) -> Result<PathKind, OpenError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(OpenError::IsDirectory),
        Ok(metadata) if metadata.file_type().is_block_device() => Ok(PathKind::BlockDevice),
        Ok(metadata) if metadata.is_file() => Ok(PathKind::File),
        Ok(_) => Err(OpenError::OtherKind),
        Err(error) if error.kind() == ErrorKind::NotFound => match fs::read_link(path) {
            Ok(target) => Err(OpenError::Dangling { target }),
            Err(_) => Ok(PathKind::File),
        },
        Err(error) => Err(open_error_of(error)),
    }
}

/// The file, and whether it was created.
fn open_file(path: &Path, kind: PathKind) -> Result<(File, bool), OpenError> {
    if let Some(file) = open_present(path, kind)? {
        return Ok((file, false));
    }
    check_folder(folder_of(path))?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    options.open(path).map(|file| (file, true)).map_err(open_error_of)
}

/// The existing file; `None` if there is none.
fn open_present(path: &Path, kind: PathKind) -> Result<Option<File>, OpenError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if kind == PathKind::BlockDevice {
        // Without O_CREAT, this fails if the device is mounted, or a part of another one.
        options.custom_flags(OFlags::EXCL.bits() as i32);
    }
    let deadline = Instant::now() + MAX_LOCK;
    loop {
        match options.open(path) {
            Ok(file) => return Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline => {
                thread::sleep(LOCK_STEP)
            }
            Err(error) => return Err(open_error_of(error)),
        }
    }
}

fn open_error_of(error: io::Error) -> OpenError {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => OpenError::NoDirectory,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => OpenError::NotWritable(error),
        ErrorKind::ResourceBusy | ErrorKind::ExecutableFileBusy => OpenError::InUse,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => OpenError::Full { needed: BLOCK as u64, free: 0 },
        _ => OpenError::Failed { operation: "opening", source: error },
    }
}
