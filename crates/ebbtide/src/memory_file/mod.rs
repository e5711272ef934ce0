//! Memory file: a cache in memory that survives a clean stop.
//!
//! At a clean stop the whole store goes to the file, at the next start it comes back: values, flags, lives, CAS tokens,
//! marks, frequencies and what the policy remembers of evicted keys. In between the file is empty and locked.
//!
//! ```text
//! start   open, lock -> superblock clean? -> load, checksum by checksum -> truncate, fsync -> serve
//! stop    image blocks -> fsync -> superblock "clean" -> fsync -> unlock
//! ```
//! So the file holds what the last run left, or nothing. A stop that is cut short, a kill or a crash leaves an empty
//! file or one without a superblock: the next start is cold and says so. A start trusts the owner of the file and not
//! its content: see [`open`].
//!
//! What no file can tell is whether the cache has run without it in the meantime. With flash it can: the superblock
//! has the number of flash's last run, and memory that is older than flash is not used.

mod blocks;
mod bounded_file;
mod pool_images;
mod superblock;

use crate::byte_size::ByteSize;
use crate::clock::{Clock, Elapsed, EngineClock};
use crate::error::Error;
use crate::pool_state::PoolState;
use crate::pools::{MAX_POOLS, PlannedPool};
use blocks::{BlockReader, BlockWriter};
use bounded_file::BoundedFile;
use ebbtide_store::{EngineMemory, ImageError, Participant, Store};
use pool_images::LoadedPools;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use superblock::{BLOCK_BYTES, Superblock};

/// How long a start waits for another process to let go of the file: a stop writes gigabytes.
const LOCK_WAIT: Duration = Duration::from_secs(30);
const LOCK_STEP: Duration = Duration::from_millis(50);
/// A wall clock that was set back by more than this makes lives a guess.
const SET_BACK_MAX: Duration = Duration::from_secs(600);

/// How a cache with a memory file began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryStart {
    /// With what the last run left.
    Warm {
        objects: u64,
        /// Pools of the last run that are not configured any more: what they held is gone.
        dropped_pools: Vec<String>,
        /// Time between the stop and this start.
        stopped_for: Duration,
        /// What loading took.
        took: Duration,
    },
    /// Empty, for this reason.
    Cold { reason: String },
}

impl std::fmt::Display for MemoryStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Warm { objects, dropped_pools, stopped_for, took } => {
                write!(f, "memory is warm: {objects} objects, stopped {stopped_for:.0?} ago, loaded in {took:.2?}")?;
                match dropped_pools.is_empty() {
                    true => Ok(()),
                    false => {
                        write!(f, "; dropped with their pools, which are not configured: {}", dropped_pools.join(", "))
                    }
                }
            }
            Self::Cold { reason } => write!(f, "memory starts empty: {reason}"),
        }
    }
}

/// What a clean stop wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySaved {
    pub objects: u64,
    pub bytes: u64,
    pub took: Duration,
}

impl std::fmt::Display for MemorySaved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { objects, bytes, took } = *self;
        write!(f, "{objects} objects and {} are in the memory file, in {took:.2?}", ByteSize::bytes(bytes))
    }
}

/// The file of a cache that runs, empty and locked.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    path: PathBuf,
    file: Mutex<Option<File>>,
    pub start: MemoryStart,
    /// How long a stop writes it.
    save_limit: Duration,
}

/// What a cache begins with: for each pool a store from the file, or an empty one.
pub(crate) struct Memory {
    /// Address space for all pools.
    pub memory: EngineMemory,
    /// In the order of the plan, the pool `default` first.
    pub stores: Vec<Store>,
    pub time: EngineClock,
    plan: Vec<PlannedPool>,
    file: Option<(Opened, MemoryStart)>,
    flash_run: u64,
}

/// Stores from the file, and their time.
struct Restored {
    stores: Vec<Store>,
    memory: EngineMemory,
    time: EngineClock,
    start: MemoryStart,
    /// The number of flash's run at the stop; 0 without flash.
    flash_run: u64,
}

/// Address space for pools, and the empty stores of a plan in it.
fn empty(plan: &[PlannedPool]) -> Result<(EngineMemory, Vec<Store>), Error> {
    let reserve = || {
        let memory = EngineMemory::reserve(plan[0].options.effective_memory_bytes_max(), MAX_POOLS)?;
        let build = if plan.len() > 1 { Store::build } else { Store::build_alone };
        let stores = plan.iter().map(|pool| build(pool.options.clone(), &memory)).collect::<Result<_, _>>()?;
        Ok((memory, stores))
    };
    plan[0].options.validate().and_then(|()| reserve()).map_err(Error::from_store)
}

