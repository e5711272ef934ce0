//! Memory file: a cache in memory that survives a clean stop.
//!
//! After a clean stop the file holds values, flags, lives, CAS tokens, marks, frequencies and the policy's history of
//! evicted keys. There are two modes (see `file_system`) and one format (see `superblock`):
//!
//! ```text
//! mapped  start   open, lock -> superblock clean? -> map the frames, load the image -> superblock "in use", fsync
//!                 -> cut the image off, give back frames that no pool has -> serve
//!         stop    superblock "stopping" -> image behind the frames -> fsync -> superblock "clean" -> fsync -> mark
//!                 (see `modification_mark`); the mapping keeps the lock
//! saved   start   open, lock -> superblock clean? -> load the image, read the frames -> superblock "in use", truncate,
//!                 fsync -> serve
//!         stop    superblock "stopping" -> frames and image -> fsync -> superblock "clean" -> fsync -> unlock
//! ```
//! So the file holds the entries of the last run, or none that are valid. A stop that is cut short, a kill or a crash
//! leaves a file without a clean superblock: the next start is cold and says so. Until the superblock says "in use" no
//! byte of a clean file changes but those that announce a run of flash: a start that fails before leaves the file as it
//! was.
//!
//! A file alone cannot tell whether the cache has run without it since the stop. With flash it can: the superblock
//! names the last run of flash beside the file and the device, and says whether the cache has run with the file alone
//! since (`RunRecord`). Memory is not used where flash has run since, or does not tell. Flash is not used where memory
//! has run alone or beside another device since. A start that is cut short between the two leaves both warm:
//!
//! ```text
//! file: flash {old, new}, fsync -> flash: run new -> file: "in use", flash new, fsync -> serve
//! ```
//! While the file has two runs, memory is as new as flash of either: nothing was served in between. The numbers of runs
//! are drawn, so that a run of flash without the file has neither.

mod blocks;
mod bounded_file;
mod file_system;
mod modification_mark;
mod open;
mod pool_images;
mod superblock;

use crate::byte_size::ByteSize;
use crate::clock::{Clock, Elapsed, EngineClock};
use crate::compact_state::NewCompactPool;
use crate::error::Error;
use crate::flash::kept_tokens::TokenStart;
use crate::pool_plan::Plan;
use crate::pools::{MAX_POOLS, PlannedPool};
use blocks::{BlockReader, BlockWriter};
use bounded_file::BoundedFile;
use ebbtide_flash::{DeviceRuns, KeyRouting, LastRun};
use ebbtide_store::{
    CompactTable, EngineMemory, FRAME_BYTES, ImageError, KillPoint, Participant, Process, Store, kill_point,
};
pub use file_system::MemoryFileMode;
pub(crate) use open::check as check_memory_file;
pub use open::is_held as is_memory_file_held;
use open::{Opened, check_space, open, refused};
use pool_images::LoadedPools;
pub(crate) use pool_images::QuietPools;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use superblock::{BLOCK_BYTES, FRAMES_OFFSET, RunRecord, Superblock};

/// A wall clock that was set back by more than this makes lives a guess.
const SET_BACK_MAX: Duration = Duration::from_secs(600);

/// How a cache with a memory file began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryStart {
    /// With the contents that the last run left.
    Warm {
        objects: u64,
        /// Pools of the last run that are not configured any more, or as another kind or with other lengths: their
        /// contents are lost.
        dropped_pools: Vec<String>,
        /// Time between the stop and this start.
        stopped_for: Duration,
        /// Time that loading took.
        took: Duration,
        /// Whether the values were read and compared with their checksums. A mapped file without a write since the stop
        /// needs no such check.
        are_values_checked: bool,
        /// The version of the program that wrote the file.
        written_by: String,
    },
    /// Empty, for this reason.
    Cold { reason: String },
}

impl std::fmt::Display for MemoryStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Warm { objects, dropped_pools, stopped_for, took, are_values_checked, written_by } => {
                write!(f, "memory is warm: {objects} objects, stopped {stopped_for:.0?} ago, loaded in {took:.2?}")?;
                if *are_values_checked {
                    f.write_str(", all values checked")?;
                }
                if written_by != superblock::PROGRAM {
                    write!(f, ", written by version {written_by}")?;
                }
                match dropped_pools.is_empty() {
                    true => Ok(()),
                    false => {
                        write!(
                            f,
                            "; dropped, as no pool of this name and these lengths is configured: {}",
                            dropped_pools.join(", ")
                        )
                    }
                }
            }
            Self::Cold { reason } => write!(f, "memory starts empty: {reason}"),
        }
    }
}

