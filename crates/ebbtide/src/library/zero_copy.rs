//! Zero-copy views: values of plain types, read where they lie.
//!
//! Values lie behind their keys in segments, at any address. So a type with an alignment of 1 is always read in place.
//! A value of another type is read in place if its address happens to be aligned; otherwise its bytes are copied once
//! to an aligned place, which costs less than any decoding.

use super::codec::Codec;
use super::typed::{TypedCache, refuse};
use super::value::ValueRef;
use crate::error::Error;
use std::fmt::{Debug, Formatter};
use std::ops::Deref;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The codec of plain types: those whose bytes are their encoding, as `u64`, `[u8; 16]`, and structs that derive
/// zerocopy's `FromBytes`, `IntoBytes`, `KnownLayout` and `Immutable`. [`TypedCache::with`] and [`TypedCache::get_ref`]
/// read them without decoding.
///
/// Numbers have the order of bytes of the machine: for a `memory_file` or flash that moves between machines use those
/// of `zerocopy::little_endian`, which have an alignment of 1, too. A changed type does not read values of the former
/// one if its size has changed; otherwise it reads them as its own: use another pool.
///
/// ```
/// use ebbtide::{ByteSize, Cache, TypedCache, ZeroCopy};
/// use zerocopy::little_endian::{F32, U32};
///
/// /// Features of a user, for a model.
/// #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable)]
/// #[repr(C)]
/// struct Features {
///     version: U32,
///     weights: [F32; 256],
/// }
///
/// let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// let features: TypedCache<u64, Features, ZeroCopy> = cache.typed_with(ZeroCopy);
/// features.insert(&42, &Features { version: 1.into(), weights: [0.5.into(); 256] })?;
/// let sum = features.with(&42, |features| features.weights.iter().map(|weight| weight.get()).sum::<f32>())?;
/// assert_eq!(sum, Some(128.0));
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ZeroCopy;

/// Why bytes are no value of a plain type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{length} bytes, and the type has {expected}: it was written as another type")]
#[non_exhaustive]
pub struct PlainLength {
    pub length: usize,
    pub expected: usize,
}

impl PlainLength {
    fn of<T>(bytes: &[u8]) -> Self {
        Self { length: bytes.len(), expected: size_of::<T>() }
    }
}

impl<T: FromBytes + IntoBytes + KnownLayout + Immutable> Codec<T> for ZeroCopy {
    type Error = PlainLength;

    fn encode(&self, value: &T, bytes: &mut Vec<u8>) -> Result<(), PlainLength> {
        bytes.extend_from_slice(value.as_bytes());
        Ok(())
    }

    fn decode(&self, bytes: &[u8]) -> Result<T, PlainLength> {
        T::read_from_bytes(bytes).map_err(|_| PlainLength::of::<T>(bytes))
    }
}

/// Longer copies are on the heap: a thread's stack may have 2 MiB.
const MAX_BYTES_ON_STACK: usize = 4096;

/// An aligned copy of a value.
fn boxed<T: FromBytes + IntoBytes>(bytes: &[u8]) -> Result<Box<T>, PlainLength> {
    if bytes.len() != size_of::<T>() {
        return Err(PlainLength::of::<T>(bytes));
    }
    let mut copy = T::new_box_zeroed().expect("memory for a value");
    copy.as_mut_bytes().copy_from_slice(bytes);
    Ok(copy)
}

/// Calls `read` with a copy on the stack. Not inlined: callers with long values reserve no stack for them.
#[inline(never)]
fn read_copy<T: FromBytes, R>(bytes: &[u8], read: impl FnOnce(&T) -> R) -> Result<R, PlainLength> {
    T::read_from_bytes(bytes).map(|copy| read(&copy)).map_err(|_| PlainLength::of::<T>(bytes))
}

