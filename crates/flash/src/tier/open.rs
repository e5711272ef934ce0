//! A start: with the objects on flash if their state is certain, or empty.
//!
//! ```text
//! superblock ---- none, or of another shape, too old a clock, or a damaged deletion log -----> empty
//!     | clean                             | running, in this boot of the machine                   ^
//!     v                                   v                                                        |
//! checkpoints ---damaged---> deletion log ---damaged, lost, another boot------------------------+
//!     |                                   | headers and footers of regions, all small objects' pages
//!     v                                   v
//!    warm                                warm
//! ```
//! The superblock on the device gets the state `running` before any other step. So a checkpoint is used only once, and
//! objects from before an empty start are never found again. Each start draws a run number and writes it in the order
//! of `deletion_log`: to the log's head beside the last run number, to the superblock, to the head alone.

mod resume;

use super::capacity_split::CapacitySplit;
use super::created_files::CreatedFiles;
use super::device_size::DeviceSize;
use super::layout::TierLayout;
use super::pool_names::TierPools;
use super::small_area::SmallArea;
use super::state::NONE_AWAITED;
use super::superblock::{DeviceRuns, LastRun, Partition, RunState, Superblock, boot, draw_run, random_id};
use super::token_section::PoolTokens;
use super::{STRIPES, Tier, TierOptions};
use crate::Error;
use crate::admission::Admission;
use crate::deletion_log::{self, DeletionLog, Incarnations, StoreKind};
use crate::device::{self, BLOCK, Device, Disk, OpenError, OpenedDisk};
use crate::large::LargeLog;
use crate::small::SmallStore;
use crate::{large, small};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

/// A ring of the deletion log takes one part in `RING_SHARE` of the capacity: enough for every object in a full log
/// of large objects of 2 KiB each. It is bounded, since a restart holds all of it in memory.
const RING_SHARE: u64 = 64;
const MIN_RING_BLOCKS: u64 = 16;
const MAX_RING_BLOCKS: u64 = 16 << 10;
const WITHOUT_LOG: &str = "after a crash flash will start empty";
/// Folder for WAL buffers: records there survive the process, but not a restart of the machine.
const MEMORY_FOLDER: &str = "/dev/shm";

/// An open device whose contents have not been read. If it is dropped before the start, the files that it created are
/// removed.
pub struct Opening {
    device: Arc<dyn Device>,
    shape: Partition,
    layout: TierLayout,
    admission: Admission,
    options: TierOptions,
    deletion_log: Option<PathBuf>,
    /// Folder for a WAL buffer of the deletion log.
    pub(super) wal_folder: Option<PathBuf>,
    /// Whether the log uses a WAL buffer.
    pub(super) uses_wal_buffer: bool,
    pub(super) boot: Option<u128>,
    notices: Vec<String>,
    created_files: CreatedFiles,
}

/// Both stores with their objects, and how the deletion log continues.
struct OpenedStores {
    large: Arc<LargeLog>,
    /// None while the capacity is not divided.
    small: Option<SmallStore>,
    incarnations: Incarnations,
    pools: TierPools,
    latest: u32,
    log: LogContinuation,
    /// Of a clean stop.
    tokens: Vec<PoolTokens>,
}

enum LogContinuation {
    /// Continues the log of the last run.
    Continue,
    /// As `Continue`, with the ring of small objects restarted: the small objects were dropped.
    ContinueLarge,
    /// Starts an empty log. After a crash, objects with orders lower than these are not found (small objects, large
    /// objects).
    Restart(u64, u64),
}

impl Tier {
    /// Opens files and block devices, each with its bytes. [`Opening::start`] reads their contents.
    ///
    /// # Errors
    ///
    /// As [`Disk::open`] and [`Tier::on`].
    pub fn open(paths: &[(PathBuf, u64)], options: &TierOptions) -> Result<Opening, Error> {
        Opening::of_paths(paths, options)
    }

    /// Opens a device of the caller, with an identity that distinguishes it from others. [`Opening::start`] reads its
    /// contents; after a crash objects are found only with a file for the deletion log.
    ///
    /// # Errors
    ///
    /// As [`Tier::on`].
    pub fn open_on(device: Arc<dyn Device>, identity: u64, options: &TierOptions) -> Result<Opening, Error> {
        Opening::of(device, identity, options.deletion_log.clone(), options)
    }