/// Objects that a clean stop wrote.
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

/// The locked file of a cache that runs.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    path: PathBuf,
    pub mode: MemoryFileMode,
    file: Mutex<Option<File>>,
    pub start: MemoryStart,
    /// How long a stop writes it.
    save_limit: Duration,
    /// The record of this run, with the key routing of now.
    runs: Mutex<RunRecord>,
    /// The process that has locked the file.
    process: Process,
}

/// Memory of a new cache: for each pool a store from the file, or an empty one.
pub(crate) struct Memory {
    /// Address space for all pools.
    pub memory: EngineMemory,
    /// In the order of the plan, the pool `default` first.
    pub stores: Vec<Store>,
    /// Tables of compact pools in the order of the plan, those in the file.
    tables: Vec<Option<CompactTable>>,
    pub time: EngineClock,
    plan: Plan,
    /// The file as the last run left it.
    opened: Option<(Opened, MemoryStart)>,
    /// The file in use.
    file: Option<MemoryFile>,
    /// The record of the last run with the file.
    runs: RunRecord,
    /// The key routing of this run.
    key_routing: KeyRouting,
}

/// Parts of a new engine.
pub(crate) struct FinishedMemory {
    /// In the order of the plan, the pool `default` first.
    pub stores: Vec<Store>,
    pub compact: Vec<NewCompactPool>,
    pub time: EngineClock,
    pub file: Option<MemoryFile>,
}

/// Stores from the file, and their time.
struct Restored {
    stores: Vec<Store>,
    tables: Vec<Option<CompactTable>>,
    memory: EngineMemory,
    time: EngineClock,
    start: MemoryStart,
}

/// Address space for pools, in the file if that is mapped, and the empty stores of a plan in it.
fn empty(plan: &[PlannedPool], opened: Option<&Opened>) -> Result<(EngineMemory, Vec<Store>), Error> {
    let reserve = || {
        let memory_bytes = plan[0].options.effective_memory_bytes_max();
        let memory = match opened {
            Some(opened) => opened.reserve(memory_bytes, 0)?,
            None => EngineMemory::reserve(memory_bytes, MAX_POOLS)?,
        };
        let build = if plan.len() > 1 { Store::build } else { Store::build_alone };
        let stores = plan.iter().map(|pool| build(pool.options.clone(), &memory)).collect::<Result<_, _>>()?;
        Ok((memory, stores))
    };
    plan[0].options.validate().and_then(|()| reserve()).map_err(Error::from_store)
}

impl Memory {
    /// Opens and loads the memory file, where there is to be one, and makes the stores. The file stays as it is until
    /// `use_file`.
    ///
    /// # Errors
    /// Those of [`open`], a file system that is too small, and options that no store can have.
    pub fn begin(path: Option<&Path>, plan: Plan, clock: Clock, key_routing: KeyRouting) -> Result<Self, Error> {
        let opened = path.map(open).transpose()?;
        if let Some(opened) = &opened {
            let available = file_system::available_bytes(&opened.file);
            check_space(&opened.path, opened.mode, available, plan.memory_bytes())?;
        }
        let runs = opened.as_ref().map_or_else(RunRecord::default, |opened| superblock::runs(&opened.file));
        let restored = opened.as_ref().map(|opened| {
            let restored = opened.load(&plan, clock)?;
            Ok((restored, key_routing.after(runs.key_routing)?))
        });
        let (restored, reason) = match restored {
            Some(Ok(restored)) => (Some(restored), String::new()),
            Some(Err(reason)) => (None, reason),
            None => (None, String::new()),
        };
        if let Some((Restored { stores, tables, memory, time, start }, key_routing)) = restored {
            let opened = opened.map(|opened| (opened, start));
            return Ok(Self { memory, stores, tables, time, plan, opened, file: None, runs, key_routing });
        }
        let (memory, stores) = empty(&plan.stores, opened.as_ref())?;
        let opened = opened.map(|opened| (opened, MemoryStart::Cold { reason }));
        let (tables, time) = (Vec::new(), EngineClock::new(clock));
        Ok(Self { memory, stores, tables, time, plan, opened, file: None, runs, key_routing })
    }

