//! Loading: a missed key gets its value from a function or a future of the caller, once for all callers.
//!
//! ```text
//! get ---miss--> join ---lead---> begin_load, under the lock of the key -> loader -> publish with the ticket
//!  ^               |                   | the key is present                    | finish: waiters return
//!  |               +---wait---> outcome|                                       +---> return the value
//!  +-----------------------------------+<-- abandoned
//! ```
//! A value is published only if its key has not been written, removed or flushed since the miss: see the store's
//! `load_tickets.rs`. A value that is not published is returned all the same.

use super::load_table::{Join, Leader, Outcome};
use super::load_wait::LoadWait;
use super::pool::Pool;
use super::value::Value;
use crate::debug::Key;
use crate::error::Error;
use ebbtide_store::{Mode, Ttl};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

/// Tries of a task to publish while the cache has no memory at once. It yields to its executor in between.
const MAX_PUBLICATIONS: u32 = 100;

/// A loaded value and its TTL. A loader returns this, or just a value, which gets the cache's default TTL.
#[derive(Clone, Debug)]
pub struct Loaded {
    value: Value,
    ttl: Option<Ttl>,
}

impl Loaded {
    pub fn new(value: impl Into<Value>) -> Self {
        Self { value: value.into(), ttl: None }
    }

    /// How long the value lives in the cache.
    pub fn ttl(mut self, ttl: impl Into<Ttl>) -> Self {
        self.ttl = Some(ttl.into());
        self
    }
}

impl<T: Into<Value>> From<T> for Loaded {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// Why a key was not loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError<E> {
    /// The loader of this call has failed.
    #[error("{0}")]
    Loader(E),
    /// The cache refuses the load.
    #[error("{0}")]
    Cache(#[from] Error),
}

impl From<LoadError<Infallible>> for Error {
    fn from(error: LoadError<Infallible>) -> Self {
        match error {
            LoadError::Loader(never) => match never {},
            LoadError::Cache(error) => error,
        }
    }
}

/// Loading. Of several callers that miss a key at the same time one runs its loader, and all return the loaded value.
/// If that loader fails, panics or is cancelled, one of the others runs its own. Loads of different keys do not wait
/// for each other.
///
/// A loaded value is written to the cache unless the key was written, removed or invalidated since the miss: an older
/// value never replaces a newer one. It is returned in any case, also if the cache has no memory for it.
impl Pool {
    /// The value of a key; if it is absent, the value that `load` returns.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let value = cache.get_or_insert_with("user:42", || "from the database")?;
    /// assert_eq!(value, "from the database");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `RecursiveLoad` if `load` asks for the same key; `LoadTimeout` if the loader of another caller takes longer
    /// than the cache's `load_timeout`; `KeyLength`, `PoolRemoved`.
    pub fn get_or_insert_with<V: Into<Loaded>>(
        &self,
        key: impl AsRef<[u8]>,
        load: impl FnOnce() -> V,
    ) -> Result<Value, Error> {
        Ok(self.try_get_or_insert_with(key, || Ok::<V, Infallible>(load()))?)
    }