    /// An empty tier on any device. No restart finds its objects.
    ///
    /// # Errors
    ///
    /// [`Error::Options`] when the options are invalid, or the device is too small for them; [`Error::Memory`] when the
    /// memory is too small.
    pub fn on(device: Arc<dyn Device>, options: &TierOptions) -> Result<Arc<Self>, Error> {
        let options = TierOptions { warm_restart: false, ..options.clone() };
        let tier = Arc::new(Opening::of(device, 0, None, &options)?.volatile()?);
        tier.submit_superblock(&tier.superblock.lock().unwrap());
        Ok(tier)
    }
}

impl Opening {
    /// Opens files and block devices, each with its bytes.
    pub(super) fn of_paths(paths: &[(PathBuf, u64)], options: &TierOptions) -> Result<Self, Error> {
        let OpenedDisk { disk, notices, .. } = Disk::open(paths, &options.disk)?;
        let created_files = CreatedFiles::of(disk.created());
        let (identity, size) = (disk.identity(), DeviceSize::of_paths(paths, disk.capacity()));
        let deaf: Vec<_> = disk.paths_without_discards().filter(|_| options.discard).collect();
        let notices = notices.iter().chain(&deaf).map(ToString::to_string).collect();
        let opening = Self::sized(Arc::new(disk), size, identity, deletion_log_path(paths, options), options)?;
        // A caller that names a file for the log also chooses the disk that removals wait for.
        let uses_wal_buffer = options.deletion_log.is_none();
        Ok(Self { notices, created_files, wal_folder: Some(MEMORY_FOLDER.into()), uses_wal_buffer, ..opening })
    }

    pub(super) fn of(
        device: Arc<dyn Device>,
        identity: u64,
        deletion_log: Option<PathBuf>,
        options: &TierOptions,
    ) -> Result<Self, Error> {
        let size = DeviceSize::from(device.capacity());
        Self::sized(device, size, identity, deletion_log, options)
    }

    fn sized(
        device: Arc<dyn Device>,
        size: DeviceSize,
        identity: u64,
        deletion_log: Option<PathBuf>,
        options: &TierOptions,
    ) -> Result<Self, Error> {
        // The layout is checked first: the history of admission may be larger than the memory.
        let layout = TierLayout::new(size, options)?;
        let admission = Admission::new(options.admission, device.capacity(), random_id())?;
        Ok(Self {
            device,
            shape: Partition::of(identity, &layout),
            layout,
            admission,
            options: options.clone(),
            deletion_log,
            wal_folder: None,
            uses_wal_buffer: false,
            boot: boot(),
            notices: Vec::new(),
            created_files: CreatedFiles::default(),
        })
    }

    /// An empty tier that keeps nothing for another start. Does not wait for the device.
    pub(super) fn volatile(self) -> Result<Tier, Error> {
        let stores = self.empty(0)?;
        let superblock = self.running(&stores, draw_run());
        Ok(self.tier(stores, superblock, None))
    }

    fn running(&self, stores: &OpenedStores, run: u64) -> Superblock {
        let (incarnations, latest) = (stores.incarnations, stores.latest);
        let key_routing = self.options.key_routing;
        Superblock { shape: self.shape, incarnations, run, state: RunState::Running { boot: 0 }, latest, key_routing }
    }

    fn tier(self, stores: OpenedStores, superblock: Superblock, deletion_log: Option<DeletionLog>) -> Tier {
        let small = SmallArea::default();
        stores.small.into_iter().for_each(|store| small.set(store));
        let checkpoint = self.layout.checkpoint_and_table().map(|(checkpoint, _)| checkpoint);
        Tier {
            device: self.device,
            large: stores.large,
            small: Arc::new(small),
            admission: self.admission,
            superblock: Mutex::new(superblock),
            pools: stores.pools,
            checkpoint: checkpoint.filter(|_| self.options.warm_restart),
            deletion_log,
            last_run: LastRun::Absent,
            tokens: Mutex::new(stores.tokens),
            inserting: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            latest: AtomicU32::new(superblock.latest),
            observed: AtomicU32::new(0),
            maintained: AtomicU32::new(0),
            dropped_failed: AtomicU64::new(0),
            dropped_closed: AtomicU64::new(0),
            displaced: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            flush_is_pending: AtomicBool::new(false),
            is_unlogged: AtomicBool::new(false),
            superblock_bytes: AtomicU64::new(0),
            beyond_division: AtomicI64::new(0),
            awaited_beyond: AtomicI64::new(NONE_AWAITED),
            capacity_split: CapacitySplit::new(self.layout, &self.options),
        }
    }

    /// Bytes of RAM without an object.
    pub fn fixed_bytes(&self) -> u64 {
        self.layout.fixed_bytes(&self.options).expect("the layout was made with these options")
    }

