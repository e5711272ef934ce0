//! Codecs of typed caches: how keys and values are bytes.

use std::fmt::Display;

/// Encodes keys and values, and decodes them. Equal keys must have equal bytes: 1 to 255 of them.
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
