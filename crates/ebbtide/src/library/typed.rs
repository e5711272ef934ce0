//! Typed views of a pool: keys and values are encoded by a codec.

#[cfg(feature = "serde")]
use super::codec::Postcard;
use super::codec::{Codec, EncodeKey};
use super::insert_options::InsertOptions;
use super::iter::Iter;
use super::load_options::{LoadOptions, Loaded, TypedLoaded};
use super::loader::{LoadError, Look, flatten, known_absent};
use super::pool::Pool;
use super::value::Value;
use crate::error::Error;
use ebbtide_store::Ttl;
use std::borrow::Borrow;
use std::convert::Infallible;
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
    /// The value of a key. All calls with a key take it in a borrowed form, too, which [`EncodeKey`] encodes: a `&str`
    /// for a `String`.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// names.insert(&key, &name)?;
    /// assert_eq!(names.get("1")?, Some(name));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Codec` if the key or the value does not fit the codec.
    pub fn get<Q: ?Sized>(&self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
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
    pub fn contains_key<Q: ?Sized>(&self, key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
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
    /// names.insert("1", &name)?;
    /// assert!(names.contains_key(&key)?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Codec`; as [`Pool::insert`].
    pub fn insert<Q: ?Sized>(&self, key: &Q, value: &V) -> Result<(), Error>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
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
    pub fn insert_with<Q: ?Sized>(&self, key: &Q, value: &V, options: InsertOptions) -> Result<(), Error>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
        self.pool.insert_with(self.key(key)?, self.encoded(value)?, options)
    }

    /// Writes many values with the default TTL: see [`Pool::insert_many`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// names.insert_many(&[("1".to_owned(), "Ada".to_owned()), ("2".to_owned(), "Grace".to_owned())])?;
    /// assert_eq!(names.get("2")?.as_deref(), Some("Grace"));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Codec` if one of the keys or values does not fit the codec: nothing is written. The first of those of
    /// [`Pool::insert`]: the other values are written.
    pub fn insert_many(&self, entries: &[(K, V)]) -> Result<(), Error> {
        let encoded = entries.iter().map(|(key, value)| Ok((self.key(key)?, self.encoded(value)?)));
        self.pool.insert_many(&encoded.collect::<Result<Vec<_>, Error>>()?).into_iter().collect()
    }

    /// Writes a value if the key is absent. False, with nothing changed, if it is present.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// assert!(names.insert_if_absent("1", &name, InsertOptions::new())?);
    /// assert!(!names.insert_if_absent(&key, &name, InsertOptions::new())?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Codec`; as [`Pool::insert_if_absent`].
    pub fn insert_if_absent<Q: ?Sized>(&self, key: &Q, value: &V, options: InsertOptions) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
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
    /// `Codec`; `Closed`.
    pub fn remove<Q: ?Sized>(&self, key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
        let was_present = self.pool.remove(self.key(key)?);
        self.pool.commands.0.removal(was_present)
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
    pub fn touch<Q: ?Sized>(&self, key: &Q, ttl: impl Into<Ttl>) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
        self.pool.touch(self.key(key)?, ttl)
    }
}