    /// Must be served from before [`Opening::start`] until the tier is stopped, on [`Device::threads`] threads.
    pub fn device(&self) -> Arc<dyn Device> {
        Arc::clone(&self.device)
    }

    /// Returns the tier, with the objects on the device if their state is certain, or empty; and notices: which of the
    /// two and why, and every feature that does not work. `now` is in seconds since 1970. Waits for the device: after a
    /// clean stop for reading the checkpoint, about 1 % of the capacity at most; after a crash for two reads per
    /// region, and for all small objects, unless they are more than [`TierOptions::scan_bytes`].
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when another tier has the deletion log open; [`Error::Transfer`] and [`Error::Sync`] when
    /// the device refuses a write without which a later start might find removed objects.
    pub fn start(self, now: u32) -> Result<(Arc<Tier>, Vec<String>), Error> {
        self.start_beside(now, |_| None)
    }

    /// As [`Opening::start`], beside memory that survives a stop, too. `compare` gets the runs before the device has
    /// the present one, and returns the reason why flash must begin empty, whatever the device holds.
    ///
    /// # Errors
    /// As [`Opening::start`].
    pub fn start_beside(
        mut self,
        now: u32,
        compare: impl FnOnce(DeviceRuns) -> Option<String>,
    ) -> Result<(Arc<Tier>, Vec<String>), Error> {
        let deletion_log = self.open_deletion_log()?;
        let (last, before) = Superblock::read(&*self.device);
        let runs = DeviceRuns { device: self.shape.identity, last, present: draw_run() };
        let outdated = compare(runs);
        // Of flash that starts empty.
        let mut key_routing = self.options.key_routing;
        let resumed = match self.options.warm_restart {
            true => before
                .and_then(|before| outdated.map_or(Ok(before), Err))
                .and_then(|before| {
                    let routing = self.options.key_routing.after(before.key_routing)?;
                    self.resume(&before, deletion_log.as_ref(), now).inspect(|_| key_routing = routing)
                })
                .map_err(Some),
            false => Err(None),
        };
        let stores = match resumed {
            Ok(stores) => stores,
            Err(why) => {
                self.notices.extend(why.map(|why| format!("flash starts empty: {why}")));
                let stores = self.empty(now)?;
                stores.small.iter().try_for_each(SmallStore::erase_marks)?;
                stores
            }
        };
        let mut superblock = Superblock { key_routing, ..self.running(&stores, runs.present) };
        let deletion_log = deletion_log.filter(|log| self.announce(log, &stores.log, superblock.run));
        if let Some(boot) = self.boot.filter(|_| deletion_log.is_some()) {
            superblock.state = RunState::Running { boot };
        }
        self.write(&superblock)?;
        stores.pools.write(&*self.device)?;
        self.device.sync()?;
        let has_log = deletion_log.is_some();
        let deletion_log = deletion_log.filter(|log| self.continue_log(log, &stores.log, &superblock));
        if has_log && deletion_log.is_none() {
            // The log may still match this superblock, but gets no more records: no crash is recovered from.
            superblock.state = RunState::Running { boot: 0 };
            self.write(&superblock)?;
        }
        let notices = std::mem::take(&mut self.notices);
        self.created_files.disarm();
        let mut tier = self.tier(stores, superblock, deletion_log);
        tier.superblock_bytes = AtomicU64::new(BLOCK as u64);
        tier.last_run = last;
        let tier = Arc::new(tier);
        if tier.deletion_log.is_some() {
            let recorder = Arc::downgrade(&tier);
            tier.large.record_removals(move |hash, order| {
                recorder.upgrade().inspect(|tier| tier.log(StoreKind::Large, hash, order));
            });
        }
        Ok((tier, notices))
    }

    fn write(&self, superblock: &Superblock) -> Result<(), Error> {
        device::write(&*self.device, 0, superblock.encode())?;
        self.device.sync()
    }

    fn open_deletion_log(&mut self) -> Result<Option<DeletionLog>, Error> {
        if !self.options.warm_restart {
            return Ok(None);
        }
        let Some(path) = &self.deletion_log else {
            self.notices.push(format!("{WITHOUT_LOG}: name a file for its deletion log"));
            return Ok(None);
        };
        let blocks = (self.shape.capacity / RING_SHARE / BLOCK as u64).clamp(MIN_RING_BLOCKS, MAX_RING_BLOCKS);
        match DeletionLog::open(path, blocks as u32, self.wal_folder.as_deref()) {
            Ok(deletion_log) => {
                self.created_files.record_arrival(path, deletion_log.is_created());
                Ok(Some(deletion_log))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(Error::Refused { path: path.clone(), reason: OpenError::InUse })
            }
            Err(error) => {
                self.notices.push(format!("{WITHOUT_LOG}: its deletion log, {}: {error}", path.display()));
                Ok(None)
            }
        }
    }

