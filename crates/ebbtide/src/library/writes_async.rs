//! Writes of tasks: they never block the executor.
//!
//! ```text
//! write ---no memory at once---> the task waits for the maintenance thread ---woken---> write again
//!                                        |
//!                                        +--- until the bound of `retry.rs` for what it waits for: `OutOfMemory`
//! ```

use super::insert_options::InsertOptions;
use super::lookups_async::WakerCell;
use super::pool::Pool;
use super::value::Value;
use crate::error::{Error, WaitReason};
use crate::flash::read::FlashReads;
use crate::flash::resolve::{ReadOutcome, ReadPurpose};
use crate::memcached;
use crate::retry::{MAX_WRITE_TIME, Patience};
use ebbtide_store::{Mode, Ttl};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

/// The waits of one write for memory.
#[derive(Default)]
struct MemoryWaits {
    started: Option<Instant>,
    /// The reason of the present wait, and when that began.
    current: Option<(WaitReason, Instant)>,
}

/// Writes for tasks of any executor; no runtime is needed, and no call blocks the executor.
impl Pool {
    /// As [`Pool::insert`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// cache.insert_async("k", "v").await?;
    /// assert!(cache.remove_async("k").await);
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pool::insert`]. A value that is longer than a segment is refused as `OutOfMemory` while other such writes
    /// hold half of the memory.
    pub async fn insert_async(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.insert_with_async(key, value, InsertOptions::new()).await
    }

    /// As [`Pool::insert_with`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// let a_minute = InsertOptions::new().ttl(std::time::Duration::from_secs(60));
    /// cache.insert_with_async("session", "42", a_minute).await?;
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pool::insert_async`].
    pub async fn insert_with_async(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: InsertOptions,
    ) -> Result<(), Error> {
        let (key, value, commands) = (key.as_ref(), value.as_ref(), self.commands.without_waiting());
        let life = self.life(options);
        self.write_async(&commands, |commands| life.write(commands, key, value, Mode::Set).map(drop)).await
    }

    /// As [`Pool::insert_many`]. If the task is cancelled, the values up to the one that waited are written.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// let results = cache.insert_many_async(&[("a", "1"), ("b", "2")]).await;
    /// assert!(results.iter().all(Result::is_ok));
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// Each as of [`Pool::insert_async`]; the other values are written.
    pub async fn insert_many_async<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: &[(K, V)],
    ) -> Vec<Result<(), Error>> {
        let mut results = Vec::with_capacity(entries.len());
        for run in entries.chunks(memcached::Pool::WRITE_BATCH) {
            self.prefetch_writes(run);
            for (key, value) in run {
                results.push(self.insert_async(key, value).await);
            }
        }
        results
    }

    /// As [`Pool::insert_if_absent`]. If only flash may have the key, the task waits for the device.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// assert!(cache.insert_if_absent_async("lock", "me", InsertOptions::new()).await?);
    /// assert!(!cache.insert_if_absent_async("lock", "you", InsertOptions::new()).await?);
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pool::insert_async`]; nothing is changed.
    pub async fn insert_if_absent_async(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: InsertOptions,
    ) -> Result<bool, Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.change_async(key, |pool| pool.insert_if_absent(key, value, options)).await
    }

    /// As [`Pool::compare_and_swap`]. If only flash may have the key, the task waits for the device.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// cache.insert_async("leader", "a").await?;
    /// assert!(cache.compare_and_swap_async("leader", "a", "b", InsertOptions::new()).await?);
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pool::insert_async`]; nothing is changed.
    pub async fn compare_and_swap_async(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        new: impl AsRef<[u8]>,
        options: InsertOptions,
    ) -> Result<bool, Error> {
        let (key, expected, new) = (key.as_ref(), expected.as_ref(), new.as_ref());
        self.change_async(key, |pool| pool.compare_and_swap(key, expected, new, options)).await
    }

    /// As [`Pool::touch`]. If only flash may have the key, the task waits for the device.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// cache.insert_async("session", "42").await?;
    /// assert!(cache.touch_async("session", std::time::Duration::from_secs(600)).await?);
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pool::touch`].
    pub async fn touch_async(&self, key: impl AsRef<[u8]>, ttl: impl Into<Ttl>) -> Result<bool, Error> {
        let (key, ttl) = (key.as_ref(), ttl.into());
        self.change_async(key, |pool| pool.touch(key, ttl)).await
    }

    /// As [`Pool::increment`]. If only flash may have the key, the task waits for the device.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// cache.insert_async("visits", "41").await?;
    /// assert_eq!(cache.increment_async("visits", 1).await?, Some(42));
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pool::increment`].
    pub async fn increment_async(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        let key = key.as_ref();
        self.change_async(key, |pool| pool.increment(key, delta)).await
    }

    /// As [`Pool::decrement`]. If only flash may have the key, the task waits for the device.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// cache.insert_async("left", "2").await?;
    /// assert_eq!(cache.decrement_async("left", 5).await?, Some(0));
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pool::increment`].
    pub async fn decrement_async(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        let key = key.as_ref();
        self.change_async(key, |pool| pool.decrement(key, delta)).await
    }

    /// As [`Pool::increment_or_insert`]. If only flash may have the key, the task waits for the device.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// assert_eq!(cache.increment_or_insert_async("calls", 1, 1, InsertOptions::new()).await?, 1);
    /// assert_eq!(cache.increment_or_insert_async("calls", 1, 1, InsertOptions::new()).await?, 2);
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pool::increment_or_insert`].
    pub async fn increment_or_insert_async(
        &self,
        key: impl AsRef<[u8]>,
        delta: u64,
        initial: u64,
        options: InsertOptions,
    ) -> Result<u64, Error> {
        let key = key.as_ref();
        self.change_async(key, |pool| pool.increment_or_insert(key, delta, initial, options)).await
    }

    /// As [`Pool::take`]. If only flash may have the key, the task waits for the device.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// cache.insert_async("ticket", "7").await?;
    /// assert_eq!(cache.take_async("ticket").await?.unwrap(), "7");
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pool::take`].
    pub async fn take_async(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        let key = key.as_ref();
        self.change_async(key, |pool| pool.take(key)).await
    }

    /// Writes until there is memory, or until the bounds of waits are over.
    pub(super) async fn write_async<T>(
        &self,
        commands: &memcached::Pool,
        mut write: impl FnMut(&memcached::Pool) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut waits = MemoryWaits::default();
        // Ends: after the bounds a write is refused.
        loop {
            match write(commands) {
                Err(Error::WouldWait { reason }) => self.wait_for_memory(commands, &mut waits, reason).await,
                other => return other,
            }
        }
    }

    /// Runs an operation that depends on the present value of a key: a value that only flash has is promoted first, in
    /// each round. `change` gets a handle that does not wait, and may be called again after `WouldWait`.
    pub(super) async fn change_async<T>(
        &self,
        key: &[u8],
        change: impl Fn(&Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (pool, mut waits) = (self.without_waiting(), MemoryWaits::default());
        // Ends: after the bounds a promotion or a change is refused.
        loop {
            let changed = match pool.promote_async(key).await {
                Ok(()) => change(&pool),
                Err(error) => Err(error),
            };
            match changed {
                Err(Error::WouldWait { reason }) => self.wait_for_memory(&pool.commands, &mut waits, reason).await,
                other => return other,
            }
        }
    }

    /// Promotes the value of a key if only flash has it; of a handle that does not wait.
    ///
    /// # Errors
    /// `OutOfMemory` or `WouldWait` if flash has the value and memory has no place for it.
    pub(super) async fn promote_async(&self, key: &[u8]) -> Result<(), Error> {
        if self.commands.peek(key).is_hit() {
            return Ok(());
        }
        let (mut reads, waker) = (FlashReads::default(), Arc::<WakerCell>::default());
        let Some(probe) = self.commands.probe_flash(&reads, key) else { return Ok(()) };
        poll_fn(|context| {
            waker.set(context.waker());
            match self.commands.read_from_flash(&mut reads, probe, &[key], ReadPurpose::Change, || waker.read_wake()) {
                ReadOutcome::Pending => Poll::Pending,
                ReadOutcome::Refused(error) => Poll::Ready(Err(error)),
                ReadOutcome::Hit(_) | ReadOutcome::Absent | ReadOutcome::MemoryDecides => Poll::Ready(Ok(())),
            }
        })
        .await
    }

    async fn wait_for_memory(&self, commands: &memcached::Pool, waits: &mut MemoryWaits, reason: WaitReason) {
        let now = Instant::now();
        let since = waits.current.filter(|current| current.0 == reason).unwrap_or((reason, now));
        waits.current = Some(since);
        if now - *waits.started.get_or_insert(now) > MAX_WRITE_TIME {
            commands.set_patience(Patience::Spent);
        } else if now - since.1 > commands.wait_limit(reason) {
            commands.set_patience(Patience::Whole.after(reason));
        }
        self.memory_may_be_free().await;
    }

    /// Waits for the next slices of maintenance. With a manual clock, which has no maintenance thread, lets the other
    /// tasks of the executor run once.
    async fn memory_may_be_free(&self) {
        let pool = &*self.commands.0.pool;
        let mut has_waited = false;
        poll_fn(|context| {
            if std::mem::replace(&mut has_waited, true) {
                return Poll::Ready(());
            }
            if pool.clock.is_manual() {
                context.waker().wake_by_ref();
            } else {
                pool.memory_waiters.add(context.waker().clone());
                pool.wake();
            }
            Poll::Pending
        })
        .await;
    }

    /// As [`Pool::remove`]. If only flash may have the key, the task waits for the device.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// cache.insert_async("k", "v").await?;
    /// assert!(cache.remove_async("k").await);
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub async fn remove_async(&self, key: impl AsRef<[u8]>) -> bool {
        let (key, commands) = (key.as_ref(), self.commands.without_waiting());
        let (mut reads, waker) = (FlashReads::default(), Arc::<WakerCell>::default());
        poll_fn(|context| {
            waker.set(context.waker());
            commands.try_delete(&mut reads, key, || waker.read_wake()).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