impl Memory {
    /// Opens and loads the memory file, where there is to be one, and makes the stores.
    ///
    /// # Errors
    /// Those of [`open`], and options that no store can have.
    pub fn begin(path: Option<&Path>, plan: Vec<PlannedPool>, clock: Clock) -> Result<Self, Error> {
        let file = path.map(open).transpose()?;
        let restored = file.as_ref().map(|opened| opened.load(&plan, clock));
        let (restored, reason) = match restored {
            Some(Ok(restored)) => (Some(restored), String::new()),
            Some(Err(reason)) => (None, reason),
            None => (None, String::new()),
        };
        if let Some(Restored { stores, memory, time, start, flash_run }) = restored {
            return Ok(Self { memory, stores, time, plan, file: file.map(|opened| (opened, start)), flash_run });
        }
        let (memory, stores) = empty(&plan)?;
        let file = file.map(|opened| (opened, MemoryStart::Cold { reason }));
        Ok(Self { memory, stores, time: EngineClock::new(clock), plan, file, flash_run: 0 })
    }

    /// The store of the pool `default`.
    pub fn store(&self) -> &Store {
        &self.stores[0]
    }

    /// The stores of all pools, the pool `default` first.
    pub fn stores(&self) -> &[Store] {
        &self.stores
    }

    /// Memory that flash has gone on without is older than what flash has: it is given up. `resumed_run`: the run
    /// that left what flash began with.
    pub fn check_flash(&mut self, resumed_run: Option<u64>) -> Result<(), Error> {
        let Some((_, start @ MemoryStart::Warm { .. })) = &mut self.file else { return Ok(()) };
        if self.flash_run != 0 && resumed_run.is_some_and(|run| run != self.flash_run) {
            let reason = "flash has run without the memory file since it was written".to_owned();
            *start = MemoryStart::Cold { reason };
            self.stores.clear();
            (self.memory, self.stores) = empty(&self.plan)?;
        }
        Ok(())
    }

    /// Empties the file: the cache begins to serve.
    ///
    /// # Errors
    /// Those of [`Opened::begin`].
    pub fn finish(self, save_limit: Duration) -> Result<(Vec<Store>, EngineClock, Option<MemoryFile>), Error> {
        let file = self.file.map(|(opened, start)| opened.begin(start, save_limit)).transpose()?;
        Ok((self.stores, self.time, file))
    }
}

/// A file that is locked, before the store is there.
struct Opened {
    path: PathBuf,
    file: File,
}

fn refused(path: &Path, reason: impl Into<String>) -> Error {
    Error::Configuration { option: "memory_file", value: path.display().to_string(), reason: reason.into() }
}

/// Opens and locks a memory file, or makes it.
///
/// # Errors
/// A file that another user could have put there or could change is refused, and so is one that another process holds
/// for longer than half a minute. A refused file is left as it is.
fn open(path: &Path) -> Result<Opened, Error> {
    // NONBLOCK: a pipe would wait for its other end.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(flags.bits() as i32);
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => options.create_new(true).open(path),
        file => file,
    };
    let file = file.map_err(|error| {
        let reason = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::LOOP) => "it is a symbolic link; name the file itself".to_owned(),
            _ => format!("cannot be opened: {error}"),
        };
        refused(path, reason)
    })?;
    let metadata = file.metadata().map_err(|error| refused(path, format!("cannot be looked at: {error}")))?;
    let user = rustix::process::geteuid().as_raw();
    let reason = match () {
        () if !metadata.is_file() => "it is no regular file".to_owned(),
        () if metadata.nlink() != 1 => format!("it has {} names; a memory file has one", metadata.nlink()),
        () if metadata.uid() != user => {
            format!(
                "it belongs to user {}, this process is user {user}: remove it, or change its owner",
                metadata.uid()
            )
        }
        () if metadata.mode() & 0o022 != 0 => "others may write to it: chmod go-w".to_owned(),
        () => String::new(),
    };
    if !reason.is_empty() {
        return Err(refused(path, reason));
    }
    let deadline = Instant::now() + LOCK_WAIT;
    while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK && error != rustix::io::Errno::INTR {
            return Err(refused(path, format!("cannot be locked: {error}")));
        }
        if Instant::now() > deadline {
            return Err(refused(path, format!("another process has held it for {LOCK_WAIT:?}: stop that first")));
        }
        std::thread::sleep(LOCK_STEP);
    }
    if !superblock::is_ours(&file) {
        return Err(refused(
            path,
            "it holds something else, which would be lost: name another path, or remove the file",
        ));
    }
    Ok(Opened { path: path.to_owned(), file })
}