    /// The store of the pool `default`.
    pub fn store(&self) -> &Store {
        &self.stores[0]
    }

    /// The stores of all pools, the pool `default` first.
    pub fn stores(&self) -> &[Store] {
        &self.stores
    }

    /// As [`Memory::stores`], before any thread uses them.
    pub fn stores_mut(&mut self) -> &mut [Store] {
        &mut self.stores
    }

    /// Which CAS tokens the stores resume: they are as the file has left them, or empty.
    pub fn token_start(&self) -> TokenStart {
        match self.file.as_ref().map(|file| &file.start) {
            None => TokenStart::Adopt,
            Some(MemoryStart::Warm { .. }) => TokenStart::Continue,
            Some(MemoryStart::Cold { .. }) => TokenStart::None,
        }
    }

    /// Compares memory with flash that is about to begin a run, which the file announces before flash has it. Returns
    /// the reason why flash must begin empty.
    pub fn compare_with_flash(&self, runs: DeviceRuns) -> Option<String> {
        if let (Some((opened, MemoryStart::Warm { .. })), true) = (&self.opened, self.runs.accepts(runs.last)) {
            // A file that refuses it is refused when it is taken. Until then only a kill makes memory older than flash.
            if superblock::announce_run(&opened.file, runs).is_ok() {
                kill_point(KillPoint::StartAnnounced);
            }
        }
        self.runs.outdates(runs).map(str::to_owned)
    }

    /// Makes the file this run's, beside flash that has started: from here on the stores may be changed. Memory that
    /// may be older than flash is dropped.
    ///
    /// # Errors
    /// As [`Opened::begin`].
    pub fn use_file_beside(&mut self, flash: DeviceRuns, save_limit: Duration) -> Result<(), Error> {
        if let (Some((opened, start @ MemoryStart::Warm { .. })), false) =
            (&mut self.opened, self.runs.accepts(flash.last))
        {
            let reason = match flash.last {
                LastRun::Unknown => "flash does not tell whether it has run without the memory file",
                LastRun::Absent | LastRun::Known(_) => "flash has run without the memory file since it was written",
            };
            *start = MemoryStart::Cold { reason: reason.to_owned() };
            self.key_routing = self.key_routing.finished();
            self.stores.clear();
            self.tables.clear();
            (self.memory, self.stores) = empty(&self.plan.stores, Some(opened))?;
        }
        self.use_file(Some(flash), save_limit)
    }

    fn use_file(&mut self, flash: Option<DeviceRuns>, save_limit: Duration) -> Result<(), Error> {
        if let Some((opened, start)) = self.opened.take() {
            let runs = self.runs.next(flash, self.key_routing);
            self.file = Some(opened.begin(start, (save_limit, runs), &self.memory)?);
        }
        Ok(())
    }

    /// All of it, with the file in use from here on.
    ///
    /// # Errors
    /// Those of [`Opened::begin`].
    pub fn finish(mut self, save_limit: Duration) -> Result<FinishedMemory, Error> {
        self.use_file(None, save_limit)?;
        let Self { stores, tables, time, plan, file, .. } = self;
        // A cold start has none.
        let tables = tables.into_iter().chain(std::iter::repeat_with(|| None));
        let compact = plan.compact.into_iter().zip(tables);
        let compact = compact.map(|((share, plan), table)| NewCompactPool { share, plan, table }).collect();
        Ok(FinishedMemory { stores, compact, time, file })
    }
}

