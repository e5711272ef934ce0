//! The value of a path in the cache: the head of a response, and the first part of its body behind it.
//!
//! ```text
//! | length of the head: u32 | head: postcard | first part of the body, up to 256 KiB |
//! ```
//! So an object of up to 256 KiB is found by one lookup. Longer bodies go on in values of their own: `parts.rs`.

use ebbtide::Value;
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{AGE, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

/// Bytes of each part of a body but the last.
pub const PART_BYTES: usize = 256 << 10;

/// Bytes from the start of a value that hold the head of nearly every response.
pub const HEAD_BYTES: usize = 4 << 10;

/// The cached entry of a path.
#[derive(Serialize, Deserialize)]
enum Head<'a> {
    Response {
        status: u16,
        #[serde(borrow)]
        headers: Vec<(&'a str, &'a [u8])>,
        identity: Identity,
    },
    /// The response is not to be kept. It is remembered for some seconds, so that requests for the path do not wait
    /// for each other.
    NotCacheable,
}

/// Of a response in the cache: everything but its headers and bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// A random number, part of the keys of the further parts.
    pub body: u64,
    pub length: u64,
    /// When the response had an age of zero, in seconds since 1970.
    pub made_at: u64,
    /// When the response stops being fresh.
    pub fresh_until: u64,
}

/// A decoded value.
pub enum Entry {
    Response(Stored),
    NotCacheable,
}

pub struct Stored {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub identity: Identity,
    pub first_part: Bytes,
}

/// The start of a value; the first part follows.
pub fn encode(status: StatusCode, headers: &HeaderMap, identity: Identity) -> Vec<u8> {
    let kept = headers.iter().filter(|(name, _)| **name != AGE && **name != CONTENT_LENGTH);
    let headers = kept.map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    encode_head(&Head::Response { status: status.as_u16(), headers, identity })
}

pub fn encode_not_cacheable() -> Vec<u8> {
    encode_head(&Head::NotCacheable)
}

fn encode_head(head: &Head<'_>) -> Vec<u8> {
    let value = vec![0; 4];
    let mut value = postcard::to_extend(head, value).expect("a vector has space");
    let length = u32::try_from(value.len() - 4).expect("hyper bounds the headers");
    value[..4].copy_from_slice(&length.to_le_bytes());
    value
}

/// `None` if another program, or another version of this one, has written the value.
pub fn decode(value: Value) -> Option<Entry> {
    let (mut entry, length) = decode_head(&value)?;
    if let Entry::Response(stored) = &mut entry {
        // The bytes stay where the cache has them: they are not copied.
        stored.first_part = Bytes::from_owner(value).slice(length..);
        if stored.first_part.len() as u64 != stored.identity.length.min(PART_BYTES as u64) {
            return None;
        }
    }
    Some(entry)
}

/// The entry without the first part, from the start of a value, and the length of the head.
pub fn decode_head(bytes: &[u8]) -> Option<(Entry, usize)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    let entry = match postcard::from_bytes(rest.get(..length)?).ok()? {
        Head::NotCacheable => Entry::NotCacheable,
        Head::Response { status, headers, identity } => {
            let mut decoded = HeaderMap::with_capacity(headers.len() + 4);
            for (name, value) in headers {
                decoded.append(HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(value).ok()?);
            }
            let status = StatusCode::from_u16(status).ok()?;
            Entry::Response(Stored { status, headers: decoded, identity, first_part: Bytes::new() })
        }
    };
    Some((entry, 4 + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity { body: 7, length: 5, made_at: 1, fresh_until: 61 }
    }

    #[test]
    fn a_response_is_decoded_as_it_was_encoded() {
        let headers = HeaderMap::from_iter([
            ("etag".parse().unwrap(), "\"1\"".parse().unwrap()),
            ("age".parse().unwrap(), "9".parse().unwrap()),
            ("content-length".parse().unwrap(), "5".parse().unwrap()),
        ]);
        let mut value = encode(StatusCode::NOT_FOUND, &headers, identity());
        value.extend_from_slice(b"hello");
        let Some(Entry::Response(stored)) = decode(value.into()) else { panic!("no response") };
        assert_eq!((stored.status, &stored.first_part[..]), (StatusCode::NOT_FOUND, &b"hello"[..]));
        assert_eq!(stored.headers, HeaderMap::from_iter([("etag".parse().unwrap(), "\"1\"".parse().unwrap())]));
        assert!(matches!(decode(encode_not_cacheable().into()), Some(Entry::NotCacheable)));
    }

    #[test]
    fn other_bytes_are_no_entry() {
        for bytes in [&b""[..], b"abc", b"\xff\xff\xff\xffabc", b"\x01\0\0\0\x09", b"\x04\0\0\0\0\0"] {
            assert!(decode(bytes.into()).is_none(), "{bytes:?}");
        }
    }
}
