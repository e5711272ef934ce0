//! Codecs of typed caches: how keys and values are bytes.

use std::convert::Infallible;
use std::fmt::Display;

/// Encodes keys and values, and decodes them. Equal keys must have equal bytes: 1 to 255 of them.
///
/// ```
/// # use ebbtide::{ByteSize, Cache, Codec, TypedCache};
/// struct BigEndian;
/// impl Codec<u32> for BigEndian {
///     type Error = std::array::TryFromSliceError;
///     fn encode(&self, value: &u32, bytes: &mut Vec<u8>) -> Result<(), Self::Error> {
///         Ok(bytes.extend_from_slice(&value.to_be_bytes()))
///     }
///     fn decode(&self, bytes: &[u8]) -> Result<u32, Self::Error> {
///         Ok(u32::from_be_bytes(bytes.try_into()?))
///     }
/// }
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// let squares: TypedCache<u32, u32, BigEndian> = cache.typed_with(BigEndian);
/// assert_eq!(squares.get_or_insert_with(&7, || 49)?, 49);
/// # Ok::<(), ebbtide::Error>(())
/// ```
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

/// Encodes keys, also in their borrowed form: a [`crate::TypedCache`] with keys of type `String` looks up a `&str`.
/// Every [`Codec`] of a type encodes its keys; another form must have the bytes of the owned one.
pub trait EncodeKey<Q: ?Sized> {
    /// Why a key has no bytes.
    type Error: Display;

    /// Appends the bytes of `key`.
    ///
    /// # Errors
    /// The codec cannot express the key.
    fn encode_key(&self, key: &Q, bytes: &mut Vec<u8>) -> Result<(), Self::Error>;
}

impl<T, C: Codec<T>> EncodeKey<T> for C {
    type Error = C::Error;

    fn encode_key(&self, key: &T, bytes: &mut Vec<u8>) -> Result<(), C::Error> {
        self.encode(key, bytes)
    }
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

/// serde writes a `str` as the `String`.
#[cfg(feature = "serde")]
impl EncodeKey<str> for Postcard {
    type Error = postcard::Error;

    fn encode_key(&self, key: &str, bytes: &mut Vec<u8>) -> Result<(), postcard::Error> {
        *bytes = postcard::to_extend(key, std::mem::take(bytes))?;
        Ok(())
    }
}

/// serde writes a slice as the `Vec`.
#[cfg(feature = "serde")]
impl<T: serde::Serialize> EncodeKey<[T]> for Postcard {
    type Error = postcard::Error;

    fn encode_key(&self, key: &[T], bytes: &mut Vec<u8>) -> Result<(), postcard::Error> {
        *bytes = postcard::to_extend(key, std::mem::take(bytes))?;
        Ok(())
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

impl EncodeKey<str> for PlainBytes {
    type Error = Infallible;

    fn encode_key(&self, key: &str, bytes: &mut Vec<u8>) -> Result<(), Infallible> {
        bytes.extend_from_slice(key.as_bytes());
        Ok(())
    }
}

impl EncodeKey<[u8]> for PlainBytes {
    type Error = Infallible;

    fn encode_key(&self, key: &[u8], bytes: &mut Vec<u8>) -> Result<(), Infallible> {
        bytes.extend_from_slice(key);
        Ok(())
    }
}