    /// As `get_or_insert_with`, with a loader that may fail. An error is returned to the caller whose loader it is, and
    /// nothing is written.
    ///
    /// # Errors
    /// `LoadError::Loader` of the loader; `LoadError::Cache` as `get_or_insert_with`.
    pub fn try_get_or_insert_with<V: Into<Loaded>, E>(
        &self,
        key: impl AsRef<[u8]>,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<Value, LoadError<E>> {
        let key = key.as_ref();
        if let Some(value) = self.get(key) {
            return Ok(value);
        }
        let deadline = self.load_deadline();
        // Each further round follows a change by another thread, or a loader that failed.
        while Instant::now() < deadline {
            match self.join_load(key)? {
                Join::Recursive => return Err(recursive(key).into()),
                Join::Wait(running) => match running.wait(deadline) {
                    Some(Outcome::Loaded(value)) => return Ok(value.into()),
                    Some(Outcome::Abandoned) => {}
                    None => return Err(self.load_timed_out().into()),
                },
                Join::Lead(leader) => {
                    if let Some(ticket) = self.begin_load(key, &leader)? {
                        let Loaded { value, ttl } = leader.run(load).map_err(LoadError::Loader)?.into();
                        // A value that the cache has no memory for is returned all the same.
                        let _ = self.publish(key, &value, ttl, &ticket);
                        leader.finish(value.to_shared());
                        return Ok(value);
                    }
                }
            }
            if let Some(value) = self.get_uncounted(key) {
                return Ok(value);
            }
        }
        Err(self.load_timed_out().into())
    }

    /// As `get_or_insert_with`, for tasks of any executor. The loader runs in the calling task; if that is cancelled,
    /// one of the waiting tasks runs its own.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// let value = cache.get_or_insert_with_async("user:42", async { "from the database" }).await?;
    /// assert_eq!(value, "from the database");
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get_or_insert_with`. A loader that waits for a load of its own key in another task ends by `LoadTimeout`.
    pub async fn get_or_insert_with_async<V: Into<Loaded>>(
        &self,
        key: impl AsRef<[u8]>,
        load: impl Future<Output = V>,
    ) -> Result<Value, Error> {
        Ok(self.try_get_or_insert_with_async(key, async { Ok::<V, Infallible>(load.await) }).await?)
    }

    /// As `try_get_or_insert_with`, for tasks of any executor.
    ///
    /// # Errors
    /// As `try_get_or_insert_with`.
    pub async fn try_get_or_insert_with_async<V: Into<Loaded>, E>(
        &self,
        key: impl AsRef<[u8]>,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<Value, LoadError<E>> {
        let key = key.as_ref();
        if let Some(value) = self.get_async(key).await {
            return Ok(value);
        }
        let deadline = self.load_deadline();
        let mut load = pin!(load);
        // Each further round follows a change by another thread, or a loader that failed.
        while Instant::now() < deadline {
            match self.join_load(key)? {
                Join::Recursive => return Err(recursive(key).into()),
                Join::Wait(running) => match LoadWait::new(running, deadline).await {
                    Some(Outcome::Loaded(value)) => return Ok(value.into()),
                    Some(Outcome::Abandoned) => {}
                    None => return Err(self.load_timed_out().into()),
                },
                Join::Lead(leader) => {
                    if let Some(ticket) = self.begin_load(key, &leader)? {
                        let loaded = poll_fn(|context| leader.run(|| load.as_mut().poll(context))).await;
                        let Loaded { value, ttl } = loaded.map_err(LoadError::Loader)?.into();
                        self.publish_async(key, &value, ttl, &ticket).await;
                        leader.finish(value.to_shared());
                        return Ok(value);
                    }
                }
            }
            if let Some(value) = self.get_async(key).await {
                return Ok(value);
            }
        }
        Err(self.load_timed_out().into())
    }

    fn load_deadline(&self) -> Instant {
        Instant::now() + self.settings.load_timeout
    }

    fn load_timed_out(&self) -> Error {
        Error::LoadTimeout { milliseconds: self.settings.load_timeout.as_millis() as u64 }
    }

    fn join_load(&self, key: &[u8]) -> Result<Join<'_>, Error> {
        let pool = &*self.commands.0.pool;
        if pool.is_removed() {
            return Err(Error::PoolRemoved { name: pool.name.to_string() });
        }
        let hash = pool.store.hash(key);
        Ok(pool.loads.join(key, hash, |ticket| pool.store.is_load_valid(hash, ticket)))
    }

    /// A ticket of the store; `None` if the key is present now.
    fn begin_load(&self, key: &[u8], leader: &Leader<'_>) -> Result<Option<Ticket<'_>>, Error> {
        let pool = &*self.commands.0.pool;
        let hash = pool.store.hash(key);
        let ticket = pool.store.begin_load(key, hash, pool.clock.now_ms()).map_err(Error::from_store)?;
        Ok(ticket.map(|number| {
            leader.set_ticket(number);
            Ticket { store: &pool.store, hash, number }
        }))
    }

    fn publish(&self, key: &[u8], value: &[u8], ttl: Option<Ttl>, ticket: &Ticket<'_>) -> Result<(), Error> {
        publish_by(&self.commands, key, value, ttl.unwrap_or(self.settings.default_ttl), ticket)
    }

    async fn publish_async(&self, key: &[u8], value: &[u8], ttl: Option<Ttl>, ticket: &Ticket<'_>) {
        let commands = self.commands.without_waiting();
        for _ in 0..MAX_PUBLICATIONS {
            let ttl = ttl.unwrap_or(self.settings.default_ttl);
            match publish_by(&commands, key, value, ttl, ticket) {
                Err(Error::WouldWait { .. }) => yield_now().await,
                _ => return,
            }
        }
    }
}

fn publish_by(
    commands: &crate::memcached::Pool,
    key: &[u8],
    value: &[u8],
    ttl: Ttl,
    ticket: &Ticket<'_>,
) -> Result<(), Error> {
    commands.insert(key, value).ttl(ttl).mode(Mode::Load(ticket.number)).apply().map(drop)
}

fn recursive(key: &[u8]) -> Error {
    Error::RecursiveLoad { key: format!("{:?}", Key(key)) }
}

/// Lets the other tasks of the executor run once.
async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// A ticket of the store. Dropping it gives it back.
struct Ticket<'s> {
    store: &'s ebbtide_store::Store,
    hash: u64,
    number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.store.end_load(self.hash, self.number);
    }
}
