//! Typed views of a pool: keys and values are encoded by a codec.

use super::codec::Codec;
#[cfg(feature = "serde")]
use super::codec::Postcard;
use super::insert_options::InsertOptions;
use super::iter::Iter;
use super::loader::{self, LoadError, LoadOptions, Loaded};
use super::pool::Pool;
use super::value::Value;
use crate::error::Error;
use ebbtide_store::Ttl;
use std::fmt::{Debug, Display, Formatter};
use std::marker::PhantomData;

/// A pool with keys of type `K` and values of type `V`; made by [`Pool::typed_with`], or by `Pool::typed` with the
/// feature `serde`, which is the default codec. A clone is a view of the same pool.
///
/// ```
/// # use ebbtide::{ByteSize, Cache, PlainBytes, TypedCache};
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// let names: TypedCache<String, Vec<u8>, PlainBytes> = cache.typed_with(PlainBytes);
/// names.insert(&"42".to_owned(), &b"Ada".to_vec())?;
/// assert_eq!(names.get(&"42".to_owned())?, Some(b"Ada".to_vec()));
/// # Ok::<(), ebbtide::Error>(())
/// ```
pub struct TypedCache<K, V, #[cfg(feature = "serde")] C = Postcard, #[cfg(not(feature = "serde"))] C> {
    pool: Pool,
    pub(super) codec: C,
    types: PhantomData<fn(K) -> V>,
}

/// Iterates over the keys and values of a typed cache, as [`Iter`] does over those of its pool. Made by
/// [`TypedCache::iter`].
///
/// An entry that the codec refuses, as one that was written to the pool with other types, is an error; the next call
/// goes on behind it.
pub struct TypedIter<K, V, C> {
    entries: Iter,
    codec: C,
    types: PhantomData<fn() -> (K, V)>,
}

impl Pool {
    /// A view of this pool with typed keys and values.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let pages = cache.typed_with::<String, String, _>(PlainBytes);
    /// pages.insert(&"/".to_owned(), &"<html>".to_owned())?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn typed_with<K, V, C: Codec<K> + Codec<V>>(&self, codec: C) -> TypedCache<K, V, C> {
        TypedCache { pool: self.clone(), codec, types: PhantomData }
    }

    /// A view of this pool with keys and values that serde serializes.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, TypedCache};
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct User {
    ///     name: String,
    ///     logins: u32,
    /// }
    ///
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let users: TypedCache<u64, User> = cache.typed();
    /// users.insert(&42, &User { name: "Ada".to_owned(), logins: 1 })?;
    /// assert_eq!(users.get(&42)?.map(|user| user.logins), Some(1));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    #[cfg(feature = "serde")]
    pub fn typed<K, V>(&self) -> TypedCache<K, V>
    where
        Postcard: Codec<K> + Codec<V>,
    {
        self.typed_with(Postcard)
    }
}

/// Lookups.
impl<K, V, C: Codec<K> + Codec<V>> TypedCache<K, V, C> {
    /// The value of a key.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// names.insert(&key, &name)?;
    /// assert_eq!(names.get(&key)?, Some(name));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Codec` if the key or the value does not fit the codec.
    pub fn get(&self, key: &K) -> Result<Option<V>, Error> {
        self.pool.get(self.key(key)?).map(|value| self.value(&value)).transpose()
    }

    /// The values of many keys, in the order of the keys: see [`Pool::get_many`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// names.insert(&"1".to_owned(), &"Ada".to_owned())?;
    /// let found = names.get_many(&["1".to_owned(), "2".to_owned()])?;
    /// assert_eq!(found, [Some("Ada".to_owned()), None]);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Codec` if one of the keys or values does not fit the codec.
    pub fn get_many(&self, keys: &[K]) -> Result<Vec<Option<V>>, Error> {
        self.values(self.pool.get_many(&self.keys(keys)?))
    }

    /// Whether a get would find the key. It is no lookup for the statistics.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let key = "1".to_owned();
    /// assert!(!names.contains_key(&key)?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Codec` if the key does not fit the codec.
    pub fn contains_key(&self, key: &K) -> Result<bool, Error> {
        Ok(self.pool.contains_key(self.key(key)?))
    }