impl Opened {
    /// Loads the contents that the last run left, or names the reason why there are none.
    fn load(&self, plan: &Plan, clock: Clock) -> Result<Restored, String> {
        let started = Instant::now();
        let superblock = Superblock::read(&self.file)?;
        let elapsed = superblock.stopped.until_now(SET_BACK_MAX).ok_or_else(|| {
            format!("the wall clock was set back by more than {SET_BACK_MAX:?} since the stop: lives would be a guess")
        })?;
        (&self.file)
            .seek(SeekFrom::Start(superblock.image_offset()))
            .map_err(|error| format!("it cannot be read: {error}"))?;
        let mut reader = BlockReader::new(&self.file, superblock.image_bytes);
        let read = |at: u64, bytes: &mut [u8]| self.file.read_exact_at(bytes, FRAMES_OFFSET + at);
        let read = (!self.mode.is_mapped()).then_some(read);
        let reserve = |memory_bytes| self.reserve(memory_bytes, superblock.frames);
        let are_unchanged = self.mode.is_mapped() && modification_mark::take(&self.file, &superblock);
        let loaded =
            pool_images::load(plan, &mut reader, reserve, (read, are_unchanged)).map_err(|error| match error {
                ImageError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    "it is damaged: it ends before what it is to hold".to_owned()
                }
                ImageError::Io(error) => format!("it is damaged: {error}"),
                ImageError::Foreign(reason) => reason,
                ImageError::Damaged(reason) => format!("it is damaged: {reason}"),
                ImageError::Store(error) => format!("what it holds cannot be brought to this memory: {error}"),
            });
        let LoadedPools { memory, stores, tables, objects, dropped } = loaded?;
        // Of a manual clock only its owner knows how long the stop was.
        let stopped_for = if clock == Clock::System { elapsed } else { Duration::ZERO };
        let time = EngineClock::resumed(clock, &superblock.time, stopped_for + started.elapsed());
        let start = MemoryStart::Warm {
            objects,
            dropped_pools: dropped,
            stopped_for,
            took: started.elapsed(),
            are_values_checked: !are_unchanged,
            written_by: superblock.program,
        };
        Ok(Restored { stores, tables, memory, time, start })
    }

    /// Address space for all pools, of at least `frames_min` frames: the frames of the file, if it is mapped.
    fn reserve(&self, memory_bytes: u64, frames_min: u32) -> Result<EngineMemory, ebbtide_store::Error> {
        let file = match self.mode.is_mapped() {
            true => Some((self.file.try_clone().map_err(|error| mapping_error(&error))?, FRAMES_OFFSET)),
            false => None,
        };
        EngineMemory::reserve_frames(memory_bytes, MAX_POOLS, frames_min, file)
    }

    /// Invalidates the file durably: from here on nothing that it held can be taken for the state of a stop.
    ///
    /// # Errors
    /// The file system's.
    fn begin(
        self,
        start: MemoryStart,
        (save_limit, runs): (Duration, RunRecord),
        memory: &EngineMemory,
    ) -> Result<MemoryFile, Error> {
        let Self { path, file, mode, made } = self;
        let image_offset = Superblock::read(&file).map_or(0, |superblock| superblock.image_offset());
        let invalidate = || {
            kill_point(KillPoint::StartLoaded);
            file.write_all_at(&superblock::in_use(runs), 0)?;
            kill_point(KillPoint::StartInUse);
            if !mode.is_mapped() {
                return file.set_len(BLOCK_BYTES).and_then(|()| file.sync_all());
            }
            file.sync_all()?;
            // Of a warm file the frames of pools stay: neither the image, nor frames of dropped pools behind them.
            let frames_end = match start {
                MemoryStart::Warm { .. } => {
                    image_offset.min(FRAMES_OFFSET + u64::from(memory.frames_end()) * FRAME_BYTES as u64)
                }
                MemoryStart::Cold { .. } => 0,
            };
            file.set_len(frames_end.max(BLOCK_BYTES))
        };
        invalidate().map_err(|error| refused(&path, format!("cannot be invalidated: {error}")))?;
        memory.use_file();
        if let Some(made) = made {
            made.keep();
        }
        Ok(MemoryFile {
            path,
            mode,
            file: Mutex::new(Some(file)),
            start,
            save_limit,
            runs: Mutex::new(runs),
            process: Process::this(),
        })
    }
}

fn mapping_error(error: &io::Error) -> ebbtide_store::Error {
    ebbtide_store::Error::Mapping { bytes: 0, reason: error.to_string() }
}

impl MemoryFile {
    /// Refuses memory that a mapped file has no space for.
    ///
    /// # Errors
    /// `Configuration` tells the space.
    pub fn check_space(&self, memory_bytes: u64) -> Result<(), Error> {
        let file = self.file.lock().expect("no holder of the lock panics");
        file.as_ref()
            .map_or(Ok(()), |file| check_space(&self.path, self.mode, file_system::available_bytes(file), memory_bytes))
    }