/// Loading. A value that the codec refuses, as one of a former type in a memory file or on flash, counts as a miss: it
/// is loaded anew and replaced, and [`crate::Stats::undecodable`] counts it. `get` answers `Codec` for it, and changes
/// nothing. So two views of one pool with different types of values and the same keys replace each other's values.
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
    /// `Codec` if the codec refuses the key or the loaded value; as [`Pool::get_or_insert_with`].
    pub fn get_or_insert_with<Q: ?Sized>(&self, key: &Q, load: impl FnOnce() -> V) -> Result<V, Error>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
        let load = || Ok::<_, LoadError<Infallible>>(Some(self.encoded(&load())?.into()));
        let key = self.key(key)?;
        self.load(&key, LoadOptions::new(), load)?.ok_or_else(|| known_absent(&key))
    }

    /// As `get_or_insert_with`, with a loader that may fail. It returns a value, or a value with options, as a TTL of
    /// its own.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// assert_eq!(names.try_get_or_insert_with(&key, || Ok::<_, std::io::Error>(name)).unwrap(), "Ada");
    /// let a_minute = InsertOptions::new().ttl(std::time::Duration::from_secs(60));
    /// let load = || Ok::<_, std::io::Error>(("Grace".to_owned(), a_minute));
    /// assert_eq!(names.try_get_or_insert_with("2", load).unwrap(), "Grace");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `LoadError::Loader` of the loader; `LoadError::Cache` as `get_or_insert_with`.
    pub fn try_get_or_insert_with<Q: ?Sized, L: Into<TypedLoaded<V>>, E>(
        &self,
        key: &Q,
        load: impl FnOnce() -> Result<L, E>,
    ) -> Result<V, LoadError<E>>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
        let load = || self.loaded(load().map(Some));
        let key = self.key(key)?;
        self.load(&key, LoadOptions::new(), load)?.ok_or_else(|| known_absent(&key).into())
    }

    /// The value of a key, by a loader that may find that there is none; with options for stale values and negative
    /// results, and `None` for a key without a value: see [`Pool::get_or_load`]. Options that the loader returns with
    /// a value come before `options`.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, LoadOptions, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let key = "1".to_owned();
    /// let options = LoadOptions::new().negative_ttl(std::time::Duration::from_secs(5));
    /// assert_eq!(names.get_or_load(&key, options, || Ok::<Option<String>, std::fmt::Error>(None)).unwrap(), None);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `LoadError::Loader` of the loader; `LoadError::Cache` as [`Pool::get_or_load`], and `Codec`. A value that the
    /// codec refuses is a loader that has failed.
    pub fn get_or_load<Q: ?Sized, L: Into<TypedLoaded<V>>, E>(
        &self,
        key: &Q,
        options: LoadOptions,
        load: impl FnOnce() -> Result<Option<L>, E>,
    ) -> Result<Option<V>, LoadError<E>>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
        self.load(&self.key(key)?, options, || self.loaded(load()))
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
    pub(super) fn key<Q: ?Sized>(&self, key: &Q) -> Result<Vec<u8>, Error>
    where
        C: EncodeKey<Q>,
    {
        let mut bytes = Vec::new();
        self.codec.encode_key(key, &mut bytes).map_err(|error| refuse("key", &error))?;
        Ok(bytes)
    }

    pub(super) fn keys(&self, keys: &[K]) -> Result<Vec<Vec<u8>>, Error> {
        keys.iter().map(|key| self.key(key)).collect()
    }

    pub(super) fn encoded(&self, value: &V) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.codec.encode(value, &mut bytes).map_err(|error| refuse("value", &error))?;
        Ok(bytes)
    }

    pub(super) fn loaded<E>(
        &self,
        loaded: Result<Option<impl Into<TypedLoaded<V>>>, E>,
    ) -> Result<Option<Loaded>, LoadError<E>> {
        let Some(loaded) = loaded.map_err(LoadError::Loader)? else { return Ok(None) };
        let TypedLoaded { value, options } = loaded.into();
        Ok(Some(Loaded { value: self.encoded(&value)?.into(), options }))
    }

    /// The value of a key, decoded, or of the loader.
    fn load<E>(
        &self,
        key: &[u8],
        options: LoadOptions,
        load: impl FnOnce() -> Result<Option<Loaded>, LoadError<E>>,
    ) -> Result<Option<V>, LoadError<E>> {
        let found = match self.decoded(self.pool.look(key)) {
            Ok(value) => return Ok(Some(value)),
            Err(found) => found,
        };
        let conditions = (|| false, |bytes: &[u8]| self.decodes(bytes));
        let value = self.pool.load_after(key, found, options, conditions, load);
        Ok(value.map_err(flatten)?.map(|value| self.value(&value)).transpose()?)
    }

    /// The value that a call with a loader has found, counted. `Err`: the result from which it loads. A value that the
    /// codec refuses is loaded anew.
    pub(super) fn decoded(&self, found: Look) -> Result<V, Look> {
        let (found, value) = match found {
            Look::Value(bytes) => match self.value(&bytes) {
                Ok(value) => (Look::Missing, Some(value)),
                Err(_) => (Look::Refused, None),
            },
            Look::Stale(bytes) if !self.decodes(&bytes) => (Look::Refused, None),
            other => (other, None),
        };
        if let Look::Refused = found {
            self.pool.count_undecodable();
        }
        self.pool.count(value.is_some() || !matches!(found, Look::Missing | Look::Refused));
        value.ok_or(found)
    }

    pub(super) fn decodes(&self, bytes: &[u8]) -> bool {
        decode::<V>(&self.codec, bytes, "value").is_ok()
    }

    pub(super) fn value(&self, value: &Value) -> Result<V, Error> {
        decode(&self.codec, value, "value")
    }

    pub(super) fn values(&self, values: Vec<Option<Value>>) -> Result<Vec<Option<V>>, Error> {
        values.into_iter().map(|value| value.map(|value| self.value(&value)).transpose()).collect()
    }
}

fn decode<T>(codec: &impl Codec<T>, bytes: &[u8], part: &'static str) -> Result<T, Error> {
    codec.decode(bytes).map_err(|error| refuse(part, &error))
}

pub(super) fn refuse(part: &'static str, error: &impl Display) -> Error {
    Error::Codec { part, reason: error.to_string() }
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
