//! The results of loaders: values with their TTL, stale window and cost.

use super::insert_options::InsertOptions;
use super::value::Value;
use ebbtide_store::Ttl;
use std::time::Duration;

/// A loaded value and its TTL. A loader returns this, or just a value, which gets the cache's default TTL.
///
/// ```
/// # use ebbtide::{ByteSize, Cache, Loaded};
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// use std::time::Duration;
/// let load = || Loaded::new("Ada").ttl(Duration::from_secs(60));
/// assert_eq!(cache.get_or_insert_with("user:42", load)?, "Ada");
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Loaded {
    pub(super) value: Value,
    pub(super) options: InsertOptions,
}

/// Options of [`crate::Pool::get_or_load`]. A [`Loaded`] value may have a life of its own.
///
/// ```
/// # use ebbtide::{ByteSize, Cache, LoadOptions};
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// use std::time::Duration;
/// let options = LoadOptions::new().ttl(Duration::from_secs(60)).negative_ttl(Duration::from_secs(5));
/// let user = cache.get_or_load("user:42", options, || Ok::<_, std::io::Error>(Some("Ada")));
/// assert_eq!(user.unwrap().unwrap(), "Ada");
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    pub(super) insert: InsertOptions,
    pub(super) negative_ttl: Option<Ttl>,
}

impl LoadOptions {
    /// The cache's default TTL, no stale values, and no negative results.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long a loaded value lives.
    pub fn ttl(mut self, ttl: impl Into<Ttl>) -> Self {
        self.insert = self.insert.ttl(ttl);
        self
    }

    /// How long a loaded value stays after its TTL: see [`crate::Pool::get_or_load`].
    pub fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.insert = self.insert.stale_while_revalidate(window);
        self
    }

    /// The cost of a miss: see [`InsertOptions::cost`].
    pub fn cost(mut self, cost: f64) -> Self {
        self.insert = self.insert.cost(cost);
        self
    }

    /// How long it is remembered that a loader has found no value or has failed.
    pub fn negative_ttl(mut self, ttl: impl Into<Ttl>) -> Self {
        self.negative_ttl = Some(ttl.into());
        self
    }
}

impl Loaded {
    pub fn new(value: impl Into<Value>) -> Self {
        Self { value: value.into(), options: InsertOptions::new() }
    }

    /// How long the value lives in the cache.
    pub fn ttl(mut self, ttl: impl Into<Ttl>) -> Self {
        self.options = self.options.ttl(ttl);
        self
    }

    /// How long the value stays after its TTL: see [`crate::Pool::get_or_load`].
    pub fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.options = self.options.stale_while_revalidate(window);
        self
    }

    /// The cost of a miss: see [`InsertOptions::cost`].
    pub fn cost(mut self, cost: f64) -> Self {
        self.options = self.options.cost(cost);
        self
    }
}

impl<T: Into<Value>> From<T> for Loaded {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// The result of a loader of a [`crate::TypedCache`]: a value, with or without insert options.
///
/// ```
/// # use ebbtide::{ByteSize, Cache, InsertOptions, TypedCache};
/// # use std::time::Duration;
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// # #[cfg(feature = "serde")]
/// # {
/// let users: TypedCache<u64, String> = cache.typed();
/// let a_minute = InsertOptions::new().ttl(Duration::from_secs(60));
/// let load = || Ok::<_, std::io::Error>(("Ada".to_owned(), a_minute));
/// assert_eq!(users.try_get_or_insert_with(&42, load).unwrap(), "Ada");
/// # }
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TypedLoaded<V> {
    pub(super) value: V,
    pub(super) options: InsertOptions,
}

impl<V> From<V> for TypedLoaded<V> {
    fn from(value: V) -> Self {
        Self { value, options: InsertOptions::new() }
    }
}

impl<V> From<(V, InsertOptions)> for TypedLoaded<V> {
    fn from((value, options): (V, InsertOptions)) -> Self {
        Self { value, options }
    }
}