    /// Makes a continued log accept the superblock of the next run, too. False if the log cannot be written.
    fn announce(&mut self, log: &DeletionLog, continues: &LogContinuation, run: u64) -> bool {
        let announced = if matches!(continues, LogContinuation::Restart(..)) { Ok(()) } else { log.announce_run(run) };
        self.accepts_records(announced)
    }

    /// Starts or continues the deletion log. The superblock on the device already accepts only this log.
    fn continue_log(&mut self, deletion_log: &DeletionLog, log: &LogContinuation, superblock: &Superblock) -> bool {
        let Superblock { incarnations, run, latest, .. } = *superblock;
        let started = match *log {
            LogContinuation::Continue => deletion_log.set_run(run),
            LogContinuation::ContinueLarge => {
                deletion_log.set_run(run).map(|()| deletion_log.restart_ring(StoreKind::Small, incarnations.small))
            }
            LogContinuation::Restart(small, large) => deletion_log.begin(incarnations, run, small, large, latest),
        };
        if !self.accepts_records(started) {
            // While its head has both run numbers, the log would match an old flash, too.
            deletion_log.abandon();
            return false;
        }
        let started = if self.uses_wal_buffer { deletion_log.begin_wal_buffer() } else { Ok(()) };
        if let (Err(error), Some(folder)) = (started, &self.wal_folder) {
            let path = folder.display();
            self.notices
                .push(format!("{path} takes no file: {error}; who removes something waits for the disk of its log"));
        }
        deletion_log.sweep_wal_buffers();
        true
    }

    fn accepts_records(&mut self, written: io::Result<()>) -> bool {
        let refused = |error| format!("{WITHOUT_LOG}: its deletion log cannot be written: {error}");
        self.notices.extend(written.as_ref().err().map(refused));
        written.is_ok()
    }

    fn empty(&self, now: u32) -> Result<OpenedStores, Error> {
        let incarnations = Incarnations { small: random_id(), large: random_id() };
        let pools = TierPools::new(incarnations.large, self.table_area());
        let (area, live) = (self.layout.large_area(), Arc::clone(&pools.live));
        let large = LargeLog::of_pools(self.device(), area, self.large_options(incarnations), live)?;
        let small = self.small_options(incarnations, &pools);
        let small = small.map(|options| self.empty_small(options)).transpose()?;
        let log = LogContinuation::Restart(0, 0);
        Ok(OpenedStores { large, small, incarnations, pools, latest: now, log, tokens: Vec::new() })
    }

    fn large_options(&self, incarnations: Incarnations) -> large::Options {
        large::Options { identity: incarnations.large, ..self.layout.large_options }
    }

    fn small_options(&self, incarnations: Incarnations, pools: &TierPools) -> Option<small::Options> {
        let (options, pools) = (self.layout.small_options.clone(), Arc::clone(&pools.live));
        options.map(|options| small::Options { salt: incarnations.small, pools, ..options })
    }

    /// Area of the table of pools; `None` if nothing is kept for another start.
    fn table_area(&self) -> Option<Range<u64>> {
        let (_, table) = self.layout.checkpoint_and_table()?;
        Some(table).filter(|_| self.options.warm_restart)
    }

    fn empty_small(&self, options: small::Options) -> Result<SmallStore, Error> {
        SmallStore::new(self.device(), self.layout.small_area(), options)
    }
}

/// Removes WAL buffers of killed servers whose deletion log or flash is gone. A start with flash does so, too.
/// Buffers that a running server or a later start may need are kept.
pub fn remove_stale_wal_buffers() {
    deletion_log::remove_stale(Path::new(MEMORY_FOLDER));
}

/// The file for the deletion log: the one in the options, or one beside the first path, if that is a file or does
/// not exist yet.
pub(super) fn deletion_log_path(paths: &[(PathBuf, u64)], options: &TierOptions) -> Option<PathBuf> {
    let is_file = |path: &Path| fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) || !path.exists();
    let beside = paths.first().map(|(path, _)| path).filter(|path| is_file(path));
    options.deletion_log.clone().or(beside.map(|path| DeletionLog::path_beside(path)))
}
