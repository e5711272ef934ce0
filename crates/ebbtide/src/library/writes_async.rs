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
use crate::error::{Error, WaitReason};
use crate::flash::read::{FlashReads, ReadWake};
use crate::memcached;
use crate::retry::{MAX_WRITE_TIME, Patience};
use ebbtide_store::Mode;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

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

    /// Writes until there is memory, or until the bounds of waits are over.
    pub(super) async fn write_async<T>(
        &self,
        commands: &memcached::Pool,
        write: impl Fn(&memcached::Pool) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (mut started, mut waits) = (None, None::<(WaitReason, Instant)>);
        // Ends: after the bounds a write is refused.
        loop {
            let reason = match write(commands) {
                Err(Error::WouldWait { reason }) => reason,
                other => return other,
            };
            let now = Instant::now();
            // Evictions may go on, and others take what they free.
            let limit = match reason {
                WaitReason::Eviction | WaitReason::Reader => MAX_WRITE_TIME,
                WaitReason::Held | WaitReason::Demotion => commands.wait_limit(reason),
            };
            let since = waits.filter(|waits| waits.0 == reason).unwrap_or((reason, now));
            waits = Some(since);
            if now - *started.get_or_insert(now) > MAX_WRITE_TIME {
                commands.set_patience(Patience::Spent);
            } else if now - since.1 > limit {
                commands.set_patience(Patience::Whole.after(reason));
            }
            self.memory_may_be_free().await;
        }
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
            let wake = || -> ReadWake {
                let waker = Arc::clone(&waker);
                Box::new(move || waker.wake())
            };
            commands.try_delete(&mut reads, key, wake).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
