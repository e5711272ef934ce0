//! Options of a cache.

use super::Settings;
use super::value::Value;
use crate::byte_size::ByteSize;
use crate::clock::Clock;
use crate::flash;
use crate::memcached;
use crate::memory_monitor::PressureOptions;
use crate::pool_controller::ControllerMode;
use crate::pool_options::PoolOptions;
use crate::removal_events::RemovalCause;
use ebbtide_store::{Objective, Policy, Ttl};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A clock must not overflow: a year is no bound for any loader.
const MAX_LOAD_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Options of a cache; see [`crate::Cache::builder`]. Each has a default that works.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing before build"]
pub struct CacheBuilder {
    pub(super) engine: memcached::CacheBuilder,
    pub(super) settings: Settings,
}

impl CacheBuilder {
    /// All the memory that the cache may use: entries, index, headers and spares. Default 64 MiB.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// let cache = Cache::builder().memory(ByteSize::gib(1)).build()?;
    /// assert!(cache.stats().memory_used_bytes <= 1 << 30);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn memory(self, memory: ByteSize) -> Self {
        self.engine(|engine| engine.memory(memory))
    }

    /// The TTL of writes that name none, and of loaded values. Default: entries never expire.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// use std::time::Duration;
    ///
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).default_ttl(Duration::from_secs(3600)).build()?;
    /// cache.insert("k", "v")?;
    /// assert!(cache.get_ref("k").unwrap().ttl() <= Some(Duration::from_secs(3600)));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn default_ttl(mut self, ttl: impl Into<Ttl>) -> Self {
        self.settings.default_ttl = ttl.into();
        self
    }

    /// How long entries that are written without a TTL of their own live after their last use; `default_ttl` is not
    /// used then. A use is a lookup that finds the value, or an edit of a structured value: one that comes past half of
    /// this time begins it anew, so an entry expires between half of it and all of it after its last use. Calls of
    /// `contains_key` and `increment` are no uses, and counters of `increment_or_insert` expire this long after they
    /// were created. [`crate::Pool::touch`] gives an entry a TTL of its own. Default: none.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Clock};
    /// use std::time::Duration;
    ///
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).time_to_idle(Duration::from_secs(100));
    /// let cache = builder.clock(Clock::Manual).build()?;
    /// cache.insert("used", "v")?;
    /// cache.insert("idle", "v")?;
    /// cache.maintain(Duration::from_secs(80));
    /// assert!(cache.get("used").is_some());
    /// cache.maintain(Duration::from_secs(120));
    /// assert!(cache.contains_key("used") && !cache.contains_key("idle"));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn time_to_idle(mut self, time: Duration) -> Self {
        self.settings.time_to_idle = Some(time);
        self
    }

    /// How long a caller that misses a key waits for another caller's loader of this key: longer than any loader should
    /// take. Zero: it does not wait. The loader that a caller runs itself is not bounded. Default 60 s.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// use std::time::Duration;
    ///
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).load_timeout(Duration::from_secs(5));
    /// let cache = builder.build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn load_timeout(mut self, timeout: Duration) -> Self {
        self.settings.load_timeout = timeout.min(MAX_LOAD_TIMEOUT);
        self
    }

    /// The largest value: up to half of the memory and 1 GiB. Default 1 MiB, or half of the memory if that is less.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).max_value(ByteSize::mib(8)).build()?;
    /// cache.insert("long", vec![0; 5 << 20])?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn max_value(self, value: ByteSize) -> Self {
        self.engine(|engine| engine.max_value(value))
    }

    /// Which entries an eviction keeps. Default `s3fifo`.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Policy};
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).policy(Policy::Lru).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn policy(self, policy: Policy) -> Self {
        self.engine(|engine| engine.policy(policy))
    }

    /// The objective of evictions: hits, the bytes that hits serve, or the cost of the misses that they save (see
    /// [`InsertOptions::cost`]). Default `objects`. With `Bytes` the controller divides the memory of pools for that,
    /// too; with `Cost` it counts hits by [`PoolOptions::hit_value`](crate::PoolOptions::hit_value).
    ///
    /// ```
    /// use ebbtide::{ByteSize, Cache, Objective};
    ///
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).objective(Objective::Cost).build()?;
    /// // A report that takes a second to compute stays longer than what takes a millisecond.
    /// cache.get_or_insert_with("report:7", || "computed")?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// [`InsertOptions::cost`]: crate::InsertOptions::cost
    pub fn objective(self, objective: Objective) -> Self {
        self.engine(|engine| engine.objective(objective))
    }

    /// Adds a pool: a key space with memory of its own. The memory is divided by the pools' bounds and weights.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// let users = PoolOptions::named("users").min(ByteSize::mib(16)).max(ByteSize::mib(32));
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).pool(users).build()?;
    /// cache.pool("users")?.insert("42", "Ada")?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn pool(self, options: PoolOptions) -> Self {
        self.engine(|engine| engine.pool(options))
    }

    /// Adds a flash tier: a file, which is created, or a block device, of which this size is used. Several are used as
    /// one. Evicted entries of all pools but compact ones go there, and are found there; each pool has its share of it
    /// ([`PoolOptions::flash_share`]).
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("app.flash");
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).flash(path, ByteSize::mib(256)).build()?;
    /// cache.insert("k", "v")?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn flash(self, path: impl AsRef<Path>, size: ByteSize) -> Self {
        self.engine(|engine| engine.flash(path, size))
    }

    /// Options of flash: admission, write budget, promotion, reclaim. They have no effect without
    /// [`CacheBuilder::flash`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// use ebbtide::flash::{self, AdmissionPolicy, WriteBudget};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("app.flash");
    /// let options = flash::Options::new().admission(AdmissionPolicy::Probability(0.5));
    /// let options = options.write_budget(WriteBudget::DriveWritesPerDay(1.0));
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).flash(path, ByteSize::mib(256));
    /// let cache = builder.flash_options(options).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn flash_options(self, options: flash::Options) -> Self {
        self.engine(|engine| options.apply(engine))
    }

    /// A file that [`crate::Cache::close`] writes all entries to, and the next cache with the same file starts with.
    /// After a crash the next start is cold.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("app.cache");
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).memory_file(path).build()?;
    /// cache.insert("k", "v")?;
    /// cache.close()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn memory_file(self, path: impl AsRef<Path>) -> Self {
        self.engine(|engine| engine.memory_file(path))
    }

    /// Returns memory while the host or the control group is short of it, and takes it again later. Default: none.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PressureMode, PressureOptions};
    /// // Shrinks while less than 1 GiB of the host is free, and grows again when more than 2 GiB are.
    /// let pressure = PressureOptions::new(PressureMode::Free, 1 << 30, 2 << 30);
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).memory_monitor(pressure).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn memory_monitor(self, options: PressureOptions) -> Self {
        self.engine(|engine| engine.memory_monitor(options))
    }

    /// The largest memory that [`crate::Cache::resize`] accepts. The address space is reserved at the start. Default:
    /// four times the memory, or the machine's memory if that is more.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).memory_ceiling(ByteSize::mib(128));
    /// let cache = builder.build()?;
    /// cache.resize(ByteSize::mib(128))?;
    /// assert!(cache.resize(ByteSize::mib(192)).is_err());
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn memory_ceiling(self, memory: ByteSize) -> Self {
        self.engine(|engine| engine.memory_ceiling(memory))
    }

    /// Moves memory between the pools to where it earns hits, within their bounds: every ten seconds at most, by the
    /// profiles of [`CacheBuilder::profile_accesses`], which it has, too. A pool after [`crate::Pool::resize`] stays as
    /// it is. With `DryRun` it moves nothing: [`crate::Cache::controller_decisions`] says what it would do. Default:
    /// `Off`, so that pools are divided by bounds and weights alone.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// use ebbtide::controller::ControllerMode;
    ///
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).controller(ControllerMode::Auto);
    /// let users = PoolOptions::named("users").min(ByteSize::mib(8));
    /// let cache = builder.pool(users).pool(PoolOptions::named("pages").hit_value(5)).build()?;
    /// assert!(cache.controller_decisions().is_empty(), "it has seen nothing yet");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn controller(self, mode: ControllerMode) -> Self {
        self.engine(|engine| engine.controller(mode))
    }

    /// Eviction policies that the controller may give to a pool, beside that of its options, when models of them say
    /// that fewer lookups would miss. Default: none.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Policy};
    /// use ebbtide::controller::ControllerMode;
    ///
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).controller(ControllerMode::Auto);
    /// let cache = builder.controller_policies(&[Policy::S3Fifo, Policy::Lru]).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn controller_policies(self, policies: &[Policy]) -> Self {
        self.engine(|engine| engine.controller_policies(policies))
    }

    /// Sets the listener of removals. It is told of every entry that leaves the memory of the cache, in any pool,
    /// exactly once: with its key, its value and the [`RemovalCause`].
    ///
    /// - It is called by the thread that has removed the entry, before the operation returns, and outside of all locks.
    ///   The maintenance thread calls it for entries that it evicts or expires, for removals by a thread that holds a
    ///   [`crate::ValueRef`] or was promoting a value from flash, and for removals that the listener itself causes.
    /// - It may use the cache. It should not keep it alive: capture a [`crate::WeakCache`].
    /// - A panic in it ends that call only, and is counted in [`crate::Stats::listener_panics`].
    /// - Threads call it at the same time: calls for one key may overlap, and have no order.
    /// - An expired or invalidated entry is told when its memory is freed, or when its key is written before that.
    /// - A new TTL is no removal, nor is a number that changes in place. An entry that is promoted from flash and
    ///   evicted again is told again. Entries that are on flash only, and entries of a compact pool, a removed pool or
    ///   an ended cache, are not told.
    /// - Events that wait for the maintenance thread take up to 4 MiB beside the memory of the cache. When they have
    ///   that, each operation tells some of them before it returns. The one exception to "exactly once": a removal that
    ///   the listener itself causes then is only counted, in [`crate::Stats::untold_removals`].
    ///
    /// ```
    /// use ebbtide::{ByteSize, Cache, RemovalCause};
    /// use std::sync::mpsc;
    ///
    /// let (sender, told) = mpsc::channel();
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).eviction_listener(move |key, value, cause| {
    ///     let _ = sender.send((key.to_vec(), value, cause));
    /// });
    /// let cache = cache.build()?;
    /// cache.insert("k", "old")?;
    /// cache.insert("k", "new")?;
    /// assert_eq!(told.recv().unwrap(), (b"k".to_vec(), "old".into(), RemovalCause::Replaced));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn eviction_listener(self, listener: impl Fn(&[u8], Value, RemovalCause) + Send + Sync + 'static) -> Self {
        let listener =
            Arc::new(move |key: &[u8], value: &Arc<[u8]>, cause| listener(key, Arc::clone(value).into(), cause));
        self.engine(|engine| engine.eviction_listener(listener))
    }

    /// Keeps a profile of the accesses of each pool, so that [`crate::Pool::curve`], [`crate::Pool::what_if`] and
    /// [`crate::Pool::verdict`] answer: what more memory would give, and less would cost. Sampled keys take a
    /// thousandth of the memory of a pool, but at least 256 KiB and at most 1 MiB; those of all pools a hundredth of
    /// the memory of the cache, or 1 MiB if that is more. Models of a full pool, where they would predict, take up to a
    /// 32nd of its memory. All of it takes up to a hundredth of one core. This memory is not in the budget. Default:
    /// none.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).profile_accesses().build()?;
    /// assert!(cache.verdict().is_none(), "nothing was looked up yet");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn profile_accesses(self) -> Self {
        self.engine(memcached::CacheBuilder::profile_accesses)
    }

    /// Where the time comes from. Default: the system. Tests use [`Clock::Manual`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// use ebbtide::Clock;
    /// use std::time::Duration;
    ///
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).clock(Clock::Manual).build()?;
    /// cache.maintain(Duration::from_secs(3600));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn clock(self, clock: Clock) -> Self {
        self.engine(|engine| engine.clock(clock))
    }

    /// Changes options of the engine that have no method here.
    #[doc(hidden)]
    pub fn engine(mut self, change: impl FnOnce(memcached::CacheBuilder) -> memcached::CacheBuilder) -> Self {
        self.engine = change(self.engine);
        self
    }
}