    /// The rules by which the caller divides keys among pools: a save keeps them for the next start.
    pub fn key_routing(&self) -> KeyRouting {
        self.runs().key_routing
    }

    pub fn set_key_routing(&self, key_routing: KeyRouting) {
        self.runs.lock().expect("no holder of the lock panics").key_routing = key_routing;
    }

    fn runs(&self) -> RunRecord {
        *self.runs.lock().expect("no holder of the lock panics")
    }

    /// Writes all pools, which no thread changes any more, and releases the file. `None` if that has happened already.
    /// A mapped file stays locked until the stores end: hits and handles read its bytes.
    ///
    /// # Errors
    /// The file system's. The file is not valid then, and the next start is cold.
    pub fn save(
        &self,
        pools: &QuietPools,
        (memory, participant): (&EngineMemory, &Participant),
        time: &EngineClock,
    ) -> Result<Option<MemorySaved>, Error> {
        let Some(file) = self.file.lock().expect("no holder of the lock panics").take() else { return Ok(None) };
        let started = Instant::now();
        memory.keep_file();
        let (now_ms, is_mapped) = (time.now_ms(), self.mode.is_mapped());
        let runs = self.runs();
        let mut superblock = Superblock {
            frames: memory.frames_end(),
            image_bytes: 0,
            runs,
            stopped: Elapsed::now(),
            time: time.saved(now_ms),
            program: superblock::PROGRAM.to_owned(),
        };
        let mut write = || {
            file.write_all_at(&superblock::stopping(runs), 0)?;
            kill_point(KillPoint::StopBegin);
            let mut start = &file;
            start.seek(SeekFrom::Start(superblock.image_offset()))?;
            let out = BoundedFile::new(&file, started + self.save_limit);
            let mut keep = |at: u64, bytes: &[u8]| match is_mapped {
                true => out.check_time(),
                false => out.write_all_at(bytes, FRAMES_OFFSET + at),
            };
            let mut writer = BlockWriter::new(&out);
            let saved = pool_images::save(pools, participant, now_ms, &mut writer, &mut keep)?;
            superblock.image_bytes = writer.finish()?;
            file.sync_data()?;
            // One moment: lives do not stand still while the image is written.
            (superblock.stopped, superblock.time) = (Elapsed::now(), time.saved(time.now_ms()));
            kill_point(KillPoint::StopImage);
            file.write_all_at(&superblock.encode(), 0)?;
            kill_point(KillPoint::StopClean);
            file.sync_all()?;
            if is_mapped {
                modification_mark::set(&file, &superblock);
            }
            Ok(MemorySaved { objects: saved.items, bytes: saved.bytes, took: started.elapsed() })
        };
        let written: io::Result<_> = write();
        let saved = written.map(Some).map_err(|error| {
            let is_late = error.kind() == io::ErrorKind::TimedOut;
            // Without a clean superblock the image is not used: whether this succeeds changes the reason only. The
            // frames of a mapped file have readers.
            let _ = file.set_len(if is_mapped { superblock.image_offset() } else { BLOCK_BYTES });
            let _ = file.write_all_at(&superblock::not_saved(runs, is_late), 0);
            let reason = match is_late {
                true => format!("that took more than {:?}, the time for the save", self.save_limit),
                false => error.to_string(),
            };
            refused(&self.path, format!("the memory could not be saved, and the next start is cold: {reason}"))
        });
        self.end(file);
        saved
    }

    /// Releases the file without a save: the next start is cold.
    pub fn give_up(&self, reason: &str) -> Error {
        self.file.lock().expect("no holder of the lock panics").take().into_iter().for_each(|file| self.end(file));
        refused(&self.path, format!("the memory was not saved, and the next start is cold: {reason}"))
    }

    /// Lets go of the file. A forked process has the descriptor, too: closing it would leave the lock there. A mapped
    /// file is unlocked with its mapping.
    fn end(&self, file: File) {
        if !self.mode.is_mapped() && self.process == Process::this() {
            // It does not fail for a locked file.
            let _ = flock(&file, FlockOperation::Unlock);
        }
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.get_mut().ok().and_then(Option::take) {
            self.end(file);
        }
    }
}

#[cfg(test)]
mod tests;
