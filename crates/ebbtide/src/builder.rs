//! Options of a cache, and how an engine is built from them.

use crate::byte_size::ByteSize;
use crate::clock::Clock;
use crate::engine::{Engine, NewPool};
use crate::error::Error;
use crate::flash::memory_split::{self, MemorySplit, TOKENS_SHARE};
use crate::flash::pool_flash::PoolFlash;
use crate::flash::promotion::{self, FlashPromotion};
use crate::flash::threads::{FlashThreads, start_tier};
use crate::flash::tier::{FlashTier, FlashWaits};
use crate::live_profiles::LiveProfiles;
use crate::maintenance;
use crate::memory_file::{FinishedMemory, Memory, MemoryFileMode, check_memory_file};
use crate::memory_monitor::{MemoryMonitor, PressureOptions};
use crate::pool_budgets::PoolEntry;
use crate::pool_controller::{ControllerMode, ControllerOptions, PoolController};
use crate::pool_options::PoolOptions;
use crate::pools::{self, Plan};
use crate::profile_thread;
use crate::removal_events::{EvictionListener, RemovalEvents};
use ebbtide_flash::device::Device;
use ebbtide_flash::{KeyRouting, Opening, Tier, TierOptions as FlashOptions};
use ebbtide_store::{MEMORY_BYTES_MIN, Objective, Options, Policy, Progress};
use std::fmt::{Debug, Formatter};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The part of the memory for the buffers and indexes of flash, without the state of admission: an eighth, or more
/// where that is too little.
const FLASH_MEMORY_SHARES: [u64; 3] = [8, 4, 2];

/// Sizes that an error about too little memory tries, each an eighth above the one before: to 64 GiB from the smallest.
const MAX_TRIED_SIZES: usize = 112;

/// The identity of a caller's device: the caller knows which data is on it.
const DEVICE_IDENTITY: u64 = 0;

/// How long a stop writes the memory file. A service manager commonly waits 90 s for a stop.
#[derive(Clone, Copy, Debug)]
struct SaveLimit(Duration);

impl Default for SaveLimit {
    fn default() -> Self {
        Self(Duration::from_secs(60))
    }
}

/// The eviction listener, if there is one.
#[derive(Clone, Default)]
struct ListenerOption(Option<EvictionListener>);

impl Debug for ListenerOption {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Some" } else { "None" })
    }
}

/// Memory of flash, by [`CacheBuilder::check_flash`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashMemory {
    /// While flash is empty: buffers, filters, and the spare of an index.
    pub at_start: ByteSize,
    /// Bound to which the indexes grow before any object is evicted for want of memory. Past it they take up to a
    /// quarter of the memory.
    pub planned: ByteSize,
    /// Share of the planned bytes for buffers and indexes, without the state of admission and promotion.
    share_bytes: u64,
}

/// Options of a cache; see `Cache::builder`.
#[derive(Clone, Debug, Default)]
pub struct CacheBuilder {
    options: Options,
    max_value: Option<u64>,
    clock: Clock,
    seed: Option<u64>,
    flash: Vec<(PathBuf, u64)>,
    flash_device: Option<Arc<dyn Device>>,
    flash_options: FlashOptions,
    flash_promotion: FlashPromotion,
    flash_waits: FlashWaits,
    flash_max_idle: Option<u32>,
    pools: Vec<PoolOptions>,
    pub(crate) key_routing: KeyRouting,
    memory_file: Option<PathBuf>,
    save_limit: SaveLimit,
    memory_monitor: Option<PressureOptions>,
    eviction_listener: ListenerOption,
    controller: Option<ControllerMode>,
    controller_policies: Vec<Policy>,
    profiles_accesses: bool,
}

impl CacheBuilder {
    /// All the memory that the cache may use: items, index, headers and spares. Default 64 MiB.
    pub fn memory(mut self, memory: ByteSize) -> Self {
        self.options.memory_bytes = memory.as_bytes();
        self
    }

    /// The most memory that `Cache::resize` accepts. Default: four times the memory, or the machine's if that is more.
    pub fn memory_ceiling(mut self, memory: ByteSize) -> Self {
        self.options.memory_bytes_max = Some(memory.as_bytes());
        self
    }

