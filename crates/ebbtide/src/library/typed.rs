//! Typed views of a pool: keys and values are encoded by a codec.

use super::insert_options::InsertOptions;
use super::loader::{self, LoadError, LoadOptions, Loaded};
use super::pool::Pool;
use super::value::Value;
use crate::error::Error;
use std::fmt::{Debug, Display, Formatter};
use std::marker::PhantomData;

/// Encodes keys and values, and decodes values. Equal keys must have equal bytes: 1 to 255 of them.
pub trait Codec<T: ?Sized> {
    /// Why a value has no bytes, or bytes have no value.
    type Error: Display;

    /// Appends the bytes of `value`.
    ///
    /// # Errors
    /// The codec cannot express the value.
    fn encode(&self, value: &T, bytes: &mut Vec<u8>) -> Result<(), Self::Error>;

    /// The value of these bytes.
    ///
    /// # Errors
    /// The bytes are none of a value, as after a change of the type.
    fn decode(&self, bytes: &[u8]) -> Result<T, Self::Error>
    where
        T: Sized;
}

/// The codec of types that serde serializes, in the postcard format: compact, without names of fields. A changed type
/// does not read values of the former one: use another pool, or a new `memory_file` and flash.
#[cfg(feature = "serde")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Postcard;

#[cfg(feature = "serde")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> Codec<T> for Postcard {
    type Error = postcard::Error;

    fn encode(&self, value: &T, bytes: &mut Vec<u8>) -> Result<(), postcard::Error> {
        *bytes = postcard::to_extend(value, std::mem::take(bytes))?;
        Ok(())
    }

    fn decode(&self, bytes: &[u8]) -> Result<T, postcard::Error> {
        postcard::from_bytes(bytes)
    }
}

/// The codec of types that are bytes already: `String`, `Vec<u8>`. It costs a copy and no format.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainBytes;

impl<T: AsRef<[u8]> + TryFrom<Vec<u8>, Error: Display>> Codec<T> for PlainBytes {
    type Error = T::Error;

    fn encode(&self, value: &T, bytes: &mut Vec<u8>) -> Result<(), T::Error> {
        bytes.extend_from_slice(value.as_ref());
        Ok(())
    }

    fn decode(&self, bytes: &[u8]) -> Result<T, T::Error> {
        bytes.to_vec().try_into()
    }
}

/// A pool with keys of type `K` and values of type `V`; made by [`Pool::typed_with`], or by `Pool::typed` with the
/// feature `serde`. A clone is a view of the same pool.
///
/// ```
/// # use ebbtide::{ByteSize, Cache, PlainBytes, TypedCache};
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// let names: TypedCache<String, Vec<u8>, PlainBytes> = cache.typed_with(PlainBytes);
/// names.insert(&"42".to_owned(), &b"Ada".to_vec())?;
/// assert_eq!(names.get(&"42".to_owned())?, Some(b"Ada".to_vec()));
/// # Ok::<(), ebbtide::Error>(())
/// ```
pub struct TypedCache<K, V, C> {
    pool: Pool,
    codec: C,
    types: PhantomData<fn(K) -> V>,
}

impl Pool {
    /// A view of this pool with typed keys and values.
    pub fn typed_with<K, V, C: Codec<K> + Codec<V>>(&self, codec: C) -> TypedCache<K, V, C> {
        TypedCache { pool: self.clone(), codec, types: PhantomData }
    }

    /// A view of this pool with keys and values that serde serializes.
    #[cfg(feature = "serde")]
    pub fn typed<K, V>(&self) -> TypedCache<K, V, Postcard>
    where
        Postcard: Codec<K> + Codec<V>,
    {
        self.typed_with(Postcard)
    }
}

impl<K, V, C: Codec<K> + Codec<V>> TypedCache<K, V, C> {
    /// The value of a key.
    ///
    /// # Errors
    /// `Codec` if the key or the value does not fit the codec.
    pub fn get(&self, key: &K) -> Result<Option<V>, Error> {
        self.pool.get(self.key(key)?).map(|value| self.value(&value)).transpose()
    }