fn read_in_place<T, R>(bytes: &[u8], read: impl FnOnce(&T) -> R) -> Result<R, PlainLength>
where
    T: FromBytes + IntoBytes + KnownLayout + Immutable,
{
    match T::ref_from_bytes(bytes) {
        Ok(value) => Ok(read(value)),
        Err(_) if size_of::<T>() <= MAX_BYTES_ON_STACK => read_copy(bytes, read),
        Err(_) => boxed(bytes).map(|copy| read(&copy)),
    }
}

/// A value of a plain type that is borrowed from the cache; derefs to the value. Made by [`TypedCache::get_ref`].
///
/// **A thread that holds one cannot evict, and holds up all others**: see [`ValueRef`].
pub struct TypedRef<'a, V> {
    bytes: ValueRef<'a>,
    /// Of a value whose address is not aligned.
    copy: Option<Box<V>>,
}

/// Reading in place.
impl<K, V> TypedCache<K, V, ZeroCopy>
where
    K: FromBytes + IntoBytes + KnownLayout + Immutable,
    V: FromBytes + IntoBytes + KnownLayout + Immutable,
{
    /// Calls `read` with a value where it lies, or with an aligned copy: see [`ZeroCopy`]. `read` should be
    /// brief and must not write to the cache: see [`ValueRef`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, ZeroCopy};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let counts = cache.typed_with::<u64, [u64; 4], _>(ZeroCopy);
    /// counts.insert(&1, &[1, 2, 3, 4])?;
    /// assert_eq!(counts.with(&1, |counts| counts.iter().sum::<u64>())?, Some(10));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Codec` if the value has another length than the type.
    pub fn with<R>(&self, key: &K, read: impl FnOnce(&V) -> R) -> Result<Option<R>, Error> {
        let result = self.pool().with(self.key(key)?, |bytes| read_in_place(bytes, read));
        result.transpose().map_err(|error| refuse("value", &error))
    }

    /// As `with`: see [`crate::Pool::with_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, ZeroCopy};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// let counts = cache.typed_with::<u64, [u64; 4], _>(ZeroCopy);
    /// assert_eq!(counts.with_async(&1, |counts| counts[0]).await?, None);
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `with`.
    pub async fn with_async<R>(&self, key: &K, read: impl FnOnce(&V) -> R) -> Result<Option<R>, Error> {
        let result = self.pool().with_async(self.key(key)?, |bytes| read_in_place(bytes, read)).await;
        result.transpose().map_err(|error| refuse("value", &error))
    }

    /// A borrowed value. While the thread holds it and the cache is full, its own writes fail, and those of all other
    /// threads wait, and fail after two seconds: see [`ValueRef`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, ZeroCopy};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let counts = cache.typed_with::<u64, [u64; 4], _>(ZeroCopy);
    /// counts.insert(&1, &[1, 2, 3, 4])?;
    /// assert_eq!(counts.get_ref(&1)?.map(|counts| counts[3]), Some(4));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `with`.
    pub fn get_ref(&self, key: &K) -> Result<Option<TypedRef<'_, V>>, Error> {
        let Some(bytes) = self.pool().get_ref(self.key(key)?) else { return Ok(None) };
        let copy = match V::ref_from_bytes(&bytes) {
            Ok(_) => None,
            Err(_) => Some(boxed(&bytes).map_err(|error| refuse("value", &error))?),
        };
        Ok(Some(TypedRef { bytes, copy }))
    }
}

impl<V: FromBytes + KnownLayout + Immutable> Deref for TypedRef<'_, V> {
    type Target = V;

    fn deref(&self) -> &V {
        let in_place = || V::ref_from_bytes(&self.bytes).expect("it was when this was made");
        self.copy.as_deref().unwrap_or_else(in_place)
    }
}

impl<V> Debug for TypedRef<'_, V> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let is_copied = self.copy.is_some();
        f.debug_struct("TypedRef").field("bytes", &self.bytes).field("is_copied", &is_copied).finish()
    }
}