    /// A file to which `Cache::close` writes all entries, and from which the next cache with the same file starts. It
    /// is created if absent, locked while the cache lives, and emptied at the start; so after a crash the next start is
    /// cold (`Cache::memory_start`). The layout of the file wins over the options: segment size and seed are the
    /// file's, and the memory is resized.
    pub fn memory_file(mut self, path: impl AsRef<Path>) -> Self {
        self.memory_file = Some(path.as_ref().to_owned());
        self
    }

    /// How long `Cache::close` writes the memory file. If that is not enough the next start is cold.
    /// Default 60 s.
    pub fn save_limit(mut self, limit: Duration) -> Self {
        self.save_limit = SaveLimit(limit);
        self
    }

    /// The time of the save; `None` without a memory file.
    pub(crate) fn save_time(&self) -> Option<Duration> {
        self.memory_file.is_some().then_some(self.save_limit.0)
    }

    /// The time of the drain.
    pub(crate) fn drain_limit(&self) -> Duration {
        self.flash_waits.drain
    }

    /// Gives memory back while the host or the control group runs short of it, and takes it again. The memory of the
    /// builder and of `Cache::resize` is the most that the cache has. Default: none.
    pub fn memory_monitor(mut self, options: PressureOptions) -> Self {
        self.memory_monitor = Some(options);
        self
    }

    /// The largest value: up to half of the memory and 1 GiB. Default 1 MiB, or half of the memory if that is less.
    pub fn max_value(mut self, value: ByteSize) -> Self {
        self.max_value = Some(value.as_bytes());
        self
    }

    /// Bytes that the caller has on the heap for each pool: a part of the memory of the pool. Default 0.
    pub fn bytes_beside_pools(mut self, bytes: u64) -> Self {
        self.options.owner_bytes = bytes;
        self
    }