    /// Iterates over all entries.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// names.insert(&"1".to_owned(), &"Ada".to_owned())?;
    /// let all = names.iter()?.collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(all, [("1".to_owned(), "Ada".to_owned())]);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ScanLimit`: at most eight iterations at a time.
    pub fn iter(&self) -> Result<TypedIter<K, V, C>, Error>
    where
        C: Clone,
    {
        Ok(TypedIter { entries: self.pool.iter()?, codec: self.codec.clone(), types: PhantomData })
    }
}

/// Writes.
impl<K, V, C: Codec<K> + Codec<V>> TypedCache<K, V, C> {
    /// Writes a value with the default TTL.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// names.insert(&key, &name)?;
    /// assert!(names.contains_key(&key)?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Codec`; as [`Pool::insert`].
    pub fn insert(&self, key: &K, value: &V) -> Result<(), Error> {
        self.insert_with(key, value, InsertOptions::new())
    }

    /// Writes a value with options.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// let a_minute = InsertOptions::new().ttl(std::time::Duration::from_secs(60));
    /// names.insert_with(&key, &name, a_minute)?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `insert`.
    pub fn insert_with(&self, key: &K, value: &V, options: InsertOptions) -> Result<(), Error> {
        self.pool.insert_with(self.key(key)?, self.encoded(value)?, options)
    }

    /// Writes a value if the key is absent. False, with nothing changed, if it is present.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// assert!(names.insert_if_absent(&key, &name, InsertOptions::new())?);
    /// assert!(!names.insert_if_absent(&key, &name, InsertOptions::new())?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Codec`; as [`Pool::insert_if_absent`].
    pub fn insert_if_absent(&self, key: &K, value: &V, options: InsertOptions) -> Result<bool, Error> {
        self.pool.insert_if_absent(self.key(key)?, self.encoded(value)?, options)
    }

    /// Removes a key. False if it was absent.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// names.insert(&key, &name)?;
    /// assert!(names.remove(&key)? && !names.remove(&key)?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Codec`.
    pub fn remove(&self, key: &K) -> Result<bool, Error> {
        Ok(self.pool.remove(self.key(key)?))
    }

    /// Gives an entry a new TTL, from now on: see [`Pool::touch`]. False if the key is absent.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// names.insert(&key, &name)?;
    /// assert!(names.touch(&key, std::time::Duration::from_secs(600))?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Codec`; as [`Pool::touch`].
    pub fn touch(&self, key: &K, ttl: impl Into<Ttl>) -> Result<bool, Error> {
        self.pool.touch(self.key(key)?, ttl)
    }
}

/// Loading.
impl<K, V, C: Codec<K> + Codec<V>> TypedCache<K, V, C> {
    /// The value of a key; if it is absent, the value that `load` returns: see [`Pool::get_or_insert_with`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// assert_eq!(names.get_or_insert_with(&"1".to_owned(), || "Ada".to_owned())?, "Ada");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Codec`; as [`Pool::get_or_insert_with`].
    pub fn get_or_insert_with(&self, key: &K, load: impl FnOnce() -> V) -> Result<V, Error> {
        let key = self.key(key)?;
        let value = self.pool.try_get_or_insert_with(key, || self.encoded(&load()));
        self.value(&value.map_err(flatten)?)
    }

    /// As `get_or_insert_with`, with a loader that may fail and that chooses the TTL of each value: a short one for a
    /// key that does not exist, for example.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// let load = || Ok::<_, std::io::Error>((name, InsertOptions::new()));
    /// assert_eq!(names.try_get_or_insert_with(&key, load).unwrap(), "Ada");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `LoadError::Loader` of the loader; `LoadError::Cache` as `get_or_insert_with`.
    pub fn try_get_or_insert_with<E>(
        &self,
        key: &K,
        load: impl FnOnce() -> Result<(V, InsertOptions), E>,
    ) -> Result<V, LoadError<E>> {
        let key = self.key(key)?;
        let value = self.pool.try_get_or_insert_with(key, || self.encoded_load(load()));
        Ok(self.value(&value.map_err(loader::flatten)?)?)
    }

