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

use super::entry_kind::EntryKind;
use super::insert_options::{InsertOptions, Life};
use super::load_options::{LoadOptions, Loaded};
use super::load_table::{Join, Leader, Load, Outcome};
use super::load_wait::LoadWait;
use super::pool::{Pool, with_bytes};
use super::value::Value;
use crate::debug::Key;
use crate::error::Error;
use crate::flash::resolve::ReadPurpose;
use crate::lookup::Item;
use ebbtide_store::{Mode, Objective, Ttl};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

/// Why a key was not loaded. No value was written to the cache. It is a [`std::error::Error`] if that of the loader is
/// one, which is then its source.
///
/// ```
/// # use ebbtide::{ByteSize, Cache, LoadError};
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// let number = cache.try_get_or_insert_with("k", || "x".parse::<u8>().map(|number| [number]));
/// match number {
///     Ok(number) => println!("{}", number[0]),
///     Err(LoadError::Loader(error)) => println!("the text is no number: {error}"),
///     Err(LoadError::Cache(error)) => println!("ask the source without the cache: {error}"),
/// }
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError<E> {
    /// The loader of this call has failed, with this error: the cache is sound, and the source is to be asked again or
    /// the error to be passed on. With `negative_ttl` the next calls get [`Error::KnownFailure`] instead of a load.
    #[error("{0}")]
    Loader(#[source] E),
    /// The cache refuses the load, and no loader has answered this call. By the error the caller
    /// - asks the source itself, without the cache: [`Error::LoadTimeout`], [`Error::PoolRemoved`];
    /// - treats the key as absent until its `negative_ttl` is over: [`Error::KnownAbsent`], [`Error::KnownFailure`];
    /// - corrects the program: [`Error::RecursiveLoad`] and [`Error::KeyLength`] come again at each call.
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

/// The error of a load whose loader may answer an error of the cache, too.
pub(super) fn flatten<E>(error: LoadError<LoadError<E>>) -> LoadError<E> {
    match error {
        LoadError::Loader(error) => error,
        LoadError::Cache(error) => error.into(),
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
    /// than the cache's `load_timeout`; `KnownAbsent`, `KnownFailure` if [`Pool::get_or_load`] remembers a negative
    /// result; `KeyLength`, `PoolRemoved`.
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
    /// ```
    /// # use ebbtide::{ByteSize, Cache, LoadError};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let number = cache.try_get_or_insert_with("number", || "42".parse::<u8>().map(|number| [number]));
    /// assert_eq!(&number.unwrap()[..], [42]);
    /// let error = cache.try_get_or_insert_with("text", || "a text".parse::<u8>().map(|number| [number])).unwrap_err();
    /// assert!(matches!(error, LoadError::Loader(_)));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `LoadError::Loader` of the loader; `LoadError::Cache` as `get_or_insert_with`.
    pub fn try_get_or_insert_with<V: Into<Loaded>, E>(
        &self,
        key: impl AsRef<[u8]>,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<Value, LoadError<E>> {
        let key = key.as_ref();
        let load = || load().map(Some);
        self.get_or_load(key, LoadOptions::new(), load)?.ok_or_else(|| known_absent(key).into())
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
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// let page = cache.try_get_or_insert_with_async("/", async { Ok::<_, std::io::Error>("<html>") }).await;
    /// assert_eq!(page.unwrap(), "<html>");
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `try_get_or_insert_with`.
    pub async fn try_get_or_insert_with_async<V: Into<Loaded>, E>(
        &self,
        key: impl AsRef<[u8]>,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<Value, LoadError<E>> {
        let key = key.as_ref();
        let load = async { load.await.map(Some) };
        self.get_or_load_async(key, LoadOptions::new(), load).await?.ok_or_else(|| known_absent(key).into())
    }

    /// The value of a key, by a loader that may find that there is none, with options for what is remembered.
    ///
    /// - **Stale values.** With [`LoadOptions::stale_while_revalidate`] the value stays for this long after its TTL. In
    ///   that time one caller runs its loader and returns the new value; all others return the stale value at once. If
    ///   that loader fails, the stale value stays, and the next caller runs its own.
    /// - **Negative results.** With [`LoadOptions::negative_ttl`] it is remembered that a loader has answered `None` or
    ///   has failed. In that time callers get the same answer without a load: `None`, or
    ///   [`Error::KnownFailure`](crate::Error::KnownFailure).
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, loading::LoadOptions};
    /// # use std::{convert::Infallible, time::Duration};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let options = LoadOptions::new().ttl(Duration::from_secs(60)).negative_ttl(Duration::from_secs(5));
    /// let mut loads = 0;
    /// for _ in 0..2 {
    ///     let user = cache.get_or_load("user:42", options, || {
    ///         loads += 1;
    ///         Ok::<Option<&str>, Infallible>(None)
    ///     });
    ///     assert_eq!(user, Ok(None));
    /// }
    /// assert_eq!(loads, 1);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `LoadError::Loader` of the loader; `LoadError::Cache` as `get_or_insert_with`.
    pub fn get_or_load<V: Into<Loaded>, E>(
        &self,
        key: impl AsRef<[u8]>,
        options: LoadOptions,
        load: impl FnOnce() -> Result<Option<V>, E>,
    ) -> Result<Option<Value>, LoadError<E>> {
        let key = key.as_ref();
        let found = self.look(key);
        self.count(!matches!(found, Look::Missing));
        self.load_after(key, found, options, (|| false, |_: &[u8]| true), load)
    }

    /// Returns what a look has found, or loads. `is_absent` tells a leader, before its loader runs, that another caller
    /// has found meanwhile that the key has no value. A value that `accepts` refuses is loaded anew.
    pub(super) fn load_after<V: Into<Loaded>, E>(
        &self,
        key: &[u8],
        mut found: Look,
        options: LoadOptions,
        (is_absent, accepts): (impl Fn() -> bool, impl Fn(&[u8]) -> bool),
        load: impl FnOnce() -> Result<Option<V>, E>,
    ) -> Result<Option<Value>, LoadError<E>> {
        let deadline = self.load_deadline();
        // Each further round follows a change by another thread, or a loader that failed.
        loop {
            match self.load_step(key, found, &accepts)? {
                LoadStep::Return(value) => return Ok(value),
                LoadStep::Wait(running) => {
                    if let Some(value) = self.loaded_by_other(running.wait(deadline))? {
                        return Ok(value);
                    }
                }
                LoadStep::Lead(leader, _) if is_absent() => {
                    leader.finish(Outcome::Absent);
                    return Ok(None);
                }
                LoadStep::Lead(leader, ticket) => {
                    let loaded = leader.run(load).map(|value| value.map(Into::into));
                    if let Some((value, life)) = self.publication(&loaded, options, &ticket) {
                        // A value that the cache has no memory for is returned all the same.
                        let _ = life.write(&self.commands, key, &value, ticket.mode);
                    }
                    return conclude(loaded, leader);
                }
                LoadStep::LookAgain => {}
            }
            found = self.look(key).accepted(&accepts);
        }
    }

    /// As `get_or_load`, for tasks of any executor.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, LoadOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// let options = LoadOptions::new().negative_ttl(std::time::Duration::from_secs(5));
    /// let load = async { Ok::<Option<&str>, std::io::Error>(None) };
    /// assert!(cache.get_or_load_async("user:42", options, load).await.unwrap().is_none());
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get_or_load`.
    pub async fn get_or_load_async<V: Into<Loaded>, E>(
        &self,
        key: impl AsRef<[u8]>,
        options: LoadOptions,
        load: impl Future<Output = Result<Option<V>, E>>,
    ) -> Result<Option<Value>, LoadError<E>> {
        let key = key.as_ref();
        let found = self.look_async(key).await;
        self.count(!matches!(found, Look::Missing));
        self.load_after_async(key, found, options, (|| false, |_: &[u8]| true), load).await
    }

    /// As `load_after`, for tasks.
    pub(super) async fn load_after_async<V: Into<Loaded>, E>(
        &self,
        key: &[u8],
        mut found: Look,
        options: LoadOptions,
        (is_absent, accepts): (impl Fn() -> bool, impl Fn(&[u8]) -> bool),
        load: impl Future<Output = Result<Option<V>, E>>,
    ) -> Result<Option<Value>, LoadError<E>> {
        let deadline = self.load_deadline();
        let mut load = pin!(load);
        // Each further round follows a change by another thread, or a loader that failed.
        loop {
            match self.load_step(key, found, &accepts)? {
                LoadStep::Return(value) => return Ok(value),
                LoadStep::Wait(running) => {
                    if let Some(value) = self.loaded_by_other(LoadWait::new(running, deadline).await)? {
                        return Ok(value);
                    }
                }
                LoadStep::Lead(leader, _) if is_absent() => {
                    leader.finish(Outcome::Absent);
                    return Ok(None);
                }
                LoadStep::Lead(leader, ticket) => {
                    let loaded = poll_fn(|context| leader.run(|| load.as_mut().poll(context))).await;
                    let loaded = loaded.map(|value| value.map(Into::into));
                    if let Some((value, life)) = self.publication(&loaded, options, &ticket) {
                        let (commands, mode) = (self.commands.without_waiting(), ticket.mode);
                        let write = |commands: &_| life.write(commands, key, &value, mode);
                        let _ = self.write_async(&commands, write).await;
                    }
                    return conclude(loaded, leader);
                }
                LoadStep::LookAgain => {}
            }
            found = self.look_async(key).await.accepted(&accepts);
        }
    }
}

/// The next step of a caller with a loader.
enum LoadStep<'p> {
    Return(Option<Value>),
    /// Another caller loads the key.
    Wait(Arc<Load>),
    /// This caller runs its loader, and publishes with the ticket.
    Lead(Leader<'p>, Ticket<'p>),
    /// The key has changed since the look.
    LookAgain,
}

/// The state of a key for a caller with a loader.
pub(super) enum Look {
    Value(Value),
    Stale(Value),
    /// A loader has found no value.
    Absent,
    /// A loader has failed.
    Failed,
    /// A value that the caller cannot use.
    Refused,
    Missing,
}

impl Look {
    fn of(pool: &Pool, item: &Item<'_>) -> Self {
        match EntryKind::of(item) {
            EntryKind::Absent => Self::Absent,
            EntryKind::Failed => Self::Failed,
            kind if pool.is_stale(kind) => Self::Stale(Value::of(item)),
            _ => Self::Value(Value::of(item)),
        }
    }

    /// Turns a value that the caller refuses into [`Self::Refused`]; everything else is returned unchanged.
    fn accepted(self, accepts: &impl Fn(&[u8]) -> bool) -> Self {
        match self {
            Self::Value(value) | Self::Stale(value) if !accepts(&value) => Self::Refused,
            other => other,
        }
    }
}

impl Pool {
    pub(super) fn look(&self, key: &[u8]) -> Look {
        let lookup = self.commands.get(key);
        let is_idle = lookup.item().is_some_and(|item| self.is_half_idle(item));
        let look = lookup.item().map_or(Look::Missing, |item| Look::of(self, item));
        if is_idle {
            // A thread that writes must not hold an item.
            drop(lookup);
            self.touch_idle(&self.commands, key);
        }
        look
    }

    pub(super) async fn look_async(&self, key: &[u8]) -> Look {
        let read = |pool: &Pool, item: &Item<'_>| Some(Look::of(pool, item));
        let look = self.look_up_async(&[key], ReadPurpose::Answer, read).await.pop().flatten();
        look.unwrap_or(Look::Missing)
    }

    fn load_step(&self, key: &[u8], found: Look, accepts: &impl Fn(&[u8]) -> bool) -> Result<LoadStep<'_>, Error> {
        let (stale, present) = match found {
            Look::Value(value) => return Ok(LoadStep::Return(Some(value))),
            Look::Absent => return Ok(LoadStep::Return(None)),
            Look::Failed => return Err(known_failure(key)),
            Look::Stale(value) => (Some(value), Some(Present::Stale)),
            Look::Refused => (None, Some(Present::Refused)),
            Look::Missing => (None, None),
        };
        Ok(match self.join_load(key)? {
            Join::Recursive => LoadStep::Return(Some(stale.ok_or_else(|| recursive(key))?)),
            Join::Wait(_) if stale.is_some() => LoadStep::Return(stale),
            Join::Wait(running) => LoadStep::Wait(running),
            Join::Lead(leader) => match self.begin_load(key, &leader, present, accepts)? {
                Some(ticket) => LoadStep::Lead(leader, ticket),
                None => LoadStep::LookAgain,
            },
        })
    }

    /// The answer after the load of another caller; `None` if that was abandoned.
    fn loaded_by_other(&self, outcome: Option<Outcome>) -> Result<Option<Option<Value>>, Error> {
        match outcome {
            Some(Outcome::Loaded(value)) => Ok(Some(Some(value.into()))),
            Some(Outcome::Absent) => Ok(Some(None)),
            Some(Outcome::Abandoned) => Ok(None),
            None => Err(self.load_timed_out()),
        }
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

    /// A ticket of the store; `None` if another caller has ended a load of the key since this one has looked.
    fn begin_load(
        &self,
        key: &[u8],
        leader: &Leader<'_>,
        present: Option<Present>,
        accepts: &impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Ticket<'_>>, Error> {
        let pool = &*self.commands.0.pool;
        let (hash, now_ms) = (pool.store.hash(key), pool.clock.now_ms());
        let number = match present {
            Some(_) => pool.store.begin_reload(key, hash).map(Some),
            None => pool.store.begin_load(key, hash, now_ms),
        };
        let Some(number) = number.map_err(Error::from_store)? else { return Ok(None) };
        let mode = if present.is_some() { Mode::Reload(number) } else { Mode::Load(number) };
        let began = (pool.store.objective() == Objective::Cost).then(Instant::now);
        let ticket = Ticket { store: &pool.store, hash, number, mode, present, began };
        let is_renewed = |item: &Item<'_>| {
            let kind = EntryKind::of(item);
            !self.is_stale(kind) && (!kind.has_value() || with_bytes(item, accepts))
        };
        if present.is_some() && self.commands.peek(key).item().is_some_and(is_renewed) {
            return Ok(None);
        }
        leader.set_ticket(number);
        Ok(Some(ticket))
    }

    /// The value that is written after a load; `None` for nothing.
    fn publication<E>(
        &self,
        loaded: &Result<Option<Loaded>, E>,
        options: LoadOptions,
        ticket: &Ticket<'_>,
    ) -> Option<(Value, Life)> {
        let with_cost = |options: InsertOptions| match ticket.began {
            Some(began) => options.cost_or(|| began.elapsed().as_secs_f64() * 1000.0),
            None => options,
        };
        let negative = |ttl, kind| (Value::from(""), self.life(with_cost(options.insert)).of_kind(ttl, kind));
        match (loaded, options.negative_ttl) {
            (Ok(Some(loaded)), _) => {
                Some((loaded.value.clone(), self.life(with_cost(loaded.options.or(options.insert)))))
            }
            (Ok(None), Some(ttl)) => Some(negative(ttl, EntryKind::Absent)),
            // Removes the stale or refused value.
            (Ok(None), None) => ticket.present.map(|_| negative(Ttl::Expired, EntryKind::Absent)),
            (Err(_), Some(ttl)) if ticket.present != Some(Present::Stale) => Some(negative(ttl, EntryKind::Failed)),
            (Err(_), _) => None,
        }
    }
}

/// Ends a load: its waiters return, or run their own loaders.
fn conclude<E>(loaded: Result<Option<Loaded>, E>, leader: Leader<'_>) -> Result<Option<Value>, LoadError<E>> {
    match loaded {
        Ok(Some(Loaded { value, .. })) => {
            leader.finish(Outcome::Loaded(value.to_shared()));
            Ok(Some(value))
        }
        Ok(None) => {
            leader.finish(Outcome::Absent);
            Ok(None)
        }
        Err(error) => Err(LoadError::Loader(error)),
    }
}

fn recursive(key: &[u8]) -> Error {
    Error::RecursiveLoad { key: format!("{:?}", Key(key)) }
}

fn known_failure(key: &[u8]) -> Error {
    Error::KnownFailure { key: format!("{:?}", Key(key)) }
}

pub(super) fn known_absent(key: &[u8]) -> Error {
    Error::KnownAbsent { key: format!("{:?}", Key(key)) }
}

/// The present value of a key that is loaded anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Present {
    /// It stays if the loader fails.
    Stale,
    /// The caller cannot use it.
    Refused,
}

/// A ticket of the store. Dropping it gives it back.
struct Ticket<'s> {
    store: &'s ebbtide_store::Store,
    hash: u64,
    number: u64,
    /// Of the write that publishes with it.
    mode: Mode,
    present: Option<Present>,
    /// When the loader began, if its time is the cost of the value.
    began: Option<Instant>,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.store.end_load(self.hash, self.number);
    }
}