    /// Writes a value with the default TTL.
    ///
    /// # Errors
    /// `Codec`; as [`Pool::insert`].
    pub fn insert(&self, key: &K, value: &V) -> Result<(), Error> {
        self.insert_with(key, value, InsertOptions::new())
    }

    /// Writes a value with options.
    ///
    /// # Errors
    /// As `insert`.
    pub fn insert_with(&self, key: &K, value: &V, options: InsertOptions) -> Result<(), Error> {
        self.pool.insert_with(self.key(key)?, self.encoded(value)?, options)
    }

    /// Removes a key. False if it was absent.
    ///
    /// # Errors
    /// `Codec`.
    pub fn remove(&self, key: &K) -> Result<bool, Error> {
        Ok(self.pool.remove(self.key(key)?))
    }

    /// The value of a key; if it is absent, the value that `load` returns: see [`Pool::get_or_insert_with`].
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

    /// As `get_or_load`, for tasks of any executor: see [`Pool::get_or_load_async`].
    ///
    /// # Errors
    /// As `get_or_load`.
    pub async fn get_or_load_async<E>(
        &self,
        key: &K,
        options: LoadOptions,
        load: impl Future<Output = Result<Option<(V, InsertOptions)>, E>>,
    ) -> Result<Option<V>, LoadError<E>> {
        let load = async { self.loaded(load.await) };
        let value = self.pool.get_or_load_async(self.key(key)?, options, load).await;
        Ok(value.map_err(loader::flatten)?.map(|value| self.value(&value)).transpose()?)
    }

    /// As `get`, for tasks of any executor: see [`Pool::get_async`].
    ///
    /// # Errors
    /// As `get`.
    pub async fn get_async(&self, key: &K) -> Result<Option<V>, Error> {
        self.pool.get_async(self.key(key)?).await.map(|value| self.value(&value)).transpose()
    }

    /// As `try_get_or_insert_with`, for tasks of any executor: see [`Pool::try_get_or_insert_with_async`].
    ///
    /// # Errors
    /// As `try_get_or_insert_with`.
    pub async fn try_get_or_insert_with_async<E>(
        &self,
        key: &K,
        load: impl Future<Output = Result<(V, InsertOptions), E>>,
    ) -> Result<V, LoadError<E>> {
        let load = async { self.encoded_load(load.await) };
        let value = self.pool.try_get_or_insert_with_async(self.key(key)?, load).await;
        Ok(self.value(&value.map_err(loader::flatten)?)?)
    }

    /// The untyped pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    fn key(&self, key: &K) -> Result<Vec<u8>, Error> {
        encode(&self.codec, key, "key")
    }

    fn encoded(&self, value: &V) -> Result<Vec<u8>, Error> {
        encode(&self.codec, value, "value")
    }

    fn encoded_load<E>(&self, loaded: Result<(V, InsertOptions), E>) -> Result<Loaded, LoadError<E>> {
        let (value, options) = loaded.map_err(LoadError::Loader)?;
        Ok(Loaded { value: self.encoded(&value)?.into(), options })
    }

    fn loaded<E>(&self, loaded: Result<Option<(V, InsertOptions)>, E>) -> Result<Option<Loaded>, LoadError<E>> {
        loaded.map_err(LoadError::Loader)?.map(|loaded| self.encoded_load(Ok(loaded))).transpose()
    }

    fn value(&self, value: &Value) -> Result<V, Error> {
        self.codec.decode(value).map_err(|error| refuse("value", &error))
    }
}

fn encode<T>(codec: &impl Codec<T>, value: &T, part: &'static str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    codec.encode(value, &mut bytes).map_err(|error| refuse(part, &error))?;
    Ok(bytes)
}

fn refuse(part: &'static str, error: &impl Display) -> Error {
    Error::Codec { part, reason: error.to_string() }
}

fn flatten(error: LoadError<Error>) -> Error {
    match error {
        LoadError::Loader(error) | LoadError::Cache(error) => error,
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