impl Opened {
    /// Loads what the last run left; or says why there is nothing.
    fn load(&self, plan: &[PlannedPool], clock: Clock) -> Result<Restored, String> {
        let started = Instant::now();
        let superblock = Superblock::read(&self.file)?;
        let elapsed = superblock.stopped.until_now(SET_BACK_MAX).ok_or_else(|| {
            format!("the wall clock was set back by more than {SET_BACK_MAX:?} since the stop: lives would be a guess")
        })?;
        (&self.file).seek(SeekFrom::Start(BLOCK_BYTES)).map_err(|error| format!("it cannot be read: {error}"))?;
        let mut reader = BlockReader::new(&self.file, superblock.image_bytes);
        let loaded = pool_images::load(plan, &mut reader).map_err(|error| match error {
            ImageError::Io(error) => format!("it is damaged: {error}"),
            ImageError::Foreign(reason) => reason,
            ImageError::Damaged(reason) => format!("it is damaged: {reason}"),
            ImageError::Store(error) => format!("what it holds cannot be brought to this memory: {error}"),
        });
        let LoadedPools { memory, stores, objects, dropped } = loaded?;
        // Of a manual clock only its owner knows how long the stop was.
        let stopped_for = if clock == Clock::System { elapsed } else { Duration::ZERO };
        let time = EngineClock::resumed(clock, &superblock.time, stopped_for + started.elapsed());
        let start = MemoryStart::Warm { objects, dropped_pools: dropped, stopped_for, took: started.elapsed() };
        Ok(Restored { stores, memory, time, start, flash_run: superblock.flash_run })
    }

    /// Empties the file durably: from here on nothing that it held can come back.
    ///
    /// # Errors
    /// The file system's.
    fn begin(self, start: MemoryStart, save_limit: Duration) -> Result<MemoryFile, Error> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.sync_all());
        emptied.map_err(|error| refused(&self.path, format!("cannot be emptied: {error}")))?;
        Ok(MemoryFile { path: self.path, file: Mutex::new(Some(self.file)), start, save_limit })
    }
}

impl MemoryFile {
    /// Writes the stores of all pools, the pool `default` first, which nobody changes any more, and lets go of the
    /// file. `None` if that has happened already.
    ///
    /// # Errors
    /// The file system's. The file is empty then, and the next start is cold.
    pub fn save(
        &self,
        pools: &[Arc<PoolState>],
        participant: &Participant,
        time: &EngineClock,
        flash_run: u64,
    ) -> Result<Option<MemorySaved>, Error> {
        let Some(file) = self.file.lock().expect("no holder of the lock panics").take() else { return Ok(None) };
        let started = Instant::now();
        let write = || {
            let mut start = &file;
            start.seek(SeekFrom::Start(BLOCK_BYTES))?;
            let mut writer = BlockWriter::new(BoundedFile::new(&file, started + self.save_limit));
            let now_ms = time.now_ms();
            let pools = pools.iter().map(|pool| (&*pool.name, &*pool.store));
            let saved = pool_images::save(pools, participant, now_ms, &mut writer)?;
            let image_bytes = writer.finish()?;
            file.sync_data()?;
            let superblock = Superblock { image_bytes, flash_run, stopped: Elapsed::now(), time: time.saved(now_ms) };
            file.write_all_at(&superblock.encode(), 0)?;
            file.sync_all()?;
            Ok(MemorySaved { objects: saved.items, bytes: saved.bytes, took: started.elapsed() })
        };
        write().map(Some).map_err(|error: io::Error| {
            let is_late = error.kind() == io::ErrorKind::TimedOut;
            // Without a superblock the image is not used: whether this succeeds changes the reason only.
            let _ = file.set_len(0);
            let _ = file.write_all_at(&superblock::not_saved(is_late), 0);
            let reason = match is_late {
                true => format!("that took more than the {:?} of --save-seconds", self.save_limit),
                false => error.to_string(),
            };
            refused(&self.path, format!("the memory could not be saved, and the next start is cold: {reason}"))
        })
    }

    /// Lets go of the file without a save: the next start is cold.
    pub fn give_up(&self, reason: &str) -> Error {
        drop(self.file.lock().expect("no holder of the lock panics").take());
        refused(&self.path, format!("the memory was not saved, and the next start is cold: {reason}"))
    }
}