    /// The value of a key, by a loader that may find that there is none; with options for stale values and negative
    /// results, and `None` for a key without a value: see [`Pool::get_or_load`]. The loader chooses the TTL of each
    /// value; [`InsertOptions::new`] leaves it to `options`.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, LoadOptions, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let key = "1".to_owned();
    /// let options = LoadOptions::new().negative_ttl(std::time::Duration::from_secs(5));
    /// assert_eq!(names.get_or_load(&key, options, || Ok::<_, std::fmt::Error>(None)).unwrap(), None);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `LoadError::Loader` of the loader; `LoadError::Cache` as [`Pool::get_or_load`], and `Codec`. A value that the
    /// codec refuses is a loader that has failed.
    pub fn get_or_load<E>(
        &self,
        key: &K,
        options: LoadOptions,
        load: impl FnOnce() -> Result<Option<(V, InsertOptions)>, E>,
    ) -> Result<Option<V>, LoadError<E>> {
        let value = self.pool.get_or_load(self.key(key)?, options, || self.loaded(load()));
        Ok(value.map_err(loader::flatten)?.map(|value| self.value(&value)).transpose()?)
    }
}

impl<K, V, C> TypedCache<K, V, C> {
    /// The untyped pool.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// names.insert(&key, &name)?;
    /// assert_eq!(names.pool().get("1").unwrap(), "Ada");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl<K, V, C: Codec<K> + Codec<V>> TypedCache<K, V, C> {
    pub(super) fn key(&self, key: &K) -> Result<Vec<u8>, Error> {
        encode(&self.codec, key, "key")
    }

    pub(super) fn keys(&self, keys: &[K]) -> Result<Vec<Vec<u8>>, Error> {
        keys.iter().map(|key| self.key(key)).collect()
    }

    pub(super) fn encoded(&self, value: &V) -> Result<Vec<u8>, Error> {
        encode(&self.codec, value, "value")
    }

    pub(super) fn encoded_load<E>(&self, loaded: Result<(V, InsertOptions), E>) -> Result<Loaded, LoadError<E>> {
        let (value, options) = loaded.map_err(LoadError::Loader)?;
        Ok(Loaded { value: self.encoded(&value)?.into(), options })
    }

    pub(super) fn loaded<E>(
        &self,
        loaded: Result<Option<(V, InsertOptions)>, E>,
    ) -> Result<Option<Loaded>, LoadError<E>> {
        loaded.map_err(LoadError::Loader)?.map(|loaded| self.encoded_load(Ok(loaded))).transpose()
    }

    pub(super) fn value(&self, value: &Value) -> Result<V, Error> {
        decode(&self.codec, value, "value")
    }

    pub(super) fn values(&self, values: Vec<Option<Value>>) -> Result<Vec<Option<V>>, Error> {
        values.into_iter().map(|value| value.map(|value| self.value(&value)).transpose()).collect()
    }
}

fn encode<T>(codec: &impl Codec<T>, value: &T, part: &'static str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    codec.encode(value, &mut bytes).map_err(|error| refuse(part, &error))?;
    Ok(bytes)
}

fn decode<T>(codec: &impl Codec<T>, bytes: &[u8], part: &'static str) -> Result<T, Error> {
    codec.decode(bytes).map_err(|error| refuse(part, &error))
}

pub(super) fn refuse(part: &'static str, error: &impl Display) -> Error {
    Error::Codec { part, reason: error.to_string() }
}

pub(super) fn flatten(error: LoadError<Error>) -> Error {
    match error {
        LoadError::Loader(error) | LoadError::Cache(error) => error,
    }
}

impl<K, V, C: Codec<K> + Codec<V>> Iterator for TypedIter<K, V, C> {
    type Item = Result<(K, V), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = self.entries.next()?;
        let key = decode(&self.codec, &key, "key");
        Some(key.and_then(|key| Ok((key, decode(&self.codec, &value, "value")?))))
    }
}

impl<K, V, C: Clone> Clone for TypedCache<K, V, C> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), codec: self.codec.clone(), types: PhantomData }
    }
}

impl<K, V, C> Debug for TypedCache<K, V, C> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TypedCache").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl<K, V, C> Debug for TypedIter<K, V, C> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TypedIter").field("entries", &self.entries).finish_non_exhaustive()
    }
}
