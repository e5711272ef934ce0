//! The calls of typed caches for tasks.

use super::codec::{Codec, EncodeKey};
use super::insert_options::InsertOptions;
use super::load_options::{LoadOptions, Loaded, TypedLoaded};
use super::loader::{LoadError, flatten, known_absent};
use super::typed::TypedCache;
use crate::error::Error;
use ebbtide_store::Ttl;
use std::borrow::Borrow;
use std::convert::Infallible;

/// For tasks of any executor; no call blocks it.
impl<K, V, C: Codec<K> + Codec<V>> TypedCache<K, V, C> {
    /// As `get`: see [`Pool::get_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let key = "1".to_owned();
    /// # let task = async {
    /// assert_eq!(names.get_async(&key).await?, None);
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get`.
    pub async fn get_async<Q: ?Sized>(&self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
        self.pool().get_async(self.key(key)?).await.map(|value| self.value(&value)).transpose()
    }

    /// As `get_many`: see [`Pool::get_many_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let key = "1".to_owned();
    /// # let task = async {
    /// assert_eq!(names.get_many_async(&[key]).await?, [None]);
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get_many`.
    pub async fn get_many_async(&self, keys: &[K]) -> Result<Vec<Option<V>>, Error> {
        let keys = self.keys(keys)?;
        self.values(self.pool().get_many_async(&keys).await)
    }

    /// As `contains_key`: see [`Pool::contains_key_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let key = "1".to_owned();
    /// # let task = async {
    /// assert!(!names.contains_key_async(&key).await?);
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `contains_key`.
    pub async fn contains_key_async<Q: ?Sized>(&self, key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
        Ok(self.pool().contains_key_async(self.key(key)?).await)
    }

    /// As `insert`: see [`Pool::insert_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// # let task = async {
    /// names.insert_async(&key, &name).await?;
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Codec`; as [`Pool::insert_async`].
    pub async fn insert_async<Q: ?Sized>(&self, key: &Q, value: &V) -> Result<(), Error>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
        self.insert_with_async(key, value, InsertOptions::new()).await
    }

    /// As `insert_with`: see [`Pool::insert_with_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// # let task = async {
    /// names.insert_with_async(&key, &name, InsertOptions::new()).await?;
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `insert_async`.
    pub async fn insert_with_async<Q: ?Sized>(&self, key: &Q, value: &V, options: InsertOptions) -> Result<(), Error>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
        self.pool().insert_with_async(self.key(key)?, self.encoded(value)?, options).await
    }

    /// As `insert_if_absent`: see [`Pool::insert_if_absent_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// # let task = async {
    /// assert!(names.insert_if_absent_async(&key, &name, InsertOptions::new()).await?);
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Codec`; as [`Pool::insert_if_absent_async`].
    pub async fn insert_if_absent_async<Q: ?Sized>(
        &self,
        key: &Q,
        value: &V,
        options: InsertOptions,
    ) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
        self.pool().insert_if_absent_async(self.key(key)?, self.encoded(value)?, options).await
    }

    /// As `touch`: see [`Pool::touch_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let key = "1".to_owned();
    /// # let task = async {
    /// assert!(!names.touch_async(&key, std::time::Duration::from_secs(600)).await?);
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `touch`.
    pub async fn touch_async<Q: ?Sized>(&self, key: &Q, ttl: impl Into<Ttl>) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
        self.pool().touch_async(self.key(key)?, ttl).await
    }

    /// As `remove`: see [`Pool::remove_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let key = "1".to_owned();
    /// # let task = async {
    /// assert!(!names.remove_async(&key).await?);
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Codec`; `Closed`.
    pub async fn remove_async<Q: ?Sized>(&self, key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
        let was_present = self.pool().remove_async(self.key(key)?).await;
        self.pool().commands.0.removal(was_present)
    }

    /// As `get_or_insert_with`: see [`Pool::get_or_insert_with_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// # let task = async {
    /// assert_eq!(names.get_or_insert_with_async(&key, async { name }).await?, "Ada");
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get_or_insert_with`.
    pub async fn get_or_insert_with_async<Q: ?Sized>(&self, key: &Q, load: impl Future<Output = V>) -> Result<V, Error>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
        let load = async { Ok::<_, LoadError<Infallible>>(Some(self.encoded(&load.await)?.into())) };
        let key = self.key(key)?;
        self.load_async(&key, LoadOptions::new(), load).await?.ok_or_else(|| known_absent(&key))
    }

    /// As `try_get_or_insert_with`: see [`Pool::try_get_or_insert_with_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// # let task = async {
    /// let load = async { Ok::<_, std::io::Error>((name, InsertOptions::new())) };
    /// assert_eq!(names.try_get_or_insert_with_async(&key, load).await.unwrap(), "Ada");
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `try_get_or_insert_with`.
    pub async fn try_get_or_insert_with_async<Q: ?Sized, L: Into<TypedLoaded<V>>, E>(
        &self,
        key: &Q,
        load: impl Future<Output = Result<L, E>>,
    ) -> Result<V, LoadError<E>>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
        let load = async { self.loaded(load.await.map(Some)) };
        let key = self.key(key)?;
        self.load_async(&key, LoadOptions::new(), load).await?.ok_or_else(|| known_absent(&key).into())
    }

    /// As `get_or_load`: see [`Pool::get_or_load_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions, LoadOptions, PlainBytes};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let names = cache.typed_with::<String, String, _>(PlainBytes);
    /// # let (key, name) = ("1".to_owned(), "Ada".to_owned());
    /// # let task = async {
    /// let load = async { Ok::<_, std::io::Error>(Some((name, InsertOptions::new()))) };
    /// assert!(names.get_or_load_async(&key, LoadOptions::new(), load).await.unwrap().is_some());
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get_or_load`.
    pub async fn get_or_load_async<Q: ?Sized, L: Into<TypedLoaded<V>>, E>(
        &self,
        key: &Q,
        options: LoadOptions,
        load: impl Future<Output = Result<Option<L>, E>>,
    ) -> Result<Option<V>, LoadError<E>>
    where
        K: Borrow<Q>,
        C: EncodeKey<Q>,
    {
        self.load_async(&self.key(key)?, options, async { self.loaded(load.await) }).await
    }

    /// The value of a key, decoded, or of the loader.
    async fn load_async<E>(
        &self,
        key: &[u8],
        options: LoadOptions,
        load: impl Future<Output = Result<Option<Loaded>, LoadError<E>>>,
    ) -> Result<Option<V>, LoadError<E>> {
        let found = match self.decoded(self.pool().look_async(key).await) {
            Ok(value) => return Ok(Some(value)),
            Err(found) => found,
        };
        let conditions = (|| false, |bytes: &[u8]| self.decodes(bytes));
        let value = self.pool().load_after_async(key, found, options, conditions, load).await;
        Ok(value.map_err(flatten)?.map(|value| self.value(&value)).transpose()?)
    }
}