    /// Which objects an eviction keeps. Default `s3fifo`.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.options.policy = policy;
        self
    }

    /// Has a thread of the cache run a controller of its pools, unless this is `Off`. With a manual clock maintenance
    /// runs it.
    pub(crate) fn controller(mut self, mode: ControllerMode) -> Self {
        self.controller = Some(mode);
        self
    }

    /// Policies that a [`crate::memcached::PoolController`] may give to each pool, beside the policy of its options,
    /// when models of them say that fewer gets would miss. Default: none, so that policies stay.
    pub fn controller_policies(mut self, policies: &[Policy]) -> Self {
        self.controller_policies = policies.to_vec();
        self
    }

    /// Keeps a profile of each pool: see [`crate::Pool::curve`].
    pub fn profile_accesses(mut self) -> Self {
        self.profiles_accesses = true;
        self
    }

    /// The objective of evictions: hits, the bytes that hits serve, or the cost of the misses that they save. Default
    /// `objects`.
    pub fn objective(mut self, objective: Objective) -> Self {
        self.options.objective = objective;
        self
    }

    /// Segments that an eviction merges into one. Default 4.
    pub fn merge_run(mut self, segments: u32) -> Self {
        self.options.merge_run = segments;
        self
    }

    /// Bytes of values that a segment has space for; it has a 64th part more for their keys and metadata. Default:
    /// memory / 1024, but at least memory / 64 or 64 KiB, whichever is less; a power of two from 4 KiB to 1 MiB.
    pub fn segment_size(mut self, size: ByteSize) -> Self {
        self.options.segment_size = Some(u32::try_from(size.as_bytes()).unwrap_or(u32::MAX));
        self
    }

    /// Whether a full cache evicts (the default) or refuses writes.
    pub fn evict(mut self, evicts: bool) -> Self {
        self.options.evicts = evicts;
        self
    }

    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Seed of the key hash. Random by default, so that strangers cannot choose keys that collide; set it to repeat a
    /// run. Flash that resumes CAS tokens of its last run has the seed of that run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Adds a flash tier: a file, which is created, or a block device, of which this size is used, in whole blocks of 4
    /// KiB. Several are used as one. Its indexes take memory from the items as they grow, its buffers have theirs from
    /// the start: up to an eighth of the memory for both, or up to half where that is too little; the state of
    /// admission and promotion comes on top, within that half.
    pub fn flash(mut self, path: impl AsRef<Path>, size: ByteSize) -> Self {
        self.flash.push((path.as_ref().to_owned(), size.as_bytes()));
        self
    }

    /// Adds a flash tier on a device that the caller implements, in place of paths. Threads of the cache serve it, and
    /// stop with it. After a crash its objects are found only if the options name a file for the deletion log.
    pub fn flash_device(mut self, device: Arc<dyn Device>) -> Self {
        self.flash_device = Some(device);
        self
    }

    /// Which objects are written to flash, and in which layout.
    pub fn flash_options(mut self, options: FlashOptions) -> Self {
        self.flash_options = options;
        self
    }

    /// Which hits on flash are promoted into memory. Default `Auto`.
    pub fn flash_promotion(mut self, promotion: FlashPromotion) -> Self {
        self.flash_promotion = promotion;
        self
    }

    /// How long a write waits until flash has a place for the items that it evicts, before they are lost. Default 50
    /// ms: a device that is behind for longer slows each write down by that much only.
    pub fn flash_demotion_wait(mut self, wait: Duration) -> Self {
        self.flash_waits.demotion = wait;
        self
    }

    /// How long [`crate::Cache::close`] of a cache without a memory file demotes entries to flash, the most frequent
    /// first. Default 30 s: a service manager commonly waits 90 s for a stop. Zero: entries that only memory has are
    /// lost.
    pub fn flash_drain(mut self, limit: Duration) -> Self {
        self.flash_waits.drain = limit;
        self
    }

    /// Demotes values that were not read for this many seconds before their memory is needed, in the background and
    /// within the write budget. By default only evictions demote.
    pub fn flash_max_idle(mut self, seconds: Option<u32>) -> Self {
        self.flash_max_idle = seconds;
        self
    }

    /// Adds a pool: a key space with memory of its own. The memory is divided by the pools' bounds and weights.
    pub fn pool(mut self, options: PoolOptions) -> Self {
        self.pools.push(options);
        self
    }

    /// Sets the listener of all removals.
    pub(crate) fn eviction_listener(mut self, listener: EvictionListener) -> Self {
        self.eviction_listener = ListenerOption(Some(listener));
        self
    }

    /// The pools with their memory.
    fn plan(&self, options: &Options) -> Result<Plan, Error> {
        Ok(pools::plan(options, &self.pools)?.beside_memory_file(self.memory_file.is_some()))
    }

    fn removal_events(&self, has_flash: bool) -> Option<Arc<RemovalEvents>> {
        let listener = self.eviction_listener.0.clone();
        listener.map(|listener| RemovalEvents::new(listener, has_flash, self.clock == Clock::Manual))
    }

    /// Divides the memory between flash, as it was recovered, and the items: before objects are lost because the index
    /// of flash needs more memory than was planned, and before loaded items are evicted that fit beside it. Several
    /// pools get their parts from their division later.
    fn divide_memory(
        &self,
        flash: &FlashTier,
        memory: &Memory,
        (options, all_bytes): (&Options, u64),
        is_single: bool,
    ) {
        let store = memory.store();
        let fits = |items_bytes| match is_single {
            true => store.check_resize(items_bytes).is_ok(),
            false => self.plan(&Options { memory_bytes: items_bytes, ..options.clone() }).is_ok(),
        };
        flash.memory_split.begin(&flash.tier, all_bytes, fits);
        if is_single && store.resize(all_bytes - flash.memory_split.bytes()).is_ok() {
            let participant = store.participate();
            while !store.resize_done() && store.maintain(&participant, memory.time.now_ms()) == Progress::Working {}
        }
    }

    /// The options of the engine beside this memory of flash, and its pools.
    fn plan_beside(&self, flash_memory_bytes: u64) -> Result<(Options, Plan), Error> {
        let Self { mut options, max_value, seed, .. } = self.clone();
        options.memory_bytes -= flash_memory_bytes;
        options.value_bytes_max = max_value.unwrap_or_else(|| options.value_bytes_max.min(options.memory_bytes / 2));
        options.seed = seed.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
        options.memory_bytes_max = Some(options.effective_memory_bytes_max());
        let has_flash = !self.flash.is_empty() || self.flash_device.is_some();
        options.owner_bytes += PoolEntry::HEAP_BYTES + if has_flash { PoolFlash::HEAP_BYTES } else { 0 };
        let plan = self.plan(&options)?;
        Ok((options, plan))
    }

    /// How the memory file would be used, or why it would be refused; `None` without one. Nothing is made or changed.
    ///
    /// # Errors
    /// The errors of `build` for flash, pools and the memory file.
    pub fn check_memory_file(&self) -> Result<Option<MemoryFileMode>, Error> {
        let Some(path) = &self.memory_file else { return Ok(None) };
        let flash_memory_bytes = self.check_flash()?.planned.as_bytes();
        let (_, plan) = self.plan_beside(flash_memory_bytes)?;
        check_memory_file(path, plan.memory_bytes()).map(Some)
    }

    /// Builds the engine, with what flash holds, and with the system's clock starts its maintenance thread.
    pub(crate) fn build_engine(self) -> Result<Arc<Engine>, Error> {
        let flash_memory = self.check_flash()?;
        let flash_memory_bytes = flash_memory.planned.as_bytes();
        let (clock, configured_bytes) = (self.clock, self.options.memory_bytes);
        let monitor = self.memory_monitor.map(|pressure| MemoryMonitor::new(pressure, configured_bytes));
        let monitor = monitor.transpose().map_err(|error| Error::Configuration {
            option: "memory_monitor",
            value: self.memory_monitor.map_or_else(String::new, |options| options.to_string()),
            reason: error.to_string(),
        })?;
        let (options, plan) = self.plan_beside(flash_memory_bytes)?;
        let shares: Vec<_> = plan.stores.iter().map(|pool| (pool.share.clone(), pool.flash_share)).collect();
        let has_compact = !plan.compact.is_empty();
        let mut memory = Memory::begin(self.memory_file.as_deref(), plan, clock, self.key_routing)?;
        // Last of all that may be refused, because it makes files.
        let flash = self.has_flash().then(|| self.open_within(flash_memory.share_bytes)).transpose();
        let flash = flash.map_err(|error| self.flash_error(&error))?;
        let not_started = |error: std::io::Error| Error::Configuration {
            option: "clock",
            value: format!("{clock:?}"),
            reason: format!("a background thread does not start: {error}"),
        };
        let mut pool_flash: Vec<Option<Arc<PoolFlash>>> = vec![None; shares.len()];
        let flash = match flash {
            Some(opening) => {
                let memory_split =
                    MemorySplit::new(flash_memory_bytes, self.flash_options.memory_bytes, options.evicts);
                let clocks = (clock, &memory.time);
                let compare = |runs| memory.compare_with_flash(runs);
                let promotion = self.flash_promotion;
                let started = start_tier(opening, memory_split, promotion, clocks, self.flash_waits, compare);
                let (flash, io) = started.map_err(|error| self.flash_error(&error))?;
                memory.use_file_beside(flash.tier.runs(), self.save_limit.0)?;
                let is_single = memory.stores().len() == 1 && !has_compact;
                self.divide_memory(&flash, &memory, (&options, configured_bytes), is_single);
                let names: Vec<&str> = shares.iter().map(|(share, _)| share.name.as_str()).collect();
                let tokens = memory.token_start();
                let opened = PoolFlash::open_all(&flash, &names, memory.stores_mut(), tokens);
                pool_flash = opened.map_err(|error| self.flash_error(&error))?;
                let threads = FlashThreads::start(&flash, io).map_err(not_started)?;
                Some((flash, threads))
            }
            None => None,
        };
        let engine_memory = memory.memory.clone();
        let FinishedMemory { stores, compact, time, file: memory_file } = memory.finish(self.save_limit.0)?;
        let pools = shares.into_iter().zip(stores).zip(pool_flash);
        let pools = pools.map(|(((share, flash_share), store), flash)| NewPool { share, flash_share, store, flash });
        let pools = pools.collect();
        let options = Options { memory_bytes: configured_bytes, ..options };
        let removals = self.removal_events(flash.is_some());
        let engine =
            Engine::new(options, (pools, compact), time, flash, (memory_file, monitor), engine_memory, removals)?;
        self.start_profiles(&engine);
        engine.controller_policies.get_or_init(|| self.controller_policies);
        if clock == Clock::System {
            start_threads(&engine).map_err(not_started)?;
        } else if engine.memory_file.is_some() && engine.pools.names().len() > 1 {
            // Pools of the file reach the budgets of this start.
            engine.run_all_maintenance(engine.clock.now_ms());
        } else {
            engine.pools.settle(|| u64::MAX);
        }
        engine.flash().into_iter().for_each(|flash| flash.idle.set(self.flash_max_idle));
        Ok(engine)
    }

    /// Begins to profile the pools, for their controller or alone.
    fn start_profiles(&self, engine: &Engine) {
        let profiles = match self.controller {
            None | Some(ControllerMode::Off) if self.profiles_accesses => LiveProfiles::default(),
            None | Some(ControllerMode::Off) => return,
            Some(mode) => {
                let (pools, options) = ((&engine.pools, &engine.default_pool), ControllerOptions::default());
                let controller = PoolController::of_pools(pools, &self.controller_policies, mode, options);
                LiveProfiles::of_controller(controller.expect("the defaults have a meaning"))
            }
        };
        engine.profiles.get_or_init(|| profiles);
        engine.update_profiles();
    }

    /// Whether flash could be opened, as far as that is known without changing anything; and the memory that it would
    /// get.
    ///
    /// # Errors
    /// As `build`.
    pub fn check_flash(&self) -> Result<FlashMemory, Error> {
        let flash = self.divide_for_flash().map_err(|error| self.flash_error(&error))?;
        self.check_memory_beside_flash(flash.planned.as_bytes()).map(|()| flash)
    }

    /// The memory that flash of this size would get, wherever it is.
    ///
    /// # Errors
    /// Flash that is too small, or too large for the memory.
    pub fn flash_memory_of(&self, flash: ByteSize) -> Result<FlashMemory, Error> {
        let divided = self.divide_for(|_, options| Tier::check_size(flash.as_bytes(), options));
        divided.map_err(|error| self.flash_error(&error))
    }

    /// The memory that flash would get.
    fn divide_for_flash(&self) -> Result<FlashMemory, ebbtide_flash::Error> {
        match &self.flash_device {
            Some(_) => self.divide_for(|bytes, _| self.open_within(bytes).map(|opening| opening.fixed_bytes())),
            None if self.has_flash() => self.divide_for(|_, options| Tier::check(&self.flash, options)),
            None => Ok(FlashMemory::default()),
        }
    }

    /// The smallest share of the memory that `check` accepts for flash. `check` answers the fixed bytes.
    fn divide_for(
        &self,
        check: impl Fn(u64, &FlashOptions) -> Result<u64, ebbtide_flash::Error>,
    ) -> Result<FlashMemory, ebbtide_flash::Error> {
        let mut shares = FLASH_MEMORY_SHARES.iter().map(|share| self.options.memory_bytes / share);
        let mut memory_bytes = shares.next().expect("three shares");
        loop {
            let options = self.flash_options_within(memory_bytes);
            match (check(memory_bytes, &options), shares.next()) {
                (Ok(fixed_bytes), _) => {
                    let planned_bytes = self.flash_memory_within(memory_bytes);
                    let indexes_bytes = options.memory_bytes.saturating_sub(fixed_bytes);
                    let spare_bytes = memory_split::spare_of(self.options.memory_bytes).min(indexes_bytes);
                    let at_start = if self.options.evicts { indexes_bytes - spare_bytes } else { 0 };
                    let at_start = ByteSize::bytes(planned_bytes - at_start);
                    let planned = ByteSize::bytes(planned_bytes);
                    return Ok(FlashMemory { at_start, planned, share_bytes: memory_bytes });
                }
                (Err(ebbtide_flash::Error::Options(_) | ebbtide_flash::Error::Memory(_)), Some(more)) => {
                    memory_bytes = more
                }
                (Err(error), _) => return Err(error),
            }
        }
    }

    /// Refuses a memory of which flash leaves less than objects need.
    fn check_memory_beside_flash(&self, flash_bytes: u64) -> Result<(), Error> {
        let Self { options, .. } = self;
        let left = options.memory_bytes - flash_bytes;
        if flash_bytes == 0 || left >= MEMORY_BYTES_MIN || options.memory_bytes < MEMORY_BYTES_MIN {
            return Ok(());
        }
        let words = |bytes: u64| ByteSize::bytes(bytes).to_string();
        let reason = format!(
            "flash takes {} of it for indexes and buffers, and the {} left are less than the {} that objects need. {}",
            words(flash_bytes),
            words(left),
            words(MEMORY_BYTES_MIN),
            self.advise_memory_for_flash()
        );
        Err(Error::Configuration { option: "memory", value: words(options.memory_bytes), reason })
    }

    /// Advice for a memory that is too small for flash.
    fn advise_memory_for_flash(&self) -> String {
        // Multiples of 64 KiB, so that the size that is named is exact.
        let next = |bytes: &u64| Some((bytes + bytes / 8 + 1).next_multiple_of(64 << 10));
        let fits = |bytes: &u64| {
            let mut larger = self.clone();
            larger.options.memory_bytes = *bytes;
            larger.divide_for_flash().is_ok_and(|flash| bytes - flash.planned.as_bytes() >= MEMORY_BYTES_MIN)
        };
        // A caller's device would be opened for each size.
        let sizes = std::iter::successors(next(&self.options.memory_bytes), next).take(MAX_TRIED_SIZES);
        match sizes.filter(|_| self.flash_device.is_none()).find(fits) {
            Some(bytes) => format!("Give {} KiB of memory or more, or a smaller flash", bytes >> 10),
            None => "Give more memory, or a smaller flash".to_owned(),
        }
    }

    pub(crate) fn has_flash(&self) -> bool {
        self.flash_device.is_some() || !self.flash.is_empty()
    }

    fn open_within(&self, memory_bytes: u64) -> Result<Opening, ebbtide_flash::Error> {
        let options = self.flash_options_within(memory_bytes);
        match &self.flash_device {
            Some(device) => Tier::open_on(Arc::clone(device), DEVICE_IDENTITY, &options),
            None => Tier::open(&self.flash, &options),
        }
    }

    fn flash_options_within(&self, memory_bytes: u64) -> FlashOptions {
        let memory_bytes = self.flash_memory_within(memory_bytes);
        let memory_growth_bytes =
            memory_split::max_growth(memory_bytes, self.options.memory_bytes, self.flash_options.memory_bytes);
        let memory_bytes = memory_bytes - promotion::filters_within(memory_bytes) - memory_bytes / TOKENS_SHARE;
        let max_value_bytes = self.max_value.unwrap_or(self.options.value_bytes_max);
        let key_routing = self.key_routing;
        FlashOptions { memory_bytes, memory_growth_bytes, max_value_bytes, key_routing, ..self.flash_options.clone() }
    }

    /// The memory of flash for buffers and indexes of this size. The state of admission and promotion comes on top:
    /// inside, it would shrink the index below the objects that are admitted.
    fn flash_memory_within(&self, memory_bytes: u64) -> u64 {
        let max = self.options.memory_bytes / FLASH_MEMORY_SHARES[FLASH_MEMORY_SHARES.len() - 1];
        let admission = self.flash_options.admission.memory_bytes() as u64;
        let filters = promotion::filters_beside(memory_bytes);
        memory_bytes.saturating_add(admission).saturating_add(filters).min(max).min(self.flash_options.memory_bytes)
    }

    fn flash_error(&self, error: &ebbtide_flash::Error) -> Error {
        Error::Configuration {
            option: "flash",
            value: match &self.flash_device {
                Some(device) => format!("{device:?}"),
                None => {
                    let paths = self.flash.iter().map(|(path, bytes)| format!("{}:{bytes}", path.display()));
                    paths.collect::<Vec<_>>().join(",")
                }
            },
            reason: match error {
                ebbtide_flash::Error::Memory(_) => format!(
                    "{error}. Flash gets up to half of the memory, {}. {}",
                    ByteSize::bytes(self.options.memory_bytes),
                    self.advise_memory_for_flash()
                ),
                _ => error.to_string(),
            },
        }
    }
}

/// Starts the threads that an engine with the system's clock has.
fn start_threads(engine: &Arc<Engine>) -> std::io::Result<()> {
    if engine.profiles.get().is_some() {
        profile_thread::start(engine)?;
    }
    if engine.memory_monitor.is_some() {
        maintenance::start_monitor(engine)?;
    }
    maintenance::start(engine)
}
